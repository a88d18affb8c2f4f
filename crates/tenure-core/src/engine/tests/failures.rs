//! Commits that fail, steps that panic, a disk that breaks.

use super::*;
use crate::conformance::roster::row;
use crate::id::ProviderId;
use crate::lease::{FreeWhen, RevokeOf};
use crate::roster::{Heartbeat, HeartbeatReply, MirrorEntry, Put, RosterMirror};

#[tokio::test]
async fn failed_commit_takes_back_what_it_held() {
    let world = World::new();
    let (a, b) = (world.join("a").await.unwrap(), world.join("b").await.unwrap());
    let c = world.join("c").await.unwrap();
    world.leave(&c).await.unwrap();
    world.platter.be(Luck::Full);
    let full = world.acquire(&a, "l").await.unwrap_err();
    assert_eq!(
        (full.kind(), full.outcome()),
        (ErrorKind::Unavailable, Outcome::Unchanged)
    );
    assert_eq!(world.holder("l").await.unwrap(), None);
    // Writes are refused before they are applied; beats and reads continue, also for a tenure that has ended.
    let left = BeatReply::Ended(EndReason::Left);
    assert_eq!(world.beat(&c, None).await.unwrap(), left);
    assert_eq!(world.leave(&b).await.unwrap_err().outcome(), Outcome::Unchanged);
    assert!(renewed(world.beat(&b, None).await.unwrap()));
    assert_eq!(world.is_alive(&a).await, Some(true));
    assert!(matches!(world.health(), Health::Down { reason } if reason.contains("full")));
    world.probe(s(1)).await.unwrap_err();
    // The first write after room was made succeeds.
    world.platter.be(Luck::Good);
    assert!(matches!(
        world.acquire(&a, "l").await.unwrap(),
        AcquireOutcome::Granted { .. }
    ));
    assert_eq!(world.health(), Health::Up);
    assert_eq!(world.platter.trouble(), [true, false], "one alarm, one recovery");
}

#[tokio::test]
async fn reads_that_saw_a_lost_change_look_again() {
    let world = World::new();
    let (a, b) = (world.join("a").await.unwrap(), world.join("b").await.unwrap());
    world.platter.hold(true);
    let mut acquiring = Box::pin(world.acquire(&a, "l"));
    assert!(poll(&mut acquiring).await.is_none());
    let mut reading = Box::pin(world.holder("l"));
    assert!(poll(&mut reading).await.is_none());
    let mut refused = Box::pin(world.acquire(&b, "l"));
    assert!(poll(&mut refused).await.is_none());
    world.platter.be(Luck::Full);
    world.platter.hold(false);
    acquiring.await.unwrap_err();
    assert_eq!(reading.await.unwrap(), None);
    // What was refused because of the grant is a write again, which is refused now.
    assert_eq!(refused.await.unwrap_err().outcome(), Outcome::Unchanged);
}

/// The end that a beat came across is undone, and then the beat only renews.
#[tokio::test]
async fn beat_that_waited_for_a_lost_end_renews() {
    let world = World::new();
    let (a, b) = (world.join("a").await.unwrap(), world.join("b").await.unwrap());
    world.platter.hold(true);
    let mut leaving = Box::pin(world.leave(&a));
    assert!(poll(&mut leaving).await.is_none());
    let mut superseding = Box::pin(world.join("b"));
    assert!(poll(&mut superseding).await.is_none());
    let mut beats = [Box::pin(world.beat(&a, None)), Box::pin(world.beat(&b, None))];
    for beat in &mut beats {
        assert!(poll(beat).await.is_none());
    }
    world.platter.be(Luck::Full);
    world.platter.hold(false);
    for beat in beats {
        assert!(renewed(beat.await.unwrap()));
    }
    leaving.await.unwrap_err();
    superseding.await.unwrap_err();
}

#[tokio::test]
async fn heartbeat_that_waited_for_a_lost_end_is_recorded() {
    let world = World::new();
    let p = ProviderId::new("p").unwrap();
    let seat = world.ensure_tenures(&world.group, std::slice::from_ref(&p), s(10), true, Call::default());
    let tenure = seat.await.unwrap().remove(0).tenure;
    let puts = [Put::newer(MirrorEntry::Row(row("p", 1, Some(&tenure))))];
    world.put_providers(&world.group, &puts, Call::default()).await.unwrap();
    world.platter.hold(true);
    let mut leaving = Box::pin(world.leave(&tenure));
    assert!(poll(&mut leaving).await.is_none());
    let heartbeats = [Heartbeat::of(p)];
    let mut beating = Box::pin(world.heartbeat(&world.group, &heartbeats));
    assert!(poll(&mut beating).await.is_none());
    world.platter.be(Luck::Full);
    world.platter.hold(false);
    assert_eq!(beating.await.unwrap().replies, [HeartbeatReply::Recorded]);
    leaving.await.unwrap_err();
}

