//! The event log after a lost tail, and in the format of earlier versions.

use tenure_core::clock::SystemClock;
use tenure_core::event::{EventId, EventLog, EventPage, EventQuery};
use tenure_core::store::StoreOptions;
use tenure_testkit::valkey::Flavour;
use tenure_valkey::ValkeyStore;

use crate::world::*;

on_both! {
    events_after_a_lost_tail_are_read,
    dense_event_log_of_an_earlier_version_is_read,
    missing_xtrim_permission_does_not_stop_steps,
}

async fn page_after(store: &ValkeyStore, after: EventId) -> EventPage {
    let query = EventQuery {
        after: Some(after),
        limit: 100,
        ..EventQuery::default()
    };
    store.events(&group(), &query).await.expect("a page")
}

fn members(page: &EventPage) -> Vec<String> {
    let members = page.events.iter().filter_map(|event| event.member());
    members.map(ToString::to_string).collect()
}

async fn events_after_a_lost_tail_are_read(flavour: Flavour) {
    let (primary, replica) = (server(flavour, &[]), server(flavour, &[]));
    mature(&primary);
    let before = open(&primary.url()).await;
    let first = join(&before, "a").await;
    replica.replica_of(&primary);
    // The replica has the first join; from here on it lags forever.
    replica.promote();
    for lost in ["lost-1", "lost-2", "lost-3"] {
        join(&before, lost).await;
    }
    let read = page_after(&before, EventId(first.term().get() - 1)).await;
    assert_eq!(members(&read).last().map(String::as_str), Some("lost-3"));
    primary.kill();

    let store = open(&replica.url()).await;
    // More than were lost, so consecutive numbers would have passed the reader.
    let joined = ["b", "c", "d", "e", "f"];
    for member in joined {
        join(&store, member).await;
    }
    let page = page_after(&store, read.last).await;
    let told = members(&page);
    assert!(
        joined.iter().all(|member| told.iter().any(|one| one == member)),
        "{told:?}"
    );
    assert!(page.events.iter().all(|event| page.missed || event.id > read.last));
}

async fn dense_event_log_of_an_earlier_version_is_read(flavour: Flavour) {
    let server = server(flavour, &[]);
    mature(&server);
    let store = open(&server.url()).await;
    join(&store, "a").await;
    // The log before event numbers had gaps; entries below 101 were trimmed.
    server.cli(&["DEL", &key_of("events")]).unwrap();
    for id in 101..=104 {
        let (id, at) = (format!("{id}-0"), "5");
        let entry = [
            "XADD",
            &key_of("events"),
            &id,
            "kind",
            "joined",
            "at",
            at,
            "tenure",
            "old@7",
        ];
        server.cli(&entry).unwrap();
    }
    server.cli(&["HSET", &key_of("meta"), "events", "104"]).unwrap();
    for (after, missed, events) in [
        (99, true, 4),
        (100, false, 4),
        (103, false, 1),
        (104, false, 0),
        (105, true, 4),
    ] {
        let page = page_after(&store, EventId(after)).await;
        assert_eq!((page.missed, page.events.len()), (missed, events), "after {after}");
    }
    join(&store, "new").await;
    let page = page_after(&store, EventId(103)).await;
    assert_eq!(
        (page.missed, members(&page)),
        (false, vec!["old".to_owned(), "new".to_owned()])
    );
    assert!(
        page.last.0 > 1_000_000_000_000_000,
        "a number of the store's time: {}",
        page.last
    );
    // An entry names the number before it, so no event is missing between the two once the old ones are trimmed.
    server.cli(&["XTRIM", &key_of("events"), "MAXLEN", "1"]).unwrap();
    for (after, missed) in [(103, true), (104, false)] {
        assert_eq!(page_after(&store, EventId(after)).await.missed, missed, "after {after}");
    }
}

async fn missing_xtrim_permission_does_not_stop_steps(flavour: Flavour) {
    let server = server(flavour, &[]);
    mature(&server);
    let allow = |rule: &str| {
        let rules = ["ACL", "SETUSER", "app", "on", ">s3cret", "~*", "+@all", rule];
        assert_eq!(server.cli(&rules).unwrap().text(), "OK");
    };
    allow("-xtrim");
    let short = StoreOptions {
        events_bytes: 4096,
        ..StoreOptions::default()
    };
    let url = server.url().replace("://", "://app:s3cret@");
    let store = ValkeyStore::open(&url, short, options(), SystemClock::shared())
        .await
        .unwrap();
    for n in 0..300 {
        join(&store, &format!("m{n}")).await;
    }
    let kept = || server.cli(&["XLEN", &key_of("events")]).unwrap().text();
    assert_eq!(kept(), "300");
    allow("+xtrim");
    // A step that adds events trims the log, not each of them.
    for n in 300..330 {
        join(&store, &format!("m{n}")).await;
    }
    let left: u64 = kept().parse().unwrap();
    assert!((1..150).contains(&left), "{left} events of 4 KiB");
}
