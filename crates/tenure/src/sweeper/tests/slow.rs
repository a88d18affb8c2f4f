//! Groups that are slow, and what they must not do to the others.

use super::*;
use crate::loops::LoopStatus;

impl World {
    /// Groups of one member each, all calls about which take so long.
    async fn slow_groups(&self, count: usize, takes: Duration, node: &str) {
        for n in 0..count {
            let slow = group(&format!("slow-{node}-{n}"));
            self.join(&slow, "member").await;
            self.store.slow_group(&slow, takes, node);
        }
    }

    fn status(&self, name: &str) -> LoopStatus {
        let all = self.sweepers[0].1.snapshot();
        all.into_iter().find(|status| status.name == name).unwrap()
    }

    /// A member of a group that only the janitor ticks lapses in time.
    async fn is_swept_in_time(&self, healthy: &Group) {
        let dead = self.join(healthy, "dead").await;
        self.claim(healthy, &dead, 5).await;
        self.pass(TTL + ms(50)).await;
        assert_eq!(self.events(healthy, &[EventKind::GroupUnsettled]).await, []);
        assert_eq!(self.events(healthy, &[EventKind::Lapsed]).await.len(), 1);
        self.pass(ms(350)).await;
        assert_eq!(self.evicted(healthy).await, 5);
    }
}

#[tokio::test]
async fn slow_groups_do_not_delay_a_healthy_one() {
    let world = world(1);
    let healthy = group("healthy");
    world.slow_groups(150, ms(400), "same").await;
    world.store.slow_group(&healthy, ms(0), "same");
    world.pass(secs(3)).await;
    world.is_swept_in_time(&healthy).await;
    assert!(world.status(JANITOR).stuck_for < secs(1));
    // Nor each other: a node that answers late has its groups ticked in time.
    for n in 0..150 {
        let unsettled = [EventKind::GroupUnsettled];
        assert_eq!(
            world.events(&group(&format!("slow-same-{n}")), &unsettled).await,
            [],
            "{n}"
        );
    }
}

#[tokio::test]
async fn groups_of_a_hung_node_do_not_delay_those_of_another() {
    let world = world(1);
    let healthy = group("healthy");
    world.slow_groups(2 * lanes::SLOW_PLACES, secs(3_600), "hung").await;
    world.pass(secs(3)).await;
    world.is_swept_in_time(&healthy).await;
    let status = world.status(JANITOR);
    assert!(status.stuck_for < secs(3) && status.failures == 0, "{status:?}");
    assert!(status.skipped > 0, "{status:?}");
}

#[tokio::test]
async fn slow_groups_do_not_delay_the_reaping_of_a_healthy_one() {
    let world = world(1);
    // The last by its name: groups that are due together are begun in this order.
    let healthy = group("the-healthy-one");
    world.slow_groups(150, ms(400), "same").await;
    world.store.slow_group(&healthy, ms(0), "same");
    for n in 0..150 {
        let slow = group(&format!("slow-same-{n}"));
        let front = world.join(&slow, "front").await;
        world.orphan(&slow, &front, 1, secs(10)).await;
    }
    let front = world.join(&healthy, "front").await;
    world.sweepers[0].0.touch(&healthy);
    // All graces end together.
    world.orphan(&healthy, &front, 3, secs(10)).await;
    world.keep_alive(&healthy, &front, secs(10) + ms(600)).await;
    assert_eq!(world.reaped(&healthy).await, 3);
    assert!(world.status(REAPER).stuck_for < secs(30));
}

