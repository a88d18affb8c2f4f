//! Corrupted data: it is repaired and reported by kind, and no live session is lost.

use std::time::Duration;

use tenure_core::event::{EventKind, EventLog, EventQuery};
use tenure_core::membership::{EndBy, MembershipStore};
use tenure_core::session::{SessionState, SessionStore};
use tenure_core::store::{Call, PageRequest};
use tenure_core::sweep::{Sweep, SweepSteps, drift};
use tenure_testkit::valkey::Flavour;

use crate::sessions::set_up::*;
use crate::world::*;

on_both! {
    each_corruption_is_repaired_and_reported,
    orphan_connection_is_dropped_and_grace_starts,
    foreign_key_type_is_repaired,
    invalid_names_are_skipped_and_repaired,
    reaper_and_janitor_skip_damaged_entries,
    unsettled_group_is_not_repaired,
    pending_release_is_not_reported_as_drift,
}

/// Kinds of drift, with counts.
type Told = &'static [(&'static str, u64)];

/// Corruptions and the drift that must be reported. `%` is the tenure.
const CORRUPTIONS: &[(&[&str], Told)] = &[
    (&["ZREM", "disconnected", "away"], &[(drift::SESSION_WITHOUT_INDEX, 1)]),
    (
        &["ZADD", "disconnected", "9007199254740991", "away"],
        &[(drift::SESSION_WITHOUT_INDEX, 1)],
    ),
    (
        &["ZADD", "disconnected", "1", "nobody"],
        &[(drift::INDEX_WITHOUT_SESSION, 1)],
    ),
    (&["ZADD", "disconnected", "1", "live"], &[(drift::INDEX_OF_ACTIVE, 1)]),
    (&["DEL", "disconnected"], &[(drift::SESSION_WITHOUT_INDEX, 1)]),
    (&["ZREM", "sessions", "live"], &[(drift::LISTING_MISSING, 1)]),
    (&["ZREM", "sessions", "away"], &[(drift::LISTING_MISSING, 1)]),
    (&["DEL", "sessions"], &[(drift::LISTING_MISSING, 2)]),
    (
        &["ZADD", "sessions", "0", "nobody"],
        &[(drift::LISTING_WITHOUT_SESSION, 1)],
    ),
    (&["DEL", "aliases"], &[(drift::ALIAS_MISSING, 2)]),
    (&["HSET", "aliases", "ann", "away"], &[(drift::ALIAS_MISSING, 1)]),
    (
        &["HSET", "aliases", "zoe", "live"],
        &[(drift::ALIAS_WITHOUT_SESSION, 1)],
    ),
    (
        &["HSET", "aliases", "zoe", "nobody"],
        &[(drift::ALIAS_WITHOUT_SESSION, 1)],
    ),
    (&["SREM", "connected:%", "live/c"], &[(drift::HOLDING_MISSING, 1)]),
    (&["DEL", "connected:%"], &[(drift::HOLDING_MISSING, 2)]),
    (
        &["SADD", "connected:%", "nobody/c"],
        &[(drift::HOLDING_WITHOUT_CONNECTION, 1)],
    ),
    (&["HDEL", "conns:live", "c"], &[(drift::HOLDING_WITHOUT_CONNECTION, 1)]),
    (&["DEL", "conns:live"], &[(drift::HOLDING_WITHOUT_CONNECTION, 2)]),
    (&["HDEL", "sess:live", "m"], &[(drift::BROKEN_SESSION, 1)]),
    (&["HSET", "sess:live", "m", "junk"], &[(drift::BROKEN_SESSION, 1)]),
    (&["HSET", "conns:nobody", "c", "% 7"], &[]),
];

