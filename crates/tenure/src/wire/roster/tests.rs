//! The pinned wire format of rosters: names, forms and errors.

use serde_json::json;
use tenure_core::id::TenureId;
use tenure_core::ledger::{self as core, NewEngagement, Version};
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
fn provider_has_every_pinned_field() {
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
fn provider_round_trips() {
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
    assert_eq!(read.row, full);
    let inactive = core::Provider { active: false, ..full };
    assert!(!Provider::new(inactive, true).reachable);
}

#[test]
fn requests_reject_unknown_values_and_list_valid_ones() {
    let refused = |error: String, must_say: &str| assert!(error.contains(must_say), "{error}");
    let told = |error: serde_json::Error| error.to_string();
    let field = serde_json::from_str::<ReserveRequest>(r#"{"id":"e"}"#).map_err(told);
    refused(field.unwrap_err(), "unknown field `id`");
    let name = serde_json::from_str::<EngagementRequest>(r#"{"provider":"a b"}"#).map_err(told);
    refused(name.unwrap_err(), "' ' at position 2");
    let state = parse_state("gone").unwrap_err();
    refused(
        state.to_string(),
        "there are online, available, busy, offline, deactivated",
    );
}

#[test]
fn engagement_without_an_id_gets_one() {
    let request: EngagementRequest = serde_json::from_str("{}").unwrap();
    let new = request.named(|| "made-up".parse()).unwrap();
    assert_eq!(new, NewEngagement::new("made-up".parse().unwrap()));
    let reserve = ReserveRequest::from(new);
    let sent = json!({"engagement": "made-up", "status": "pending"});
    assert_eq!(serde_json::to_value(reserve).unwrap(), sent);
}
