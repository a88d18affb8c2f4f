//! Connections of a membership over a store that misbehaves on request.

mod again;
mod feed;
mod replies;

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tenure_core::clock::{Clock, ManualClock};
use tenure_core::event::{Event, EventKind, EventQuery};
use tenure_core::id::{ConnectionId, SessionId};
use tenure_core::memory::MemoryStore;
use tenure_core::session::{Data, DetachOutcome, How, PatchOutcome, Session, SessionState};
use tenure_core::store::{Store, StoreOptions};
use tokio::runtime::Handle;

use super::{Attach, AttachRequest, Connection, ConnectionLost};
use crate::client::{ClientSettings, Tenure};
use crate::group::GroupHandle;
use crate::loops::Loops;
use crate::membership::{JoinOptions, Membership};
use crate::testing::{Faulty, START, pass, pass_until, secs, served, settle};

const TTL: Duration = secs(12);

/// One client over a faulty store, beside another whose sweeps keep the store ticking.
struct World {
    clock: Arc<ManualClock>,
    memory: Arc<dyn Store>,
    store: Arc<Faulty>,
    group: GroupHandle,
    other: GroupHandle,
    /// Another process, which takes beats.
    _beats: Loops,
}

async fn world() -> World {
    let clock = Arc::new(ManualClock::new(START, 1));
    let memory: Arc<dyn Store> = MemoryStore::new(StoreOptions::default(), clock.clone());
    let store = Faulty::new(Arc::clone(&memory), clock.clone());
    let client = |store: Arc<dyn Store>, sweeps: bool| {
        let mut settings = ClientSettings::default();
        settings.sweeper = settings.sweeper.filter(|_| sweeps);
        Tenure::on_store(store, clock.clone(), Handle::current(), &settings).unwrap()
    };
    let other = client(Arc::clone(&memory), true).group("g").unwrap();
    let group = client(store.clone(), false).group("g").unwrap();
    let beats = served(&memory, &clock);
    World {
        clock: Arc::clone(&clock),
        memory,
        store,
        group,
        other,
        _beats: beats,
    }
}

fn named(member: &str) -> JoinOptions {
    JoinOptions {
        ttl: TTL,
        ..JoinOptions::named(member).unwrap()
    }
}

fn wanted(session: &str, connection: &str) -> AttachRequest {
    AttachRequest::new(SessionId::new(session).unwrap(), ConnectionId::new(connection).unwrap())
}

fn room(name: &str) -> Data {
    Data::from([("room".to_owned(), name.into())])
}

impl World {
    async fn join(&self) -> Membership {
        self.group.join(named("a")).await.unwrap()
    }

    async fn rival(&self) -> Membership {
        self.other.join(named("b")).await.unwrap()
    }

    /// What the store has.
    async fn seen(&self, session: &str) -> Option<Session> {
        let session = SessionId::new(session).unwrap();
        self.memory.session(self.group.name(), &session).await.unwrap()
    }

    async fn state(&self, session: &str) -> Option<(SessionState, u64)> {
        self.seen(session).await.map(|seen| (seen.state, seen.connections))
    }

    async fn events(&self, kind: EventKind) -> Vec<Event> {
        let query = EventQuery {
            after: None,
            limit: 1_000,
            kinds: vec![kind],
            ..EventQuery::default()
        };
        self.memory.events(self.group.name(), &query).await.unwrap().events
    }

    async fn pass(&self, time: Duration) {
        pass(&self.clock, time).await;
    }

    async fn until(&self, what: &str, condition: impl FnMut() -> bool) {
        pass_until(&self.clock, what, secs(300), condition).await;
    }

    /// Lets virtual time pass until some work is done.
    async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let (mut work, end) = (pin!(work), self.clock.mono() + secs(300));
        loop {
            settle().await;
            if let Poll::Ready(done) = futures_util::poll!(&mut work) {
                return done;
            }
            settle().await;
            if let Poll::Ready(done) = futures_util::poll!(&mut work) {
                return done;
            }
            assert!(self.clock.mono() < end, "waited in vain");
            self.clock
                .advance(self.clock.next_wake().unwrap_or(secs(1)).max(Duration::from_micros(1)));
        }
    }

    async fn attached(&self, membership: &Membership, session: &str, connection: &str) -> Connection {
        match self.run(membership.sessions().attach(session, connection).send()).await {
            Ok(Attach::Attached(connection)) => connection,
            other => panic!("{session} was not attached: {other:?}"),
        }
    }
}

fn why(connection: &Connection) -> Option<ConnectionLost> {
    connection.watch().borrow().lost.clone()
}

