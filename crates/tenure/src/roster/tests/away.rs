//! During an outage of the hot store, and right after.

use tenure_core::error::ErrorKind;
use tenure_core::id::RosterName;
use tenure_core::ledger::Ledger;
use tenure_core::membership::MembershipStore;
use tenure_core::roster::Standing;
use tenure_core::store::Call;

use super::world::{Instance, Mode, World, desk, name};
use super::*;
use crate::testing::{ms, secs, settle};

#[tokio::test]
async fn writes_during_mirror_outage_are_mirrored_on_recovery() {
    let world = World::new().await;
    let process = world.running().await;
    process.arrive("ada").await;
    process.store.be(Mode::Fails);
    for n in 0..200 {
        assert!(!process.put(&format!("p{n}")).await.mirrored);
    }
    assert!(!process.go_online("p1").await.mirrored);
    assert_eq!(
        process.who().await,
        (vec!["ada".to_owned(), "p1".to_owned()], Source::Ledger)
    );
    let stats = process.desk.stats().await.unwrap();
    assert_eq!(
        (stats.source, stats.value.online, stats.value.dirty),
        (Source::Ledger, 2, 200)
    );
    world.pass(secs(6)).await;
    assert_eq!(process.rosters.status().rosters[0].dirty, 200);
    process.store.be(Mode::Up);
    world.until_believed(&process).await;
    settle().await;
    assert_eq!(world.dirty().await, 0);
    assert_eq!(process.rosters.status().rosters[0].dirty, 0);
    assert_eq!(
        process.who().await,
        (vec!["ada".to_owned(), "p1".to_owned()], Source::Mirror)
    );
    assert_eq!(process.desk.stats().await.unwrap().value.offline, 199);
}

#[tokio::test]
async fn deactivation_during_mirror_outage_survives_recovery() {
    let world = World::new().await;
    for mode in [Mode::Fails, Mode::Hangs] {
        let process = world.running().await;
        process.arrive("ada").await;
        process.store.be(mode);
        let desk = process.desk.clone();
        let deactivated = tokio::spawn(async move { desk.deactivate(&name("ada")).await.unwrap() });
        world.pass(ms(300)).await;
        assert!(!deactivated.await.unwrap().mirrored);
        assert_eq!(process.hear("ada").await, HeartbeatOutcome::Deactivated);
        assert!(matches!(
            process.desk.online(&name("ada")).await.unwrap(),
            Online::Deactivated(_)
        ));
        process.store.be(Mode::Up);
        assert_eq!(
            world.seen("ada").await.unwrap().standing,
            Standing::Alive,
            "the mirror has the old row"
        );
        assert_eq!(process.hear("ada").await, HeartbeatOutcome::Deactivated);
        world.until_believed(&process).await;
        assert_eq!(process.hear("ada").await, HeartbeatOutcome::Deactivated);
        assert_eq!(
            process.desk.admit(&name("ada"), None).await.unwrap(),
            Admission::Deactivated
        );
        process.desk.activate(&name("ada")).await.unwrap();
        process.desk.remove_provider(&name("ada")).await.unwrap();
    }
}

#[tokio::test]
async fn outboxes_are_counted_in_one_call_for_all_rosters() {
    let world = World::new().await;
    let process = world.running().await;
    process.store.be(Mode::Fails);
    for roster in ["desk", "east", "west"] {
        let roster = process.rosters.roster(&RosterName::new(roster).unwrap()).unwrap();
        for who in ["ada", "bob"] {
            roster.put_provider(&name(who), &ProviderSpec::default()).await.unwrap();
        }
    }
    world.pass(secs(6)).await;
    let counted = || (process.ledger.calls("stats"), process.ledger.calls("dirty_counts"));
    let before = counted();
    world.pass(secs(20)).await;
    let after = counted();
    assert_eq!(after.0, before.0, "no provider is counted for the outbox");
    assert!((3..=5).contains(&(after.1 - before.1)), "{after:?}");
    let dirty = process
        .rosters
        .status()
        .rosters
        .iter()
        .map(|roster| roster.dirty)
        .collect::<Vec<_>>();
    assert_eq!(dirty, [2, 2, 2]);
}

