//! Cases about following the hot store and about the data that the mirror receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Make, World, engagement, provider, tenure};
use crate::conformance::world::{ms, s};
use crate::id::RosterName;
use crate::ledger::{
    Change, EndedBatch, EndedTenure, HotStore, HotStoreClaim, HotStoreOutcome, NewEngagement, Reason, RosterSettings,
    RosterView, SettingsPatch, Status, Version,
};
use crate::membership::EndReason;

/// Invariant 5: a provider that came back is not taken offline.
pub async fn an_ended_tenure_takes_exactly_its_provider_offline(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster) = (&world.ledger, &world.roster);
    for (name, term) in [("ann", 7), ("bob", 7), ("cyd", 7)] {
        world.online(name, 1, term).await;
    }
    world.online("cyd", 1, 8).await;
    world.pass(s(10)).await;
    let now = world.now().await;
    let ended = |name: &str, term, at, reason| EndedTenure {
        tenure: tenure(name, term),
        at,
        reason,
        heard_at: None,
    };
    let batch = [
        ended("zoe", 3, now, EndReason::Lapsed),
        ended("cyd", 7, now, EndReason::Superseded),
        ended("bob", 7, now + s(60), EndReason::Expelled),
        ended("ann", 7, now.minus(s(2)), EndReason::Lapsed),
    ];
    let changed = ledger.offline_ended(roster, &batch).await.expect("a batch").offline;
    assert_eq!(changed, [world.provider("ann").await, world.provider("bob").await]);
    assert_eq!(
        changed[0].last_offline_at,
        Some(now.minus(s(2))),
        "when the tenure ended"
    );
    assert_eq!(changed[1].last_offline_at, Some(now), "but not in the future");
    assert!(changed.iter().all(|row| row.online.is_none()));
    assert_eq!(world.provider("cyd").await.online, Some(tenure("cyd", 8)));
    let again = ledger.offline_ended(roster, &batch).await;
    assert_eq!(again.expect("a batch"), EndedBatch::default());
    let mut told = world.changes().await.split_off(3);
    told.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        told,
        [
            ("ann".to_owned(), Change::Offline, Reason::Ended(EndReason::Lapsed)),
            ("bob".to_owned(), Change::Offline, Reason::Ended(EndReason::Expelled)),
        ]
    );
}

/// A process without the hot store recorded heartbeats of a provider that lapsed there.
pub async fn a_recorded_heartbeat_refutes_a_lapse(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster) = (&world.ledger, &world.roster);
    for name in ["ann", "bob", "cyd", "dan"] {
        world.online(name, 1, 7).await;
    }
    let heard_at = world.now().await;
    world.pass(s(50)).await;
    let now = world.now().await;
    let beats = [
        (provider("ann"), now),
        (provider("bob"), heard_at),
        (provider("dan"), now),
    ];
    ledger.record_heartbeats(roster, &beats).await.expect("heartbeats");
    world.pass(s(10)).await;
    let ended = |name: &str, reason| EndedTenure {
        tenure: tenure(name, 7),
        at: heard_at + s(60),
        reason,
        heard_at: Some(heard_at),
    };
    let lapsed = ["ann", "bob", "cyd"].map(|name| ended(name, EndReason::Lapsed));
    let mut batch = lapsed.to_vec();
    batch.push(ended("dan", EndReason::Expelled));
    let done = ledger.offline_ended(roster, &batch).await.expect("a batch");
    let names = |rows: &[crate::ledger::Provider]| rows.iter().map(|row| row.provider.to_string()).collect::<Vec<_>>();
    assert_eq!(
        (names(&done.spared), names(&done.offline)),
        (
            vec!["ann".to_owned()],
            vec!["bob".to_owned(), "cyd".to_owned(), "dan".to_owned()]
        )
    );
    assert_eq!(done.spared, [world.provider("ann").await]);
    assert_eq!(done.spared[0].online, Some(tenure("ann", 7)));
    world.pass(s(50)).await;
    let late = ledger.offline_ended(roster, &lapsed[..1]).await.expect("a batch");
    assert_eq!(names(&late.offline), ["ann"], "its heartbeat is stale by now");
}

