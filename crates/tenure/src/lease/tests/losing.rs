//! Holding and losing leases without overlap.

use std::sync::Mutex;

use tenure_core::error::ErrorKind;
use tenure_core::event::{EventKind, EventQuery};
use tenure_core::lease::ReleaseOutcome;
use tenure_core::membership::EndReason;
use tenure_core::store::{Call, PageRequest};

use super::*;
use crate::testing::{Fault, Telemetry, Verb, ms};

#[tokio::test]
async fn lease_is_held_while_its_holder_beats() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let guard = world.granted(&a, "t1").await;
    assert_eq!((guard.lease().as_str(), guard.tenure()), ("t1", &a.tenure()));
    for _ in 0..10 {
        world.pass(TTL / 2).await;
        assert!(is_held(&guard) && !guard.lost().is_cancelled());
        assert!(guard.valid_until() > world.clock.mono());
        assert!(matches!(world.acquire(&b, "t1").await, Acquire::Held { by, .. } if by == a.tenure()));
    }
    let seen = b.leases().look_up("t1").await.unwrap().unwrap();
    assert_eq!(
        (seen.token, seen.alive, &seen.tenure),
        (guard.token(), true, guard.tenure())
    );
    let listed = b
        .leases()
        .list(Some(&member("a")), &PageRequest::default())
        .await
        .unwrap();
    assert_eq!(listed.items.len(), 1);
    assert_eq!((a.leases().held(), b.leases().held()), (1, 0));

    let (lost, token) = (guard.lost(), guard.token());
    assert_eq!(world.run(guard.release()).await.unwrap(), ReleaseOutcome::Released);
    assert!(lost.is_cancelled());
    let guard = world.granted(&b, "t1").await;
    assert!(guard.token() > token);
    assert_eq!((a.leases().held(), b.leases().held()), (0, 1));
}

#[tokio::test]
async fn acquire_does_not_extend_the_confirmed_time() {
    let world = world().await;
    let a = world.join().await;
    let valid = a.valid_until();
    world.pass(secs(2)).await;
    let guard = world.granted(&a, "t1").await;
    assert_eq!((guard.valid_until(), a.valid_until()), (valid, valid));
}

#[tokio::test]
async fn one_lease_has_one_guard_per_process() {
    let world = world().await;
    let a = world.join().await;
    let guard = world.granted(&a, "t1").await;
    assert!(matches!(world.acquire(&a, "t1").await, Acquire::Held { by, .. } if by == a.tenure()));
    let twice = [lease("t2"), lease("t2"), lease("t1"), lease("t3")];
    let answers = world.run(a.leases().acquire_many(&twice)).await.unwrap();
    let granted: Vec<bool> = answers
        .iter()
        .map(|answer| matches!(answer, Acquire::Granted(_)))
        .collect();
    assert_eq!(granted, [true, false, false, true]);
    let token = guard.token();
    drop(guard);
    // An acquire waits for a pending release.
    assert!(world.granted(&a, "t1").await.token() > token);
}

#[tokio::test]
async fn guard_expires_before_takeover_when_store_is_unreachable() {
    for seed in 0..8 {
        let world = world_with_seed(seed).await;
        let (a, b) = (world.join().await, world.rival().await);
        let guard = world.granted(&a, "t1").await;
        world.pass(ms(seed * 700)).await;
        world.store.cut(true);
        world.pass(guard.valid_until().since(world.clock.mono()) - ms(50)).await;
        assert!(is_held(&guard), "seed {seed}: held until its deadline");
        let end = world.clock.mono() + TTL;
        let (mut last_held, mut taken) = (world.clock.mono(), None);
        while taken.is_none() && world.clock.mono() < end {
            world.pass(ms(5)).await;
            if is_held(&guard) {
                last_held = world.clock.mono();
            }
            if let Acquire::Granted(mine) = b.leases().acquire("t1").await.unwrap() {
                assert!(mine.token() > guard.token());
                taken = Some((world.clock.mono(), mine));
            }
        }
        let (at, mine) = taken.expect("the lease is taken over within the ttl");
        assert!(
            last_held < at,
            "seed {seed}: held at {last_held:?}, taken over at {at:?}"
        );
        assert!(at.since(last_held) >= a.timing().margin - ms(10), "seed {seed}");
        assert_eq!((guard.verdict(), guard.lost().is_cancelled()), (Verdict::Lost, true));
        world.store.cut(false);
        world.until("it joined again", || a.status().rejoins == 1).await;
        world.pass(TTL).await;
        assert!(guard.verdict() == Verdict::Lost && is_held(&mine));
    }
}

