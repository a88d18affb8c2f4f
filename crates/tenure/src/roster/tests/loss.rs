//! A hot store that lost all its data, or the end of it.

use tenure_core::id::RosterName;
use tenure_core::ledger::{Ledger, Provider, RosterSettings, Version};
use tenure_core::memory::MemoryStore;
use tenure_core::roster::{MirrorEntry, Overwrite, Put, RosterMirror, Standing};
use tenure_core::store::{Call, StoreOptions};

use super::super::trust::ReconcileReason;
use super::world::{Instance, Mode, World, desk, name};
use super::*;
use crate::testing::{pass_until, secs, settle};

/// A reconcile, as far as these tests need it.
async fn fill(process: &Instance) {
    let (inner, state) = (&process.desk.inner, &process.desk.state);
    let (roster, all) = (desk(), PageRequest::new(None, 1_000).unwrap());
    let rows = process.ledger.inside().providers(&roster, None, &all).await.unwrap();
    let puts: Vec<Put> = rows.items.into_iter().map(MirrorEntry::Row).map(Put::newer).collect();
    inner.put_rows(state, &puts).await.unwrap();
    let mirror = state.mirror();
    let api = mirror.api().unwrap();
    let since = api.mirror_status(mirror.group()).await.unwrap().resumed_at;
    assert!(api.mark_seeded(mirror.group(), since, Call::default()).await.unwrap());
}

#[tokio::test]
async fn store_that_lost_its_data_is_untrusted_until_filled() {
    let world = World::new().await;
    let process = world.running().await;
    process.arrive("ada").await;
    let before = world.row("ada").await;
    let empty = MemoryStore::new(StoreOptions::default(), world.clock.clone());
    process.store.swap(empty.clone());
    // The first answer reveals the loss.
    assert_eq!(process.who().await, (vec!["ada".to_owned()], Source::Ledger));
    assert_eq!(process.belief(), Belief::Seeding);
    assert!(process.rosters.status().is_seeding());
    assert_eq!(process.desk.state.reconcile_reason(), Some(ReconcileReason::Seed));
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Recorded(Source::Ledger));
    assert!(process.put("bob").await.mirrored, "writes still reach it");
    world.pass(secs(3)).await;
    assert_eq!(process.belief(), Belief::Seeding, "a drained outbox fills nothing");
    fill(&process).await;
    assert_eq!(
        process.who().await.1,
        Source::Ledger,
        "the reply to this read shows that it is filled"
    );
    world.until_believed(&process).await;
    assert_eq!(process.who().await, (vec!["ada".to_owned()], Source::Mirror));
    let row = world.row("ada").await;
    assert_ne!(row.online, before.online, "the ledger has followed");
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Recorded(Source::Mirror));
}

#[tokio::test]
async fn store_that_lost_its_tail_is_untrusted_until_own_reconcile() {
    let world = World::new().await;
    let process = world.running().await;
    process.arrive("ada").await;
    // A lagging replica: it has everything up to here and nothing later.
    let replica = MemoryStore::new(StoreOptions::default(), world.clock.clone());
    process.store.swap(replica.clone());
    fill(&process).await;
    process.store.swap(world.memory.clone());
    process
        .desk
        .state
        .reconciled(&world.memory.mirror_status(&world.group).await.unwrap(), 0, world.now());
    world.until_believed(&process).await;
    process.desk.deactivate(&name("ada")).await.unwrap();
    settle().await;
    assert_eq!(world.dirty().await, 0, "the outbox does not contain it");

    process.store.swap(replica.clone());
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Deactivated);
    assert_eq!(
        (process.belief(), process.desk.state.reconcile_reason()),
        (Belief::Ledger, Some(ReconcileReason::Own))
    );
    // Newer versions do not restore the lost rows.
    process.put("bob").await;
    world.pass(secs(2)).await;
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Deactivated);
    assert_eq!(process.belief(), Belief::Ledger);
    fill(&process).await;
    let stamp = replica.mirror_status(&world.group).await.unwrap();
    process.desk.state.reconciled(&stamp, 1, world.now());
    assert_eq!(process.belief(), Belief::Mirror);
    assert_eq!(process.rosters.status().rosters[0].divergence, Some(1));
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Deactivated);
}

