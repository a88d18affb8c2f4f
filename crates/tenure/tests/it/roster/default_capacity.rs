//! The default capacity, changed under load.

use tenure::roster::{Reservation, Source};
use tenure_core::ledger::{Capacity, ProviderSpec, SettingsPatch};
use tenure_testkit::{postgres, valkey};

use crate::roster::world::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn default_capacity_applies_immediately_in_every_process() {
    let Some(valkey) = valkey::Server::start(valkey::Flavour::Valkey) else {
        return;
    };
    let Some(postgres) = postgres::shared() else {
        return;
    };
    let database = postgres.database();
    let here = Process::start("rooms", &valkey.url(), &database, undrained()).await;
    let there = Process::start("rooms", &valkey.url(), &database, undrained()).await;
    change_default(&[here, there]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn default_capacity_applies_immediately_in_files() {
    let dir = tempfile::tempdir().unwrap();
    let url = |file| format!("sqlite:{}", dir.path().join(file).display());
    let alone = Process::start("rooms", &url("store.db"), &url("ledger.db"), undrained()).await;
    change_default(&[alone]).await;
}

/// Only the call that fills the outbox drains it.
fn undrained() -> tenure::RostersSettings {
    tenure::RostersSettings {
        drain: secs(3_600),
        ..patient()
    }
}

fn default_capacity(capacity: u32) -> SettingsPatch {
    SettingsPatch {
        default_capacity: Some(capacity),
        ..SettingsPatch::default()
    }
}

async fn free(process: &Process, names: &[&str]) {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(process.free().await, (names, Source::Mirror));
}

async fn reserved(process: &Process, id: &str) -> Option<String> {
    match process.reserve(id).await.unwrap() {
        Reservation::Reserved(written) => written.value.engagement.provider.map(String::from),
        Reservation::NoneAvailable => None,
        Reservation::Conflict(there) => panic!("{there:?} is over"),
    }
}

async fn change_default(processes: &[Process]) {
    let (here, there) = (processes.first().unwrap(), processes.last().unwrap());
    let (ann, bob) = (name("ann"), name("bob"));
    here.roster.set_settings(&stale_after(secs(3_600))).await.unwrap();
    all_believe(processes).await;
    here.arrive(&ann, None).await;
    here.arrive(&bob, Some(1)).await;
    for (id, who) in [("e1", "ann"), ("e2", "bob")] {
        assert_eq!(reserved(there, id).await.as_deref(), Some(who));
    }
    assert_eq!(reserved(there, "e3").await, None);
    free(there, &[]).await;

    let written = here.roster.set_settings(&default_capacity(3)).await.unwrap();
    assert!(written.changed && written.mirrored);
    free(there, &["ann"]).await;
    assert_eq!(reserved(there, "e3").await.as_deref(), Some("ann"));

    let by_default = ProviderSpec {
        capacity: Capacity::Default,
        ..ProviderSpec::default()
    };
    let reset = there.roster.put_provider(&bob, &by_default).await.unwrap();
    assert!(reset.changed && reset.mirrored && reset.value.capacity == 3);
    free(here, &["bob", "ann"]).await;

    there.roster.set_settings(&default_capacity(1)).await.unwrap();
    free(here, &[]).await;
    assert_eq!(reserved(here, "e4").await, None);
    let row = here.row(&ann).await;
    assert_eq!((row.capacity, row.occupancy), (1, 2), "existing engagements stay");
}