#[tokio::test]
async fn a_visit_that_never_ends_is_a_loop_that_is_stuck() {
    let world = world(1);
    let hung = group("hung");
    world.join(&hung, "member").await;
    world.pass(secs(3)).await;
    assert!(world.status(JANITOR).stuck_for < secs(2));
    // What a visit keeps of its group is locked by another, so that the next visit waits for ever.
    let inner = &world.sweepers[0].0.inner;
    let due = inner.take_due(|entry| {
        entry.janitor.at_latest(Mono::from_origin(Duration::ZERO));
        &mut entry.janitor
    });
    let held = due[0].work.clone().try_lock_owned().unwrap();
    let visited = Visited {
        wait: ms(1),
        error: None,
    };
    inner.visited(&hung, &visited, false, |entry| &mut entry.janitor);
    inner.janitor.wake();
    world.pass(secs(60)).await;
    let status = world.status(JANITOR);
    assert!(status.stuck_for > secs(50) && status.runs > 10, "{status:?}");
    drop(held);
    world.pass(secs(3)).await;
    assert!(world.status(JANITOR).stuck_for < secs(2));
}

#[tokio::test]
async fn a_shutdown_waits_for_the_visits_under_way() {
    let world = world(1);
    let _listening = world.ears.listen();
    let g = group("g");
    let alive = world.join(&g, "alive").await;
    let dead = world.join(&g, "dead").await;
    world.claim(&g, &dead, 5).await;
    world.sweepers[0].0.touch(&g);
    world.store.next(Verb::Release, Fault::Delay(secs(1)));
    world.keep_alive(&g, &alive, TTL + ms(600)).await;
    assert_eq!(world.evicted(&g).await, 0, "the release is under way");
    let stopping = world.sweepers[0].1.shut_down(secs(3));
    let (stopped, ()) = tokio::join!(stopping, world.pass(secs(2)));
    assert!(stopped);
    assert_eq!(world.ears.count("tenure_registry_evicted_total"), 5);
    let calls = world.store.calls(Verb::Tick);
    world.pass(secs(10)).await;
    assert_eq!(world.store.calls(Verb::Tick), calls, "nothing new is begun");
}

#[tokio::test]
async fn an_outage_is_no_success_and_ends_once() {
    let world = world(1);
    let _listening = world.ears.listen();
    let g = group("g");
    let member = world.join(&g, "member").await;
    world.sweepers[0].0.touch(&g);
    world.keep_alive(&g, &member, TTL).await;
    let succeeded = |sweep: &str| {
        let series = format!("tenure_sweep_last_success_timestamp_seconds{{sweep={sweep:?}}}");
        world.ears.gauge(&series)
    };
    for kind in [ErrorKind::Unavailable, ErrorKind::Denied] {
        let fault = Some(Fault::Fail(kind));
        for verb in [Verb::Groups, Verb::Tick] {
            world.store.always(verb, fault.clone());
        }
        world.pass(secs(5)).await;
        let all = || [JANITOR, REAPER, RECONCILE].map(&succeeded);
        let (before, was_well) = (all(), world.ears.lines("the loop is well again"));
        world.pass(secs(95)).await;
        assert_eq!(all().map(f64::to_bits), before.map(f64::to_bits), "{kind:?}");
        assert_eq!(world.ears.lines("the loop is well again"), was_well, "{kind:?}");
        assert!(world.status(JANITOR).failures > 5);
        world.store.heal();
        world.keep_alive(&g, &member, secs(5)).await;
        assert_eq!(world.ears.lines("the loop is well again"), was_well + 1, "{kind:?}");
        assert!(succeeded(JANITOR) > before[0] + 90.0);
    }
}

#[tokio::test]
async fn a_loop_that_never_succeeds_exports_when_it_was_born() {
    let mut world = world(0);
    let ears = world.ears.clone();
    let _listening = ears.listen();
    world.store.cut(true);
    world.add_sweeper();
    world.pass(secs(100)).await;
    let born = START as f64 / 1e6;
    for sweep in [JANITOR, REAPER, RECONCILE] {
        let series = format!("tenure_sweep_last_success_timestamp_seconds{{sweep={sweep:?}}}");
        assert!((world.ears.gauge(&series) - born).abs() < 1.0, "{sweep}");
    }
}
