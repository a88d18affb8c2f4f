//! What was measured: samples, and what is said about them to people and programs.

use std::time::Duration;

use serde::Serialize;
use tenure::wire::ms;
use tenure_core::id::Group;
use tenure_core::time::show_duration;
use tenure_core::timing::Timing;

use super::Ended;
use super::load::{BATCH, Operation};
use crate::output::{line, table};

/// So many samples of one task are kept; of more, every second, fourth and so on.
const KEPT: usize = 10_000;

/// The latencies of operations.
#[derive(Debug)]
pub(super) struct Samples {
    /// Each stands for so many.
    kept: Vec<(Duration, u64)>,
    every: u64,
    count: u64,
    max: Duration,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            every: 1,
            count: 0,
            max: Duration::ZERO,
        }
    }
}

/// A kind of operation, in numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    count: u64,
    took: Duration,
    percentiles: [Duration; 3],
    max: Duration,
}

impl Samples {
    pub(super) fn add(&mut self, took: Duration) {
        if self.count.is_multiple_of(self.every) {
            self.kept.push((took, self.every));
        }
        self.count += 1;
        self.max = self.max.max(took);
        if self.kept.len() == KEPT {
            self.every *= 2;
            let every = self.every;
            let mut nth = 0_u32;
            self.kept.retain_mut(|(_, stands_for)| {
                *stands_for = every;
                nth += 1;
                nth % 2 == 1
            });
        }
    }

    /// With those of another task.
    pub(super) fn merge(&mut self, other: Self) {
        self.kept.extend(other.kept);
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// All of them, which together took this long.
    pub(super) fn over(mut self, took: Duration) -> Measured {
        self.kept.sort_unstable();
        let all: u64 = self.kept.iter().map(|(_, stands_for)| stands_for).sum();
        let percentile = |percent: u64| {
            let (rank, mut seen) = ((all * percent).div_ceil(100), 0);
            let found = self.kept.iter().find(|(_, stands_for)| {
                seen += stands_for;
                seen >= rank
            });
            found.map_or(Duration::ZERO, |(took, _)| *took)
        };
        Measured {
            count: self.count,
            took,
            percentiles: [50, 95, 99].map(percentile),
            max: self.max,
        }
    }
}

/// A row of the report.
#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    /// Operations of which the time was taken.
    count: u64,
    /// Members in a second for beats in batches, operations for all others.
    per_second: u64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// Operations that were skipped because the group grants no leases yet.
#[derive(Debug, Serialize)]
struct LeftOut {
    what: &'static str,
    why: &'static str,
    retry_in_ms: u64,
}

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    store: String,
    group: Group,
    members: u32,
    concurrency: u32,
    for_ms: u64,
    ttl_ms: u64,
    complete: bool,
    error: Option<String>,
    measured: Vec<Row>,
    not_measured: Vec<LeftOut>,
    notes: Vec<String>,
}

fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::RoundTrip => "round_trip",
        Operation::Join => "join",
        Operation::Beats => "beats_in_batches",
        Operation::Beat => "beat",
        Operation::Claim => "claim_and_release",
        Operation::Acquire => "acquire_and_release",
        Operation::LookUp => "look_up_a_member",
        Operation::List => "list_100_members",
        Operation::Leave => "leave",
    }
}

