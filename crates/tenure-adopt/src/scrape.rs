//! A minimal HTTP server for Prometheus, for a process that serves nothing else.
//!
//! One request per connection; the number of connections, the size of a request and its duration are bounded.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tenure_core::clock::{Clock, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// The limit of concurrent connections; further ones wait.
const CONNECTIONS: usize = 16;
/// The longest request.
const LONGEST: usize = 8 * 1024;
/// The timeout of a request and its response.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause after a failed accept.
const BACKOFF: Duration = Duration::from_millis(100);

/// Serves until it is dropped.
pub(crate) async fn serve(listener: TcpListener, metrics: PrometheusHandle, clock: Arc<dyn Clock>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for metrics");
                clock.sleep(BACKOFF).await;
                continue;
            }
        };
        let (metrics, clock) = (metrics.clone(), Arc::clone(&clock));
        tokio::spawn(async move {
            // The client disconnected or is too slow.
            let _ = within(&*clock, PATIENCE, answer(stream, &metrics)).await;
            drop(permit);
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
    fn request_lines_are_routed() {
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