#[tokio::test]
async fn recovered_store_requests_one_reconcile() {
    let world = World::new().await;
    let process = world.start();
    pass_until(&world.clock, "at the start, too", secs(2), || {
        matches!(process.desk.state.reconcile_reason(), Some(ReconcileReason::Since(_)))
    })
    .await;
    let stamp = world.memory.mirror_status(&world.group).await.unwrap();
    process.desk.state.reconciled(&stamp, 0, world.now());
    assert_eq!(process.desk.state.reconcile_reason(), None);
    process.store.be(Mode::Fails);
    world.pass(secs(2)).await;
    assert_eq!(process.desk.state.reconcile_reason(), None);
    process.store.be(Mode::Up);
    pass_until(&world.clock, "a reconcile is requested", secs(2), || {
        process.desk.state.reconcile_reason().is_some()
    })
    .await;
    process
        .desk
        .state
        .last_reconciled(world.memory_now().await + secs(1), world.now());
    assert_eq!(process.desk.state.reconcile_reason(), None);
}

#[tokio::test]
async fn heartbeat_restores_a_provider_missing_from_the_mirror() {
    let world = World::new().await;
    let process = world.running().await;
    process.arrive("ada").await;
    let gone = MirrorEntry::Gone {
        provider: name("ada"),
        version: world.row("ada").await.version,
    };
    let over = tenure_core::roster::Overwrite::Exactly(gone.version());
    world
        .memory
        .put_providers(&world.group, &[Put { entry: gone, over }], Call::default())
        .await
        .unwrap();
    assert_eq!(
        process.hear("ada").await,
        HeartbeatOutcome::Recorded(Source::Ledger),
        "a removal of the same version wins in the mirror; the ledger answers"
    );
    process.put("bob").await;
    let ledger = process.ledger.inside();
    ledger.go_online(&desk(), &name("bob"), None).await.unwrap();
    assert!(world.seen("bob").await.is_some());
    assert_eq!(
        process.hear("bob").await,
        HeartbeatOutcome::Offline,
        "until its row arrives"
    );
    world.pass(secs(1)).await;
    assert_eq!(process.hear("bob").await, HeartbeatOutcome::Recorded(Source::Mirror));
    assert_eq!(world.seen("bob").await.unwrap().standing, Standing::Alive);
}

/// M6: half of a ledger does not show which providers are missing.
#[tokio::test]
async fn interrupted_reconcile_removes_nothing() {
    let world = World::new().await;
    let process = world.start_sweeping();
    world.until_believed(&process).await;
    let (roster, spec, page) = (desk(), ProviderSpec::default(), tenure_core::store::MAX_PAGE);
    for n in 0..page + 5 {
        let provider = name(&format!("p{n:05}"));
        let put = process.ledger.inside().put_provider(&roster, &provider, &spec);
        put.await.unwrap();
    }
    let lost = MemoryStore::new(StoreOptions::default(), world.clock.clone());
    let known = world.row("p00000").await;
    let strays = ["x1", "x2", "x3"].map(|stray| {
        Put::newer(MirrorEntry::Row(Provider {
            provider: name(stray),
            ..known.clone()
        }))
    });
    lost.put_providers(&world.group, &strays, Call::default())
        .await
        .unwrap();
    let there = async || {
        let looked = lost.look(&world.group, &["x1", "x2", "x3"].map(name)).await.unwrap();
        looked.providers.into_iter().flatten().count()
    };

    process.ledger.trip(Some("providers"));
    process.store.swap(lost.clone());
    let before = process.ledger.calls("providers");
    pass_until(&world.clock, "it was interrupted twice", secs(30), || {
        process.ledger.calls("providers") >= before + 4
    })
    .await;
    assert_eq!(there().await, 3, "nothing is removed");
    assert!(
        !lost.mirror_status(&world.group).await.unwrap().seeded,
        "nor is it filled"
    );
    assert_eq!(process.belief(), Belief::Seeding);

    process.ledger.trip(None);
    pass_until(&world.clock, "it is believed again", secs(60), || {
        process.belief() == Belief::Mirror
    })
    .await;
    assert_eq!(there().await, 0, "now they are");
}

