//! Cases about providers, settings and the log.

use std::time::Duration;

use super::{Make, World, provider, tenure};
use crate::conformance::world::{refused, s};
use crate::error::ErrorKind;
use crate::id::RosterName;
use crate::ledger::provider::{MAX_CAPACITY, MAX_DISPLAY_NAME};
use crate::ledger::{
    Capacity, Change, OnlineOutcome, ProviderSpec, ProviderState, Reason, RemoveOutcome, RosterSettings, SettingsPatch,
    Status, Version,
};
use crate::store::PageRequest;

/// A row's version rises exactly when the row changes.
pub async fn a_provider_is_created_and_changed(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster, ann) = (&world.ledger, &world.roster, provider("ann"));
    assert_eq!(ledger.provider(roster, &ann).await.expect("a look-up"), None);
    let new = ledger.put_provider(roster, &ann, &ProviderSpec::default()).await;
    let new = new.expect("a provider");
    assert!(new.changed && new.provider.active && new.provider.online.is_none());
    assert_eq!((new.provider.capacity, new.provider.occupancy), (1, 0), "the default");
    let spec = ProviderSpec {
        display_name: Some("Ann 'x' \"y\" \\ é 🦀".to_owned()),
        capacity: Some(3).into(),
    };
    let put = || ledger.put_provider(roster, &ann, &spec);
    let named = put().await.expect("a provider");
    assert!(named.changed && named.provider.version > new.provider.version);
    let again = put().await.expect("a provider");
    assert!(!again.changed);
    assert_eq!(again.provider, named.provider);
    let kept = ledger.put_provider(roster, &ann, &ProviderSpec::default()).await;
    assert_eq!(
        kept.expect("a provider").provider,
        named.provider,
        "an omitted field keeps its value"
    );
    assert_eq!(world.provider("ann").await, named.provider);
    assert_eq!(
        ledger.rosters().await.expect("rosters").as_slice(),
        std::slice::from_ref(roster)
    );
    assert_eq!(world.log().await, [], "creating a provider is not a state change");
}

/// A call over a limit, or with a name that would break a statement, is refused.
pub async fn a_call_over_a_limit_changes_nothing(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster, ann) = (&world.ledger, &world.roster, provider("ann"));
    for (display_name, capacity) in [
        (Some("x".repeat(MAX_DISPLAY_NAME + 1)), None),
        (Some("a\0b".to_owned()), None),
        (None, Some(MAX_CAPACITY + 1)),
    ] {
        let spec = ProviderSpec {
            display_name,
            capacity: capacity.into(),
        };
        let put = ledger.put_provider(roster, &ann, &spec).await;
        refused(put, ErrorKind::Invalid);
    }
    assert_eq!(ledger.rosters().await.expect("rosters"), []);
    world.put("ann", MAX_CAPACITY).await;
    let other = tenure("bob", 5);
    let online = ledger.go_online(roster, &ann, Some(&other)).await;
    refused(online, ErrorKind::Invalid);
    for limit in [0, 1_001] {
        let page = PageRequest { after: None, limit };
        refused(ledger.available(roster, &page, None).await, ErrorKind::Invalid);
        refused(ledger.dirty(roster, limit).await, ErrorKind::Invalid);
        refused(ledger.expire_due(roster, limit).await, ErrorKind::Invalid);
    }
    let strange = PageRequest {
        after: Some("not a cursor".to_owned()),
        limit: 10,
    };
    refused(ledger.providers(roster, None, &strange).await, ErrorKind::Invalid);
    refused(ledger.log(roster, None, &strange).await, ErrorKind::Invalid);
}

