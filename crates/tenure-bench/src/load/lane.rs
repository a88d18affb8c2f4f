//! A lane of the load generator: at most one request in flight.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::connection::{Connection, Parse};
use super::{Tally, http};
use crate::stats::ms;

/// One or more connections that are used in turn, and the requests for them.
pub struct Lane {
    connections: Vec<Connection>,
    requests: Arc<[Vec<u8>]>,
    /// The numbers of the requests to send.
    turns: Box<dyn Iterator<Item = usize> + Send>,
    parse: Parse,
    /// Whether each run begins with new connections, because a server may close idle ones between two runs.
    reconnects: bool,
}

impl Lane {
    /// Creates a lane. A turn is the number of a request and of a connection, each counted modulo their number.
    pub fn new(
        connections: Vec<Connection>,
        requests: Arc<[Vec<u8>]>,
        turns: impl Iterator<Item = usize> + Send + 'static,
        parse: Parse,
    ) -> Self {
        Self {
            connections,
            requests,
            turns: Box::new(turns),
            parse,
            reconnects: false,
        }
    }

    /// A lane of HTTP/1.1 on a new connection. `good` checks the body of a response with status 2xx.
    ///
    /// # Errors
    /// If the server does not accept.
    pub async fn http(
        addr: SocketAddr,
        requests: Arc<[Vec<u8>]>,
        turns: impl Iterator<Item = usize> + Send + 'static,
        good: fn(&[u8]) -> bool,
    ) -> Result<Self> {
        let connection = Connection::connect(addr).await?;
        let parse = Arc::new(move |bytes: &[u8]| http::parse(bytes, good));
        let lane = Self::new(vec![connection], requests, turns, parse);
        Ok(Self {
            reconnects: true,
            ..lane
        })
    }

    /// Sends the next requests, this many.
    ///
    /// # Errors
    /// If the connection fails, or a response is not as expected.
    pub async fn send(&mut self, count: usize) -> Result<()> {
        let mut tally = Tally::default();
        for _ in 0..count {
            self.next(&mut tally).await?;
        }
        ensure!(
            tally.bad == 0,
            "a wrong answer: {}",
            tally.first_bad.unwrap_or_default()
        );
        Ok(())
    }

    /// Sends the next requests until the deadline, at most one for each tick of the pace (its start and interval).
    pub(super) async fn drive(&mut self, deadline: Instant, pace: Option<(Instant, Duration)>) -> Result<Tally> {
        let mut tally = Tally::default();
        if self.reconnects {
            for connection in &mut self.connections {
                connection.reconnect().await?;
            }
        }
        let mut pace = pace.map(|(start, every)| tokio::time::interval_at(start.into(), every));
        loop {
            if let Some(pace) = &mut pace {
                pace.tick().await;
            }
            if Instant::now() >= deadline || !self.next(&mut tally).await? {
                return Ok(tally);
            }
        }
    }

    /// Sends the next request and waits for its response; false if there is none.
    async fn next(&mut self, tally: &mut Tally) -> Result<bool> {
        let Some(turn) = self.turns.next() else {
            return Ok(false);
        };
        let number = turn % self.connections.len();
        let connection = &mut self.connections[number];
        let request = &self.requests[turn % self.requests.len()];
        let parse = |bytes: &[u8]| Ok((self.parse)(bytes)?.map(|reply| (reply.size, reply)));
        let sent = Instant::now();
        let reply = connection.exchange(request, parse).await?;
        tally.latency.push(ms(sent.elapsed()));
        match reply.bad {
            None => tally.good += 1,
            Some(bad) => {
                tally.bad += 1;
                tally.first_bad.get_or_insert(bad);
            }
        }
        if reply.close {
            connection.reconnect().await?;
        }
        Ok(true)
    }
}