/// Gives the mirror a row that is newer than the ledger's, as after a restored backup of the ledger.
async fn ahead(world: &World) -> Version {
    let ahead = Version(world.row("ada").await.version.0 + 1_000);
    let there = world.seen("ada").await.unwrap().row;
    let row = Provider {
        version: ahead,
        ..there
    };
    let put = [Put::newer(MirrorEntry::Row(row))];
    world
        .memory
        .put_providers(&world.group, &put, Call::default())
        .await
        .unwrap();
    ahead
}

#[tokio::test]
async fn deactivation_by_a_restored_ledger_wins() {
    let world = World::new().await;
    let process = world.running().await;
    process.arrive("ada").await;
    ahead(&world).await;
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Recorded(Source::Mirror));
    assert!(process.desk.deactivate(&name("ada")).await.unwrap().mirrored);
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Deactivated);
    assert_eq!(
        world.seen("ada").await.unwrap().row.version,
        world.row("ada").await.version
    );
    settle().await;
    assert_eq!(world.dirty().await, 0);
}

#[tokio::test]
async fn removal_by_a_restored_ledger_wins() {
    let world = World::new().await;
    let process = world.running().await;
    process.put("ada").await;
    ahead(&world).await;
    process.desk.remove_provider(&name("ada")).await.unwrap();
    assert_eq!(world.seen("ada").await, None);
}

#[tokio::test]
async fn settings_of_a_restored_ledger_win() {
    let world = World::new().await;
    let (one, two) = (world.running().await, world.running().await);
    let newest = RosterSettings {
        stale_after: secs(77),
        version: Version(world.settings().await.version.0 + 1_000),
        ..RosterSettings::default()
    };
    let put = world
        .memory
        .put_roster_settings(&world.group, &newest, Overwrite::Older, Call::default());
    assert!(put.await.unwrap());
    world.pass(secs(2)).await;
    let obeyed = async |process: &Instance| process.desk.settings().await.unwrap().value.stale_after;
    assert_eq!((obeyed(&one).await, obeyed(&two).await), (secs(77), secs(77)));
    let patch = SettingsPatch {
        stale_after: Some(secs(33)),
        ..SettingsPatch::default()
    };
    assert!(one.desk.set_settings(&patch).await.unwrap().mirrored);
    assert_eq!(obeyed(&one).await, secs(33));
    world.pass(secs(2)).await;
    assert_eq!(obeyed(&two).await, secs(33));
    let there = world.memory.roster_settings(&world.group).await.unwrap().unwrap();
    assert_eq!(there.stale_after, secs(33));
}

/// Invented names cannot displace rosters that the ledger has.
#[tokio::test]
async fn known_roster_displaces_unknown_names_at_the_limit() {
    let world = World::new().await;
    let process = world.running().await;
    let most = RostersSettings::default().max_rosters;
    for n in 0..most {
        let made_up = RosterName::new(format!("made-up-{n}")).unwrap();
        if process.rosters.roster(&made_up).is_err() {
            break;
        }
    }
    let real = RosterName::new("real").unwrap();
    assert!(process.rosters.roster(&real).is_err(), "it is full");
    let (ada, spec) = (name("ada"), ProviderSpec::default());
    let put = process.ledger.inside().put_provider(&real, &ada, &spec);
    put.await.unwrap();
    pass_until(&world.clock, "it is served", secs(60), || {
        process.rosters.roster(&real).is_ok()
    })
    .await;
}