#[tokio::test]
async fn one_failed_beat_of_any_kind_keeps_the_guard() {
    use ErrorKind as Kind;
    let kinds = [
        Kind::Invalid,
        Kind::Held,
        Kind::NotOwner,
        Kind::NotFound,
        Kind::Unsettled,
        Kind::TooLate,
        Kind::Unavailable,
        Kind::Denied,
        Kind::Misconfigured,
        Kind::Unsupported,
        Kind::Internal,
    ];
    let faults = kinds.into_iter().map(Fault::Fail).chain([
        Fault::LoseReply,
        Fault::LoseRequest,
        Fault::Hang { applied: true },
        Fault::Delay(ms(400)),
        Fault::Panic,
    ]);
    let world = world().await;
    let a = world.join().await;
    let guard = world.granted(&a, "t1").await;
    for fault in faults {
        let beats = world.store.calls(Verb::Beat);
        world.store.next(Verb::Beat, fault.clone());
        world
            .until("two more beats", || world.store.calls(Verb::Beat) >= beats + 2)
            .await;
        world.pass(ms(10)).await;
        assert!(is_held(&guard), "{fault:?}");
    }
}

#[tokio::test]
async fn guard_lost_for_a_ttl_stays_lost_when_the_tenure_continues() {
    let mut world = world().await;
    let a = world.join().await;
    let guard = world.granted(&a, "t1").await;
    // The store is unreachable for all clients, so no tenure lapses.
    world.beats = None;
    world.store.cut(true);
    world.other_store.cut(true);
    world.pass(TTL * 3).await;
    assert_eq!(a.verdict(), Verdict::Lost);
    let error = world.run(a.leases().acquire("t2")).await.unwrap_err();
    assert!(
        error.is_unavailable() && error.to_string().contains("not confirmed"),
        "{error}"
    );
    world.store.cut(false);
    world.other_store.cut(false);
    world.until("held again", || a.verdict() == Verdict::Held).await;
    assert_eq!(a.status().rejoins, 0);
    assert_eq!(
        guard.verdict(),
        Verdict::Lost,
        "a caller that saw `Lost` must not see `Held`"
    );
    // Its work may still be ending: the lease is not granted before the guard is dropped.
    assert!(matches!(world.acquire(&a, "t1").await, Acquire::Held { by, .. } if by == a.tenure()));
    assert!(world.seen("t1").await.is_some());
    let token = guard.token();
    drop(guard);
    assert!(world.win(&a, "t1").await.token() > token);
}

#[tokio::test]
async fn after_a_pause_nothing_is_held_until_confirmed() {
    for (pause, verdict) in [(TTL / 2, Verdict::Uncertain), (TTL * 2, Verdict::Lost)] {
        let world = world().await;
        let a = world.join().await;
        let guard = world.granted(&a, "t1").await;
        world
            .until("the first beat", || world.store.calls(Verb::Beat) == 1)
            .await;
        settle().await;
        world.store.always(Verb::Beat, Some(Fault::Gate));
        // The whole process was suspended, and the work is the first to run.
        world.clock.advance(pause);
        if verdict == Verdict::Lost {
            assert_eq!(guard.verdict(), Verdict::Lost, "without I/O, before any loop ran");
        }
        settle().await;
        assert_eq!(guard.verdict(), verdict);
        world.store.always(Verb::Beat, None);
        world.store.open();
        let decided = world.run(guard.decided()).await;
        let expected = if verdict == Verdict::Lost {
            Verdict::Lost
        } else {
            Verdict::Held
        };
        assert_eq!(decided, expected);
    }
}