#[tokio::test]
async fn session_is_created_resumed_and_reaped() {
    let world = world().await;
    let membership = world.join().await;
    let sessions = membership.sessions();
    let asked = sessions
        .attach("s", "c1")
        .alias("alice")
        .data(room("lobby"))
        .grace(secs(30));
    let first = asked.await.unwrap().attached().unwrap();
    assert_eq!(
        (first.how(), first.session().data["room"].as_str()),
        (How::Created, Some("lobby"))
    );
    assert_eq!(sessions.held(), 1);
    let patched = first.patch(&room("garden")).await.unwrap();
    assert!(matches!(patched, PatchOutcome::Patched(_)));
    let detached = world.run(first.detach()).await.unwrap();
    assert_eq!(
        detached,
        DetachOutcome::Detached {
            reap_in: Some(secs(30))
        }
    );
    assert_eq!(sessions.held(), 0);
    world.pass(secs(29)).await;
    let second = world.attached(&membership, "s", "c2").await;
    assert_eq!(
        (second.how(), second.session().data["room"].as_str()),
        (How::Resumed, Some("garden"))
    );
    let by_alias = world.group.sessions().look_up_alias("alice").await.unwrap().unwrap();
    assert_eq!(by_alias.epoch, second.epoch());
    drop(second);
    world.pass(secs(29)).await;
    assert_eq!(world.state("s").await, Some((SessionState::Disconnected, 0)));
    // The other client's reaper runs at the deadline, not at its interval.
    world.pass(secs(1) + Duration::from_millis(100)).await;
    assert_eq!(world.seen("s").await, None);
    let resumed = sessions.attach("s", "c3").resume_only().await.unwrap();
    assert!(matches!(resumed, Attach::Gone), "{resumed:?}");
    let anew = sessions.attach("t", "c4").alias("alice").await.unwrap();
    assert!(anew.attached().is_some(), "the alias is free");
}

#[tokio::test]
async fn attach_many_answers_each_connection() {
    let world = world().await;
    let membership = world.join().await;
    let sessions = membership.sessions();
    let with_alias = |session, connection| AttachRequest {
        alias: Some(tenure_core::id::Alias::new("x").unwrap()),
        ..wanted(session, connection)
    };
    let gone = AttachRequest {
        resume_only: true,
        ..wanted("nobody", "c")
    };
    let all = [with_alias("s", "c1"), wanted("s", "c2"), with_alias("t", "c3"), gone];
    let answers = sessions.attach_many(&all).await.unwrap();
    let [
        Attach::Attached(_),
        Attach::Attached(second),
        Attach::AliasTaken { by },
        Attach::Gone,
    ] = &answers[..]
    else {
        panic!("{answers:?}")
    };
    assert_eq!((second.how(), by.as_str(), sessions.held()), (How::Attached, "s", 2));
    for (bad, must_say) in [
        (sessions.attach("a b", "c").send().await, "' '"),
        (sessions.attach("s", "c/d").send().await, "'/'"),
        (sessions.attach("s", "c").alias("").send().await, "empty"),
        (sessions.attach("s", "c").grace(Duration::ZERO).send().await, "grace"),
        (sessions.attach("s", "c").field("", 1).send().await, "field"),
    ] {
        let error = bad.unwrap_err().to_string();
        assert!(error.contains(must_say), "{error}");
    }
}

#[tokio::test]
async fn newer_handle_of_a_connection_name_replaces_the_older() {
    let world = world().await;
    let membership = world.join().await;
    let first = world.attached(&membership, "s", "c1").await;
    let second = world.attached(&membership, "s", "c2").await;
    drop(first);
    world.pass(Duration::from_millis(10)).await;
    assert_eq!(world.state("s").await, Some((SessionState::Active, 1)));
    // The same connection name again: the old handle's detach comes late and is ignored.
    let again = world.attached(&membership, "s", "c2").await;
    assert_eq!(
        (why(&second), second.lost().is_cancelled()),
        (Some(ConnectionLost::Replaced), true)
    );
    let epoch = again.epoch();
    assert_eq!(
        world.run(second.detach()).await.unwrap(),
        DetachOutcome::Stale { epoch }
    );
    world.pass(Duration::from_millis(10)).await;
    assert_eq!(world.state("s").await, Some((SessionState::Active, 1)));
    assert_eq!(world.events(EventKind::SessionDisconnected).await, []);
}

#[tokio::test]
async fn end_of_membership_loses_its_connections() {
    let world = world().await;
    let membership = world.join().await;
    let connection = world.attached(&membership, "s", "c").await;
    let dropped = world.attached(&membership, "t", "c").await;
    world.run(membership.leave()).await.unwrap();
    world.pass(secs(1)).await;
    assert_eq!(why(&connection), Some(ConnectionLost::TenureEnded));
    drop(dropped);
    let error = world.run(connection.detach()).await.unwrap_err();
    assert!(
        matches!(error.kind(), tenure_core::error::ErrorKind::Ended(_)),
        "{error}"
    );
    let gone = world.events(EventKind::SessionDisconnected).await;
    assert_eq!(gone.len(), 2);
    assert!(gone.iter().all(|event| event.reason.as_deref() == Some("left")));
    let error = membership.sessions().attach("u", "c").await.unwrap_err();
    assert!(
        matches!(error.kind(), tenure_core::error::ErrorKind::Ended(_)),
        "{error}"
    );
}

#[tokio::test]
async fn dropped_handles_are_detached_in_batches() {
    let world = world().await;
    let membership = world.join().await;
    let all: Vec<AttachRequest> = (0..2_500).map(|n| wanted(&format!("s{n}"), "c")).collect();
    let connections = world.run(membership.sessions().attach_many(&all)).await.unwrap();
    // Three calls, in steps of 200.
    assert_eq!(world.store.calls(crate::testing::Verb::Attach), 13);
    drop(connections);
    world.pass(Duration::from_millis(10)).await;
    assert_eq!(membership.sessions().held(), 0);
    assert_eq!(world.store.calls(crate::testing::Verb::Detach), 13);
    let stats = world.group.sessions().stats().await.unwrap();
    assert_eq!((stats.active, stats.disconnected), (0, 2_500));
}
