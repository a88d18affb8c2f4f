//! Servers that lose data, die, freeze, fill up, or are not a primary.

use std::time::{Duration, Instant};

use tenure_core::clock::SystemClock;
use tenure_core::error::{ErrorKind, Outcome};
use tenure_core::id::Group;
use tenure_core::lease::AcquireOutcome;
use tenure_core::membership::{BeatReply, EndBy, MembershipStore};
use tenure_core::registry::RegistryStore;
use tenure_core::settling::GapCause;
use tenure_core::store::{Backend, Call, Health, PageRequest, Store, StoreOptions};
use tenure_core::sweep::{Left, Sweep, SweepRequest, SweepSteps};
use tenure_core::target::{TargetSpec, TargetStore};
use tenure_testkit::valkey::{DURABLE, Flavour};
use tenure_testkit::wait;
use tenure_valkey::ValkeyStore;

use crate::world::*;

on_both! {
    every_verb_works_after_script_flush,
    server_restarted_empty_unsettles_its_groups,
    new_server_grants_nothing_until_settled,
    server_restarted_with_data_ends_no_tenure,
    frozen_server_is_down_after_three_timeouts,
    full_memory_refuses_the_whole_step,
    replica_is_not_used_until_promoted,
    replica_is_not_read,
    store_connects_once_its_server_starts,
}

async fn every_verb_works_after_script_flush(flavour: Flavour) {
    let server = server(flavour, &[]);
    let store = open(&server.url()).await;
    let flush = || server.cli(&["SCRIPT", "FLUSH"]).map(drop).expect("a flush");
    let (group, registry, page) = (group(), devices(), PageRequest::default());
    flush();
    let tenure = join(&store, "a").await;
    flush();
    assert!(matches!(beat(&store, &tenure).await, BeatReply::Renewed { .. }));
    flush();
    claim(&store, &tenure, "k").await.unwrap();
    flush();
    assert!(
        store
            .claim_of(&group, &registry, &key("k"))
            .await
            .unwrap()
            .unwrap()
            .alive
    );
    flush();
    assert_eq!(
        store
            .claims(&group, &registry, Some(&member("a")), &page)
            .await
            .unwrap()
            .items
            .len(),
        1
    );
    flush();
    assert_eq!(store.members(&group, &page).await.unwrap().items.len(), 1);
    flush();
    store
        .release_claim(&group, &registry, &key("k"), &tenure, Call::default())
        .await
        .unwrap();
    flush();
    assert_eq!(store.tick(&group).await.unwrap().members, 1);
    flush();
    store.end(&group, &tenure, EndBy::Leave, Call::default()).await.unwrap();
    flush();
    store
        .sweep(&group, &SweepRequest::default(), "p", Call::default())
        .await
        .unwrap();
    flush();
    assert_eq!(store.doomed(&group, 10).await.unwrap(), []);
    assert_eq!(store.groups().await.unwrap(), [group]);
}

async fn server_restarted_empty_unsettles_its_groups(flavour: Flavour) {
    let server = server(flavour, &[]);
    let store = open(&server.url()).await;
    let tenure = join(&store, "a").await;
    server.kill();
    until_down(&store).await;
    let began = Instant::now();
    for _ in 0..100 {
        unavailable(try_beat(&store, &tenure).await, Outcome::Unchanged);
    }
    assert!(
        began.elapsed() < SLACK,
        "100 calls to a dead server took {:?}",
        began.elapsed()
    );
    server.restart_empty();
    until_up(&store).await;
    assert_eq!(beat(&store, &tenure).await, BeatReply::Unknown);
    let again = join(&store, "a").await;
    assert!(again.term() > tenure.term());
    let status = store.tick(&group()).await.unwrap();
    assert_eq!(status.unsettled.expect("a grace").cause, GapCause::DataLoss);
    assert_eq!(
        store.groups().await.unwrap(),
        [group()],
        "the index of groups is written again"
    );
}

/// An act that creates a missing group.
async fn act_on(store: &ValkeyStore, group: &Group) {
    let (target, spec) = (lease("t"), TargetSpec::default());
    let put = store.put_target(group, &target, spec, Call::default());
    assert!(put.await.unwrap(), "it is new");
}

