//! Cases about a lease after its holder released it or ended.

use super::world::{Make, World, key, keys, leases, member, ms, refused, s};
use crate::error::ErrorKind;
use crate::event::EventKind;
use crate::id::TenureId;
use crate::lease::{AcquireOutcome, RESERVATION, ReleaseOutcome};
use crate::membership::{End, EndBy, EndReason};
use crate::store::Call;
use crate::sweep::ReleaseRequest;

/// Invariant 7: the process of a superseded or expelled tenure may still run, so its lease is free only after its last
/// deadline.
pub async fn a_superseded_holders_lease_waits_for_its_deadline(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b, c) = (
        world.join("a", s(6)).await,
        world.join("b", s(6)).await,
        world.join("c", s(60)).await,
    );
    world.granted(&a, "of-a").await;
    world.granted(&b, "of-b").await;
    world.pass(s(1)).await;
    let again = world.join("a", s(60)).await;
    let expelled = world.store.end(&world.group, &b, EndBy::Expel, Call::default()).await;
    assert_eq!(expelled.expect("expelled"), EndReason::Expelled);
    for asking in [&again, &c] {
        for (name, by) in [("of-a", &a), ("of-b", &b)] {
            let held = AcquireOutcome::Held {
                by: by.clone(),
                free_in: s(5),
            };
            assert_eq!(world.acquire(asking, name).await, held);
        }
    }
    // The janitor does not free them earlier either.
    world.pass(ms(250)).await;
    assert_eq!(world.sweep("early").await.leases_total(), 0);
    assert_eq!(
        world.tick().await.next_release.map(|at| at.since(a_start(&a) + s(6))),
        Some(std::time::Duration::ZERO)
    );
    world.pass(ms(4_750)).await;
    assert!(matches!(
        world.acquire(&again, "of-a").await,
        AcquireOutcome::Granted { from: Some(from), .. } if from == a
    ));
    assert_eq!(world.sweep("due").await.leases_total(), 1);
    assert_eq!(world.holder("of-b").await, None);
}

/// Only the holder's own leave frees its leases immediately.
pub async fn leaving_frees_leases_immediately(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(30)).await, world.join("b", s(30)).await);
    world.granted(&a, "poll").await;
    let left = world.store.end(&world.group, &a, EndBy::Leave, Call::default()).await;
    assert_eq!(left.expect("left"), EndReason::Left);
    assert!(matches!(
        world.acquire(&b, "poll").await,
        AcquireOutcome::Granted { from: Some(from), .. } if from == a
    ));
}

/// A tenure that ended without progress may still run, so its lease waits for its last deadline, unless its process says
/// that nothing of it runs any more. The text of a leave changes nothing.
pub async fn no_progress_frees_leases_as_an_expulsion_does(make: Make<'_>) {
    let world = World::new(make).await;
    let c = world.join("c", s(60)).await;
    let ends = [
        (
            "running",
            EndBy::NoProgress { stopped: false },
            EndReason::NoProgress,
            s(5),
        ),
        (
            "stopped",
            EndBy::NoProgress { stopped: true },
            EndReason::NoProgress,
            s(0),
        ),
        ("left", EndBy::Leave, EndReason::Left, s(0)),
    ];
    for (name, by, reason, free_in) in ends {
        let tenure = world.join(name, s(6)).await;
        world.granted(&tenure, name).await;
        world.pass(s(1)).await;
        let text = Some("no_progress".to_owned());
        let end = End {
            tenure: tenure.clone(),
            by,
            text,
        };
        let ended = world.store.end_with(&world.group, end, Call::default()).await;
        assert_eq!(ended.expect("an end"), reason, "{name}");
        world.ended(&tenure, reason).await;
        if !free_in.is_zero() {
            assert_eq!(
                world.acquire(&c, name).await,
                AcquireOutcome::Held {
                    by: tenure.clone(),
                    free_in
                }
            );
            world.pass(free_in).await;
        }
        let acquired = world.acquire(&c, name).await;
        assert!(matches!(acquired, AcquireOutcome::Granted { from: Some(from), .. } if from == tenure));
    }
    let ended = world.events_of(EventKind::NoProgress).await;
    let left = world.events_of(EventKind::Left).await;
    assert_eq!((ended.len(), left.len()), (2, 1));
    assert_eq!(left[0].reason.as_deref(), Some("no_progress"));
    let long = Some("x".repeat(257));
    let end = End {
        tenure: c.clone(),
        by: EndBy::Leave,
        text: long,
    };
    refused(
        world.store.end_with(&world.group, end, Call::default()).await,
        ErrorKind::Invalid,
    );
    assert!(matches!(
        world.beat(&c).await,
        crate::membership::BeatReply::Renewed { .. }
    ));
}

