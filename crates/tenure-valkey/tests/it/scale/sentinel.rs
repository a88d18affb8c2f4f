//! Sentinels: the primary they name, failovers under load, several clients in one, and the writes that a failover
//! loses.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tenure_core::error::ErrorKind;
use tenure_core::lease::{AcquireOutcome, LeaseStore};
use tenure_core::membership::{Beat, BeatReply, MembershipStore};
use tenure_core::store::{Backend, Call, Health, Severity};
use tenure_testkit::certs::Certs;
use tenure_testkit::valkey::sentinel::Sentinels;
use tenure_testkit::valkey::sentinel::fake::{FakeSentinel, SentinelReply};
use tenure_testkit::valkey::sentinel::tls::TlsSentinels;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;
use tenure_valkey::ValkeyStore;

use crate::scale::cluster::{open_patiently, until_refused};
use crate::scale::load::Load;
use crate::world::*;

on_both! {
    failovers_end_no_tenure,
    two_clients_use_the_same_primary_across_failovers,
    grant_lost_in_failover_is_noticed,
    redeployed_sentinels_are_followed,
    sentinels_and_primary_work_over_tls,
}

fn sentinels(flavour: Flavour, settings: &str) -> Sentinels {
    Sentinels::start(flavour, settings).expect("these tests need their servers")
}

async fn failovers_end_no_tenure(flavour: Flavour) {
    let sentinels = sentinels(flavour, "");
    mature(sentinels.primary());
    let store = open(&sentinels.url()).await;
    let load = Load::start(&store, "ingest").await;

    // New replicas may not have any data yet.
    for replica in &sentinels.servers()[1..] {
        replica.catch_up_with(&sentinels.servers()[0]);
    }
    let (killed, at) = (sentinels.primary(), Instant::now());
    killed.kill();
    sentinels.until_not(killed);
    let named = at.elapsed();
    let (beaten, granted) = load.until_served(at + named).await;
    eprintln!(
        "{flavour:?} sentinels, primary killed: another named after {named:?}, beats +{beaten:?}, grants +{granted:?}"
    );

    killed.restart_with_data();
    sentinels.until_whole();
    let before = sentinels.primary();
    for replica in sentinels
        .servers()
        .iter()
        .filter(|server| server.port() != before.port())
    {
        replica.catch_up_with(before);
    }
    order_failover(&sentinels, 1).await;
    let at = Instant::now();
    sentinels.until_not(before);
    let named = at.elapsed();
    let (beaten, granted) = load.until_served(at + named).await;
    eprintln!(
        "{flavour:?} sentinels, ordered failover: another named after {named:?}, beats +{beaten:?}, grants +{granted:?}"
    );
    // The old primary returns as a replica; no client may use it.
    sentinels.until_whole();
    load.until_served(Instant::now()).await;
    load.end("sentinels").await;
    assert_eq!(store.health(), Health::Up);
    let findings = store.examine().await;
    let role = findings.iter().find(|finding| finding.check == "role").unwrap();
    assert_eq!(role.severity, Severity::Ok, "{role:?}");
}

/// Orders one sentinel to promote another server.
async fn order_failover(sentinels: &Sentinels, leader: usize) {
    // It refuses until it knows that the replicas are healthy.
    wait::until_async("the failover is accepted", PATIENCE, || async {
        let told = sentinels.sentinels()[leader].cli(&["SENTINEL", "FAILOVER", "main"]);
        told.is_ok_and(|told| told.text() == "OK")
    })
    .await;
}

/// Whether a member has joined on this server.
fn has(server: &Server, name: &str) -> bool {
    let told = server.cli(&["HEXISTS", "{tenure:ingest}:members", name]);
    told.expect("the server answers").int() == Some(1)
}

/// Waits until a store writes to a server and not to another: each time with an unused name.
async fn until_on(store: &ValkeyStore, server: &Server, who: &str) {
    static TRIES: AtomicU32 = AtomicU32::new(0);
    wait::until_async("the store acts on the server", PATIENCE, || async {
        let name = format!("{who}-{}", TRIES.fetch_add(1, Ordering::Relaxed));
        try_join(store, &name).await.is_ok() && has(server, &name)
    })
    .await;
}

/// Asserts that the stores write only to one server from now on, and not to another that accepts writes.
async fn stay_on(stores: &[(&str, &ValkeyStore)], server: &Server, other: &Server) {
    let takes_writes = || other.cli(&["ROLE"]).unwrap().items()[0].text() == "master";
    assert!(takes_writes());
    for n in 0..50 {
        for (who, store) in stores {
            let name = format!("{who}-stays-{}-{n}", server.port());
            join(store, &name).await;
            assert!(has(server, &name) && !has(other, &name), "{name}");
        }
    }
    assert!(takes_writes());
}

