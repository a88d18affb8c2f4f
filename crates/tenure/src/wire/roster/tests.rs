//! Rosters on the wire as it is pinned: names, forms and refusals.

use serde_json::json;
use tenure_core::id::TenureId;
use tenure_core::ledger::{self as core, Expiry, Move, Status, Version};
use tenure_core::time::StoreTime;

use super::*;

fn row() -> core::Provider {
    core::Provider {
        provider: "p".parse().unwrap(),
        display_name: None,
        active: true,
        online: None,
        capacity: 3,
        occupancy: 1,
        last_online_at: None,
        last_offline_at: None,
        last_heartbeat_at: None,
        revoked_before: None,
        version: Version(7),
    }
}

#[test]
fn a_provider_has_every_pinned_field_also_when_there_is_nothing_to_say() {
    let shown = serde_json::to_value(Provider::new(row(), true)).unwrap();
    assert_eq!(
        shown,
        json!({
            "provider": "p", "display_name": null, "active": true, "online": false, "alive": false, "reachable": false,
            "occupancy": 1, "capacity": 3, "last_heartbeat_at": null, "last_online_at": null, "last_offline_at": null,
            "version": 7,
        })
    );
}

#[test]
fn a_provider_survives_the_wire() {
    let at = StoreTime::from_micros(1_763_676_800_000_042);
    let tenure: TenureId = "p@9".parse().unwrap();
    let full = core::Provider {
        display_name: Some("Pia".to_owned()),
        online: Some(tenure),
        last_online_at: Some(at),
        last_offline_at: Some(at),
        last_heartbeat_at: Some(at),
        revoked_before: Some(at),
        ..row()
    };
    let sent = serde_json::to_string(&Provider::new(full.clone(), true)).unwrap();
    let read: Provider = serde_json::from_str(&sent).unwrap();
    assert!(read.online && read.alive && read.reachable, "{sent}");
    assert_eq!(core::Provider::from(read), full);
    let inactive = core::Provider { active: false, ..full };
    assert!(!Provider::new(inactive, true).reachable);
}

#[test]
fn a_move_tells_never_from_not_said() {
    for (sent, expiry) in [
        (json!({}), Expiry::Keep),
        (json!({"expires_in_ms": null}), Expiry::Never),
        (
            json!({"expires_in_ms": 5}),
            Expiry::In(std::time::Duration::from_millis(5)),
        ),
    ] {
        let read: MoveRequest = serde_json::from_value(sent.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), sent);
        let to = Move {
            expiry,
            ..Move::default()
        };
        assert_eq!(read.to().unwrap(), to, "{sent}");
        assert_eq!(serde_json::to_value(MoveRequest::from(to)).unwrap(), sent);
    }
}

#[test]
fn requests_refuse_what_they_do_not_know_and_say_what_there_is() {
    let refused = |error: String, must_say: &str| assert!(error.contains(must_say), "{error}");
    let told = |error: serde_json::Error| error.to_string();
    let status = serde_json::from_str::<EngagementRequest>(r#"{"status":"done"}"#).map_err(told);
    refused(
        status.unwrap_err(),
        "there are pending, active, ended, expired, cancelled",
    );
    let field = serde_json::from_str::<ReserveRequest>(r#"{"id":"e"}"#).map_err(told);
    refused(field.unwrap_err(), "unknown field `id`");
    let name = serde_json::from_str::<EngagementRequest>(r#"{"provider":"a b"}"#).map_err(told);
    refused(name.unwrap_err(), "' ' at position 2");
    let over = EngagementRequest {
        status: Some(Status::Ended),
        ..EngagementRequest::default()
    };
    let error = over.engagement(|| "e".parse()).unwrap_err();
    refused(error.to_string(), "begins as pending or active");
    let state = parse_state("gone").unwrap_err();
    refused(
        state.to_string(),
        "there are online, available, busy, offline, deactivated",
    );
    let stale = PatchRosterRequest {
        stale_after_ms: Some(10),
        ..PatchRosterRequest::default()
    };
    refused(stale.patch().unwrap_err().to_string(), "outside 1s to 24h");
}

#[test]
fn an_engagement_gets_a_name_when_it_has_none() {
    let new = EngagementRequest::default().engagement(|| "made-up".parse()).unwrap();
    assert_eq!((new.engagement.as_str(), new.status), ("made-up", Status::Pending));
}
