//! What was measured, as distributions.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tenure::wire::ms;
use tenure_core::id::Group;
use tenure_core::time::show_duration;

use super::round::Sample;
use super::{Failover, Fault};
use crate::output::{line, table};

/// All of it.
#[derive(Debug)]
pub(super) struct Report {
    store: String,
    group: Group,
    ttl: Duration,
    contenders: u32,
    samples: BTreeMap<Fault, Vec<Sample>>,
}

/// A distribution, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Distribution {
    p50_ms: f64,
    p95_ms: f64,
    max_ms: f64,
}

/// What one kind of fault led to.
#[derive(Debug, Serialize)]
struct Row {
    fault: &'static str,
    rounds: usize,
    /// From the deadline until a look-up showed the holder dead.
    detected: Option<Distribution>,
    /// From the fault until the next holder knew.
    takeover: Option<Distribution>,
    /// From the deadline until the next holder knew.
    takeover_after_deadline: Option<Distribution>,
    /// How long look-ups showed no living holder.
    without_holder: Option<Distribution>,
    overlaps: usize,
    failed_look_ups: u32,
}

impl Distribution {
    /// `None` without a sample.
    fn of(samples: impl Iterator<Item = Duration>) -> Option<Self> {
        let mut sorted: Vec<Duration> = samples.collect();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        let at =
            |percent: usize| super::super::measured::in_ms(sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]);
        Some(Self {
            p50_ms: at(50),
            p95_ms: at(95),
            max_ms: super::super::measured::in_ms(sorted[last]),
        })
    }

    fn show(this: Option<Self>) -> String {
        this.map_or_else(
            || "-".to_owned(),
            |this| format!("{:.0} / {:.0} / {:.0}", this.p50_ms, this.p95_ms, this.max_ms),
        )
    }
}

impl Report {
    pub(super) fn new(store: String, settings: &Failover) -> Self {
        Self {
            store,
            group: settings.group.clone(),
            ttl: settings.ttl,
            contenders: settings.contenders,
            samples: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, fault: Fault, sample: Sample) {
        self.samples.entry(fault).or_default().push(sample);
    }

    /// In how many rounds two contenders worked together.
    pub(super) fn overlaps(&self) -> usize {
        self.samples.values().flatten().filter(|sample| sample.overlaps).count()
    }

    fn rows(&self) -> Vec<Row> {
        let rows = self.samples.iter().map(|(fault, samples)| Row {
            fault: fault.as_str(),
            rounds: samples.len(),
            detected: Distribution::of(samples.iter().filter_map(|sample| sample.detected)),
            takeover: Distribution::of(samples.iter().map(|sample| sample.takeover)),
            takeover_after_deadline: Distribution::of(samples.iter().filter_map(|sample| sample.after_deadline)),
            without_holder: Distribution::of(samples.iter().map(|sample| sample.without_holder)),
            overlaps: samples.iter().filter(|sample| sample.overlaps).count(),
            failed_look_ups: samples.iter().map(|sample| sample.failed).sum(),
        });
        rows.collect()
    }

    pub(super) fn show(&self) -> anyhow::Result<()> {
        line(format_args!(
            "{}, the group {}, {} contenders, ttl {}",
            self.store,
            self.group,
            self.contenders,
            show_duration(self.ttl)
        ))?;
        line("")?;
        let rows = self.rows().into_iter().map(|row| {
            [
                row.fault.to_owned(),
                row.rounds.to_string(),
                Distribution::show(row.detected),
                Distribution::show(row.takeover_after_deadline),
                Distribution::show(row.takeover),
                Distribution::show(row.without_holder),
                row.overlaps.to_string(),
                row.failed_look_ups.to_string(),
            ]
        });
        table(
            [
                "fault",
                "rounds",
                "seen dead after its deadline",
                "taken over after it",
                "taken over after the fault",
                "no holder",
                "overlaps",
                "failed look-ups",
            ],
            rows.collect(),
        )?;
        line("")?;
        line("note: times are p50 / p95 / max in ms, seen from this machine; a look-up is sent every 5 ms")
    }
}

impl Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            store: &'a str,
            group: &'a Group,
            contenders: u32,
            ttl_ms: u64,
            measured: Vec<Row>,
        }
        let document = Document {
            store: &self.store,
            group: &self.group,
            contenders: self.contenders,
            ttl_ms: ms(self.ttl),
            measured: self.rows(),
        };
        document.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_of_ranks() {
        let samples = (1..=20).map(Duration::from_millis);
        let expected = Distribution {
            p50_ms: 10.0,
            p95_ms: 19.0,
            max_ms: 20.0,
        };
        assert_eq!(Distribution::of(samples), Some(expected));
        assert_eq!(Distribution::of(std::iter::empty()), None);
    }
}
