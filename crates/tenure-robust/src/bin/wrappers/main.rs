//! `cargo xtask wrappers`: the attack matrix of `tenure join`, `tenure lock` and `tenure run`.
//!
//! Every cell starts the real program in a surrounding, lets one thing happen, and judges what follows by invariants: nobody
//! works on what another process owns, it ends, it frees its lease, and it leaves nothing. Cells are the product of
//! [`cell`]'s dimensions; they run in parallel because they mostly wait.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its output is its result")]
#![allow(clippy::disallowed_methods, reason = "it measures real processes in real time")]

mod cell;
mod census;
mod course;
mod daemon;
mod event;
mod expect;
mod judge;
mod lateness;
mod report;
mod running;
mod script;
mod stage;
mod stand_in;
mod waiter;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Parser;
use tenure_robust::world;
use tenure_testkit::consul::Agent;

use crate::cell::{Matrix, Surrounding, Wrapper};
use crate::census::Census;
use crate::course::{Ground, Verdict};
use crate::daemon::Daemons;
use crate::judge::Rule;
use crate::lateness::Lateness;

/// The time that the last cells of a sample need.
const LAST_CELLS: Duration = Duration::from_secs(5);
/// The cells of a search for planted errors: at most so many of each shape.
const PLANTED: usize = 12;

/// Judges the wrappers.
#[derive(Debug, Parser)]
struct Args {
    /// How long to run a sample of the cells; all of them if it is not given.
    #[arg(long = "for", value_parser = tenure_core::time::parse_duration)]
    length: Option<Duration>,
    /// What the order of the cells is drawn from; the time of day if it is not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Only cells with this name: WRAPPER/SURROUNDING/SHAPE/END, parts of it (lock//plain), or one part (term).
    #[arg(long)]
    only: Vec<String>,
    /// The number of cells at a time.
    #[arg(long, default_value_t = 24)]
    jobs: usize,
    /// The program to judge, in place of the one beside this program.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// List the cells and what is excluded, and run nothing.
    #[arg(long)]
    list: bool,
    /// Judge a wrong wrapper: a sample must break every rule.
    #[arg(long)]
    planted: bool,
    /// Run the same cells with flock and consul lock, for information.
    #[arg(long)]
    beside: bool,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let special = match args.get(1).map(String::as_str) {
        Some("stage") => Some(stage::run(&args[2..]).map(|()| 0)),
        Some("join" | "lock" | "run") => Some(stand_in::run(&args[1..])),
        _ => None,
    };
    let done = special.unwrap_or_else(|| run(&Args::parse()).map(|is_right| i32::from(!is_right)));
    match done {
        Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let own = std::env::current_exe()?;
    let mut matrix = Matrix::of(&Wrapper::OURS);
    leave_out(&mut matrix, args, &own)?;
    let seed = match args.seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    matrix.shuffle(seed);
    if args.list {
        matrix.cells.iter().for_each(|cell| println!("{cell}"));
        println!("{} cells", matrix.cells.len());
        return Ok(true);
    }
    println!("seed {seed}");
    let tenure = match &args.binary {
        Some(binary) => std::path::absolute(binary)?,
        None => world::program()?,
    };
    let run = format!("{}-{}", std::process::id(), seed);
    let _guard = Guard::start(&own, &run)?;
    let mut ground = Ground {
        own: own.clone(),
        tenure: if args.planted { own.clone() } else { tenure.clone() },
        folder: own.with_file_name("wrappers-run").join(&run),
        daemons: Daemons::of(&tenure),
        consul: None,
        census: Census::start(&run),
        lateness: Lateness::start(),
        run,
    };
    if args.planted {
        return find_planted(&ground, matrix, args);
    }
    let begin = Instant::now();
    let verdicts = run_cells(&ground, &matrix, args.jobs, args.length)?;
    report::print(&verdicts, &matrix, begin.elapsed());
    let is_right = verdicts.iter().all(|verdict| verdict.failures.is_empty());
    if is_right {
        let _ = std::fs::remove_dir_all(&ground.folder);
    } else {
        println!("the folders of failed cells are in {}", ground.folder.display());
    }
    if args.beside {
        run_beside(&mut ground, args, &own, seed)?;
    }
    Ok(is_right)
}

/// Drops the cells that are not asked for, and those that this machine cannot run.
fn leave_out(matrix: &mut Matrix, args: &Args, own: &Path) -> Result<()> {
    if !works("unshare", &["--pid", "--fork", "--mount-proc", "--kill-child", "true"]) {
        let reason = "no namespaces here: they need root and unshare";
        matrix.exclude("no-namespaces", reason, |cell| cell.surrounding.is_namespace());
    }
    if !works("env", &["--default-signal=TTOU", "--ignore-signal=HUP", "true"]) {
        bail!("env of coreutils 8.31 or newer is needed");
    }
    if own.starts_with("/tmp") || own.starts_with("/var/tmp") {
        let reason = "this program lies in the folder that would be hidden";
        matrix.exclude("built-in-tmp", reason, |cell| cell.surrounding == Surrounding::ReadOnly);
    }
    if !args.only.is_empty() {
        let is_wanted = |cell: &cell::Cell| args.only.iter().any(|filter| cell.matches(filter));
        matrix.exclude("not-asked-for", "--only", |cell| !is_wanted(cell));
    }
    if matrix.cells.is_empty() {
        bail!("no cell is left; --list shows all");
    }
    Ok(())
}

fn works(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs the cells in their order, several at a time, all of them or for a while.
fn run_cells(ground: &Ground, matrix: &Matrix, jobs: usize, length: Option<Duration>) -> Result<Vec<Verdict>> {
    let (begin, next) = (Instant::now(), AtomicUsize::new(0));
    let verdicts = Mutex::new(Vec::new());
    let is_over = || length.is_some_and(|length| begin.elapsed() + LAST_CELLS > length);
    let work = || -> Result<()> {
        while !is_over() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(cell) = matrix.cells.get(number) else { break };
            let verdict = course::run(ground, *cell, number, || !is_over()).with_context(|| format!("in {cell}"))?;
            let mut all = verdicts
                .lock()
                .map_err(|_| anyhow::anyhow!("a cell ended by a panic"))?;
            all.push(verdict);
            let failed = all
                .iter()
                .filter(|verdict: &&Verdict| !verdict.failures.is_empty())
                .count();
            if all.len().is_multiple_of(200) {
                eprintln!("{} cells, {failed} failed, {} s", all.len(), begin.elapsed().as_secs());
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(done) => done,
            Err(_) => bail!("a cell ended by a panic"),
        })
    })?;
    verdicts
        .into_inner()
        .map_err(|_| anyhow::anyhow!("a cell ended by a panic"))
}

