//! The service between a hot store and a ledger, on a manual clock.

mod alone;
mod away;
mod loss;
mod many;
mod two_stores;
mod world;

use tenure_core::call::Verb;
use tenure_core::error::ErrorKind;
use tenure_core::id::{EngagementId, RosterName};
use tenure_core::ledger::{
    Expiry, Ledger, Move, NewEngagement, ProviderSpec, ProviderState, Reassign, SettingsPatch, Status,
};
use tenure_core::roster::{RosterMirror, Standing};
use tenure_core::store::PageRequest;
use tenure_core::time::StoreTime;

use super::*;
use crate::testing::{ms, secs, settle};
use world::{Mode, World, desk, name};

fn engagement(id: &str) -> EngagementId {
    EngagementId::new(id).unwrap()
}

fn wanted(id: &str) -> NewEngagement {
    NewEngagement::new(engagement(id))
}

#[tokio::test]
async fn write_reaches_ledger_and_mirror_and_leaves_outbox() {
    let world = World::new().await;
    let process = world.running().await;
    let written = process.put("ada").await;
    assert!(written.changed && written.mirrored);
    let again = process.put("ada").await;
    assert!(!again.changed && again.mirrored);
    settle().await;
    assert_eq!(world.dirty().await, 0);
    assert_eq!(world.seen("ada").await.unwrap().row.version, written.value.version);
    let view = process.desk.provider(&name("ada")).await.unwrap();
    assert_eq!((view.source, view.value.unwrap().reachable), (Source::Mirror, false));
    let removed = process.desk.remove_provider(&name("ada")).await.unwrap();
    assert_eq!(removed, Removal::Removed { mirrored: true });
    assert!(world.seen("ada").await.is_none());
    let gone = process.desk.provider(&name("ada")).await.unwrap();
    assert_eq!(
        (gone.value, gone.source),
        (None, Source::Ledger),
        "only the ledger can say that it does not exist"
    );
    assert_eq!(
        process.desk.is_reachable(&name("ada")).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        process.desk.remove_provider(&name("ada")).await.unwrap(),
        Removal::Absent
    );
}

#[tokio::test]
async fn going_online_is_the_first_heartbeat() {
    let world = World::new().await;
    let process = world.running().await;
    world.pass(secs(30)).await;
    let written = process.arrive("ada").await;
    assert!(written.changed && written.mirrored);
    let seen = world.seen("ada").await.unwrap();
    assert_eq!(seen.standing, Standing::Alive);
    assert_eq!(seen.row.last_heartbeat_at, Some(world.memory_now().await));
    assert_eq!(process.who().await, (vec!["ada".to_owned()], Source::Mirror));
    assert!(process.desk.is_reachable(&name("ada")).await.unwrap().value);
    let offline = process.desk.offline(&name("ada")).await.unwrap();
    assert!(offline.changed && offline.mirrored && offline.value.online.is_none());
    let seen = world.seen("ada").await.unwrap();
    assert_eq!((seen.standing, seen.row.last_heartbeat_at), (Standing::Offline, None));
    let stats = world.memory.roster_stats(&world.group).await.unwrap();
    assert_eq!(stats.pending, 0, "the ledger has it already");
    assert_eq!(process.who().await, (vec![], Source::Mirror));
}

#[tokio::test]
async fn offline_provider_shows_the_ledgers_last_heartbeat() {
    let world = World::new().await;
    let process = world.running().await;
    let ada = name("ada");
    process.arrive("ada").await;
    world.pass(secs(20)).await;
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Recorded(Source::Mirror));
    let heard = world.memory_now().await;
    let (roster, beat) = (desk(), [(ada.clone(), heard)]);
    let told = process.ledger.inside().record_heartbeats(&roster, &beat);
    assert_eq!(told.await.unwrap(), 1);
    process.desk.offline(&ada).await.unwrap();
    world.pass(secs(5)).await;
    let one = process.desk.provider(&ada).await.unwrap();
    let listed = process.desk.providers(None, &PageRequest::default()).await.unwrap();
    assert_eq!((one.source, listed.source), (Source::Mirror, Source::Mirror));
    for view in [one.value.unwrap(), listed.value.items[0].clone()] {
        assert_eq!((view.reachable, view.row.last_heartbeat_at), (false, Some(heard)));
    }
    let asked = process.ledger.calls("last_heartbeats");
    assert!(!process.desk.is_reachable(&ada).await.unwrap().value);
    assert_eq!(
        process.ledger.calls("last_heartbeats"),
        asked,
        "reachability needs no last heartbeat"
    );
    process.ledger.be(Mode::Fails);
    let one = process.desk.provider(&ada).await.unwrap();
    assert_eq!(
        (one.source, one.value.unwrap().row.last_heartbeat_at),
        (Source::Mirror, None)
    );
}

