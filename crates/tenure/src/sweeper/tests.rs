//! One or many janitors over a store with injected faults.

use tenure_core::clock::ManualClock;
use tenure_core::event::{EventKind, EventQuery};
use tenure_core::id::{Key, LeaseName, MemberId, RegistryName, TenureId};
use tenure_core::membership::{Beat, Join, Labels};
use tenure_core::memory::MemoryStore;
use tenure_core::registry::ClaimMode;
use tenure_core::store::{Call, StoreOptions};
use tokio::runtime::Handle;

use super::*;
use crate::testing::{Fault, Faulty, START, Telemetry, Verb, ms, pass, pass_until, secs, served};

const TTL: Duration = secs(6);

struct World {
    clock: Arc<ManualClock>,
    memory: Arc<dyn Store>,
    store: Arc<Faulty>,
    sweepers: Vec<(Sweeper, Loops)>,
    telemetry: Telemetry,
}

fn world(sweepers: usize) -> World {
    let clock = Arc::new(ManualClock::new(START, 11));
    let memory: Arc<dyn Store> = MemoryStore::new(StoreOptions::default(), clock.clone());
    let store = Faulty::new(Arc::clone(&memory), clock.clone());
    let mut world = World {
        clock,
        memory,
        store,
        sweepers: Vec::new(),
        telemetry: Telemetry::default(),
    };
    for _ in 0..sweepers {
        world.add_sweeper();
    }
    world
}

fn group(name: &str) -> Group {
    Group::new(name).unwrap()
}

impl World {
    fn add_sweeper(&mut self) {
        let clock: Arc<dyn Clock> = self.clock.clone();
        let loops = Loops::new(Arc::clone(&clock), Handle::current());
        let sweeper = Sweeper::start(self.store.clone(), clock, SweeperSettings::default(), &loops).unwrap();
        self.sweepers.push((sweeper, loops));
    }

    async fn join(&self, in_group: &Group, member: &str) -> TenureId {
        let join = Join {
            member: MemberId::new(member).unwrap(),
            ttl: TTL,
            labels: Labels::default(),
        };
        self.memory.join(in_group, &join, Call::default()).await.unwrap().tenure
    }

    async fn claim(&self, in_group: &Group, tenure: &TenureId, keys: usize) {
        let keys: Vec<Key> = (0..keys)
            .map(|n| Key::new(format!("{}-{n}", tenure.member())).unwrap())
            .collect();
        let registry = RegistryName::new("devices").unwrap();
        for part in keys.chunks(10_000) {
            self.memory
                .claim(in_group, &registry, tenure, part, ClaimMode::Take, Call::default())
                .await
                .unwrap();
        }
    }

    async fn acquire(&self, in_group: &Group, tenure: &TenureId, leases: usize) {
        let leases: Vec<LeaseName> = (0..leases)
            .map(|n| LeaseName::new(format!("{}-{n}", tenure.member())).unwrap())
            .collect();
        let acquired = self.memory.acquire(in_group, tenure, &leases, Call::default());
        assert!(
            acquired
                .await
                .unwrap()
                .outcomes
                .iter()
                .all(|outcome| outcome.token().is_some())
        );
    }

    async fn events(&self, in_group: &Group, kinds: &[EventKind]) -> Vec<tenure_core::event::Event> {
        let query = EventQuery {
            after: None,
            limit: 1_000,
            kinds: kinds.to_vec(),
            ..EventQuery::default()
        };
        self.memory.events(in_group, &query).await.unwrap().events
    }

    async fn pass(&self, time: Duration) {
        pass(&self.clock, time).await;
    }

    /// The number of evicted entries, from the events of the store.
    async fn evicted(&self, in_group: &Group) -> u64 {
        let events = self.events(in_group, &[EventKind::Evicted]).await;
        events.iter().flat_map(|event| event.counts.values()).sum()
    }

