//! Beats: errors, outages, pauses, and what an answer confirms.

use super::*;

#[tokio::test]
async fn slow_answer_does_not_extend_trust() {
    let world = world().await;
    let membership = world.join().await;
    world.store.next(Verb::Beat, Fault::Delay(ms(400)));
    world
        .until("the first beat", || world.store.calls(Verb::Beat) == 1)
        .await;
    let sent_at = world.clock.mono();
    let before = membership.valid_until();
    world.until("its answer", || membership.valid_until() > before).await;
    assert_eq!(world.clock.mono(), sent_at + ms(400));
    assert_eq!(membership.valid_until(), sent_at + (TTL - membership.timing().margin));
}

#[tokio::test]
async fn store_outage_ends_no_tenure() {
    let world = world().await;
    let membership = world.join().await;
    world
        .until("the first beat", || world.store.calls(Verb::Beat) == 1)
        .await;
    let (tenure, lost) = (membership.tenure(), membership.lost());
    // No client reaches the store, because the other client and its janitor are gone.
    let World {
        clock,
        store,
        memory,
        group,
        other,
        beats,
    } = world;
    drop((other, beats));
    settle().await;
    store.cut(true);
    pass(&clock, TTL * 3).await;
    assert_eq!(membership.verdict(), Verdict::Lost);
    store.cut(false);
    pass_until(&clock, "held again", TTL, || membership.verdict() == Verdict::Held).await;
    assert_eq!(membership.tenure(), tenure, "the tenure is the same");
    assert!(lost.is_cancelled() && !membership.lost().is_cancelled());
    assert_eq!(membership.status().rejoins, 0);
    drop((memory, group));
}

#[tokio::test]
async fn beats_continue_after_any_error() {
    use tenure_core::error::ErrorKind as Kind;
    let kinds = [
        Kind::Invalid,
        Kind::Ended(EndReason::Superseded),
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
        Fault::Hang { applied: false },
        Fault::Delay(ms(400)),
        Fault::Panic,
        Fault::RefuseBeats,
    ]);
    for fault in faults {
        let world = world().await;
        let membership = world.join().await;
        let tenure = membership.tenure();
        world.store.next(Verb::Beat, fault.clone());
        world
            .until(&format!("the beat after {fault:?}"), || {
                world.store.calls(Verb::Beat) == 2
            })
            .await;
        world.pass(ms(1)).await;
        assert_eq!(
            (membership.verdict(), membership.tenure()),
            (Verdict::Held, tenure),
            "{fault:?}"
        );
        assert_eq!(membership.status().failed_in_a_row, 0, "{fault:?}");
        assert_eq!(membership.status().panics, u64::from(fault == Fault::Panic));
    }
}

#[tokio::test]
async fn failed_beats_are_retried_sooner_at_a_bounded_rate() {
    for fault in [Fault::Fail(ErrorKind::Unavailable), Fault::RefuseBeats] {
        let world = world().await;
        let membership = world.join().await;
        world.store.always(Verb::Beat, Some(fault));
        world
            .until("the first beat", || world.store.calls(Verb::Beat) == 1)
            .await;
        let first = world.clock.mono();
        world
            .until("the second beat", || world.store.calls(Verb::Beat) == 2)
            .await;
        let again = world.clock.mono().since(first);
        assert!(
            again >= ms(700) && again <= membership.timing().interval / 2,
            "{again:?}"
        );
        world.pass(secs(600)).await;
        let beats = world.store.calls(Verb::Beat);
        assert!((200..=420).contains(&beats), "{beats} tries in ten minutes");
        assert_ne!(membership.verdict(), Verdict::Held);
    }
}

#[tokio::test]
async fn process_pause_is_uncertain_until_confirmed() {
    let world = world().await;
    let membership = world.join().await;
    world
        .until("the first beat", || world.store.calls(Verb::Beat) == 1)
        .await;
    world.store.always(Verb::Beat, Some(Fault::Gate));
    // The process was paused for longer than the margin, and shorter than the ttl.
    world
        .clock
        .advance(membership.timing().interval + membership.timing().margin + ms(10));
    settle().await;
    assert_eq!(membership.verdict(), Verdict::Uncertain);
    assert_eq!((membership.status().pauses, world.store.calls(Verb::Beat)), (1, 2));
    world.store.open();
    settle().await;
    assert_eq!(membership.verdict(), Verdict::Held);
}

#[tokio::test]
async fn answer_from_before_a_pause_does_not_confirm() {
    let world = world().await;
    let membership = world.join().await;
    world.store.always(Verb::Beat, Some(Fault::Gate));
    world
        .until("the first beat", || world.store.calls(Verb::Beat) == 1)
        .await;
    // The answer to the first beat arrives at the moment of waking.
    world.store.open();
    world
        .clock
        .advance(membership.timing().margin * 2 + membership.timing().interval);
    settle().await;
    assert_eq!(membership.verdict(), Verdict::Uncertain);
    world.store.open();
    settle().await;
    assert_eq!(membership.verdict(), Verdict::Held);
}

#[tokio::test]
async fn act_on_an_ended_tenure_wakes_the_beat_loop() {
    let world = world().await;
    let membership = world.join().await;
    world.pass(ms(100)).await;
    world
        .memory
        .end(world.group.name(), &membership.tenure(), EndBy::Expel, Call::default())
        .await
        .unwrap();
    let registry = membership.registry("r").unwrap();
    assert_eq!(
        registry.claim("k").await.unwrap_err().kind(),
        ErrorKind::Ended(EndReason::Expelled)
    );
    world.pass(ms(50)).await;
    assert_eq!(stopped(&membership), Some(EndReason::Expelled));
}