/// Each change records its time, draws a version and writes one log row.
pub async fn a_provider_goes_online_and_offline(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster, ann) = (&world.ledger, &world.roster, provider("ann"));
    let new = world.put("ann", 2).await.provider;
    world.pass(s(1)).await;
    let came = world.now().await;
    let OnlineOutcome::Online(online) = world.go_online("ann", Some(7)).await else {
        panic!("the provider is active")
    };
    assert!(online.changed && online.was_online.is_none() && online.provider.version > new.version);
    assert_eq!(online.provider.online, Some(tenure("ann", 7)));
    assert_eq!(online.provider.last_online_at, Some(came));
    let OnlineOutcome::Online(again) = world.go_online("ann", Some(7)).await else {
        panic!("the provider is active")
    };
    assert!(!again.changed && again.provider == online.provider);
    world.pass(s(1)).await;
    let other = tenure("ann", 6);
    let kept = ledger.go_offline(roster, &ann, Some(&other)).await;
    assert!(
        !kept.expect("an answer").changed,
        "the provider is online under another tenure"
    );
    let went = ledger.go_offline(roster, &ann, Some(&tenure("ann", 7))).await;
    let went = went.expect("an answer");
    assert!(went.changed && went.was_online == Some(tenure("ann", 7)) && went.provider.online.is_none());
    assert_eq!(went.provider.last_offline_at, Some(came + s(1)));
    let again = ledger.go_offline(roster, &ann, None).await;
    assert!(!again.expect("an answer").changed);
    let log = world.log().await;
    let told: Vec<_> = log.iter().map(|e| (e.change, e.reason, e.at, e.version)).collect();
    assert_eq!(
        told,
        [
            (Change::Online, Reason::Asked, came, online.provider.version),
            (Change::Offline, Reason::Asked, came + s(1), went.provider.version),
        ]
    );
}

/// Replies to two joins may arrive in the wrong order.
pub async fn an_older_tenure_is_stale(make: Make<'_>) {
    let world = World::new(make).await;
    world.online("ann", 1, 20).await;
    let OnlineOutcome::Stale(row) = world.go_online("ann", Some(19)).await else {
        panic!("the newer tenure stays")
    };
    assert_eq!(row, world.provider("ann").await);
    let OnlineOutcome::Online(moved) = world.go_online("ann", Some(21)).await else {
        panic!("the newer tenure wins")
    };
    assert!(moved.changed && moved.was_online == Some(tenure("ann", 20)));
    assert_eq!(moved.provider.last_online_at, row.last_online_at);
    assert_eq!(world.log().await.len(), 1, "the provider stayed online");
}

/// During an outage of the hot store, and after it.
pub async fn a_placeholder_is_followed_by_a_tenure(make: Make<'_>) {
    let world = World::new(make).await;
    world.put("ann", 1).await;
    let now = world.now().await;
    let OnlineOutcome::Online(online) = world.go_online("ann", None).await else {
        panic!("the provider is active")
    };
    let placeholder = tenure("ann", now.micros());
    assert_eq!(online.provider.online.as_ref(), Some(&placeholder));
    world.pass(s(1)).await;
    let OnlineOutcome::Online(again) = world.go_online("ann", None).await else {
        panic!("the provider is active")
    };
    assert!(!again.changed, "the provider keeps its tenure");
    let follow = |from, to| crate::ledger::Follow { from, to };
    let hot = tenure("ann", now.micros() + 5);
    let follows = [follow(placeholder, hot.clone())];
    let (ledger, roster) = (&world.ledger, &world.roster);
    let followed = ledger.follow_tenures(roster, &follows).await;
    let followed = followed.expect("followed");
    assert_eq!(followed, [world.provider("ann").await]);
    assert!(followed[0].online == Some(hot.clone()) && followed[0].version > online.provider.version);
    let again = ledger.follow_tenures(roster, &follows).await;
    assert_eq!(again.expect("an answer"), [], "the provider has another tenure by now");
    let wrong = [follow(hot, tenure("bob", 9))];
    refused(ledger.follow_tenures(roster, &wrong).await, ErrorKind::Invalid);
    assert_eq!(world.log().await.len(), 1);
}

