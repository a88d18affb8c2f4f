//! The lifecycle of a roster, from the first provider to the last, on both pairs of stores.

use std::time::Duration;

use tenure::roster::{Admission, EngagementAnswer, HeartbeatOutcome, Online, Removal, Reservation, Source};
use tenure::{EndReason, ErrorKind, PageRequest, ProviderId, StoreTime};
use tenure_core::ledger::{
    Change, EngagementChange, Expiry, Move, NewEngagement, ProviderSpec, ProviderState, Reason, Reassign,
    SettingsPatch, Status,
};
use tenure_testkit::wait::until_async;
use tenure_testkit::{postgres, valkey};

use crate::roster::world::*;

/// Twenty heartbeats long, so that no provider lapses during a short stall of the machine.
const STALE: Duration = secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roster_lifecycle_on_valkey_and_postgres() {
    let Some(valkey) = valkey::Server::start(valkey::Flavour::Valkey) else {
        return;
    };
    let Some(postgres) = postgres::shared() else {
        return;
    };
    let database = postgres.database();
    let here = Process::start("life", &valkey.url(), &database, patient()).await;
    let there = Process::start("life", &valkey.url(), &database, patient()).await;
    live(&[here, there]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roster_lifecycle_in_files() {
    let dir = tempfile::tempdir().unwrap();
    let url = |file| format!("sqlite:{}", dir.path().join(file).display());
    let alone = Process::start("life", &url("store.db"), &url("ledger.db"), patient()).await;
    live(&[alone]).await;
}

/// Where there are two processes, changes through one are read through the other.
async fn live(processes: &[Process]) {
    let (here, there) = (processes.first().unwrap(), processes.last().unwrap());
    begin(here, there).await;
    all_believe(processes).await;
    seed(here, there).await;
    let beats = Beats::of(processes, [], STALE / 20);
    come_and_go(here, there, &beats).await;
    shut_out_and_let_in(here, there).await;
    engage(here, there, &beats).await;
    reserve(here, there, &beats).await;
    list(here, there).await;
    change_the_rules(here, there).await;
    remove(here, there).await;
    drop(beats);
    here.until_they_agree().await;
    until_async("the outbox is empty", PATIENCE, async || {
        here.ledger.dirty(&here.name, 10).await.unwrap().is_empty()
    })
    .await;
}

async fn begin(here: &Process, there: &Process) {
    let patch = SettingsPatch {
        default_capacity: Some(2),
        stale_after: Some(STALE),
        snapshot: Some(ms(500)),
        ..SettingsPatch::default()
    };
    let written = here.roster.set_settings(&patch).await.unwrap();
    assert!(written.changed && written.value.default_capacity == 2);
    obeyed(there, here).await;
    let again = here.roster.set_settings(&patch).await.unwrap();
    assert!(!again.changed && again.value == written.value);
    let refused = here.roster.set_settings(&stale_after(ms(10))).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

/// Both processes apply the same settings.
async fn obeyed(there: &Process, here: &Process) {
    let settings = here.roster.settings().await.unwrap().value;
    until_async("the settings are applied", PATIENCE, async || {
        there.roster.settings().await.unwrap().value == settings
    })
    .await;
}

/// Rows that the ledger had before, or receives from elsewhere, reach the mirror.
async fn seed(here: &Process, there: &Process) {
    let (old, spec) = (name("old"), ProviderSpec::default());
    let put = here.ledger.put_provider(&here.name, &old, &spec);
    put.await.unwrap();
    until_async("the mirror has it", PATIENCE, async || {
        let seen = there.roster.provider(&old).await.unwrap();
        seen.source == Source::Mirror && seen.value.is_some_and(|view| !view.reachable)
    })
    .await;
}

async fn counts(process: &Process, free: u64) {
    until_async("they are counted", PATIENCE, async || {
        let counted = process.roster.availability().await.unwrap();
        assert_eq!((counted.source, counted.value.complete), (Source::Mirror, true));
        counted.value.count == free
    })
    .await;
}

async fn free_in_mirror(process: &Process, names: &[&str]) {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(process.free().await, (names, Source::Mirror));
}

async fn told(process: &Process, who: &ProviderId) -> Vec<(Change, Reason)> {
    let log = process.log().await.into_iter();
    log.filter(|entry| entry.provider == *who)
        .map(|entry| (entry.change, entry.reason))
        .collect()
}

async fn come_and_go(here: &Process, there: &Process, beats: &Beats) {
    let (ada, bob, cyd) = (name("ada"), name("bob"), name("cyd"));
    let written = here.put(&ada, None).await;
    assert!(written.changed && written.mirrored && written.value.capacity == 2);
    assert!(!here.put(&ada, None).await.changed);
    assert_eq!(there.hear(&ada).await, HeartbeatOutcome::Offline);
    assert_eq!(there.hear(&name("nobody")).await, HeartbeatOutcome::Unknown);
    let unknown = there.roster.is_reachable(&name("nobody")).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    let unknown = there.roster.online(&name("nobody")).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);

    let online = here.go_online(&ada).await;
    assert!(online.changed && online.mirrored);
    let view = there.roster.provider(&ada).await.unwrap();
    assert_eq!(view.source, Source::Mirror);
    let view = view.value.unwrap();
    assert!(view.reachable && view.is_available() && view.row.last_heartbeat_at.is_some());
    assert!(there.roster.is_reachable(&ada).await.unwrap().value);
    assert_eq!(there.hear(&ada).await, HeartbeatOutcome::Recorded(Source::Mirror));
    beats.add(&ada);
    free_in_mirror(there, &["ada"]).await;
    counts(there, 1).await;

    here.arrive(&bob, Some(1)).await;
    counts(there, 2).await;
    let gone = there.roster.offline(&bob).await.unwrap();
    assert!(gone.changed && gone.mirrored && gone.value.online.is_none());
    assert_eq!(here.hear(&bob).await, HeartbeatOutcome::Offline);
    counts(here, 1).await;

    // This provider sends no more heartbeats.
    there.arrive(&cyd, None).await;
    until_async("the ledger has it offline", PATIENCE, async || {
        breathe().await;
        here.row(&cyd).await.online.is_none()
    })
    .await;
    until_async("the mirror has the row", PATIENCE, async || {
        let view = there.roster.provider(&cyd).await.unwrap().value.unwrap();
        !view.reachable && view.row.online.is_none()
    })
    .await;
    let row = here.row(&cyd).await;
    assert!(row.active && row.last_heartbeat_at.is_some() && row.last_heartbeat_at < row.last_offline_at);
    assert_eq!(there.hear(&cyd).await, HeartbeatOutcome::Offline);
    let lapsed = (Change::Offline, Reason::Ended(EndReason::Lapsed));
    assert_eq!(told(here, &cyd).await, [(Change::Online, Reason::Asked), lapsed]);
    free_in_mirror(there, &["ada"]).await;
}

async fn shut_out_and_let_in(here: &Process, there: &Process) {
    let ada = name("ada");
    let shut = here.roster.deactivate(&ada).await.unwrap();
    assert!(shut.changed && shut.mirrored && !shut.value.active && shut.value.online.is_none());
    for _ in 0..50 {
        assert_eq!(there.hear(&ada).await, HeartbeatOutcome::Deactivated);
        assert_eq!(here.hear(&ada).await, HeartbeatOutcome::Deactivated);
    }
    for process in [here, there] {
        let refused = process.roster.online(&ada).await.unwrap();
        assert!(matches!(refused, Online::Deactivated(_)), "{refused:?}");
        let admitted = process.roster.admit(&ada, None).await.unwrap();
        assert_eq!(admitted, Admission::Deactivated);
        free_in_mirror(process, &[]).await;
    }
    assert!(!here.row(&ada).await.active, "no heartbeat makes it active");
    assert!(!there.roster.deactivate(&ada).await.unwrap().changed);

    let back = there.roster.activate(&ada).await.unwrap();
    assert!(back.changed && back.value.active && back.value.online.is_none());
    assert_eq!(
        here.hear(&ada).await,
        HeartbeatOutcome::Offline,
        "it must go online itself"
    );
    here.go_online(&ada).await;
    let (old, new) = (StoreTime::from_micros(1), here.ledger.now().await.unwrap());
    for process in [here, there] {
        let heard = process.roster.heartbeat(&ada, Some(old)).await.unwrap();
        assert_eq!(heard, HeartbeatOutcome::Revoked);
        let heard = process.roster.heartbeat(&ada, Some(new)).await.unwrap();
        assert_eq!(heard, HeartbeatOutcome::Recorded(Source::Mirror));
        let admitted = process.roster.admit(&ada, Some(old)).await.unwrap();
        assert_eq!(admitted, Admission::Revoked);
        let admitted = process.roster.admit(&ada, Some(new)).await.unwrap();
        assert_eq!(admitted, Admission::Admitted);
    }
    let asked = (Change::Online, Reason::Asked);
    let expected = [
        asked,
        (Change::Deactivated, Reason::Operator),
        (Change::Offline, Reason::Deactivated),
        (Change::Activated, Reason::Operator),
        asked,
    ];
    assert_eq!(told(here, &ada).await, expected);
}

fn done(answer: EngagementAnswer) -> EngagementChange {
    match answer {
        EngagementAnswer::Done(written) => {
            assert!(written.mirrored, "{written:?}");
            written.value
        }
        EngagementAnswer::Conflict(there) => panic!("{there:?} is in the way"),
    }
}

async fn moved(process: &Process, id: &str, to: Move) -> EngagementChange {
    let moved = process.roster.move_engagement(&engagement(id), &to).await.unwrap();
    done(moved)
}

fn to_status(status: Status) -> Move {
    Move {
        status: Some(status),
        ..Move::default()
    }
}

/// A provider's occupancy in the mirror.
async fn occupancy(process: &Process, who: &ProviderId) -> u32 {
    let view = process.roster.provider(who).await.unwrap();
    assert_eq!(view.source, Source::Mirror);
    view.value.unwrap().row.occupancy
}

async fn engage(here: &Process, there: &Process, beats: &Beats) {
    let (ada, bob) = (name("ada"), name("bob"));
    here.go_online(&bob).await;
    beats.add(&bob);
    let first = NewEngagement {
        status: Status::Pending,
        ..active("e1", &ada)
    };
    let made = done(here.roster.create_engagement(&first).await.unwrap());
    assert!(made.changed && made.providers[0].occupancy == 1);
    let again = done(there.roster.create_engagement(&first).await.unwrap());
    assert!(!again.changed && again.engagement == made.engagement);
    for status in [Status::Active, Status::Pending, Status::Active] {
        let moved = moved(there, "e1", to_status(status)).await;
        assert_eq!((moved.engagement.status, moved.providers[0].occupancy), (status, 1));
    }
    done(here.roster.create_engagement(&active("e2", &ada)).await.unwrap());
    free_in_mirror(there, &["bob"]).await;
    // An engagement can be recorded above the capacity.
    done(here.roster.create_engagement(&active("e3", &ada)).await.unwrap());
    assert_eq!(occupancy(there, &ada).await, 3);

    let rerouted = Move {
        provider: Reassign::To(bob.clone()),
        ..Move::default()
    };
    let rerouted = moved(there, "e2", rerouted).await;
    let both: Vec<(&str, u32)> = rerouted
        .providers
        .iter()
        .map(|row| (row.provider.as_str(), row.occupancy))
        .collect();
    assert_eq!(both, [("ada", 2), ("bob", 1)]);
    free_in_mirror(here, &[]).await;
    counts(here, 0).await;

    for id in ["e1", "e2", "e3"] {
        moved(here, id, to_status(Status::Ended)).await;
    }
    let (first, to_active) = (engagement("e1"), to_status(Status::Active));
    let over = there.roster.move_engagement(&first, &to_active);
    assert!(matches!(over.await.unwrap(), EngagementAnswer::Conflict(there) if there.status == Status::Ended));
    free_in_mirror(there, &["ada", "bob"]).await;
    let nothing = engagement("e9");
    let unknown = there.roster.move_engagement(&nothing, &to_active);
    assert_eq!(unknown.await.unwrap_err().kind(), ErrorKind::NotFound);

    done(here.roster.create_engagement(&active("e4", &ada)).await.unwrap());
    let soon = Move {
        expiry: Expiry::In(ms(400)),
        ..Move::default()
    };
    moved(here, "e4", soon).await;
    until_async("it expires", PATIENCE, async || {
        breathe().await;
        let there = there.roster.engagement(&engagement("e4")).await.unwrap().unwrap();
        there.status == Status::Expired
    })
    .await;
    until_async("its place is free", PATIENCE, async || {
        occupancy(there, &ada).await == 0
    })
    .await;
    counts(there, 2).await;
}

async fn reserve(here: &Process, there: &Process, beats: &Beats) {
    let dee = name("dee");
    here.arrive(&dee, Some(3)).await;
    beats.add(&dee);
    free_in_mirror(there, &["ada", "bob", "dee"]).await;
    let mut with = Vec::new();
    for (n, process) in [here, there].into_iter().cycle().take(6).enumerate() {
        let reserved = process.reserve(&format!("r{n}")).await.unwrap();
        let Reservation::Reserved(written) = reserved else {
            panic!("{reserved:?}");
        };
        assert!(written.changed && written.mirrored);
        with.push(written.value.engagement.provider.unwrap().to_string());
    }
    assert_eq!(
        with,
        ["bob", "ada", "dee", "ada", "dee", "dee"],
        "the least occupied first; of several, the longest idle"
    );
    for process in [here, there] {
        assert_eq!(process.reserve("r6").await.unwrap(), Reservation::NoneAvailable);
    }
    let again = there.reserve("r0").await.unwrap();
    assert!(matches!(again, Reservation::Reserved(written) if !written.changed));
    counts(there, 0).await;
    moved(there, "r2", to_status(Status::Cancelled)).await;
    assert!(matches!(
        here.reserve("r2").await.unwrap(),
        Reservation::Conflict(over) if over.status == Status::Cancelled
    ));
    free_in_mirror(here, &["dee"]).await;
}

async fn listed(process: &Process, state: Option<ProviderState>) -> Vec<String> {
    let mut names = Vec::new();
    let mut page = PageRequest { after: None, limit: 2 };
    loop {
        let part = process.roster.providers(state, &page).await.unwrap();
        assert_eq!(part.source, Source::Mirror);
        names.extend(part.value.items.iter().map(|view| view.row.provider.to_string()));
        page.after = part.value.next;
        if page.after.is_none() {
            names.sort();
            names.dedup();
            return names;
        }
    }
}

async fn list(here: &Process, there: &Process) {
    here.put(&name("fay"), None).await;
    here.roster.deactivate(&name("fay")).await.unwrap();
    for (state, names) in [
        (Some(ProviderState::Online), &["ada", "bob", "dee"] as &[&str]),
        (Some(ProviderState::Available), &["dee"]),
        (Some(ProviderState::Busy), &["ada", "bob"]),
        (Some(ProviderState::Offline), &["cyd", "old"]),
        (Some(ProviderState::Deactivated), &["fay"]),
        (None, &["ada", "bob", "cyd", "dee", "fay", "old"]),
    ] {
        assert_eq!(listed(there, state).await, names, "{state:?}");
    }
    let stats = there.roster.stats().await.unwrap();
    assert_eq!(stats.source, Source::Mirror);
    let stats = stats.value;
    assert_eq!((stats.online, stats.available, stats.busy), (3, 1, 2));
    assert_eq!((stats.offline, stats.deactivated), (2, 1));
    let counted = here.ledger.stats(&here.name, None).await.unwrap();
    assert_eq!((counted.online, counted.busy, counted.deactivated), (3, 2, 1));
}

/// Settings changed at run time, and a provider without heartbeats.
async fn change_the_rules(here: &Process, there: &Process) {
    let eve = name("eve");
    let lenient = SettingsPatch {
        default_capacity: Some(7),
        require_heartbeat: Some(false),
        ..stale_after(secs(1))
    };
    assert!(here.roster.set_settings(&lenient).await.unwrap().changed);
    obeyed(there, here).await;
    there.arrive(&eve, None).await;
    assert_eq!(here.row(&eve).await.capacity, 7);
    here.pass(ms(2_500)).await;
    for process in [here, there] {
        assert!(process.roster.is_reachable(&eve).await.unwrap().value);
    }
    let strict = SettingsPatch {
        require_heartbeat: Some(true),
        ..SettingsPatch::default()
    };
    there.roster.set_settings(&strict).await.unwrap();
    until_async("it is stale and the ledger follows", PATIENCE, async || {
        breathe().await;
        here.row(&eve).await.online.is_none()
    })
    .await;
    let lapsed = (Change::Offline, Reason::Ended(EndReason::Lapsed));
    assert_eq!(told(here, &eve).await, [(Change::Online, Reason::Asked), lapsed]);
}

async fn remove(here: &Process, there: &Process) {
    let (ada, eve) = (name("ada"), name("eve"));
    let busy = there.roster.remove_provider(&ada).await.unwrap();
    assert!(matches!(busy, Removal::Busy(_)), "{busy:?}");
    let removed = there.roster.remove_provider(&eve).await.unwrap();
    assert_eq!(removed, Removal::Removed { mirrored: true });
    assert_eq!(here.roster.provider(&eve).await.unwrap().value, None);
    assert_eq!(here.hear(&eve).await, HeartbeatOutcome::Unknown);
    assert_eq!(here.roster.remove_provider(&eve).await.unwrap(), Removal::Absent);
}
