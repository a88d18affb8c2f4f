//! Lost replies, late requests, and what they must not do.

use std::collections::BTreeSet;

use tenure_core::error::{ErrorKind, Outcome};
use tenure_core::lease::ReleaseOutcome;

use super::*;
use crate::testing::{Fault, Verb, ms};

#[tokio::test]
async fn a_grant_whose_reply_is_lost_is_asked_for_again_and_is_one_grant() {
    for fault in [Fault::LoseReply, Fault::LoseRequest, Fault::Hang { applied: true }] {
        let world = world().await;
        let a = world.join().await;
        world.store.next(Verb::Acquire, fault.clone());
        let guard = world.granted(&a, "t1").await;
        let seen = world.seen("t1").await.unwrap();
        assert_eq!((seen.token, &seen.tenure), (guard.token(), guard.tenure()), "{fault:?}");
        world.pass(TTL * 2).await;
        assert!(is_held(&guard), "{fault:?}");
    }
}

#[tokio::test]
async fn what_was_granted_to_a_caller_who_gave_up_is_given_back() {
    for cancelled in [false, true] {
        let world = world().await;
        let (a, b) = (world.join().await, world.rival().await);
        let held = world.granted(&a, "held").await;
        world.store.always(Verb::Acquire, Some(Fault::Hang { applied: true }));
        let leases = a.leases();
        let asking = tokio::spawn(async move { leases.acquire("t1").await });
        if cancelled {
            world.pass(ms(1)).await;
            asking.abort();
        } else {
            let error = world.run(asking).await.unwrap().unwrap_err();
            assert_eq!(error.outcome(), Outcome::Unknown);
        }
        world.store.heal();
        if cancelled {
            assert!(world.seen("t1").await.is_some());
        }
        world.pass(secs(3)).await;
        assert!(world.seen("t1").await.is_none(), "cancelled: {cancelled}");
        assert!(is_held(&held));
        assert!(is_held(&world.granted(&b, "t1").await));
    }
}

#[tokio::test]
async fn an_acquire_that_arrives_after_its_caller_gave_up_is_refused() {
    let world = world().await;
    let a = world.join().await;
    world.pass(TTL / 2).await;
    world.store.late(Verb::Acquire, secs(5));
    world.store.always(Verb::Acquire, Some(Fault::LoseRequest));
    let error = world.run(a.leases().acquire("t1")).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    world.store.heal();
    for _ in 0..20 {
        world.pass(ms(500)).await;
        assert!(world.seen("t1").await.is_none());
    }
}

#[tokio::test]
async fn a_release_that_arrives_late_cannot_touch_a_later_grant() {
    for late in [ms(300), secs(30)] {
        let world = world().await;
        let a = world.join().await;
        let first = world.granted(&a, "t1").await;
        world.store.late(Verb::ReleaseLeases, late);
        assert_eq!(world.run(first.release()).await.unwrap(), ReleaseOutcome::Released);
        let second = world.granted(&a, "t1").await;
        for _ in 0..12 {
            world.pass(secs(3)).await;
            assert!(is_held(&second));
            assert_eq!(world.seen("t1").await.unwrap().token, second.token());
        }
    }
}

#[tokio::test]
async fn a_release_or_handoff_whose_reply_is_lost_tells_what_it_came_to() {
    for fault in [Fault::LoseReply, Fault::LoseRequest, Fault::Hang { applied: true }] {
        for hand_off in [false, true] {
            for takes_it in [false, true] {
                let world = world().await;
                let (a, b) = (world.join().await, world.rival().await);
                let guard = world.granted(&a, "t1").await;
                world.store.next(Verb::ReleaseLeases, fault.clone());
                let heir = member("b");
                let giving_up = tokio::spawn(async move {
                    match hand_off {
                        true => guard.hand_off(&heir).await,
                        false => guard.release().await,
                    }
                });
                settle().await;
                let mine = match takes_it {
                    true => b.leases().acquire("t1").await.unwrap().granted(),
                    false => None,
                };
                let outcome = world.run(giving_up).await.unwrap().unwrap();
                let expected = if hand_off {
                    ReleaseOutcome::Reserved
                } else {
                    ReleaseOutcome::Released
                };
                assert_eq!(outcome, expected, "{fault:?}, taken: {}", mine.is_some());
                if let Some(mine) = mine {
                    world.pass(TTL).await;
                    assert!(is_held(&mine));
                }
            }
        }
    }
}

#[tokio::test]
async fn a_release_that_cannot_reach_the_store_says_so_and_goes_on_in_the_background() {
    let world = world().await;
    let a = world.join().await;
    let guard = world.granted(&a, "t1").await;
    let unreachable = Fault::Fail(ErrorKind::Unavailable);
    world.store.always(Verb::ReleaseLeases, Some(unreachable));
    let error = world.run(guard.release()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unknown)
    );
    assert!(matches!(world.acquire(&a, "t1").await, Acquire::Held { by, .. } if by == a.tenure()));
    world.store.heal();
    world.pass(secs(3)).await;
    assert!(world.seen("t1").await.is_none());
}

/// Two nodes compete for three leases while three calls in ten lose their reply.
async fn compete(seed: u64) {
    let world = world_with_seed(seed).await;
    for verb in [Verb::Acquire, Verb::ReleaseLeases, Verb::Beat, Verb::Look] {
        world.store.sometimes(verb, 30, Fault::LoseReply);
        world.other_store.sometimes(verb, 30, Fault::LoseReply);
    }
    let nodes = [world.join().await, world.rival().await];
    let mut guards: Vec<LeaseGuard> = Vec::new();
    let (mut granted, mut tokens) = (0, BTreeSet::new());
    for _ in 0..120 {
        let node = &nodes[usize::from(world.clock.entropy() % 2 == 0)];
        let name = format!("t{}", world.clock.entropy() % 3);
        match world.clock.entropy() % 3 {
            0 if !guards.is_empty() => {
                let guard = guards.remove(0);
                world.run(guard.release()).await.ok();
            }
            1 if !guards.is_empty() => drop(guards.remove(0)),
            _ => {
                if let Ok(Acquire::Granted(guard)) = world.run(node.leases().acquire(&name)).await {
                    granted += 1;
                    assert!(tokens.insert(guard.token()), "seed {seed}: one token twice");
                    guards.push(guard);
                }
            }
        }
        world.pass(ms(world.clock.entropy() % 1_500)).await;
        let held: Vec<_> = guards.iter().filter(|guard| is_held(guard)).collect();
        let names: BTreeSet<_> = held.iter().map(|guard| guard.lease()).collect();
        assert_eq!(names.len(), held.len(), "seed {seed}: held twice: {held:?}");
        for guard in held {
            let seen = world.seen(guard.lease().as_str()).await;
            assert!(
                seen.is_some_and(|seen| seen.token == guard.token()),
                "seed {seed}: {guard:?}"
            );
        }
    }
    assert!(granted > 20, "seed {seed}: only {granted} grants");
    // Nobody waits for a ttl because a reply was lost.
    world.store.heal();
    world.other_store.heal();
    guards.clear();
    world.pass(secs(4)).await;
    for name in ["t0", "t1", "t2"] {
        assert!(world.seen(name).await.is_none(), "seed {seed}: {name} is stuck");
    }
}

#[tokio::test]
async fn with_three_replies_in_ten_lost_nothing_is_held_twice_and_nothing_is_stuck() {
    for seed in 0..10 {
        compete(seed).await;
    }
}
