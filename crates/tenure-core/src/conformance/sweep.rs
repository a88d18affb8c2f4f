//! Cases about the janitor and the brake.

use std::collections::BTreeMap;

use super::world::{Make, World, keys, ms, s};
use crate::brake::BrakeSettings;
use crate::event::EventKind;
use crate::id::TenureId;
use crate::membership::{BeatReply, EndBy, EndReason};
use crate::registry::ClaimOutcome;
use crate::store::{Call, StoreOptions};
use crate::sweep::{ReleaseRequest, SweepRequest};

/// Invariant 4: each entry appears once, in the report and in the events.
pub async fn holdings_of_the_dead_are_evicted_once(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(4)).await, world.join("b", s(60)).await);
    world.claim_all(&a, &keys("a-", 500)).await;
    world.claim_all(&b, &keys("b-", 50)).await;
    world.pass(s(4)).await;
    let report = world.sweep("one").await;
    assert_eq!(
        (report.ended, report.evicted_total()),
        (1, 0),
        "not before the burst is over"
    );
    world.pass(ms(250)).await;
    let report = world.sweep("two").await;
    assert_eq!((report.ended, report.evicted_total()), (0, 500));
    assert_eq!(report.evicted[0].tenure, a);
    assert_eq!(report.evicted[0].claims, BTreeMap::from([("devices".to_owned(), 500)]));
    assert_eq!(world.sweep("three").await.evicted_total(), 0);
    assert_eq!(world.listed(None, 1000).await.len(), 50);
    let events = world.events_of(EventKind::Evicted).await;
    assert!(
        events
            .iter()
            .all(|event| event.tenure.as_ref() == Some(&a) && event.reason.as_deref() == Some("lapsed"))
    );
    assert!(
        events
            .iter()
            .all(|event| event.pass.as_deref().is_some_and(|pass| pass.starts_with("two.")))
    );
    assert_eq!(events.iter().map(|event| event.counts["devices"]).sum::<u64>(), 500);
    let mut told: Vec<_> = events.into_iter().flat_map(|event| event.keys).collect();
    told.sort();
    assert_eq!(
        told,
        keys("a-", 500)
            .iter()
            .map(|key| format!("devices/{key}"))
            .collect::<Vec<_>>()
    );
}

/// A step prepares the lazy index, so that what is due next is the end of a member, or later than it has looked.
pub async fn a_step_looks_ahead(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(10)).await;
    world.pass(ms(10)).await;
    let b = world.join("b", s(10)).await;
    world.pass(ms(10)).await;
    let c = world.join("c", s(10)).await;
    world.pass(s(5)).await;
    for tenure in [&a, &c] {
        world.beat(tenure).await;
    }
    let renewed = world.tick().await.as_of + s(10);
    world.pass(s(5) - ms(20)).await;
    let step = async || {
        let batch = world.end_some().await;
        (
            batch.next_due.map(|at| at.since(batch.as_of)),
            batch.more(),
            batch.ended,
        )
    };
    assert_eq!(step().await, (Some(ms(10)), false, vec![]));
    world.pass(ms(10)).await;
    let left = renewed.since(world.tick().await.as_of);
    assert_eq!(step().await, (Some(left), false, vec![b]));
}

/// The key moved before the end, between end and release, or to the restarted instance of the same name.
pub async fn a_moved_key_survives_the_janitor(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(4)).await, world.join("b", s(60)).await);
    world.claim_all(&a, &keys("dev-", 4)).await;
    world.claim(&b, "dev-00000").await;
    world.pass(s(4)).await;
    assert_eq!(world.end_lapsed().await, std::slice::from_ref(&a));
    assert_eq!(
        world.claim(&b, "dev-00001").await,
        ClaimOutcome::Moved { from: a.clone() }
    );
    let again = world.join("a", s(60)).await;
    assert_eq!(
        world.claim(&again, "dev-00002").await,
        ClaimOutcome::Moved { from: a.clone() }
    );
    world.pass(ms(250)).await;
    assert_eq!(world.sweep("p").await.evicted_total(), 1);
    assert_eq!(world.owner("dev-00000").await, Some((b.clone(), true)));
    assert_eq!(world.owner("dev-00001").await, Some((b, true)));
    assert_eq!(world.owner("dev-00002").await, Some((again, true)));
    assert_eq!(world.owner("dev-00003").await, None);
}

/// Interleaved batches of two sweepers add up to exactly what was there.
pub async fn two_sweepers_share_the_work(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(60)).await;
    world.claim_all(&a, &keys("dev-", 330)).await;
    world
        .store
        .end(&world.group, &a, EndBy::Leave, Call::default())
        .await
        .expect("left");
    world.pass(ms(250)).await;
    let mut removed = [0, 0];
    let mut more = true;
    while more {
        for (sweeper, removed) in removed.iter_mut().enumerate() {
            let batch = release(&world, &format!("sweeper-{sweeper}"), 100).await;
            *removed += batch
                .evicted
                .iter()
                .flat_map(|eviction| eviction.claims.values())
                .sum::<u64>();
            more = batch.more;
        }
    }
    assert_eq!(removed.iter().sum::<u64>(), 330);
    assert!(removed.iter().all(|removed| *removed > 0), "{removed:?}");
    assert!(world.listed(None, 100).await.is_empty());
}

