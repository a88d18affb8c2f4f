//! Leaving, by a call, a drop, or without progress.

use super::*;

#[tokio::test]
async fn leave_ends_locally_first_and_survives_lost_replies() {
    let world = world().await;
    let membership = Arc::new(world.join().await);
    let lost = membership.lost();
    world.store.next(Verb::End, Fault::LoseReply);
    world.store.next(Verb::End, Fault::Gate);
    let leaving = tokio::spawn({
        let membership = Arc::clone(&membership);
        async move { membership.leave().await }
    });
    world
        .until("the second try", || world.store.calls(Verb::End) == 2)
        .await;
    assert_eq!((membership.verdict(), lost.is_cancelled()), (Verdict::Lost, true));
    world.store.open();
    // The first attempt was applied: its reason is recorded.
    assert_eq!(leaving.await.unwrap().unwrap(), EndReason::Left);
    assert_eq!(stopped(&membership), Some(EndReason::Left));
    assert!(world.seen("a").await.is_none());
}

#[tokio::test]
async fn leave_fails_in_bounded_time_when_unreachable() {
    let world = world().await;
    let membership = Arc::new(world.join().await);
    world.store.cut(true);
    let leaving = tokio::spawn({
        let membership = Arc::clone(&membership);
        async move { membership.leave().await }
    });
    world.until("it gave up", || leaving.is_finished()).await;
    assert_eq!(leaving.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(world.clock.mono().since_origin() < secs(5));
    assert_eq!(membership.verdict(), Verdict::Lost);
}

#[tokio::test]
async fn drop_leaves_without_waiting() {
    let world = world().await;
    drop(world.join().await);
    settle().await;
    assert!(world.seen("a").await.is_none());
}

#[tokio::test]
async fn beats_stop_without_progress() {
    let world = world().await;
    let options = JoinOptions {
        progress_within: Some(secs(5)),
        ..named("a")
    };
    let membership = world.group.join(options).await.unwrap();
    for _ in 0..30 {
        world.pass(secs(2)).await;
        membership.progress();
    }
    assert_eq!(
        (membership.verdict(), membership.status().phase),
        (Verdict::Held, Phase::Beating)
    );
    let tenure = membership.tenure();
    world
        .until("it pauses", || membership.status().phase == Phase::Paused)
        .await;
    settle().await;
    assert_eq!(membership.verdict(), Verdict::Lost);
    assert!(
        world.seen("a").await.is_none(),
        "other clients see that it does not work, without waiting for its ttl"
    );
    let ended = world.memory.beat(world.group.name(), &[Beat::of(tenure.clone())]).await;
    assert_eq!(ended.unwrap().replies, [BeatReply::Ended(EndReason::NoProgress)]);
    world.pass(TTL * 2).await;
    assert_eq!(
        (membership.status().phase, membership.status().rejoins),
        (Phase::Paused, 0)
    );
    assert!(world.seen("a").await.is_none());
    membership.progress();
    world
        .until("held again", || membership.verdict() == Verdict::Held)
        .await;
    assert_ne!(membership.tenure(), tenure);
}

#[tokio::test]
async fn a_stall_is_reported_once_the_store_answers() {
    let world = world().await;
    let options = JoinOptions {
        progress_within: Some(secs(5)),
        ..named("a")
    };
    let membership = world.group.join(options).await.unwrap();
    world.store.always(Verb::End, Some(Fault::Fail(ErrorKind::Unavailable)));
    world
        .until("it pauses", || membership.status().phase == Phase::Paused)
        .await;
    world.pass(secs(2)).await;
    assert!(world.seen("a").await.is_some(), "its tenure stands");
    world.store.heal();
    world
        .until("the tenure is lost", || membership.verdict() == Verdict::Lost)
        .await;
    assert_eq!(membership.leave().await.unwrap(), EndReason::NoProgress);
}

#[tokio::test]
async fn leaving_without_progress_names_the_reason() {
    let world = world().await;
    for stopped in [false, true] {
        let membership = world.join().await;
        assert!(matches!(
            membership.leases().acquire("poll").await.unwrap(),
            crate::lease::Acquire::Granted(_)
        ));
        let reason = membership.leave_without_progress(stopped).await.unwrap();
        assert_eq!(reason, EndReason::NoProgress);
        assert_eq!(membership.leave().await.unwrap(), EndReason::NoProgress, "idempotent");
        let other = world.other.join(named("b")).await.unwrap();
        let granted = other.leases().acquire("poll").await.unwrap().granted();
        assert_eq!(
            granted.is_some(),
            stopped,
            "only a process that has ended frees it at once"
        );
        other.leave().await.unwrap();
        world.pass(TTL).await;
    }
}
