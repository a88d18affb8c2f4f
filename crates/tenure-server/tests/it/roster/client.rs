//! The Rust client of a daemon's rosters means what the service means.

use std::time::Duration;

use tenure::http::{HttpSettings, RemoteRoster, RemoteRosters};
use tenure::roster::{EngagementAnswer, HeartbeatOutcome, Online, Removal, Reservation};
use tenure_core::clock::SystemClock;
use tenure_core::error::ErrorKind;
use tenure_core::ledger::{Expiry, Move, NewEngagement, ProviderSpec, ProviderState, Reassign, SettingsPatch, Status};
use tenure_core::store::PageRequest;
use tokio::runtime::Handle;

use crate::common::PATIENCE;
use crate::roster::server::RosterServer;

fn client(server: &RosterServer) -> RemoteRoster {
    // However slow the machine is.
    let settings = HttpSettings {
        request_timeout: PATIENCE,
        connect_timeout: PATIENCE,
        ..HttpSettings::default()
    };
    let clock = SystemClock::shared();
    let rosters = RemoteRosters::new(&server.daemon.base, clock, Handle::current(), settings).unwrap();
    rosters.roster(&"support".parse().unwrap())
}

#[tokio::test]
async fn providers_go_online_and_offline() {
    let server = RosterServer::open().await;
    let roster = client(&server);
    let ana = "ana".parse().unwrap();
    assert_eq!(roster.heartbeat(&ana).await.unwrap(), HeartbeatOutcome::Unknown);
    assert_eq!(roster.provider(&ana).await.unwrap().value, None);
    assert_eq!(roster.remove_provider(&ana).await.unwrap(), Removal::Absent);
    assert_eq!(roster.online(&ana).await.unwrap_err().kind(), ErrorKind::NotFound);
    let spec = ProviderSpec {
        display_name: Some("Ana".to_owned()),
        capacity: Some(3).into(),
    };
    let put = roster.put_provider(&ana, &spec).await.unwrap();
    assert!(put.changed && !roster.put_provider(&ana, &spec).await.unwrap().changed);
    assert_eq!(roster.heartbeat(&ana).await.unwrap(), HeartbeatOutcome::Offline);
    let Online::Done(online) = roster.online(&ana).await.unwrap() else {
        panic!("it is active");
    };
    assert!(online.value.online.is_some() && online.value.version > put.value.version);
    assert!(matches!(
        roster.heartbeat(&ana).await.unwrap(),
        HeartbeatOutcome::Recorded(_)
    ));
    assert!(roster.is_reachable(&ana).await.unwrap().value);
    let view = roster.provider(&ana).await.unwrap().value.unwrap();
    assert_eq!((view.row.capacity, view.row.online), (3, online.value.online));
    let page = roster
        .providers(Some(ProviderState::Available), &PageRequest::default())
        .await
        .unwrap();
    assert_eq!(page.value.items.len(), 1);
    assert!(matches!(roster.remove_provider(&ana).await.unwrap(), Removal::Busy(row) if row.provider == ana));
    roster.deactivate(&ana).await.unwrap();
    assert!(matches!(roster.online(&ana).await.unwrap(), Online::Deactivated(row) if !row.active));
    assert_eq!(roster.heartbeat(&ana).await.unwrap(), HeartbeatOutcome::Deactivated);
    assert!(roster.activate(&ana).await.unwrap().value.active);
    let log = roster.log(Some(&ana), &PageRequest::default()).await.unwrap();
    assert_eq!(log.items.len(), 4, "{log:?}");
    assert!(matches!(
        roster.remove_provider(&ana).await.unwrap(),
        Removal::Removed { .. }
    ));
}