async fn each_corruption_is_repaired_and_reported(flavour: Flavour) {
    for limit in [200, 1] {
        let world = Sessions::new(flavour).await;
        for (command, expected) in CORRUPTIONS {
            world.run(&["FLUSHALL"]);
            mature(&world.server);
            world.pass(Duration::from_millis(1)).await;
            let front = join(&world.store, "front").await;
            world.attach(&front, "live", "c", Some("ann")).await;
            world.attach(&front, "live", "d", None).await;
            world.attach(&front, "away", "c", Some("bob")).await;
            world.detach(&front, "away", "c").await;
            let tenure = front.to_string();
            let command: Vec<String> = command.iter().map(|word| word.replace('%', &tenure)).collect();
            let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
            let key = key_of(args[1]);
            args[1] = &key;
            world.run(&args);
            let repaired = world.reconcile(limit).await;
            let expected = expected
                .iter()
                .map(|(kind, count)| ((*kind).to_owned(), *count))
                .collect();
            assert_eq!(repaired, expected, "{command:?} in parts of {limit}");
            assert!(
                world.reconcile(limit).await.is_empty(),
                "{command:?}: a second one finds something"
            );
            // No live data was lost, and every reference leads to it.
            let live = world.seen("live").await.unwrap_or_else(|| panic!("{command:?}"));
            assert_eq!((live.state, live.connections), (SessionState::Active, 2), "{command:?}");
            assert_eq!(live.data, Sessions::data_of("live"), "{command:?}");
            assert_eq!(world.listed(None).await, ["away", "live"], "{command:?}");
            assert_eq!(
                world.listed(Some(SessionState::Disconnected)).await,
                ["away"],
                "{command:?}"
            );
            let told = told(&world).await;
            assert_eq!(told.is_empty(), repaired.is_empty(), "{command:?}");
            // Its end also ends the session.
            assert!(matches!(
                world.detach(&front, "live", "c").await,
                tenure_core::session::DetachOutcome::Detached { reap_in: None }
            ));
            world.detach(&front, "live", "d").await;
            world.pass(GRACE + Duration::from_secs(1)).await;
            world.run(&["DEL", &key_of("conns:nobody")]);
            assert_eq!(world.reap().await.reaped.len(), 2, "{command:?}");
            assert!(
                !world
                    .keys()
                    .iter()
                    .any(|key| key.contains("sess:") || key.contains("conns:")),
                "{command:?}"
            );
        }
    }
}

async fn told(world: &Sessions) -> Vec<tenure_core::event::Event> {
    let query = EventQuery {
        after: None,
        limit: 1_000,
        kinds: vec![EventKind::SessionsRepaired],
        ..EventQuery::default()
    };
    world.store.events(&group(), &query).await.unwrap().events
}

async fn invalid_names_are_skipped_and_repaired(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let front = join(&world.store, "front").await;
    for name in ["away", "live", "zoe"] {
        world.attach(&front, name, "c", None).await;
    }
    world.detach(&front, "away", "c").await;
    let add = |index: &str, entry: &str| {
        let script = format!("return redis.call('ZADD', KEYS[1], ARGV[1], '{entry}')");
        let score = if index == "sessions" { "0" } else { "1" };
        world.run(&["EVAL", &script, "1", &key_of(index), score]);
    };
    add("sessions", "b c");
    add("sessions", "\\255\\254");
    add("disconnected", "\\255");
    for limit in [1, 2, 1_000] {
        for (state, expected) in [
            (None, &["away", "live", "zoe"][..]),
            (Some(SessionState::Disconnected), &["away"][..]),
        ] {
            let (mut names, mut page) = (Vec::new(), PageRequest { after: None, limit });
            loop {
                let part = world.store.sessions(&group(), state, &page).await.unwrap();
                names.extend(part.items.into_iter().map(|seen| seen.session.to_string()));
                page.after = part.next;
                if page.after.is_none() {
                    break;
                }
            }
            assert_eq!(names, expected, "{state:?} in pages of {limit}");
        }
    }
    let orphans = world.store.orphans(&group(), Duration::ZERO, 100).await.unwrap();
    assert_eq!((orphans.orphans.len(), orphans.skipped), (0, 1));
    let repaired = world.reconcile(1).await;
    let expected = [
        (drift::INDEX_WITHOUT_SESSION.to_owned(), 1),
        (drift::LISTING_WITHOUT_SESSION.to_owned(), 2),
    ];
    assert_eq!(repaired, expected.into());
}

async fn orphan_connection_is_dropped_and_grace_starts(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let front = join(&world.store, "front").await;
    world.attach(&front, "kept", "c", None).await;
    world.attach(&front, "left", "c", None).await;
    world.run(&["HSET", &key_of("conns:kept"), "ghost", "nobody@5 6"]);
    world.run(&["HSET", &key_of("conns:left"), "c", "nobody@5 6"]);
    world.run(&["HSET", &key_of("conns:kept"), "junk", "what?"]);
    let repaired = world.reconcile(200).await;
    assert_eq!(repaired.get(drift::GHOST_CONNECTION), Some(&3), "{repaired:?}");
    assert!(world.reconcile(200).await.is_empty());
    let (kept, left) = (world.seen("kept").await.unwrap(), world.seen("left").await.unwrap());
    assert_eq!((kept.state, kept.connections), (SessionState::Active, 1));
    assert_eq!((left.state, left.reap_in), (SessionState::Disconnected, Some(GRACE)));
    // A missing session takes its connections with it.
    world.run(&["DEL", &key_of("sess:kept")]);
    let repaired = world.reconcile(200).await;
    assert_eq!(
        repaired.get(drift::CONNECTION_WITHOUT_SESSION),
        Some(&1),
        "{repaired:?}"
    );
    assert!(world.reconcile(200).await.is_empty());
    let member = world.store.member(&group(), front.member()).await.unwrap().unwrap();
    assert_eq!(member.holdings.connections, 0);
}

