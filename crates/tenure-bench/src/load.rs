//! The HTTP load generator, the same for every server that is compared: plain HTTP/1.1 over connections that stay open,
//! one request at a time on each, bounded in count and in time.

mod answer;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::stats::{Samples, ms};
use answer::Answer;

/// How long one answer may take before the run counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer that is read.
const MAX_ANSWER: usize = 16 << 20;

/// What to send, to whom, and when to stop.
#[derive(Clone)]
pub struct Load {
    /// The server.
    pub addr: SocketAddr,
    /// How many connections, each with one request under way.
    pub connections: usize,
    /// Whole requests as bytes (see [`request`]); taken in turn.
    pub requests: Arc<[Vec<u8>]>,
    /// Stop after this many requests.
    pub count: usize,
    /// Stop after this long.
    pub time: Duration,
    /// Whether an answer with status 2xx is the one hoped for, by its body.
    pub good: fn(&[u8]) -> bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Tally {
    /// Answers as hoped for.
    pub good: usize,
    /// Other answers.
    pub bad: usize,
    /// The first of those, shortened.
    pub first_bad: Option<String>,
    /// From sending to the end of the answer, in ms.
    pub latency: Samples,
    /// How long the whole run took.
    pub took: Duration,
}

impl Tally {
    /// Good answers a second.
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

/// A whole request as bytes.
#[must_use]
pub fn request(addr: SocketAddr, method: &str, path: &str, body: &str) -> Vec<u8> {
    let (kind, length) = ("Content-Type: application/json", body.len());
    format!("{method} {path} HTTP/1.1\r\nHost: {addr}\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

impl Load {
    /// Runs it.
    ///
    /// # Errors
    /// When a connection fails, an answer is no HTTP or takes more than ten seconds, or more than 1 % of the answers are
    /// not as hoped for: then the figures mean nothing.
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
        let mut line = Line::connect(self.addr).await?;
        for turn in (number..self.count).step_by(self.connections) {
            let sent = Instant::now();
            if sent >= deadline {
                break;
            }
            let answer = line.exchange(&self.requests[turn % self.requests.len()]).await?;
            tally.latency.push(ms(sent.elapsed()));
            let body = answer.body(&line.buffer);
            if (200..300).contains(&answer.status) && (self.good)(&body) {
                tally.good += 1;
            } else {
                tally.bad += 1;
                tally.first_bad.get_or_insert_with(|| {
                    let text: String = String::from_utf8_lossy(&body).chars().take(300).collect();
                    format!("{} {text}", answer.status)
                });
            }
            if answer.close {
                line = Line::connect(self.addr).await?;
            }
        }
        Ok(tally)
    }
}

/// One connection.
struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Line {
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

    /// Sends a request and reads its answer into the buffer.
    async fn exchange(&mut self, request: &[u8]) -> Result<Answer> {
        self.buffer.clear();
        let work = async {
            self.stream.write_all(request).await.context("send a request")?;
            loop {
                if let Some(answer) = Answer::parse(&self.buffer)? {
                    return Ok(answer);
                }
                ensure!(
                    self.buffer.len() < MAX_ANSWER,
                    "an answer of more than {MAX_ANSWER} bytes"
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
