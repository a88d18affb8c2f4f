//! Lost replies, late calls and dropped futures.

use tenure_core::error::{ErrorKind, Outcome};

use super::*;
use crate::testing::{Fault, Verb, ms};

#[tokio::test]
async fn attach_without_reply_is_repeated() {
    for fault in [Fault::LoseReply, Fault::LoseRequest, Fault::Hang { applied: true }] {
        let world = world().await;
        let membership = world.join().await;
        world.store.next(Verb::Attach, fault.clone());
        let connection = world.attached(&membership, "s", "c").await;
        assert_eq!(world.state("s").await, Some((SessionState::Active, 1)), "{fault:?}");
        assert_eq!(membership.sessions().held(), 1);
        world.run(connection.detach()).await.unwrap();
        assert_eq!(
            world.state("s").await,
            Some((SessionState::Disconnected, 0)),
            "{fault:?}"
        );
    }
}

#[tokio::test]
async fn unanswered_attach_is_undone() {
    for fault in [
        Fault::LoseReply,
        Fault::Hang { applied: true },
        Fault::Hang { applied: false },
    ] {
        let world = world().await;
        let membership = world.join().await;
        world.store.always(Verb::Attach, Some(fault.clone()));
        let error = world
            .run(membership.sessions().attach("s", "c").send())
            .await
            .unwrap_err();
        assert_eq!(error.outcome(), Outcome::Unknown);
        world.store.always(Verb::Attach, None);
        world.pass(secs(5)).await;
        let applied = fault != Fault::Hang { applied: false };
        let expected = applied.then_some((SessionState::Disconnected, 0));
        assert_eq!(world.state("s").await, expected, "{fault:?}");
        assert_eq!(membership.sessions().held(), 0);
    }
}

#[tokio::test]
async fn dropped_attach_is_undone_even_when_it_applies_late() {
    for late in [ms(0), ms(300), ms(1_900), ms(2_500)] {
        let world = world().await;
        let membership = world.join().await;
        world.pass(secs(5)).await;
        world.store.next(Verb::Attach, Fault::Delay(late));
        let sessions = membership.sessions();
        let mut asked = Box::pin(sessions.attach("s", "c").send());
        assert!(futures_util::poll!(&mut asked).is_pending() || late.is_zero());
        drop(asked);
        world.pass(secs(6)).await;
        assert!(
            world.state("s").await.is_none_or(|(_, connections)| connections == 0),
            "{late:?}"
        );
        assert_eq!(sessions.held(), 0);
    }
}

#[tokio::test]
async fn late_first_attempt_leaks_no_connection() {
    for late in [ms(100), ms(1_000), ms(1_900)] {
        let world = world().await;
        let membership = world.join().await;
        world.pass(secs(5)).await;
        world.store.late(Verb::Attach, late);
        let connection = world.attached(&membership, "s", "c").await;
        if late == ms(1_000) {
            drop(connection);
        } else {
            world.pass(secs(3)).await;
            assert_eq!(world.state("s").await, Some((SessionState::Active, 1)), "{late:?}");
            assert_eq!(
                world.seen("s").await.unwrap().epoch,
                connection.epoch(),
                "the newest epoch is known"
            );
            drop(connection);
        }
        world.pass(secs(5)).await;
        assert_eq!(
            world.state("s").await,
            Some((SessionState::Disconnected, 0)),
            "{late:?}"
        );
    }
}

#[tokio::test]
async fn detach_is_repeated_until_answered() {
    let world = world().await;
    let membership = world.join().await;
    for (n, fault) in [
        Fault::LoseReply,
        Fault::LoseRequest,
        Fault::Hang { applied: true },
        Fault::Hang { applied: false },
        Fault::Fail(ErrorKind::TooLate),
        Fault::Panic,
    ]
    .into_iter()
    .enumerate()
    {
        let session = format!("s{n}");
        let connection = world.attached(&membership, &session, "c").await;
        world.store.next(Verb::Detach, fault.clone());
        let outcome = world.run(connection.detach()).await.unwrap();
        assert!(
            matches!(outcome, DetachOutcome::Detached { .. }),
            "{fault:?}: {outcome:?}"
        );
        assert_eq!(
            world.state(&session).await,
            Some((SessionState::Disconnected, 0)),
            "{fault:?}"
        );
    }
    let connection = world.attached(&membership, "denied", "c").await;
    world.store.next(Verb::Detach, Fault::Fail(ErrorKind::Denied));
    assert_eq!(
        world.run(connection.detach()).await.unwrap_err().kind(),
        ErrorKind::Denied
    );
}

