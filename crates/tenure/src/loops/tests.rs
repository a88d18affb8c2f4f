//! Failures, panics, pauses and shutdown of loops.

mod owned;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tenure_core::clock::ManualClock;
use tenure_core::error::ErrorKind;

use super::*;
use crate::testing::{START, ms, pass, pass_until, secs, settle};

/// A body that counts its turns over restarts and fails on request.
struct Body {
    turns: Arc<AtomicU64>,
    failing: Arc<AtomicBool>,
    next: Option<Duration>,
}

/// A body whose turns take time, and are due again immediately.
struct Busy {
    clock: Arc<ManualClock>,
    turns: Arc<AtomicU64>,
    took: Duration,
}

#[async_trait::async_trait]
impl LoopBody for Busy {
    async fn turn(&mut self) -> Result<Turn> {
        self.turns.fetch_add(1, Ordering::Relaxed);
        self.clock.advance(self.took);
        Ok(Turn {
            next: Some(Duration::ZERO),
            ..Turn::default()
        })
    }
}

#[async_trait::async_trait]
impl LoopBody for Body {
    async fn turn(&mut self) -> Result<Turn> {
        self.turns.fetch_add(1, Ordering::Relaxed);
        if self.failing.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Internal, "made to fail"));
        }
        Ok(Turn {
            next: self.next,
            ..Turn::default()
        })
    }
}

struct World {
    clock: Arc<ManualClock>,
    loops: Loops,
    turns: Arc<AtomicU64>,
    failing: Arc<AtomicBool>,
    panicking: Arc<Mutex<Option<&'static str>>>,
}

fn world(seed: u64) -> World {
    let clock = Arc::new(ManualClock::new(START, seed));
    let panicking: Arc<Mutex<Option<&'static str>>> = Arc::default();
    let told = Arc::clone(&panicking);
    let probe: Probe = Arc::new(move |name| {
        let told = *told.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(told != Some(name), "injected");
    });
    let loops = Loops::with_probe(clock.clone(), Handle::current(), Some(probe));
    World {
        clock,
        loops,
        turns: Arc::default(),
        failing: Arc::default(),
        panicking,
    }
}

impl World {
    fn start(&self, name: &str, max_interval: Duration, next: Option<Duration>) -> Waker {
        let (turns, failing) = (Arc::clone(&self.turns), Arc::clone(&self.failing));
        let make = move || Body {
            turns: Arc::clone(&turns),
            failing: Arc::clone(&failing),
            next,
        };
        self.loops.start(LoopSettings::new(name, max_interval), make).unwrap()
    }

    fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    fn status(&self) -> LoopStatus {
        self.loops.snapshot().remove(0)
    }

    fn panic(&self, name: Option<&'static str>) {
        *self.panicking.lock().unwrap() = name;
    }
}

#[tokio::test]
async fn loop_turns_at_its_interval_or_earlier_on_request() {
    let slow = world(1);
    slow.start("slow", secs(10), None);
    pass(&slow.clock, secs(111)).await;
    assert!((10..=13).contains(&slow.turns()), "{}", slow.turns());

    let quick = world(2);
    quick.start("quick", secs(10), Some(ms(500)));
    pass(&quick.clock, secs(10)).await;
    assert!((18..=21).contains(&quick.turns()), "{}", quick.turns());
}

#[tokio::test]
async fn no_loop_turns_faster_than_the_floor() {
    let world = world(1);
    world.start("eager", secs(10), Some(Duration::ZERO));
    pass_until(&world.clock, "the first turn", secs(1), || world.turns() == 1).await;
    for _ in 0..100 {
        world.loops.wake("eager");
        pass(&world.clock, ms(1)).await;
    }
    assert!(world.turns() <= 1 + 100 / 20, "{}", world.turns());
}

