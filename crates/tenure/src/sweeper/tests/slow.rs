//! Slow groups and their effect on others.

use super::*;
use crate::loops::LoopStatus;

impl World {
    /// Adds groups of one member each with slow calls.
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

    /// Checks that a member of a group ticked only by the janitor lapses in time.
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
    world.slow_groups(150, ms(1_500), "same").await;
    world.store.slow_group(&healthy, ms(0), "same");
    world.pass(secs(3)).await;
    world.is_swept_in_time(&healthy).await;
    assert!(world.status(JANITOR).stuck_for < secs(1));
    // Slow groups do not delay each other: the groups of a slow node are ticked in time.
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
async fn a_store_that_becomes_slow_makes_no_gap() {
    let world = world(1);
    world.slow_groups(600, ms(0), "same").await;
    world.pass(secs(3)).await;
    let groups: Vec<Group> = (0..600).map(|n| group(&format!("slow-same-{n}"))).collect();
    for group in &groups {
        world.store.slow_group(group, ms(400), "same");
    }
    world.pass(secs(5)).await;
    let mut gaps = 0;
    for group in &groups {
        gaps += world.events(group, &[EventKind::GroupUnsettled]).await.len();
    }
    assert_eq!(gaps, 0);
}

#[tokio::test]
async fn groups_of_a_hung_node_do_not_delay_those_of_another() {
    let world = world(1);
    let healthy = group("healthy");
    world.slow_groups(2 * queues::PLACES, secs(3_600), "hung").await;
    world.pass(secs(3)).await;
    world.is_swept_in_time(&healthy).await;
    let status = world.status(JANITOR);
    assert!(status.stuck_for < secs(3) && status.failures == 0, "{status:?}");
    assert!(status.skipped > 0, "{status:?}");
}

#[tokio::test]
async fn slow_groups_do_not_delay_the_reaping_of_a_healthy_one() {
    let world = world(1);
    // The last by name: groups that are due together are visited in this order.
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
    // All graces end at the same time.
    world.orphan(&healthy, &front, 3, secs(10)).await;
    world.keep_alive(&healthy, &front, secs(10) + ms(600)).await;
    assert_eq!(world.reaped(&healthy).await, 3);
    assert!(world.status(REAPER).stuck_for < secs(30));
}

#[tokio::test]
async fn hung_visit_is_reported_as_a_stuck_loop() {
    let world = world(1);
    let hung = group("hung");
    world.join(&hung, "member").await;
    world.pass(secs(3)).await;
    assert!(world.status(JANITOR).stuck_for < secs(2));
    // Hold the lock of the group's state, so that the next visit waits forever.
    let inner = &world.sweepers[0].0.inner;
    let due = {
        let mut schedule = Janitor::schedule(inner);
        schedule.at_latest(&hung, Mono::from_origin(Duration::ZERO));
        schedule.take(world.clock.mono())
    };
    let held = due[0].work.clone().try_lock_owned().unwrap();
    let visited = Visited {
        wait: ms(1),
        error: None,
    };
    inner.visited::<Janitor>(&hung, &visited);
    inner.janitor.wake();
    world.pass(secs(60)).await;
    let status = world.status(JANITOR);
    assert!(status.stuck_for > secs(50) && status.runs > 10, "{status:?}");
    drop(held);
    world.pass(secs(3)).await;
    assert!(world.status(JANITOR).stuck_for < secs(2));
}

#[tokio::test]
async fn shutdown_waits_for_visits_in_flight() {
    let world = world(1);
    let _listening = world.telemetry.listen();
    let g = group("g");
    let alive = world.join(&g, "alive").await;
    let dead = world.join(&g, "dead").await;
    world.claim(&g, &dead, 5).await;
    world.sweepers[0].0.touch(&g);
    world.store.next(Verb::Release, Fault::Delay(secs(1)));
    world.keep_alive(&g, &alive, TTL + ms(600)).await;
    assert_eq!(world.evicted(&g).await, 0, "the release is in flight");
    let stopping = world.sweepers[0].1.shut_down(secs(3));
    let (stopped, ()) = tokio::join!(stopping, world.pass(secs(2)));
    assert!(stopped);
    assert_eq!(world.telemetry.count("tenure_registry_evicted_total"), 5);
    let calls = world.store.calls(Verb::Tick);
    world.pass(secs(10)).await;
    assert_eq!(world.store.calls(Verb::Tick), calls, "no new visit starts");
}

#[tokio::test]
async fn outage_is_not_a_success_and_its_end_is_logged_once() {
    let world = world(1);
    let _listening = world.telemetry.listen();
    let g = group("g");
    let member = world.join(&g, "member").await;
    world.sweepers[0].0.touch(&g);
    world.keep_alive(&g, &member, TTL).await;
    let succeeded = |sweep: &str| {
        let series = format!("tenure_sweep_last_success_timestamp_seconds{{sweep={sweep:?}}}");
        world.telemetry.gauge(&series)
    };
    for kind in [ErrorKind::Unavailable, ErrorKind::Denied] {
        let fault = Some(Fault::Fail(kind));
        for verb in [Verb::Groups, Verb::Tick] {
            world.store.always(verb, fault.clone());
        }
        world.pass(secs(5)).await;
        let all = || [JANITOR, REAPER, RECONCILE].map(&succeeded);
        let (before, was_well) = (all(), world.telemetry.lines("the loop has recovered"));
        world.pass(secs(95)).await;
        assert_eq!(all().map(f64::to_bits), before.map(f64::to_bits), "{kind:?}");
        assert_eq!(world.telemetry.lines("the loop has recovered"), was_well, "{kind:?}");
        assert!(world.status(JANITOR).failures > 5);
        world.store.heal();
        world.keep_alive(&g, &member, secs(5)).await;
        assert_eq!(
            world.telemetry.lines("the loop has recovered"),
            was_well + 1,
            "{kind:?}"
        );
        assert!(succeeded(JANITOR) > before[0] + 90.0);
    }
}

#[tokio::test]
async fn loop_without_success_exports_its_start_time() {
    let mut world = world(0);
    let telemetry = world.telemetry.clone();
    let _listening = telemetry.listen();
    world.store.cut(true);
    world.add_sweeper();
    world.pass(secs(100)).await;
    let born = START as f64 / 1e6;
    for sweep in [JANITOR, REAPER, RECONCILE] {
        let series = format!("tenure_sweep_last_success_timestamp_seconds{{sweep={sweep:?}}}");
        assert!((world.telemetry.gauge(&series) - born).abs() < 1.0, "{sweep}");
    }
}