#[tokio::test]
async fn rejoin_or_external_end_loses_every_guard() {
    for by in ["rejoin", "supersede", "expel", "leave"] {
        let world = world().await;
        let a = world.join().await;
        let guards = [world.granted(&a, "t1").await, world.granted(&a, "t2").await];
        let tenure = a.tenure();
        match by {
            "rejoin" => {
                // Another process takes beats: the store serves, and only this member does not reach it.
                let _other = world.rival().await;
                world.store.cut(true);
                world.pass(TTL * 2).await;
                world.store.cut(false);
                world.until("it joined again", || a.tenure() != tenure).await;
                world.until("held again", || a.verdict() == Verdict::Held).await;
            }
            "supersede" => std::mem::forget(world.other.join(named("a")).await.unwrap()),
            "expel" => drop(world.other.expel(&tenure).await.unwrap()),
            _ => drop(world.run(a.leave()).await.unwrap()),
        }
        for guard in &guards {
            world.until("it is lost", || guard.lost().is_cancelled()).await;
            assert_eq!((guard.verdict(), guard.tenure()), (Verdict::Lost, &tenure), "{by}");
        }
        world.pass(TTL * 2).await;
        for guard in guards {
            assert_eq!(guard.verdict(), Verdict::Lost, "{by}");
            let error = world.run(guard.release()).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Ended(_)), "{by}: {error}");
        }
        if by == "rejoin" {
            assert!(is_held(&world.win(&a, "t1").await));
        } else {
            assert!(matches!(
                world.run(a.leases().acquire("t1")).await.unwrap_err().kind(),
                ErrorKind::Ended(_)
            ));
        }
    }
}

#[tokio::test]
async fn superseded_holder_blocks_its_lease_until_it_has_stopped() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let guard = world.granted(&a, "t1").await;
    world
        .until("the first beat", || world.store.calls(Verb::Beat) == 1)
        .await;
    world.store.cut(true);
    let successor = world.other.join(named("a")).await.unwrap();
    world.pass(guard.valid_until().since(world.clock.mono()) - ms(50)).await;
    let mut mine = None;
    let mut last_held = world.clock.mono();
    while mine.is_none() {
        world.pass(ms(5)).await;
        if is_held(&guard) {
            last_held = world.clock.mono();
        }
        mine = b.leases().acquire("t1").await.unwrap().granted();
    }
    assert!(last_held < world.clock.mono() && guard.verdict() == Verdict::Lost);
    assert!(mine.is_some_and(|mine| mine.token() > guard.token()));
    drop(successor);
}

#[tokio::test]
async fn release_is_lost_locally_before_the_store_is_called() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    for hand_off in [false, true] {
        let guard = world.granted(&a, "t1").await;
        let lost = guard.lost();
        world.store.next(Verb::ReleaseLeases, Fault::Gate);
        let before = world.store.calls(Verb::ReleaseLeases);
        let releasing = tokio::spawn(async move {
            match hand_off {
                true => guard.hand_off(&member("b")).await,
                false => guard.release().await,
            }
        });
        world
            .until("it is sent", || world.store.calls(Verb::ReleaseLeases) > before)
            .await;
        assert!(lost.is_cancelled() && a.leases().held() == 0);
        assert!(
            world.seen("t1").await.is_some(),
            "the release has not reached the store"
        );
        world.store.open();
        let outcome = world.run(releasing).await.unwrap().unwrap();
        let expected = if hand_off {
            ReleaseOutcome::Reserved
        } else {
            ReleaseOutcome::Released
        };
        assert_eq!(outcome, expected);
    }
    assert!(matches!(world.acquire(&a, "t1").await, Acquire::Reserved { to, .. } if to == member("b")));
    assert!(is_held(&world.granted(&b, "t1").await));
}

#[tokio::test]
async fn many_releases_are_batched_and_drop_releases() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let names: Vec<LeaseName> = (0..2_500).map(|n| lease(&format!("t{n}"))).collect();
    let answers = world.run(a.leases().acquire_many(&names)).await.unwrap();
    let mut guards: Vec<LeaseGuard> = answers.into_iter().filter_map(Acquire::granted).collect();
    // Three calls, which the store executes in steps of 200.
    assert_eq!((guards.len(), world.store.calls(Verb::Acquire)), (2_500, 13));
    let rest = guards.split_off(2_000);
    let outcomes = world
        .run(a.leases().release_many(guards, Some(&member("b"))))
        .await
        .unwrap();
    assert!(outcomes.iter().all(|outcome| *outcome == ReleaseOutcome::Reserved) && outcomes.len() == 2_000);
    drop(rest);
    settle().await;
    assert!(world.store.calls(Verb::ReleaseLeases) <= 14);
    let answers = world.run(b.leases().acquire_many(&names)).await.unwrap();
    let mine: Vec<LeaseGuard> = answers.into_iter().filter_map(Acquire::granted).collect();
    assert_eq!(mine.len(), 2_500);
    world.pass(TTL * 2).await;
    assert!(mine.iter().all(is_held));
}

