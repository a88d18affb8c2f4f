//! Just enough HTTP for Prometheus to read `/metrics` from a process that serves nothing else.
//!
//! One request a connection, a bounded number of connections, a bounded request, a bounded time.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tenure_core::clock::{Clock, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// How many are answered at once; the next ones wait.
const CONNECTIONS: usize = 16;
/// The longest request.
const LONGEST: usize = 8 * 1024;
/// How long a request and its answer may take together.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait after the system gave no connection.
const BACKOFF: Duration = Duration::from_millis(100);

/// Answers until it is dropped.
pub(crate) async fn serve(listener: TcpListener, metrics: PrometheusHandle, clock: Arc<dyn Clock>) {
    let seats = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "no connection for metrics");
                clock.sleep(BACKOFF).await;
                continue;
            }
        };
        let (metrics, clock) = (metrics.clone(), Arc::clone(&clock));
        tokio::spawn(async move {
            // Whoever asked has gone away, or is too slow: nothing to be done.
            let _ = within(&*clock, PATIENCE, answer(stream, &metrics)).await;
            drop(seat);
        });
    }
}

async fn answer(mut stream: TcpStream, metrics: &PrometheusHandle) -> std::io::Result<()> {
    let mut request = Vec::with_capacity(1024);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() >= LONGEST || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let (status, body) = match reply(&String::from_utf8_lossy(line)) {
        Reply::Metrics => ("200 OK", metrics.render()),
        Reply::Alive => ("200 OK", "ok\n".to_owned()),
        Reply::Missing => ("404 Not Found", "there is /metrics and /livez\n".to_owned()),
        Reply::Refused => ("405 Method Not Allowed", "only GET\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Metrics,
    Alive,
    Missing,
    Refused,
}

fn reply(line: &str) -> Reply {
    let mut words = line.split(' ');
    if words.next() != Some("GET") {
        return Reply::Refused;
    }
    match words.next().unwrap_or_default().split('?').next() {
        Some("/metrics") => Reply::Metrics,
        Some("/livez") => Reply::Alive,
        _ => Reply::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_line_is_read_for_what_it_asks() {
        for (line, asked) in [
            ("GET /metrics HTTP/1.1", Reply::Metrics),
            ("GET /metrics?x=1 HTTP/1.0", Reply::Metrics),
            ("GET /livez HTTP/1.1", Reply::Alive),
            ("GET / HTTP/1.1", Reply::Missing),
            ("POST /metrics HTTP/1.1", Reply::Refused),
            ("", Reply::Refused),
        ] {
            assert_eq!(reply(line), asked, "{line}");
        }
    }
}
