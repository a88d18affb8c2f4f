//! Cases about the event log.

use std::sync::Arc;

use super::world::{Make, World, key, keys, ms, refused, s};
use crate::error::ErrorKind;
use crate::event::{Event, EventId, EventKind, EventPage, EventQuery};
use crate::id::MAX_NAME;
use crate::membership::{EndBy, Labels};
use crate::store::{Call, StoreOptions};

/// Each number exceeds the previous one and is not below the store's time.
fn numbered_like_terms(events: &[Event]) {
    for pair in events.windows(2) {
        let number = (pair[0].id.0 + 1).max(pair[1].at.micros());
        assert_eq!(pair[1].id, EventId(number), "{:?} after {:?}", pair[1], pair[0]);
    }
}

/// Events are ordered by number and carry time and tenure.
pub async fn events_record_changes_in_order(make: Make<'_>) {
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
    assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at));
    numbered_like_terms(&events);
    assert_eq!(
        world.store.status(&world.group).await.expect("a status").last_event,
        events[6].id
    );
}

/// A filtered page advances past events that do not match, in both directions.
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
            ..EventQuery::default()
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
    assert_eq!((left, pages), (10, 8), "20 events in pages of 3, then an empty page");
    let newest = world.store.status(&world.group).await.expect("a status").last_event;
    let (mut before, mut left, mut pages) = (EventId(newest.0 + 1), Vec::new(), 0);
    loop {
        let query = EventQuery {
            before: Some(before),
            limit: 3,
            kinds: vec![EventKind::Left],
            ..EventQuery::default()
        };
        let page = world.store.events(&world.group, &query).await.expect("a page");
        assert!(!page.missed && page.events.is_sorted_by_key(|event| event.id));
        left.splice(0..0, page.events);
        pages += 1;
        if before == page.last {
            break;
        }
        before = page.last;
    }
    assert_eq!((left, pages), (world.events_of(EventKind::Left).await, 8));
    let both = EventQuery {
        after: Some(EventId(1)),
        before: Some(before),
        limit: 3,
        ..EventQuery::default()
    };
    refused(world.store.events(&world.group, &both).await, ErrorKind::Invalid);
    for limit in [0, 1001] {
        let query = EventQuery {
            limit,
            ..EventQuery::default()
        };
        refused(world.store.events(&world.group, &query).await, ErrorKind::Invalid);
    }
}

/// A page reports `missed` exactly when events between the cursor and the page are gone, also for a cursor that this log
/// never assigned.
pub async fn trimmed_events_are_announced(make: Make<'_>) {
    let world = World::with(
        make,
        StoreOptions {
            events_max: 200,
            ..StoreOptions::default()
        },
    )
    .await;
    let mut all: Vec<Event> = Vec::new();
    for round in 0..10 {
        for _ in 0..40 {
            world.join("a", s(60)).await;
            // Time passes, so that the numbers have gaps.
            world.outage(ms(3)).await;
        }
        let page = page(&world, all.last().map(|event| event.id)).await;
        assert!(!page.missed, "round {round}");
        all.extend(page.events);
    }
    numbered_like_terms(&all);
    let kept = page(&world, None).await.events;
    let oldest = all
        .iter()
        .position(|event| event.id == kept[0].id)
        .expect("it was read");
    assert!(kept.len() >= 200 && oldest > 400, "{} of {}", kept.len(), all.len());
    assert_eq!(kept, all[oldest..]);
    let number = |place: usize| all[place].id.0;
    for (after, missed, first) in [
        (number(0), true, oldest),
        (number(oldest - 1) - 1, true, oldest),
        // The newest dropped event: a reader that has it missed nothing.
        (number(oldest - 1), false, oldest),
        (number(oldest) - 1, false, oldest),
        (number(oldest), false, oldest + 1),
    ] {
        let page = page(&world, Some(EventId(after))).await;
        assert_eq!(
            (page.missed, page.events[0].id),
            (missed, all[first].id),
            "after {after}"
        );
    }
    let newest = world.store.status(&world.group).await.expect("a status").last_event;
    for (after, missed) in [(newest, false), (EventId(newest.0 + 5), true)] {
        assert_eq!(page(&world, Some(after)).await.missed, missed);
    }
}

/// Evicts 2,000 keys of maximum length and returns the events that list them.
async fn evict_long_keys(world: &World, pass: &str) -> Vec<Event> {
    let tenure = world.join("owner", s(60)).await;
    let keys: Vec<_> = (0..2_000).map(|n| key(&format!("{n:0>MAX_NAME$}"))).collect();
    for part in keys.chunks(1_000) {
        world.claim_all(&tenure, part).await;
    }
    let newest = world.store.status(&world.group).await.expect("a status").last_event;
    world.leave(&tenure).await;
    world.pass(ms(300)).await;
    assert_eq!(world.sweep(pass).await.evicted_total(), 2_000);
    let events = page(world, Some(newest)).await.events;
    events
        .into_iter()
        .filter(|event| event.kind == EventKind::Evicted)
        .collect()
}

/// The bytes of keys in one event are bounded. Each key is listed once and counted in the event that lists it.
pub async fn long_keys_are_listed_in_several_events(make: Make<'_>) {
    let world = World::new(make).await;
    let evicted = evict_long_keys(&world, "p").await;
    let mut told: Vec<String> = Vec::new();
    for event in evicted {
        let bytes: usize = event.keys.iter().map(|key| key.len() + 1).sum();
        assert!(bytes <= 4096, "{bytes} bytes of keys in one event");
        assert_eq!(event.counts, [("devices".to_owned(), event.keys.len() as u64)].into());
        assert!(
            event.pass.as_deref().is_some_and(|pass| pass.starts_with('p')),
            "{event:?}"
        );
        told.extend(event.keys);
    }
    told.sort();
    let all: Vec<_> = (0..2_000).map(|n| format!("devices/{n:0>MAX_NAME$}")).collect();
    assert!(told == all, "{} of {} keys were listed", told.len(), all.len());
}

/// The log keeps about `events_bytes` and reports that the oldest events are gone.
pub async fn the_log_is_bounded_in_bytes(make: Make<'_>) {
    const MOST: usize = 1 << 20;
    let options = StoreOptions {
        events_bytes: MOST as u64,
        ..StoreOptions::default()
    };
    let world = World::with(make, options).await;
    world.join("first", s(60)).await;
    let first = world.events().await[0].id;
    // Four times 416 KB of keys.
    for n in 0..4 {
        evict_long_keys(&world, &format!("p{n}")).await;
    }
    world.tick().await;
    let kept = page(&world, None).await.events;
    let keys = kept.iter().flat_map(|event| &event.keys);
    let bytes: usize = keys.map(|key| key.len() + 1).sum();
    assert!(bytes <= MOST && bytes > MOST / 2, "{bytes} bytes of keys are kept");
    let gone = page(&world, Some(first)).await;
    assert!(gone.missed && gone.events == kept);
}

/// A page after an event, or from the oldest.
async fn page(world: &World, after: Option<EventId>) -> EventPage {
    let query = EventQuery {
        after,
        limit: 1000,
        ..EventQuery::default()
    };
    world.store.events(&world.group, &query).await.expect("a page")
}

/// A wake-up may be early or coalesced, but it arrives.
pub async fn waiting_ends_with_a_new_event(make: Make<'_>) {
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
                    ..EventQuery::default()
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
    // A polling store sleeps on the suite's clock.
    while !waiting.is_finished() {
        world.outage(ms(100)).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting.await.expect("no panic"), EventKind::Joined);
}