#[tokio::test]
async fn dead_members_read_dead_while_the_disk_is_full() {
    let world = World::new();
    let (a, b) = (world.join("a").await.unwrap(), world.join("b").await.unwrap());
    let gone = world.join("gone").await.unwrap();
    world.leave(&gone).await.unwrap();
    world.platter.be(Luck::Full);
    world.join("c").await.unwrap_err();
    for _ in 0..25 {
        world.serve(Duration::from_millis(500));
        assert!(renewed(world.beat(&b, None).await.unwrap()));
    }
    assert_eq!(world.is_alive(&a).await, Some(false));
    assert_eq!(world.is_alive(&b).await, Some(true));
    // A late beat needs a step, which is refused; it does not revive. The others of its batch are answered.
    assert_eq!(world.beat(&a, None).await.unwrap_err().outcome(), Outcome::Unchanged);
    let beats = [&a, &b, &gone].map(|tenure| Beat::of(tenure.clone()));
    let replies = MembershipStore::beat(&world, &world.group, &beats)
        .await
        .unwrap()
        .replies;
    assert_eq!(replies[0], BeatReply::Refused);
    assert!(renewed(replies[1]));
    assert_eq!(replies[2], BeatReply::Ended(EndReason::Left));
    assert_eq!(world.is_alive(&a).await, Some(false));
    world.platter.be(Luck::Good);
    assert_eq!(world.beat(&a, None).await.unwrap(), BeatReply::Ended(EndReason::Lapsed));
}

#[tokio::test]
async fn large_batch_tries_a_full_disk_once() {
    let world = World::new();
    let mut tenures = Vec::new();
    for n in 0..401 {
        tenures.push(world.join(&format!("dead-{n}")).await.unwrap());
    }
    world.platter.be(Luck::Full);
    world.join("late").await.unwrap_err();
    for _ in 0..25 {
        world.serve(Duration::from_millis(500));
        let _ = world.tick(&world.group).await;
    }
    let beats: Vec<Beat> = tenures.into_iter().map(Beat::of).collect();
    let before = world.platter.commits();
    let refused = MembershipStore::beat(&world, &world.group, &beats).await;
    assert_eq!(refused.unwrap_err().outcome(), Outcome::Unchanged);
    assert_eq!(world.platter.commits() - before, 1);
}

/// The beat that shows it would free the lease, which cannot be written; the holder stays alive all the same.
#[tokio::test]
async fn noticed_release_that_cannot_be_written_ends_no_holder() {
    let world = World::new();
    let (a, b) = (world.join("a").await.unwrap(), world.join("b").await.unwrap());
    let mut known = Revision(match world.acquire(&a, "l").await.unwrap() {
        AcquireOutcome::Granted { token, .. } => token.get(),
        other => panic!("{other:?}"),
    });
    let beat = async |revision| {
        let tenure = a.clone();
        let beats = [Beat {
            tenure,
            ttl: None,
            revision,
            seen: Revision::NONE,
        }];
        let beaten = MembershipStore::beat(&world, &world.group, &beats).await.unwrap();
        beaten.replies[0].renewed(&a).unwrap().1
    };
    known = beat(known).await;
    let l = LeaseName::new("l").unwrap();
    let revoked = world.revoke_lease(&world.group, &l, RevokeOf::Any, Call::default());
    assert_eq!(revoked.await.unwrap().free_when, FreeWhen::Noticed);
    let told = beat(known).await;
    assert!(told > known);
    world.platter.be(Luck::Full);
    world.join("c").await.unwrap_err();
    for _ in 0..25 {
        world.serve(Duration::from_millis(500));
        assert!(renewed(world.beat(&b, None).await.unwrap()));
        assert_eq!(beat(told).await, told);
    }
    assert_eq!(world.is_alive(&a).await, Some(true));
    assert_eq!(world.holder("l").await.unwrap(), Some(a.clone()));
    world.platter.be(Luck::Good);
    beat(told).await;
    let granted = world.acquire(&b, "l").await.unwrap();
    assert!(matches!(granted, AcquireOutcome::Granted { .. }), "{granted:?}");
}