    /// Beats for a tenure while time passes.
    async fn keep_alive(&self, in_group: &Group, tenure: &TenureId, time: Duration) {
        let end = self.clock.mono() + time;
        while self.clock.mono() < end {
            let beat = Beat {
                tenure: tenure.clone(),
                ttl: None,
                revision: tenure_core::membership::Revision::NONE,
                seen: tenure_core::membership::Revision::NONE,
            };
            self.memory.beat(in_group, &[beat]).await.unwrap();
            self.pass((TTL / 3).min(end.since(self.clock.mono()))).await;
        }
    }
}

#[tokio::test]
async fn dead_members_holdings_are_released_after_its_ttl() {
    let world = world(1);
    let _listening = world.telemetry.listen();
    let g = group("g");
    let alive = world.join(&g, "alive").await;
    let dead = world.join(&g, "dead").await;
    world.claim(&g, &alive, 10).await;
    world.claim(&g, &dead, 1_234).await;
    world.sweepers[0].0.touch(&g);
    world.keep_alive(&g, &alive, TTL - ms(1)).await;
    assert_eq!(world.telemetry.count("tenure_ended_total"), 0);
    world.pass(ms(25)).await;
    assert_eq!(
        world
            .telemetry
            .count("tenure_ended_total{group=\"g\",reason=\"lapsed\"}"),
        1
    );
    world.pass(ms(300)).await;
    assert_eq!(world.evicted(&g).await, 1_234);
    let series = "tenure_registry_evicted_total{group=\"g\",registry=\"devices\",owner=\"dead\"}";
    assert_eq!(world.telemetry.count(series), 1_234);
    assert_eq!(
        (
            world.telemetry.lines("INFO lapsed"),
            world.telemetry.count("tenure_detection_lag_seconds")
        ),
        (1, 1)
    );
    assert!((world.telemetry.gauge("tenure_members{group=\"g\"}") - 1.0).abs() < 0.1);
    world.keep_alive(&g, &alive, TTL * 4).await;
    assert_eq!(
        (world.evicted(&g).await, world.telemetry.count("tenure_ended_total")),
        (1_234, 1)
    );
}

/// Although entries of others, which beat, come due in the lazy index all the time, and although other events wake the
/// loop.
#[tokio::test]
async fn each_death_is_found_at_its_time() {
    let world = world(1);
    let g = group("g");
    world.sweepers[0].0.touch(&g);
    let (mut ends, mut beats) = (BTreeMap::new(), Vec::new());
    for n in 0..200 {
        let tenure = world.join(&g, &format!("alive-{n}")).await;
        beats.push(Beat {
            tenure,
            ttl: None,
            revision: tenure_core::membership::Revision::NONE,
            seen: tenure_core::membership::Revision::NONE,
        });
        world.pass(ms(3)).await;
        let dead = world.join(&g, &format!("dead-{n}")).await;
        ends.insert(dead, world.memory.status(&g).await.unwrap().as_of + TTL);
        world.pass(ms(4)).await;
    }
    for _ in 0..2 {
        world.pass(TTL / 3).await;
        world.memory.beat(&g, &beats).await.unwrap();
    }
    let steps = world.store.calls(Verb::EndLapsed);
    world.pass(TTL / 3 + secs(1)).await;
    let lapsed = world.events(&g, &[EventKind::Lapsed]).await;
    assert_eq!(lapsed.len(), 200);
    let lags = lapsed
        .iter()
        .map(|event| event.at.since(ends[event.tenure.as_ref().unwrap()]));
    assert!(lags.clone().max() <= Some(ms(5)), "{:?}", lags.max());
    let steps = world.store.calls(Verb::EndLapsed) - steps;
    assert!(steps <= 260, "{steps} steps");
}

