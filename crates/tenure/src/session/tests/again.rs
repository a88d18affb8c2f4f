//! Re-attach after a new join and after a lost tail.

use tenure_core::clock::Clock;
use tenure_core::error::ErrorKind;
use tenure_core::memory::MemoryStore;
use tenure_core::session::SessionStore;
use tenure_core::store::StoreOptions;

use super::*;
use crate::testing::{Fault, Verb, ms};

#[tokio::test]
async fn lapse_reattaches_connections_and_resumes_sessions() {
    let world = world().await;
    let membership = world.join().await;
    let mut kept = world.attached(&membership, "kept", "c").await;
    kept.patch(&room("garden")).await.unwrap();
    let dropped = world.attached(&membership, "dropped", "c").await;
    let (tenure, epoch) = (membership.tenure(), kept.epoch());
    world.store.cut(true);
    world.pass(TTL * 2).await;
    assert_eq!(
        world.state("kept").await,
        Some((SessionState::Disconnected, 0)),
        "other clients see it disconnected"
    );
    drop(dropped);
    world.store.cut(false);
    world.until("it joined again", || membership.tenure() != tenure).await;
    world.pass(ms(100)).await;
    assert_eq!(world.state("kept").await, Some((SessionState::Active, 1)));
    assert_eq!(world.state("dropped").await, Some((SessionState::Disconnected, 0)));
    assert!(kept.epoch() > epoch && !kept.lost().is_cancelled());
    assert_eq!(world.seen("kept").await.unwrap().data["room"], "garden");
    assert!(futures_util::poll!(std::pin::pin!(kept.renewed())).is_pending());
    world.run(kept.detach()).await.unwrap();
    assert_eq!(world.state("kept").await, Some((SessionState::Disconnected, 0)));
    assert_eq!(membership.sessions().held(), 0);
}

#[tokio::test]
async fn reaped_session_is_recreated_unless_resume_only() {
    let world = world().await;
    let membership = world.join().await;
    let sessions = membership.sessions();
    let asked = sessions
        .attach("s", "c1")
        .alias("alice")
        .grace(secs(1))
        .data(room("lobby"));
    let mut anew = asked.await.unwrap().attached().unwrap();
    let asked = sessions
        .attach("t", "c2")
        .grace(secs(1))
        .await
        .unwrap()
        .attached()
        .unwrap();
    drop(asked);
    world.pass(ms(10)).await;
    let resumed = sessions
        .attach("t", "c3")
        .resume_only()
        .await
        .unwrap()
        .attached()
        .unwrap();
    let asked = sessions.attach("u", "c4").alias("bob").grace(secs(1));
    let robbed = asked.await.unwrap().attached().unwrap();
    world.store.cut(true);
    world.pass(TTL * 2).await;
    for session in ["s", "t", "u"] {
        assert_eq!(world.seen(session).await, None);
    }
    let rival = world.rival().await;
    let robber = rival.sessions().attach("v", "c5").alias("bob").await.unwrap();
    world.store.cut(false);
    world
        .until("the renewal is reported", || anew.watch().borrow().renewals == 1)
        .await;
    world.pass(ms(100)).await;
    let seen = world.seen("s").await.unwrap();
    assert_eq!(
        (seen.state, seen.data.len(), seen.grace),
        (SessionState::Active, 0, Some(secs(1)))
    );
    assert_eq!(seen.alias.as_ref().map(tenure_core::id::Alias::as_str), Some("alice"));
    assert_eq!(world.run(anew.renewed()).await, seen.epoch);
    assert_eq!(why(&resumed), Some(ConnectionLost::Gone));
    let by = SessionId::new("v").unwrap();
    assert_eq!(why(&robbed), Some(ConnectionLost::AliasTaken { by }));
    assert_eq!((world.seen("t").await, world.seen("u").await), (None, None));
    assert_eq!(sessions.held(), 1);
    drop(robber);
}

#[tokio::test]
async fn session_recreated_by_another_process_is_reported() {
    let world = world().await;
    let membership = world.join().await;
    let mut ours = membership
        .sessions()
        .attach("s", "c1")
        .grace(secs(1))
        .await
        .unwrap()
        .attached()
        .unwrap();
    world.store.cut(true);
    world.pass(TTL * 2).await;
    let rival = world.rival().await;
    let theirs = rival
        .sessions()
        .attach("s", "c2")
        .data(room("new"))
        .await
        .unwrap()
        .attached()
        .unwrap();
    assert_eq!(theirs.how(), How::Created);
    world.store.cut(false);
    let epoch = world.run(ours.renewed()).await;
    assert!(epoch > theirs.epoch());
    assert_eq!(world.state("s").await, Some((SessionState::Active, 2)));
    assert_eq!(
        world.seen("s").await.unwrap().data["room"],
        "new",
        "the other process's data is unchanged"
    );
}