impl Report {
    pub(super) fn new(
        store: String,
        group: Group,
        members: u32,
        concurrency: u32,
        time: Duration,
        ttl: Duration,
    ) -> Self {
        Self {
            store,
            group,
            members,
            concurrency,
            for_ms: ms(time),
            ttl_ms: ms(ttl),
            complete: false,
            error: None,
            measured: Vec::new(),
            not_measured: Vec::new(),
            notes: vec![
                format!(
                    "one client with {concurrency} calls under way: many clients may get more out of the store, and none is \
                     answered faster than a round trip"
                ),
                "what is done and released is two calls".to_owned(),
            ],
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the last digits of a rate do not matter"
    )]
    pub(super) fn add(&mut self, operation: Operation, measured: Measured) {
        if measured.count == 0 {
            return;
        }
        // The last batch may be a smaller one.
        let each = match operation {
            Operation::Beats => f64::from(self.members) / f64::from(self.members.div_ceil(BATCH)),
            _ => 1.0,
        };
        let per_second = (measured.count as f64 * each / measured.took.as_secs_f64().max(1e-9)) as u64;
        let [p50_ms, p95_ms, p99_ms] = measured.percentiles.map(in_ms);
        if operation == Operation::Beats {
            let interval = Timing::for_ttl(Duration::from_millis(self.ttl_ms)).interval;
            self.notes.push(format!(
                "batches have up to {BATCH} beats; with a ttl of {} members beat every {}, so these would be the beats of about {} members",
                show_duration(Duration::from_millis(self.ttl_ms)),
                show_duration(interval),
                (per_second as f64 * interval.as_secs_f64()) as u64
            ));
        }
        self.measured.push(Row {
            what: name(operation),
            count: measured.count,
            per_second,
            p50_ms,
            p95_ms,
            p99_ms,
            max_ms: in_ms(measured.max),
        });
    }

    /// The group is unsettled.
    pub(super) fn leave_out(&mut self, operation: Operation, retry_in: Duration) {
        let what = name(operation);
        self.not_measured.push(LeftOut {
            what,
            why: "unsettled",
            retry_in_ms: ms(retry_in),
        });
        self.notes.push(format!(
            "{what} was not measured: the group is unsettled and gives no leases for {}; try again then",
            show_duration(Duration::from_millis(ms(retry_in)))
        ));
    }

    pub(super) fn end(&mut self, ended: &Ended) {
        self.complete = matches!(ended, Ended::Complete);
        if let Ended::Failed(error) = ended {
            self.error = Some(error.chain());
        }
    }

    pub(super) fn show(&self) -> anyhow::Result<()> {
        line(format_args!(
            "{}, the group {}, {} members",
            self.store, self.group, self.members
        ))?;
        line("")?;
        let rows = self.measured.iter().map(|row| {
            let of = |ms: f64| format!("{ms:.2}");
            [
                row.what.replace('_', " "),
                row.per_second.to_string(),
                of(row.p50_ms),
                of(row.p95_ms),
                of(row.p99_ms),
                of(row.max_ms),
                row.count.to_string(),
            ]
        });
        table(
            ["what", "per second", "p50 ms", "p95 ms", "p99 ms", "max ms", "calls"],
            rows.collect(),
        )?;
        line("")?;
        self.notes
            .iter()
            .try_for_each(|note| line(format_args!("note: {note}")))
    }
}

/// To the microsecond.
pub(super) fn in_ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_cover_samples_that_are_not_kept() {
        let mut samples = Samples::default();
        for n in 1..=100_000 {
            samples.add(Duration::from_micros(n));
        }
        assert!(samples.kept.len() < KEPT);
        // Those of a task that did little count as little.
        let mut few = Samples::default();
        for _ in 0..100 {
            few.add(Duration::from_secs(9));
        }
        samples.merge(few);
        let all = samples.over(Duration::from_secs(1));
        assert_eq!((all.count, all.max), (100_100, Duration::from_secs(9)));
        for (found, exact) in all.percentiles.into_iter().zip([50_050, 95_095, 99_099]) {
            let off = found.abs_diff(Duration::from_micros(exact));
            assert!(off < Duration::from_micros(100), "{found:?} is not {exact} us");
        }
    }

    #[test]
    fn nothing_measured_is_nothing_said() {
        let none = Samples::default().over(Duration::ZERO);
        assert_eq!(
            (none.count, none.max, none.percentiles),
            (0, Duration::ZERO, [Duration::ZERO; 3])
        );
    }
}