#[tokio::test]
async fn the_rest_after_a_turn_grows_with_what_it_took() {
    for (took_us, turns) in [(0, 50), (50, 20), (150, 7), (5_000, 4)] {
        let world = world(1);
        let settings = LoopSettings {
            pace: ms(2),
            ..LoopSettings::new("busy", secs(10))
        };
        let (clock, count) = (Arc::clone(&world.clock), Arc::clone(&world.turns));
        let make = move || Busy {
            clock: Arc::clone(&clock),
            turns: Arc::clone(&count),
            took: Duration::from_micros(took_us),
        };
        world.loops.start(settings, make).unwrap();
        pass_until(&world.clock, "the first turn", secs(1), || world.turns() == 1).await;
        pass(&world.clock, ms(100)).await;
        // A hundred times as long as the turn, but at least the pace, and at most the floor.
        let slack = turns / 10 + 1;
        let after = world.turns() - 1;
        assert!(after.abs_diff(turns) <= slack, "{took_us} µs: {after} turns");
    }
}

#[tokio::test]
async fn wakeup_makes_the_loop_turn_now() {
    let world = world(3);
    world.start("woken", secs(60), None);
    pass_until(&world.clock, "the first turn", secs(1), || world.turns() == 1).await;
    world.loops.wake("woken");
    pass(&world.clock, FLOOR).await;
    assert_eq!(world.turns(), 2);
}

#[tokio::test]
async fn turn_can_be_made_due_earlier_without_another_one() {
    let world = world(8);
    let waker = world.start("planned", secs(60), None);
    pass_until(&world.clock, "the first turn", secs(1), || world.turns() == 1).await;
    let now = world.clock.mono();
    for later in [ms(900), ms(500), ms(700)] {
        waker.wake_at(now + later);
        pass(&world.clock, ms(100)).await;
    }
    assert_eq!((world.turns(), world.status().next_in), (1, Some(ms(200))));
    pass(&world.clock, ms(200)).await;
    assert_eq!(world.turns(), 2);

    world.failing.store(true, Ordering::Relaxed);
    world.loops.wake("planned");
    pass_until(&world.clock, "the failed turn", secs(1), || world.turns() == 3).await;
    waker.wake_at(world.clock.mono() + ms(40));
    assert_eq!(world.status().next_in, Some(ms(40)), "also after a failure");
}

#[tokio::test]
async fn failed_turns_back_off_and_never_end_the_loop() {
    let world = world(4);
    world.start("shaky", secs(5), None);
    world.failing.store(true, Ordering::Relaxed);
    pass(&world.clock, secs(300)).await;
    let status = world.status();
    // The backoff ends at the interval: about 300/5 turns, and no longer pause.
    assert!((60..=130).contains(&status.failures), "{status:?}");
    assert_eq!(status.runs, status.failures);
    assert_eq!(status.last_success_age, None);
    world.failing.store(false, Ordering::Relaxed);
    pass(&world.clock, secs(5)).await;
    let status = world.status();
    assert_eq!((status.outcome, status.bad_in_a_row), (Some(Outcome::Ok), 0));
    assert!(status.last_success_age.unwrap() <= secs(5) && status.last_error.unwrap().contains("made to fail"));
}

#[tokio::test]
async fn panic_restarts_one_loop_and_is_counted() {
    let world = world(5);
    world.start("victim", ms(500), None);
    world.start("bystander", ms(500), None);
    world.panic(Some("victim"));
    pass_until(&world.clock, "the fifth panic", secs(60), || {
        world.loops.snapshot()[1].panics >= 5
    })
    .await;
    assert_eq!(world.loops.escalated().await, "victim");
    world.panic(None);
    pass(&world.clock, secs(2)).await;
    let [bystander, victim] = world.loops.snapshot().try_into().unwrap();
    assert_eq!((victim.outcome, victim.panics_in_a_row), (Some(Outcome::Ok), 0));
    assert!(victim.panics >= 5 && victim.last_error.unwrap().contains("injected"));
    assert_eq!(bystander.panics, 0);
    assert!(bystander.runs > victim.panics);
}

