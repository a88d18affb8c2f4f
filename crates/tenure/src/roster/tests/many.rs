//! Many concurrent calls.

use tenure_core::id::RosterName;
use tenure_core::ledger::Ledger;
use tokio::task::JoinHandle;

use super::world::{Mode, World, desk};
use super::*;
use crate::testing::{ms, pass_until, secs, settle};

fn read_many(roster: &Roster, count: usize) -> Vec<JoinHandle<tenure_core::error::Result<Source>>> {
    let read = |n: usize| {
        let desk = roster.clone();
        tokio::spawn(async move {
            Ok(match n % 4 {
                0 => desk.available(50).await?.source,
                1 => desk.availability().await?.source,
                2 => desk.stats().await?.source,
                _ => desk.provider(&name(&format!("p{}", n % 40))).await?.source,
            })
        })
    };
    (0..count).map(read).collect()
}

#[tokio::test]
async fn hung_mirror_reads_coalesce_onto_ledger() {
    let world = World::new().await;
    let process = world.running().await;
    for n in 0..40 {
        process.put(&format!("p{n}")).await;
    }
    settle().await;
    process.ledger.take(ms(2));
    process.store.be(Mode::Hangs);
    let reads = read_many(&process.desk, 5_000);
    world.pass(secs(1)).await;
    for read in reads {
        assert!(read.is_finished(), "within a second");
        assert_eq!(read.await.unwrap().unwrap(), Source::Ledger);
    }
    assert!(process.ledger.most() <= 10, "{} at once", process.ledger.most());
    assert!(
        process.ledger.calls("provider") <= 80,
        "{}",
        process.ledger.calls("provider")
    );
    assert!(process.ledger.calls("available") <= 4);
    assert!(process.ledger.calls("stats") <= 6);
    // Later calls do not wait for the mirror.
    let started = world.now();
    let reads = read_many(&process.desk, 1_000);
    world.pass(ms(100)).await;
    for read in reads {
        assert!(read.is_finished());
        read.await.unwrap().unwrap();
    }
    assert!(world.now().since(started) <= ms(100));
}

#[tokio::test]
async fn reads_fail_in_time_when_both_stores_hang() {
    let world = World::new().await;
    let process = world.running().await;
    process.store.be(Mode::Hangs);
    process.ledger.be(Mode::Hangs);
    let reads = read_many(&process.desk, 5_000);
    world.pass(secs(1)).await;
    for read in reads {
        assert!(read.is_finished(), "within a second");
        let refused = read.await.unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
    }
    process.ledger.be(Mode::Up);
    process.store.be(Mode::Up);
    world.until_believed(&process).await;
}

#[tokio::test]
async fn ledger_counts_are_cached_for_a_second() {
    let world = World::new().await;
    let process = world.running().await;
    process.arrive("ada").await;
    process.store.be(Mode::Fails);
    process.who().await;
    let before = process.ledger.calls("stats");
    for _ in 0..3 {
        for _ in 0..100 {
            assert_eq!(process.desk.availability().await.unwrap().value.count, 1);
        }
        world.pass(secs(1)).await;
    }
    // The sync loop counts the outbox as well.
    let made = process.ledger.calls("stats") - before;
    assert!((3..=5).contains(&made), "{made}");
}

#[tokio::test]
async fn two_processes_reserve_every_place_once() {
    let world = World::new().await;
    let processes = [world.running().await, world.running().await];
    for n in 0..15 {
        processes[0].arrive(&format!("p{n}")).await;
    }
    let reserve = |n: usize| {
        let desk = processes[n % 2].desk.clone();
        tokio::spawn(async move { desk.reserve(&wanted(&format!("e{n}"))).await.unwrap() })
    };
    let reserves: Vec<_> = (0..100).map(reserve).collect();
    world.pass(ms(10)).await;
    let mut reserved = 0;
    for reserve in reserves {
        match reserve.await.unwrap() {
            Reservation::Reserved(_) => reserved += 1,
            Reservation::NoneAvailable => {}
            Reservation::Conflict(there) => panic!("{there:?}"),
        }
    }
    assert_eq!(reserved, 30, "fifteen with a capacity of two");
    let (roster, all) = (desk(), PageRequest::default());
    let rows = processes[0]
        .ledger
        .inside()
        .providers(&roster, None, &all)
        .await
        .unwrap();
    assert!(rows.items.iter().all(|row| row.occupancy == 2));
    assert_eq!(processes[1].who().await, (vec![], Source::Mirror));
}