async fn release(world: &World, pass: &str, limit: u32) -> crate::sweep::ReleasedBatch {
    let request = ReleaseRequest {
        pass: pass.to_owned(),
        limit,
        force: false,
    };
    let sweeper = world.sweeper();
    let steps = sweeper.steps().expect("the sweeping store has steps");
    steps
        .release(&world.group, &request, Call::default())
        .await
        .expect("a batch")
}

/// Tenures take turns.
pub async fn a_huge_tenure_does_not_block_others(make: Make<'_>) {
    let world = World::new(make).await;
    let (huge, small) = (world.join("huge", s(60)).await, world.join("small", s(60)).await);
    world.claim_all(&huge, &keys("h-", 400)).await;
    world.claim_all(&small, &keys("s-", 5)).await;
    for tenure in [&huge, &small] {
        world
            .store
            .end(&world.group, tenure, EndBy::Leave, Call::default())
            .await
            .expect("left");
    }
    world.pass(ms(250)).await;
    let batch = release(&world, "p", 40).await;
    let counts: BTreeMap<_, _> = batch
        .evicted
        .iter()
        .map(|e| (e.tenure.clone(), e.claims["devices"]))
        .collect();
    assert_eq!(counts, BTreeMap::from([(huge, 20), (small, 5)]));
    assert!(batch.more);
    let batch = release(&world, "q", 40).await;
    assert_eq!(batch.evicted[0].claims["devices"], 40, "alone, it gets the whole limit");
}

/// A dry run reports what a real run would do.
pub async fn a_dry_run_changes_nothing(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b, c) = (
        world.join("a", s(4)).await,
        world.join("b", s(60)).await,
        world.join("c", s(60)).await,
    );
    for (tenure, prefix, count) in [(&a, "a", 3), (&b, "b", 2), (&c, "c", 1)] {
        world.claim_all(tenure, &keys(prefix, count)).await;
    }
    world
        .store
        .end(&world.group, &b, EndBy::Leave, Call::default())
        .await
        .expect("left");
    world.pass(s(4)).await;
    let before = world.events().await;
    let report = world
        .ask_sweep(
            SweepRequest {
                dry_run: true,
                force: false,
                reconcile: false,
            },
            "dry",
        )
        .await;
    let doomed: Vec<_> = report
        .doomed
        .iter()
        .map(|d| (d.tenure.clone(), d.reason, d.holdings.claims, d.braked))
        .collect();
    assert_eq!(
        doomed,
        [(a.clone(), EndReason::Lapsed, 3, false), (b, EndReason::Left, 2, false)]
    );
    assert_eq!((report.ended, report.evicted_total()), (0, 0));
    assert_eq!(world.events().await, before);
    assert_eq!(world.listed(None, 100).await.len(), 6);
    world.end_lapsed().await;
    world.pass(ms(250)).await;
    assert_eq!(
        world.ask_sweep(SweepRequest::default(), "real").await.evicted_total(),
        5
    );
}

/// The delay lets the brake see a burst as a whole.
pub async fn holdings_are_released_only_after_the_burst(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(60)).await;
    world.claim_all(&a, &keys("a", 3)).await;
    world
        .store
        .end(&world.group, &a, EndBy::Leave, Call::default())
        .await
        .expect("left");
    world.pass(ms(249)).await;
    assert_eq!(world.sweep("early").await.evicted_total(), 0);
    world.pass(ms(1)).await;
    assert_eq!(world.sweep("due").await.evicted_total(), 3);
}

async fn crowd(world: &World, count: usize, ttl: std::time::Duration) -> Vec<TenureId> {
    let mut tenures = Vec::new();
    for n in 0..count {
        let tenure = world.join(&format!("m{n:03}"), ttl).await;
        world.claim_all(&tenure, &keys(&format!("k{n:03}-"), 2)).await;
        tenures.push(tenure);
    }
    tenures
}

/// Keeps the last members alive and lets the first `dead` lapse.
async fn silence(world: &World, crowd: &[TenureId], dead: usize) {
    for _ in 0..4 {
        let alive = world.beats(&crowd[dead..]).await;
        assert!(alive.iter().all(|reply| matches!(reply, BeatReply::Renewed { .. })));
        world.pass(s(1)).await;
    }
    world.beats(&crowd[dead..]).await;
}

