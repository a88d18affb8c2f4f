//! Reads through the guard: what they share, what limits them, and which failures they survive.

use std::sync::atomic::AtomicBool;

use tenure_core::clock::ManualClock;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::testing::{START, ms, pass, secs, settle};

/// A ledger that answers with the number of the call, when released.
#[derive(Default)]
struct Backend {
    calls: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
    /// Calls wait for `go` while it is set.
    is_stuck: AtomicBool,
    go: Notify,
    fails: Mutex<Option<ErrorKind>>,
    panics: AtomicBool,
}

/// One call, until it is dropped.
struct Running<'a>(&'a Backend);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Backend {
    async fn read(&self) -> Result<usize> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        let _running = Running(self);
        if self.is_stuck.load(Ordering::SeqCst) {
            self.go.notified().await;
        }
        assert!(!self.panics.load(Ordering::SeqCst), "the backend has a bug");
        match *self.fails.lock().unwrap() {
            Some(kind) => Err(Error::new(kind, "as it was told")),
            None => Ok(call),
        }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    fn stick(&self, stuck: bool) {
        self.is_stuck.store(stuck, Ordering::SeqCst);
    }

    fn fail(&self, kind: Option<ErrorKind>) {
        *self.fails.lock().unwrap() = kind;
    }
}

struct World {
    clock: Arc<ManualClock>,
    backend: Arc<Backend>,
    guard: Guard,
    reads: Reads<usize, usize>,
}

fn world(settings: Settings) -> World {
    let clock = Arc::new(ManualClock::new(START, 7));
    let guard = Guard::new(clock.clone(), Handle::current(), settings).expect("good settings");
    World {
        clock,
        backend: Arc::default(),
        reads: guard.reads(),
        guard,
    }
}

impl World {
    fn ask(&self, key: usize, after: Option<Moment>) -> JoinHandle<Result<usize>> {
        let (reads, backend) = (self.reads.clone(), Arc::clone(&self.backend));
        tokio::spawn(async move {
            reads
                .read(key, after, move || async move { backend.read().await })
                .await
        })
    }

    async fn read(&self, key: usize) -> Result<usize> {
        self.ask(key, None).await.expect("no panic comes through")
    }

    /// Releases the calls in flight, and all later ones.
    async fn release(&self) {
        self.backend.stick(false);
        while self.backend.running.load(Ordering::SeqCst) > 0 {
            self.backend.go.notify_waiters();
            tokio::task::yield_now().await;
        }
    }

    fn state(&self) -> BreakerState {
        self.guard.status().breaker
    }

    /// Opens the breaker.
    async fn break_it(&self) {
        self.backend.fail(Some(ErrorKind::Unavailable));
        for key in 0..self.guard.inner.settings.failures as usize {
            assert!(self.read(key).await.unwrap_err().is_unavailable());
        }
        assert!(matches!(self.state(), BreakerState::Open(_)));
    }
}

/// Runs thousands of tasks until a condition holds, without advancing the clock.
async fn calm(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("never happened: {what}");
}

fn is_refusal(answer: &Result<usize>) -> bool {
    answer.as_ref().is_err_and(|error| {
        error.is_unavailable() && error.outcome() == Outcome::Unchanged && error.retry_after().is_some()
    })
}

