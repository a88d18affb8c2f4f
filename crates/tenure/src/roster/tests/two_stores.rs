//! Two hot stores and one ledger.

use tenure_core::ledger::Ledger;
use tenure_core::memory::MemoryStore;
use tenure_core::store::StoreOptions;

use super::world::{Instance, World, desk};
use super::*;
use crate::testing::{pass_until, secs};

/// A process whose hot store is another one with the same URL.
fn astray(world: &World) -> Instance {
    let process = world.start_sweeping();
    let other = MemoryStore::new(StoreOptions::default(), world.clock.clone());
    process.store.swap(other);
    process
}

async fn log_of(world: &World, process: &Instance) -> Vec<String> {
    world.pass(secs(1)).await;
    let page = PageRequest::new(None, 1_000).unwrap();
    let log = process.ledger.inside().log(&desk(), None, &page).await.unwrap();
    log.items
        .iter()
        .map(|entry| format!("{} {}", entry.provider, entry.change.as_str()))
        .collect()
}

#[tokio::test]
async fn a_second_hot_store_takes_no_provider_offline() {
    let world = World::new().await;
    let right = world.start_sweeping();
    world.until_believed(&right).await;
    right.arrive("ada").await;
    let tenure = world.row("ada").await.online;
    let wrong = astray(&world);
    for _ in 0..20 {
        assert_eq!(right.hear("ada").await, HeartbeatOutcome::Recorded(Source::Mirror));
        world.pass(secs(5)).await;
    }
    assert_eq!(world.row("ada").await.online, tenure);
    assert_eq!(log_of(&world, &right).await, ["ada online"]);
    let refusal = wrong.rosters.status().hot_store_refused.expect("it is refused");
    let both = wrong.rosters.hot_store().await.unwrap();
    let recorded = both.recorded.expect("a record").hot_store;
    assert_ne!(recorded.id, both.own.id);
    for part in [recorded.id.as_str(), both.own.id.as_str(), "--replace"] {
        assert!(refusal.contains(part), "{refusal}");
    }
    assert_eq!(right.rosters.status().hot_store_refused, None);
    // It serves from the ledger, and what it hears counts.
    assert_eq!(wrong.who().await, (vec!["ada".to_owned()], Source::Ledger));
    assert_eq!(wrong.hear("ada").await, HeartbeatOutcome::Recorded(Source::Ledger));
}

#[tokio::test]
async fn an_operator_replaces_the_hot_store() {
    let world = World::new().await;
    let old = world.start_sweeping();
    world.until_believed(&old).await;
    old.arrive("ada").await;
    let new = astray(&world);
    pass_until(&world.clock, "the new one is refused", secs(5), || {
        new.rosters.status().hot_store_refused.is_some()
    })
    .await;
    let done = new.rosters.replace_hot_store().await.unwrap();
    assert!(done.is_admitted());
    let moved = || old.rosters.status().hot_store_refused.is_some() && new.belief() == Belief::Mirror;
    pass_until(&world.clock, "the old one is refused", secs(20), moved).await;
    assert_eq!(old.hear("ada").await, HeartbeatOutcome::Recorded(Source::Ledger));
    assert_eq!(new.who().await, (vec!["ada".to_owned()], Source::Mirror));
    assert_eq!(log_of(&world, &new).await, ["ada online"]);
}

/// The store comes back empty at the same URL, and the process was restarted with it.
#[tokio::test]
async fn an_empty_store_is_adopted_once_the_lost_one_is_unconfirmed() {
    let world = World::new().await;
    let before = world.start_sweeping();
    world.until_believed(&before).await;
    before.arrive("ada").await;
    drop(before);
    let after = astray(&world);
    world.pass(secs(10)).await;
    assert!(after.rosters.status().hot_store_refused.is_some());
    assert_eq!(after.hear("ada").await, HeartbeatOutcome::Recorded(Source::Ledger));
    pass_until(&world.clock, "it is adopted", secs(20), || {
        after.rosters.status().hot_store_refused.is_none() && after.belief() == Belief::Mirror
    })
    .await;
    assert_eq!(after.who().await, (vec!["ada".to_owned()], Source::Mirror));
    assert_eq!(after.hear("ada").await, HeartbeatOutcome::Recorded(Source::Mirror));
    assert_eq!(log_of(&world, &after).await, ["ada online"]);
}

#[tokio::test]
async fn a_store_wiped_under_its_process_is_adopted_at_once() {
    let world = World::new().await;
    let process = world.start_sweeping();
    world.until_believed(&process).await;
    process.arrive("ada").await;
    let empty = MemoryStore::new(StoreOptions::default(), world.clock.clone());
    process.store.swap(empty);
    world.pass(secs(5)).await;
    assert_eq!(process.rosters.status().hot_store_refused, None);
    assert_eq!(process.who().await, (vec!["ada".to_owned()], Source::Mirror));
    assert_eq!(log_of(&world, &process).await, ["ada online"]);
}