async fn two_clients_use_the_same_primary_across_failovers(flavour: Flavour) {
    let sentinels = sentinels(flavour, "");
    let others = |than: &Server| {
        let than = than.port();
        sentinels.servers().iter().filter(move |server| server.port() != than)
    };
    let first = sentinels.primary();
    mature(first);
    others(first).for_each(|replica| replica.catch_up_with(first));
    let a = open_patiently(&sentinels.url_of(&[0, 1, 2])).await;
    let b = open_patiently(&sentinels.url_of(&[1, 2, 0])).await;
    until_on(&a, first, "a").await;
    until_on(&b, first, "b").await;

    first.kill();
    sentinels.until_not(first);
    let second = sentinels.primary();
    until_on(&a, second, "a").await;
    until_on(&b, second, "b").await;
    // It reports to be a primary until it is reconfigured, which takes minutes.
    sentinels.set_publish_period(Duration::from_secs(60));
    first.restart_with_data();
    stay_on(&[("a", &a), ("b", &b)], second, first).await;
    sentinels.set_publish_period(Duration::from_secs(1));
    sentinels.until_whole();

    // The other replica cannot follow the promoted one, so the failover takes long: its leader names the new primary
    // but prints the old one, which is still a primary.
    for replica in others(second) {
        replica.catch_up_with(second);
        let denied = replica.cli(&["ACL", "SETUSER", "default", "-psync", "-sync"]);
        assert_eq!(denied.unwrap().text(), "OK");
    }
    let ask = |one: usize, args: &[&str]| sentinels.sentinels()[one].cli(args).unwrap();
    for one in 0..3 {
        for (what, millis) in [("failover-timeout", "90000"), ("down-after-milliseconds", "30000")] {
            let set = ask(one, &["SENTINEL", "SET", "main", what, millis]);
            assert_eq!(set.text(), "OK");
        }
    }
    sentinels.set_publish_period(Duration::from_secs(60));
    order_failover(&sentinels, 0).await;
    sentinels.until_not(second);
    let third = sentinels.primary();
    let late = open_patiently(&sentinels.url_of(&[0])).await;
    until_up(&late).await;
    until_on(&a, third, "a").await;
    until_on(&b, third, "b").await;
    stay_on(&[("a", &a), ("b", &b), ("late", &late)], third, second).await;
    let printed = ask(0, &["SENTINEL", "MASTER", "main"]).texts().join(" ");
    assert!(printed.contains("failover_in_progress"), "{printed}");
    assert!(printed.contains(&second.port().to_string()), "{printed}");
}