/// Invariant 10: 60 of 100 members fall silent together. They lapse on time, and removal waits for a bounded time.
pub async fn a_mass_death_is_braked_and_released_in_time(make: Make<'_>) {
    let brake = BrakeSettings {
        hold: s(20),
        ..BrakeSettings::default()
    };
    let world = World::with(
        make,
        StoreOptions {
            brake,
            ..StoreOptions::default()
        },
    )
    .await;
    let crowd = crowd(&world, 100, s(4)).await;
    silence(&world, &crowd, 60).await;
    assert_eq!(world.end_lapsed().await.len(), 60);
    world.pass(ms(250)).await;
    let report = world.sweep("braked").await;
    assert_eq!(report.evicted_total(), 0);
    let seen = report.braked.expect("engaged");
    assert_eq!((seen.lapsed, seen.present), (60, 40));
    assert_eq!(seen.until.since(seen.since), s(20));
    assert_eq!(
        world.owner("k000-00000").await,
        Some((crowd[0].clone(), false)),
        "the brake holds no expiry"
    );
    let braked = world.events_of(EventKind::SweepBraked).await;
    assert_eq!(braked.len(), 1);
    assert_eq!(
        braked[0].counts,
        BTreeMap::from([("lapsed".to_owned(), 60), ("present".to_owned(), 40)])
    );
    for _ in 0..20 {
        world.beats(&crowd[60..]).await;
        world.pass(s(1)).await;
    }
    assert_eq!(world.sweep("released").await.evicted_total(), 120);
    let lifted = world.events_of(EventKind::SweepUnbraked).await;
    assert_eq!(
        lifted.iter().map(|event| event.reason.as_deref()).collect::<Vec<_>>(),
        [Some("time")]
    );
    assert_eq!(world.listed(None, 1000).await.len(), 80);
}

/// The brake disengages when members return.
pub async fn the_brake_lifts_when_members_are_back(make: Make<'_>) {
    let world = World::new(make).await;
    let crowd = crowd(&world, 20, s(4)).await;
    silence(&world, &crowd, 11).await;
    assert_eq!(world.end_lapsed().await.len(), 11);
    assert!(world.tick().await.brake.is_some());
    world.join("m000", s(4)).await;
    assert!(
        world.tick().await.brake.is_none(),
        "10 lapsed of 20 are not more than half"
    );
    world.beats(&crowd[11..]).await;
    world.pass(ms(250)).await;
    assert_eq!(world.sweep("p").await.evicted_total(), 22);
    let lifted = world.events_of(EventKind::SweepUnbraked).await;
    assert_eq!(lifted[0].reason.as_deref(), Some("recovered"));
}

/// An operator can disengage the brake.
pub async fn an_operator_lifts_the_brake(make: Make<'_>) {
    let world = World::new(make).await;
    let crowd = crowd(&world, 12, s(4)).await;
    silence(&world, &crowd, 12).await;
    assert_eq!(world.end_lapsed().await.len(), 12);
    world.pass(ms(250)).await;
    assert_eq!(
        world.ask_sweep(SweepRequest::default(), "held").await.evicted_total(),
        0
    );
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
    assert_eq!((report.evicted_total(), report.braked), (24, None));
    let lifted = world.events_of(EventKind::SweepUnbraked).await;
    assert_eq!(lifted[0].reason.as_deref(), Some("operator"));
}

/// Leaves and supersedes do not count, and are released while the brake is engaged.
pub async fn leaving_is_never_braked(make: Make<'_>) {
    let world = World::new(make).await;
    let crowd = crowd(&world, 20, s(4)).await;
    for tenure in &crowd[..15] {
        world
            .store
            .end(&world.group, tenure, EndBy::Leave, Call::default())
            .await
            .expect("left");
    }
    assert!(world.tick().await.brake.is_none());
    silence(&world, &crowd, 20).await;
    assert_eq!(world.end_lapsed().await.len(), 5);
    assert!(world.tick().await.brake.is_none(), "5 of 5 is below the floor");
    world.pass(ms(250)).await;
    assert_eq!(world.sweep("p").await.evicted_total(), 40);
}

/// The status contains the next time at which a sweep has work.
pub async fn status_reports_the_next_wake_up(make: Make<'_>) {
    let world = World::new(make).await;
    assert_eq!(
        (world.tick().await.next_due, world.tick().await.next_release),
        (None, None)
    );
    let a = world.join("a", s(4)).await;
    world.claim_all(&a, &keys("a", 1)).await;
    let status = world.tick().await;
    assert_eq!(status.next_due.map(|at| at.since(status.as_of)), Some(s(4)));
    assert_eq!((status.members, status.releasing), (1, 0));
    world.pass(s(4)).await;
    let report = world.sweep("p").await;
    assert_eq!(report.next_release_in, Some(ms(250)));
    let status = world.store.status(&world.group).await.expect("a status");
    assert_eq!((status.members, status.releasing, status.next_due), (0, 1, None));
}
