//! The endpoints that the fleet polls: a small HTTP server that remembers who polled what, under which token, and how long
//! no node polled it. It rejects a token that is older than one it has seen, as any target of a fleet should.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tenure::{Clock, Mono};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// No request of ours has more lines.
const MOST_LINES: usize = 32;

/// The polls since the last [`Endpoints::reset`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Polls {
    /// The number of polls.
    pub(super) count: u64,
    /// The number of polls with a token below the highest one.
    pub(super) stale: u64,
    /// The longest time in which one endpoint was not polled.
    pub(super) longest_pause: Duration,
}

#[derive(Debug, Default)]
struct Records {
    polls: Polls,
    last: BTreeMap<String, (u64, Mono)>,
}

/// The server. It ends with its runtime.
#[derive(Debug, Clone)]
pub(super) struct Endpoints {
    address: SocketAddr,
    clock: Arc<dyn Clock>,
    records: Arc<Mutex<Records>>,
}

impl Endpoints {
    pub(super) async fn start(clock: &Arc<dyn Clock>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen")?;
        let endpoints = Self {
            address: listener.local_addr()?,
            clock: Arc::clone(clock),
            records: Arc::default(),
        };
        let server = endpoints.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let server = server.clone();
                // A malformed request gets no answer.
                tokio::spawn(async move { server.answer(socket).await.ok() });
            }
        });
        Ok(endpoints)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forgets the counts; who polled last stays.
    pub(super) fn reset(&self) {
        self.records().polls = Polls::default();
    }

    /// The polls so far, with the current pauses.
    pub(super) fn polls(&self) -> Polls {
        let records = self.records();
        let now = self.clock.mono();
        let lasting = records.last.values().map(|(_, at)| now.since(*at)).max();
        Polls {
            longest_pause: records.polls.longest_pause.max(lasting.unwrap_or_default()),
            ..records.polls
        }
    }

    async fn answer(&self, socket: TcpStream) -> anyhow::Result<()> {
        let mut socket = BufReader::new(socket);
        let (mut name, mut token) = (String::new(), 0);
        for _ in 0..MOST_LINES {
            let mut text = String::new();
            socket.read_line(&mut text).await?;
            let text = text.trim();
            if let Some(path) = text.strip_prefix("GET /") {
                name = path.split(' ').next().unwrap_or_default().to_owned();
            } else if let Some(given) = text.strip_prefix("Fencing-Token: ") {
                token = given.parse()?;
            } else if text.is_empty() {
                break;
            }
        }
        let status = if self.note(name, token) {
            "200 OK"
        } else {
            "409 Conflict"
        };
        let answer = format!("HTTP/1.0 {status}\r\nContent-Length: 0\r\n\r\n");
        socket.write_all(answer.as_bytes()).await?;
        Ok(())
    }

    /// Whether the token is at least as new as all before it.
    fn note(&self, name: String, token: u64) -> bool {
        let (now, mut records) = (self.clock.mono(), self.records());
        let before = records.last.get(&name).copied();
        records.polls.count += 1;
        if let Some((highest, at)) = before {
            records.polls.longest_pause = records.polls.longest_pause.max(now.since(at));
            if token < highest {
                records.polls.stale += 1;
                return false;
            }
        }
        records.last.insert(name, (token, now));
        true
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
