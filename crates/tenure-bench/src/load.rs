//! The HTTP load generator for all compared servers: plain HTTP/1.1 over persistent connections, one request at a time
//! on each, bounded in count and in time.

mod response;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::stats::{Samples, ms};
use response::Response;

/// The time-out of a response, after which the run has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum size of a response.
const MAX_RESPONSE: usize = 16 << 20;

/// A load: the requests, the server, and the bounds.
#[derive(Clone)]
pub struct Load {
    /// The address of the server.
    pub addr: SocketAddr,
    /// The number of connections, each with one request in flight.
    pub connections: usize,
    /// Whole requests as bytes (see [`request`]), sent in turn.
    pub requests: Arc<[Vec<u8>]>,
    /// The maximum number of requests.
    pub count: usize,
    /// The maximum duration.
    pub time: Duration,
    /// Whether the body of a response with status 2xx is as expected.
    pub good: fn(&[u8]) -> bool,
}

/// The result of a load.
#[derive(Debug, Default)]
pub struct Tally {
    /// Expected responses.
    pub good: usize,
    /// Other responses.
    pub bad: usize,
    /// The first of those, shortened.
    pub first_bad: Option<String>,
    /// From sending to the end of the response, in ms.
    pub latency: Samples,
    /// The duration of the run.
    pub took: Duration,
}

impl Tally {
    /// Expected responses per second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 requests")]
    pub fn rate(&self) -> f64 {
        self.good as f64 / self.took.as_secs_f64()
    }

    fn add(&mut self, other: Tally) {
        self.good += other.good;
        self.bad += other.bad;
        self.first_bad = self.first_bad.take().or(other.first_bad);
        self.latency.extend(other.latency.values().iter().copied());
    }
}

/// Builds a whole request as bytes.
#[must_use]
pub fn request(addr: SocketAddr, method: &str, path: &str, body: &str) -> Vec<u8> {
    let (kind, length) = ("Content-Type: application/json", body.len());
    format!("{method} {path} HTTP/1.1\r\nHost: {addr}\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

impl Load {
    /// Runs the load.
    ///
    /// # Errors
    /// If a connection fails, a response is not HTTP or takes more than ten seconds, or more than 1 % of the responses
    /// are unexpected, which makes the figures meaningless.
    pub async fn run(&self) -> Result<Tally> {
        ensure!(!self.requests.is_empty(), "a load without requests");
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for number in 0..self.connections {
            tasks.spawn(self.clone().drive(number, start + self.time));
        }
        let mut total = Tally::default();
        while let Some(done) = tasks.join_next().await {
            total.add(done.context("a load task")??);
        }
        total.took = start.elapsed();
        if total.bad * 100 > total.good {
            let first = total.first_bad.as_deref().unwrap_or_default();
            bail!(
                "{} of {} answers were wrong, like: {first}",
                total.bad,
                total.bad + total.good
            );
        }
        Ok(total)
    }

    async fn drive(self, number: usize, deadline: Instant) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut connection = Connection::connect(self.addr).await?;
        for turn in (number..self.count).step_by(self.connections) {
            let sent = Instant::now();
            if sent >= deadline {
                break;
            }
            let response = connection.exchange(&self.requests[turn % self.requests.len()]).await?;
            tally.latency.push(ms(sent.elapsed()));
            let body = response.body(&connection.buffer);
            if (200..300).contains(&response.status) && (self.good)(&body) {
                tally.good += 1;
            } else {
                tally.bad += 1;
                tally.first_bad.get_or_insert_with(|| {
                    let text: String = String::from_utf8_lossy(&body).chars().take(300).collect();
                    format!("{} {text}", response.status)
                });
            }
            if response.close {
                connection = Connection::connect(self.addr).await?;
            }
        }
        Ok(tally)
    }
}

/// One connection.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn connect(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(addr)
            .await
            .with_context(|| format!("connect to {addr}"))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::with_capacity(64 << 10),
        })
    }

    /// Sends a request and reads its response into the buffer.
    async fn exchange(&mut self, request: &[u8]) -> Result<Response> {
        self.buffer.clear();
        let work = async {
            self.stream.write_all(request).await.context("send a request")?;
            loop {
                if let Some(answer) = Response::parse(&self.buffer)? {
                    return Ok(answer);
                }
                ensure!(
                    self.buffer.len() < MAX_RESPONSE,
                    "an answer of more than {MAX_RESPONSE} bytes"
                );
                let read = self.stream.read_buf(&mut self.buffer).await.context("read an answer")?;
                ensure!(read > 0, "the server closed the connection in the middle of an answer");
            }
        };
        tokio::time::timeout(PATIENCE, work)
            .await
            .context("no answer in time")?
    }
}