#[tokio::test]
async fn reads_of_hung_ledger_are_bounded_and_refused_in_time() {
    let world = world(Settings::default());
    world.backend.stick(true);
    let asked: Vec<_> = (0..5_000).map(|key| world.ask(key, None)).collect();
    let answered = || asked.iter().filter(|asked| asked.is_finished()).count();
    let waiting = || world.guard.status().waiting;
    calm("all but eight are queued", || {
        (world.backend.calls(), waiting()) == (8, 4_992)
    })
    .await;
    world.clock.advance(ms(375));
    calm("the queued ones are refused", || answered() == 4_992).await;
    world.clock.advance(ms(125));
    calm("all are answered at the deadline", || answered() == 5_000).await;
    for answer in asked {
        let answer = answer.await.unwrap();
        assert!(is_refusal(&answer), "{answer:?}");
    }
    assert_eq!(world.backend.calls(), 8, "each took a whole timeout");
    assert_eq!(world.backend.most.load(Ordering::SeqCst), 8);
    let status = world.guard.status();
    assert_eq!((status.running, status.waiting, status.opened), (0, 0, 1));
    assert_eq!(status.overloaded, 5_000 - 8);
    assert!(world.reads.table.lock().unwrap().is_empty());

    // The breaker is open: nothing is called until the clock advances.
    let BreakerState::Open(pause) = status.breaker else {
        panic!("{status:?}")
    };
    assert!((ms(800)..=ms(1_200)).contains(&pause), "{pause:?}");
    let refused = world.read(1).await;
    assert_eq!(refused.unwrap_err().retry_after(), Some(pause));
    assert_eq!(world.backend.calls(), 8);

    // There is one probe. While it is in flight all other reads are refused; its answer closes the breaker.
    world.clock.advance(pause);
    assert_eq!(world.state(), BreakerState::HalfOpen);
    let crowd: Vec<_> = (0..1_000).map(|key| world.ask(key, None)).collect();
    let refused = || crowd.iter().filter(|asked| asked.is_finished()).count();
    calm("all but the probe are refused", || refused() == 999).await;
    assert_eq!(world.guard.status().running, 1);
    assert_eq!(world.backend.calls(), 9);
    world.release().await;
    let mut answers = Vec::new();
    for asked in crowd {
        answers.push(asked.await.unwrap());
    }
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(answers.iter().filter(|answer| is_refusal(answer)).count(), 999);
    assert_eq!(world.state(), BreakerState::Closed);
    assert_eq!(world.read(7).await.unwrap(), 10);
}

#[tokio::test]
async fn reads_of_a_healthy_ledger_all_succeed() {
    let world = world(Settings::default());
    let asked: Vec<_> = (0..5_000).map(|key| world.ask(key, None)).collect();
    for asked in asked {
        asked.await.unwrap().expect("an answer");
    }
    assert_eq!(world.backend.calls(), 5_000);
    assert!(world.backend.most.load(Ordering::SeqCst) <= 8);
}

