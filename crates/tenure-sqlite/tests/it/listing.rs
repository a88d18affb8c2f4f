//! Pages and the event log, where rows and memory meet.

use std::sync::Arc;

use tenure_core::event::{EventId, EventLog, EventQuery};
use tenure_core::membership::MembershipStore;
use tenure_core::registry::RegistryStore;
use tenure_core::store::{Backend, PageRequest, StoreOptions};
use tenure_core::{Error, ErrorKind};
use tenure_sqlite::SqliteStore;

use crate::common::{claim, devices, group, join, manual, member, open, s};

#[tokio::test]
async fn claims_of_one_owner_go_from_tenure_to_tenure() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("tenure.db"), &manual());
    let mut wanted = Vec::new();
    for _ in 0..3 {
        let tenure = join(&store, "a", s(10)).await;
        for n in 0..3 {
            let name = format!("{}-{n}", tenure.term());
            claim(&store, &tenure, &name).await.unwrap();
            wanted.push((tenure.clone(), name));
        }
    }
    // Names around it in the order of the alphabet belong to other members.
    for name in ["a.b", "a1", "A", "aA"] {
        let tenure = join(&store, name, s(10)).await;
        claim(&store, &tenure, name).await.unwrap();
    }
    for limit in [1, 2, 4, 100] {
        let (mut after, mut all) = (None, Vec::new());
        loop {
            let request = PageRequest { after, limit };
            let owner = member("a");
            let page = store
                .claims(&group(), &devices(), Some(&owner), &request)
                .await
                .unwrap();
            all.extend(
                page.items
                    .into_iter()
                    .map(|claim| (claim.tenure, claim.key.to_string())),
            );
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(all, wanted, "in pages of {limit}");
    }
    store.close().await;
}

#[tokio::test]
async fn a_cursor_of_another_listing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("tenure.db"), &manual());
    for name in ["a", "b"] {
        let tenure = join(&store, name, s(10)).await;
        claim(&store, &tenure, &format!("{name}-1")).await.unwrap();
        claim(&store, &tenure, &format!("{name}-2")).await.unwrap();
    }
    let page = |after: Option<&String>| PageRequest {
        after: after.cloned(),
        limit: 1,
    };
    let (group, devices, a, b) = (group(), devices(), member("a"), member("b"));
    let of_members = store.members(&group, &page(None)).await.unwrap().next;
    let of_claims = store.claims(&group, &devices, None, &page(None)).await.unwrap().next;
    let of_a = store
        .claims(&group, &devices, Some(&a), &page(None))
        .await
        .unwrap()
        .next;
    let kind = |error: Error| error.kind();
    let wrong = store.claims(&group, &devices, None, &page(of_members.as_ref())).await;
    assert_eq!(wrong.map_err(kind), Err(ErrorKind::Invalid));
    let wrong = store.members(&group, &page(of_claims.as_ref())).await;
    assert_eq!(wrong.map_err(kind), Err(ErrorKind::Invalid));
    let wrong = store.claims(&group, &devices, Some(&b), &page(of_a.as_ref())).await;
    assert_eq!(wrong.map_err(kind), Err(ErrorKind::Invalid));
    store.close().await;
}

#[tokio::test]
async fn trimmed_events_leave_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let options = StoreOptions {
        events_max: 10,
        ..StoreOptions::default()
    };
    let store = SqliteStore::open(&path, options.clone(), manual() as Arc<_>).unwrap();
    for n in 0..700 {
        join(&store, &format!("m{n}"), s(10)).await;
    }
    let query = EventQuery {
        after: None,
        limit: 1_000,
        ..EventQuery::default()
    };
    let page = store.events(&group(), &query).await.unwrap();
    assert_eq!((page.events.len(), page.missed), (10, false));
    let newest = page.events[9].id;
    let old = EventQuery {
        after: Some(EventId(page.last.0 - 11)),
        ..query.clone()
    };
    assert!(store.events(&group(), &old).await.unwrap().missed);
    let rows: i64 = rusqlite::Connection::open(&path)
        .unwrap()
        .query_row("SELECT count(*) FROM events", [], |row| row.get(0))
        .unwrap();
    assert!(rows < 300, "{rows} rows");
    store.close().await;
    // What is kept is counted again, so that the log is as long as before.
    let store = SqliteStore::open(&path, options, manual() as Arc<_>).unwrap();
    for n in 0..3 {
        join(&store, &format!("n{n}"), s(10)).await;
    }
    let page = store.events(&group(), &query).await.unwrap();
    assert_eq!(page.events.len(), 10);
    assert!(page.events.iter().any(|event| event.id == newest), "{page:?}");
    store.close().await;
}
