//! Open connections, and which ones are closed when there are too many.
//!
//! The peer with the most connections loses first; of its connections, those with the lowest rate of received bytes, oldest
//! first. A connection that is answering a request, or answered one within the idle time-out, is kept. The newest is kept
//! because it does not count yet. There is no fixed limit per peer: all members behind a proxy are one peer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tenure_core::clock::{Clock, Mono, within};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::auth::Peer;
use crate::limits::network;
use crate::meters;

/// A younger connection does not count as silent.
const YOUNG: Duration = Duration::from_secs(1);
/// How long a new connection waits for one to close.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The fraction (1/n) of the limit that is closed at a time, so that a flood does not scan all connections for each new one.
const PART: usize = 32;
/// The largest fraction (1/n) of the closable ones that is closed at a time.
const PART_OF_CLOSABLE: usize = 4;

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Link {
    peer: IpAddr,
    since: Mono,
    received: AtomicU64,
    /// Whether its task has run. Before that, a request may be waiting unread.
    served: AtomicBool,
    /// Requests being answered, including streams.
    answering: AtomicUsize,
    /// When it last answered an admitted request: milliseconds after `since`, plus one; 0 for never.
    answered: AtomicU64,
    cut: CancellationToken,
}

impl Link {
    pub(crate) fn new(from: SocketAddr, since: Mono) -> Self {
        Self {
            peer: network(from.ip()),
            since,
            received: AtomicU64::new(0),
            served: AtomicBool::new(false),
            answering: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            cut: CancellationToken::new(),
        }
    }

    /// Counts received bytes.
    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Marks a request as being answered until the guard is dropped.
    pub(crate) fn answering(self: &Arc<Self>) -> Answering {
        self.answering.fetch_add(1, Ordering::Relaxed);
        Answering(Some(Arc::clone(self)))
    }

