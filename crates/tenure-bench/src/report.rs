//! The results of a benchmark: rows for people, samples for programs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::stats::Samples;

/// A number with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// Its unit: `beats/s`, `ms`, `B`.
    pub unit: &'static str,
}

impl Figure {
    /// Creates a figure.
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

/// A ratio with its sign.
#[must_use]
pub fn ratio(ratio: f64) -> String {
    format!("{} ×", short(ratio))
}

/// Three significant digits are more than two noisy cores can resolve.
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

/// The goal of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// At least this many times the baseline.
    Times(f64),
    /// Within this share of the baseline, either way: 0.2 is ±20 %.
    Within(f64),
    /// The figure itself is at least this.
    AtLeast(f64),
    /// The figure itself is at most this.
    AtMost(f64),
    /// The figure minus the baseline is at most this.
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

/// A baseline of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Baseline {
    /// Its name.
    pub name: String,
    /// Its value.
    pub figure: Figure,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The measured quantity.
    pub what: String,
    /// Tenure's value; a median over the rounds unless the name says otherwise.
    pub figure: Figure,
    /// The baseline, from the same rounds.
    pub baseline: Option<Baseline>,
    /// The ratio to the baseline: the median of the rounds' ratios. For costs it is the baseline divided by Tenure's
    /// value, so that higher is always better.
    pub ratio: Option<f64>,
    /// The goal; `None` for figures that only explain others.
    pub goal: Option<Goal>,
    /// Whether the goal was met in this run.
    pub met: Option<bool>,
}

impl Row {
    /// Creates a row without a baseline.
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

    /// Creates a row of two rates from the same rounds.
    #[must_use]
    pub fn rates(what: impl Into<String>, unit: &'static str, ours: &Samples, name: &str, theirs: &Samples) -> Self {
        Self::new(what, ours.median(), unit).against(name, theirs.median(), Some(ours.over(theirs).median()))
    }

    /// Creates a row of two costs from the same rounds: the ratio is how many times cheaper Tenure is.
    #[must_use]
    pub fn costs(what: impl Into<String>, unit: &'static str, ours: &Samples, name: &str, theirs: &Samples) -> Self {
        Self::new(what, ours.median(), unit).against(name, theirs.median(), Some(theirs.over(ours).median()))
    }

    /// Adds a baseline of the same unit.
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

    /// Sets the goal.
    #[must_use]
    pub fn goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self.met = Some(goal.met(&self));
        self
    }

    /// The cells of the row, after the benchmark's name.
    #[must_use]
    pub fn cells(&self) -> [String; 6] {
        let baseline = self.baseline.as_ref();
        [
            self.what.clone(),
            self.figure.to_string(),
            baseline
                .map(|base| format!("{} ({})", base.figure, base.name))
                .unwrap_or_default(),
            self.ratio.map(ratio).unwrap_or_default(),
            self.goal.map(|goal| goal.show(self.figure.unit)).unwrap_or_default(),
            match self.met {
                Some(true) => "met".to_owned(),
                Some(false) => "MISSED".to_owned(),
                None => String::new(),
            },
        ]
    }
}

/// A table with columns of its own, for many figures of a few subjects.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Grid {
    /// What the rows have in common.
    pub title: &'static str,
    /// The columns, without that of the subjects.
    pub columns: Vec<String>,
    /// The cells of each subject, by column.
    pub rows: Vec<(String, BTreeMap<String, String>)>,
}

impl Grid {
    /// Creates an empty table.
    #[must_use]
    pub fn new(title: &'static str) -> Self {
        Self {
            title,
            ..Self::default()
        }
    }

    /// Sets a cell. Rows and columns are in the order in which they are first named.
    pub fn set(&mut self, row: &str, column: &str, cell: String) {
        if !self.columns.iter().any(|known| known == column) {
            self.columns.push(column.to_owned());
        }
        if !self.rows.iter().any(|(name, _)| name == row) {
            self.rows.push((row.to_owned(), BTreeMap::new()));
        }
        for (_, cells) in self.rows.iter_mut().filter(|(name, _)| name == row) {
            cells.insert(column.to_owned(), cell.clone());
        }
    }

    /// The rows as text, each with a cell for every column.
    pub fn lines(&self) -> impl Iterator<Item = Vec<String>> {
        self.rows.iter().map(|(name, cells)| {
            let cell = |column| cells.get(column).cloned().unwrap_or_default();
            std::iter::once(name.clone())
                .chain(self.columns.iter().map(cell))
                .collect()
        })
    }
}

/// The figures of a benchmark so far. Clones share state, so that figures survive a benchmark that fails later.
#[derive(Debug, Clone, Default)]
pub struct Report(Arc<Mutex<Figures>>);

/// The content of a report.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Figures {
    /// The rows of the table.
    pub rows: Vec<Row>,
    /// A table with columns of its own.
    pub grid: Option<Grid>,
    /// All samples, by name.
    pub samples: BTreeMap<String, Samples>,
    /// Notes that a reader needs, for example about a skipped baseline.
    pub notes: Vec<String>,
}

impl Report {
    /// Adds a row.
    pub fn row(&self, row: Row) {
        self.lock().rows.push(row);
    }

    /// Sets the table with columns of its own.
    pub fn grid(&self, grid: &Grid) {
        self.lock().grid = Some(grid.clone());
    }

    /// Adds raw samples.
    pub fn keep(&self, name: impl Into<String>, samples: &Samples) {
        self.lock().samples.insert(name.into(), samples.clone());
    }

    /// Adds a note.
    pub fn note(&self, note: impl Into<String>) {
        self.lock().notes.push(note.into());
    }

    /// A copy of the content so far.
    #[must_use]
    pub fn found(&self) -> Figures {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Figures> {
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
    fn a_grid_has_a_cell_for_every_column() {
        let mut grid = Grid::new("");
        for (row, column) in [("a", "x"), ("b", "y"), ("a", "y")] {
            grid.set(row, column, format!("{row}{column}"));
        }
        let lines: Vec<_> = grid.lines().collect();
        assert_eq!(lines, [["a", "ax", "ay"], ["b", "", "by"]]);
    }

    #[test]
    fn figures_are_rounded() {
        let shown = [1_234_567.0, 12_345.0, 1234.0, 1.414, 0.0123, 0.0].map(short);
        assert_eq!(shown, ["1.23M", "12.3k", "1234", "1.41", "0.012", "0"]);
    }
}
