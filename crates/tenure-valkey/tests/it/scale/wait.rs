//! `wait=N`: a lease counts as granted once replicas have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenure_core::error::{ErrorKind, Outcome};
use tenure_core::id::TenureId;
use tenure_core::lease::{AcquireOutcome, LeaseStore};
use tenure_core::membership::BeatReply;
use tenure_core::store::{Backend, Health, PageRequest};
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;
use tenure_valkey::{ConnectionOptions, ValkeyStore};

use crate::relay::{Fate, Relay};
use crate::world::*;

on_both! {
    unconfirmed_grant_has_unknown_outcome,
    broken_wait_connection_does_not_affect_beats,
    missing_replica_fails_grants_but_not_beats,
    refused_wait_leaves_the_outcome_unknown,
}

/// Waits until the replica acknowledges: a new one takes a second to report, and a returning one must catch up.
fn confirms(primary: &Server) {
    let mut client = primary.client().expect("a client");
    assert_eq!(client.call(&["SET", "written", "1"]).unwrap().text(), "OK");
    assert_eq!(client.call(&["WAIT", "1", "9000"]).unwrap().int(), Some(1));
}

async fn unconfirmed_grant_has_unknown_outcome(flavour: Flavour) {
    let (primary, replica) = (server(flavour, &[]), server(flavour, &[]));
    mature(&primary);
    replica.replica_of(&primary);
    confirms(&primary);
    let store = open(&format!("{}?wait=1&wait_timeout=5s", primary.url())).await;
    let (a, b) = (join(&store, "a").await, join(&store, "b").await);
    let before = Instant::now();
    assert!(matches!(
        acquire(&store, &a, "first").await.unwrap(),
        AcquireOutcome::Granted { .. }
    ));
    eprintln!("{flavour:?}: a grant with wait=1 took {:?}", before.elapsed());
    replica.pause();
    let asked = tokio::spawn({
        let (store, a) = (Arc::clone(&store), a.clone());
        async move { acquire(&store, &a, "second").await }
    });
    wait::until_async("the grant waits for the replica", PATIENCE, || async {
        let clients = primary.cli(&["INFO", "clients"]).unwrap().text();
        clients.contains("blocked_clients:1")
    })
    .await;
    // A call that needs no confirmation does not wait for replicas.
    let beaten = beat(&store, &b).await;
    assert!(matches!(beaten, BeatReply::Renewed { .. }), "{beaten:?}");
    assert!(!asked.is_finished(), "it has waited for the replica");
    let error = unavailable(asked.await.expect("an answer"), Outcome::Unknown);
    assert!(error.message().starts_with("0 of 1 replicas"), "{error:?}");
    replica.resume();
    confirms(&primary);
    // The grant took effect: a repeated call confirms it, now that the replica has it.
    assert!(matches!(
        acquire(&store, &a, "second").await.unwrap(),
        AcquireOutcome::Kept { .. }
    ));
}

/// The connections in the order in which they are opened.
const BEATS: usize = 0;
const CONFIRMED: usize = 1;

/// A primary behind a relay, its replica, and a store with `wait=1`.
async fn replicated(
    flavour: Flavour,
    settings: &str,
    options: ConnectionOptions,
) -> (Relay, [Server; 2], Arc<ValkeyStore>) {
    let (primary, replica) = (server(flavour, &[]), server(flavour, &[]));
    mature(&primary);
    replica.replica_of(&primary);
    confirms(&primary);
    let relay = Relay::start("127.0.0.1", primary.addr()).await;
    let store = open_with(&format!("valkey://{}?wait=1{settings}", relay.addr()), options).await;
    until_up(&store).await;
    (relay, [primary, replica], store)
}

/// Beats until the returned flag is set; no beat may fail.
fn beating(store: &Arc<ValkeyStore>, tenure: TenureId) -> (Arc<AtomicBool>, tokio::task::JoinHandle<u32>) {
    let (enough, store) = (Arc::new(AtomicBool::new(false)), Arc::clone(store));
    let done = Arc::clone(&enough);
    let beats = tokio::spawn(async move {
        let mut count = 0;
        while !done.load(Ordering::Relaxed) {
            assert!(matches!(beat(&store, &tenure).await, BeatReply::Renewed { .. }));
            count += 1;
        }
        count
    });
    (enough, beats)
}