#[tokio::test]
async fn hung_mirror_heartbeats_fall_back_to_ledger_in_time() {
    let world = World::new().await;
    let process = world.running().await;
    for n in 0..2_000 {
        process.arrive(&format!("p{n}")).await;
    }
    settle().await;
    process.ledger.take(ms(1));
    process.store.be(Mode::Hangs);
    let hear = |n: usize| {
        let desk = process.desk.clone();
        tokio::spawn(async move { desk.heartbeat(&name(&format!("p{n}")), None).await })
    };
    let heard: Vec<_> = (0..2_000).map(hear).collect();
    world.pass(secs(1)).await;
    for heard in heard {
        assert!(heard.is_finished(), "within a second");
        assert_eq!(
            heard.await.unwrap().unwrap(),
            HeartbeatOutcome::Recorded(Source::Ledger)
        );
    }
}

#[tokio::test]
async fn unverifiable_heartbeat_is_refused_but_keeps_the_tenure() {
    let world = World::new().await;
    let process = world.running().await;
    process.arrive("ada").await;
    process.store.be(Mode::Fails);
    process.ledger.be(Mode::Fails);
    let refused = process.desk.heartbeat(&name("ada"), None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    process.store.be(Mode::Up);
    for _ in 0..4 {
        world.pass(secs(30)).await;
        let refused = process.desk.heartbeat(&name("ada"), None).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "whether it may act is unknown");
    }
    let seen = world.seen("ada").await.unwrap();
    assert_eq!(seen.standing, Standing::Alive);
    process.ledger.be(Mode::Up);
    world.until_believed(&process).await;
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Recorded(Source::Mirror));
}

#[tokio::test]
async fn idle_rosters_share_one_statement_a_second() {
    let world = World::new().await;
    let process = world.start_sweeping();
    let inside = process.ledger.inside();
    let idle = |n: usize| RosterName::new(format!("idle-{n:02}")).unwrap();
    for n in 0..20 {
        let (ann, spec) = (name("ann"), ProviderSpec::default());
        let put = inside.put_provider(&idle(n), &ann, &spec).await;
        put.unwrap();
    }
    let believed = || {
        let rosters = process.rosters.status().rosters;
        rosters.len() == 21
            && rosters
                .iter()
                .all(|roster| roster.belief == Belief::Mirror && roster.dirty == 0)
    };
    pass_until(&world.clock, "all mirrors are believed", secs(20), believed).await;
    // Each sweep has made a visit.
    world.pass(secs(70)).await;
    let before = process.ledger.total();
    world.pass(secs(60)).await;
    let made = process.ledger.total() - before;
    assert!((40..=60).contains(&made), "{made} statements in a minute");

    let patch = SettingsPatch {
        stale_after: Some(secs(20)),
        ..SettingsPatch::default()
    };
    inside.set_settings(&idle(7), &patch).await.unwrap();
    world.pass(ms(1_400)).await;
    let seen = process.rosters.roster(&idle(7)).unwrap().state.settings().unwrap();
    assert_eq!(seen.stale_after, secs(20), "a change is still noticed");
}

/// Another program takes many online: their tenures are unknown to the hot store, and every process reads the outbox.
#[tokio::test]
async fn bulk_edits_cost_each_process_few_reads() {
    let world = World::new().await;
    let (one, two) = (world.running().await, world.running().await);
    for n in 0..300 {
        one.put(&format!("p{n}")).await;
    }
    world.pass(secs(3)).await;
    let before = [one.ledger.total(), two.ledger.total()];
    for n in 0..300 {
        let edited = one
            .ledger
            .inside()
            .go_online(&desk(), &name(&format!("p{n}")), None)
            .await;
        edited.unwrap();
    }
    world.pass(secs(5)).await;
    assert_eq!(world.dirty().await, 0);
    for (process, before) in [&one, &two].into_iter().zip(before) {
        let calls = process.ledger.total() - before;
        assert!(calls < 60, "{calls} calls for 300 rows");
        assert_eq!(process.who().await.0.len(), 100, "a page of them");
    }
}
