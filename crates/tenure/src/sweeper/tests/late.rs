//! Janitors that come late: their lateness is not silence of the store.

use super::*;

impl World {
    /// Something takes beats, whether it sweeps or not.
    fn serve(&self) -> Loops {
        served(&self.memory, &self.clock)
    }
}

/// A sweep that comes an hour late finds who has died, and restarts no ttl.
#[tokio::test]
async fn a_late_janitor_extends_no_life() {
    let mut world = world(0);
    let _beats = world.serve();
    world.pass(secs(1)).await;
    let g = group("g");
    let dead = world.join(&g, "dead").await;
    world.claim(&g, &dead, 3).await;
    world.pass(secs(3600)).await;
    world.add_sweeper();
    world.pass(secs(1)).await;
    assert_eq!(world.evicted(&g).await, 3);
    assert_eq!(world.events(&g, &[EventKind::GroupUnsettled]).await, []);
}

/// Without due work a group is not visited: its members beat in time, and none ends.
#[tokio::test]
async fn a_group_without_due_work_is_not_visited() {
    let world = world(1);
    let _beats = world.serve();
    world.pass(secs(1)).await;
    let g = group("g");
    let alive = world.join(&g, "alive").await;
    world.sweepers[0].0.touch(&g);
    world.pass(secs(1)).await;
    let before = world.store.calls(Verb::Tick);
    world.keep_alive(&g, &alive, secs(120)).await;
    // The lazy index is looked at once per ttl.
    let visits = world.store.calls(Verb::Tick) - before;
    assert!(visits <= 45, "{visits} visits in 120 s");
    assert_eq!(
        world.events(&g, &[EventKind::GroupUnsettled, EventKind::Lapsed]).await,
        []
    );
}

/// Readers learn soon that every ttl restarted, also in a group in which nothing is due for long.
#[tokio::test]
async fn a_hole_is_announced_soon() {
    let world = world(1);
    let beats = world.serve();
    world.pass(secs(1)).await;
    let g = group("g");
    let join = Join {
        member: MemberId::new("alive").unwrap(),
        ttl: secs(60),
        labels: Labels::default(),
    };
    world.memory.join(&g, &join, Call::default()).await.unwrap();
    world.sweepers[0].0.touch(&g);
    world.pass(secs(1)).await;
    drop(beats);
    world.pass(secs(3)).await;
    let _beats = world.serve();
    world.pass(secs(1)).await;
    assert_eq!(world.events(&g, &[EventKind::GroupUnsettled]).await.len(), 1);
}

/// A crowd of groups with a dead member each delays no death elsewhere, and all of them end.
#[tokio::test]
async fn a_crowd_of_dead_groups_keeps_nobody_alive() {
    let world = world(1);
    let _beats = world.serve();
    world.pass(secs(1)).await;
    let tenant = group("tenant");
    let dead = world.join(&tenant, "dead").await;
    world.claim(&tenant, &dead, 3).await;
    for n in 0..3_000 {
        world.join(&group(&format!("ci-{n}")), "job").await;
    }
    world.pass(TTL + secs(1)).await;
    assert_eq!(world.evicted(&tenant).await, 3);
    world.pass(secs(2)).await;
    for n in (0..3_000).step_by(100) {
        let lapsed = world.events(&group(&format!("ci-{n}")), &[EventKind::Lapsed]).await;
        assert_eq!(lapsed.len(), 1, "{n}");
    }
}
