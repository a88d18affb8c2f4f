//! The load generator for all compared servers: persistent connections, one request at a time on each, bounded in count
//! and in time. A [`Load`] is plain HTTP/1.1; other protocols are [`Lane`]s with a parser of their own.

mod connection;
mod http;
mod lane;
mod response;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::task::JoinSet;

use crate::stats::Samples;
pub use connection::{Connection, Reply};
pub use http::{Http, request};
pub use lane::Lane;

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

impl Load {
    /// Runs the load.
    ///
    /// # Errors
    /// If a connection fails, a response is not HTTP or takes more than ten seconds, or more than 1 % of the responses
    /// are unexpected, which makes the figures meaningless.
    pub async fn run(&self) -> Result<Tally> {
        ensure!(!self.requests.is_empty(), "a load without requests");
        let mut lanes = Vec::new();
        for number in 0..self.connections {
            let turns = (number..self.count).step_by(self.connections);
            lanes.push(Lane::http(self.addr, Arc::clone(&self.requests), turns, self.good).await?);
        }
        run(&mut lanes, self.time, None).await
    }
}

/// Runs all lanes concurrently for at most this time. With `every`, each lane starts a request once in that time,
/// instead of as soon as the last one was answered; the lanes are spread over it.
///
/// # Errors
/// As [`Load::run`].
pub async fn run(lanes: &mut Vec<Lane>, time: Duration, every: Option<Duration>) -> Result<Tally> {
    let start = Instant::now();
    let count = u32::try_from(lanes.len().max(1)).context("too many lanes")?;
    let mut tasks = JoinSet::new();
    for (number, mut lane) in (0..).zip(lanes.drain(..)) {
        tasks.spawn(async move {
            let pace = every.map(|every| (start + every * number / count, every));
            let tally = lane.drive(start + time, pace).await?;
            anyhow::Ok((lane, tally))
        });
    }
    let mut total = Tally::default();
    while let Some(done) = tasks.join_next().await {
        let (lane, tally) = done.context("a load task")??;
        lanes.push(lane);
        total.add(tally);
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
