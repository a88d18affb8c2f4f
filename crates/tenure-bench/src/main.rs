//! Compares Tenure with its alternatives: every figure with a baseline from the same run, in alternating rounds, so
//! that other load on the machine affects both.
//!
//! It starts its own servers on loopback and stops only those. A figure never fails the run; the table shows which
//! goals were met. See `docs/benchmarks.md`.
#![allow(clippy::disallowed_methods, reason = "it measures real time on real servers")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its output is for people")]
#![allow(unreachable_pub, reason = "a program has no importers")]

mod bare;
mod bench;
mod daemon;
mod load;
mod machine;
mod node;
mod probe;
mod process;
mod report;
mod stats;
mod subject;
mod suite;
mod valkey;
mod waiter;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use comfy_table::{Table, presets};
use serde::Serialize;

use machine::Machine;
use report::Grid;
use suite::{BenchmarkResult, Size};

/// Compares Tenure with its alternatives.
#[derive(Debug, Parser)]
#[command(name = "tenure-bench")]
struct Arguments {
    /// Run only these benchmarks; all if none is named.
    names: Vec<String>,
    /// A smoke run: small and short. Its figures mean little.
    #[arg(long)]
    quick: bool,
    /// Only list the benchmarks.
    #[arg(long)]
    list: bool,
    /// The directory for the raw figures.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run as a node of a fleet, for `takeover`.
    #[arg(long, hide = true, requires_all = ["store", "targets"])]
    node: Option<String>,
    /// Run as a process that waits for a lease, for `waiters`.
    #[arg(long, hide = true, requires_all = ["store", "lease"])]
    waiter: Option<String>,
    #[arg(long, hide = true)]
    lease: Option<String>,
    /// Run as the bare handler, for `beats-http`.
    #[arg(long, hide = true)]
    bare: Option<std::net::SocketAddr>,
    #[arg(long, hide = true)]
    store: Option<String>,
    #[arg(long, hide = true)]
    targets: Option<usize>,
}

/// The raw figures of a run.
#[derive(Debug, Serialize)]
struct Run {
    quick: bool,
    machine: Machine,
    load_after: String,
    seconds: f64,
    benchmarks: Vec<BenchmarkResult>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let (Some(name), Some(store), Some(targets)) = (&arguments.node, &arguments.store, arguments.targets) {
        return ended(name, node::run(name, store, targets).await);
    }
    if let (Some(name), Some(store), Some(lease)) = (&arguments.waiter, &arguments.store, &arguments.lease) {
        return ended(name, waiter::run(name, store, lease).await);
    }
    if let Some(addr) = arguments.bare {
        return ended(&addr.to_string(), bare::run(addr).await);
    }
    match run(arguments).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The end of a process that this program started.
fn ended(name: &str, result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the benchmarks. Returns whether all of them succeeded.
async fn run(arguments: Arguments) -> Result<bool> {
    if arguments.list {
        for bench in suite::ALL {
            println!("{:14} {}", bench.name, bench.about);
        }
        return Ok(true);
    }
    let chosen = suite::chosen(&arguments.names)?;
    let size = Size { quick: arguments.quick };
    let (machine, start) = (Machine::look(), std::time::Instant::now());
    let mut benchmarks = Vec::new();
    for bench in chosen {
        eprintln!("{}: {}", bench.name, bench.about);
        let done = bench.run(size).await;
        eprintln!(
            "{}: {:.0} s{}",
            done.name,
            done.seconds,
            if done.failed.is_some() { ", FAILED" } else { "" }
        );
        benchmarks.push(done);
    }
    let seconds = start.elapsed().as_secs_f64();
    let run = Run {
        quick: arguments.quick,
        machine,
        load_after: machine::load(),
        seconds,
        benchmarks,
    };
    print(&run);
    let file = write(&run, arguments.out)?;
    println!("raw figures: {}", file.display());
    Ok(run.benchmarks.iter().all(|done| done.failed.is_none()))
}

fn print(run: &Run) {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["benchmark", "what", "Tenure", "baseline", "ratio", "goal", ""]);
    for done in &run.benchmarks {
        for row in &done.found.rows {
            let mut cells = vec![done.name.to_owned()];
            cells.extend(row.cells());
            table.add_row(cells);
        }
        if let Some(why) = &done.failed {
            table.add_row([done.name, &format!("FAILED: {why}")]);
        }
    }
    if run
        .benchmarks
        .iter()
        .any(|done| !done.found.rows.is_empty() || done.failed.is_some())
    {
        println!("{table}\n");
    }
    for done in &run.benchmarks {
        if let Some(grid) = &done.found.grid {
            print_grid(done.name, grid);
        }
    }
    for done in &run.benchmarks {
        done.found
            .notes
            .iter()
            .for_each(|note| println!("{}: {note}", done.name));
    }
    let machine = &run.machine;
    println!(
        "\n{} cores of {}, {} GiB, Linux {}",
        machine.cores, machine.cpu, machine.memory_gib, machine.kernel
    );
    println!("{}", machine.programs.join("; "));
    let size = if run.quick {
        "QUICK RUN, figures mean little; "
    } else {
        ""
    };
    let (before, after) = (&machine.load_before, &run.load_after);
    println!(
        "{size}revision {}; load {before} before, {after} after; {:.0} s",
        machine.revision, run.seconds
    );
}

fn print_grid(name: &str, grid: &Grid) {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(std::iter::once(name).chain(grid.columns.iter().map(String::as_str)));
    for line in grid.lines() {
        table.add_row(line);
    }
    println!("{name}: {}\n\n{table}\n", grid.title);
}

/// Writes the raw figures as JSON, named by the revision.
fn write(run: &Run, out: Option<PathBuf>) -> Result<PathBuf> {
    let root = || std::env::var_os("CARGO_MANIFEST_DIR").map(|dir| PathBuf::from(dir).join("../.."));
    let dir = out.unwrap_or_else(|| root().unwrap_or_default().join("bench-results"));
    std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let name = format!(
        "{}-{}.json",
        now.map_or(0, |since| since.as_secs()),
        run.machine.revision
    );
    let file = dir.join(name);
    let json = serde_json::to_vec_pretty(run).context("write the figures as JSON")?;
    std::fs::write(&file, json).with_context(|| format!("write {}", file.display()))?;
    Ok(file.canonicalize().unwrap_or(file))
}