/// Runs a sample with a wrong wrapper. It is right if cells break every rule.
fn find_planted(ground: &Ground, mut matrix: Matrix, args: &Args) -> Result<bool> {
    let mut of_shape = BTreeMap::new();
    matrix.exclude("planted", "a sample is enough", |cell| {
        let count = of_shape.entry(cell.shape).or_insert(0);
        *count += 1;
        *count > PLANTED
    });
    let begin = Instant::now();
    let verdicts = run_cells(ground, &matrix, args.jobs, None)?;
    report::print(&verdicts, &matrix, begin.elapsed());
    let _ = std::fs::remove_dir_all(&ground.folder);
    let failures = verdicts.iter().flat_map(|verdict| &verdict.failures);
    let found: BTreeSet<Rule> = failures.map(|failure| failure.rule).collect();
    let missing: Vec<_> = Rule::ALL.iter().filter(|rule| !found.contains(rule)).collect();
    for rule in &missing {
        println!("NOT FOUND: a wrong wrapper broke no rule of \"{}\"", rule.name());
    }
    Ok(missing.is_empty())
}

fn run_beside(ground: &mut Ground, args: &Args, own: &Path, seed: u64) -> Result<()> {
    let agent = works("consul", &["version"]).then(Agent::start).flatten();
    let mut wrappers = vec![Wrapper::Flock];
    if let Some(agent) = &agent {
        ground.consul = Some(agent.addr().to_string());
        wrappers.push(Wrapper::ConsulLock);
    }
    ground.folder = ground.folder.with_extension("beside");
    let mut matrix = Matrix::of(&wrappers);
    // A filter by wrapper is meant for ours.
    let filters = args.only.iter().map(|filter| match filter.split_once('/') {
        Some((_, rest)) => format!("/{rest}"),
        None => filter.clone(),
    });
    let sample = Args {
        only: filters.collect(),
        length: args.length,
        seed: args.seed,
        binary: None,
        ..*args
    };
    leave_out(&mut matrix, &sample, own)?;
    matrix.shuffle(seed);
    let verdicts = run_cells(ground, &matrix, args.jobs, args.length)?;
    report::print_beside(&verdicts);
    let _ = std::fs::remove_dir_all(&ground.folder);
    Ok(())
}

/// A process that kills all processes of this run when this program is gone, however it ends.
#[derive(Debug)]
struct Guard(Child);

impl Guard {
    fn start(own: &Path, run: &str) -> Result<Self> {
        let mut command = Command::new(own);
        command.args(["stage", "guard", run]).stdin(Stdio::piped());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(Self(command.spawn().context("start the guard")?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.stdin = None;
        let _ = self.0.wait();
    }
}