/// Two servers that both accept writes, and three sentinels that name the first.
fn partition() -> (Server, Server, [FakeSentinel; 3]) {
    let (old, new) = (server(Flavour::Valkey, &[]), server(Flavour::Valkey, &[]));
    mature(&old);
    mature(&new);
    let told = SentinelReply::steady(old.addr(), 1);
    (old, new, [(); 3].map(|()| FakeSentinel::start(told)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitioned_sentinel_does_not_hold_clients_back() {
    let (old, new, [cut, one, two]) = partition();
    let orders = [[&cut, &one, &two], [&one, &cut, &two], [&two, &one, &cut]];
    let mut stores = Vec::new();
    for order in orders {
        let store = open_patiently(&FakeSentinel::url(&order)).await;
        until_on(&store, &old, "before").await;
        stores.push(store);
    }
    one.set_reply(SentinelReply::steady(new.addr(), 2));
    for store in &stores {
        until_on(store, &new, "one").await;
    }
    two.set_reply(SentinelReply::steady(new.addr(), 2));
    for store in &stores {
        until_on(store, &new, "both").await;
    }
    stay_on(&[("both", &stores[0])], &new, &old).await;
    // New clients and reconnecting clients choose the same server.
    assert!(new.cli(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap().int() > Some(0));
    for (store, order) in stores.iter().zip(orders) {
        let late = open_patiently(&FakeSentinel::url(&order)).await;
        until_up(&late).await;
        until_on(store, &new, "back").await;
        stay_on(&[("late", &late), ("back", store)], &new, &old).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promoted_server_is_used_once_the_leader_names_it() {
    let (old, new, [leader, one, two]) = partition();
    let store = open_patiently(&FakeSentinel::url(&[&leader, &one, &two])).await;
    until_on(&store, &old, "before").await;
    leader.set_reply(SentinelReply {
        named: new.addr(),
        printed: old.addr(),
        epoch: 2,
    });
    until_on(&store, &new, "after").await;
    // The leader announces the switch before a majority has contradicted it for three rounds.
    one.set_reply(SentinelReply::steady(new.addr(), 2));
    let late = open_patiently(&FakeSentinel::url(&[&one, &leader, &two])).await;
    until_up(&late).await;
    until_on(&store, &new, "told").await;
    stay_on(&[("after", &store), ("late", &late)], &new, &old).await;
}

async fn grant_lost_in_failover_is_noticed(flavour: Flavour) {
    let sentinels = sentinels(flavour, "");
    let primary = sentinels.primary();
    mature(primary);
    let store = open(&sentinels.url()).await;
    let (a, b) = (join(&store, "a").await, join(&store, "b").await);
    let replicas = || {
        sentinels
            .servers()
            .iter()
            .filter(|server| server.port() != primary.port())
    };
    for replica in replicas() {
        replica.catch_up_with(primary);
        replica.pause();
    }
    // Not even in a replication buffer: from here on nothing leaves the primary.
    primary.cli(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
    let leases = [lease("poll")];
    let granted = store.acquire(&group(), &a, &leases, Call::default()).await.unwrap();
    let lost = granted.outcomes[0].token().expect("a grant");
    primary.kill();
    replicas().for_each(|replica| replica.resume());
    sentinels.until_not(primary);

    let told = |revision| Beat {
        tenure: a.clone(),
        ttl: None,
        revision,
        seen: tenure_core::membership::Revision::NONE,
    };
    let reply = std::sync::Mutex::new(None);
    wait::until_async("a beat is answered", PATIENCE, || async {
        match store.beat(&group(), &[told(granted.revision)]).await {
            Ok(beaten) => reply.lock().unwrap().replace(beaten.replies[0]).is_none(),
            Err(_) => false,
        }
    })
    .await;
    // Its tenure continues, and the revision shows that the grant is lost.
    match reply.into_inner().unwrap() {
        Some(BeatReply::Renewed { revision, .. }) => assert!(revision < granted.revision, "{revision:?}"),
        other => panic!("{other:?}"),
    }
    // The lease is not granted while its lost holder may still use it.
    match acquire(&store, &b, "poll").await.unwrap() {
        AcquireOutcome::Unsettled { retry_in, .. } => assert!(retry_in > Duration::from_secs(10), "{retry_in:?}"),
        other => panic!("{other:?}"),
    }
    // The next number is above the lost one.
    assert!(join(&store, "c").await.term().get() > lost.get());
}

async fn redeployed_sentinels_are_followed(flavour: Flavour) {
    // As after five failovers.
    let sentinels = sentinels(flavour, "sentinel config-epoch main 5\nsentinel current-epoch 5");
    let (old, new) = (&sentinels.servers()[0], &sentinels.servers()[1]);
    mature(old);
    new.catch_up_with(old);
    let store = open_patiently(&sentinels.url()).await;
    until_on(&store, old, "before").await;
    sentinels.redeploy(new);
    until_on(&store, new, "after").await;
    let late = open_patiently(&sentinels.url()).await;
    until_up(&late).await;
    stay_on(&[("after", &store), ("late", &late)], new, old).await;
}

async fn sentinels_and_primary_work_over_tls(flavour: Flavour) {
    let certs = Certs::new();
    let sentinels = TlsSentinels::start(flavour, &certs).expect("these tests need their servers");
    let url = |host, ca: std::path::PathBuf| format!("{}?tls_ca={}", sentinels.url(host), ca.display());
    let store = open_patiently(&url("localhost", certs.ca())).await;
    until_on(&store, sentinels.servers()[0].plain(), "a").await;
    assert_eq!(store.health(), Health::Up);
    until_refused(&url("localhost", certs.other_ca()), "tls_ca=PATH").await;
    until_refused(&format!("{}?tls=on", sentinels.url("localhost")), "tls_ca=PATH").await;
    until_refused(&url("127.0.0.2", certs.ca()), "the certificate of 127.0.0.2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_refusals_name_the_fix() {
    // A high down-after, so that a busy machine is not declared dead.
    let settings = "requirepass watch\nsentinel sentinel-pass watch\nsentinel down-after-milliseconds main 30000";
    let sentinels = sentinels(Flavour::Valkey, settings);
    let url = sentinels.url();
    let error = try_join(&*open(&url).await, "a").await.expect_err("no password");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.chain().contains("sentinel_password"), "{error:?}");
    let store = open(&format!("{url}?sentinel_password=watch")).await;
    join(&store, "a").await;
    let other = url.replace("/main", "/other?sentinel_password=watch");
    let error = try_join(&*open(&other).await, "a").await.expect_err("no such primary");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    assert!(error.chain().contains("\"other\""), "{error:?}");
    let told = |args: &[&str]| {
        for sentinel in sentinels.sentinels() {
            assert_eq!(sentinel.cli(args).unwrap().text(), "OK", "{args:?}");
        }
    };
    told(&["ACL", "SETUSER", "app", "reset", "on", ">s3cret", "+sentinel|master"]);
    let app = format!("{url}?sentinel_user=app&sentinel_password=s3cret");
    let error = try_join(&*open_patiently(&app).await, "a")
        .await
        .expect_err("a rule is missing");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.chain().contains("+sentinel|get-master-addr-by-name"), "{error:?}");
    told(&["ACL", "SETUSER", "app", "+sentinel|get-master-addr-by-name"]);
    join(&*open_patiently(&app).await, "app").await;
    // One sentinel is enough to find the primary, and a frozen sentinel does not block.
    sentinels.sentinels()[0].process().kill();
    sentinels.sentinels()[1].process().pause().unwrap();
    join(&*open(&format!("{url}?sentinel_password=watch")).await, "b").await;
    sentinels.sentinels()[1].process().resume().unwrap();
}