#[tokio::test]
async fn data_loss_reattaches_connections_in_parts() {
    let world = world().await;
    let membership = world.join().await;
    let all: Vec<AttachRequest> = (0..2_500).map(|n| wanted(&format!("s{n}"), "c")).collect();
    let connections = world.run(membership.sessions().attach_many(&all)).await.unwrap();
    let before = world.store.calls(Verb::Attach);
    let empty = MemoryStore::new(StoreOptions::default(), world.clock.clone());
    world.store.swap(empty.clone());
    let renewed = |answer: &Attach| match answer {
        Attach::Attached(connection) => connection.watch().borrow().renewals == 1,
        other => panic!("{other:?}"),
    };
    world
        .until("all renewals are reported", || connections.iter().all(renewed))
        .await;
    assert_eq!(
        world.store.calls(Verb::Attach) - before,
        26,
        "each part, in 13 steps of 200, is resumed, then recreated"
    );
    assert_eq!(world.group.sessions().stats().await.unwrap().active, 2_500);
}

#[tokio::test]
async fn lost_tail_reattaches_under_the_same_tenure() {
    let world = world().await;
    let membership = world.join().await;
    let replica = MemoryStore::new(StoreOptions::default(), world.clock.clone());
    world.store.replicate(Some(replica.clone()));
    let empty: Arc<dyn Store> = MemoryStore::new(StoreOptions::default(), world.clock.clone());
    world.store.swap(empty);
    // A store and its replica start from the same state.
    let tenure = membership.tenure();
    world.until("it joined again", || membership.tenure() != tenure).await;
    let tenure = membership.tenure();
    let first = world.attached(&membership, "first", "c").await;
    world.pass(TTL).await;
    world.store.replicate(None);
    let mut second = world.attached(&membership, "second", "c").await;
    world.store.swap(replica.clone());
    let seen = world.run(second.renewed()).await;
    assert_eq!(membership.tenure(), tenure);
    assert!(seen >= second.epoch());
    let active = world.group.sessions().stats().await.unwrap().active;
    assert_eq!((active, why(&first), why(&second)), (2, None, None));
}

/// The store lost its data and its clock fell back by less than the maximum ttl, so its numbers begin lower.
#[tokio::test]
async fn epoch_is_the_stores_also_when_it_is_lower_than_before() {
    let world = world().await;
    let membership = world.join().await;
    let mut ours = world.attached(&membership, "s", "c").await;
    let before = ours.epoch();
    let earlier = world.clock.wall_micros() - u64::try_from(TTL.as_micros()).unwrap();
    world.clock.set_wall_micros(earlier);
    let empty = MemoryStore::new(StoreOptions::default(), world.clock.clone());
    world.store.swap(empty.clone());
    world.run(ours.renewed()).await;
    let seen = empty.session(world.group.name(), &SessionId::new("s").unwrap()).await;
    assert_eq!(seen.unwrap().map(|seen| seen.epoch), Some(ours.epoch()));
    assert!(ours.epoch() < before, "{} after {before}", ours.epoch());
    assert_eq!(why(&ours), None);
}

/// The same, but the user attaches before the connections are attached again: that pauses after failures.
#[tokio::test]
async fn attach_after_a_rejoin_replaces_one_with_a_higher_epoch() {
    let world = world().await;
    let membership = world.join().await;
    let first = world.attached(&membership, "s", "c").await;
    let (tenure, before) = (membership.tenure(), first.epoch());
    let unavailable = Some(Fault::Fail(ErrorKind::Unavailable));
    world.store.always(Verb::Detach, unavailable);
    drop(world.attached(&membership, "other", "c").await);
    world.pass(TTL * 2).await;
    let earlier = world.clock.wall_micros() - u64::try_from(TTL.as_micros() * 3).unwrap();
    world.clock.set_wall_micros(earlier);
    let empty = MemoryStore::new(StoreOptions::default(), world.clock.clone());
    world.store.swap(empty);
    world.until("it joined again", || membership.tenure() != tenure).await;
    let second = world.attached(&membership, "s", "c").await;
    assert!(second.epoch() < before, "{} after {before}", second.epoch());
    assert_eq!((why(&first), why(&second)), (Some(ConnectionLost::Replaced), None));
}

#[tokio::test]
async fn reattach_survives_store_failures() {
    for seed in 0..8 {
        let world = world().await;
        world.pass(ms(seed * 37)).await;
        let membership = world.join().await;
        let all: Vec<AttachRequest> = (0..1_200).map(|n| wanted(&format!("s{n}"), "c")).collect();
        let connections = world.run(membership.sessions().attach_many(&all)).await.unwrap();
        world.store.cut(true);
        world.pass(TTL * 2).await;
        for fault in [
            Fault::LoseReply,
            Fault::Fail(ErrorKind::Unavailable),
            Fault::Hang { applied: true },
            Fault::Panic,
            Fault::LoseRequest,
            Fault::Fail(ErrorKind::TooLate),
        ] {
            world.store.next(Verb::Attach, fault);
        }
        world.store.late(Verb::Attach, ms(500 * seed));
        world.store.cut(false);
        let before = world.store.calls(Verb::Attach);
        world
            .until("all is attached again", || {
                world.store.calls(Verb::Attach) >= before + 7 + 2
            })
            .await;
        world.pass(secs(5)).await;
        assert_eq!(world.group.sessions().stats().await.unwrap().active, 1_200);
        // Each is detached, whichever of its epochs became known.
        drop(connections);
        world.pass(secs(5)).await;
        let stats = world.group.sessions().stats().await.unwrap();
        assert_eq!((stats.active, stats.disconnected), (0, 1_200), "seed {seed}");
        assert!(world.clock.mono().since_origin() < secs(120));
    }
}
