//! The life of one old key, on a manual clock.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::{Clock, ManualClock, Mono};
use tenure_core::error::{Error, Outcome};
use tenure_core::id::LeaseName;
use tenure_core::timing::Timing;
use tokio_util::sync::CancellationToken;

use super::keys::TakeOutcome;
use super::record::{KeyAction, KeyGuard, KeyRecord};

const TTL: Duration = Duration::from_secs(12);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn at(at: Duration) -> Mono {
    Mono::from_origin(at)
}

fn record(lost: &CancellationToken) -> Arc<KeyRecord> {
    let target = LeaseName::new("t").unwrap();
    KeyRecord::new(
        target,
        "n@1#0".to_owned(),
        lost.clone(),
        Timing::for_ttl(TTL),
        at(secs(0)),
    )
}

/// The due action at a time.
fn due(record: &KeyRecord, now: Duration) -> Option<KeyAction> {
    record.due(at(now), Duration::ZERO).0
}

/// Taken by a step that was sent at that time and answered at another.
fn take(record: &KeyRecord, sent: Duration, answered: Duration) {
    record.send(KeyAction::Take);
    record.taken(TakeOutcome::Ours, at(sent), at(answered), at(answered));
}

#[test]
fn validity_starts_when_the_confirmed_step_was_sent() {
    let record = record(&CancellationToken::new());
    assert_eq!(
        (record.valid_until(), due(&record, ms(0))),
        (at(ms(0)), Some(KeyAction::Take))
    );
    take(&record, secs(1), secs(3));
    // 12 s minus the margin of 1 s, from when it was sent.
    assert_eq!(record.valid_until(), at(secs(12)));
    assert_eq!(
        (due(&record, ms(4_999)), due(&record, secs(5))),
        (None, Some(KeyAction::Renew))
    );
    record.send(KeyAction::Renew);
    assert_eq!(due(&record, secs(5)), None, "one step at a time");
    record.renewed(true, at(secs(5)));
    assert_eq!(record.valid_until(), at(secs(16)));
    // A failed renewal only changes the time of the next attempt.
    record.send(KeyAction::Renew);
    let unknown = Error::unavailable("x", Outcome::Unknown);
    record.failed(KeyAction::Renew, &unknown, true, at(ms(9_500)), at(secs(9)));
    assert_eq!(
        (record.valid_until(), due(&record, ms(9_500))),
        (at(secs(16)), Some(KeyAction::Renew))
    );
}

#[test]
fn foreign_key_is_tried_at_its_expiry_or_the_interval() {
    let record = record(&CancellationToken::new());
    let held = |left: Option<Duration>| TakeOutcome::Held {
        by: "old-1".to_owned(),
        free_in: left,
    };
    record.send(KeyAction::Take);
    record.taken(held(Some(ms(200))), at(ms(0)), at(ms(500)), at(ms(10)));
    assert_eq!(
        (due(&record, ms(200)), due(&record, ms(215))),
        (None, Some(KeyAction::Take))
    );
    record.send(KeyAction::Take);
    record.taken(held(None), at(ms(0)), at(ms(500)), at(ms(10)));
    assert_eq!(
        (due(&record, ms(499)), due(&record, ms(500))),
        (None, Some(KeyAction::Take))
    );
    assert!(record.is_waiting() && record.valid_until() == at(ms(0)));
    // It was never ours, so there is no release.
    record.start_release(at(secs(1)));
    assert_eq!(due(&record, secs(9)), None);
}

#[test]
fn acquire_with_unknown_outcome_is_released() {
    let record = record(&CancellationToken::new());
    record.send(KeyAction::Take);
    let unknown = Error::unavailable("x", Outcome::Unknown);
    record.failed(KeyAction::Take, &unknown, false, at(ms(500)), at(ms(400)));
    assert_eq!(record.valid_until(), at(ms(0)), "no task runs on a guess");
    record.start_release(at(ms(410)));
    assert_eq!(due(&record, ms(410)), Some(KeyAction::Release));
    // An acquire that was not sent needs no release.
    let other = self::record(&CancellationToken::new());
    other.send(KeyAction::Take);
    let unchanged = Error::unavailable("x", Outcome::Unchanged);
    other.failed(KeyAction::Take, &unchanged, false, at(ms(500)), at(ms(400)));
    other.start_release(at(ms(410)));
    assert_eq!(due(&other, ms(410)), None);
}

#[test]
fn release_follows_a_renewal_and_retries_are_limited() {
    let record = record(&CancellationToken::new());
    take(&record, secs(0), secs(0));
    record.send(KeyAction::Renew);
    record.start_release(at(secs(4)));
    assert_eq!(due(&record, secs(4)), None, "the renewal is in flight");
    record.renewed(true, at(secs(4)));
    assert_eq!(due(&record, secs(4)), Some(KeyAction::Release), "immediately after it");
    assert_eq!(record.valid_until(), at(secs(0)), "and no task runs");
    let unknown = Error::unavailable("x", Outcome::Unknown);
    for _ in 0..3 {
        assert_eq!(due(&record, secs(60)), Some(KeyAction::Release));
        record.send(KeyAction::Release);
        record.failed(KeyAction::Release, &unknown, true, at(secs(5)), at(secs(5)));
    }
    assert_eq!(due(&record, secs(60)), None);
}

#[test]
fn lost_key_is_tried_again_only_on_request() {
    let record = record(&CancellationToken::new());
    take(&record, secs(0), secs(0));
    record.send(KeyAction::Renew);
    record.renewed(false, at(secs(4)));
    assert_eq!((record.valid_until(), due(&record, secs(60))), (at(secs(0)), None));
    assert!(record.request(at(secs(5))) && !record.request(at(secs(5))));
    assert_eq!(due(&record, secs(5)), Some(KeyAction::Take));
}

#[test]
fn without_the_lease_the_key_is_only_released() {
    let lost = CancellationToken::new();
    let record = record(&lost);
    take(&record, secs(0), secs(0));
    lost.cancel();
    assert_eq!(due(&record, secs(60)), None);
    record.start_release(at(secs(60)));
    assert_eq!(due(&record, secs(60)), Some(KeyAction::Release));
}

#[test]
fn broken_guard_stays_broken() {
    let clock = Arc::new(ManualClock::new(0, 1));
    let dynamic: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
    let record = record(&CancellationToken::new());
    take(&record, secs(0), secs(0));
    let guard = KeyGuard::new(&record, &dynamic);
    clock.advance(ms(10_999));
    assert!(guard.holds());
    clock.advance(ms(1));
    assert!(!guard.holds());
    // A late reply shows that it was ours all the time. This counts for the next task.
    record.send(KeyAction::Renew);
    record.renewed(true, at(secs(11)));
    assert!(!guard.holds() && guard.valid_until() == Mono::default());
    assert!(KeyGuard::new(&record, &dynamic).holds());
}