/// What an operator sets is stored apart from what was observed.
pub async fn a_deactivated_provider_stays_offline(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster, ann) = (&world.ledger, &world.roster, provider("ann"));
    world.online("ann", 1, 7).await;
    world.pass(s(1)).await;
    let now = world.now().await;
    let deactivated = ledger.deactivate(roster, &ann).await.expect("ann");
    assert!(deactivated.changed && deactivated.was_online == Some(tenure("ann", 7)));
    let row = deactivated.provider;
    assert!(!row.active && row.online.is_none());
    assert_eq!((row.revoked_before, row.last_offline_at), (Some(now), Some(now)));
    world.pass(s(1)).await;
    let again = ledger.deactivate(roster, &ann).await.expect("ann");
    assert!(!again.changed && again.provider == row);
    for term in [None, Some(9)] {
        assert_eq!(
            world.go_online("ann", term).await,
            OnlineOutcome::Deactivated(row.clone())
        );
    }
    let beat = [(ann.clone(), now + s(5))];
    ledger.record_heartbeats(roster, &beat).await.expect("a beat");
    assert!(
        !world.provider("ann").await.active,
        "no heartbeat makes the provider active again"
    );
    let active = ledger.activate(roster, &ann).await.expect("ann");
    assert!(active.changed && active.provider.active && active.provider.online.is_none());
    assert_eq!(active.provider.revoked_before, Some(now), "revoked tokens stay revoked");
    assert_eq!(
        world.changes().await.split_off(1),
        [
            ("ann".to_owned(), Change::Deactivated, Reason::Operator),
            ("ann".to_owned(), Change::Offline, Reason::Deactivated),
            ("ann".to_owned(), Change::Activated, Reason::Operator),
        ]
    );
}

/// Tokens that a deactivation made void stay void after the provider is removed and created again.
pub async fn void_tokens_stay_void_after_removal(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster) = (&world.ledger, &world.roster);
    world.online("ann", 1, 7).await;
    world.pass(s(1)).await;
    let out = ledger.deactivate(roster, &provider("ann")).await.expect("a provider");
    let void = out.provider.revoked_before;
    assert_eq!(void, Some(world.now().await));
    for _ in 0..2 {
        world.pass(s(1)).await;
        ledger
            .remove_provider(roster, &provider("ann"))
            .await
            .expect("an answer");
        let row = world.put("ann", 1).await.provider;
        assert_eq!((row.active, row.revoked_before), (true, void));
    }
    let other = RosterName::new("other").expect("a name");
    let put = ledger
        .put_provider(&other, &provider("ann"), &ProviderSpec::default())
        .await;
    assert_eq!(put.expect("a provider").provider.revoked_before, None);
}

/// A removal leaves a tombstone with a version above the row's last.
pub async fn only_an_idle_provider_is_removed(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster, ann) = (&world.ledger, &world.roster, provider("ann"));
    let remove = || ledger.remove_provider(roster, &ann);
    assert_eq!(remove().await.expect("an answer"), RemoveOutcome::Absent);
    let online = world.online("ann", 1, 7).await;
    assert_eq!(remove().await.expect("an answer"), RemoveOutcome::Busy(online));
    ledger.go_offline(roster, &ann, None).await.expect("ann");
    world.create("e1", Some("ann"), Status::Active).await;
    assert!(matches!(remove().await.expect("an answer"), RemoveOutcome::Busy(_)));
    world.shift("e1", Some(Status::Ended), None).await;
    let last = world.provider("ann").await.version;
    let RemoveOutcome::Removed(version) = remove().await.expect("an answer") else {
        panic!("the provider is idle")
    };
    assert!(version > last);
    assert_eq!(ledger.provider(roster, &ann).await.expect("a look-up"), None);
    let dirty = ledger.dirty(roster, 10).await.expect("the outbox");
    assert_eq!((dirty[0].version, &dirty[0].row), (version, &None));
    assert_eq!(
        ledger.rosters().await.expect("rosters").as_slice(),
        std::slice::from_ref(roster)
    );
    let back = world.put("ann", 1).await.provider;
    assert!(back.version > version && back.last_online_at.is_none() && back.last_heartbeat_at.is_none());
}