#[tokio::test]
async fn stalled_turn_is_neither_success_nor_failure() {
    let world = world(10);
    let (fails, stalls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let given = (Arc::clone(&fails), Arc::clone(&stalls));
    let make = move || Stalling(Arc::clone(&given.0), Arc::clone(&given.1));
    world.loops.start(LoopSettings::new("stalls", secs(1)), make).unwrap();
    pass(&world.clock, secs(3)).await;
    let born = world.status().last_success_wall_micros.unwrap();
    stalls.store(true, Ordering::Relaxed);
    pass(&world.clock, secs(5)).await;
    let stalled = world.status();
    assert!(stalled.last_success_age > Some(secs(4)) && stalled.last_success_wall_micros >= Some(born));
    assert_eq!((stalled.outcome, stalled.failures), (Some(Outcome::Ok), 0));
    fails.store(true, Ordering::Relaxed);
    pass(&world.clock, secs(3)).await;
    fails.store(false, Ordering::Relaxed);
    pass(&world.clock, secs(3)).await;
    let failing = world.status();
    assert!(
        failing.outcome == Some(Outcome::Failed) && failing.bad_in_a_row > 0,
        "{failing:?}"
    );
    assert!(failing.runs > failing.failures + 5 && failing.stuck_for < secs(2));
}

/// Fails or stalls on request.
struct Stalling(Arc<AtomicBool>, Arc<AtomicBool>);

#[async_trait::async_trait]
impl LoopBody for Stalling {
    async fn turn(&mut self) -> Result<Turn> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Internal, "made to fail"));
        }
        Ok(Turn {
            stalled: self.1.load(Ordering::Relaxed),
            ..Turn::default()
        })
    }
}

/// A body whose state stays broken after a panic.
struct Fragile {
    turns: u64,
}

#[async_trait::async_trait]
impl LoopBody for Fragile {
    async fn turn(&mut self) -> Result<Turn> {
        self.turns += 1;
        assert!(self.turns < 3, "broken");
        Ok(Turn::idle())
    }
}

#[tokio::test]
async fn panic_replaces_the_body() {
    let world = world(9);
    world
        .loops
        .start(LoopSettings::new("fragile", secs(1)), || Fragile { turns: 0 })
        .unwrap();
    pass(&world.clock, secs(30)).await;
    let status = world.status();
    assert!(
        status.panics >= 3 && status.runs >= 3 * status.panics,
        "two good turns for each panic: {status:?}"
    );
}

#[tokio::test]
async fn after_a_pause_the_loop_turns_once_and_counts_it() {
    let world = world(6);
    world.start("paused", secs(1), None);
    pass_until(&world.clock, "the third turn", secs(10), || world.turns() == 3).await;
    world.clock.advance(secs(3600));
    settle().await;
    assert_eq!(world.turns(), 4);
    assert_eq!(world.status().pauses, 1);
}

#[tokio::test]
async fn processes_started_together_tick_at_different_phases() {
    let mut hits = [0u32; 10];
    for seed in 0..200 {
        let world = world(seed);
        world.start("janitor", secs(10), None);
        pass_until(&world.clock, "the first turn", secs(1), || world.turns() == 1).await;
        pass_until(&world.clock, "the second turn", secs(12), || world.turns() == 2).await;
        let second = usize::try_from(world.clock.mono().since_origin().as_secs()).unwrap();
        hits[second.min(9)] += 1;
    }
    assert!(hits.iter().all(|hits| (5..=45).contains(hits)), "{hits:?}");
}

#[tokio::test]
async fn duplicate_name_or_too_short_interval_is_rejected() {
    let world = world(7);
    world.start("one", secs(1), None);
    let make = || Body {
        turns: Arc::default(),
        failing: Arc::default(),
        next: None,
    };
    let refused = |settings| world.loops.start(settings, make).unwrap_err().to_string();
    assert!(refused(LoopSettings::new("one", secs(1))).contains("named one already exists"));
    assert!(refused(LoopSettings::new("two", ms(1))).contains("below"));
}

#[tokio::test]
async fn shutting_down_ends_every_loop() {
    let world = world(8);
    world.start("a", secs(1), None);
    world.start("b", secs(1), None);
    pass(&world.clock, secs(1)).await;
    assert!(world.loops.shut_down(secs(1)).await);
    let turns = world.turns();
    pass(&world.clock, secs(10)).await;
    assert_eq!(world.turns(), turns);
}