/// A hand-off reserves the lease for its successor for a limited time, and grants it only when the successor acquires.
pub async fn a_hand_off_reserves_the_lease_for_the_successor(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b, c) = (
        world.join("a", s(30)).await,
        world.join("b", s(30)).await,
        world.join("c", s(30)).await,
    );
    let token = world.granted(&a, "poll").await;
    assert_eq!(
        world.release(&a, "poll", token, Some("b")).await,
        ReleaseOutcome::Reserved
    );
    assert_eq!(world.holder("poll").await, None);
    let reserved = AcquireOutcome::Reserved {
        to: member("b"),
        free_in: RESERVATION,
    };
    assert_eq!(world.acquire(&a, "poll").await, reserved);
    assert_eq!(world.acquire(&c, "poll").await, reserved);
    let token = world.granted(&b, "poll").await;
    let released = world.events_of(EventKind::LeaseReleased).await;
    assert_eq!(
        (released[0].reason.as_deref(), &released[0].to),
        (Some("handed_off"), &Some(member("b")))
    );
    // A successor that does not acquire in time loses the reservation.
    world.release(&b, "poll", token, Some("a")).await;
    world.pass(RESERVATION - ms(1)).await;
    assert!(matches!(
        world.acquire(&c, "poll").await,
        AcquireOutcome::Reserved { .. }
    ));
    world.pass(ms(1)).await;
    let token = world.granted(&c, "poll").await;
    // A hand-off to nothing, to a dead member or to the holder itself is a plain release.
    for to in ["nobody", "c"] {
        assert_eq!(
            world.release(&c, "poll", token, Some(to)).await,
            ReleaseOutcome::Released
        );
    }
    world.granted(&a, "poll").await;
}

/// The janitor releases leases that were not taken over, once, with an event for each.
pub async fn the_janitor_releases_leases_of_the_dead_once(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(4)).await, world.join("b", s(60)).await);
    for name in leases("l-", 250) {
        world.granted(&a, name.as_str()).await;
    }
    world.claim(&a, "dev-1").await;
    world.granted(&b, "of-b").await;
    world.pass(s(4)).await;
    world.end_lapsed().await;
    world.granted(&b, "l-00007").await;
    world.pass(ms(250)).await;
    let report = world.sweep("p").await;
    assert_eq!((report.leases_total(), report.evicted_total()), (249, 1));
    assert_eq!(world.sweep("q").await.leases_total(), 0);
    let released = world.events_of(EventKind::LeaseReleased).await;
    assert_eq!(released.len(), 249);
    assert!(released.iter().all(|event| {
        event.tenure.as_ref() == Some(&a)
            && event.reason.as_deref() == Some("lapsed")
            && event.token.is_some()
            && event.pass.as_deref().is_some_and(|pass| pass.starts_with("p."))
    }));
    assert_eq!(world.all_leases(None, 1000).await, ["l-00007", "of-b"]);
    assert_eq!(world.tick().await.releasing, 0);
}

fn a_start(tenure: &TenureId) -> crate::time::StoreTime {
    crate::time::StoreTime::from_micros(tenure.term().get())
}

/// A successor that acquired and released has no further priority.
pub async fn a_reservation_ends_when_the_successor_acquires(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(60)).await, world.join("b", s(60)).await);
    let token = world.granted(&a, "poll").await;
    world.release(&a, "poll", token, Some("b")).await;
    let token = world.granted(&b, "poll").await;
    world.release(&b, "poll", token, None).await;
    world.granted(&a, "poll").await;
}

/// A lease that was handed off is reserved no longer than the successor's tenure: until its end, and not after another
/// end. A successor that joins again has it still.
pub async fn a_reservation_ends_with_the_successors_tenure(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, c) = (world.join("a", s(60)).await, world.join("c", s(60)).await);
    let reserved = |free_in| AcquireOutcome::Reserved {
        to: member("b"),
        free_in,
    };
    let mut token = world.granted(&a, "poll").await;
    let b = world.join("b", s(3)).await;
    world.release(&a, "poll", token, Some("b")).await;
    assert_eq!(world.acquire(&c, "poll").await, reserved(s(3)));
    world.pass(s(1)).await;
    world.beat(&b).await;
    assert_eq!(world.acquire(&c, "poll").await, reserved(s(3)));
    world.pass(s(3) - ms(1)).await;
    assert_eq!(world.acquire(&c, "poll").await, reserved(ms(1)));
    world.pass(ms(1)).await;
    token = world.granted(&c, "poll").await;
    for by in [EndBy::Leave, EndBy::Expel] {
        let b = world.join("b", s(60)).await;
        world.release(&c, "poll", token, Some("b")).await;
        assert_eq!(world.acquire(&a, "poll").await, reserved(RESERVATION));
        let ended = world.store.end(&world.group, &b, by, Call::default()).await;
        ended.expect("an end");
        token = world.granted(&c, "poll").await;
    }
    world.join("b", s(60)).await;
    world.release(&c, "poll", token, Some("b")).await;
    let b = world.join("b", s(60)).await;
    assert_eq!(world.acquire(&a, "poll").await, reserved(RESERVATION));
    world.granted(&b, "poll").await;
}