async fn new_server_grants_nothing_until_settled(flavour: Flavour) {
    let server = server(flavour, &[]);
    let store = open(&server.url()).await;
    let tenure = join(&store, "a").await;
    let unsettled = |outcome| match outcome {
        AcquireOutcome::Unsettled { cause, .. } => Some(cause),
        _ => None,
    };
    assert_eq!(
        unsettled(acquire(&store, &tenure, "x").await.unwrap()),
        Some(GapCause::New)
    );
    // A process with a shorter max_ttl does not shorten the wait.
    let short = StoreOptions {
        max_ttl: Duration::from_secs(1),
        ..StoreOptions::default()
    };
    let hasty = ValkeyStore::open(&server.url(), short, options(), SystemClock::shared())
        .await
        .unwrap();
    let other = Group::new("other").unwrap();
    let until = hasty.tick(&other).await.unwrap().unsettled.expect("a grace").until;
    assert!(until > hasty.now().await.unwrap() + Duration::from_secs(60), "{until}");
    act_on(&hasty, &other).await;
    assert_eq!(hasty.groups().await.unwrap().len(), 2, "who acts on a group lists it");
    let done = store.settle(None, None, Call::default()).await.unwrap();
    assert_eq!((done.settled, done.left.len()), (2, 0));
    assert_eq!(unsettled(acquire(&store, &tenure, "x").await.unwrap()), None);
    // The setting also covers later groups, but not those of a store that is emptied again.
    let later = Group::new("later").unwrap();
    assert_eq!(store.tick(&later).await.unwrap().unsettled, None);
    server.cli(&["FLUSHALL"]).unwrap();
    act_on(&store, &later).await;
    assert_eq!(
        store.tick(&later).await.unwrap().unsettled.expect("a grace").cause,
        GapCause::New
    );
    // A member from before proves that the group was not new: then the operator must name that cause.
    assert_eq!(beat(&store, &tenure).await, BeatReply::Unknown);
    let done = store.settle(None, None, Call::default()).await.unwrap();
    let left = Left {
        group: group(),
        cause: GapCause::DataLoss,
    };
    assert_eq!((done.settled, done.left), (1, vec![left]));
    let done = store
        .settle(Some(&group()), Some(GapCause::DataLoss), Call::default())
        .await
        .unwrap();
    assert_eq!(done.settled, 1);
}

async fn server_restarted_with_data_ends_no_tenure(flavour: Flavour) {
    let server = server(flavour, DURABLE);
    let store = open(&server.url()).await;
    let tenure = join(&store, "a").await;
    claim(&store, &tenure, "k").await.unwrap();
    for _ in 0..3 {
        server.kill();
        until_down(&store).await;
        server.restart_with_data();
        until_up(&store).await;
        assert!(matches!(beat(&store, &tenure).await, BeatReply::Renewed { .. }));
    }
    assert!(
        store
            .claim_of(&group(), &devices(), &key("k"))
            .await
            .unwrap()
            .unwrap()
            .alive
    );
}

async fn frozen_server_is_down_after_three_timeouts(flavour: Flavour) {
    let server = server(flavour, &[]);
    let store = open_with(&server.url(), hasty()).await;
    until_up(&store).await;
    let tenure = join(&store, "a").await;
    for round in 0..3 {
        server.pause();
        let mut unknown = 0;
        for _ in 0..20 {
            let began = Instant::now();
            let error = try_beat(&store, &tenure).await.expect_err("the server is frozen");
            within_deadline(began);
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            unknown += u32::from(error.outcome() == Outcome::Unknown);
        }
        // Pings count as well, so there may be fewer; never more.
        assert!(
            unknown <= 3,
            "round {round}: {unknown} calls had to wait for their timeout"
        );
        until_down(&store).await;
        server.resume();
        until_up(&store).await;
        assert!(
            matches!(beat(&store, &tenure).await, BeatReply::Renewed { .. }),
            "round {round}"
        );
    }
}

