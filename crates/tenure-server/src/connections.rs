//! The open connections, and which of them are closed when there are too many.
//!
//! Those that have sent least for longest go first, beginning with the peer that has most. A connection on which a request is
//! being answered stays, and so does one that was answered within its idle time; the newest stays because it is not open
//! yet. There is no fixed limit for a peer: the members behind a proxy are one peer.

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

/// For so long a new connection may send nothing before it counts as silent.
const YOUNG: Duration = Duration::from_secs(1);
/// How long a new one waits for the place of another.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// One in so many is closed at a time, so that a flood does not cost a look at all of them for each new one.
const PART: usize = 32;
/// And one in so many of those that may be closed.
const PART_OF_CLOSABLE: usize = 4;

/// What is known of one connection.
#[derive(Debug)]
pub(crate) struct Link {
    peer: IpAddr,
    since: Mono,
    received: AtomicU64,
    /// Whether its task has run once. Until then a request that has arrived may not have been read.
    served: AtomicBool,
    /// How many requests are being answered, streams among them.
    answering: AtomicUsize,
    /// When a request that was let in was answered last, in milliseconds after `since` and one more.
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

    /// So many bytes have come.
    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A request of it is being answered until this is dropped.
    pub(crate) fn answering(self: &Arc<Self>) -> Answering {
        self.answering.fetch_add(1, Ordering::Relaxed);
        Answering(Some(Arc::clone(self)))
    }

    /// A request that was let in has its answer.
    pub(crate) fn answered(&self, now: Mono) {
        let after = now.since(self.since).as_millis().saturating_add(1);
        self.answered
            .store(u64::try_from(after).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Completes when the connection must close. Poll it after the connection itself: a poll of it shows that the connection was
    /// polled.
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

    /// The lowest goes first: not young, few bytes per second, open for long.
    fn worth(&self, now: Mono) -> (bool, u64, Mono) {
        let age = u64::try_from(now.since(self.since).as_millis())
            .unwrap_or(u64::MAX)
            .max(1);
        let rate = self.received.load(Ordering::Relaxed).saturating_mul(1_000) / age;
        (self.is_young(now), rate, self.since)
    }
}

/// A request that is being answered on a connection.
#[derive(Debug)]
pub(crate) struct Answering(Option<Arc<Link>>);

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(link) = &self.0 {
            link.answering.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// For an answer that outlasts its handler, like a stream of events.
impl FromRequestParts<Arc<App>> for Answering {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<Peer>();
        Ok(peer.map_or(Self(None), |peer| peer.link.answering()))
    }
}

/// See the module.
pub(crate) struct Connections {
    limit: usize,
    places: Arc<Semaphore>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    last: u64,
    links: BTreeMap<u64, Arc<Link>>,
}

/// A connection that counts as open for as long as this lives.
pub(crate) struct Opened {
    all: Arc<Connections>,
    id: u64,
    pub(crate) link: Arc<Link>,
    _place: OwnedSemaphorePermit,
}

impl Drop for Opened {
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

    /// Takes a new connection in, for which others are closed if there are too many. `None` when none of them was closed for a
    /// while: try again.
    pub(crate) async fn open_one(
        self: &Arc<Self>,
        clock: &dyn Clock,
        idle: Duration,
        from: SocketAddr,
    ) -> Option<Opened> {
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

    fn opened(self: &Arc<Self>, link: Link, place: OwnedSemaphorePermit) -> Opened {
        let link = Arc::new(link);
        let mut open = self.open();
        open.last += 1;
        let id = open.last;
        open.links.insert(id, Arc::clone(&link));
        meters::connection_opened();
        Opened {
            all: Arc::clone(self),
            id,
            link,
            _place: place,
        }
    }

    /// Closes some, if any may be closed; how many.
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
            // The first to go at the end.
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

    fn open(&self) -> MutexGuard<'_, Open> {
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

    /// One whose task has run.
    async fn open(all: &Arc<Connections>, clock: &ManualClock, address: &str) -> Opened {
        let opened = open_unread(all, clock, address);
        assert!(opened.link.cut().now_or_never().is_none());
        opened
    }

    fn open_unread(all: &Arc<Connections>, clock: &ManualClock, address: &str) -> Opened {
        let opened = all.open_one(clock, IDLE, from(address));
        opened.now_or_never().flatten().expect("there is room")
    }

    fn is_cut(opened: &Opened) -> bool {
        opened.link.cut.is_cancelled()
    }

    #[tokio::test]
    async fn the_peer_with_most_loses_what_has_sent_least_for_longest() {
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
    async fn what_was_answered_is_kept_for_its_idle_time_and_no_longer() {
        let (all, clock) = (Connections::new(3), ManualClock::new(0, 1));
        let (answered, busy) = (
            open(&all, &clock, "10.0.0.1").await,
            open(&all, &clock, "10.0.0.1").await,
        );
        clock.advance(YOUNG * 5);
        answered.link.answered(clock.mono());
        let answering = busy.link.answering();
        let silent = open_unread(&all, &clock, "10.0.0.2");
        assert_eq!(
            all.shed(clock.mono(), IDLE),
            0,
            "what it has sent may not have been read yet"
        );
        assert!(silent.link.cut().now_or_never().is_none());
        assert_eq!(all.shed(clock.mono(), IDLE), 1);
        assert!(is_cut(&silent), "although its peer has fewer, and it is young");
        assert_eq!(all.shed(clock.mono() + IDLE, IDLE), 0);
        clock.advance(IDLE + Duration::from_millis(2));
        assert_eq!(all.shed(clock.mono(), IDLE), 1);
        assert!(is_cut(&answered) && !is_cut(&busy));
        drop(answering);
        assert_eq!(all.shed(clock.mono(), IDLE), 1);
        assert!(is_cut(&busy));
    }

    #[tokio::test]
    async fn a_part_is_closed_at_a_time_and_the_young_last() {
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
    async fn a_new_one_waits_until_another_is_closed() {
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
