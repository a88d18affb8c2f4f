//! Sentinels: whom they name, failovers under load, and what is lost in one.

use std::time::{Duration, Instant};

use tenure_core::error::ErrorKind;
use tenure_core::lease::{AcquireOutcome, LeaseStore};
use tenure_core::membership::{Beat, BeatReply, MembershipStore};
use tenure_core::store::{Call, Health, Severity, Store};
use tenure_testkit::valkey::Flavour;
use tenure_testkit::valkey::sentinel::Sentinels;
use tenure_testkit::wait;

use crate::load::Load;
use crate::world::*;

on_both! {
    a_killed_primary_and_an_ordered_failover_end_nobody,
    a_grant_that_the_promoted_replica_never_had_is_noticed,
}

fn sentinels(flavour: Flavour, settings: &str) -> Sentinels {
    Sentinels::start(flavour, settings).expect("these tests need their servers")
}

async fn a_killed_primary_and_an_ordered_failover_end_nobody(flavour: Flavour) {
    let sentinels = sentinels(flavour, "");
    mature(sentinels.primary());
    let store = open(&sentinels.url()).await;
    let load = Load::start(&store, "ingest").await;

    // Replicas that were just made may not have heard of anything yet.
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
    // It refuses until it has heard that the replicas are fit.
    wait::until_async("the failover is accepted", PATIENCE, || async {
        let told = sentinels.sentinels()[1].cli(&["SENTINEL", "FAILOVER", "main"]);
        told.is_ok_and(|told| told.text() == "OK")
    })
    .await;
    let at = Instant::now();
    sentinels.until_not(before);
    let named = at.elapsed();
    let (beaten, granted) = load.until_served(at + named).await;
    eprintln!(
        "{flavour:?} sentinels, ordered failover: another named after {named:?}, beats +{beaten:?}, grants +{granted:?}"
    );
    // The old primary comes back as a replica; nobody may end up there.
    sentinels.until_whole();
    load.until_served(Instant::now()).await;
    load.end("sentinels").await;
    assert_eq!(store.health(), Health::Up);
    let findings = store.examine().await;
    let role = findings.iter().find(|finding| finding.check == "role").unwrap();
    assert_eq!(role.severity, Severity::Ok, "{role:?}");
}

async fn a_grant_that_the_promoted_replica_never_had_is_noticed(flavour: Flavour) {
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
    // Not even in a buffer of theirs: from here on nothing leaves the primary.
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
    };
    let reply = std::sync::Mutex::new(None);
    wait::until_async("a beat is answered", PATIENCE, || async {
        match store.beat(&group(), &[told(granted.revision)]).await {
            Ok(beaten) => reply.lock().unwrap().replace(beaten.replies[0]).is_none(),
            Err(_) => false,
        }
    })
    .await;
    // Its tenure goes on, and it is told by the revision that the grant is gone.
    match reply.into_inner().unwrap() {
        Some(BeatReply::Renewed { revision, .. }) => assert!(revision < granted.revision, "{revision:?}"),
        other => panic!("{other:?}"),
    }
    // Nobody gets the lease while the one that was granted it may still believe in it.
    match acquire(&store, &b, "poll").await.unwrap() {
        AcquireOutcome::Unsettled { retry_in } => assert!(retry_in > Duration::from_secs(10), "{retry_in:?}"),
        other => panic!("{other:?}"),
    }
    // And whatever number comes next is above the one that was lost.
    assert!(join(&store, "c").await.term().get() > lost.get());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_sentinels_refuse_is_said_with_what_to_do() {
    let sentinels = sentinels(Flavour::Valkey, "requirepass watch\nsentinel sentinel-pass watch");
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
    // One sentinel is enough to find the primary, and one that is frozen does not keep anybody.
    sentinels.sentinels()[0].process().kill();
    sentinels.sentinels()[1].process().pause().unwrap();
    join(&*open(&format!("{url}?sentinel_password=watch")).await, "b").await;
    sentinels.sentinels()[1].process().resume().unwrap();
}
