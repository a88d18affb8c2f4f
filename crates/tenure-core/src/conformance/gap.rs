//! Cases about outages of the store.

use super::world::{Make, World, keys, member, ms, s};
use crate::event::EventKind;
use crate::lease::AcquireOutcome;
use crate::membership::{BeatReply, EndReason};
use crate::settling::GapCause;
use crate::store::{Call, StoreOptions};
use crate::sweep::{Left, SettleReport, SweepRequest};

/// Invariant 9: after an outage of many ttls every member is alive, and the next beat renews it.
pub async fn an_outage_ends_no_tenure(make: Make<'_>) {
    let world = World::new(make).await;
    let mut all = Vec::new();
    for n in 0..30 {
        let tenure = world.join(&format!("m{n}"), s(4)).await;
        world.claim_all(&tenure, &keys(&format!("k{n}-"), 3)).await;
        all.push(tenure);
    }
    world.outage(s(60)).await;
    assert!(world.end_lapsed().await.is_empty());
    world.pass(s(3)).await;
    assert!(
        world
            .beats(&all)
            .await
            .iter()
            .all(|reply| matches!(reply, BeatReply::Renewed { expires_in, .. } if *expires_in == s(4)))
    );
    world.pass(s(3)).await;
    assert_eq!(world.sweep("p").await.evicted_total(), 0);
    assert_eq!(world.listed(None, 100).await.len(), 90);
}

/// Invariant 6: every member gets exactly one full ttl after the store returns.
pub async fn a_gap_restarts_every_ttl(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(6)).await;
    world.pass(s(5)).await;
    world.outage(s(10)).await;
    let status = world.tick().await;
    assert_eq!(status.resumed_at, status.as_of);
    assert_eq!(
        status.unsettled.map(|unsettled| unsettled.cause),
        Some(GapCause::Silent)
    );
    world.pass(s(6) - ms(1)).await;
    assert!(world.end_lapsed().await.is_empty());
    world.pass(ms(1)).await;
    assert_eq!(world.end_lapsed().await, std::slice::from_ref(&a));
    world.ended(&a, EndReason::Lapsed).await;
}

/// A read writes nothing, so it does not hide a gap from the next step.
pub async fn members_read_alive_after_an_outage_without_ticks(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(4)).await;
    world.claim(&a, "dev-1").await;
    world.outage(s(30)).await;
    assert_eq!(world.owner("dev-1").await, Some((a.clone(), true)));
    let seen = world
        .store
        .member(&world.group, &member("a"))
        .await
        .expect("a look-up")
        .expect("a member");
    assert_eq!((seen.alive, seen.expires_in), (true, s(4)));
    let dry = world
        .ask_sweep(
            SweepRequest {
                dry_run: true,
                force: false,
                reconcile: false,
            },
            "dry",
        )
        .await;
    assert!(dry.doomed.is_empty());
    assert!(matches!(world.beat(&a).await, BeatReply::Renewed { expires_in, .. } if expires_in == s(4)));
    assert_eq!(world.events_of(EventKind::GroupUnsettled).await.len(), 1);
}

/// The end of a grace is recorded as an event.
pub async fn an_event_reports_that_the_group_settled(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(12)).await;
    world.outage(s(5)).await;
    world.tick().await;
    let unsettled = world.events_of(EventKind::GroupUnsettled).await;
    assert_eq!(unsettled.len(), 1);
    assert_eq!(
        (unsettled[0].reason.as_deref(), unsettled[0].counts["silent_ms"]),
        (Some("silent"), 5000)
    );
    world.pass(s(6)).await;
    world.beat(&a).await;
    world.pass(s(5)).await;
    assert!(world.tick().await.unsettled.is_some());
    world.pass(s(1)).await;
    assert!(world.tick().await.unsettled.is_none());
    assert_eq!(world.events_of(EventKind::GroupSettled).await.len(), 1);
}

/// `force` overrides the brake, never the grace after a gap.
pub async fn force_never_overrides_a_grace(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(4)).await;
    world.claim_all(&a, &keys("a", 3)).await;
    world.outage(s(30)).await;
    let report = world
        .ask_sweep(
            SweepRequest {
                dry_run: false,
                force: true,
                reconcile: false,
            },
            "forced",
        )
        .await;
    assert_eq!((report.ended, report.evicted_total()), (0, 0));
    world.pass(ms(500)).await;
    let report = world
        .ask_sweep(
            SweepRequest {
                dry_run: false,
                force: true,
                reconcile: false,
            },
            "again",
        )
        .await;
    assert_eq!((report.ended, report.evicted_total()), (0, 0));
    assert_eq!(world.listed(Some("a"), 10).await.len(), 3);
}