async fn full_memory_refuses_the_whole_step(flavour: Flavour) {
    let server = server(flavour, &["--maxmemory-policy", "noeviction"]);
    let store = open(&server.url()).await;
    let tenure = join(&store, "a").await;
    claim(&store, &tenure, "k").await.unwrap();
    let before = dump(&server);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let refused = unavailable(try_join(&store, "a").await, Outcome::Unchanged);
    assert!(
        refused.chain().contains("OOM") && refused.retry_after().is_some(),
        "{refused:?}"
    );
    unavailable(claim(&store, &tenure, "other").await, Outcome::Unchanged);
    unavailable(try_beat(&store, &tenure).await, Outcome::Unchanged);
    unavailable(
        store.end(&group(), &tenure, EndBy::Leave, Call::default()).await,
        Outcome::Unchanged,
    );
    unavailable(store.tick(&group()).await, Outcome::Unchanged);
    assert_eq!(dump(&server), before, "a refused step left something behind");
    assert!(
        store
            .claim_of(&group(), &devices(), &key("k"))
            .await
            .unwrap()
            .unwrap()
            .alive,
        "reads continue"
    );
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    assert!(matches!(beat(&store, &tenure).await, BeatReply::Renewed { .. }));
}

async fn replica_is_not_used_until_promoted(flavour: Flavour) {
    let (primary, replica) = (server(flavour, &[]), server(flavour, &[]));
    let before = open(&primary.url()).await;
    let tenure = join(&before, "a").await;
    replica.replica_of(&primary);
    // A user without permission for ROLE learns it from the first write.
    replica
        .cli(&["ACL", "SETUSER", "app", "on", ">s3cret", "~*", "+@all", "-role"])
        .unwrap();
    let store = open(&format!("valkey://app:s3cret@{}", replica.addr())).await;
    let refused = unavailable(try_beat(&store, &tenure).await, Outcome::Unchanged);
    assert!(refused.chain().contains("READONLY"), "{refused:?}");
    // It is down only until the next connection, which may be soon, and is trusted until the next write.
    wait::until_async("the store is seen down", PATIENCE, || async {
        unavailable(try_beat(&store, &tenure).await, Outcome::Unchanged);
        store.health() != Health::Up
    })
    .await;
    primary.kill();
    replica.promote();
    // A call between two connections is refused at once and retried.
    let deadline = Instant::now() + PATIENCE;
    let reply = loop {
        match try_beat(&store, &tenure).await {
            Ok(reply) => break reply,
            Err(error) => assert!(error.is_unavailable() && Instant::now() < deadline, "{error:?}"),
        }
        tokio::task::yield_now().await;
    };
    assert!(matches!(reply, BeatReply::Renewed { .. }));
}

async fn replica_is_not_read(flavour: Flavour) {
    let (primary, replica) = (server(flavour, &[]), server(flavour, &[]));
    join(&*open(&primary.url()).await, "a").await;
    replica.replica_of(&primary);
    let store = open(&replica.url()).await;
    let read = store.member(&group(), &member("a")).await;
    let refused = unavailable(read, Outcome::Unchanged);
    assert!(refused.message().contains("is a replica"), "{refused:?}");
    assert!(refused.message().contains("valkey-sentinel://"), "{refused:?}");
    assert_ne!(store.health(), Health::Up);
    replica.promote();
    until_up(&store).await;
    assert!(store.member(&group(), &member("a")).await.unwrap().is_some());
}

async fn store_connects_once_its_server_starts(flavour: Flavour) {
    let server = server(flavour, &[]);
    server.kill();
    let began = Instant::now();
    let store = open(&server.url()).await;
    assert!(
        began.elapsed() < TIMEOUT + SLACK,
        "opening waits for the first try alone"
    );
    let error = unavailable(try_join(&store, "a").await, Outcome::Unchanged);
    assert!(
        error.retry_after().is_some_and(|after| after <= Duration::from_secs(1)),
        "{error:?}"
    );
    server.restart_empty();
    until_up(&store).await;
    join(&store, "a").await;
    store.close().await;
    unavailable(try_join(&store, "a").await, Outcome::Unchanged);
}