async fn foreign_key_type_is_repaired(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    for suffix in [
        "sessions",
        "disconnected",
        "aliases",
        "sess:live",
        "conns:live",
        "connected:%",
    ] {
        world.run(&["FLUSHALL"]);
        mature(&world.server);
        world.pass(Duration::from_millis(1)).await;
        let front = join(&world.store, "front").await;
        world.attach(&front, "live", "c", Some("ann")).await;
        world.attach(&front, "away", "c", Some("bob")).await;
        world.detach(&front, "away", "c").await;
        let name = key_of(&suffix.replace('%', &front.to_string()));
        world.run(&["DEL", &name]);
        world.run(&["SET", &name, "foreign"]);
        world
            .store
            .tick(&group())
            .await
            .expect("members are looked after all the same");
        let repaired = world.reconcile(200).await;
        assert_eq!(repaired.get(drift::BROKEN_SESSION), Some(&1), "{suffix}: {repaired:?}");
        assert!(world.reconcile(200).await.is_empty(), "{suffix}");
        let live = world.seen("live").await.unwrap_or_else(|| panic!("{suffix}"));
        assert_eq!((live.state, live.connections), (SessionState::Active, 1), "{suffix}");
        assert_eq!(world.listed(None).await, ["away", "live"], "{suffix}");
    }
}

async fn reaper_and_janitor_skip_damaged_entries(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let front = join(&world.store, "front").await;
    for name in ["broken", "foreign", "gone", "good", "live"] {
        world.attach(&front, name, "c", None).await;
        if name != "live" {
            world.detach(&front, name, "c").await;
        }
    }
    world.run(&["HSET", &key_of("sess:broken"), "m", "junk"]);
    world.run(&["DEL", &key_of("sess:foreign")]);
    world.run(&["SET", &key_of("sess:foreign"), "foreign"]);
    world.run(&["DEL", &key_of("sess:gone")]);
    world.run(&["ZADD", &key_of("disconnected"), "1", "live"]);
    for _ in 0..3 {
        world.pass(GRACE / 3).await;
        beat(&world.store, &front).await;
    }
    let orphans = world.store.orphans(&group(), Duration::ZERO, 10).await.unwrap();
    assert_eq!((orphans.orphans.len(), orphans.skipped), (1, 4), "{orphans:?}");
    let batch = world.reap().await;
    assert_eq!(
        (batch.reaped.len(), batch.skipped, batch.more),
        (1, 4, false),
        "{batch:?}"
    );
    let live = world.seen("live").await.expect("what the index says deletes nothing");
    assert_eq!(live.state, SessionState::Active);
    // The janitor: one of the holdings is of a foreign type, one is damaged.
    world.attach(&front, "other", "c", None).await;
    world.run(&["DEL", &key_of("conns:other")]);
    world.run(&["SET", &key_of("conns:other"), "foreign"]);
    world
        .store
        .end(&group(), &front, EndBy::Leave, Call::default())
        .await
        .unwrap();
    world.pass(Duration::from_millis(300)).await;
    let report = world
        .store
        .sweep(
            &group(),
            &tenure_core::sweep::SweepRequest::default(),
            "p",
            Call::default(),
        )
        .await
        .unwrap();
    assert_eq!(report.connections_total(), 1, "{report:?}");
    assert_eq!(world.store.status(&group()).await.unwrap().releasing, 0);
}

async fn unsettled_group_is_not_repaired(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let front = join(&world.store, "front").await;
    world.attach(&front, "live", "c", None).await;
    world.run(&["HSET", &key_of("conns:live"), "ghost", "nobody@5 6"]);
    // A clock step that is a gap.
    world.run(&["SET", "tenure:test:now", "1763676899000000"]);
    assert!(world.reconcile(200).await.is_empty());
    assert_eq!(world.run(&["HLEN", &key_of("conns:live")]).int(), Some(2));
}

async fn pending_release_is_not_reported_as_drift(flavour: Flavour) {
    let world = Sessions::new(flavour).await;
    let front = join(&world.store, "front").await;
    for n in 0..30 {
        world.attach(&front, &format!("s{n:02}"), "c", None).await;
    }
    world
        .store
        .end(&group(), &front, EndBy::Leave, Call::default())
        .await
        .unwrap();
    assert!(world.reconcile(7).await.is_empty());
    // Missing on the janitor's list, it would never be released.
    world.run(&["DEL", &key_of("releasing")]);
    let repaired = world.reconcile(7).await;
    assert_eq!(repaired.get(drift::GHOST_CONNECTION), Some(&30), "{repaired:?}");
    assert!(world.reconcile(7).await.is_empty());
    assert_eq!(world.store.session_stats(&group()).await.unwrap().disconnected, 30);
    assert!(
        !world.keys().iter().any(|key| key.contains("connected:")),
        "{:?}",
        world.keys()
    );
}