#[tokio::test]
async fn janitor_ticks_often_enough_to_cause_no_gap() {
    let world = world(1);
    let (g, idle) = (group("g"), group("idle"));
    // One member beats so rarely that only the janitor ticks its group. The other group is empty.
    world.join(&g, "quiet").await;
    let gone = world.join(&idle, "gone").await;
    world
        .memory
        .end(&idle, &gone, tenure_core::membership::EndBy::Leave, Call::default())
        .await
        .unwrap();
    world.sweepers[0].0.touch(&g);
    let before = world.store.calls(Verb::Tick);
    world.pass(TTL - ms(500)).await;
    assert_eq!(world.events(&g, &[EventKind::GroupUnsettled]).await, []);
    let ticks = world.store.calls(Verb::Tick) - before;
    assert!((10..=24).contains(&ticks), "{ticks} ticks in 5.5 s");
    world.pass(secs(10)).await;
    assert_eq!(world.events(&g, &[EventKind::Lapsed]).await.len(), 1);
    let before = world.store.calls(Verb::Tick);
    world.pass(secs(60)).await;
    let ticks = world.store.calls(Verb::Tick) - before;
    assert!(ticks <= 90, "{ticks} ticks a minute for two groups without members");
}

/// No step is written and no member beats: only the ticks show that the store works.
#[tokio::test]
async fn failed_visits_tick_often_enough_to_cause_no_gap() {
    let world = world(1);
    let g = group("g");
    let join = Join {
        member: MemberId::new("dead").unwrap(),
        ttl: secs(1),
        labels: Labels::default(),
    };
    world.memory.join(&g, &join, Call::default()).await.unwrap();
    let failing = Fault::Fail(ErrorKind::Unavailable);
    world.store.always(Verb::EndLapsed, Some(failing));
    world.sweepers[0].0.touch(&g);
    world.pass(secs(60)).await;
    let gaps = world.events(&g, &[EventKind::GroupUnsettled]).await.len();
    assert_eq!(gaps, 0);
    let refused = world.store.calls(Verb::EndLapsed);
    assert!((200..=1_000).contains(&refused), "{refused} in a minute");
    let status = world.sweepers[0].1.snapshot().remove(0);
    assert!(status.last_success_age > Some(secs(55)), "{status:?}");
}

#[tokio::test]
async fn groups_are_discovered_and_unlisted_ones_dropped() {
    let world = world(1);
    let g = group("found");
    world.pass(secs(1)).await;
    let dead = world.join(&g, "dead").await;
    world.claim(&g, &dead, 3).await;
    world.pass(TTL + secs(1)).await;
    assert_eq!(world.evicted(&g).await, 3);
    world.sweepers[0].0.touch(&group("only-touched"));
    world.pass(secs(5)).await;
    assert!(world.sweepers[0].0.groups().contains(&g));
}

#[tokio::test]
async fn unlisted_group_is_dropped_only_when_empty() {
    let world = world(1);
    let (g, inner) = (group("g"), Arc::clone(&world.sweepers[0].0.inner));
    let tenure = world.join(&g, "a").await;
    inner.name_group(&g, inner.clock.mono());
    let unnamed = inner.settings.interval + secs(1);
    let look = async || {
        let status = world.memory.status(&g).await.unwrap();
        inner.schedule_reap(&g, &status, world.clock.mono());
        world.clock.advance(unnamed);
        inner.forget_unnamed();
        inner.groups().contains_key(&g)
    };
    assert!(look().await, "the list of groups may be lost");
    let left = world
        .memory
        .end(&g, &tenure, tenure_core::membership::EndBy::Leave, Call::default());
    left.await.unwrap();
    assert!(!look().await);
}

#[tokio::test]
async fn counts_stay_exact_when_replies_are_lost() {
    for fault in [
        Fault::LoseReply,
        Fault::LoseRequest,
        Fault::Hang { applied: true },
        Fault::Hang { applied: false },
    ] {
        let world = world(1);
        let _listening = world.telemetry.listen();
        let g = group("g");
        let alive = world.join(&g, "alive").await;
        let dead = world.join(&g, "dead").await;
        world.claim(&g, &dead, 700).await;
        world.sweepers[0].0.touch(&g);
        world.store.next(Verb::Release, fault.clone());
        world.store.next(Verb::Release, fault.clone());
        // The first read of the events fails, too.
        world.store.next(Verb::Events, Fault::LoseReply);
        world.keep_alive(&g, &alive, TTL + secs(20)).await;
        assert_eq!(world.evicted(&g).await, 700, "{fault:?}");
        assert_eq!(world.telemetry.count("tenure_registry_evicted_total"), 700, "{fault:?}");
    }
}