/// Five concurrent callers, each with the ends in another order.
pub async fn concurrent_followers_apply_an_end_once(make: Make<'_>) {
    let world = World::new(make).await;
    let names: Vec<String> = (0..40).map(|n| format!("p{n:02}")).collect();
    for name in &names {
        world.online(name, 1, 7).await;
    }
    let at = world.now().await;
    let mut tasks = Vec::new();
    for turn in 0..5 {
        let mut batch: Vec<EndedTenure> = names
            .iter()
            .map(|name| EndedTenure {
                tenure: tenure(name, 7),
                at,
                reason: EndReason::Lapsed,
                heard_at: None,
            })
            .collect();
        batch.rotate_left(turn * 8);
        if turn % 2 == 1 {
            batch.reverse();
        }
        let (ledger, roster) = (Arc::clone(&world.ledger), world.roster.clone());
        tasks.push(tokio::spawn(async move {
            ledger
                .offline_ended(&roster, &batch)
                .await
                .expect("a batch")
                .offline
                .len()
        }));
    }
    let mut changed = 0;
    for task in tasks {
        changed += task.await.expect("a task");
    }
    assert_eq!(changed, names.len());
    assert_eq!(world.log().await.len(), 2 * names.len());
}

/// A heartbeat only moves forward and draws no version.
pub async fn heartbeat_times_never_go_back(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster) = (&world.ledger, &world.roster);
    let before = world.online("ann", 1, 7).await;
    world.put("bob", 1).await;
    let at = world.now().await.minus(ms(100));
    let record = async |beats: &[(&str, u64)]| {
        let beats: Vec<_> = beats.iter().map(|(name, n)| (provider(name), at + ms(*n))).collect();
        let news = ledger.record_heartbeats(roster, &beats).await;
        news.expect("heartbeats")
    };
    assert_eq!(record(&[]).await, 0);
    assert_eq!(
        record(&[("bob", 1), ("ann", 5), ("zoe", 5), ("ann", 9), ("ann", 7)]).await,
        2
    );
    assert_eq!(
        world.provider("ann").await.last_heartbeat_at,
        Some(at + ms(9)),
        "the latest of several"
    );
    assert_eq!(record(&[("ann", 8), ("bob", 1)]).await, 0);
    assert_eq!(world.provider("ann").await.last_heartbeat_at, Some(at + ms(9)));
    assert_eq!(record(&[("ann", 10), ("bob", 0)]).await, 1);
    let after = world.provider("ann").await;
    assert_eq!((after.version, after.online), (before.version, before.online));
    assert_eq!(record(&[("bob", 60_000_000)]).await, 1);
    let heard = world.provider("bob").await.last_heartbeat_at.expect("a time");
    assert!(heard <= world.now().await, "the heartbeat is not in the future");
    world.put("cyd", 1).await;
    let names = ["ann", "bob", "cyd", "zoe"].map(provider);
    let last = ledger.last_heartbeats(roster, &names).await.expect("times");
    let expected = [(provider("ann"), at + ms(10)), (provider("bob"), heard)];
    assert_eq!(last, BTreeMap::from(expected), "only providers with a heartbeat");
    assert_eq!(
        ledger.provider(roster, &provider("zoe")).await.expect("a look-up"),
        None
    );
}

/// A process that cannot reach the hot store asks for heartbeats in the ledger; the request expires.
pub async fn a_request_for_heartbeats_expires(make: Make<'_>) {
    let world = World::new(make).await;
    let ledger = &world.ledger;
    let (care, desk) = (world.roster.clone(), RosterName::new("desk").expect("a good name"));
    let want = async |rosters: &[RosterName], lasts| {
        let wanted = ledger.want_heartbeats(rosters, lasts).await;
        wanted.expect("a mark");
    };
    let wanted = async || Vec::from_iter(ledger.overview().await.expect("an overview").wanted);
    assert_eq!(wanted().await, []);
    want(&[desk.clone(), care.clone(), care.clone()], s(30)).await;
    want(std::slice::from_ref(&desk), s(5)).await;
    assert_eq!(wanted().await, [care.clone(), desk.clone()]);
    world.pass(s(10)).await;
    assert_eq!(
        wanted().await,
        [care.clone(), desk.clone()],
        "a shorter request does not shorten a longer one"
    );
    world.pass(s(15)).await;
    want(std::slice::from_ref(&care), s(20)).await;
    world.pass(s(6)).await;
    assert_eq!(wanted().await, [care]);
    world.pass(s(20)).await;
    assert_eq!(wanted().await, []);
    assert_eq!(
        ledger.rosters().await.expect("a list"),
        [],
        "a request creates no roster"
    );
}

