//! The end of a tenure, and the next one of the member.

use super::*;

#[tokio::test]
async fn fails_closed_while_silent_and_rejoins_when_confirmed() {
    let world = world().await;
    let membership = world.join().await;
    world
        .until("the first beat", || world.store.calls(Verb::Beat) == 1)
        .await;
    let (tenure, lost, valid) = (membership.tenure(), membership.lost(), membership.valid_until());
    let sent_at = world.clock.mono();
    assert_eq!(
        valid,
        sent_at + (TTL - membership.timing().margin),
        "trust starts when the beat is sent"
    );
    world.store.cut(true);
    world.pass(valid.since(world.clock.mono()) - ms(1)).await;
    assert_eq!(membership.verdict(), Verdict::Held);
    world.pass(ms(1)).await;
    assert_eq!(membership.verdict(), Verdict::Uncertain);
    assert!(!lost.is_cancelled());
    world.pass((sent_at + TTL).since(world.clock.mono())).await;
    assert_eq!((membership.verdict(), lost.is_cancelled()), (Verdict::Lost, true));
    let status = membership.status();
    assert_eq!((status.verdict, status.phase), (Verdict::Lost, Phase::Beating));
    assert!(status.last_error.unwrap().contains("did not answer"));

    // The other client kept the store ticking, so the tenure lapsed; this client learns it from the store.
    world.store.cut(false);
    world
        .until("held again", || membership.verdict() == Verdict::Held)
        .await;
    assert_ne!(membership.tenure(), tenure);
    assert!(
        !membership.lost().is_cancelled(),
        "the new tenure has a token of its own"
    );
    assert_eq!(membership.status().rejoins, 1);
}