/// Pages by state, with counts that agree.
pub async fn providers_are_listed_by_state_page_by_page(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster) = (&world.ledger, &world.roster);
    for n in 0..9u64 {
        let name = format!("p{n}");
        match n % 3 {
            0 => drop(world.online(&name, 1, 5).await),
            1 => drop(world.put(&name, 1).await),
            _ => {
                world.put(&name, 1).await;
                let off = ledger.deactivate(roster, &provider(&name)).await;
                off.expect("a provider");
            }
        }
    }
    world.create("e", Some("p3"), Status::Active).await;
    let list = async |state, limit| {
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            let page = PageRequest::new(after, limit).expect("a page");
            let page = ledger.providers(roster, state, &page).await.expect("a page");
            assert!(page.items.len() <= limit as usize);
            names.extend(page.items.into_iter().map(|row| row.provider.to_string()));
            after = page.next;
            if after.is_none() {
                return names.join(" ");
            }
        }
    };
    for limit in [1, 2, 3, 1_000] {
        assert_eq!(list(None, limit).await, "p0 p1 p2 p3 p4 p5 p6 p7 p8");
        assert_eq!(list(Some(ProviderState::Online), limit).await, "p0 p3 p6");
        assert_eq!(list(Some(ProviderState::Available), limit).await, "p0 p6");
        assert_eq!(list(Some(ProviderState::Busy), limit).await, "p3");
        assert_eq!(list(Some(ProviderState::Offline), limit).await, "p1 p4 p7");
        assert_eq!(list(Some(ProviderState::Deactivated), limit).await, "p2 p5 p8");
    }
    let stats = ledger.stats(roster, None).await.expect("stats");
    let counts = (
        stats.online,
        stats.available,
        stats.busy,
        stats.offline,
        stats.deactivated,
    );
    assert_eq!((counts, stats.dirty), ((3, 2, 1, 3, 3), 9));
}

/// A new default updates each row that uses it, so the next reservation counts with it.
pub async fn a_new_default_capacity_reaches_providers_without_their_own(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster) = (&world.ledger, &world.roster);
    let put = async |name: &str, capacity| {
        let spec = ProviderSpec {
            capacity,
            ..ProviderSpec::default()
        };
        let name = provider(name);
        let put = ledger.put_provider(roster, &name, &spec);
        put.await.expect("a provider")
    };
    let set = async |capacity| {
        let patch = SettingsPatch {
            default_capacity: Some(capacity),
            ..SettingsPatch::default()
        };
        let set = ledger.set_settings(roster, &patch).await;
        set.expect("settings")
    };
    let capacities = async || {
        let mut capacities = Vec::new();
        for name in ["ann", "bob", "cyd"] {
            capacities.push(world.provider(name).await.capacity);
        }
        capacities
    };
    put("ann", Capacity::Keep).await;
    // A number equal to the default is still the provider's own.
    put("bob", Capacity::Own(1)).await;
    put("cyd", Capacity::Own(7)).await;
    let before = world.provider("ann").await;
    let rows: Vec<_> = ledger.dirty(roster, 10).await.expect("the outbox");
    let rows: Vec<_> = rows.iter().map(|row| (row.provider.clone(), row.version)).collect();
    ledger.clean(roster, &rows).await.expect("a cleaning");
    set(3).await;
    assert_eq!(capacities().await, [3, 1, 7]);
    let dirty = ledger.dirty(roster, 10).await.expect("the outbox");
    let dirty: Vec<_> = dirty.iter().map(|row| row.provider.as_str()).collect();
    assert_eq!(dirty, ["ann"], "the mirror receives the changed row");
    assert!(world.provider("ann").await.version > before.version);

    // The provider takes part in the next reservation.
    world.go_online("ann", Some(7)).await;
    for n in 0..3 {
        world.create(&format!("e{n}"), Some("ann"), Status::Pending).await;
    }
    assert_eq!(world.available(None).await, Vec::<String>::new());
    set(4).await;
    let free = ledger.available(roster, &PageRequest::default(), None).await;
    let free = free.expect("a list").items;
    assert_eq!(
        free.iter().map(|one| (one.occupancy, one.capacity)).collect::<Vec<_>>(),
        [(3, 4)]
    );

    // Back to the default, then away from it.
    assert!(put("cyd", Capacity::Default).await.changed);
    assert!(!put("cyd", Capacity::Default).await.changed);
    assert!(!put("cyd", Capacity::Keep).await.changed);
    assert_eq!(capacities().await, [4, 1, 4]);
    put("ann", Capacity::Own(4)).await;
    set(0).await;
    assert_eq!(capacities().await, [4, 1, 0]);
    assert_eq!(put("dan", Capacity::Default).await.provider.capacity, 0);
}