#[tokio::test]
async fn available_listing_moves_from_mirror_to_ledger() {
    let world = World::new().await;
    let process = world.running().await;
    for who in ["ada", "bob", "cyd", "dee"] {
        process.arrive(who).await;
    }
    let (mut names, mut sources) = (Vec::new(), Vec::new());
    let mut page = PageRequest { after: None, limit: 1 };
    loop {
        let read = process.desk.available_page(&page).await.unwrap();
        names.extend(read.value.items.iter().map(|one| one.provider.to_string()));
        sources.push(read.source);
        page.after = read.value.next;
        if page.after.is_none() {
            break;
        }
        if names.len() == 2 {
            process.store.be(Mode::Fails);
        }
    }
    assert_eq!(names, ["ada", "bob", "cyd", "dee"]);
    let (mirror, ledger) = (Source::Mirror, Source::Ledger);
    assert_eq!(sources, [mirror, mirror, ledger, ledger]);
}

/// As while the brake is engaged: the tenures have ended, and the ledger has not followed.
#[tokio::test]
async fn rows_and_counts_agree_about_ended_tenures() {
    let world = World::new().await;
    let process = world.running().await;
    for n in 0..12 {
        process.arrive(&format!("p{n}")).await;
    }
    world.pass(secs(70)).await;
    assert!(world.row("p0").await.online.is_some(), "the ledger has not followed");
    let stats = process.desk.stats().await.unwrap();
    assert_eq!(
        (stats.source, stats.value.online, stats.value.offline),
        (Source::Mirror, 0, 12)
    );
    let listed = process.desk.providers(None, &PageRequest::default()).await.unwrap();
    assert_eq!((listed.source, listed.value.items.len()), (Source::Mirror, 12));
    for view in listed.value.items {
        assert!(view.row.online.is_none() && !view.reachable, "{view:?}");
    }
    let one = process.desk.provider(&name("p3")).await.unwrap().value.unwrap();
    assert!(one.row.online.is_none() && !one.reachable, "{one:?}");
}

