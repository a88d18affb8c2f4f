//! One old key through its life, on a clock that the tests turn.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::{Clock, ManualClock, Mono};
use tenure_core::error::{Error, Outcome};
use tenure_core::id::LeaseName;
use tenure_core::timing::Timing;
use tokio_util::sync::CancellationToken;

use super::keys::Taken;
use super::record::{Hold, Record, Wish};

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

fn record(lost: &CancellationToken) -> Arc<Record> {
    let target = LeaseName::new("t").unwrap();
    Record::new(
        target,
        "n@1#0".to_owned(),
        lost.clone(),
        Timing::for_ttl(TTL),
        at(secs(0)),
    )
}

/// What it wants to have done at a time.
fn due(record: &Record, now: Duration) -> Option<Wish> {
    record.due(at(now), Duration::ZERO).0
}

/// Taken by a step that was sent at that time and answered at another.
fn take(record: &Record, sent: Duration, answered: Duration) {
    record.send(Wish::Take);
    record.taken(Taken::Ours, at(sent), at(answered), at(answered));
}

#[test]
fn it_is_ours_from_the_sending_of_what_was_confirmed() {
    let record = record(&CancellationToken::new());
    assert_eq!(
        (record.valid_until(), due(&record, ms(0))),
        (at(ms(0)), Some(Wish::Take))
    );
    take(&record, secs(1), secs(3));
    // 12 s minus the margin of 1 s, after the sending.
    assert_eq!(record.valid_until(), at(secs(12)));
    assert_eq!(
        (due(&record, ms(4_999)), due(&record, secs(5))),
        (None, Some(Wish::Keep))
    );
    record.send(Wish::Keep);
    assert_eq!(due(&record, secs(5)), None, "one step at a time");
    record.renewed(true, at(secs(5)));
    assert_eq!(record.valid_until(), at(secs(16)));
    // A failed renewal changes nothing but when it is tried again.
    record.send(Wish::Keep);
    let unknown = Error::unavailable("x", Outcome::Unknown);
    record.failed(Wish::Keep, &unknown, true, at(ms(9_500)), at(secs(9)));
    assert_eq!(
        (record.valid_until(), due(&record, ms(9_500))),
        (at(secs(16)), Some(Wish::Keep))
    );
}

#[test]
fn what_another_holds_is_asked_for_when_it_expires_or_at_the_next_look() {
    let record = record(&CancellationToken::new());
    let held = |left: Option<Duration>| Taken::Held {
        by: "old-1".to_owned(),
        free_in: left,
    };
    record.send(Wish::Take);
    record.taken(held(Some(ms(200))), at(ms(0)), at(ms(500)), at(ms(10)));
    assert_eq!((due(&record, ms(200)), due(&record, ms(215))), (None, Some(Wish::Take)));
    record.send(Wish::Take);
    record.taken(held(None), at(ms(0)), at(ms(500)), at(ms(10)));
    assert_eq!((due(&record, ms(499)), due(&record, ms(500))), (None, Some(Wish::Take)));
    assert!(record.is_waiting() && record.valid_until() == at(ms(0)));
    // It was never ours, so there is nothing to give back.
    record.give_back(at(secs(1)));
    assert_eq!(due(&record, secs(9)), None);
}

#[test]
fn a_taking_whose_outcome_is_unknown_is_given_back() {
    let record = record(&CancellationToken::new());
    record.send(Wish::Take);
    let unknown = Error::unavailable("x", Outcome::Unknown);
    record.failed(Wish::Take, &unknown, false, at(ms(500)), at(ms(400)));
    assert_eq!(record.valid_until(), at(ms(0)), "nobody works on a guess");
    record.give_back(at(ms(410)));
    assert_eq!(due(&record, ms(410)), Some(Wish::Release));
    // One that was not sent is not.
    let other = self::record(&CancellationToken::new());
    other.send(Wish::Take);
    let unchanged = Error::unavailable("x", Outcome::Unchanged);
    other.failed(Wish::Take, &unchanged, false, at(ms(500)), at(ms(400)));
    other.give_back(at(ms(410)));
    assert_eq!(due(&other, ms(410)), None);
}

#[test]
fn what_is_given_back_waits_for_no_renewal_and_is_not_tried_for_ever() {
    let record = record(&CancellationToken::new());
    take(&record, secs(0), secs(0));
    record.send(Wish::Keep);
    record.give_back(at(secs(4)));
    assert_eq!(due(&record, secs(4)), None, "the renewal is under way");
    record.renewed(true, at(secs(4)));
    assert_eq!(due(&record, secs(4)), Some(Wish::Release), "at once after it");
    assert_eq!(record.valid_until(), at(secs(0)), "and nobody works meanwhile");
    let unknown = Error::unavailable("x", Outcome::Unknown);
    for _ in 0..3 {
        assert_eq!(due(&record, secs(60)), Some(Wish::Release));
        record.send(Wish::Release);
        record.failed(Wish::Release, &unknown, true, at(secs(5)), at(secs(5)));
    }
    assert_eq!(due(&record, secs(60)), None);
}

#[test]
fn a_lost_key_is_asked_for_again_only_once_it_is_wanted() {
    let record = record(&CancellationToken::new());
    take(&record, secs(0), secs(0));
    record.send(Wish::Keep);
    record.renewed(false, at(secs(4)));
    assert_eq!((record.valid_until(), due(&record, secs(60))), (at(secs(0)), None));
    assert!(record.want(at(secs(5))) && !record.want(at(secs(5))));
    assert_eq!(due(&record, secs(5)), Some(Wish::Take));
}

#[test]
fn without_the_lease_the_key_is_neither_taken_nor_renewed_but_given_back() {
    let lost = CancellationToken::new();
    let record = record(&lost);
    take(&record, secs(0), secs(0));
    lost.cancel();
    assert_eq!(due(&record, secs(60)), None);
    record.give_back(at(secs(60)));
    assert_eq!(due(&record, secs(60)), Some(Wish::Release));
}

#[test]
fn whoever_saw_a_hold_broken_never_sees_it_whole_again() {
    let clock = Arc::new(ManualClock::new(0, 1));
    let dynamic: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
    let record = record(&CancellationToken::new());
    take(&record, secs(0), secs(0));
    let hold = Hold::new(&record, &dynamic);
    clock.advance(ms(10_999));
    assert!(hold.holds());
    clock.advance(ms(1));
    assert!(!hold.holds());
    // It was ours all along, as a late answer tells: for the next task.
    record.send(Wish::Keep);
    record.renewed(true, at(secs(11)));
    assert!(!hold.holds() && hold.valid_until() == Mono::default());
    assert!(Hold::new(&record, &dynamic).holds());
}