#[tokio::test]
async fn evicted_leases_are_counted_once_with_lost_replies() {
    for fault in [
        None,
        Some(Fault::LoseReply),
        Some(Fault::LoseRequest),
        Some(Fault::Hang { applied: true }),
    ] {
        let world = world(2);
        let _listening = world.telemetry.listen();
        let g = group("g");
        let alive = world.join(&g, "alive").await;
        let dead = world.join(&g, "dead").await;
        world.claim(&g, &dead, 150).await;
        world.acquire(&g, &dead, 350).await;
        world.sweepers[0].0.touch(&g);
        for _ in 0..3 {
            fault
                .iter()
                .for_each(|fault| world.store.next(Verb::Release, fault.clone()));
        }
        world.keep_alive(&g, &alive, TTL + secs(20)).await;
        let released = world.events(&g, &[EventKind::LeaseReleased]).await;
        assert_eq!((released.len(), world.evicted(&g).await), (350, 150), "{fault:?}");
        let series = "tenure_leases_evicted_total{group=\"g\",owner=\"dead\"}";
        assert_eq!(world.telemetry.count(series), 350, "{fault:?}");
        assert_eq!(world.telemetry.count("tenure_registry_evicted_total"), 150, "{fault:?}");
    }
}

#[tokio::test]
async fn release_applied_after_its_time_out_is_counted() {
    for late in [ms(300), ms(1_900), ms(2_500)] {
        let world = world(1);
        let _listening = world.telemetry.listen();
        let g = group("g");
        let alive = world.join(&g, "alive").await;
        let dead = world.join(&g, "dead").await;
        world.claim(&g, &dead, 150).await;
        world.sweepers[0].0.touch(&g);
        // Later releases fail until the late one had time to take effect.
        world.store.late(Verb::Release, late);
        world.keep_alive(&g, &alive, TTL + ms(200)).await;
        world
            .store
            .always(Verb::Release, Some(Fault::Fail(ErrorKind::Unavailable)));
        world.keep_alive(&g, &alive, secs(4)).await;
        assert_eq!(
            world.evicted(&g).await,
            if late < secs(2) { 150 } else { 0 },
            "{late:?}"
        );
        world.store.always(Verb::Release, None);
        world.keep_alive(&g, &alive, secs(4)).await;
        assert_eq!(world.evicted(&g).await, 150, "{late:?}");
        assert_eq!(world.telemetry.count("tenure_registry_evicted_total"), 150, "{late:?}");
    }
}

#[tokio::test]
async fn several_sweepers_log_and_count_each_effect_once() {
    let world = world(3);
    let _listening = world.telemetry.listen();
    let g = group("g");
    let alive = world.join(&g, "alive").await;
    for n in 0..8 {
        let dead = world.join(&g, &format!("dead-{n}")).await;
        world.claim(&g, &dead, 100).await;
    }
    world.keep_alive(&g, &alive, TTL + secs(5)).await;
    assert_eq!(
        (
            world.evicted(&g).await,
            world.telemetry.count("tenure_registry_evicted_total")
        ),
        (800, 800)
    );
    assert_eq!(world.telemetry.count("tenure_ended_total"), 8);
    assert_eq!(world.telemetry.lines("INFO lapsed"), 8);
    assert_eq!(
        world.telemetry.lines("INFO evicted"),
        world.events(&g, &[EventKind::Evicted]).await.len()
    );
}

