//! What a daemon says about the group: who is there, who owns what, what happened.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tenure_testkit::wait;

use crate::outage::fleet::{GROUP, REGISTRY};
use crate::support::{Daemon, SOON};

/// The tolerance for promised times on two busy cores.
pub(crate) const ALLOWANCE: Duration = Duration::from_secs(1);

/// The most pages of a listing that a test reads.
const MAX_PAGES: usize = 100;

/// Who has it, and whether they live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) tenure: String,
    pub(crate) alive: bool,
}

impl Seen {
    fn read(item: &Value) -> Self {
        Self {
            tenure: item["tenure"].as_str().expect("a tenure").to_owned(),
            alive: item["alive"].as_bool().expect("alive or not"),
        }
    }
}

/// A listing, whole, by `key` of its items; or the answer that was none.
fn listing(daemon: &Daemon, path: &str, plural: &str, key: &str) -> Result<BTreeMap<String, Seen>, String> {
    let mut seen = BTreeMap::new();
    let mut after = String::new();
    for _ in 0..MAX_PAGES {
        let (status, page) = daemon.http("GET", &format!("{path}?limit=1000{after}"), "");
        if status != 200 {
            return Err(format!("{path} answers {status} {page}"));
        }
        for item in page[plural].as_array().expect("a listing") {
            seen.insert(item[key].as_str().expect("a name").to_owned(), Seen::read(item));
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(seen),
        }
    }
    panic!("{path} has more than {MAX_PAGES} pages");
}

/// The members, by name; or the answer that was none.
pub(crate) fn try_members(daemon: &Daemon) -> Result<BTreeMap<String, Seen>, String> {
    listing(daemon, &format!("/v1/groups/{GROUP}/members"), "members", "member")
}

/// The claims, by key; or the answer that was none.
pub(crate) fn try_claims(daemon: &Daemon) -> Result<BTreeMap<String, Seen>, String> {
    let path = format!("/v1/groups/{GROUP}/registries/{REGISTRY}/claims");
    listing(daemon, &path, "claims", "key")
}

/// The members, by name.
#[track_caller]
pub(crate) fn members(daemon: &Daemon) -> BTreeMap<String, Seen> {
    in_the_end(|| try_members(daemon))
}

/// The claims, by key.
#[track_caller]
pub(crate) fn claims(daemon: &Daemon) -> BTreeMap<String, Seen> {
    in_the_end(|| try_claims(daemon))
}

#[track_caller]
fn in_the_end<T>(mut look: impl FnMut() -> Result<T, String>) -> T {
    let mut seen = Err(String::new());
    wait::until("the daemon lists it", SOON, || {
        seen = look();
        seen.is_ok()
    });
    seen.expect("just seen")
}

/// All events of these types (all types, when none is given) that the store still has.
#[track_caller]
pub(crate) fn events(daemon: &Daemon, types: &str) -> Vec<Value> {
    let filter = if types.is_empty() {
        String::new()
    } else {
        format!("&types={types}")
    };
    let (mut all, mut after) = (Vec::new(), String::from("0"));
    for _ in 0..MAX_PAGES {
        let path = format!("/v1/groups/{GROUP}/events?limit=1000&after={after}{filter}");
        let (status, mut page) = daemon.answered("GET", &path, "");
        assert_eq!(status, 200, "{page}");
        all.append(page["events"].as_array_mut().expect("events"));
        let next = page["next"].as_str().expect("a next event").to_owned();
        if next == after {
            return all;
        }
        after = next;
    }
    panic!("there are more than {MAX_PAGES} pages of events");
}

/// Whose tenures these events are about.
pub(crate) fn tenures(events: &[Value]) -> Vec<String> {
    let tenure = |event: &Value| event["tenure"].as_str().expect("a tenure").to_owned();
    events.iter().map(tenure).collect()
}

/// The store's time of an event, in microseconds since the epoch.
#[track_caller]
pub(crate) fn at(event: &Value) -> i64 {
    let text = event["at"].as_str().expect("a time");
    let time: jiff::Timestamp = text.parse().expect("a time");
    time.as_microsecond()
}

/// From one event to another.
#[track_caller]
pub(crate) fn between(first: &Value, second: &Value) -> Duration {
    Duration::from_micros(u64::try_from(at(second) - at(first)).expect("the second event comes second"))
}

/// The sum of the series of a metric that carry all of these labels.
pub(crate) fn metric(daemon: &Daemon, name: &str, labels: &[(&str, &str)]) -> f64 {
    let (_, text) = daemon.text("GET", "/metrics", "");
    let wanted: Vec<_> = labels
        .iter()
        .map(|(label, value)| format!("{label}=\"{value}\""))
        .collect();
    text.lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(series, _)| series.split('{').next() == Some(name))
        .filter(|(series, _)| wanted.iter().all(|label| series.contains(label.as_str())))
        .filter_map(|(_, value)| value.parse::<f64>().ok())
        .sum()
}