/// The release of the last holding, claim or lease, removes the ended tenure from the work list.
pub async fn an_ended_tenure_without_holdings_leaves_the_work_list(make: Make<'_>) {
    let world = World::new(make).await;
    let b = world.join("b", s(60)).await;
    for lease_last in [true, false] {
        let a = world.join("a", s(60)).await;
        world.claim(&a, "dev-1").await;
        world.granted(&a, "poll").await;
        world.leave(&a).await;
        for (lease, left) in [(!lease_last, 1), (lease_last, 0)] {
            if lease {
                let token = world.granted(&b, "poll").await;
                world.release(&b, "poll", token, None).await;
            } else {
                world.claim(&b, "dev-1").await;
            }
            let status = world.tick().await;
            assert_eq!((status.releasing, status.next_release.is_some()), (left, left > 0));
        }
    }
}

/// Returns the number of claims and of leases that one step released, and whether more may follow.
async fn release_step(world: &World, limit: u32) -> (u64, u64, bool) {
    let request = ReleaseRequest {
        pass: "p".to_owned(),
        limit,
        force: false,
    };
    let sweeper = world.sweeper();
    let steps = sweeper.steps().expect("the sweeping store has steps");
    let batch = steps.release(&world.group, &request, Call::default()).await;
    let batch = batch.expect("a step");
    let claims = batch.evicted.iter().flat_map(|eviction| eviction.claims.values()).sum();
    let leases = batch.evicted.iter().map(|eviction| eviction.leases).sum();
    (claims, leases, batch.more)
}

/// Claims are evicted without waiting for leases of the same tenure.
pub async fn waiting_leases_do_not_delay_claims(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(10)).await;
    world.claim_all(&a, &keys("dev-", 5)).await;
    for name in ["x", "y"] {
        world.granted(&a, name).await;
    }
    let expelled = world.store.end(&world.group, &a, EndBy::Expel, Call::default()).await;
    assert_eq!(expelled.expect("expelled"), EndReason::Expelled);
    world.pass(s(1)).await;
    assert_eq!(release_step(&world, 3).await, (3, 0, true));
    assert_eq!(release_step(&world, 3).await, (2, 0, false));
    let status = world.tick().await;
    assert_eq!(status.next_release.map(|at| at.since(status.as_of)), Some(s(9)));
    world.pass(s(9)).await;
    assert_eq!(release_step(&world, 3).await, (0, 2, false));
}

/// Claims and leases count equally toward a turn and toward the limit.
pub async fn leases_count_toward_a_turn_of_the_janitor(make: Make<'_>) {
    let world = World::new(make).await;
    for n in 0..6 {
        let tenure = world.join(&format!("m{n}"), s(10)).await;
        world.claim_all(&tenure, &[key(&format!("dev-{n}"))]).await;
        for lease in 0..3 {
            world.granted(&tenure, &format!("l-{n}-{lease}")).await;
        }
        world.leave(&tenure).await;
    }
    world.pass(s(1)).await;
    // Four tenures release two holdings each, then the two that waited, then two of the others again.
    assert_eq!(release_step(&world, 8).await, (4, 4, true));
    assert_eq!(release_step(&world, 8).await, (2, 6, true));
    assert_eq!(release_step(&world, 8).await, (0, 8, false));
    assert_eq!(world.tick().await.releasing, 0);
}

/// A refused act ends its tenure, and that end counts toward the brake.
pub async fn a_burst_of_refused_acquires_engages_the_brake(make: Make<'_>) {
    let world = World::new(make).await;
    let mut tenures = Vec::new();
    for n in 0..12 {
        tenures.push(world.join(&format!("m{n}"), s(2)).await);
    }
    world.pass(s(2)).await;
    for tenure in &tenures {
        let asked = leases("poll-", 1);
        refused(
            world.store.acquire(&world.group, tenure, &asked, Call::default()).await,
            ErrorKind::Ended(EndReason::Lapsed),
        );
    }
    assert_eq!(world.events_of(EventKind::SweepBraked).await.len(), 1);
}