async fn broken_wait_connection_does_not_affect_beats(flavour: Flavour) {
    // Three of these timeouts end a connection, and together they are longer than a short stall.
    let silent = ConnectionOptions {
        request_timeout: Duration::from_secs(3),
        ..options()
    };
    let (relay, servers, store) = replicated(flavour, "", silent).await;
    let (a, b) = (join(&store, "a").await, join(&store, "b").await);
    for (nth, fate) in [Fate::Swallow, Fate::Cut].into_iter().enumerate() {
        let lost = CONFIRMED + nth;
        assert_eq!(relay.accepted(), lost + 1);
        let (enough, beats) = beating(&store, b.clone());
        // Detected without a pending lease call.
        relay.set(lost, fate);
        wait::until_async("another connection for WAIT", PATIENCE, || async {
            relay.accepted() == lost + 2
        })
        .await;
        until_up(&store).await;
        let granted = acquire(&store, &a, &format!("lease-{nth}")).await.unwrap();
        assert!(matches!(granted, AcquireOutcome::Granted { .. }), "{granted:?}");
        enough.store(true, Ordering::Relaxed);
        assert!(beats.await.expect("no beat fails") > 0);
    }
    assert_eq!(
        relay.accepted(),
        BEATS + 4,
        "the connection of the beats is the first one"
    );
    drop(servers);
}

async fn missing_replica_fails_grants_but_not_beats(flavour: Flavour) {
    // Calls made together take three `WAIT`s, and the third would start later than half a request timeout.
    let slow = ConnectionOptions {
        request_timeout: Duration::from_secs(4),
        ..options()
    };
    let (relay, [primary, replica], store) = replicated(flavour, "&wait_timeout=1600ms", slow).await;
    let (a, b) = (join(&store, "a").await, join(&store, "b").await);
    acquire(&store, &a, "first").await.unwrap();
    replica.pause();
    let (enough, beats) = beating(&store, b);
    let asked = (0..48).map(|n| {
        let (store, a) = (Arc::clone(&store), a.clone());
        tokio::spawn(async move {
            let error = acquire(&store, &a, &format!("lease-{n}"))
                .await
                .expect_err("no replica has it");
            assert_eq!(store.health(), Health::Up);
            error
        })
    });
    let (mut unknown, mut refused) = (0, 0);
    for asked in asked.collect::<Vec<_>>() {
        let error = asked.await.expect("an error");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        match error.outcome() {
            Outcome::Unknown => {
                unknown += 1;
                assert!(error.message().starts_with("0 of 1 replicas"), "{error:?}");
            }
            Outcome::Unchanged => {
                refused += 1;
                assert!(error.retry_after().is_some(), "{error:?}");
            }
        }
    }
    enough.store(true, Ordering::Relaxed);
    let beats = beats.await.expect("no beat fails");
    eprintln!("{flavour:?}: of 48 grants without a replica {unknown} unknown, {refused} refused; {beats} beats beside");
    assert!(unknown > 0 && refused > 0, "{unknown} unknown, {refused} refused");
    assert_eq!(relay.accepted(), 2, "no connection was given up");
    assert_eq!(store.health(), Health::Up);
    // A refused call had no effect; a call with unknown outcome had.
    let held = store.held_leases(&group(), &a, &PageRequest::default()).await.unwrap();
    assert_eq!(held.page.items.len(), unknown + 1);
    replica.resume();
    confirms(&primary);
    acquire(&store, &a, "last").await.unwrap();
}

async fn refused_wait_leaves_the_outcome_unknown(flavour: Flavour) {
    let server = server(flavour, &[]);
    mature(&server);
    let rule = |rule: &str| {
        let rules = ["ACL", "SETUSER", "app", "on", ">s3cret", "~*", "+@all", rule];
        assert_eq!(server.cli(&rules).unwrap().text(), "OK");
    };
    rule("+wait");
    let store = open(&format!("valkey://app:s3cret@{}?wait=1", server.addr())).await;
    let a = join(&store, "a").await;
    rule("-wait");
    let error = unavailable(acquire(&store, &a, "first").await, Outcome::Unknown);
    assert!(error.message().contains("+wait"), "{error:?}");
    let held = store.lease_of(&group(), &lease("first")).await.unwrap();
    assert_eq!(held.expect("it was granted").tenure, a);
}
