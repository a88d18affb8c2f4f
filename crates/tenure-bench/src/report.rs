//! What a benchmark found: rows for people, samples for programs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::stats::Samples;

/// A number with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figure {
    /// How much.
    pub value: f64,
    /// Of what: `beats/s`, `ms`, `B`.
    pub unit: &'static str,
}

impl Figure {
    /// A number with its unit.
    #[must_use]
    pub const fn new(value: f64, unit: &'static str) -> Self {
        Self { value, unit }
    }
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", short(self.value), self.unit)
    }
}

/// Three significant digits are more than two noisy cores can tell.
fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{scaled:.digits$}{suffix}")
}

/// What a figure is held against.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// At least this many times the baseline.
    Times(f64),
    /// Within this share of the baseline, either way: 0.2 is ±20 %.
    Within(f64),
    /// The figure itself, at least this.
    AtLeast(f64),
    /// The figure itself, at most this.
    AtMost(f64),
    /// The figure minus the baseline, at most this.
    AtMostAbove(f64),
}

impl Goal {
    fn met(self, row: &Row) -> bool {
        let (value, ratio) = (row.figure.value, row.ratio.unwrap_or(f64::NAN));
        match self {
            Self::Times(times) => ratio >= times,
            Self::Within(share) => (ratio - 1.0).abs() <= share,
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::AtMostAbove(most) => row
                .baseline
                .as_ref()
                .is_some_and(|base| value - base.figure.value <= most),
        }
    }

    fn show(self, unit: &'static str) -> String {
        match self {
            Self::Times(times) => format!("≥ {times} ×"),
            Self::Within(share) => format!("± {:.0} %", share * 100.0),
            Self::AtLeast(least) => format!("≥ {}", Figure::new(least, unit)),
            Self::AtMost(most) => format!("≤ {}", Figure::new(most, unit)),
            Self::AtMostAbove(most) => format!("≤ +{}", Figure::new(most, unit)),
        }
    }
}

/// What a figure is compared with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Baseline {
    /// Whose it is.
    pub name: String,
    /// How much that is.
    pub figure: Figure,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// Ours; a median over the rounds unless the name says otherwise.
    pub figure: Figure,
    /// Theirs, from the same rounds.
    pub baseline: Option<Baseline>,
    /// How many times the baseline ours is: the median of the rounds' ratios. For costs it is the baseline over ours,
    /// so that more is better everywhere.
    pub ratio: Option<f64>,
    /// What it is held against; none for figures that only explain others.
    pub goal: Option<Goal>,
    /// Whether the goal was met in this run.
    pub met: Option<bool>,
}

impl Row {
    /// A figure alone.
    #[must_use]
    pub fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            what: what.into(),
            figure: Figure::new(value, unit),
            baseline: None,
            ratio: None,
            goal: None,
            met: None,
        }
    }

    /// Two rates from the same rounds.
    #[must_use]
    pub fn rates(what: impl Into<String>, unit: &'static str, ours: &Samples, name: &str, theirs: &Samples) -> Self {
        Self::new(what, ours.median(), unit).against(name, theirs.median(), Some(ours.over(theirs).median()))
    }

    /// Two costs from the same rounds: the ratio tells how many times cheaper ours is.
    #[must_use]
    pub fn costs(what: impl Into<String>, unit: &'static str, ours: &Samples, name: &str, theirs: &Samples) -> Self {
        Self::new(what, ours.median(), unit).against(name, theirs.median(), Some(theirs.over(ours).median()))
    }

    /// Beside something else of the same unit.
    #[must_use]
    pub fn against(mut self, name: &str, value: f64, ratio: Option<f64>) -> Self {
        let figure = Figure::new(value, self.figure.unit);
        self.baseline = Some(Baseline {
            name: name.to_owned(),
            figure,
        });
        self.ratio = ratio;
        self
    }

    /// Held against a goal.
    #[must_use]
    pub fn goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self.met = Some(goal.met(&self));
        self
    }

    /// The cells of its line, after the benchmark's name.
    #[must_use]
    pub fn cells(&self) -> [String; 6] {
        let baseline = self.baseline.as_ref();
        [
            self.what.clone(),
            self.figure.to_string(),
            baseline
                .map(|base| format!("{} ({})", base.figure, base.name))
                .unwrap_or_default(),
            self.ratio
                .map(|ratio| format!("{} ×", short(ratio)))
                .unwrap_or_default(),
            self.goal.map(|goal| goal.show(self.figure.unit)).unwrap_or_default(),
            match self.met {
                Some(true) => "met".to_owned(),
                Some(false) => "MISSED".to_owned(),
                None => String::new(),
            },
        ]
    }
}

/// What one benchmark found so far. Clones share it, so that what was measured outlives a benchmark that fails later.
#[derive(Debug, Clone, Default)]
pub struct Report(Arc<Mutex<Found>>);

/// The content of a report.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Found {
    /// The lines of the table.
    pub rows: Vec<Row>,
    /// Everything that was measured, by name.
    pub samples: BTreeMap<String, Samples>,
    /// What a reader has to know to read the rows, a baseline that was left out for example.
    pub notes: Vec<String>,
}

impl Report {
    /// Adds a line.
    pub fn row(&self, row: Row) {
        self.lock().rows.push(row);
    }

    /// Keeps raw samples.
    pub fn keep(&self, name: impl Into<String>, samples: &Samples) {
        self.lock().samples.insert(name.into(), samples.clone());
    }

    /// Adds a remark.
    pub fn note(&self, note: impl Into<String>) {
        self.lock().notes.push(note.into());
    }

    /// All of it until now.
    #[must_use]
    pub fn found(&self) -> Found {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: f64) -> Row {
        Row::new("x", value, "ms")
    }

    #[test]
    fn a_goal_is_met_or_missed_by_its_own_rule() {
        for (row, met) in [
            (row(2.0).against("b", 1.0, Some(2.0)).goal(Goal::Times(1.8)), true),
            (row(2.0).against("b", 1.0, Some(1.7)).goal(Goal::Times(1.8)), false),
            (row(2.0).goal(Goal::Times(1.0)), false),
            (row(2.0).against("b", 1.0, Some(0.81)).goal(Goal::Within(0.2)), true),
            (row(2.0).against("b", 1.0, Some(1.3)).goal(Goal::Within(0.2)), false),
            (row(2.0).goal(Goal::AtMost(2.0)), true),
            (row(2.0).goal(Goal::AtLeast(2.1)), false),
            (row(2.0).against("b", 0.5, None).goal(Goal::AtMostAbove(1.0)), false),
            (row(f64::NAN).goal(Goal::AtMost(2.0)), false),
        ] {
            assert_eq!(row.met, Some(met), "{row:?}");
        }
    }

    #[test]
    fn figures_are_short() {
        let shown = [1_234_567.0, 12_345.0, 1234.0, 1.414, 0.0123, 0.0].map(short);
        assert_eq!(shown, ["1.23M", "12.3k", "1234", "1.41", "0.012", "0"]);
    }
}
