//! Lost replies and late requests.

use std::collections::BTreeSet;

use tenure_core::error::{ErrorKind, Outcome};
use tenure_core::lease::ReleaseOutcome;

use super::*;
use crate::testing::{Fault, Verb, ms};

#[tokio::test]
async fn acquire_with_lost_reply_is_retried_and_granted_once() {
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
async fn grant_after_the_caller_timed_out_is_released() {
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
async fn late_acquire_is_rejected() {
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
async fn late_release_cannot_affect_a_later_grant() {
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
async fn release_with_lost_reply_returns_its_outcome() {
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
async fn failed_release_is_reported_and_retried_in_background() {
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

/// The faults while two nodes compete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    /// Three calls in ten lose their reply.
    Lossy,
    /// Calls take almost as long as allowed, some are never answered, and each node is cut off at times.
    Stormy,
}

fn spoil(store: &Faulty, weather: Weather) {
    for verb in [Verb::Acquire, Verb::ReleaseLeases, Verb::Beat, Verb::Look] {
        match weather {
            Weather::Lossy => store.sometimes(verb, 30, Fault::LoseReply),
            Weather::Stormy if verb == Verb::Beat => store.sometimes(verb, 25, Fault::Hang { applied: true }),
            Weather::Stormy => store.sometimes(verb, 50, Fault::Delay(ms(450))),
        }
    }
}

/// Checks that no lease has two holding guards, and that the store has each held lease for its guard.
async fn check(world: &World, guards: &[LeaseGuard], seed: u64) {
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

/// Lets two nodes compete for three leases. Returns the number of grants.
async fn compete(seed: u64, weather: Weather) -> u32 {
    let world = world_with_seed(seed).await;
    let stores = [&world.store, &world.other_store];
    let nodes = [world.join().await, world.rival().await];
    stores.iter().for_each(|store| spoil(store, weather));
    let chance = |of: u64| world.clock.entropy() % of;
    let (mut guards, mut granted, mut tokens): (Vec<LeaseGuard>, _, _) = (Vec::new(), 0, BTreeSet::new());
    for _ in 0..120 {
        if weather == Weather::Stormy {
            let index = usize::from(chance(2) == 0);
            stores[index].cut(chance(6) == 0);
            spoil(stores[index], weather);
        }
        let node = &nodes[usize::from(chance(2) == 0)];
        match chance(3) {
            0 if !guards.is_empty() => drop(world.run(guards.remove(0).release()).await.ok()),
            1 if !guards.is_empty() => drop(guards.remove(0)),
            _ => {
                let name = format!("t{}", chance(3));
                if let Ok(Acquire::Granted(guard)) = world.run(node.leases().acquire(&name)).await {
                    granted += 1;
                    assert!(tokens.insert(guard.token()), "seed {seed}: token granted twice");
                    guards.push(guard);
                }
            }
        }
        check(&world, &guards, seed).await;
        world.pass(ms(chance(1_500))).await;
        check(&world, &guards, seed).await;
    }
    for store in stores {
        store.cut(false);
        store.heal();
    }
    guards.clear();
    // A lost reply must not make a node wait for a ttl.
    world
        .pass(if weather == Weather::Lossy { secs(4) } else { TTL * 3 })
        .await;
    for name in ["t0", "t1", "t2"] {
        assert!(world.seen(name).await.is_none(), "seed {seed}: {name} is stuck");
    }
    granted
}

#[tokio::test]
async fn leases_stay_exclusive_and_live_with_lost_replies() {
    for seed in 0..8 {
        let granted = compete(seed, Weather::Lossy).await;
        assert!(granted > 20, "seed {seed}: only {granted} grants");
    }
}

#[tokio::test]
async fn leases_stay_exclusive_with_slow_and_cut_off_nodes() {
    for seed in 100..106 {
        let granted = compete(seed, Weather::Stormy).await;
        assert!(granted > 5, "seed {seed}: only {granted} grants");
    }
}