#[tokio::test]
async fn late_detach_does_not_hit_a_returned_client() {
    let world = world().await;
    let membership = world.join().await;
    world.pass(secs(5)).await;
    let first = world.attached(&membership, "s", "c").await;
    // The call times out immediately and arrives in a second; so do its retries until then.
    world.store.late(Verb::Detach, secs(1));
    drop(first);
    settle().await;
    let second = world.attached(&membership, "s", "c").await;
    world.pass(secs(5)).await;
    assert_eq!(world.state("s").await, Some((SessionState::Active, 1)));
    assert_eq!(world.events(EventKind::SessionDisconnected).await.len(), 0);
    assert!(!second.lost().is_cancelled());
}

#[tokio::test]
async fn attach_waits_for_a_detach_without_epoch() {
    let world = world().await;
    let membership = world.join().await;
    world.pass(secs(5)).await;
    // The attach has no reply, so the detach that undoes it has no epoch, and hangs.
    world.store.always(Verb::Attach, Some(Fault::Hang { applied: true }));
    world
        .run(membership.sessions().attach("s", "c").send())
        .await
        .unwrap_err();
    world.store.always(Verb::Attach, None);
    world.store.next(Verb::Detach, Fault::Delay(ms(700)));
    let before = world.store.calls(Verb::Detach);
    world
        .until("the detach is under way", || world.store.calls(Verb::Detach) > before)
        .await;
    let attaches = world.store.calls(Verb::Attach);
    let sessions = membership.sessions();
    let mut asked = Box::pin(sessions.attach("s", "c").send());
    assert!(futures_util::poll!(&mut asked).is_pending());
    assert_eq!(
        world.store.calls(Verb::Attach),
        attaches,
        "the detach could hit the new attach"
    );
    let connection = world.run(asked).await.unwrap().attached().unwrap();
    world.pass(secs(5)).await;
    assert_eq!(world.state("s").await, Some((SessionState::Active, 1)));
    assert!(!connection.lost().is_cancelled());
}

#[tokio::test]
async fn random_faults_leak_and_lose_no_connection() {
    for seed in 0..20 {
        let world = world().await;
        world.pass(ms(seed * 53)).await;
        let membership = world.join().await;
        for (verb, fault) in [
            (Verb::Attach, Fault::LoseReply),
            (Verb::Detach, Fault::Delay(ms(700))),
            (Verb::Beat, Fault::LoseReply),
        ] {
            world.store.sometimes(verb, 40, fault);
        }
        let sessions = membership.sessions();
        let mut held = Vec::new();
        for round in 0..30 {
            // Few names, so that they collide.
            let n = world.clock.entropy() % 4;
            if world.clock.entropy() % 5 == 0 {
                world.store.late(Verb::Attach, ms(world.clock.entropy() % 2_000));
            }
            let asked = sessions.attach(&format!("s{n}"), "c").send();
            if let Ok(Attach::Attached(connection)) = world.run(asked).await {
                held.push(connection);
            }
            if round % 2 == 1 && !held.is_empty() {
                let at = usize::try_from(world.clock.entropy()).unwrap_or(0) % held.len();
                drop(held.swap_remove(at));
            }
        }
        world.store.heal();
        world.pass(secs(10)).await;
        held.retain(|connection| !connection.lost().is_cancelled());
        assert_eq!(sessions.held(), held.len());
        for n in 0..4 {
            let ours = held.iter().find(|held| held.session_id().as_str() == format!("s{n}"));
            let seen = world.seen(&format!("s{n}")).await;
            let connections = seen.as_ref().map_or(0, |seen| seen.connections);
            assert_eq!(connections, u64::from(ours.is_some()), "seed {seed}, s{n}");
            if let Some(ours) = ours {
                assert_eq!(seen.map(|seen| seen.epoch), Some(ours.epoch()), "seed {seed}, s{n}");
            }
        }
    }
}