/// A tenure that never lapses would otherwise remain for years.
#[tokio::test]
async fn going_offline_during_mirror_outage_ends_membership() {
    let world = World::new().await;
    let process = world.running().await;
    let patch = SettingsPatch {
        require_heartbeat: Some(false),
        ..SettingsPatch::default()
    };
    assert!(process.desk.set_settings(&patch).await.unwrap().mirrored);
    for provider in ["ada", "bob", "eve"] {
        process.arrive(provider).await;
    }
    world.pass(secs(60)).await;
    process.store.be(Mode::Fails);
    assert!(!process.desk.offline(&name("ada")).await.unwrap().mirrored);
    assert!(!process.desk.deactivate(&name("bob")).await.unwrap().mirrored);
    process.store.be(Mode::Up);
    world.until_believed(&process).await;
    let members = world.memory_members().await;
    let alive = members.iter().filter(|member| member.alive);
    let alive: Vec<&str> = alive.map(|member| member.member.as_str()).collect();
    assert_eq!(alive, ["eve"]);
    assert_eq!(process.who().await, (vec!["eve".to_owned()], Source::Mirror));
}

#[tokio::test]
async fn write_of_a_cut_off_process_is_mirrored_within_a_second() {
    let world = World::new().await;
    let (cut_off, other) = (world.running().await, world.running().await);
    other.arrive("ada").await;
    cut_off.store.be(Mode::Fails);
    cut_off.desk.deactivate(&name("ada")).await.unwrap();
    world.pass(secs(1)).await;
    assert_eq!(other.hear("ada").await, HeartbeatOutcome::Deactivated);
    assert_eq!(other.who().await, (vec![], Source::Mirror));
}

#[tokio::test]
async fn drain_in_progress_does_not_cover_an_unsent_write() {
    let world = World::new().await;
    let process = world.running().await;
    process.arrive("ada").await;
    process.store.be(Mode::Fails);
    process.put("bob").await;
    // The loop reaches the mirror again and reads the outbox while a writer still considers it unreachable.
    let (inner, state) = (&process.desk.inner, &process.desk.state);
    let reach_epoch = state.mirror().trust().reach_epoch();
    process.desk.deactivate(&name("ada")).await.unwrap();
    state.mirror().trust().drained(reach_epoch, inner.clock().mono());
    process.store.be(Mode::Up);
    state.mirror().stamp().await.unwrap();
    assert_eq!(process.belief(), Belief::Ledger);
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Deactivated);
}

#[tokio::test]
async fn going_online_during_outage_gets_a_tenure_on_recovery() {
    let world = World::new().await;
    let process = world.running().await;
    process.put("ada").await;
    process.store.be(Mode::Fails);
    let written = process.go_online("ada").await;
    assert!(written.changed && !written.mirrored);
    let made_up = written.value.online.expect("the ledger made one up");
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Recorded(Source::Ledger));
    assert!(process.desk.is_reachable(&name("ada")).await.unwrap().value);
    process.store.be(Mode::Up);
    world.until_believed(&process).await;
    let row = world.row("ada").await;
    let seen = world.seen("ada").await.unwrap();
    assert_ne!(row.online.as_ref(), Some(&made_up));
    assert_eq!((seen.row.online, seen.standing), (row.online.clone(), Standing::Alive));
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Recorded(Source::Mirror));
    settle().await;
    assert_eq!(world.dirty().await, 0);
    // It was online throughout.
    let log = process.desk.log(None, &PageRequest::default()).await.unwrap();
    assert_eq!(log.items.len(), 1);
}

#[tokio::test]
async fn going_offline_before_recovery_gets_no_tenure() {
    let world = World::new().await;
    let process = world.running().await;
    process.put("ada").await;
    process.store.be(Mode::Fails);
    process.go_online("ada").await;
    process.desk.offline(&name("ada")).await.unwrap();
    process.store.be(Mode::Up);
    world.until_believed(&process).await;
    assert_eq!(world.seen("ada").await.unwrap().standing, Standing::Offline);
    assert!(world.memory_members().await.is_empty());
}

#[tokio::test]
async fn heartbeat_gives_a_missing_tenure() {
    let world = World::new().await;
    let process = world.running().await;
    process.put("ada").await;
    // The ledger generated a tenure, and the row reached the mirror without a seat.
    let ledger = process.ledger.inside();
    ledger.go_online(&desk(), &name("ada"), None).await.unwrap();
    let row = world.row("ada").await;
    let put = tenure_core::roster::Put::newer(tenure_core::roster::MirrorEntry::Row(row.clone()));
    world
        .memory
        .put_providers(&world.group, &[put], Call::default())
        .await
        .unwrap();
    world.clock.advance(ms(1));
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Recorded(Source::Mirror));
    assert_eq!(world.seen("ada").await.unwrap().standing, Standing::Alive);
    assert_ne!(world.row("ada").await.online, row.online);
}

