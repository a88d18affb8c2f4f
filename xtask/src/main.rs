//! The project's own chores: `cargo xtask test`, `bench`, `dist`, `fuzz`, `tidy`.
//!
//! Small on purpose (it is built before anything else) and free of the other crates: it must run while they don't
//! compile.
#![allow(clippy::disallowed_methods, reason = "chores run on real machines, in real time")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its output is its result")]

mod apt;
mod dist;
mod fuzz;
mod run;
mod servers;
mod suite;
mod tidy;

use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "\
Usage: cargo xtask <chore>

  test [-- ARGS]    install the missing test servers, then run all tests; ARGS go to the test runner
  test --quick      units, the model, and conformance on memory and SQLite: the inner loop
  bench [NAME...]   install the missing peers, then run the benchmarks (all, or those named)
  dist              build the binary to hand out, and its symbols as a file beside it
  fuzz [-- ARGS]    fuzz the HTTP surface of a daemon with schemathesis, if there is one; ARGS go to it
  tidy              check the house rules

Environment: TENURE_NO_INSTALL=1 installs nothing, CI=true fails where something is missing.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (chore, rest) = args
        .split_first()
        .map_or(("", &[][..]), |(chore, rest)| (chore.as_str(), rest));
    let rest = rest.strip_prefix(&["--".to_owned()]).unwrap_or(rest);
    let done = match chore {
        "test" => suite::test(rest),
        "bench" => bench(rest),
        "dist" => dist::dist(),
        "fuzz" => fuzz::fuzz(rest),
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