/// The process stood still while the disk was full: the gap restarts every ttl, although it cannot be written.
#[tokio::test]
async fn gap_on_a_full_disk_refuses_no_beat() {
    let world = World::new();
    let (a, b) = (world.join("a").await.unwrap(), world.join("b").await.unwrap());
    world.platter.be(Luck::Full);
    world.join("c").await.unwrap_err();
    world.clock.advance(s(60));
    assert!(renewed(world.beat(&b, None).await.unwrap()));
    assert_eq!(world.is_alive(&a).await, Some(true));
    for _ in 0..21 {
        world.serve(Duration::from_millis(500));
        assert!(renewed(world.beat(&b, None).await.unwrap()));
    }
    assert_eq!(world.is_alive(&a).await, Some(false));
    // Without beats of the group too.
    world.serve(s(60));
    world.tick(&world.group).await.unwrap_err();
    assert_eq!(world.is_alive(&b).await, Some(true));
    for _ in 0..21 {
        world.serve(Duration::from_millis(500));
        let _ = world.tick(&world.group).await;
    }
    assert_eq!(world.is_alive(&b).await, Some(false));
    world.platter.be(Luck::Good);
    assert_eq!(world.beat(&b, None).await.unwrap(), BeatReply::Ended(EndReason::Lapsed));
}

#[tokio::test]
async fn tenure_whose_end_was_lost_stays_dead_at_its_deadline() {
    let world = World::new();
    let (a, b) = (world.join("a").await.unwrap(), world.join("b").await.unwrap());
    for _ in 0..25 {
        world.serve(Duration::from_millis(500));
        assert!(renewed(world.beat(&b, None).await.unwrap()));
    }
    world.platter.be(Luck::Full);
    // The step ends it, and is lost.
    world.beat(&a, None).await.unwrap_err();
    assert_eq!(world.is_alive(&a).await, Some(false));
    let unsettled = world.status(&world.group).await.unwrap().unsettled;
    assert_eq!(unsettled, None);
}

#[tokio::test]
async fn doubtful_commit_is_told_as_unknown_and_read_back() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    world.platter.be(Luck::Doubtful);
    assert_eq!(world.acquire(&a, "l").await.unwrap_err().outcome(), Outcome::Unknown);
    world.platter.be(Luck::Good);
    assert_eq!(world.holder("l").await.unwrap(), Some(a.clone()), "the disk has it");
    assert!(matches!(
        world.acquire(&a, "l").await.unwrap(),
        AcquireOutcome::Kept { .. }
    ));
}

#[tokio::test]
async fn panic_of_the_disk_is_a_doubtful_commit() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    world.platter.be(Luck::Panics);
    world.acquire(&a, "l").await.unwrap_err();
    world.platter.be(Luck::Good);
    assert_eq!(world.holder("l").await.unwrap(), None);
    assert!(matches!(
        world.acquire(&a, "l").await.unwrap(),
        AcquireOutcome::Granted { .. }
    ));
}

#[tokio::test]
async fn broken_disk_ends_all_service_for_good() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    world.platter.hold(true);
    let mut acquiring = Box::pin(world.acquire(&a, "l"));
    assert!(poll(&mut acquiring).await.is_none());
    world.platter.wait_for_commit();
    let mut reading = Box::pin(world.holder("l"));
    assert!(poll(&mut reading).await.is_none());
    let mut later = Box::pin(world.acquire(&a, "k"));
    assert!(poll(&mut later).await.is_none());
    let mut breaking = Box::pin(world.engine.until_broken());
    assert!(poll(&mut breaking).await.is_none());
    world.platter.be(Luck::Broken);
    world.platter.hold(false);
    assert_eq!(acquiring.await.unwrap_err().outcome(), Outcome::Unknown);
    reading.await.unwrap_err();
    assert_eq!(later.await.unwrap_err().outcome(), Outcome::Unchanged);
    world.platter.be(Luck::Good);
    let refused: Error = world.beat(&a, None).await.unwrap_err();
    assert!(refused.message().contains("sync"), "{refused}");
    world.acquire(&a, "l").await.unwrap_err();
    world.holder("l").await.unwrap_err();
    assert!(breaking.await.message().contains("sync"));
    assert!(matches!(world.health(), Health::Down { .. }));
    assert!(!world.platter.is_closed(), "nothing is written any more");
}

