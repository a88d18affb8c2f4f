//! Stores on a test clock, and helpers for common steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure_core::clock::SystemClock;
use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_core::id::{Group, Key, LeaseName, MemberId, RegistryName, TenureId};
use tenure_core::lease::{AcquireOutcome, LeaseStore};
use tenure_core::membership::{Beat, BeatReply, Join, Joined, Labels, MembershipStore};
use tenure_core::pulse::BeatPulse;
use tenure_core::registry::{ClaimMode, RegistryStore};
use tenure_core::settling::PULSE_EVERY;
use tenure_core::store::{Backend, Call, Health, Store, StoreOptions};
use tenure_core::sweep::SweepSteps;
use tenure_testkit::resp::Reply;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;
use tenure_valkey::{ConnectionOptions, ValkeyStore};
use tokio::task::JoinSet;

/// The request timeout of tests that wait for one to pass.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(300);
/// Allowance for a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(10);
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a test on both servers.
macro_rules! on_both {
    ($($(#[$doc:meta])* $test:ident),* $(,)?) => {$(
        mod $test {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn valkey() {
                super::$test(tenure_testkit::valkey::Flavour::Valkey).await;
            }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn redis() {
                super::$test(tenure_testkit::valkey::Flavour::Redis).await;
            }
        }
    )*};
}
pub(crate) use on_both;

/// A store on a server with a test clock, with access to its raw data.
pub(crate) struct TestClockStore {
    pub(crate) server: Server,
    pub(crate) store: Arc<ValkeyStore>,
    now: AtomicU64,
}

/// The initial time of the clock.
const BEGIN: u64 = 1_763_676_800_000_000;

/// A key of the group.
pub(crate) fn key_of(suffix: &str) -> String {
    format!("{{tenure:ingest}}:{suffix}")
}

/// Opens a store on a server with a test clock.
pub(crate) async fn open_at(url: &str) -> Arc<ValkeyStore> {
    let connection = ConnectionOptions {
        test_clock: true,
        request_timeout: PATIENCE,
        connect_timeout: PATIENCE / 3,
        ..ConnectionOptions::default()
    };
    ValkeyStore::open(url, StoreOptions::default(), connection, SystemClock::shared())
        .await
        .expect("a good URL")
}

impl TestClockStore {
    pub(crate) async fn new(flavour: Flavour) -> Self {
        let server = server(flavour, &[]);
        mature(&server);
        server.cli(&["SET", "tenure:test:now", &BEGIN.to_string()]).unwrap();
        let store = open_at(&server.url()).await;
        Self {
            server,
            store,
            now: AtomicU64::new(BEGIN),
        }
    }

    /// Empties the server.
    pub(crate) async fn wipe(&self) {
        self.run(&["FLUSHALL"]);
        mature(&self.server);
        self.pass(Duration::from_millis(1)).await;
    }

    /// Advances the time while the store serves.
    pub(crate) async fn pass(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(Duration::from_millis(400));
            left -= step;
            let by = u64::try_from(step.as_micros()).unwrap();
            let now = self.now.fetch_add(by, Ordering::SeqCst) + by;
            self.run(&["SET", "tenure:test:now", &now.to_string()]);
            self.store.tick(&group()).await.unwrap();
        }
    }

    /// Advances the time without any call of the store.
    pub(crate) async fn pass_in_silence(&self, time: Duration) {
        let by = u64::try_from(time.as_micros()).unwrap();
        let now = self.now.fetch_add(by, Ordering::SeqCst) + by;
        self.run(&["SET", "tenure:test:now", &now.to_string()]);
        self.store.tick(&group()).await.unwrap();
    }

    /// Sets the clock back, like a failover to a server whose clock is behind.
    pub(crate) fn fall_back(&self, by: Duration) {
        let by = u64::try_from(by.as_micros()).unwrap();
        let now = self.now.fetch_sub(by, Ordering::SeqCst) - by;
        self.run(&["SET", "tenure:test:now", &now.to_string()]);
    }

    /// Runs a command as another program.
    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> Reply {
        let reply = self.server.cli(args).unwrap();
        assert!(!matches!(reply, Reply::Error(_)), "{args:?}: {reply:?}");
        reply
    }
}

pub(crate) fn server(flavour: Flavour, settings: &[&str]) -> Server {
    Server::with(flavour, settings).expect("these tests need their servers")
}

/// Beats the pulse as a daemon does, until it is dropped.
pub(crate) fn serve(store: &Arc<ValkeyStore>) -> JoinSet<()> {
    let (store, mut beats) = (Arc::clone(store), JoinSet::new());
    beats.spawn(async move {
        loop {
            // A refusal may be what is tested.
            let _ = store.beat_pulse(BeatPulse::default()).await;
            // tidy: waits on the next beat
            tokio::time::sleep(PULSE_EVERY).await;
        }
    });
    beats
}

