//! The pinned wire format: names, forms and errors.

use std::time::Duration;

use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_core::event::{EventId, EventKind};
use tenure_core::id::{LeaseName, MemberId, TenureId, Term};
use tenure_core::lease::{AcquireOutcome, Acquired, Place, ReleaseOutcome, ReleasedLeases, Token};
use tenure_core::membership::{Beat, BeatReply, EndReason, Revision};
use tenure_core::settling::GapCause;
use tenure_core::time::StoreTime;

use super::*;

fn tenure() -> TenureId {
    TenureId::new(MemberId::new("a").unwrap(), Term::new(7).unwrap())
}

fn lease() -> LeaseName {
    LeaseName::new("l").unwrap()
}

fn token() -> Token {
    Token::new(Term::MAX).unwrap()
}

#[test]
fn error_round_trips() {
    let kinds = [
        ErrorKind::Invalid,
        ErrorKind::Ended(EndReason::Superseded),
        ErrorKind::Held,
        ErrorKind::NotOwner,
        ErrorKind::NotFound,
        ErrorKind::Unsettled,
        ErrorKind::TooLate,
        ErrorKind::Unavailable,
        ErrorKind::Denied,
        ErrorKind::Misconfigured,
        ErrorKind::Unsupported,
        ErrorKind::Internal,
    ];
    for kind in kinds {
        let error = Error::new(kind, "so it is").with_retry_after(Duration::from_micros(1_500));
        let problem: Problem = serde_json::from_slice(&serde_json::to_vec(&Problem::from(&error)).unwrap()).unwrap();
        let back = problem.into_error();
        assert_eq!((back.kind(), back.message()), (kind, "so it is"));
        assert_eq!(back.retry_after(), Some(Duration::from_millis(2)), "rounded up");
        assert_eq!(back.outcome(), Outcome::Unchanged, "{kind:?}");
    }
    let unknown = Problem::from(&Error::unavailable("gone", Outcome::Unknown)).into_error();
    assert_eq!(unknown.outcome(), Outcome::Unknown);
}

#[test]
fn every_code_has_a_unique_name_and_round_trips() {
    for code in Code::ALL {
        assert_eq!(Code::parse(code.as_str()), Some(*code));
        assert!((400..600).contains(&code.status()), "{code:?}");
    }
}

#[test]
fn causes_are_shown_for_store_errors_only() {
    let cause = || Error::invalid("the cause");
    let ours = Problem::from(&Error::unavailable("no store", Outcome::Unknown).because(cause()));
    assert_eq!(
        (ours.detail.as_str(), ours.outcome.as_deref()),
        ("no store: the cause", Some("unknown"))
    );
    let theirs = Problem::from(&Error::invalid("bad").because(cause()));
    assert_eq!((theirs.detail.as_str(), theirs.outcome), ("bad", None));
}