#[tokio::test]
async fn engagements_are_made_moved_and_reserved() {
    let server = RosterServer::open().await;
    let roster = client(&server);
    server.seat("ana", 1).await;
    server.put("ben", 1).await;
    assert!(roster.availability().await.unwrap().value.is_any());
    assert_eq!(roster.available(10).await.unwrap().value[0].capacity, 1);
    let wanted = NewEngagement {
        expires_in: Some(Duration::from_secs(60)),
        ..NewEngagement::new(roster.name_engagement().unwrap())
    };
    let Reservation::Reserved(first) = roster.reserve(&wanted).await.unwrap() else {
        panic!("ana has room");
    };
    assert!(first.changed && first.value.engagement.expires_at.is_some());
    assert!(matches!(roster.reserve(&wanted).await.unwrap(), Reservation::Reserved(again) if !again.changed));
    let other = NewEngagement {
        engagement: roster.name_engagement().unwrap(),
        ..wanted.clone()
    };
    assert_eq!(roster.reserve(&other).await.unwrap(), Reservation::NoneAvailable);
    let to = Move {
        status: Some(Status::Ended),
        provider: Reassign::To("ben".parse().unwrap()),
        expiry: Expiry::Never,
    };
    let EngagementAnswer::Done(moved) = roster.move_engagement(&wanted.engagement, &to).await.unwrap() else {
        panic!("it was open");
    };
    assert_eq!(
        (moved.value.engagement.status, moved.value.engagement.expires_at),
        (Status::Ended, None)
    );
    assert!(
        matches!(roster.reserve(&wanted).await.unwrap(), Reservation::Conflict(row) if row.status == Status::Ended)
    );
    let fact = NewEngagement {
        engagement: "fact".parse().unwrap(),
        provider: Some("absent".parse().unwrap()),
        status: Status::Active,
        expires_in: None,
        active_for: None,
    };
    assert_eq!(
        roster.create_engagement(&fact).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(roster.engagement(&fact.engagement).await.unwrap(), None);
    let seen = roster.engagement(&wanted.engagement).await.unwrap().unwrap();
    assert_eq!(seen, moved.value.engagement);
    assert_eq!(roster.stats().await.unwrap().value.online, 1);
}

#[tokio::test]
async fn named_and_excluded_providers_and_taken_engagements() {
    let server = RosterServer::open().await;
    let roster = client(&server);
    server.seat("ana", 1).await;
    server.seat("ben", 1).await;
    let offer = |provider: Option<&str>| NewEngagement {
        provider: provider.map(|name| name.parse().unwrap()),
        active_for: Some(Duration::from_secs(60)),
        ..NewEngagement::new(roster.name_engagement().unwrap())
    };
    let with = |reservation: Reservation| match reservation {
        Reservation::Reserved(written) => written.value.engagement.provider.map(|name| name.to_string()),
        _ => None,
    };
    let first = offer(Some("ben"));
    assert_eq!(with(roster.reserve(&first).await.unwrap()).as_deref(), Some("ben"));
    assert_eq!(
        roster.reserve(&offer(Some("ben"))).await.unwrap(),
        Reservation::NoneAvailable
    );
    let unknown = roster.reserve(&offer(Some("zoe"))).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    let except = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<_>>();
    let none = roster.reserve_except(&offer(None), &except(&["ana"])).await.unwrap();
    assert_eq!(none, Reservation::NoneAvailable);
    let to = Move {
        provider: Reassign::Unassign,
        ..Move::default()
    };
    let EngagementAnswer::Done(taken) = roster.move_engagement(&first.engagement, &to).await.unwrap() else {
        panic!("it was open");
    };
    assert_eq!(taken.value.engagement.provider, None);
    let again = NewEngagement::new(first.engagement.clone());
    let again = roster.reserve_except(&again, &except(&["ana"])).await.unwrap();
    assert_eq!(with(again).as_deref(), Some("ben"));
    let accept = Move {
        status: Some(Status::Active),
        ..Move::default()
    };
    let EngagementAnswer::Done(accepted) = roster.move_engagement(&first.engagement, &accept).await.unwrap() else {
        panic!("it was open");
    };
    assert!(
        accepted.value.engagement.expires_at.is_some(),
        "the work has a time of its own"
    );
}

#[tokio::test]
async fn settings_are_read_and_changed() {
    let server = RosterServer::open().await;
    let roster = client(&server);
    let patch = SettingsPatch {
        stale_after: Some(Duration::from_secs(90)),
        ..SettingsPatch::default()
    };
    let written = roster.set_settings(&patch).await.unwrap();
    assert!(written.changed && written.value.stale_after == Duration::from_secs(90));
    let bad = SettingsPatch {
        stale_after: Some(Duration::from_millis(1)),
        ..SettingsPatch::default()
    };
    assert_eq!(roster.set_settings(&bad).await.unwrap_err().kind(), ErrorKind::Invalid);
    tenure_testkit::wait::until_async("they are obeyed", PATIENCE, || async {
        roster.settings().await.unwrap().value.stale_after == Duration::from_secs(90)
    })
    .await;
}
