//! Each call sets exactly one time-out: the store's if it has one, otherwise the caller's.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_core::call::{Op, Reply, StoreRequest};
use tenure_core::clock::Sleep;
use tenure_core::store::middleware::Middleware;
use tenure_core::timeout::Timeout;

use super::*;

/// The time-out of the store and of the membership. No other sleep in this test lasts as long, or twice as long.
const OWN: Duration = ms(437);

/// A clock that counts the time-outs set.
#[derive(Debug)]
struct Counting {
    clock: Arc<ManualClock>,
    set: Mutex<u32>,
}

impl Counting {
    fn take(&self) -> u32 {
        std::mem::take(&mut *self.set.lock().unwrap())
    }
}

impl Clock for Counting {
    fn mono(&self) -> Mono {
        self.clock.mono()
    }

    fn wall_micros(&self) -> u64 {
        self.clock.wall_micros()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        *self.set.lock().unwrap() += u32::from(duration == OWN || duration == OWN * 2);
        self.clock.sleep(duration)
    }

    fn entropy(&self) -> u64 {
        self.clock.entropy()
    }
}

/// A store that stops answering, with or without its own time-out.
struct Silent {
    memory: Arc<dyn Store>,
    clock: Arc<Counting>,
    own: Option<Duration>,
    falls: AtomicBool,
}

impl Middleware for Silent {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.memory)
    }

    fn answers_within(&self) -> Option<Duration> {
        self.own
    }

    async fn handle(&self, ask: StoreRequest) -> Result<Reply> {
        // The pulse has a time-out of its own.
        if matches!(ask.op, Op::BeatPulse(_)) {
            return self.memory.call(ask).await;
        }
        let silent = self.falls.load(Ordering::Relaxed);
        let answer = async {
            match silent {
                true => pending().await,
                false => self.memory.call(ask).await,
            }
        };
        match self.own {
            Some(own) => Timeout::change(own).call(&*self.clock, "the server", answer).await,
            None => answer.await,
        }
    }
}

/// A member of a store that has just stopped answering.
async fn silent(own: Option<Duration>) -> (Arc<Counting>, Membership) {
    let manual = Arc::new(ManualClock::new(START, 1));
    let clock = Arc::new(Counting {
        clock: Arc::clone(&manual),
        set: Mutex::default(),
    });
    let store = Arc::new(Silent {
        memory: MemoryStore::new(StoreOptions::default(), manual),
        clock: Arc::clone(&clock),
        own,
        falls: AtomicBool::new(false),
    });
    let settings = ClientSettings {
        sweeper: None,
        ..ClientSettings::default()
    };
    let client = Tenure::on_store(store.clone(), clock.clone(), Handle::current(), &settings).unwrap();
    let options = JoinOptions {
        request_timeout: Some(OWN),
        ..named("a")
    };
    let member = client.group("g").unwrap().join(options).await.unwrap();
    store.falls.store(true, Ordering::Relaxed);
    clock.take();
    (clock, member)
}

/// Returns the error of a beat and the number of time-outs set for it.
async fn of_a_beat(own: Option<Duration>) -> (String, u32) {
    let (clock, member) = silent(own).await;
    let mut set = 0;
    pass_until(&clock.clock, "a beat is sent", TTL, || {
        set += clock.take();
        set > 0
    })
    .await;
    pass(&clock.clock, OWN).await;
    (member.status().last_error.expect("it failed"), set)
}

#[tokio::test]
async fn beat_sets_one_time_out() {
    let (error, set) = of_a_beat(None).await;
    assert_eq!(set, 1);
    assert_eq!(error, "the store did not answer within 437ms; the outcome is unknown");
    let (error, set) = of_a_beat(Some(OWN)).await;
    assert_eq!(set, 1, "the store has one, so its callers set none");
    assert_eq!(error, "the server did not answer within 437ms; the outcome is unknown");
}

#[tokio::test]
async fn member_time_out_cuts_a_slower_store_short() {
    let (error, _) = of_a_beat(Some(OWN * 2)).await;
    assert_eq!(error, "the store did not answer within 437ms; the outcome is unknown");
}

#[tokio::test]
async fn acquire_sets_one_time_out() {
    for own in [None, Some(OWN)] {
        let (clock, member) = silent(own).await;
        let leases = member.leases();
        let asking = tokio::spawn(async move { leases.acquire("l").await });
        settle().await;
        assert_eq!(clock.take(), 1, "{own:?}");
        pass(&clock.clock, secs(60)).await;
        let error = asking.await.unwrap().unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Unavailable, Outcome::Unknown)
        );
    }
}