    /// Records that an admitted request was answered.
    pub(crate) fn answered(&self, now: Mono) {
        let after = now.since(self.since).as_millis().saturating_add(1);
        self.answered
            .store(u64::try_from(after).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Completes when the connection must close. Poll it after the connection: a poll counts as proof that the connection's
    /// task has run.
    pub(crate) async fn cut(&self) {
        self.served.store(true, Ordering::Relaxed);
        self.cut.cancelled().await;
    }

    fn is_kept(&self, now: Mono, idle: Duration) -> bool {
        if self.answering.load(Ordering::Relaxed) > 0 || !self.served.load(Ordering::Relaxed) {
            return true;
        }
        let answered = self.answered.load(Ordering::Relaxed);
        answered > 0 && now.since(self.since + Duration::from_millis(answered - 1)) <= idle
    }

    fn is_young(&self, now: Mono) -> bool {
        now.since(self.since) < YOUNG
    }

    /// The lowest is closed first: not young, few bytes per second, old.
    fn worth(&self, now: Mono) -> (bool, u64, Mono) {
        let age = u64::try_from(now.since(self.since).as_millis())
            .unwrap_or(u64::MAX)
            .max(1);
        let rate = self.received.load(Ordering::Relaxed).saturating_mul(1_000) / age;
        (self.is_young(now), rate, self.since)
    }
}

/// Guards a request that is being answered.
#[derive(Debug)]
pub(crate) struct Answering(Option<Arc<Link>>);

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(link) = &self.0 {
            link.answering.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// For an answer that outlives its handler, like an event stream.
impl FromRequestParts<Arc<App>> for Answering {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<Peer>();
        Ok(peer.map_or(Self(None), |peer| peer.link.answering()))
    }
}

/// All open connections.
pub(crate) struct Connections {
    limit: usize,
    places: Arc<Semaphore>,
    open: Mutex<ConnectionTable>,
}

#[derive(Default)]
struct ConnectionTable {
    last: u64,
    links: BTreeMap<u64, Arc<Link>>,
}

/// A connection that counts as open until this is dropped.
pub(crate) struct OpenConnection {
    all: Arc<Connections>,
    id: u64,
    pub(crate) link: Arc<Link>,
    _place: OwnedSemaphorePermit,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.all.open().links.remove(&self.id);
        meters::connection_closed();
    }
}

impl Connections {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            places: Arc::new(Semaphore::new(limit)),
            open: Mutex::default(),
        })
    }

    /// Adds a new connection, closing others if there are too many. `None` when none has closed in time: try again.
    pub(crate) async fn open_one(
        self: &Arc<Self>,
        clock: &dyn Clock,
        idle: Duration,
        from: SocketAddr,
    ) -> Option<OpenConnection> {
        let place = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                self.shed(clock.mono(), idle);
                let place = Arc::clone(&self.places).acquire_owned();
                within(clock, LOOK_AGAIN, place).await?.ok()?
            }
        };
        Some(self.opened(Link::new(from, clock.mono()), place))
    }

    fn opened(self: &Arc<Self>, link: Link, place: OwnedSemaphorePermit) -> OpenConnection {
        let link = Arc::new(link);
        let mut open = self.open();
        open.last += 1;
        let id = open.last;
        open.links.insert(id, Arc::clone(&link));
        meters::connection_opened();
        OpenConnection {
            all: Arc::clone(self),
            id,
            link,
            _place: place,
        }
    }

    /// Closes a fraction of the connections that may be closed; returns how many. O(n log n).
    pub(crate) fn shed(&self, now: Mono, idle: Duration) -> usize {
        let mut peers: BTreeMap<IpAddr, (usize, Vec<Arc<Link>>)> = BTreeMap::new();
        for link in self.open().links.values() {
            let of_peer = peers.entry(link.peer).or_default();
            of_peer.0 += 1;
            if !link.is_kept(now, idle) && !link.cut.is_cancelled() {
                of_peer.1.push(Arc::clone(link));
            }
        }
        let mut closable = 0;
        for (_, links) in peers.values_mut() {
            closable += links.len();
            // The next one to close is at the end.
            links.sort_by_cached_key(|link| Reverse(link.worth(now)));
        }
        let wanted = (self.limit / PART).min(closable / PART_OF_CLOSABLE).max(1);
        let mut most: BinaryHeap<(usize, IpAddr)> = peers.iter().map(|(peer, (count, _))| (*count, *peer)).collect();
        let mut closed = 0;
        while closed < wanted
            && let Some((count, peer)) = most.pop()
        {
            let Some(link) = peers.get_mut(&peer).and_then(|(_, links)| links.pop()) else {
                continue;
            };
            link.cut.cancel();
            closed += 1;
            most.push((count - 1, peer));
        }
        meters::crowded_out(closed);
        closed
    }

    fn open(&self) -> MutexGuard<'_, ConnectionTable> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, poll};
    use tenure_core::clock::ManualClock;

    const IDLE: Duration = Duration::from_secs(45);

    fn from(address: &str) -> SocketAddr {
        SocketAddr::new(address.parse().unwrap(), 1)
    }

    /// A connection whose task has run.
    async fn open(all: &Arc<Connections>, clock: &ManualClock, address: &str) -> OpenConnection {
        let opened = open_unread(all, clock, address);
        assert!(opened.link.cut().now_or_never().is_none());
        opened
    }

    fn open_unread(all: &Arc<Connections>, clock: &ManualClock, address: &str) -> OpenConnection {
        let opened = all.open_one(clock, IDLE, from(address));
        opened.now_or_never().flatten().expect("there is room")
    }

    fn is_cut(opened: &OpenConnection) -> bool {
        opened.link.cut.is_cancelled()
    }

    #[tokio::test]
    async fn busiest_peer_loses_its_slowest_connections_first() {
        let (all, clock) = (Connections::new(5), ManualClock::new(0, 1));
        let alone = open(&all, &clock, "10.0.0.9").await;
        let mut many = Vec::new();
        for received in [500, 0, 0, 900] {
            clock.advance(Duration::from_millis(100));
            let one = open(&all, &clock, "10.0.0.1").await;
            one.link.received(received);
            many.push(one);
        }
        clock.advance(YOUNG * 2);
        for wanted in [1, 2, 0] {
            assert_eq!(all.shed(clock.mono(), IDLE), 1);
            assert!(is_cut(&many[wanted]), "{wanted}");
        }
        assert!(!is_cut(&alone) && !is_cut(&many[3]));
    }

    #[tokio::test]
    async fn answered_connection_is_kept_for_its_idle_time() {
        let (all, clock) = (Connections::new(3), ManualClock::new(0, 1));
        let (answered, busy) = (
            open(&all, &clock, "10.0.0.1").await,
            open(&all, &clock, "10.0.0.1").await,
        );
        clock.advance(YOUNG * 5);
        answered.link.answered(clock.mono());
        let answering = busy.link.answering();
        let silent = open_unread(&all, &clock, "10.0.0.2");
        assert_eq!(all.shed(clock.mono(), IDLE), 0, "its request may be unread");
        assert!(silent.link.cut().now_or_never().is_none());
        assert_eq!(all.shed(clock.mono(), IDLE), 1);
        assert!(is_cut(&silent), "although its peer has fewer and it is young");
        assert_eq!(all.shed(clock.mono() + IDLE, IDLE), 0);
        clock.advance(IDLE + Duration::from_millis(2));
        assert_eq!(all.shed(clock.mono(), IDLE), 1);
        assert!(is_cut(&answered) && !is_cut(&busy));
        drop(answering);
        assert_eq!(all.shed(clock.mono(), IDLE), 1);
        assert!(is_cut(&busy));
    }

    #[tokio::test]
    async fn connections_close_in_parts_and_young_ones_last() {
        let (all, clock) = (Connections::new(PART * 3), ManualClock::new(0, 1));
        let (mut old, mut young) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let one = open(&all, &clock, "10.0.0.1").await;
            one.link.received(300);
            old.push(one);
        }
        clock.advance(YOUNG);
        for _ in 0..8 {
            young.push(open(&all, &clock, "10.0.0.1").await);
            clock.advance(Duration::from_millis(10));
        }
        assert_eq!(all.shed(clock.mono(), IDLE), 3, "a part of the limit");
        assert_eq!(all.shed(clock.mono(), IDLE), 2, "a part of what can be closed");
        assert!(old.iter().all(is_cut) && is_cut(&young[0]));
        assert!(!young[1..].iter().any(is_cut));
    }

    #[tokio::test]
    async fn new_connection_waits_until_another_closes() {
        let (all, clock) = (Connections::new(1), ManualClock::new(0, 1));
        let kept = open(&all, &clock, "10.0.0.1").await;
        let answering = kept.link.answering();
        let again = || Box::pin(all.open_one(&clock, IDLE, from("10.0.0.2")));
        let mut next = again();
        assert!(poll!(&mut next).is_pending() && !is_cut(&kept));
        clock.advance(LOOK_AGAIN);
        assert!(next.await.is_none());
        drop(answering);
        let mut next = again();
        assert!(poll!(&mut next).is_pending() && is_cut(&kept));
        drop(kept);
        assert!(next.await.is_some(), "its place is free");
    }
}
