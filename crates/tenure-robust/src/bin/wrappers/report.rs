//! What is printed: a table by wrapper and surrounding, what was excluded, and each failure with the command that repeats it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cell::{Matrix, Surrounding, Wrapper};
use crate::course::Verdict;
use crate::judge::Rule;

/// The number of failed cells that are shown whole; the others only by name.
const SHOWN: usize = 40;

/// The cells of one line.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    run: usize,
    failed: usize,
    took: Duration,
}

/// Prints the result.
pub(crate) fn print(verdicts: &[Verdict], matrix: &Matrix, elapsed: Duration) {
    let mut failed: Vec<&Verdict> = verdicts.iter().filter(|verdict| !verdict.failures.is_empty()).collect();
    // Two at work first: that is what must not happen at all.
    failed.sort_by_key(|verdict| verdict.failures.iter().map(|failure| failure.rule).min());
    for verdict in failed.iter().take(SHOWN) {
        println!(
            "\nFAILED {}   (again: cargo xtask wrappers --only {})",
            verdict.cell, verdict.cell
        );
        for failure in &verdict.failures {
            println!("    {failure}");
        }
        for line in verdict.log.lines() {
            println!("    | {line}");
        }
    }
    for verdict in failed.iter().skip(SHOWN) {
        let rules: Vec<_> = verdict.failures.iter().map(|failure| failure.rule.name()).collect();
        println!("FAILED {}   ({})", verdict.cell, rules.join(", "));
    }
    table(verdicts);
    rules(&failed);
    excluded(matrix);
    let (cells, wrong, seconds) = (verdicts.len(), failed.len(), elapsed.as_secs());
    let repeats: usize = verdicts.iter().map(|verdict| verdict.repeats).sum();
    let of = matrix.cells.len();
    println!("\n{cells} of {of} cells, {wrong} failed, {repeats} repeated on a late machine, {seconds} s");
}

fn table(verdicts: &[Verdict]) {
    let mut lines: BTreeMap<(Wrapper, Surrounding), Line> = BTreeMap::new();
    for verdict in verdicts {
        let line = lines
            .entry((verdict.cell.wrapper, verdict.cell.surrounding))
            .or_default();
        line.run += 1;
        line.failed += usize::from(!verdict.failures.is_empty());
        line.took += verdict.took;
    }
    println!("\n| Wrapper | Surrounding | Cells | Failed | Seconds |\n|---|---|---|---|---|");
    for ((wrapper, surrounding), line) in lines {
        let (wrapper, surrounding, took) = (wrapper.name(), surrounding.name(), line.took.as_secs());
        println!(
            "| {wrapper} | {surrounding} | {} | {} | {took} |",
            line.run, line.failed
        );
    }
}

/// How many cells break each rule.
fn rules(failed: &[&Verdict]) {
    if failed.is_empty() {
        return;
    }
    println!("\n| Rule | Cells that break it |\n|---|---|");
    for rule in Rule::ALL {
        let breaks = |verdict: &&&Verdict| verdict.failures.iter().any(|failure| failure.rule == rule);
        println!("| {} | {} |", rule.name(), failed.iter().filter(breaks).count());
    }
}

fn excluded(matrix: &Matrix) {
    for (name, (count, reason)) in &matrix.excluded {
        println!("excluded: {name}: {count} cells: {reason}");
    }
}

/// Prints in how many of the same cells other wrappers keep the same rules.
pub(crate) fn print_beside(verdicts: &[Verdict]) {
    println!("\nThe same cells beside it, for information:");
    table(verdicts);
    let failed: Vec<&Verdict> = verdicts.iter().filter(|verdict| !verdict.failures.is_empty()).collect();
    rules(&failed);
    for wrapper in [Wrapper::Flock, Wrapper::ConsulLock] {
        let all = verdicts.iter().filter(|verdict| verdict.cell.wrapper == wrapper);
        let (held, run) = all.fold((0, 0), |(held, run), verdict| {
            (held + usize::from(verdict.failures.is_empty()), run + 1)
        });
        if run > 0 {
            println!("{}: {held} of {run} cells hold", wrapper.name());
        }
    }
}