/// For reachable servers: a short stall of the machine does not cause a timeout.
pub(crate) fn options() -> ConnectionOptions {
    ConnectionOptions {
        request_timeout: PATIENCE,
        connect_timeout: PATIENCE / 3,
        ping_interval: Duration::from_millis(200),
        ..ConnectionOptions::default()
    }
}

/// For unreachable servers: calls time out soon.
pub(crate) fn hasty() -> ConnectionOptions {
    ConnectionOptions {
        request_timeout: TIMEOUT,
        connect_timeout: TIMEOUT,
        ..options()
    }
}

pub(crate) async fn open(url: &str) -> Arc<ValkeyStore> {
    open_with(url, options()).await
}

pub(crate) async fn open_with(url: &str, options: ConnectionOptions) -> Arc<ValkeyStore> {
    ValkeyStore::open(url, StoreOptions::default(), options, SystemClock::shared())
        .await
        .expect("a good URL")
}

pub(crate) async fn until_up(store: &ValkeyStore) {
    wait::until_async("the store is up", PATIENCE, || async { store.health() == Health::Up }).await;
}

pub(crate) async fn until_down(store: &ValkeyStore) {
    wait::until_async("the store is down", PATIENCE, || async { store.health() != Health::Up }).await;
}

pub(crate) fn group() -> Group {
    Group::new("ingest").unwrap()
}

pub(crate) fn devices() -> RegistryName {
    RegistryName::new("devices").unwrap()
}

pub(crate) fn lease(name: &str) -> LeaseName {
    LeaseName::new(name).expect("a name")
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(crate) fn member(name: &str) -> MemberId {
    MemberId::new(name).unwrap()
}

pub(crate) async fn try_join(store: &ValkeyStore, name: &str) -> Result<Joined, Error> {
    let join = Join {
        member: member(name),
        ttl: Duration::from_secs(30),
        labels: Labels::default(),
    };
    store.join(&group(), &join, Call::default()).await
}

pub(crate) async fn join(store: &ValkeyStore, name: &str) -> TenureId {
    try_join(store, name).await.expect("a join").tenure
}

pub(crate) async fn try_beat(store: &ValkeyStore, tenure: &TenureId) -> Result<BeatReply, Error> {
    let beat = Beat {
        tenure: tenure.clone(),
        ttl: None,
        revision: tenure_core::membership::Revision::NONE,
        seen: tenure_core::membership::Revision::NONE,
    };
    store.beat(&group(), &[beat]).await.map(|beaten| beaten.replies[0])
}

pub(crate) async fn beat(store: &ValkeyStore, tenure: &TenureId) -> BeatReply {
    try_beat(store, tenure).await.expect("a beat")
}

pub(crate) async fn claim(store: &ValkeyStore, tenure: &TenureId, name: &str) -> Result<(), Error> {
    let keys = [key(name)];
    store
        .claim(&group(), &devices(), tenure, &keys, ClaimMode::Take, Call::default())
        .await
        .map(drop)
}

pub(crate) async fn acquire(store: &ValkeyStore, tenure: &TenureId, name: &str) -> Result<AcquireOutcome, Error> {
    let leases = [lease(name)];
    let acquired = store.acquire(&group(), tenure, &leases, Call::default()).await?;
    Ok(acquired.outcomes[0].clone())
}

/// Makes a server look like an old store, so that a new group does not look like lost data.
pub(crate) fn mature(server: &Server) {
    server
        .cli(&["HSET", "tenure:store", "born", "1"])
        .expect("an old marker");
}

/// Asserts an error by the outcome that a caller may conclude.
#[track_caller]
pub(crate) fn unavailable<T: std::fmt::Debug>(result: Result<T, Error>, outcome: Outcome) -> Error {
    let error = result.expect_err("the store is away");
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, outcome),
        "{error:?}"
    );
    error
}

/// All data of the server as text, except the ticks.
pub(crate) fn dump(server: &Server) -> String {
    let mut client = server.client().expect("a client");
    let mut call = |args: &[&str]| client.call(args).expect("a reply");
    let mut names = call(&["KEYS", "*"]).texts();
    names.sort();
    let mut all = String::new();
    for name in names {
        let value = match call(&["TYPE", &name]).text().as_str() {
            "hash" => call(&["HGETALL", &name]),
            "set" => call(&["SMEMBERS", &name]),
            "zset" => call(&["ZRANGE", &name, "0", "-1", "WITHSCORES"]),
            "stream" => call(&["XRANGE", &name, "-", "+"]),
            "string" => call(&["STRLEN", &name]),
            other => panic!("{name} is a {other}"),
        };
        all += &format!("{name}: {value:?}\n");
    }
    all
}

/// Asserts that a call returned by its deadline.
#[track_caller]
pub(crate) fn within_deadline(began: Instant) {
    let took = began.elapsed();
    assert!(took < TIMEOUT + SLACK, "a call took {took:?}");
}