#[tokio::test]
async fn outage_marks_no_member_dead_and_is_logged_once() {
    let world = world(1);
    let _listening = world.telemetry.listen();
    let g = group("g");
    let member = world.join(&g, "member").await;
    world.sweepers[0].0.touch(&g);
    world.keep_alive(&g, &member, TTL * 2).await;
    world.store.cut(true);
    world.pass(TTL * 10).await;
    assert_eq!(world.telemetry.lines("a pass failed"), 1);
    let status = world.sweepers[0].1.snapshot().remove(0);
    assert!(
        status.failures > 5 && status.last_success_age.unwrap() > TTL * 9,
        "{status:?}"
    );
    world.store.cut(false);
    world.pass(secs(3)).await;
    assert_eq!(
        (
            world.telemetry.lines("WARN unsettled"),
            world.telemetry.count("tenure_ended_total")
        ),
        (1, 0)
    );
    assert!(world.telemetry.gauge("tenure_group_unsettled") > 0.5);
    world.keep_alive(&g, &member, TTL * 3).await;
    assert_eq!(
        (
            world.telemetry.lines("INFO settled"),
            world.telemetry.count("tenure_ended_total")
        ),
        (1, 0)
    );
    assert!(world.telemetry.gauge("tenure_group_unsettled") < 0.5);
}

#[tokio::test]
async fn broken_group_does_not_affect_others() {
    let world = world(1);
    let (broken, sound) = (group("broken"), group("sound"));
    for g in [&broken, &sound] {
        let dead = world.join(g, "dead").await;
        world.claim(g, &dead, 5).await;
    }
    world.store.break_group(Some(broken.clone()));
    world.pass(TTL + secs(3)).await;
    assert_eq!((world.evicted(&broken).await, world.evicted(&sound).await), (0, 5));
    let status = world.sweepers[0].1.snapshot().remove(0);
    assert_eq!(status.failures, 0, "the loop keeps its pace: {status:?}");
    assert!(status.skipped > 2);
    world.store.break_group(None);
    world.pass(TTL * 2 + secs(3)).await;
    assert_eq!(world.evicted(&broken).await, 5);
}

#[tokio::test]
async fn janitor_survives_panics_in_every_step() {
    let world = world(1);
    let g = group("g");
    let dead = world.join(&g, "dead").await;
    world.claim(&g, &dead, 5).await;
    for verb in [Verb::Tick, Verb::EndLapsed, Verb::Release, Verb::Groups] {
        world.store.next(verb, Fault::Panic);
    }
    world.pass(TTL * 2 + secs(5)).await;
    assert_eq!(world.sweepers[0].1.snapshot()[0].panics, 4);
    assert_eq!(world.evicted(&g).await, 5);
}

#[tokio::test]
async fn errors_in_any_step_only_delay_the_sweep() {
    let world = world(1);
    let _listening = world.telemetry.listen();
    let g = group("g");
    let dead = world.join(&g, "dead").await;
    world.claim(&g, &dead, 450).await;
    for verb in [Verb::Tick, Verb::EndLapsed, Verb::Release, Verb::Groups] {
        for kind in [ErrorKind::Unavailable, ErrorKind::TooLate, ErrorKind::Internal] {
            world.store.next(verb, Fault::Fail(kind));
        }
    }
    world.pass(TTL * 2 + secs(10)).await;
    assert_eq!(
        (
            world.evicted(&g).await,
            world.telemetry.count("tenure_registry_evicted_total")
        ),
        (450, 450)
    );
}

#[tokio::test]
async fn dropped_sweeper_stops_and_bad_settings_are_rejected() {
    let mut world = world(1);
    world.pass(secs(1)).await;
    world.sweepers.clear();
    world.pass(secs(1)).await;
    let before = world.store.calls(Verb::Groups);
    world.pass(secs(30)).await;
    assert_eq!(world.store.calls(Verb::Groups), before);
    let loops = Loops::new(world.clock.clone(), Handle::current());
    let bad = SweeperSettings {
        interval: Duration::ZERO,
        ..SweeperSettings::default()
    };
    let error = Sweeper::start(world.store.clone(), world.clock.clone(), bad, &loops).unwrap_err();
    assert!(error.to_string().contains("interval"), "{error}");
    pass_until(&world.clock, "nothing", secs(1), || true).await;
}

mod braking;
mod late;
mod reaping;
mod resting;
mod slow;
