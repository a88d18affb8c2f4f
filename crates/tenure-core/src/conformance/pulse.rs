//! Cases about the pulse: lateness is not silence. A store without one goes by the ticks of its groups, and has none of
//! these promises.

use std::time::Duration;

use super::world::{Make, World, member, ms, s};
use crate::event::EventKind;
use crate::id::TenureId;
use crate::lease::AcquireOutcome;
use crate::membership::{BeatReply, Member};
use crate::pulse::FAILED_GROUPS;

async fn world(make: Make<'_>) -> Option<World> {
    let world = World::new(make).await;
    world.tick().await.has_pulse.then_some(world)
}

async fn seen(world: &World, name: &str) -> Option<Member> {
    world
        .store
        .member(&world.group, &member(name))
        .await
        .expect("a look-up")
}

async fn gaps(world: &World) -> usize {
    world.events_of(EventKind::GroupUnsettled).await.len()
}

/// No step came for minutes: the dead are dead, and reads and steps agree.
pub async fn a_late_visit_extends_no_life(make: Make<'_>) {
    let Some(world) = world(make).await else { return };
    let a = world.join("a", s(4)).await;
    world.claim(&a, "dev-1").await;
    world.serve(s(120)).await;
    assert_eq!(world.owner("dev-1").await, Some((a.clone(), false)));
    assert_eq!(world.end_lapsed().await, std::slice::from_ref(&a));
    assert_eq!(gaps(&world).await, 0);
}

/// The lease of a holder that died in a quiet group is granted at once.
pub async fn a_takeover_in_a_quiet_group_needs_no_visit(make: Make<'_>) {
    let Some(world) = world(make).await else { return };
    let a = world.join("a", s(4)).await;
    world.granted(&a, "poll").await;
    world.serve(s(120)).await;
    let b = world.join("b", s(30)).await;
    world.granted(&b, "poll").await;
}

/// Every ttl restarts when the store resumed, not when a step found the gap.
pub async fn a_gap_is_dated_by_its_end(make: Make<'_>) {
    let Some(world) = world(make).await else { return };
    let a = world.join("a", s(4)).await;
    world.outage(s(30)).await;
    world.beat_pulse().await;
    world.serve(s(3)).await;
    let shown = seen(&world, "a").await.expect("a member");
    assert_eq!((shown.alive, shown.expires_in), (true, s(1)));
    assert!(world.end_lapsed().await.is_empty());
    world.serve(s(1)).await;
    assert!(!seen(&world, "a").await.expect("a member").alive);
    assert_eq!(world.end_lapsed().await, std::slice::from_ref(&a));
}

async fn first_after_an_outage(world: &World, first: usize, a: &TenureId, b: &TenureId) {
    match first {
        0 => assert!(matches!(
            world.acquire(b, "poll").await,
            AcquireOutcome::Held { .. } | AcquireOutcome::Unsettled { .. }
        )),
        1 => assert!(matches!(world.beat(a).await, BeatReply::Renewed { .. })),
        2 => assert!(world.end_lapsed().await.is_empty()),
        _ => drop(world.beat_pulse().await),
    }
}

/// An outage that no pulse has ended yet ends no member and grants no lease, whatever comes first.
pub async fn whatever_comes_first_after_an_outage_ends_nobody(make: Make<'_>) {
    for first in 0..4 {
        let Some(world) = world(make).await else { return };
        let (a, b) = (world.join("a", s(6)).await, world.join("b", s(6)).await);
        world.granted(&a, "poll").await;
        world.serve(s(1)).await;
        world.outage(s(20)).await;
        for step in 0..4 {
            first_after_an_outage(&world, (first + step) % 4, &a, &b).await;
        }
        let free = world.acquire(&b, "free").await;
        assert!(matches!(free, AcquireOutcome::Unsettled { .. }), "{first}: {free:?}");
        assert_eq!(gaps(&world).await, 1, "{first}");
        assert_eq!(
            world.holder("poll").await.map(|(holder, _, alive)| (holder, alive)),
            Some((a, true))
        );
    }
}

