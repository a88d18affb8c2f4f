//! The tasks of the project: `cargo xtask test`, `bench`, `robust`, `wrappers`, `spec`, `dist`, `package`, `fuzz`, `tidy`.
//!
//! It is built before every other crate, so it is small, and it depends on none of them, so it runs while they do not
//! compile.
#![allow(clippy::disallowed_methods, reason = "tasks run in real time")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its output is its result")]

mod apt;
mod clients;
mod dist;
mod fuzz;
mod npm;
mod package;
mod run;
mod servers;
mod spec;
mod suite;
mod tidy;

use std::process::{Command, ExitCode};

use anyhow::Result;

const USAGE: &str = "\
Usage: cargo xtask <task>

  test [-- ARGS]    install missing test servers and run all tests; ARGS are passed to the test runner
  clients           test the clients in other languages (part of test)
  test --quick      unit tests, the model, and conformance on memory and SQLite
  bench [NAME...]   install the servers to compare with and run all benchmarks, or those named
  robust [ARGS]     run real daemons under faults and check the histories: --for 10m, --seed N, --world NAME,
                    --planted [NAME] for defects that must be found
  wrappers [ARGS]   run the attack matrix of join, lock and run: all cells, or a sample with --for 1m; --seed N,
                    --only NAME for cells, --jobs N, --binary PATH, --list, --beside for flock and consul lock,
                    --planted for a wrong wrapper that must be found
  dist              build the release binary and its packages: archive, .deb, wheel, npm, checksums, bill of materials
  dist --check      the same, then install each package and run it; with --binary PATH pack a binary that is built
  package           pack the crates for users, and compile a program against the packed library
  fuzz [-- ARGS]    fuzz the HTTP API with schemathesis, if installed; ARGS are passed to it
  spec              check the specification with spin, with and without planted defects
  tidy              check the house rules

Environment: TENURE_NO_INSTALL=1 installs nothing; CI=true fails if a program is missing.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = args
        .split_first()
        .map_or(("", &[][..]), |(task, rest)| (task.as_str(), rest));
    let rest = rest.strip_prefix(&["--".to_owned()]).unwrap_or(rest);
    let done = match task {
        "test" => suite::test(rest),
        "clients" => clients::test().map(|_| true),
        "bench" => bench(rest),
        "robust" => robust(rest),
        "wrappers" => wrappers(rest),
        "dist" => dist::dist(rest),
        "package" => package::package(),
        "fuzz" => fuzz::fuzz(rest),
        "spec" => spec::check(),
        "tidy" => tidy::check(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(names: &[String]) -> Result<bool> {
    servers::ensure(servers::Need::Bench)?;
    let args = ["run", "--release", "--locked", "--package", "tenure-bench", "--"];
    Ok(run::cargo(&args).args(names).status()?.success())
}

/// In debug builds: only they can have planted defects, and their assertions are checks as well.
fn robust(args: &[String]) -> Result<bool> {
    servers::ensure(servers::Need::Test)?;
    run::build(&["tenure", "tenure-robust"])?;
    let mut robust = Command::new(run::target().join("debug/tenure-robust"));
    Ok(robust.args(args).current_dir(run::root()).status()?.success())
}

/// In a debug build, which the tests have built already.
fn wrappers(args: &[String]) -> Result<bool> {
    run::build(&["tenure", "wrappers"])?;
    let mut wrappers = Command::new(run::target().join("debug/wrappers"));
    Ok(wrappers.args(args).current_dir(run::root()).status()?.success())
}
