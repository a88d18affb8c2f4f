//! The checks allow what a lost tail explains, and nothing else.

use super::*;
use crate::fault::{Failover, Fault};
use crate::history::{Grant, Outcome, Verb};

const SECOND: Micros = 1_000_000;

fn call(at: Micros, tenure: &str, verb: Verb, outcome: Outcome) -> Call {
    Call {
        client: 0,
        begin: at,
        end: at + 1_000,
        tenure: tenure.to_owned(),
        verb,
        outcome,
    }
}

fn grant(at: Micros, tenure: &str, lease: &str, token: u64, place: u64) -> Call {
    let granted = Grant {
        token,
        place,
        is_kept: false,
    };
    let verb = Verb::Acquire(lease.to_owned(), 0);
    call(at, tenure, verb, Outcome::Granted(granted))
}

/// Two members that beat for five seconds; the first was granted a lease at one second.
fn two_members() -> Record {
    let mut calls = vec![grant(SECOND, "a@1", "l0-0", 1, 0)];
    for member in ["a@1", "b@1"] {
        calls.push(call(0, member, Verb::Join(2 * SECOND), Outcome::Done));
        for second in 1..5 {
            calls.push(call(second * SECOND, member, Verb::Beat(2 * SECOND), Outcome::Done));
        }
    }
    calls.sort_by_key(|call| call.begin);
    Record {
        kind: Kind::Sentinel,
        calls,
        events: Vec::new(),
        windows: Vec::new(),
        left: Vec::new(),
    }
}

/// A failover that loses what happened between two instants.
fn failover(from: Micros, to: Micros) -> Window {
    let loss = Loss {
        from,
        to,
        is_tail: true,
    };
    Window {
        fault: Fault::FailOver(Failover::Force, true),
        begin: from,
        resumed: to,
        end: to,
        loss: Some(loss),
    }
}

fn checks(mut record: Record, calls: &[Call]) -> Vec<&'static str> {
    record.calls.extend_from_slice(calls);
    record.calls.sort_by_key(|call| call.begin);
    judge(&record).into_iter().map(|found| found.check).collect()
}

#[test]
fn second_holder_is_found_without_a_loss() {
    let second = grant(2 * SECOND, "b@1", "l0-0", 2, 0);
    assert_eq!(checks(two_members(), &[]), [""; 0]);
    assert_eq!(checks(two_members(), &[second]), ["linearizable", "one holder"]);
}

#[test]
fn lost_grant_may_have_a_second_holder() {
    let mut record = two_members();
    record.windows.push(failover(SECOND - 1, SECOND + 500_000));
    let second = grant(2 * SECOND, "b@1", "l0-0", 2, 0);
    assert_eq!(checks(record, &[second]), [""; 0]);
}

#[test]
fn grant_from_before_the_loss_has_one_holder() {
    let mut record = two_members();
    record.windows.push(failover(SECOND + 500_000, SECOND + 600_000));
    let second = grant(2 * SECOND, "b@1", "l0-0", 2, 0);
    assert_eq!(checks(record, &[second]), ["one holder"]);
}

#[test]
fn token_that_falls_after_a_loss_is_found() {
    let mut record = two_members();
    record.windows.push(failover(SECOND - 1, SECOND + 500_000));
    let second = grant(2 * SECOND, "b@1", "l0-0", 0, 0);
    let found = checks(record, &[second]);
    assert!(found.contains(&"tokens rise"), "{found:?}");
}

#[test]
fn lost_grant_that_stays_trusted_is_found() {
    let second = grant(2 * SECOND, "b@1", "l0-0", 2, 0);
    let trust = |at| call(at, "a@1", Verb::TrustLease("l0-0".to_owned(), 1), Outcome::Done);
    let lost = || {
        let mut record = two_members();
        record.windows.push(failover(SECOND - 1, SECOND + 500_000));
        record
    };
    assert_eq!(checks(lost(), &[second.clone(), trust(3 * SECOND)]), [""; 0]);
    assert_eq!(checks(lost(), &[second, trust(7 * SECOND)]), ["one holder"]);
}

#[test]
fn operators_release_frees_after_it_was_noticed() {
    let revoke = call(2 * SECOND, "a@1", Verb::Revoke("l0-0".to_owned(), 1), Outcome::Done);
    let notice = call(
        2 * SECOND + 10_000,
        "a@1",
        Verb::Notice("l0-0".to_owned(), 1),
        Outcome::Done,
    );
    let second = grant(2 * SECOND + 20_000, "b@1", "l0-0", 2, 0);
    assert_eq!(
        checks(two_members(), &[revoke.clone(), notice, second.clone()]),
        [""; 0]
    );
    assert_eq!(checks(two_members(), &[revoke, second]), ["one holder"]);
}

#[test]
fn places_of_a_shared_lease_are_judged_apart() {
    let first = grant(SECOND, "a@1", "s0-3", 10, 0);
    let second = grant(2 * SECOND, "b@1", "s0-3", 11, 1);
    assert_eq!(checks(two_members(), &[first.clone(), second]), [""; 0]);
    let same = grant(2 * SECOND, "b@1", "s0-3", 11, 0);
    assert_eq!(
        checks(two_members(), &[first.clone(), same]),
        ["linearizable", "one holder"]
    );
    let third = grant(2 * SECOND, "b@1", "s0-3", 11, 2);
    assert_eq!(checks(two_members(), &[first, third]), ["one holder"]);
}

#[test]
fn lapse_after_an_outage_is_early_unless_a_replica_took_over() {
    let event = |kind: &str, at| Event {
        at,
        kind: kind.to_owned(),
        tenure: if kind == "lapsed" {
            "a@1".to_owned()
        } else {
            String::new()
        },
        keys: Vec::new(),
        count: 0,
    };
    let found = |unsettled, joins: &[Call]| {
        let mut record = two_members();
        record.kind = Kind::Cluster;
        record.windows.push(Window {
            fault: Fault::KillNode(0),
            begin: 5 * SECOND,
            resumed: 8 * SECOND,
            end: 8 * SECOND,
            loss: None,
        });
        record.events = vec![
            event("group_unsettled", unsettled),
            event("lapsed", 9 * SECOND + 500_000),
        ];
        checks(record, joins)
    };
    let join = call(7 * SECOND + 400_000, "c@1", Verb::Join(2 * SECOND), Outcome::Done);
    assert_eq!(found(7 * SECOND + 400_000, &[]), [""; 0]);
    assert_eq!(found(8 * SECOND + 10_000, &[join]), [""; 0]);
    assert_eq!(found(8 * SECOND + 10_000, &[]), ["no early lapse"]);
}

#[test]
fn beat_refused_on_a_full_disk_is_found() {
    let mut record = two_members();
    record.windows.push(Window {
        fault: Fault::FullDisk(false),
        begin: 3 * SECOND,
        resumed: 3 * SECOND + 900_000,
        end: 3 * SECOND + 900_000,
        loss: None,
    });
    let refused = Outcome::Refused("store_unavailable".to_owned());
    let beat = call(3 * SECOND + 500_000, "a@1", Verb::Beat(2 * SECOND), refused.clone());
    assert_eq!(checks(two_members(), std::slice::from_ref(&beat)), [""; 0]);
    record.calls.push(beat);
    let claim = call(
        4 * SECOND + 500_000,
        "a@1",
        Verb::Claim("k0-0".to_owned(), false),
        refused,
    );
    assert_eq!(checks(record, &[claim]), ["full disk"; 2]);
}
