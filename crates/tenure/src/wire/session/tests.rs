//! The pinned wire format of sessions: forms, errors and round trips.

use serde_json::json;
use tenure_core::id::{ConnectionId, SessionId};
use tenure_core::membership::Revision;
use tenure_core::session::{Attach, AttachOutcome, Attached, Detach, DetachOutcome, Epoch, How, Limit};
use tenure_core::time::StoreTime;

use super::*;

fn session() -> Session {
    Session {
        session: SessionId::new("s").unwrap(),
        state: SessionState::Disconnected,
        connections: 0,
        alias: Some(Alias::new("a").unwrap()),
        data: Data::from([("x".to_owned(), json!({"b": [1, 2.5], "a": "é\n"}))]),
        epoch: Epoch::new(9).unwrap(),
        created_at: StoreTime::from_micros(5),
        updated_at: StoreTime::from_micros(6),
        grace: Some(Duration::from_secs(5)),
        disconnected_at: Some(StoreTime::from_micros(7)),
        reap_in: Some(Duration::from_millis(1_500)),
    }
}

fn attach(n: usize) -> Attach {
    let (session, connection) = (SessionId::new(format!("s{n}")), ConnectionId::new("c"));
    Attach::new(session.unwrap(), connection.unwrap())
}

#[test]
fn session_round_trips() {
    let json = serde_json::to_value(session()).unwrap();
    assert_eq!(
        json,
        json!({
            "session": "s", "state": "disconnected", "connections": 0, "alias": "a",
            "data": {"x": {"a": "é\n", "b": [1, 2.5]}}, "epoch": 9,
            "created_at": "1970-01-01T00:00:00.000005Z", "updated_at": "1970-01-01T00:00:00.000006Z",
            "grace_ms": 5000, "disconnected_at": "1970-01-01T00:00:00.000007Z",
            "reap_in_ms": 1500,
        })
    );
    let read: Session = serde_json::from_value(json).unwrap();
    assert_eq!(read, session());
    for epoch in [json!(0), json!(9_007_199_254_740_992_u64), json!("9")] {
        let mut broken = serde_json::to_value(session()).unwrap();
        broken["epoch"] = epoch;
        assert!(serde_json::from_value::<Session>(broken.clone()).is_err(), "{broken}");
    }
}

#[test]
fn attach_results_round_trip() {
    let attached = |how| AttachOutcome::Attached {
        how,
        session: Box::new(session()),
    };
    let outcomes = vec![
        attached(How::Created),
        attached(How::Attached),
        attached(How::Resumed),
        AttachOutcome::AliasTaken {
            by: SessionId::new("b").unwrap(),
        },
        AttachOutcome::Gone,
        AttachOutcome::Full { of: Limit::Connections },
        AttachOutcome::Full { of: Limit::Fields },
    ];
    let asked: Vec<_> = (0..outcomes.len()).map(attach).collect();
    let all = Attached {
        outcomes,
        revision: Revision(7),
        before: Revision(3),
    };
    let names = asked.iter().map(|one| (one.session.clone(), one.connection.clone()));
    let json = serde_json::to_string(&AttachSessionsAnswer::new(names, all.clone())).unwrap();
    let read = || serde_json::from_str::<AttachSessionsAnswer>(&json).unwrap();
    assert_eq!(read().attached(&asked), Some(all), "{json}");
    let mut turned = asked.clone();
    turned.reverse();
    assert_eq!(read().attached(&turned), None, "not what was asked for");
    assert_eq!(read().attached(&asked[1..]), None);
}

#[test]
fn detach_results_round_trip() {
    let outcomes = vec![
        DetachOutcome::Detached { reap_in: None },
        DetachOutcome::Detached {
            reap_in: Some(Duration::from_millis(1_500)),
        },
        DetachOutcome::NotAttached,
        DetachOutcome::Stale {
            epoch: Epoch::new(9).unwrap(),
        },
        DetachOutcome::NotHolder {
            by: "a@7".parse().unwrap(),
        },
    ];
    let detach = |n| Detach {
        session: attach(n).session,
        connection: attach(n).connection,
        epoch: None,
    };
    let asked: Vec<_> = (0..outcomes.len()).map(detach).collect();
    let json = serde_json::to_string(&DetachSessionsAnswer::new(asked.clone(), outcomes.clone())).unwrap();
    let read = || serde_json::from_str::<DetachSessionsAnswer>(&json).unwrap();
    assert_eq!(read().outcomes(&asked), Some(outcomes), "{json}");
    assert_eq!(read().outcomes(&asked[1..]), None);
}

#[test]
fn incomplete_answer_is_none() {
    for broken in ["created", "attached", "resumed", "alias_taken", "full"] {
        let broken = json!({"session": "s", "connection": "c", "outcome": broken});
        let result: AttachResult = serde_json::from_value(broken.clone()).unwrap();
        assert_eq!(result.outcome(), None, "{broken}");
    }
    for broken in ["stale", "not_holder"] {
        let broken = json!({"session": "s", "connection": "c", "outcome": broken});
        let result: DetachResult = serde_json::from_value(broken.clone()).unwrap();
        assert_eq!(result.outcome(), None, "{broken}");
    }
}

#[test]
fn grace_is_rounded_up_to_milliseconds() {
    let mut asked = attach(1);
    asked.grace = Some(Duration::from_micros(1_000_001));
    let sent = serde_json::to_value(&asked).unwrap();
    assert_eq!(sent["grace_ms"], 1_001);
    let read: Attach = serde_json::from_value(sent).unwrap();
    assert_eq!(read.grace, Some(Duration::from_millis(1_001)));
}

#[test]
fn alias_cannot_be_combined_with_other_filters() {
    let query = |text: serde_json::Value| serde_json::from_value::<SessionsQuery>(text).unwrap().request();
    let of = |state| {
        SessionFilter::Of(Sessions {
            state,
            older_than: Duration::ZERO,
            page: PageRequest::default(),
        })
    };
    assert_eq!(query(json!({})).unwrap(), of(None));
    assert_eq!(
        query(json!({"state": "orphan"})).unwrap(),
        of(Some(SessionState::Orphan))
    );
    assert_eq!(
        query(json!({"alias": "a"})).unwrap(),
        SessionFilter::Alias(Alias::new("a").unwrap())
    );
    for (text, must_say) in [
        (json!({"alias": "a", "state": "active"}), "alone"),
        (json!({"alias": "a", "after": "s"}), "alone"),
        (json!({"alias": "a", "older_than_ms": "5"}), "alone"),
        (json!({"state": "gone"}), "use active"),
    ] {
        let error = query(text).unwrap_err().to_string();
        assert!(error.contains(must_say), "{error}");
    }
}