#[test]
fn requests_reject_unknown_fields() {
    for (json, must_say) in [
        (r#"{"member":"a","tll_ms":1}"#, "unknown field `tll_ms`"),
        (r#"{"member":"a b"}"#, "' ' at position 2"),
        (r#"{"member":"a","ttl_ms":-1}"#, "invalid value"),
        (r#"{"member":"a","labels":{"":"x"}}"#, "label"),
    ] {
        let error = serde_json::from_str::<JoinRequest>(json).unwrap_err().to_string();
        assert!(error.contains(must_say), "{json}: {error}");
    }
    assert!(
        serde_json::from_str::<tenure_core::membership::Beats>(r#"{"beats":[{"tenure":"a@1"},{"tenure":"a"}]}"#)
            .is_err()
    );
}

#[test]
fn beat_answer_round_trips() {
    for reply in [
        BeatReply::Renewed {
            expires_in: Duration::from_secs(3),
            revision: Revision::NONE,
        },
        BeatReply::Renewed {
            expires_in: Duration::from_secs(3),
            revision: Revision(9),
        },
        BeatReply::Ended(EndReason::Lapsed),
        BeatReply::Unknown,
        BeatReply::Refused,
    ] {
        let json = serde_json::to_string(&BeatResult::new(tenure(), reply)).unwrap();
        assert_eq!(
            serde_json::from_str::<BeatResult>(&json).unwrap().reply(),
            reply,
            "{json}"
        );
    }
}

#[test]
fn acquire_results_round_trip() {
    let wait = Duration::from_millis(1_501);
    let outcomes = vec![
        AcquireOutcome::Granted {
            token: token(),
            place: Place::FIRST,
            generation: token(),
            from: None,
        },
        AcquireOutcome::Granted {
            token: token(),
            place: Place::FIRST,
            generation: token(),
            from: Some(tenure()),
        },
        AcquireOutcome::Kept {
            token: token(),
            place: Place::FIRST,
            generation: token(),
        },
        AcquireOutcome::Held {
            by: tenure(),
            free_in: wait,
        },
        AcquireOutcome::Reserved {
            to: MemberId::new("b").unwrap(),
            free_in: wait,
        },
        AcquireOutcome::Unsettled {
            retry_in: wait,
            cause: GapCause::New,
        },
    ];
    let asked = vec![lease(); outcomes.len()];
    let acquired = Acquired {
        outcomes,
        expires_in: wait,
        ttl: None,
        revision: Revision(7),
        before: Revision(3),
        as_of: StoreTime::from_micros(5),
    };
    let json = serde_json::to_string(&AcquireLeasesAnswer::new(asked.clone(), acquired.clone())).unwrap();
    let read = || serde_json::from_str::<AcquireLeasesAnswer>(&json).unwrap();
    assert_eq!(read().acquired(&asked), Some(acquired), "{json}");
    assert_eq!(read().acquired(&asked[1..]), None, "not what was asked for");
}

#[test]
fn release_results_round_trip() {
    let given = ReleasedLeases {
        outcomes: vec![
            ReleaseOutcome::Released,
            ReleaseOutcome::Reserved,
            ReleaseOutcome::NotHolder { by: tenure() },
        ],
        revision: Revision::NONE,
        before: Revision::NONE,
        as_of: StoreTime::from_micros(5),
    };
    let asked = vec![(lease(), token()); 3];
    let answer = ReleaseLeasesAnswer::new(vec![lease(); 3], given.clone());
    let json = serde_json::to_string(&answer).unwrap();
    assert!(!json.contains("revision"), "none is left out: {json}");
    let read: ReleaseLeasesAnswer = serde_json::from_str(&json).unwrap();
    assert_eq!(read.given_up(&asked), Some(given));
    assert_eq!(answer.given_up(&asked[..2]), None);
}

#[test]
fn incomplete_answer_is_none() {
    for broken in [
        r#"{"lease":"l","outcome":"granted"}"#,
        r#"{"lease":"l","outcome":"held","retry_after_ms":5}"#,
        r#"{"lease":"l","outcome":"held","holder":"a","tenure":"a@1"}"#,
        r#"{"lease":"l","outcome":"reserved","tenure":"a@1","retry_after_ms":5}"#,
        r#"{"lease":"l","outcome":"unsettled"}"#,
    ] {
        let result: AcquireResult = serde_json::from_str(broken).unwrap();
        assert_eq!(result.outcome(), None, "{broken}");
    }
    let no_token = r#"{"lease":"l","outcome":"granted","token":0}"#;
    assert!(serde_json::from_str::<AcquireResult>(no_token).is_err());
    let released: ReleaseLeaseResult = serde_json::from_str(r#"{"lease":"l","outcome":"not_holder"}"#).unwrap();
    assert_eq!(released.outcome(), None);
}

#[test]
fn sequence_numbers_stay_below_two_to_the_53() {
    let release = |token: &str| {
        serde_json::from_str::<ReleaseLeaseRequest>(&format!(r#"{{"tenure":"a@1","token":{token}}}"#))
            .map(|request| request.token.get())
            .map_err(|error| error.to_string())
    };
    assert_eq!(release("9007199254740991"), Ok(Term::MAX));
    for (bad, must_say) in [
        ("0", "the token 0 is outside"),
        ("9007199254740992", "the token 9007199254740992 is outside"),
        ("18446744073709551616", "invalid type: floating point"),
        ("-1", "invalid value"),
        ("1.0", "invalid type: floating point"),
        ("\"5\"", "invalid type: string"),
        ("null", "invalid type: null"),
    ] {
        let error = release(bad).unwrap_err();
        assert!(error.contains(must_say), "{bad}: {error}");
    }
    let beat = |revision: &str| {
        serde_json::from_str::<Beat>(&format!(r#"{{"tenure":"a@1","revision":{revision}}}"#))
            .map(|beat| beat.revision.0)
            .map_err(|error| error.to_string())
    };
    assert_eq!((beat("0"), beat("9007199254740991")), (Ok(0), Ok(Term::MAX)));
    for (bad, must_say) in [
        ("9007199254740992", "the revision 9007199254740992 is outside"),
        ("-1", "invalid value"),
        ("\"5\"", "invalid type: string"),
    ] {
        let error = beat(bad).unwrap_err();
        assert!(error.contains(must_say), "{bad}: {error}");
    }
}

/// A tenure is rounded down and a wait is rounded up to milliseconds.
#[test]
fn durations_are_rounded_to_the_safe_side() {
    let exact = Duration::from_micros(1_500_001);
    let held = AcquireOutcome::Held {
        by: tenure(),
        free_in: exact,
    };
    let acquired = Acquired {
        outcomes: vec![held],
        expires_in: exact,
        ttl: None,
        revision: Revision::NONE,
        before: Revision::NONE,
        as_of: StoreTime::from_micros(5),
    };
    let read = AcquireLeasesAnswer::new(vec![lease()], acquired)
        .acquired(&[lease()])
        .unwrap();
    assert_eq!(read.expires_in, Duration::from_millis(1_500));
    let free_in = Duration::from_millis(1_501);
    assert_eq!(read.outcomes, [AcquireOutcome::Held { by: tenure(), free_in }]);
}

/// Adds a field to every object of an answer, as a later version may.
fn of_a_later_version(json: &str) -> String {
    fn grow(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                fields.values_mut().for_each(grow);
                fields.insert("added_later".to_owned(), serde_json::json!({ "a": [1, null] }));
            }
            serde_json::Value::Array(items) => items.iter_mut().for_each(grow),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(json).unwrap();
    grow(&mut value);
    value.to_string()
}

#[track_caller]
fn reads<T: serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(json: &str) {
    let now: T = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::from_str::<T>(&of_a_later_version(json)).unwrap(), now);
}

#[test]
fn answers_may_have_unknown_fields() {
    reads::<JoinAnswer>(
        r#"{"tenure":"a@1","member":"a","term":1,"ttl_ms":3000,"expires_in_ms":3000,"as_of":"2026-01-01T00:00:00Z"}"#,
    );
    reads::<BeatsAnswer>(
        r#"{"results":[{"tenure":"a@1","status":"renewed","expires_in_ms":1},{"tenure":"a@1","status":"ended","reason":"left"}],"as_of":"2026-01-01T00:00:00Z"}"#,
    );
    reads::<Claim>(r#"{"key":"k","owner":"a","tenure":"a@1","alive":true}"#);
    reads::<ClaimsPage>(r#"{"claims":[{"key":"k","owner":"a","tenure":"a@1","alive":true}],"next":"x"}"#);
    reads::<Lease>(
        r#"{"lease":"l","holder":"a","tenure":"a@1","token":5,"generation":5,"alive":true,"expires_in_ms":1}"#,
    );
    reads::<SessionStats>(r#"{"active":1,"disconnected":2,"orphans":3}"#);
    reads::<Findings>(r#"{"findings":[{"check":"c","severity":"ok","detail":"d"}]}"#);
    reads::<Problem>(r#"{"type":"about:blank","title":"T","status":404,"code":"not_found","detail":"d"}"#);
    reads::<ServerStatus>(
        r#"{"version":"9","uptime_ms":1,"store":{"place":"x","up":true},"loops":[{"name":"l","runs":1,"failures":0,"panics":0}],
            "groups":[],"groups_total":0,"streams":0,"requests":0}"#,
    );
    reads::<roster::AvailableAnswer>(
        r#"{"providers":[{"provider":"p","occupancy":0,"capacity":1}],"source":"mirror"}"#,
    );
}

#[test]
fn unknown_event_types_are_skipped() {
    let page = r#"{"events":[
        {"id":1,"at":"2026-01-01T00:00:00Z","type":"joined","tenure":"a@1","added_later":1},
        {"id":2,"at":"2026-01-01T00:00:01Z","type":"what_comes_later","tenure":{"member":"a"}},
        {"id":3,"at":"2026-01-01T00:00:02Z","type":"left","tenure":"a@1"}],"next":"3","missed":false}"#;
    let read: EventsPage = serde_json::from_str(page).unwrap();
    let kinds: Vec<_> = read.events.iter().map(|answer| answer.event.kind).collect();
    assert_eq!(kinds, [EventKind::Joined, EventKind::Left]);
    assert_eq!(read.page().unwrap().last, EventId(3));
    let broken = page.replace("\"left\",\"tenure\":\"a@1\"", "\"left\",\"tenure\":\"a\"");
    assert!(
        serde_json::from_str::<EventsPage>(&broken).is_err(),
        "known types must be valid"
    );
}

#[test]
fn unknown_code_is_classified_by_its_status() {
    let error = |status: u16| {
        let problem =
            format!(r#"{{"type":"about:blank","title":"T","status":{status},"code":"what_comes_later","detail":"d"}}"#);
        serde_json::from_str::<Problem>(&problem).unwrap().into_error()
    };
    assert_eq!(
        (error(409).kind(), error(409).outcome()),
        (ErrorKind::Invalid, Outcome::Unchanged)
    );
    assert_eq!(
        (error(500).kind(), error(500).outcome()),
        (ErrorKind::Unavailable, Outcome::Unknown)
    );
}