#[tokio::test]
async fn lost_lease_is_reacquired_a_hundred_times() {
    let world = world_with_seed(7).await;
    let a = world.join().await;
    let mut token = None;
    for round in 0..100 {
        let guard = world.win(&a, "t1").await;
        assert!(Some(guard.token()) > token, "round {round}");
        token = Some(guard.token());
        world.pass(ms(world.clock.entropy() % 6_000)).await;
        if round % 2 == 0 {
            world.store.cut(true);
            world.pass(TTL + ms(world.clock.entropy() % 6_000)).await;
            world.store.cut(false);
        } else {
            let lost = [(lease("t1"), guard.token())];
            let taken = world
                .memory
                .release_leases(world.group.name(), guard.tenure(), &lost, None, Call::default());
            taken.await.unwrap();
        }
        world.until("it is lost", || guard.lost().is_cancelled()).await;
    }
}

#[tokio::test]
async fn lease_events_are_logged_and_counted_once() {
    let telemetry = Telemetry::default();
    let _listening = telemetry.listen();
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let [one, two] = ["t1", "t2"].map(lease);
    let mut guards: Vec<LeaseGuard> = world
        .run(a.leases().acquire_many(&[one, two]))
        .await
        .unwrap()
        .into_iter()
        .filter_map(Acquire::granted)
        .collect();
    assert_eq!(telemetry.lines("lease acquired"), 2);
    assert_eq!(telemetry.lines("instance=a target=t1"), 1);
    assert!(telemetry.lines("ttl_ms=12000") == 2 && telemetry.lines("reason=\"free\"") == 2);
    assert_eq!(telemetry.gauge("tenure_leases_held"), 2.0);
    let released = guards.pop().unwrap();
    world.run(released.hand_off(&member("b"))).await.unwrap();
    assert_eq!(
        (telemetry.lines("lease handed off"), telemetry.lines("lease lost")),
        (1, 0)
    );
    world.store.cut(true);
    world.pass(TTL * 2).await;
    assert_eq!(
        (telemetry.lines("lease lost"), telemetry.lines("reason=\"unconfirmed\"")),
        (1, 1)
    );
    assert_eq!(telemetry.gauge("tenure_leases_held"), 0.0);
    let mine = world.win(&b, "t1").await;
    let count = |transition: &str| {
        telemetry.count(&format!(
            "tenure_lease_transitions_total{{group=\"g\",transition=\"{transition}\"}}"
        ))
    };
    assert_eq!(count("acquired") + count("taken_over"), 3);
    assert_eq!((count("handed_off"), count("lost"), count("released")), (1, 1, 0));
    world.run(mine.release()).await.unwrap();
    assert_eq!((telemetry.lines("lease released"), count("released")), (1, 1));
}

#[tokio::test]
async fn takeover_before_the_janitor_is_logged_as_takeover() {
    let telemetry = Telemetry::default();
    let _listening = telemetry.listen();
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let guard = world.granted(&a, "t1").await;
    world.store.cut(true);
    let taken = Mutex::new(None);
    while taken.lock().unwrap().is_none() {
        // Exactly at the end time, before the janitor's sweep.
        *taken.lock().unwrap() = b.leases().acquire("t1").await.unwrap().granted();
        world.pass(ms(1)).await;
    }
    let query = EventQuery {
        after: None,
        limit: 100,
        kinds: vec![EventKind::LeaseTakenOver],
        ..EventQuery::default()
    };
    let events = world.other.events(&query).await.unwrap().events;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].from.as_ref(), Some(guard.tenure()));
    assert_eq!(events[0].reason.as_deref(), Some(EndReason::Lapsed.as_str()));
    assert_eq!(telemetry.lines("lease taken over"), 1);
}
