//! Runs the whole test suite and prints a summary.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::clients;
use crate::dist;
use crate::npm;
use crate::run::{FEATURES, cargo, output, target};
use crate::servers::{self, Need};

/// The numbers of tests by result.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// Concurrent tests per core: most tests wait. Those that compute have their own limit (the group `work` in
/// `.config/nextest.toml`).
const TESTS_PER_CORE: usize = 4;

/// Runs all tests, or those selected by `args`: `--quick`, and arguments of the test runner. Returns whether all
/// passed.
pub(crate) fn test(args: &[String]) -> Result<bool> {
    let quick = args.iter().any(|arg| arg == "--quick");
    let args: Vec<&String> = args.iter().filter(|arg| *arg != "--quick").collect();
    // The quick tests need no servers.
    let mut missing = Vec::new();
    if !quick {
        missing = servers::ensure(Need::Test)?;
        missing.extend(npm::ensure()?);
    }
    let mut tally = Tally::default();
    let mut passed = if output("cargo", &["nextest", "--version"]).is_some() {
        follow(
            cargo(&["nextest", "run", "--locked", "--no-fail-fast"])
                .args(["--test-threads", &(TESTS_PER_CORE * cores()).to_string()])
                .args(["--profile", if quick { "quick" } else { "default" }])
                .args(scope(&args))
                .args(&args),
            &mut tally,
        )?
    } else {
        println!("cargo-nextest is not installed; using cargo's own test runner");
        ensure!(
            !quick,
            "--quick needs cargo-nextest: cargo install --locked cargo-nextest"
        );
        follow(
            cargo(&["test", "--locked", "--no-fail-fast", "--all-targets"])
                .args(scope(&args))
                .args(&args),
            &mut tally,
        )?
    };
    if args.is_empty() && !quick {
        let documented = cargo_test_doc();
        passed &= follow(&mut { documented }, &mut tally)?;
        println!("\npackages of the program that was tested:");
        passed &= dist::check(&target().join("debug/tenure"))?;
        missing.extend(clients::test()?);
    } else {
        println!("skipped the examples in the documentation and the packages, because tests were selected");
    }
    for program in &missing {
        println!("NOT TESTED: tests that need {program}, which is not installed");
    }
    println!(
        "\ntests: {} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    );
    Ok(passed)
}

fn cargo_test_doc() -> Command {
    cargo(&[
        "test",
        "--locked",
        "--no-fail-fast",
        "--doc",
        "--workspace",
        FEATURES[0],
        FEATURES[1],
    ])
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// The whole workspace, unless the arguments name packages.
fn scope(args: &[&String]) -> &'static [&'static str] {
    let names_packages = |arg: &&String| arg.starts_with("-p") || arg.starts_with("--package");
    if args.iter().any(names_packages) {
        &[]
    } else {
        &["--workspace", FEATURES[0], FEATURES[1]]
    }
}

/// Runs a test runner, forwards its output, and counts the results.
fn follow(command: &mut Command, tally: &mut Tally) -> Result<bool> {
    if std::io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("run the tests")?;
    let stdout = child.stdout.take().context("the runner's stdout")?;
    let stderr = child.stderr.take().context("the runner's stderr")?;
    let (mut on_stdout, mut on_stderr) = (Tally::default(), Tally::default());
    std::thread::scope(|scope| {
        scope.spawn(|| copy(stdout, std::io::stdout(), &mut on_stdout));
        copy(stderr, std::io::stderr(), &mut on_stderr);
    });
    for part in [on_stdout, on_stderr] {
        tally.passed += part.passed;
        tally.failed += part.failed;
        tally.skipped += part.skipped;
    }
    Ok(child.wait()?.success())
}

fn copy(from: impl Read, mut to: impl Write, tally: &mut Tally) {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
        // The reader may have gone; the tests run anyway.
        let _ = to.write_all(&line);
        tally.read(&String::from_utf8_lossy(&line));
        line.clear();
    }
}

impl Tally {
    /// Parses the summary of either runner: `Summary [1.2s] 42 tests run: 41 passed, 1 failed, 0 skipped` or `test
    /// result: ok. 3 passed; 0 failed; 1 ignored; …`. A result in the output of a failed test is indented.
    fn read(&mut self, line: &str) {
        let plain = without_colours(line);
        if !plain.trim_start().starts_with("Summary [") && !plain.starts_with("test result:") {
            return;
        }
        let words: Vec<&str> = plain
            .split([' ', ',', ';', '\n'])
            .filter(|word| !word.is_empty())
            .collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<u64>() else {
                continue;
            };
            match pair[1] {
                "passed" => self.passed += number,
                "failed" | "timed" => self.failed += number,
                "skipped" | "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

fn without_colours(line: &str) -> String {
    let mut plain = String::new();
    let mut parts = line.split('\u{1b}');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        plain.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_results_of_either_runner() {
        let mut tally = Tally::default();
        tally.read("     Summary [   2.157s] 42 tests run: 40 passed (1 slow), 2 failed, 7 skipped\n");
        tally.read("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.14s\n");
        tally.read(
            "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 5 filtered out; finished in 0.1s\n",
        );
        tally.read("42 tests run: 40 passed\n");
        assert_eq!(
            tally,
            Tally {
                passed: 43,
                failed: 2,
                skipped: 8
            }
        );
    }

    #[test]
    fn colours_do_not_matter() {
        let mut tally = Tally::default();
        tally.read("\u{1b}[32;1m     Summary\u{1b}[0m [   2.1s] \u{1b}[1m2\u{1b}[0m tests run: \u{1b}[1m2\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m");
        assert_eq!(tally.passed, 2);
    }

    #[test]
    fn named_packages_narrow_the_scope() {
        assert_eq!(scope(&[&"-p".to_owned(), &"tenure".to_owned()]), [""; 0]);
        assert_eq!(scope(&[&"a_test".to_owned()])[0], "--workspace");
    }
}
