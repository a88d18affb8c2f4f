//! Checks the specification in `spec/` with spin: a complete search, and searches that must find a planted defect.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};

use crate::run::{find, is_set, must, root, target};
use crate::servers::{self, Need};

/// One search: the switches, and whether it must find an error.
#[derive(Debug)]
struct Search {
    switches: Vec<String>,
    must_fail: bool,
}

/// Leases and claims do not depend on each other: searched one after the other, they are small enough.
const HALVES: [&str; 2] = ["NO_CLAIM", "NO_LEASE"];
/// The defects that show in claims.
const OF_CLAIMS: [&str; 2] = ["DEFECT_GHOST_READ", "DEFECT_RELEASE_TWICE"];
/// The memory of one search, in MB, and its depth.
const MEMORY: &str = "-DMEMLIM=1600";
const DEPTH: &str = "-m8000000";

/// Runs all searches, two at a time. Returns whether each ended as expected.
pub(crate) fn check() -> Result<bool> {
    servers::ensure(Need::Test)?;
    if find("spin").is_none() || find("gcc").is_none() {
        ensure!(!is_set("CI"), "spin or gcc is not installed");
        println!("SKIPPED: the specification is not checked, because spin or gcc is not installed");
        return Ok(true);
    }
    let spec = root().join("spec/tenure.pml");
    let text = fs::read_to_string(&spec).context("read the specification")?;
    // The long searches are popped first.
    let mut searches = planted(&text);
    searches.extend(HALVES.iter().rev().map(|half| Search {
        switches: vec![(*half).to_owned()],
        must_fail: false,
    }));
    let (queue, good) = (Mutex::new(searches), Mutex::new(true));
    std::thread::scope(|scope| {
        let work = || {
            while let Some(search) = queue.lock().ok().and_then(|mut queue| queue.pop()) {
                let (passed, report) = match run(&spec, &search) {
                    Ok(done) => done,
                    Err(error) => (false, format!("{error:#}")),
                };
                let outcome = if passed { "ok    " } else { "FAILED" };
                println!("{outcome} {}: {report}", search.switches.join(" "));
                if let Ok(mut good) = good.lock() {
                    *good &= passed;
                }
            }
        };
        scope.spawn(work);
        scope.spawn(work);
    });
    good.into_inner()
        .map_err(|_poisoned| anyhow::anyhow!("a search panicked"))
}

/// The searches that must find an error: each planted defect, and each state that must be reachable.
fn planted(text: &str) -> Vec<Search> {
    let defects = text.lines().filter_map(|line| {
        let name = line.strip_prefix("#ifdef ").or(line.strip_prefix("#ifndef "))?;
        name.starts_with("DEFECT_").then(|| name.trim().to_owned())
    });
    let mut names: Vec<String> = defects.collect();
    names.sort();
    names.dedup();
    let goals = text
        .lines()
        .filter(|line| line.trim_start().starts_with("GOAL("))
        .count();
    names.extend((1..=goals).map(|goal| format!("GOAL_NO={goal}")));
    let search = |name: String| Search {
        switches: vec![HALVES[usize::from(OF_CLAIMS.contains(&name.as_str()))].to_owned(), name],
        must_fail: true,
    };
    names.into_iter().map(search).collect()
}

fn run(spec: &Path, search: &Search) -> Result<(bool, String)> {
    let dir = target().join("spec").join(search.switches.join("-"));
    fs::create_dir_all(&dir).context("create a folder for the search")?;
    let switches: Vec<String> = search.switches.iter().map(|switch| format!("-D{switch}")).collect();
    must(
        Command::new("spin")
            .current_dir(&dir)
            .args(&switches)
            .arg("-a")
            .arg(spec),
    )?;
    let gcc = ["-O2", "-w", "-DSAFETY", "-DNOREDUCE", MEMORY, "-o", "pan", "pan.c"];
    must(Command::new("gcc").current_dir(&dir).args(gcc))?;
    let output = Command::new(dir.join("pan")).current_dir(&dir).arg(DEPTH).output();
    let output = String::from_utf8_lossy(&output.context("run the search")?.stdout).into_owned();
    Ok(judge(&output, search.must_fail))
}

/// Whether the search ended as expected, and its figures.
fn judge(output: &str, must_fail: bool) -> (bool, String) {
    let line = |text: &str| output.lines().find(|line| line.contains(text)).map_or("", str::trim);
    let is_clean = line("State-vector").ends_with("errors: 0");
    let is_complete = [
        "Search not completed",
        "search depth too small",
        "out of memory",
        "memory bound",
    ]
    .iter()
    .all(|text| line(text).is_empty());
    let found = line("assertion violated");
    let passed = match must_fail {
        true => !found.is_empty(),
        false => is_clean && is_complete,
    };
    let figures = [line("State-vector"), line("states, stored"), line("elapsed time")].join(", ");
    let verdict = match (must_fail, found.is_empty(), is_clean && is_complete) {
        (true, false, _) => "found".to_owned(),
        (true, true, _) => "NOT FOUND".to_owned(),
        (false, _, true) => "no error, complete".to_owned(),
        (false, _, false) => format!("error or incomplete search: {found}"),
    };
    (passed, format!("{verdict} ({figures})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "State-vector 60 byte, depth reached 9, errors: 0\n 7 states, stored\n";

    #[test]
    fn incomplete_search_is_a_failure() {
        assert!(judge(CLEAN, false).0);
        assert!(!judge(&format!("error: max search depth too small\n{CLEAN}"), false).0);
        assert!(!judge("", false).0);
    }

    #[test]
    fn planted_defect_that_is_not_found_is_a_failure() {
        assert!(!judge(CLEAN, true).0);
        assert!(judge("pan:1: assertion violated (x)\n", true).0);
        let planted = planted("#ifdef DEFECT_B\n#ifndef DEFECT_A\n  GOAL(1, x);\n");
        let names: Vec<_> = planted.iter().map(|search| search.switches[1].as_str()).collect();
        assert_eq!(names, ["DEFECT_A", "DEFECT_B", "GOAL_NO=1"]);
    }
}
