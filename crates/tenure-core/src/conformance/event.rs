//! Cases about the event log.

use std::sync::Arc;

use super::world::{Make, World, keys, ms, refused, s};
use crate::error::ErrorKind;
use crate::event::{EventId, EventKind, EventQuery};
use crate::membership::{EndBy, Labels};
use crate::store::{Call, StoreOptions};

/// R0.6: dense, rising, with time and tenure.
pub async fn events_tell_what_happened_in_order(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(4)).await;
    let a2 = world.join("a", s(4)).await;
    let b = world.join("b", s(60)).await;
    world.claim_all(&a2, &keys("k", 2)).await;
    world.pass(s(4)).await;
    world.end_lapsed().await;
    world.pass(ms(250)).await;
    world.sweep("p").await;
    world
        .store
        .end(&world.group, &b, EndBy::Expel, Call::default())
        .await
        .expect("expelled");
    let events = world.events().await;
    let told: Vec<_> = events
        .iter()
        .map(|event| (event.kind, event.tenure.clone().expect("a tenure")))
        .collect();
    assert_eq!(
        told,
        [
            (EventKind::Joined, a.clone()),
            (EventKind::Superseded, a),
            (EventKind::Joined, a2.clone()),
            (EventKind::Joined, b.clone()),
            (EventKind::Lapsed, a2.clone()),
            (EventKind::Evicted, a2),
            (EventKind::Expelled, b),
        ]
    );
    assert!(
        events
            .windows(2)
            .all(|pair| pair[0].id.0 + 1 == pair[1].id.0 && pair[0].at <= pair[1].at)
    );
    assert_eq!(
        world.store.status(&world.group).await.expect("a status").last_event,
        events[6].id
    );
}

/// Filtered pages still move on over what was not asked for.
pub async fn events_are_filtered_and_paged(make: Make<'_>) {
    let world = World::new(make).await;
    for n in 0..10 {
        let tenure = world.join(&format!("m{n}"), s(60)).await;
        world
            .store
            .end(&world.group, &tenure, EndBy::Leave, Call::default())
            .await
            .expect("left");
    }
    let (mut after, mut left, mut pages) = (None, 0, 0);
    loop {
        let query = EventQuery {
            after,
            limit: 3,
            kinds: vec![EventKind::Left],
        };
        let page = world.store.events(&world.group, &query).await.expect("a page");
        assert!(page.events.iter().all(|event| event.kind == EventKind::Left) && !page.missed);
        left += page.events.len();
        pages += 1;
        if after == Some(page.last) {
            break;
        }
        after = Some(page.last);
    }
    assert_eq!((left, pages), (10, 8), "20 events in pages of 3, and one that is empty");
    for limit in [0, 1001] {
        let query = EventQuery {
            after: None,
            limit,
            kinds: Vec::new(),
        };
        refused(world.store.events(&world.group, &query).await, ErrorKind::Invalid);
    }
}

/// A gap in the log is announced, never silent; also when the log is from another life.
pub async fn trimmed_events_are_announced(make: Make<'_>) {
    let world = World::with(
        make,
        StoreOptions {
            events_max: 200,
            ..StoreOptions::default()
        },
    )
    .await;
    world.join("a", s(60)).await;
    let first = world.events().await[0].id;
    for _ in 0..1_500 {
        world.join("a", s(60)).await;
    }
    let query = EventQuery {
        after: Some(first),
        limit: 1000,
        kinds: Vec::new(),
    };
    let page = world.store.events(&world.group, &query).await.expect("a page");
    assert!(page.missed && !page.events.is_empty());
    let oldest = page.events[0].id;
    let query = EventQuery {
        after: Some(EventId(oldest.0 - 1)),
        limit: 1000,
        kinds: Vec::new(),
    };
    assert!(
        !world.store.events(&world.group, &query).await.expect("a page").missed,
        "the very next one is there"
    );
    let newest = world.store.status(&world.group).await.expect("a status").last_event;
    for (after, missed) in [(newest, false), (EventId(newest.0 + 5), true)] {
        let query = EventQuery {
            after: Some(after),
            limit: 10,
            kinds: Vec::new(),
        };
        assert_eq!(
            world.store.events(&world.group, &query).await.expect("a page").missed,
            missed
        );
    }
}

/// Wake-ups may be early or coalesce; they come.
pub async fn waiting_ends_with_news(make: Make<'_>) {
    let world = Arc::new(World::new(make).await);
    world.join("a", s(60)).await;
    let last = world.store.status(&world.group).await.expect("a status").last_event;
    let waiting = tokio::spawn({
        let world = Arc::clone(&world);
        async move {
            loop {
                world
                    .store
                    .wait_for_events(&world.group, last, s(3600))
                    .await
                    .expect("waited");
                let query = EventQuery {
                    after: Some(last),
                    limit: 10,
                    kinds: Vec::new(),
                };
                let page = world.store.events(&world.group, &query).await.expect("a page");
                if !page.events.is_empty() {
                    return page.events[0].kind;
                }
            }
        }
    });
    let join = crate::membership::Join {
        member: super::world::member("b"),
        ttl: s(60),
        labels: Labels::default(),
    };
    world
        .store
        .join(&world.group, &join, Call::default())
        .await
        .expect("a join");
    // A store that polls sleeps on the suite's clock.
    while !waiting.is_finished() {
        world.outage(ms(100)).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting.await.expect("no panic"), EventKind::Joined);
}