#[tokio::test]
async fn changed_labels_go_with_a_later_rejoin() {
    let world = world().await;
    let membership = world.join().await;
    let tenure = membership.tenure();
    let zone = |zone: &str| Labels::new([("zone".to_owned(), zone.to_owned())].into()).unwrap();
    membership.set_labels(zone("a")).await.unwrap();
    let seen = world.seen("a").await.unwrap();
    assert_eq!((seen.labels, seen.tenure), (zone("a"), tenure.clone()));
    // It lapses while the store is away; the labels of a call that failed go with the rejoin, too.
    for verb in [Verb::Beat, Verb::End, Verb::Pulse] {
        world.store.always(verb, Some(Fault::Fail(ErrorKind::Unavailable)));
    }
    world.pass(TTL * 2).await;
    assert_eq!(
        membership.set_labels(zone("b")).await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    world.store.heal();
    world
        .until("it has rejoined", || membership.status().rejoins == 1)
        .await;
    let seen = world.seen("a").await.unwrap();
    assert_eq!((seen.labels, seen.tenure), (zone("b"), membership.tenure()));
    assert_ne!(membership.tenure(), tenure);
}

#[tokio::test]
async fn superseded_or_expelled_member_stops_and_reports_it() {
    for expel in [false, true] {
        let world = world().await;
        let membership = world.join().await;
        let (tenure, lost) = (membership.tenure(), membership.lost());
        let reason = if expel {
            world.other.expel(&tenure).await.unwrap();
            EndReason::Expelled
        } else {
            let next = world.other.join(named("a")).await.unwrap();
            std::mem::forget(next);
            EndReason::Superseded
        };
        world.until("it stops", || stopped(&membership).is_some()).await;
        assert_eq!(stopped(&membership), Some(reason));
        assert_eq!((membership.verdict(), lost.is_cancelled()), (Verdict::Lost, true));
        assert_eq!(membership.ended().await.unwrap(), reason);
        assert_eq!(
            membership.leave().await.unwrap(),
            reason,
            "leaving afterwards ends no other tenure"
        );
        let joins = world.store.calls(Verb::Join);
        world.pass(secs(120)).await;
        assert_eq!(world.store.calls(Verb::Join), joins);
        assert_eq!(world.seen("a").await.is_some(), !expel, "the successor lives");
        let registry = membership.registry("r").unwrap();
        assert_eq!(registry.claim("k").await.unwrap_err().kind(), ErrorKind::Ended(reason));
    }
}

#[tokio::test]
async fn late_wakeup_does_not_compete_with_the_successor() {
    let world = world().await;
    let membership = world.join().await;
    world.store.cut(true);
    world.until("it lapsed", || membership.verdict() == Verdict::Lost).await;
    world.pass(secs(3)).await;
    assert!(world.seen("a").await.is_none());
    let successor = world.other.join(named("a")).await.unwrap();
    world.store.cut(false);
    world.until("it stops", || stopped(&membership).is_some()).await;
    assert_eq!(stopped(&membership), Some(EndReason::Superseded));
    world.pass(TTL * 3).await;
    assert_eq!(successor.verdict(), Verdict::Held);
    assert_eq!(successor.status().rejoins, 0);
}

#[tokio::test]
async fn failed_rejoin_does_not_compete_with_a_successor() {
    let world = world().await;
    let membership = world.join().await;
    world.store.cut(true);
    world.pass(TTL * 2).await;
    world.store.cut(false);
    world
        .store
        .always(Verb::Join, Some(Fault::Fail(ErrorKind::Unavailable)));
    let before = world.store.calls(Verb::Join);
    world
        .until("it tries to join", || world.store.calls(Verb::Join) > before)
        .await;
    let successor = world.other.join(named("a")).await.unwrap();
    world.store.always(Verb::Join, None);
    world.until("it stops", || stopped(&membership).is_some()).await;
    assert_eq!(
        (stopped(&membership), successor.verdict()),
        (Some(EndReason::Superseded), Verdict::Held)
    );
}

#[tokio::test]
async fn join_with_lost_reply_leaves_no_ghost() {
    let world = world().await;
    world.store.next(Verb::Join, Fault::LoseReply);
    world.store.next(Verb::Join, Fault::Hang { applied: true });
    let (group, done) = (world.group.clone(), Arc::new(Mutex::new(None)));
    let told = Arc::clone(&done);
    tokio::spawn(async move { *told.lock().unwrap() = Some(group.join(named("a")).await) });
    world.until("it joined", || done.lock().unwrap().is_some()).await;
    let membership = done.lock().unwrap().take().unwrap().unwrap();
    assert_eq!(world.store.calls(Verb::Join), 3);
    assert_eq!(world.seen("a").await.unwrap().tenure, membership.tenure());
    // An error that certainly changed nothing is returned immediately.
    world.store.next(Verb::Join, Fault::Fail(ErrorKind::Unavailable));
    assert_eq!(
        world.group.join(named("b")).await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
}

#[tokio::test]
async fn rejoin_continues_through_errors_and_lost_replies() {
    for seed in 0..10 {
        let world = world_with_seed(seed).await;
        let membership = world.join().await;
        world.store.cut(true);
        world.pass(TTL * 2).await;
        use Fault::*;
        for fault in [
            LoseReply,
            Fail(ErrorKind::Internal),
            Hang { applied: true },
            LoseRequest,
            Fail(ErrorKind::TooLate),
        ] {
            world.store.next(Verb::Join, fault);
        }
        world.store.next(Verb::Look, Fail(ErrorKind::Unavailable));
        world.store.cut(false);
        world
            .until("held again", || membership.verdict() == Verdict::Held)
            .await;
        assert_eq!(world.seen("a").await.unwrap().tenure, membership.tenure());
        world.pass(TTL * 2).await;
        assert_eq!((membership.verdict(), membership.status().rejoins), (Verdict::Held, 1));
    }
}

#[tokio::test]
async fn lapse_is_final_without_rejoin() {
    let world = world().await;
    let options = JoinOptions {
        rejoin: false,
        ..named("a")
    };
    let membership = world.group.join(options).await.unwrap();
    for verb in [Verb::Beat, Verb::Pulse] {
        world.store.always(verb, Some(Fault::LoseRequest));
    }
    world.pass(TTL * 2).await;
    world.store.heal();
    world.until("it stopped", || stopped(&membership).is_some()).await;
    assert_eq!(stopped(&membership), Some(EndReason::Lapsed));
    assert_eq!(membership.status().last_end, Some(EndReason::Lapsed));
    assert_eq!(membership.leave().await.unwrap(), EndReason::Lapsed);
    assert_eq!(world.store.calls(Verb::Join), 1);
}