/// The steps of a sweep prove no service, however often they come.
pub async fn a_sweep_proves_no_service(make: Make<'_>) {
    let Some(world) = world(make).await else { return };
    let a = world.join("a", s(12)).await;
    for _ in 0..20 {
        world.outage(ms(1_900)).await;
        assert!(world.end_lapsed().await.is_empty());
        world.tick().await;
    }
    world.beat_pulse().await;
    assert!(world.end_lapsed().await.is_empty());
    assert!(matches!(world.beat(&a).await, BeatReply::Renewed { .. }));
    assert!(
        gaps(&world).await <= 10,
        "a long outage is announced once in a gap at most"
    );
}

/// Which pause is a gap for which ttl.
pub async fn pauses_are_gaps_by_ttl(make: Make<'_>) {
    let gaps_of = [
        (300, [0; 4]),
        (600, [1, 0, 0, 0]),
        (1_500, [1, 1, 0, 0]),
        (3_000, [1; 4]),
    ];
    for (ttl, nth) in [(1, 0), (2, 1), (5, 2), (30, 3)] {
        for (pause, expected) in gaps_of {
            let Some(world) = world(make).await else { return };
            world.join("a", s(ttl)).await;
            world.outage(ms(pause)).await;
            world.beat_pulse().await;
            world.tick().await;
            assert_eq!(gaps(&world).await, expected[nth], "a pause of {pause} ms, ttl {ttl} s");
        }
    }
}

/// Beats of one group failed while the store served others.
pub async fn a_failed_beat_restarts_the_ttls_of_its_group(make: Make<'_>) {
    let Some(world) = world(make).await else { return };
    let a = world.join("a", s(6)).await;
    world.serve(s(5)).await;
    world.beat_pulse_with_failure().await;
    world.serve(s(5)).await;
    assert!(world.end_lapsed().await.is_empty());
    let shown = seen(&world, "a").await.expect("a member");
    assert_eq!((shown.alive, shown.expires_in), (true, s(1)));
    world.serve(s(1)).await;
    assert_eq!(world.end_lapsed().await, std::slice::from_ref(&a));
}

/// Too many groups with failed beats are a hole of the whole store.
pub async fn many_failed_groups_are_a_gap_of_the_store(make: Make<'_>) {
    let Some(world) = world(make).await else { return };
    world.join("a", s(6)).await;
    world.serve(s(5)).await;
    world.beat_pulse_with_failures(FAILED_GROUPS + 50).await;
    world.serve(s(5)).await;
    assert!(world.end_lapsed().await.is_empty());
}

/// A process that sweeps sees what is due without a visit, and only what is due.
pub async fn what_is_due_is_listed(make: Make<'_>) {
    let Some(world) = world(make).await else { return };
    let store = world.sweeper();
    let listed = async |ahead: Duration| {
        let due = store.due(ahead, 100).await.expect("a list");
        due.groups.into_iter().any(|(group, _)| group == world.group)
    };
    world.tick().await;
    let a = world.join("a", s(10)).await;
    assert!(!listed(s(9)).await);
    assert!(listed(s(10)).await);
    world.serve(s(6)).await;
    world.beat(&a).await;
    world.serve(s(4)).await;
    assert!(listed(s(0)).await, "the index is lazy");
    world.end_some().await;
    assert!(!listed(s(5)).await, "a visit raises it");
    assert!(listed(s(6)).await);
    world.serve(s(6)).await;
    assert_eq!(world.end_lapsed().await, std::slice::from_ref(&a));
}

/// A process that sweeps sees that the store resumed, and when, without a visit.
pub async fn the_list_of_due_groups_says_when_the_store_resumed(make: Make<'_>) {
    let Some(world) = world(make).await else { return };
    let store = world.sweeper();
    let resumed_at = async || store.due(s(1), 100).await.expect("a list").resumed_at;
    world.serve(s(1)).await;
    let first = resumed_at().await;
    assert!(first.is_some());
    world.serve(s(5)).await;
    assert_eq!(resumed_at().await, first);
    world.outage(ms(500)).await;
    assert_eq!(resumed_at().await, first, "the hole is still open");
    world.beat_pulse().await;
    assert!(resumed_at().await > first);
}