#[tokio::test]
async fn failed_sync_after_a_commit_ends_all_service() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    // The fault comes while this commit is under way, so it is not that of the commit before.
    world.platter.hold(true);
    let mut acquiring = Box::pin(world.acquire(&a, "l"));
    assert!(poll(&mut acquiring).await.is_none());
    world.platter.wait_for_commit();
    world.platter.be(Luck::BrokenLater);
    world.platter.hold(false);
    let durable = acquiring.await;
    assert!(durable.is_ok(), "its commit was durable: {durable:?}");
    assert!(world.engine.until_broken().await.message().contains("later sync"));
    world.holder("l").await.unwrap_err();
    world.beat(&a, None).await.unwrap_err();
}

#[tokio::test]
async fn panic_in_a_step_undoes_its_group_alone() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    let other = Group::new("other").unwrap();
    let shared = Arc::clone(&world.engine.shared);
    let ask = Op::End(crate::membership::End {
        tenure: a.clone(),
        by: EndBy::Expel,
        text: None,
    });
    let group = &world.group;
    let panics = shared.step::<()>(group, Call::default(), |model, now| {
        model.decide(&ask, Call::default(), now)?;
        panic!("on purpose");
    });
    assert_eq!(panics.await.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(world.is_alive(&a).await, Some(true));
    assert!(renewed(world.beat(&a, None).await.unwrap()));
    assert_eq!(world.tick(&other).await.unwrap().members, 0);
    assert_eq!(world.leave(&a).await.unwrap(), EndReason::Left);
    assert_eq!(world.health(), Health::Up);
}

#[tokio::test]
async fn group_whose_first_commit_failed_does_not_exist() {
    let world = World::new();
    world.platter.be(Luck::Full);
    world.join("a").await.unwrap_err();
    assert!(world.groups().await.unwrap().is_empty());
    let a = MemberId::new("a").unwrap();
    assert_eq!(world.member(&world.group, &a).await.unwrap(), None);
    world.platter.be(Luck::Good);
    world.join("a").await.unwrap();
    assert_eq!(world.groups().await.unwrap().len(), 1);
}

#[tokio::test]
async fn numbers_never_go_back_after_a_lost_commit() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    let before = world.acquire(&a, "l").await.unwrap();
    world.platter.be(Luck::Full);
    world.acquire(&a, "k").await.unwrap_err();
    world.platter.be(Luck::Good);
    let AcquireOutcome::Granted { token: first, .. } = before else {
        panic!("{before:?}")
    };
    let after = world.acquire(&a, "k").await.unwrap();
    let AcquireOutcome::Granted { token: second, .. } = after else {
        panic!("{after:?}")
    };
    assert!(second.get() > first.get() + 1, "the lost number is not used again");
}

#[tokio::test]
async fn too_long_a_backlog_refuses_changes_before_they_are_applied() {
    let world = World::new();
    let a = world.join("a").await.unwrap();
    let mut full = (0, 0);
    world.engine.shared.backlog.replace(&mut full, (1 << 30, 0));
    let refused = world.acquire(&a, "l").await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.outcome()),
        (ErrorKind::Unavailable, Outcome::Unchanged)
    );
    assert!(renewed(world.beat(&a, None).await.unwrap()));
    assert_eq!(world.holder("l").await.unwrap(), None);
    world.engine.shared.backlog.replace(&mut full, (0, 0));
    assert!(matches!(
        world.acquire(&a, "l").await.unwrap(),
        AcquireOutcome::Granted { .. }
    ));
}

/// A grace that is over cannot be ended while writes are refused; deadlines count all the same.
#[tokio::test]
async fn due_change_that_cannot_be_made_revives_no_member() {
    let world = World::new();
    let (a, b) = (world.join("a").await.unwrap(), world.join("b").await.unwrap());
    // A gap: everyone gets one ttl, and the group a grace of the same length.
    world.clock.advance(s(20));
    assert!(world.tick(&world.group).await.unwrap().unsettled.is_some());
    world.platter.be(Luck::Full);
    world.join("c").await.unwrap_err();
    for _ in 0..24 {
        world.serve(Duration::from_millis(500));
        // It is refused once the grace is over.
        let _ = world.tick(&world.group).await;
    }
    assert_eq!(
        (world.is_alive(&a).await, world.is_alive(&b).await),
        (Some(false), Some(false))
    );
}

#[tokio::test]
async fn lost_settling_ends_no_wait() {
    let world = World::new();
    world.platter.be(Luck::Full);
    world.settle(None, None, Call::default()).await.unwrap_err();
    world.platter.be(Luck::Good);
    world.settle(None, None, Call::default()).await.unwrap();
}
