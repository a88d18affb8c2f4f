//! The leftovers of a session's full lifecycle, and the cost of reads.

use std::time::Duration;

use tenure_core::membership::{EndBy, MembershipStore};
use tenure_core::session::{DeleteOutcome, SessionState, SessionStore};
use tenure_core::store::{Call, PageRequest, Store, StoreOptions};
use tenure_core::sweep::{Sweep, SweepRequest, SweepSteps};
use tenure_testkit::valkey::Flavour;

use crate::sessions::set_up::*;
use crate::world::*;

on_both! {
    ended_session_leaves_no_key,
    page_continues_after_a_deleted_entry,
    steady_state_never_scans,
    large_data_is_returned_in_parts,
}

async fn ended_session_leaves_no_key(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let (front, other) = (join(&world.store, "front").await, join(&world.store, "other").await);
    let before = world.keys();
    world.attach(&front, "reaped", "c", Some("ann")).await;
    world.attach(&front, "reaped", "d", Some("bob")).await;
    world.attach(&other, "reaped", "c", None).await;
    world.attach(&front, "deleted", "c", Some("cas")).await;
    assert_eq!(world.keys().len(), before.len() + 8, "{:?}", world.keys());
    world.detach(&front, "reaped", "d").await;
    world.detach(&other, "reaped", "c").await;
    world.detach(&front, "deleted", "c").await;
    let deleted = world
        .store
        .delete_session(&group(), &session("deleted"), Call::default())
        .await;
    assert!(matches!(deleted.unwrap(), DeleteOutcome::Deleted { .. }));
    // By then both members and the records of their ends have expired.
    for tenure in [&front, &other] {
        world
            .store
            .end(&group(), tenure, EndBy::Leave, Call::default())
            .await
            .unwrap();
    }
    let (front, other) = (join(&world.store, "front").await, join(&world.store, "other").await);
    world.pass(GRACE).await;
    assert_eq!(world.reap().await.reaped.len(), 1);
    for tenure in [&front, &other] {
        world
            .store
            .end(&group(), tenure, EndBy::Leave, Call::default())
            .await
            .unwrap();
    }
    world
        .pass(StoreOptions::default().max_ttl * 2 + Duration::from_secs(1))
        .await;
    world.store.end_lapsed(&group(), 100, Call::default()).await.unwrap();
    join(&world.store, "front").await;
    join(&world.store, "other").await;
    assert_eq!(world.keys(), before);
}

async fn page_continues_after_a_deleted_entry(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let front = join(&world.store, "front").await;
    for n in 0..40 {
        world.attach(&front, &format!("s{n:02}"), "c", None).await;
        world.detach(&front, &format!("s{n:02}"), "c").await;
    }
    // All of them lost their last connection at the same instant.
    let (mut after, mut all) = (None, Vec::new());
    loop {
        let page = PageRequest { after, limit: 7 };
        let page = world
            .store
            .sessions(&group(), Some(SessionState::Disconnected), &page)
            .await
            .unwrap();
        let names: Vec<_> = page.items.iter().map(|seen| seen.session.clone()).collect();
        if let Some(last) = names.last() {
            world
                .store
                .delete_session(&group(), last, Call::default())
                .await
                .unwrap();
        }
        all.extend(names.iter().map(ToString::to_string));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(all, (0..40).map(|n| format!("s{n:02}")).collect::<Vec<_>>());
}

/// `SCAN` and `KEYS` are denied, and are never called.
async fn steady_state_never_scans(flavour: Flavour) {
    let server = server(flavour, &[]);
    mature(&server);
    server
        .cli(&[
            "ACL",
            "SETUSER",
            "app",
            "reset",
            "on",
            ">s3cret",
            "~{tenure:*",
            "~tenure:*",
            "-@all",
            "+@hash",
            "+@set",
            "+@sortedset",
            "+@stream",
            "+unlink",
            "+pexpire",
            "+eval",
            "+evalsha",
            "+time",
        ])
        .unwrap();
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    let store = open(&format!("valkey://app:s3cret@{}", server.addr())).await;
    let tenure = join(&store, "front").await;
    let attach = |n: usize| tenure_core::session::Attach::new(session(&format!("s{n}")), connection("c"));
    let asked: Vec<_> = (0..300).map(attach).collect();
    store.attach(&group(), &tenure, &asked, Call::default()).await.unwrap();
    store
        .end(&group(), &tenure, EndBy::Leave, Call::default())
        .await
        .unwrap();
    let request = SweepRequest {
        reconcile: true,
        ..SweepRequest::default()
    };
    let swept = async || {
        let report = store.sweep(&group(), &request, "p", Call::default()).await.unwrap();
        assert!(report.repaired.is_empty(), "{report:?}");
        let stats = store.session_stats(&group()).await.unwrap();
        stats.disconnected == 300
    };
    tenure_testkit::wait::until_async("the connections are released", PATIENCE, swept).await;
    for state in [None].into_iter().chain(SessionState::ALL.map(Some)) {
        store.sessions(&group(), state, &PageRequest::default()).await.unwrap();
    }
    store.orphans(&group(), Duration::ZERO, 1_000).await.unwrap();
    assert_eq!(store.groups().await.unwrap(), [group()]);
    let stats = server.cli(&["INFO", "commandstats"]).unwrap().text();
    assert!(
        stats.contains("cmdstat_evalsha") && stats.contains("cmdstat_zrange"),
        "{stats}"
    );
    for command in ["cmdstat_scan:", "cmdstat_keys:"] {
        assert!(!stats.contains(command), "{stats}");
    }
}

async fn large_data_is_returned_in_parts(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let front = join(&world.store, "front").await;
    let big = serde_json::Value::String("x".repeat(4_000));
    let attach = |n: usize| tenure_core::session::Attach {
        data: (0..64).map(|field| (format!("f{field}"), big.clone())).collect(),
        ..tenure_core::session::Attach::new(session(&format!("s{n:02}")), connection("c"))
    };
    let asked: Vec<_> = (0..30).map(attach).collect();
    for _ in 0..2 {
        let attached = world
            .store
            .attach(&group(), &front, &asked, Call::default())
            .await
            .unwrap();
        assert_eq!(attached.outcomes.len(), 30);
    }
    let seen = world.listed(None).await;
    assert_eq!(seen.len(), 30);
    assert_eq!(world.seen("s29").await.unwrap().data.len(), 64);
}