/// The age of the last heartbeat pass shows a process without the hot store whether the ledger's heartbeats are fresh.
pub async fn a_heartbeat_pass_has_an_age(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster) = (&world.ledger, &world.roster);
    let pass = async || ledger.heartbeat_pass(roster).await.expect("a look-up");
    assert_eq!(pass().await, None);
    let wanted = ledger.want_heartbeats(std::slice::from_ref(roster), s(30));
    wanted.await.expect("a mark");
    assert_eq!(pass().await, None, "a request is not a pass");
    let note = async |fresh_since| {
        let noted = ledger.note_heartbeat_pass(roster, fresh_since).await;
        noted.expect("a pass");
    };
    let since = world.now().await.minus(s(3));
    note(since).await;
    world.pass(s(7)).await;
    let found = pass().await.expect("a pass");
    assert_eq!(found.fresh_since, since);
    assert!((s(7)..s(8)).contains(&found.age), "{found:?}");
    note(world.now().await + s(60)).await;
    let found = pass().await.expect("a pass");
    assert!(found.age < s(1), "{found:?}");
    assert!(found.fresh_since <= world.now().await, "no heartbeat is in the future");
    let wanted = ledger.overview().await.expect("an overview").wanted;
    assert_eq!(wanted, [roster.clone()].into());
}

/// One poll returns what a process needs of every roster.
pub async fn an_overview_covers_every_roster(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, care) = (&world.ledger, world.roster.clone());
    let desk = RosterName::new("desk").expect("a good name");
    let overview = async || ledger.overview().await.expect("an overview");
    let empty = overview().await;
    assert_eq!((empty.rosters, empty.wanted), Default::default());
    let patch = SettingsPatch {
        stale_after: Some(s(20)),
        ..SettingsPatch::default()
    };
    let set = ledger.set_settings(&desk, &patch).await;
    let settings = set.expect("settings");
    let row = world.online("ann", 9, 7).await;
    let view = |settings, is_dirty, next_expiry| RosterView {
        settings,
        is_dirty,
        next_expiry,
    };
    let defaults = RosterSettings::default();
    assert_eq!(
        overview().await.rosters,
        [
            (care.clone(), view(defaults, true, None)),
            (desk.clone(), view(settings, false, None))
        ]
        .into()
    );
    let rows = [(row.provider, row.version)];
    ledger.clean(&care, &rows).await.expect("it is clean");
    assert_eq!(overview().await.rosters[&care], view(defaults, false, None));

    let begun = world.now().await;
    for (name, after) in [("e1", 30), ("e2", 10)] {
        let new = NewEngagement {
            engagement: engagement(name),
            provider: None,
            status: Status::Pending,
            expires_in: Some(s(after)),
            active_for: None,
        };
        let created = ledger.create_engagement(&care, &new).await;
        created.expect("an engagement");
    }
    assert_eq!(overview().await.rosters[&care].next_expiry, Some(begun + s(10)));
    world.shift("e2", Some(Status::Ended), None).await;
    let now = overview().await;
    assert_eq!(now.rosters[&care].next_expiry, Some(begun + s(30)));
    assert!((begun..begun + s(9)).contains(&now.as_of), "{now:?}");
}

