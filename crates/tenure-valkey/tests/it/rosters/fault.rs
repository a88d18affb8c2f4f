//! Servers that refuse: no step is half done, and reads continue.

use std::time::Duration;

use tenure_core::StoreTime;
use tenure_core::error::{ErrorKind, Outcome};
use tenure_core::ledger::{RosterSettings, Version};
use tenure_core::roster::{Heartbeat, MirrorEntry, Overwrite, Put, RosterMirror, Task, TurnRequest};
use tenure_core::store::{Call, PageRequest};
use tenure_core::sweep::{BURST, ReconcileRequest};
use tenure_testkit::valkey::Flavour;
use tenure_valkey::ValkeyStore;

use crate::rosters::set_up::*;
use crate::world::*;

on_both! {
    full_memory_refuses_steps_but_not_reads,
    replica_refuses_steps_but_not_reads,
    revoked_permission_refuses_the_whole_step,
}

/// Every step that changes a roster, once; returns the errors.
async fn every_step(store: &ValkeyStore) -> Vec<tenure_core::Error> {
    let (group, call) = (group(), Call::default());
    let puts = [
        Put::newer(MirrorEntry::Row(row("new", 50, None))),
        Put::newer(gone("ann", 51)),
    ];
    let settings = RosterSettings {
        version: Version(9),
        ..RosterSettings::default()
    };
    let turn = TurnRequest {
        task: Task::Heartbeats,
        holder: "a".to_owned(),
        lasts: Duration::from_secs(1),
        every: Duration::ZERO,
    };
    let verify = ReconcileRequest { after: None, limit: 10 };
    let pending = store.pending_offline(&group, 10, true, call).await;
    let names = [provider("new"), provider("bob")];
    let results = [
        store.put_providers(&group, &puts, call).await.map(drop),
        store.ensure_tenures(&group, &names, STALE, true, call).await.map(drop),
        store
            .heartbeat(&group, &[Heartbeat::of(names[1].clone())])
            .await
            .map(drop),
        pending.map(drop),
        store
            .offline_done(&group, &["left@5".parse().unwrap()], call)
            .await
            .map(drop),
        store
            .put_roster_settings(&group, &settings, Overwrite::Older, call)
            .await
            .map(drop),
        store.retime(&group, 10, call).await.map(drop),
        store.take_turn(&group, &turn, call).await.map(drop),
        store.end_turn(&group, Task::Heartbeats, "a", true, call).await,
        store
            .mark_seeded(&group, StoreTime::from_micros(1), call)
            .await
            .map(drop),
        store.verify_roster(&group, &verify, call).await.map(drop),
    ];
    results.into_iter().filter_map(Result::err).collect()
}

async fn three_providers(world: &Rosters) {
    for (n, name) in ["ann", "bob", "left"].into_iter().enumerate() {
        let tenure = world.online(name, n as u64 + 1).await;
        if name == "left" {
            world.leave(&tenure).await;
        }
    }
    world.pass(BURST).await;
}

/// Every read, once.
async fn every_question(store: &ValkeyStore) {
    let (group, page) = (group(), PageRequest { after: None, limit: 10 });
    assert_eq!(store.available(&group, &page).await.unwrap().candidates.len(), 2);
    for _ in 0..2 {
        assert_eq!(store.availability(&group, Duration::ZERO).await.unwrap().count, 2);
    }
    let looked = store.look(&group, &[provider("ann")]).await.unwrap();
    assert!(looked.providers[0].as_ref().is_some_and(|seen| seen.is_available()));
    assert_eq!(store.rows(&group, &page).await.unwrap().rows.len(), 3);
    let stats = store.roster_stats(&group).await.unwrap();
    assert_eq!((stats.stats.available, stats.pending), (2, 1));
    assert_eq!(store.mirror_status(&group).await.unwrap().high, Version(3));
    assert_eq!(store.roster_settings(&group).await.unwrap(), None);
}

async fn full_memory_refuses_steps_but_not_reads(flavour: Flavour) {
    let world = Rosters::new(flavour).await;
    three_providers(&world).await;
    let before = dump(&world.server);
    world.run(&["CONFIG", "SET", "maxmemory", "1"]);
    let errors = every_step(&world.store).await;
    assert_eq!(errors.len(), 11);
    for error in errors {
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Unavailable, Outcome::Unchanged)
        );
        assert!(error.chain().contains("OOM"), "{error:?}");
    }
    every_question(&world.store).await;
    assert_eq!(dump(&world.server), before, "a refused step left something behind");
    world.run(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(every_step(&world.store).await.is_empty());
    assert!(world.verify(10).await.1.is_empty());
}

async fn replica_refuses_steps_but_not_reads(flavour: Flavour) {
    let world = Rosters::new(flavour).await;
    three_providers(&world).await;
    let replica = server(flavour, &[]);
    replica.replica_of(&world.server);
    // Otherwise no step would run: the store does not connect to a replica.
    let user = ["ACL", "SETUSER", "app", "on", ">s3cret", "~*", "+@all", "-role"];
    assert_eq!(replica.cli(&user).unwrap().text(), "OK");
    let url = format!("valkey://app:s3cret@{}", replica.addr());
    let store = open_at(&url).await;
    let before = dump(&replica);
    let errors = every_step(&store).await;
    assert!(!errors.is_empty());
    for error in errors {
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Unavailable, Outcome::Unchanged)
        );
    }
    assert_eq!(dump(&replica), before);
}

async fn revoked_permission_refuses_the_whole_step(flavour: Flavour) {
    let world = Rosters::new(flavour).await;
    let user = |rules: &[&str]| {
        let all = ["ACL", "SETUSER", "app", "reset", "on", ">s3cret", "~*", "+@all"];
        world.run(&[&all, rules].concat());
    };
    for denied in ["-hdel", "-zadd", "-zrem", "-srem"] {
        user(&[]);
        world.wipe().await;
        three_providers(&world).await;
        let mut busy = row("bob", 20, world.seen("bob").await.unwrap().row.online.as_ref());
        busy.occupancy = 2;
        world.put(MirrorEntry::Row(busy)).await;
        let store = open_at(&format!("valkey://app:s3cret@{}", world.server.addr())).await;
        until_up(&store).await;
        let since = store.mirror_status(&group()).await.unwrap().resumed_at;
        assert!(store.mark_seeded(&group(), since, Call::default()).await.unwrap());
        let before = dump(&world.server);
        user(&[denied]);
        // The step needs each of them: it leaves every list and enters one.
        let puts = [Put::newer(gone("ann", 30)), Put::newer(gone("bob", 31))];
        let error = store.put_providers(&group(), &puts, Call::default()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.outcome()),
            (ErrorKind::Denied, Outcome::Unchanged),
            "{denied}"
        );
        assert_eq!(dump(&world.server), before, "{denied} left something behind");
    }
}