/// Settings are shared by all instances and versioned.
pub async fn settings_are_changed_and_read(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster) = (&world.ledger, &world.roster);
    let read = async || ledger.settings(roster).await.expect("settings");
    assert_eq!(read().await, RosterSettings::default());
    world.put("ann", 1).await;
    assert_eq!(
        read().await,
        RosterSettings::default(),
        "creating a provider sets nothing"
    );
    let patch = SettingsPatch {
        default_capacity: Some(4),
        stale_after: Some(Duration::from_micros(90_000_999)),
        ..SettingsPatch::default()
    };
    let set = || ledger.set_settings(roster, &patch);
    let changed = set().await.expect("settings");
    assert!(changed.version > Version::NONE);
    assert_eq!((changed.default_capacity, changed.stale_after), (4, s(90)));
    assert_eq!((changed.require_heartbeat, changed.snapshot), (true, s(10)));
    assert_eq!(
        set().await.expect("settings"),
        changed,
        "nothing changed the second time"
    );
    assert_eq!(read().await, changed);
    let bob = ledger
        .put_provider(roster, &provider("bob"), &ProviderSpec::default())
        .await;
    assert_eq!(bob.expect("bob").provider.capacity, 4);
    assert_eq!(world.provider("ann").await.capacity, 1);
    for patch in [
        SettingsPatch {
            stale_after: Some(Duration::from_millis(999)),
            ..SettingsPatch::default()
        },
        SettingsPatch {
            snapshot: Some(s(11)),
            ..SettingsPatch::default()
        },
        SettingsPatch {
            default_capacity: Some(MAX_CAPACITY + 1),
            ..SettingsPatch::default()
        },
    ] {
        refused(ledger.set_settings(roster, &patch).await, ErrorKind::Invalid);
    }
    assert_eq!(read().await, changed);
}

/// Oldest first, for all providers or one.
pub async fn the_log_is_read_page_by_page(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster) = (&world.ledger, &world.roster);
    for n in 0..4 {
        world.online("ann", 1, 5 + n).await;
        world.online("bob", 1, 5 + n).await;
        let off = ledger.go_offline(roster, &provider("ann"), None).await;
        off.expect("ann");
    }
    let (ann, mut seen, mut after) = (provider("ann"), Vec::new(), None);
    loop {
        let page = PageRequest::new(after, 3).expect("a page");
        let page = ledger.log(roster, Some(&ann), &page).await.expect("a page");
        seen.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 8);
    assert!(seen.iter().all(|entry| entry.provider == ann));
    assert!(
        seen.windows(2)
            .all(|pair| pair[0].id < pair[1].id && pair[0].version < pair[1].version)
    );
    assert_eq!(world.log().await.len(), 9);
}

/// A lookup of an unknown name creates nothing.
pub async fn unknown_names_are_not_found(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster, ann) = (&world.ledger, &world.roster, provider("ann"));
    refused(ledger.activate(roster, &ann).await, ErrorKind::NotFound);
    refused(ledger.deactivate(roster, &ann).await, ErrorKind::NotFound);
    refused(ledger.go_online(roster, &ann, None).await, ErrorKind::NotFound);
    refused(ledger.go_offline(roster, &ann, None).await, ErrorKind::NotFound);
    assert_eq!(ledger.rosters().await.expect("rosters"), []);
    assert_eq!(world.available(None).await, Vec::<String>::new());
    assert_eq!(ledger.stats(roster, None).await.expect("stats"), Default::default());
}