#[tokio::test]
async fn missing_roster_is_not_found() {
    let world = World::new().await;
    let (here, there) = (world.running().await, world.running().await);
    let fresh = RosterName::new("fresh").unwrap();
    let seen = there.rosters.roster(&fresh).unwrap();
    let not_found = async || {
        let page = PageRequest::default();
        let kinds = [
            seen.available(10).await.err().map(|error| error.kind()),
            seen.availability().await.err().map(|error| error.kind()),
            seen.stats().await.err().map(|error| error.kind()),
            seen.settings().await.err().map(|error| error.kind()),
            seen.providers(None, &page).await.err().map(|error| error.kind()),
            seen.log(None, &page).await.err().map(|error| error.kind()),
            seen.provider(&name("ada")).await.err().map(|error| error.kind()),
            seen.engagement(&engagement("e1")).await.err().map(|error| error.kind()),
        ];
        kinds.map(|kind| kind == Some(ErrorKind::NotFound))
    };
    assert_eq!(not_found().await, [true; 8]);
    let nothing = SettingsPatch {
        default_capacity: Some(1),
        ..SettingsPatch::default()
    };
    assert!(!seen.set_settings(&nothing).await.unwrap().changed);
    assert_eq!(not_found().await, [true; 8], "a patch without effect creates no roster");
    // It exists for every process once the call that created it has returned.
    let made = here.rosters.roster(&fresh).unwrap();
    made.put_provider(&name("ada"), &ProviderSpec::default()).await.unwrap();
    assert_eq!(not_found().await, [false; 8]);
    // While the ledger is unreachable, existence is unknown.
    let other = there.rosters.roster(&RosterName::new("other").unwrap()).unwrap();
    there.ledger.be(Mode::Fails);
    let error = other.available(10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

#[tokio::test]
async fn heartbeats_are_batched_and_skip_the_ledger() {
    let world = World::new().await;
    let process = world.running().await;
    for n in 0..300 {
        process.arrive(&format!("p{n}")).await;
    }
    settle().await;
    let before = process.ledger.total();
    process.store.delay(Verb::Heartbeat, ms(1));
    let mut beats = Vec::new();
    for n in 0..300 {
        let desk = process.desk.clone();
        beats.push(tokio::spawn(async move {
            desk.heartbeat(&name(&format!("p{n}")), None).await
        }));
    }
    world.pass(ms(5)).await;
    for beat in beats {
        assert_eq!(beat.await.unwrap().unwrap(), HeartbeatOutcome::Recorded(Source::Mirror));
    }
    assert_eq!(process.ledger.total(), before);
    let batches = process.store.calls(Verb::Heartbeat);
    assert_eq!(batches.iter().sum::<usize>(), 300);
    assert!(batches.len() <= 4, "{batches:?}");
}

#[tokio::test]
async fn refused_heartbeat_names_the_reason_and_changes_nothing() {
    let world = World::new().await;
    let process = world.running().await;
    assert_eq!(process.hear("nobody").await, HeartbeatOutcome::Unknown);
    process.put("ada").await;
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Offline);
    process.go_online("ada").await;
    let issued = Some(StoreTime::from_micros(1));
    let deactivated = process.desk.deactivate(&name("ada")).await.unwrap();
    assert!(deactivated.changed && deactivated.value.online.is_none());
    for _ in 0..100 {
        assert_eq!(process.hear("ada").await, HeartbeatOutcome::Deactivated);
    }
    assert_eq!(
        process.desk.admit(&name("ada"), issued).await.unwrap(),
        Admission::Deactivated
    );
    assert!(matches!(
        process.desk.online(&name("ada")).await.unwrap(),
        Online::Deactivated(_)
    ));
    assert!(!world.row("ada").await.active);
    assert!(
        world.memory_members().await.is_empty(),
        "a refused provider has no tenure"
    );
    process.desk.activate(&name("ada")).await.unwrap();
    assert_eq!(
        process.hear("ada").await,
        HeartbeatOutcome::Offline,
        "it must go online itself"
    );
    process.go_online("ada").await;
    assert_eq!(
        process.desk.heartbeat(&name("ada"), issued).await.unwrap(),
        HeartbeatOutcome::Revoked
    );
    assert_eq!(
        process.desk.admit(&name("ada"), issued).await.unwrap(),
        Admission::Revoked
    );
    assert_eq!(
        process.desk.admit(&name("ada"), None).await.unwrap(),
        Admission::Admitted
    );
    assert_eq!(
        process.desk.admit(&name("nobody"), None).await.unwrap(),
        Admission::Unknown
    );
    assert_eq!(process.hear("ada").await, HeartbeatOutcome::Recorded(Source::Mirror));
}

#[tokio::test]
async fn engagements_occupy_and_free_capacity() {
    let world = World::new().await;
    let process = world.running().await;
    process.arrive("ada").await;
    process.arrive("bob").await;
    let new = NewEngagement {
        engagement: engagement("e1"),
        provider: Some(name("ada")),
        status: Status::Active,
        expires_in: None,
        active_for: None,
    };
    let EngagementAnswer::Done(created) = process.desk.create_engagement(&new).await.unwrap() else {
        panic!("it is new")
    };
    assert!(created.changed && created.mirrored);
    assert_eq!(process.who().await.0, ["bob", "ada"], "the least occupied first");
    let to = Move {
        provider: Reassign::To(name("bob")),
        expiry: Expiry::Never,
        ..Move::default()
    };
    process.desk.move_engagement(&engagement("e1"), &to).await.unwrap();
    assert_eq!(process.who().await.0, ["ada", "bob"]);
    for n in 2..5 {
        let reserved = process.desk.reserve(&wanted(&format!("e{n}"))).await.unwrap();
        assert!(matches!(reserved, Reservation::Reserved(_)), "{reserved:?}");
    }
    assert_eq!(
        process.desk.reserve(&wanted("e5")).await.unwrap(),
        Reservation::NoneAvailable
    );
    assert_eq!(process.who().await, (vec![], Source::Mirror));
    let ended = Move {
        status: Some(Status::Ended),
        ..Move::default()
    };
    process.desk.move_engagement(&engagement("e1"), &ended).await.unwrap();
    let conflict = process.desk.reserve(&wanted("e1")).await.unwrap();
    assert!(matches!(conflict, Reservation::Conflict(_)), "{conflict:?}");
    assert_eq!(process.who().await.0, ["bob"]);
    let there = process.desk.engagement(&engagement("e1")).await.unwrap().unwrap();
    assert_eq!(there.status, Status::Ended);
}

#[tokio::test]
async fn late_mirror_write_does_not_overwrite_a_newer_row() {
    let world = World::new().await;
    let process = world.running().await;
    process.put("ada").await;
    process.store.delay(Verb::PutProviders, ms(100));
    let desk = process.desk.clone();
    let slow = tokio::spawn(async move {
        let spec = ProviderSpec {
            capacity: Some(5).into(),
            ..ProviderSpec::default()
        };
        desk.put_provider(&name("ada"), &spec).await.unwrap()
    });
    settle().await;
    let spec = ProviderSpec {
        capacity: Some(9).into(),
        ..ProviderSpec::default()
    };
    let fast = process.desk.put_provider(&name("ada"), &spec).await.unwrap();
    assert!(fast.mirrored);
    world.pass(ms(150)).await;
    let slow = slow.await.unwrap();
    assert!(slow.mirrored && slow.value.version < fast.value.version);
    assert_eq!(world.seen("ada").await.unwrap().row.capacity, 9);
    settle().await;
    assert_eq!(world.dirty().await, 0);
}

#[tokio::test]
async fn settings_apply_in_every_process_within_a_second() {
    let world = World::new().await;
    let (one, other) = (world.running().await, world.running().await);
    one.arrive("ada").await;
    let patch = |stale_after| SettingsPatch {
        stale_after: Some(stale_after),
        ..SettingsPatch::default()
    };
    let set = one.desk.set_settings(&patch(secs(5))).await.unwrap();
    assert!(set.changed && set.mirrored);
    world.pass(secs(1)).await;
    assert_eq!(other.desk.settings().await.unwrap().value.stale_after, secs(5));
    world.pass(secs(5)).await;
    assert_eq!(
        other.who().await,
        (vec![], Source::Mirror),
        "the ttl of online providers changes as well"
    );
    // Also a change by a process that cannot reach the hot store.
    one.store.be(Mode::Fails);
    let set = one.desk.set_settings(&patch(secs(7))).await.unwrap();
    assert!(set.changed && !set.mirrored);
    // The next poll of the ledger.
    world.pass(ms(1_400)).await;
    assert_eq!(other.desk.settings().await.unwrap().value.stale_after, secs(7));
    let there = world.memory.roster_settings(&world.group).await.unwrap();
    assert_eq!(there, Some(set.value), "another process has mirrored them");
}

#[tokio::test]
async fn listing_survives_a_switch_from_mirror_to_ledger() {
    let world = World::new().await;
    let process = world.running().await;
    for n in 0..25 {
        process.put(&format!("p{n:02}")).await;
    }
    process.go_online("p07").await;
    let first = PageRequest::new(None, 10).unwrap();
    let page = process.desk.providers(None, &first).await.unwrap();
    assert_eq!((page.source, page.value.items.len()), (Source::Mirror, 10));
    let online = process
        .desk
        .providers(Some(ProviderState::Online), &first)
        .await
        .unwrap();
    assert_eq!(online.value.items[0].row.provider, name("p07"));
    process.store.be(Mode::Fails);
    let mut after = page.value.next.clone();
    let mut listed = std::collections::BTreeSet::new();
    while let Some(cursor) = after {
        let page = PageRequest::new(Some(cursor), 10).unwrap();
        let page = process.desk.providers(None, &page).await.unwrap();
        assert_eq!(page.source, Source::Ledger);
        listed.extend(page.value.items.iter().map(|view| view.row.provider.clone()));
        after = page.value.next;
    }
    assert_eq!(listed.len(), 25);
    let bad = PageRequest::new(Some("x9".to_owned()), 10).unwrap();
    let refused = process.desk.providers(None, &bad).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert_eq!(process.belief(), Belief::Ledger);
    let log = process.desk.log(Some(&name("p07")), &first).await.unwrap();
    assert_eq!(log.items.len(), 1);
}

#[tokio::test]
async fn unknown_roster_name_leaves_no_state_in_the_stores() {
    let world = World::new().await;
    let process = world.running().await;
    let mistyped = tenure_core::id::RosterName::new("dsek").unwrap();
    let roster = process.rosters.roster(&mistyped).unwrap();
    assert_eq!(roster.availability().await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(process.rosters.names(), [desk()]);
    assert_eq!(
        roster.online(&name("ada")).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert!(
        !world
            .groups()
            .await
            .contains(&tenure_core::roster::group_of(&mistyped).unwrap())
    );
    world.pass(secs(2)).await;
    let stamps = process.store.calls(Verb::MirrorStatus).len();
    drop(roster);
    world.pass(secs(70)).await;
    assert!(process.store.calls(Verb::MirrorStatus).len() > stamps);
    assert!(!process.rosters.keeps(&mistyped));
    assert_eq!(process.ledger.inside().rosters().await.unwrap(), [desk()]);
}
