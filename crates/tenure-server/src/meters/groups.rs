//! Series with the label `group`: of a bounded number of groups, and one sum for the others.
//!
//! An exporter keeps each series for ever, and callers make groups. So the series of groups are kept here: those of a
//! group without a name of its own are counted under [`OTHERS`], and those of a group that is gone are dropped.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::atomics::AtomicU64;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{LabelSet, formatting};
use tenure::meters::UNSETTLED_CAUSE;

/// The label of all groups without series of their own. No group can have this name.
pub(crate) const OTHERS: &str = "(others)";
const LABEL: &str = "group";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    Counter,
    Gauge,
}

type Series = HashMap<(Kind, Key), Arc<AtomicU64>>;

/// A group with series of its own.
struct Named {
    /// How many listings of groups had begun before: an earlier one does not know it.
    since: u64,
    series: Series,
}

#[derive(Default)]
struct Kept {
    groups: BTreeMap<String, Named>,
    others: Series,
    listings: u64,
    described: HashMap<String, SharedString>,
}

/// The series of groups.
pub(crate) struct GroupSeries {
    most: usize,
    kept: Mutex<Kept>,
}

impl GroupSeries {
    /// Keeps those of at most this many groups by name.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            kept: Mutex::default(),
        })
    }

    /// Begins a listing of groups. Returns its number.
    pub(crate) fn begin_listing(&self) -> u64 {
        let mut kept = self.lock();
        kept.listings += 1;
        kept.listings
    }

    /// Drops the series of all groups but these, which a listing chose. What was counted for the dropped is counted for
    /// the others.
    pub(crate) fn keep_only(&self, named: &BTreeSet<&str>, listing: u64) {
        let mut kept = self.lock();
        let is_dropped = |group: &String, of: &mut Named| of.since < listing && !named.contains(group.as_str());
        let dropped = kept.groups.extract_if(.., is_dropped);
        let dropped: Vec<Series> = dropped.map(|(_, of)| of.series).collect();
        let counted = dropped
            .into_iter()
            .flatten()
            .filter(|((kind, _), _)| *kind == Kind::Counter);
        for ((kind, key), value) in counted {
            let sum = kept.others.entry((kind, of_others(&key))).or_default();
            sum.fetch_add(value.load(Ordering::Acquire), Ordering::AcqRel);
        }
    }

    /// The series in Prometheus' text format.
    pub(crate) fn render(&self) -> String {
        let kept = self.lock();
        let named = kept.groups.values().map(|of| &of.series);
        let all = named.chain([&kept.others]).flatten();
        let mut by_name: BTreeMap<(&str, Kind), Vec<(&Key, u64)>> = BTreeMap::new();
        for ((kind, key), value) in all {
            let value = value.load(Ordering::Acquire);
            // One of five at most is not 0.
            if key.name() != UNSETTLED_CAUSE || f64::from_bits(value) > 0.0 {
                by_name.entry((key.name(), *kind)).or_default().push((key, value));
            }
        }
        let mut text = String::new();
        for ((name, kind), mut series) in by_name {
            if let Some(help) = kept.described.get(name) {
                formatting::write_help_line(&mut text, name, None, None, help);
            }
            let named = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            formatting::write_type_line(&mut text, name, None, None, named);
            series.sort();
            for (key, value) in series {
                let labels = LabelSet::from_key_and_global(key, &Default::default());
                let value = match kind {
                    Kind::Counter => value.to_string(),
                    Kind::Gauge => f64::from_bits(value).to_string(),
                };
                let none = None::<(&'static str, &str)>;
                formatting::write_metric_line(&mut text, name, None, &labels, none, value, None);
            }
            text.push('\n');
        }
        text
    }

    /// The cell of a series; `None` for a gauge of a group without a name: sums of gauges are set from the listing.
    fn cell(&self, kind: Kind, group: &str, key: &Key) -> Option<Arc<AtomicU64>> {
        let mut kept = self.lock();
        let has_name = kept.groups.contains_key(group) || kept.groups.len() < self.most;
        if group != OTHERS && has_name {
            let since = kept.listings;
            let named = kept.groups.entry(group.to_owned()).or_insert_with(|| Named {
                since,
                series: Series::default(),
            });
            return Some(Arc::clone(named.series.entry((kind, key.to_retained())).or_default()));
        }
        (group == OTHERS || kind == Kind::Counter)
            .then(|| Arc::clone(kept.others.entry((kind, of_others(key))).or_default()))
    }

    fn describe(&self, name: &KeyName, description: &SharedString) {
        let description = description.clone();
        self.lock().described.insert(name.as_str().to_owned(), description);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_others(key: &Key) -> Key {
    let labels = key.labels().filter(|label| label.key() != LABEL).cloned();
    let labels: Vec<Label> = [Label::new(LABEL, OTHERS)].into_iter().chain(labels).collect();
    Key::from_parts(key.name().to_owned(), labels)
}

fn group_of(key: &Key) -> Option<&str> {
    key.labels().find(|label| label.key() == LABEL).map(Label::value)
}

/// A recorder that keeps the counters and gauges of groups itself.
pub(crate) struct Split<R> {
    pub(crate) groups: Arc<GroupSeries>,
    pub(crate) rest: R,
}

impl<R: Recorder> Recorder for Split<R> {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.groups.describe(&name, &description);
        self.rest.describe_counter(name, unit, description);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.groups.describe(&name, &description);
        self.rest.describe_gauge(name, unit, description);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.rest.describe_histogram(name, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        match group_of(key) {
            Some(group) => self
                .groups
                .cell(Kind::Counter, group, key)
                .map_or_else(Counter::noop, Counter::from_arc),
            None => self.rest.register_counter(key, metadata),
        }
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        match group_of(key) {
            Some(group) => self
                .groups
                .cell(Kind::Gauge, group, key)
                .map_or_else(Gauge::noop, Gauge::from_arc),
            None => self.rest.register_gauge(key, metadata),
        }
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.rest.register_histogram(key, metadata)
    }
}

#[cfg(test)]
mod tests {
    use metrics::NoopRecorder;
    use tenure_core::id::Group;

    use super::*;

    fn counting(most: usize, work: impl FnOnce()) -> Arc<GroupSeries> {
        let groups = GroupSeries::new(most);
        let recorder = Split {
            groups: Arc::clone(&groups),
            rest: NoopRecorder,
        };
        metrics::with_local_recorder(&recorder, work);
        groups
    }

    fn ended(group: &str, count: u64) {
        metrics::counter!("ended_total", "group" => group.to_owned(), "reason" => "left").increment(count);
    }

    fn members(group: &str, count: u32) {
        metrics::gauge!("members", "group" => group.to_owned()).set(f64::from(count));
    }

    #[test]
    fn no_group_is_called_others() {
        assert!(Group::new(OTHERS).is_err());
    }

    #[test]
    fn further_groups_are_counted_together() {
        let groups = counting(2, || {
            for (nth, group) in ["a", "b", "c", "d"].into_iter().enumerate() {
                ended(group, nth as u64 + 1);
                members(group, 1);
            }
            members(OTHERS, 2);
        });
        let text = "# TYPE ended_total counter\n\
                    ended_total{group=\"(others)\",reason=\"left\"} 7\n\
                    ended_total{group=\"a\",reason=\"left\"} 1\n\
                    ended_total{group=\"b\",reason=\"left\"} 2\n\n\
                    # TYPE members gauge\n\
                    members{group=\"(others)\"} 2\n\
                    members{group=\"a\"} 1\n\
                    members{group=\"b\"} 1\n\n";
        assert_eq!(groups.render(), text);
    }

    #[test]
    fn dropped_groups_leave_only_what_was_counted() {
        let groups = counting(2, || {
            ended("a", 5);
            members("a", 1);
            ended("b", 1);
        });
        groups.keep_only(&BTreeSet::new(), 0);
        groups.keep_only(&BTreeSet::from(["b"]), groups.begin_listing());
        let text = "# TYPE ended_total counter\n\
                    ended_total{group=\"(others)\",reason=\"left\"} 5\n\
                    ended_total{group=\"b\",reason=\"left\"} 1\n\n";
        assert_eq!(groups.render(), text);
    }
}