#[tokio::test]
async fn heartbeats_during_outage_are_recorded_in_batches() {
    let world = World::new().await;
    let process = world.running().await;
    for who in ["ada", "bob", "cyd"] {
        process.arrive(who).await;
    }
    process.store.be(Mode::Fails);
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Recorded(Source::Ledger));
    for _ in 0..70 {
        for _ in 0..5 {
            assert_eq!(process.hear("ada").await, HeartbeatOutcome::Recorded(Source::Ledger));
        }
        world.pass(secs(1)).await;
        assert_eq!(process.hear("bob").await, HeartbeatOutcome::Recorded(Source::Ledger));
    }
    let written = process.ledger.calls("record_heartbeats");
    assert!((13..=16).contains(&written), "{written} in 70 s");
    // Every heartbeat counted as fresh at the start of the outage, which is more than 60 s ago.
    assert_eq!(
        process.who().await,
        (vec!["ada".to_owned(), "bob".to_owned()], Source::Ledger)
    );
    assert!(!process.desk.is_reachable(&name("cyd")).await.unwrap().value);
    assert_eq!(
        process.hear("cyd").await,
        HeartbeatOutcome::Recorded(Source::Ledger),
        "it is online, although it is stale"
    );
    world.pass(secs(6)).await;
    assert_eq!(process.who().await.0.len(), 3);
}

#[tokio::test]
async fn outage_makes_no_provider_stale_early() {
    let world = World::new().await;
    let process = world.running().await;
    process.arrive("ada").await;
    // The ledger's last heartbeat of it is old.
    for _ in 0..6 {
        world.pass(secs(20)).await;
        assert_eq!(process.hear("ada").await, HeartbeatOutcome::Recorded(Source::Mirror));
    }
    process.store.be(Mode::Fails);
    world.pass(secs(55)).await;
    assert_eq!(process.who().await, (vec!["ada".to_owned()], Source::Ledger));
    world.pass(secs(10)).await;
    assert_eq!(process.who().await, (vec![], Source::Ledger));
}

#[tokio::test]
async fn ledger_outage_fails_writes_but_not_heartbeats() {
    let world = World::new().await;
    let process = world.running().await;
    process.arrive("ada").await;
    process.put("bob").await;
    for mode in [Mode::Fails, Mode::Hangs] {
        process.ledger.be(mode);
        for _ in 0..4 {
            world.pass(secs(10)).await;
            assert_eq!(process.hear("ada").await, HeartbeatOutcome::Recorded(Source::Mirror));
        }
    }
    assert_eq!(process.who().await, (vec!["ada".to_owned()], Source::Mirror));
    process.ledger.be(Mode::Fails);
    let refused = process.desk.online(&name("bob")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    let member = world.memory.member(&world.group, &name("bob").member()).await.unwrap();
    assert!(
        member.is_none(),
        "a tenure that the ledger did not follow is taken back"
    );
    let refused = process.desk.deactivate(&name("ada")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert_eq!(process.belief(), Belief::Mirror);
    process.ledger.be(Mode::Up);
    assert!(process.go_online("bob").await.mirrored);
}

#[tokio::test]
async fn process_started_during_outage_answers_from_ledger() {
    let world = World::new().await;
    let before = world.running().await;
    before.arrive("ada").await;
    let process: Instance = world.start();
    process.store.be(Mode::Hangs);
    let desk = process.desk.clone();
    let reserved = tokio::spawn(async move { desk.reserve(&wanted("e1")).await.unwrap() });
    world.pass(secs(1)).await;
    assert!(matches!(reserved.await.unwrap(), Reservation::Reserved(written) if !written.mirrored));
    let counted = process.desk.availability().await.unwrap();
    assert_eq!((counted.value.count, counted.source), (1, Source::Ledger));
    process.store.be(Mode::Up);
    let status = || process.rosters.status().rosters[0].clone();
    world.pass(secs(2)).await;
    assert_ne!(
        status().belief,
        Belief::Mirror,
        "no reconcile since it started: the store may have lost data before"
    );
    world.until_believed(&process).await;
    assert_eq!(status().untrusted_for, None);
    assert_eq!(world.seen("ada").await.unwrap().row.occupancy, 1);
}
