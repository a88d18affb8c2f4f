//! The server's clock falls back by ten minutes, as after a failover to a server whose clock is behind. Earlier
//! deadlines must not be extended by it.

use std::time::Duration;

use tenure_core::id::TenureId;
use tenure_core::lease::{AcquireOutcome, LeaseStore};
use tenure_core::membership::{EndBy, MembershipStore};
use tenure_core::pulse::BeatPulse;
use tenure_core::registry::RegistryStore;
use tenure_core::roster::{RosterMirror, Task, Turn, TurnRequest};
use tenure_core::session::SessionStore;
use tenure_core::settling::GapCause;
use tenure_core::store::{Call, Store, StoreOptions};
use tenure_core::sweep::{Sweep, SweepReport, SweepRequest, SweepSteps};
use tenure_testkit::valkey::Flavour;

use crate::sessions::set_up::{GRACE, Sessions};
use crate::world::*;

/// The ttl of the joined members.
const TTL: Duration = Duration::from_secs(30);
const FALL: Duration = Duration::from_secs(600);
const SECOND: Duration = Duration::from_secs(1);

on_both! {
    lapsed_members_are_removed_within_their_ttl,
    large_index_is_rescored_page_by_page,
    grace_reservation_and_turn_are_not_extended,
    end_records_expire_on_time,
    every_group_is_visited_after_a_fall,
}

/// Runs the work that a sweeper does when the status says it is due, for `time`, while the live members beat.
async fn pass(world: &Sessions, time: Duration, living: &[&TenureId]) -> SweepReport {
    let (mut left, mut sum) = (time, SweepReport::default());
    while !left.is_zero() {
        let step = left.min(SECOND);
        left -= step;
        world.pass(step).await;
        for tenure in living {
            beat(&world.store, tenure).await;
        }
        let status = world.store.status(&group()).await.unwrap();
        let due = [status.next_due, status.next_release, status.next_reap];
        if due.into_iter().flatten().any(|due| due <= status.as_of) {
            let report = world
                .store
                .sweep(&group(), &SweepRequest::default(), "p", Call::default())
                .await
                .unwrap();
            sum.ended += report.ended;
            sum.reaped += report.reaped;
            sum.evicted.extend(report.evicted);
        }
    }
    sum
}

async fn lapsed_members_are_removed_within_their_ttl(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let (dead, lives) = (join(&world.store, "dead").await, join(&world.store, "lives").await);
    claim(&world.store, &dead, "k").await.unwrap();
    world.attach(&dead, "s", "c", None).await;
    world.attach(&lives, "left", "c", None).await;
    world.detach(&lives, "left", "c").await;
    // This tenure ended before; its holdings are not released when the clock falls back.
    let left = join(&world.store, "left").await;
    claim(&world.store, &left, "l").await.unwrap();
    world
        .store
        .end(&group(), &left, EndBy::Leave, Call::default())
        .await
        .unwrap();

    world.fall_back(FALL);
    let swept = pass(&world, TTL - SECOND, &[&lives]).await;
    assert_eq!((swept.ended, swept.evicted.len()), (0, 1), "{swept:?}");
    assert_eq!(swept.evicted[0].tenure, left);
    let swept = pass(&world, SECOND * 3, &[&lives]).await;
    assert_eq!((swept.ended, swept.evicted.len()), (1, 1), "{swept:?}");
    assert_eq!(
        world.store.claim_of(&group(), &devices(), &key("k")).await.unwrap(),
        None
    );
    assert!(world.store.member(&group(), &member("lives")).await.unwrap().is_some());
    // One session's grace counts from the fall of the clock, the other's from the end of its front-end.
    let swept = pass(&world, GRACE - TTL, &[&lives]).await;
    assert_eq!(swept.reaped, 1);
    let swept = pass(&world, TTL + SECOND, &[&lives]).await;
    assert_eq!(swept.reaped, 1);
    assert_eq!(world.store.session_stats(&group()).await.unwrap().disconnected, 0);
    assert_eq!(
        world.run(&["HGET", &key_of("meta"), "fell"]),
        tenure_testkit::resp::Reply::Nil
    );
}

