//! Checks the specification in `spec/` with spin: a complete search, and searches that must find a planted defect.

use std::collections::BTreeSet;
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

/// Without the claim, and without the lease: they do not depend on each other, and each half is small enough. Both
/// together, with requests that are answered immediately. And two groups over one pulse.
const PARTS: [&str; 4] = ["KEYS=0", "NUMBERS=0", "LATE=0", "GROUPS=2"];
/// The defects that show in another part than the first.
const ELSEWHERE: [(&str, &str); 8] = [
    ("ghost_read", "NUMBERS=0"),
    ("release_twice", "NUMBERS=0"),
    ("pulse_elsewhere", "LATE=0"),
    ("carried_evidence", "LATE=0"),
    ("janitor_proves", "GROUPS=2"),
    ("dated_by_visit", "GROUPS=2"),
    ("met_by_another", "GROUPS=2"),
    ("no_late_sweep", "GROUPS=2"),
];
/// A reader finishes the specification in a quarter of an hour.
const MAX_LINES: usize = 400;
/// The memory of one search, in MB, and its depth.
const MEMORY: &str = "-DMEMLIM=1600";
const DEPTH: &str = "-m10000000";

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
    let lines = text.lines().count();
    ensure!(
        lines <= MAX_LINES,
        "spec/tenure.pml has {lines} lines; at most {MAX_LINES}, so that it is read in a quarter of an hour"
    );
    // The long searches are popped first.
    let mut searches = planted(&text);
    searches.extend(PARTS.iter().rev().map(|part| Search {
        switches: vec![(*part).to_owned()],
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

/// The searches that must find an error, one for each value of `DEFECT` that the text compares with.
fn planted(text: &str) -> Vec<Search> {
    let comparisons = ["DEFECT == ", "DEFECT != ", "REACHABLE("];
    let names = comparisons.iter().flat_map(|before| text.split(before).skip(1));
    let names = names.filter_map(|rest| {
        let end = rest.find(|c: char| c != '_' && !c.is_ascii_lowercase())?;
        let (name, after) = rest.split_at(end);
        // The definition of `REACHABLE` itself names its parameters.
        let is_parameter = name == "name";
        (!is_parameter && after.starts_with([' ', ')', ','])).then_some(name)
    });
    let names: BTreeSet<&str> = names.collect();
    let search = |name: &str| {
        let elsewhere = ELSEWHERE.iter().find(|(defect, _)| *defect == name);
        let part = elsewhere.map_or(PARTS[0], |(_, part)| part);
        Search {
            switches: vec![part.to_owned(), format!("DEFECT={name}")],
            must_fail: true,
        }
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
    // A defect is found soon; the compiler would need longer than the search.
    let level = if search.must_fail { "-O1" } else { "-O2" };
    let gcc = [level, "-w", "-DSAFETY", "-DNOREDUCE", MEMORY, "-o", "pan", "pan.c"];
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
    }

    #[test]
    fn each_planted_defect_is_searched_once() {
        let text = "#define REACHABLE(name, state) assert(DEFECT != name || !(state))\n\
                    (DEFECT == ghost_read -> 0 : 1) && DEFECT != b)\n DEFECT == b -> REACHABLE(no_c, x);\n";
        let planted = planted(text);
        let switches: Vec<_> = planted.iter().map(|search| search.switches.join(" ")).collect();
        let expected = ["KEYS=0 DEFECT=b", "NUMBERS=0 DEFECT=ghost_read", "KEYS=0 DEFECT=no_c"];
        assert_eq!(switches, expected);
    }
}
