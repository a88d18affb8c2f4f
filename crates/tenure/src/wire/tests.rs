//! The wire as it is pinned: names, forms and refusals.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_core::event::{Event, EventId, EventKind};
use tenure_core::id::{MemberId, TenureId, Term};
use tenure_core::membership::{BeatReply, EndReason};
use tenure_core::time::StoreTime;

use super::*;

fn tenure() -> TenureId {
    TenureId::new(MemberId::new("a").unwrap(), Term::new(7).unwrap())
}

#[test]
fn an_error_survives_the_wire() {
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
fn every_code_has_its_own_name_and_reads_back() {
    for code in Code::ALL {
        assert_eq!(Code::parse(code.as_str()), Some(*code));
        assert!((400..600).contains(&code.status()), "{code:?}");
    }
}

#[test]
fn the_causes_of_a_failing_store_are_shown_and_those_of_a_bad_request_are_not() {
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
fn requests_refuse_what_they_do_not_know() {
    for (json, must_say) in [
        (r#"{"member":"a","tll_ms":1}"#, "unknown field `tll_ms`"),
        (r#"{"member":"a b"}"#, "' ' at position 2"),
        (r#"{"member":"a","ttl_ms":-1}"#, "invalid value"),
        (r#"{"member":"a","labels":{"":"x"}}"#, "label"),
    ] {
        let error = serde_json::from_str::<JoinRequest>(json).unwrap_err().to_string();
        assert!(error.contains(must_say), "{json}: {error}");
    }
    assert!(serde_json::from_str::<BeatsRequest>(r#"{"beats":[{"tenure":"a@1"},{"tenure":"a"}]}"#).is_err());
}

#[test]
fn a_beat_answer_means_the_same_on_both_sides() {
    for reply in [
        BeatReply::Renewed {
            expires_in: Duration::from_secs(3),
            revision: tenure_core::membership::Revision::NONE,
        },
        BeatReply::Ended(EndReason::Lapsed),
        BeatReply::Unknown,
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
fn the_shape_in_the_documentation_is_that_of_an_event() {
    let mut event = Event::new(EventId(5), StoreTime::from_micros(1), EventKind::Evicted);
    event.tenure = Some(tenure());
    event.reason = Some("lapsed".into());
    event.pass = Some("p".into());
    event.counts = BTreeMap::from([("devices".to_owned(), 2)]);
    event.keys = vec!["devices/a".into()];
    let shape: EventShape = serde_json::from_str(&serde_json::to_string(&event).unwrap()).unwrap();
    assert_eq!((shape.id, shape.kind.as_str(), shape.keys.len()), (5, "evicted", 1));
    let back: Event = serde_json::from_str(&serde_json::to_string(&shape).unwrap()).unwrap();
    assert_eq!(back, event);
}

#[test]
fn milliseconds_round_to_the_safe_side() {
    let duration = Duration::from_micros(1_001);
    assert_eq!((ms(duration), ms_up(duration)), (1, 2));
    assert_eq!((ms(Duration::MAX), ms_up(Duration::MAX)), (u64::MAX, u64::MAX));
}