async fn large_index_is_rescored_page_by_page(flavour: Flavour) {
    const MANY: u64 = 1_500;
    let world = Sessions::new(flavour).await;
    let lives = join(&world.store, "lives").await;
    for n in 0..MANY {
        join(&world.store, &format!("m{n}")).await;
    }
    world.fall_back(FALL);
    let swept = pass(&world, TTL - SECOND, &[&lives]).await;
    assert_eq!(swept.ended, 0);
    let swept = pass(&world, SECOND * 2, &[&lives]).await;
    assert_eq!(swept.ended, MANY);
}

async fn grace_reservation_and_turn_are_not_extended(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let (a, b) = (join(&world.store, "a").await, join(&world.store, "b").await);
    let AcquireOutcome::Granted { token, .. } = acquire(&world.store, &a, "x").await.unwrap() else {
        panic!("the lease is free");
    };
    let heir = member("b");
    let given = [(lease("x"), token)];
    world
        .store
        .release_leases(&group(), &a, &given, Some(&heir), Call::default())
        .await
        .unwrap();
    let turn = |holder: &str| TurnRequest {
        task: Task::Reconcile,
        holder: holder.to_owned(),
        lasts: SECOND * 10,
        every: SECOND * 300,
    };
    let taken = world.store.take_turn(&group(), &turn("a"), Call::default()).await;
    assert!(matches!(taken.unwrap(), Turn::Mine(_)));
    world
        .store
        .end_turn(&group(), Task::Reconcile, "a", true, Call::default())
        .await
        .unwrap();

    world.fall_back(FALL);
    let taken = world.store.take_turn(&group(), &turn("b"), Call::default()).await;
    assert!(
        matches!(taken.unwrap(), Turn::Mine(_)),
        "it was done in a time that has not come"
    );
    let status = world.store.status(&group()).await.unwrap();
    let unsettled = status.unsettled.expect("a clock that fell is a gap");
    assert_eq!(unsettled.cause, GapCause::ClockBack);
    let longest = StoreOptions::default().max_ttl;
    assert!(unsettled.until <= status.as_of + longest, "{unsettled:?}");
    pass(&world, longest + SECOND, &[&a, &b]).await;
    let acquired = acquire(&world.store, &a, "x").await.unwrap();
    assert!(matches!(acquired, AcquireOutcome::Granted { .. }), "{acquired:?}");

    // A grace that had just begun also ends by the new clock.
    pass(&world, SECOND * 5, &[&a]).await;
    world.pass_in_silence(SECOND * 10).await;
    world.fall_back(SECOND * 60);
    pass(&world, longest + SECOND, &[&a]).await;
    assert_eq!(world.store.status(&group()).await.unwrap().unsettled, None);
}

async fn end_records_expire_on_time(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let (gone, lives) = (join(&world.store, "gone").await, join(&world.store, "lives").await);
    world
        .store
        .end(&group(), &gone, EndBy::Leave, Call::default())
        .await
        .unwrap();
    world.fall_back(FALL);
    let kept = StoreOptions::default().max_ttl * 2;
    pass(&world, kept - SECOND * 5, &[&lives]).await;
    let known = |reply: tenure_testkit::resp::Reply| reply != tenure_testkit::resp::Reply::Nil;
    let (ended, gone) = (key_of("ended"), gone.to_string());
    let record = || world.run(&["HGET", &ended, &gone]);
    assert!(known(record()));
    pass(&world, SECOND * 8, &[&lives]).await;
    // Nothing comes due in a quiet group; the sweeper removes the record.
    let end_lapsed = async || world.store.end_lapsed(&group(), 100, Call::default()).await.unwrap();
    while end_lapsed().await.more() {}
    assert!(!known(record()));
}

/// Due times from before the fall are further away than is possible.
async fn every_group_is_visited_after_a_fall(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let is_complete = async || world.store.due(SECOND, 10).await.unwrap().is_complete;
    let beat_pulse = async || world.store.beat_pulse(BeatPulse::default()).await.unwrap();
    join(&world.store, "a").await;
    beat_pulse().await;
    assert!(!is_complete().await, "a new index");
    assert!(is_complete().await);
    world.fall_back(SECOND / 2);
    beat_pulse().await;
    assert!(!is_complete().await, "every process visits every group once");
    assert!(is_complete().await);
}
