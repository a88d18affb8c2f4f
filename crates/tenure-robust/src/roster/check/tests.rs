//! Each check finds what it is for, in a record made by hand.

use std::collections::BTreeMap;

use super::super::ledger::Row;
use super::super::{Done, Entry};
use super::*;

const SECOND: Micros = 1_000_000;

fn deed(at: Micros, act: Act, provider: &str, engagement: &str) -> Deed {
    Deed {
        begin: at,
        end: at + 1_000,
        act,
        provider: provider.to_owned(),
        engagement: engagement.to_owned(),
        reply: Reply::Done(Done {
            is_changed: true,
            version: at,
            is_mirrored: true,
        }),
    }
}

fn entry(at: Micros, change: &str, reason: &str) -> Entry {
    Entry {
        provider: "p0".to_owned(),
        change: change.to_owned(),
        reason: reason.to_owned(),
        at,
        version: at,
    }
}

/// A record in which a provider goes online, takes an engagement that ends, and goes offline.
fn good() -> RosterRecord {
    let row = Row {
        is_active: true,
        is_online: false,
        occupancy: 0,
        open: 0,
        version: 4,
    };
    RosterRecord {
        deeds: vec![
            deed(SECOND, Act::Online, "p0", ""),
            deed(2 * SECOND, Act::Reserve, "p0", "e1"),
            deed(3 * SECOND, Act::End, "p0", "e1"),
            deed(4 * SECOND, Act::Offline, "p0", ""),
        ],
        ledger: Ledger {
            providers: BTreeMap::from([("p0".to_owned(), row)]),
            engagements: BTreeMap::from([("e1".to_owned(), ("p0".to_owned(), "ended".to_owned()))]),
            log: vec![entry(SECOND, "online", "asked"), entry(4 * SECOND, "offline", "asked")],
        },
        windows: Vec::new(),
        left: Vec::new(),
    }
}

fn checks(record: &RosterRecord) -> Vec<&'static str> {
    judge(record).into_iter().map(|found| found.check).collect()
}

#[test]
fn good_record_has_no_violation() {
    assert_eq!(judge(&good()).len(), 0, "{:?}", judge(&good()));
}

#[test]
fn lost_engagement_is_found() {
    let mut record = good();
    record.ledger.engagements.clear();
    assert_eq!(checks(&record), ["acknowledged writes survive"]);
}

#[test]
fn engagement_that_came_back_is_found() {
    let mut record = good();
    let e1 = record.ledger.engagements.get_mut("e1").unwrap();
    e1.1 = "pending".to_owned();
    assert_eq!(checks(&record), ["acknowledged writes survive"]);
}

#[test]
fn third_engagement_of_two_places_is_found() {
    let mut record = good();
    record.deeds.retain(|deed| deed.act != Act::End);
    for name in ["e1", "e2", "e3"] {
        let row = ("p0".to_owned(), "pending".to_owned());
        record.ledger.engagements.insert(name.to_owned(), row);
        if name != "e1" {
            record.deeds.push(deed(3 * SECOND, Act::Reserve, "p0", name));
        }
    }
    assert!(checks(&record).iter().all(|check| *check == "no more than fits"));
    assert!(!checks(&record).is_empty());
}

#[test]
fn heartbeat_after_a_deactivation_is_found() {
    let mut record = good();
    record.deeds.push(deed(5 * SECOND, Act::Deactivate, "p0", ""));
    record.deeds.push(deed(5 * SECOND + 2_000, Act::Heartbeat, "p0", ""));
    record.ledger.log.push(entry(5 * SECOND, "deactivated", "operator"));
    record.ledger.providers.get_mut("p0").unwrap().is_active = false;
    assert_eq!(checks(&record), ["deactivated is refused"]);
}

#[test]
fn heartbeat_after_a_deactivation_past_the_mirror_may_be_late() {
    let mut record = good();
    let mut out = deed(5 * SECOND, Act::Deactivate, "p0", "");
    if let Reply::Done(done) = &mut out.reply {
        done.is_mirrored = false;
    }
    record.deeds.push(out);
    record.deeds.push(deed(5 * SECOND + 2_000, Act::Heartbeat, "p0", ""));
    record.ledger.log.push(entry(5 * SECOND, "deactivated", "operator"));
    record.ledger.providers.get_mut("p0").unwrap().is_active = false;
    assert_eq!(checks(&record), ["deactivated is refused"], "no daemon was cut off");
    // A daemon needs a moment to connect again.
    for (end, found) in [(2 * SECOND, 1), (4 * SECOND, 0), (6 * SECOND, 0)] {
        record.windows = vec![Window {
            fault: Fault::CutStore(1, true),
            begin: SECOND,
            resumed: end,
            end,
            loss: None,
        }];
        assert_eq!(checks(&record).len(), found, "cut until {end}");
    }
}

#[test]
fn lapse_of_a_provider_that_beats_is_found() {
    let mut record = good();
    record
        .deeds
        .insert(3, deed(4 * SECOND - 5_000, Act::Heartbeat, "p0", ""));
    record.deeds.pop();
    record.ledger.log[1].reason = "lapsed".to_owned();
    record.ledger.log[1].at = 4 * SECOND;
    assert_eq!(checks(&record), ["no early lapse"]);
}

#[test]
fn lapse_in_an_outage_is_found() {
    let mut record = good();
    record.deeds.pop();
    record.deeds[0].begin = SECOND;
    record.ledger.log[1].reason = "lapsed".to_owned();
    record.ledger.log[1].at = 6 * SECOND;
    assert_eq!(checks(&record), [""; 0], "its heartbeats stopped");
    record.windows.push(Window {
        fault: Fault::KillStore,
        begin: 2 * SECOND,
        resumed: 5 * SECOND,
        end: 5 * SECOND,
        loss: None,
    });
    assert_eq!(checks(&record), ["no early lapse"]);
}

#[test]
fn second_row_for_a_change_is_found() {
    let mut record = good();
    record.ledger.log.push(entry(4 * SECOND + 1, "offline", "asked"));
    assert_eq!(checks(&record), ["one log row per change"]);
}

#[test]
fn missing_row_for_a_change_is_found() {
    let mut record = good();
    record.ledger.log.pop();
    // The row is missing, and the log does not end in the state of the provider.
    assert_eq!(checks(&record), ["one log row per change"; 2]);
}