/// A change is dirty until its version is marked clean.
pub async fn a_change_is_dirty_until_its_version_is_clean(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster) = (&world.ledger, &world.roster);
    assert_eq!(ledger.dirty(roster, 10).await.expect("the outbox"), []);
    assert_eq!(ledger.dirty_counts().await.expect("counts"), [].into());
    let first = world.put("ann", 1).await.provider;
    let since = world.now().await;
    world.put("bob", 1).await;
    world.pass(s(1)).await;
    let second = world.online("ann", 1, 7).await;
    let dirty = ledger.dirty(roster, 10).await.expect("the outbox");
    let of: Vec<_> = dirty.iter().map(|dirty| dirty.provider.as_str()).collect();
    assert_eq!(of, ["bob", "ann"], "the oldest version first");
    assert_eq!(
        (&dirty[1].row, dirty[1].version),
        (&Some(second.clone()), second.version)
    );
    assert_eq!(dirty[1].since, since, "dirty since its first change");
    assert_eq!(ledger.dirty(roster, 1).await.expect("the outbox").len(), 1);
    let counts = async || ledger.dirty_counts().await.expect("counts");
    assert_eq!(counts().await, [(roster.clone(), 2)].into());
    let clean = async |version: Version| {
        let rows = [(provider("ann"), version), (provider("zoe"), version)];
        ledger.clean(roster, &rows).await.expect("an answer")
    };
    assert_eq!(clean(first.version).await, 0, "it has changed since");
    assert_eq!(clean(second.version).await, 1);
    assert_eq!(clean(second.version).await, 0);
    assert_eq!(counts().await, [(roster.clone(), 1)].into());
    assert_eq!(ledger.dirty(roster, 10).await.expect("the outbox").len(), 1);
    let beat = [(provider("ann"), world.now().await + s(1))];
    ledger.record_heartbeats(roster, &beat).await.expect("a heartbeat");
    assert_eq!(
        ledger.dirty(roster, 10).await.expect("the outbox").len(),
        1,
        "a heartbeat draws no version"
    );
    world.create("e1", Some("ann"), Status::Pending).await;
    assert_eq!(
        ledger.dirty(roster, 10).await.expect("the outbox").len(),
        2,
        "an engagement draws a version"
    );
}

/// Reconcile uses it for tombstones.
pub async fn a_drawn_version_exceeds_all_earlier_ones(make: Make<'_>) {
    let world = World::new(make).await;
    let row = world.online("ann", 1, 7).await;
    let drawn = world.ledger.next_version().await.expect("a version");
    assert!(drawn > row.version);
    assert!(world.put("bob", 1).await.provider.version > drawn);
}

/// For ledgers that several processes can use.
pub async fn a_second_hot_store_is_refused(make: Make<'_>) {
    let world = World::new(make).await;
    let claim = async |id: &str, place: &str, was: Option<&str>, replaces: bool| {
        let claim = HotStoreClaim {
            own: HotStore {
                id: id.to_owned(),
                place: place.to_owned(),
            },
            was: was.map(str::to_owned),
            replaces,
        };
        let outcome = world.ledger.claim_hot_store(&claim).await.expect("an answer");
        match outcome {
            HotStoreOutcome::Admitted => None,
            HotStoreOutcome::Refused(recorded) => Some((recorded.hot_store.id, recorded.confirmed_ago)),
        }
    };
    let refused = |id: &str, ago| Some((id.to_owned(), ago));
    assert_eq!(world.ledger.hot_store().await.expect("no record"), None);
    assert_eq!(claim("one", "valkey://a", None, false).await, None);
    world.pass(s(3)).await;
    assert_eq!(claim("two", "valkey://b", None, false).await, refused("one", s(3)));
    assert_eq!(claim("two", "valkey://a", None, false).await, refused("one", s(3)));
    // The same data by another name, and a confirmation.
    assert_eq!(claim("one", "valkey://a.example", None, false).await, None);
    assert_eq!(
        claim("two", "valkey://a.example", None, false).await,
        refused("one", s(0))
    );
    world.pass(s(19)).await;
    assert_eq!(claim("one", "valkey://a.example", None, false).await, None);
    world.pass(s(19)).await;
    assert_eq!(
        claim("two", "valkey://a.example", None, false).await,
        refused("one", s(19))
    );
    // The data is gone: the process that had it, at once; another one at its place, later; elsewhere, never.
    assert_eq!(claim("two", "valkey://a.example", Some("one"), false).await, None);
    world.pass(s(20)).await;
    assert_eq!(
        claim("three", "valkey://c", Some("two"), false).await,
        refused("two", s(20))
    );
    assert_eq!(claim("three", "valkey://a.example", None, false).await, None);
    assert_eq!(claim("four", "valkey://d", None, true).await, None);
    let recorded = world.ledger.hot_store().await.expect("a record").expect("a record");
    assert_eq!(recorded.hot_store.to_string(), "valkey://d (data four)");
}