/// The list of groups is an index. Each act on a group restores its entry, and members lapse on time without it.
pub async fn a_lost_list_of_groups_changes_nothing(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(6)).await, world.join("b", s(6)).await);
    world.claim(&a, "dev-1").await;
    let listed = async || {
        let groups = world.sweeper().groups().await.expect("a list");
        groups.contains(&world.group)
    };
    assert!(listed().await);
    world.lose_list().await;
    world.pass(s(1)).await;
    assert!(listed().await, "the sweep has put it back");
    world.lose_list().await;
    world.beat(&b).await;
    assert!(listed().await, "a beat has put it back");
    world.pass(s(5)).await;
    world.beat(&b).await;
    assert_eq!(world.end_lapsed().await, std::slice::from_ref(&a));
    world.pass(s(1)).await;
    assert_eq!(world.sweep("p").await.evicted_total(), 1);
    assert_eq!(world.owner("dev-1").await, None);
    world.granted(&b, "poll").await;
}

/// `settle` ends a grace only if the caller names its cause.
pub async fn an_operator_settles_a_group(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, settle) = (world.join("a", s(6)).await, async |group, cause| {
        let report = world.store.settle(group, cause, Call::default()).await;
        report.expect("an answer")
    });
    let only = Some(&world.group);
    assert_eq!(settle(only, None).await, SettleReport::default(), "there is no grace");
    world.outage(s(20)).await;
    for (group, cause) in [
        (only, None),
        (only, Some(GapCause::DataLoss)),
        (None, Some(GapCause::New)),
    ] {
        let left = vec![Left {
            group: world.group.clone(),
            cause: GapCause::Silent,
        }];
        assert_eq!(settle(group, cause).await, SettleReport { settled: 0, left });
    }
    assert!(matches!(
        world.acquire(&a, "poll").await,
        AcquireOutcome::Unsettled { .. }
    ));
    let done = settle(only, Some(GapCause::Silent)).await;
    assert_eq!((done.settled, done.left.len()), (1, 0));
    world.granted(&a, "poll").await;
    assert_eq!(world.tick().await.unsettled, None);
    let told = world.events_of(EventKind::GroupSettled).await;
    assert_eq!(told.last().and_then(|event| event.reason.as_deref()), Some("operator"));
    world.outage(s(20)).await;
    world.tick().await;
    assert_eq!(settle(None, Some(GapCause::Silent)).await.settled, 1);
}

/// A daemon that refuses beats restarts every ttl and leaves the group settled.
pub async fn refused_beats_extend_tenures(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(4)).await, world.join("b", s(4)).await);
    world.claim(&a, "dev-1").await;
    world.pass(s(3)).await;
    assert!(world.spare().await.is_empty());
    world.pass(s(3)).await;
    assert_eq!(world.owner("dev-1").await, Some((a.clone(), true)));
    let seen = world.store.member(&world.group, &member("a")).await.expect("a look-up");
    let seen = seen.expect("a member");
    assert_eq!((seen.alive, seen.expires_in), (true, s(1)));
    assert!(world.end_lapsed().await.is_empty());
    assert!(matches!(world.beat(&b).await, BeatReply::Renewed { expires_in, .. } if expires_in == s(4)));
    assert_eq!(world.tick().await.unsettled, None);
    world.pass(s(1)).await;
    assert_eq!(world.owner("dev-1").await, Some((a.clone(), false)));
    assert_eq!(world.end_lapsed().await, std::slice::from_ref(&a));
    world.ended(&a, EndReason::Lapsed).await;
}

/// A refusal extends no tenure that had ended before it began.
pub async fn a_refusal_revives_no_tenure(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(4)).await;
    world.pass(s(4)).await;
    assert_eq!(world.spare().await, std::slice::from_ref(&a));
    world.ended(&a, EndReason::Lapsed).await;
}

/// A continuous refusal extends a tenure by at most one max ttl plus its own ttl.
pub async fn a_refusal_extends_by_at_most_one_max_ttl(make: Make<'_>) {
    let max_ttl = s(10);
    let options = StoreOptions {
        max_ttl,
        ..StoreOptions::default()
    };
    let world = World::with(make, options).await;
    let a = world.join("a", s(4)).await;
    let mut lived = s(0);
    while world.spare().await.is_empty() {
        world.pass(s(1)).await;
        lived += s(1);
        assert!(lived < max_ttl * 2, "it lives for ever");
    }
    assert_eq!(lived, max_ttl + s(4));
    world.ended(&a, EndReason::Lapsed).await;
}