#[tokio::test]
async fn equal_reads_share_a_call_and_its_result() {
    let world = world(Settings::default());
    world.backend.stick(true);
    let asked: Vec<_> = (0..1_000).map(|n| world.ask(n % 2, None)).collect();
    settle().await;
    world.release().await;
    for (n, asked) in asked.into_iter().enumerate() {
        assert_eq!(asked.await.unwrap().unwrap(), n % 2 + 1);
    }
    assert_eq!(world.backend.calls(), 2);
    // A finished call is not shared.
    assert_eq!(world.read(0).await.unwrap(), 3);

    // An error is shared as well, with its kind.
    world.backend.fail(Some(ErrorKind::NotFound));
    world.backend.stick(true);
    let asked: Vec<_> = (0..10).map(|_| world.ask(0, None)).collect();
    settle().await;
    world.release().await;
    for asked in asked {
        assert_eq!(asked.await.unwrap().unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert_eq!(world.backend.calls(), 4);
}

#[tokio::test]
async fn read_after_write_joins_no_earlier_read() {
    let world = world(Settings {
        concurrency: 2,
        ..Settings::default()
    });
    world.backend.stick(true);
    let before = world.guard.moment();
    let old = world.ask(0, None);
    settle().await;
    assert_eq!(world.backend.calls(), 1);
    // This call began after `before` and before `written`.
    let joins = world.ask(0, Some(before));
    let written = world.guard.moment();
    let new = world.ask(0, Some(written));
    settle().await;
    assert_eq!(world.backend.calls(), 2, "a call of its own");
    // Others join the newer call, with and without a moment.
    let (strict, lax) = (world.ask(0, Some(written)), world.ask(0, None));
    settle().await;
    // Both permits are in use: the queued call has not begun, so any later read may join it.
    let later = world.ask(0, Some(world.guard.moment()));
    settle().await;
    let latest = world.ask(0, Some(world.guard.moment()));
    settle().await;
    assert_eq!((world.backend.calls(), world.guard.status().waiting), (2, 1));
    world.release().await;
    let answers = [old, joins, new, strict, lax, later, latest];
    let mut got = Vec::new();
    for asked in answers {
        got.push(asked.await.unwrap().unwrap());
    }
    assert_eq!(got, [1, 1, 2, 2, 2, 3, 3]);
    assert!(world.reads.table.lock().unwrap().is_empty());
}

#[tokio::test]
async fn end_of_an_older_call_keeps_the_newer_one_joinable() {
    let world = world(Settings::default());
    world.backend.stick(true);
    let old = world.ask(0, None);
    settle().await;
    let new = world.ask(0, Some(world.guard.moment()));
    settle().await;
    world.backend.go.notify_one();
    assert_eq!(old.await.unwrap().unwrap(), 1);
    let joins = world.ask(0, None);
    settle().await;
    assert_eq!(world.backend.calls(), 2);
    world.release().await;
    assert_eq!((new.await.unwrap().unwrap(), joins.await.unwrap().unwrap()), (2, 2));
}

#[tokio::test]
async fn cancelled_caller_does_not_affect_the_others() {
    let world = world(Settings::default());
    world.backend.stick(true);
    let first = world.ask(0, None);
    settle().await;
    let second = world.ask(0, None);
    settle().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    settle().await;
    world.release().await;
    assert_eq!(second.await.unwrap().unwrap(), 1);

    // Without callers the call ends at its deadline and frees its permit.
    world.backend.stick(true);
    let alone = world.ask(0, None);
    settle().await;
    alone.abort();
    pass(&world.clock, ms(500)).await;
    let status = world.guard.status();
    assert_eq!((status.running, status.waiting), (0, 0));
    assert_eq!(world.backend.running.load(Ordering::SeqCst), 0);
    world.backend.stick(false);
    assert_eq!(world.read(0).await.unwrap(), 3);
}

#[tokio::test]
async fn panic_fails_only_the_callers_of_that_read() {
    let world = world(Settings {
        concurrency: 1,
        failures: 1,
        ..Settings::default()
    });
    world.backend.panics.store(true, Ordering::SeqCst);
    world.backend.stick(true);
    let asked = [world.ask(0, None), world.ask(0, None)];
    settle().await;
    world.release().await;
    for asked in asked {
        assert_eq!(asked.await.unwrap().unwrap_err().kind(), ErrorKind::Internal);
    }
    assert_eq!(world.state(), BreakerState::Closed, "it says nothing about the ledger");
    world.backend.panics.store(false, Ordering::SeqCst);
    assert_eq!(
        world.read(0).await.unwrap(),
        2,
        "neither its key nor its permit is lost"
    );

    // A probe that panics does not block the next one.
    world.break_it().await;
    world.backend.fail(None);
    world.backend.panics.store(true, Ordering::SeqCst);
    world.clock.advance(ms(1_200));
    assert_eq!(world.read(0).await.unwrap_err().kind(), ErrorKind::Internal);
    assert!(matches!(world.state(), BreakerState::Open(_)));
    world.backend.panics.store(false, Ordering::SeqCst);
    world.clock.advance(ms(1_200));
    world.read(0).await.expect("the next probe is answered");
    assert_eq!(world.state(), BreakerState::Closed);
}

#[tokio::test]
async fn only_unavailability_opens_the_breaker() {
    let world = world(Settings::default());
    for kind in [
        ErrorKind::NotFound,
        ErrorKind::Invalid,
        ErrorKind::Denied,
        ErrorKind::Misconfigured,
        ErrorKind::Internal,
    ] {
        world.backend.fail(Some(kind));
        for key in 0..20 {
            assert_eq!(world.read(key).await.unwrap_err().kind(), kind);
        }
        assert_eq!(world.state(), BreakerState::Closed);
    }
    // Any other error resets the failure count, and answers a probe.
    for n in 0..20 {
        let kind = if n % 5 == 4 {
            ErrorKind::NotFound
        } else {
            ErrorKind::Unavailable
        };
        world.backend.fail(Some(kind));
        assert!(world.read(0).await.is_err());
        assert_eq!(world.state(), BreakerState::Closed);
    }
    world.break_it().await;
    world.clock.advance(ms(1_200));
    world.backend.fail(Some(ErrorKind::NotFound));
    assert_eq!(world.read(0).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(world.state(), BreakerState::Closed);
}

#[tokio::test]
async fn full_queue_refuses_and_queued_reads_time_out() {
    let world = world(Settings {
        concurrency: 1,
        waiting: 2,
        failures: 100,
        ..Settings::default()
    });
    world.backend.stick(true);
    let running = world.ask(0, None);
    settle().await;
    let waiting = [world.ask(1, None), world.ask(2, None)];
    settle().await;
    assert_eq!((world.guard.status().running, world.guard.status().waiting), (1, 2));
    assert!(is_refusal(&world.read(3).await));
    // An equal read needs no place.
    let joined = world.ask(1, None);
    settle().await;
    pass(&world.clock, ms(374)).await;
    assert!(waiting.iter().all(|asked| !asked.is_finished()));
    pass(&world.clock, ms(1)).await;
    for asked in waiting.into_iter().chain([joined]) {
        assert!(asked.is_finished(), "it timed out in the queue");
        assert!(is_refusal(&asked.await.unwrap()));
    }
    assert!(!running.is_finished());
    pass(&world.clock, ms(125)).await;
    assert!(is_refusal(&running.await.unwrap()));
    assert_eq!(world.backend.calls(), 1);
    assert_eq!(world.guard.status().overloaded, 3);
}

#[tokio::test]
async fn queued_reads_are_not_sent_after_the_breaker_opens() {
    let world = world(Settings {
        concurrency: 2,
        failures: 2,
        ..Settings::default()
    });
    world.backend.stick(true);
    let asked: Vec<_> = (0..100).map(|key| world.ask(key, None)).collect();
    settle().await;
    world.backend.fail(Some(ErrorKind::Unavailable));
    world.release().await;
    for asked in asked {
        let answer = asked.await.unwrap();
        assert!(answer.unwrap_err().is_unavailable());
    }
    assert_eq!(world.backend.calls(), 2, "the rest were refused immediately");
    let status = world.guard.status();
    assert_eq!((status.refused, status.waiting, status.running), (98, 0, 0));
}

#[tokio::test]
async fn guards_probe_with_jitter() {
    let mut pauses = Vec::new();
    for seed in 0..20 {
        let mut world = world(Settings::default());
        world.clock = Arc::new(ManualClock::new(START, seed));
        world.guard = Guard::new(world.clock.clone(), Handle::current(), Settings::default()).expect("good settings");
        world.reads = world.guard.reads();
        world.break_it().await;
        let BreakerState::Open(pause) = world.state() else {
            panic!("it is open")
        };
        pauses.push(pause);
    }
    pauses.sort_unstable();
    pauses.dedup();
    assert!(pauses.len() >= 15, "{pauses:?}");
}

#[test]
fn ended_runtime_blocks_no_read() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let clock = Arc::new(ManualClock::new(START, 7));
    let guard = Guard::new(clock, runtime.handle().clone(), Settings::default()).expect("good settings");
    let reads: Reads<u8, u8> = guard.reads();
    runtime.shutdown_background();
    let here = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    for _ in 0..10 {
        let answer = here.block_on(reads.read(0, None, || async { Ok(1) }));
        assert!(answer.unwrap_err().is_unavailable());
    }
    assert_eq!(guard.status().waiting, 0);
    assert!(reads.table.lock().unwrap().is_empty());
}

#[tokio::test]
async fn invalid_settings_are_rejected_by_name() {
    let base = Settings::default;
    for (settings, name) in [
        (
            Settings {
                timeout: ms(0),
                ..base()
            },
            "timeout",
        ),
        (
            Settings {
                concurrency: 0,
                ..base()
            },
            "concurrency 0",
        ),
        (
            Settings {
                concurrency: usize::MAX,
                ..base()
            },
            "concurrency",
        ),
        (Settings { waiting: 0, ..base() }, "waiting"),
        (Settings { failures: 0, ..base() }, "failures"),
        (
            Settings {
                pause: secs(0),
                ..base()
            },
            "pause",
        ),
    ] {
        let refused = Guard::new(Arc::new(ManualClock::new(START, 7)), Handle::current(), settings);
        let message = refused.expect_err(name).to_string();
        assert!(message.contains(name.split(' ').next().expect("a word")), "{message}");
    }
    assert!(format!("{:?}", world(base()).guard).contains("Closed"));
}
