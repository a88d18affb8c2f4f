//! The endpoints that are polled: they remember every poll, and the highest fencing token of each target.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// A poll as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Poll {
    pub(crate) at: Instant,
    pub(crate) node: String,
    pub(crate) target: String,
    pub(crate) token: u64,
    /// Whether its token was at least as high as all before it.
    pub(crate) accepted: bool,
}

#[derive(Debug, Default)]
struct Book {
    polls: Vec<Poll>,
    highest: BTreeMap<String, u64>,
}

impl Book {
    fn note(&mut self, node: &str, target: &str, token: u64) -> bool {
        let highest = self.highest.entry(target.to_owned()).or_default();
        let accepted = token >= *highest;
        *highest = token.max(*highest);
        self.polls.push(Poll {
            at: Instant::now(),
            node: node.to_owned(),
            target: target.to_owned(),
            token,
            accepted,
        });
        accepted
    }
}

/// A server of all endpoints.
pub(crate) struct Endpoints {
    pub(crate) addr: SocketAddr,
    book: Arc<Mutex<Book>>,
    /// Goes down with it.
    _runtime: Runtime,
}

impl Endpoints {
    pub(crate) fn start() -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let book = Arc::<Mutex<Book>>::default();
        let shared = Arc::clone(&book);
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, Arc::clone(&shared)));
            }
        });
        Self {
            addr,
            book,
            _runtime: runtime,
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("no poll panics")
    }

    /// Who polled what, under which token, in this time until now; only what was accepted.
    pub(crate) fn lately(&self, window: Duration) -> BTreeMap<String, BTreeSet<(String, u64)>> {
        let since = Instant::now().checked_sub(window).expect("the machine runs for longer");
        let book = self.book();
        let polls = book.polls.iter().rev().take_while(|poll| poll.at >= since);
        let mut by_target = BTreeMap::<_, BTreeSet<_>>::new();
        for poll in polls.filter(|poll| poll.accepted) {
            let by = by_target.entry(poll.target.clone()).or_default();
            by.insert((poll.node.clone(), poll.token));
        }
        by_target
    }

    /// When each of these targets was first polled under a higher token; nothing for those that were not.
    pub(crate) fn first_above(&self, tokens: &BTreeMap<String, u64>) -> BTreeMap<String, Instant> {
        let mut first = BTreeMap::new();
        for poll in self.book().polls.iter().filter(|poll| poll.accepted) {
            if tokens.get(&poll.target).is_some_and(|token| poll.token > *token) {
                first.entry(poll.target.clone()).or_insert(poll.at);
            }
        }
        first
    }

    pub(crate) fn last_poll(&self) -> Instant {
        self.book().polls.last().expect("there were polls").at
    }

    pub(crate) fn refused(&self) -> Vec<Poll> {
        let book = self.book();
        book.polls.iter().filter(|poll| !poll.accepted).cloned().collect()
    }

    /// What a node polled after an instant under no newer tokens than these.
    pub(crate) fn polls_under(&self, tokens: &BTreeMap<String, u64>, node: &str, after: Instant) -> Vec<Poll> {
        let book = self.book();
        let old = |poll: &&Poll| tokens.get(&poll.target).is_some_and(|token| poll.token <= *token);
        let its = book.polls.iter().filter(|poll| poll.node == node && poll.at > after);
        its.filter(old).cloned().collect()
    }

    /// Asserts that no token was ever used by two nodes, and that a target was never polled under an older token than
    /// before, but for what was refused; answers how many targets were polled.
    #[track_caller]
    pub(crate) fn one_at_a_time(&self) -> usize {
        let book = self.book();
        let (mut users, mut newest) = (BTreeMap::new(), BTreeMap::new());
        for poll in book.polls.iter().filter(|poll| poll.accepted) {
            let user = users.entry(poll.token).or_insert((&poll.node, &poll.target));
            assert_eq!(*user, (&poll.node, &poll.target), "a token is given out once: {poll:?}");
            let before = newest.insert(&poll.target, poll.token);
            assert!(before <= Some(poll.token), "{poll:?} after {before:?}");
        }
        newest.len()
    }
}

/// Answers one request after the other.
async fn serve(mut socket: TcpStream, book: Arc<Mutex<Book>>) -> io::Result<()> {
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        while let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).into_owned();
            read.drain(..end + 4);
            let accepted = note(&head, &book);
            let status = if accepted { "200 OK" } else { "409 Conflict" };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            socket.write_all(answer.as_bytes()).await?;
        }
        match socket.read(&mut buffer).await? {
            0 => return Ok(()),
            count => read.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Reads `GET /node/target` and the header `Fencing-Token`.
fn note(head: &str, book: &Mutex<Book>) -> bool {
    let mut lines = head.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a path");
    let (node, target) = path
        .trim_start_matches('/')
        .split_once('/')
        .expect("a node and a target");
    let token = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("fencing-token"))
        .and_then(|(_, token)| token.trim().parse().ok())
        .expect("a token");
    book.lock().expect("no poll panics").note(node, target, token)
}
