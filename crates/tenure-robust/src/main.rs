//! `cargo xtask robust`: rounds of faults on real processes, or the search for planted defects.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its output is its result")]
#![allow(clippy::disallowed_methods, reason = "it runs in real time")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use tenure_robust::check::Violation;
use tenure_robust::planted::{self, Defect};
use tenure_robust::round::{self, Order, Verdict};
use tenure_robust::world::{self, Kind};

/// How long faults happen in a round.
const ROUND: Duration = Duration::from_secs(15);
/// How long a planted defect may stay unfound.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs real daemons under faults and checks what their clients saw.
#[derive(Debug, Parser)]
struct Args {
    /// How long to run.
    #[arg(long = "for", default_value = "1m", value_parser = tenure_core::time::parse_duration)]
    length: Duration,
    /// What the plan of faults is drawn from; the time of day if it is not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Only this world: sqlite, valkey, sentinel, cluster or ledger.
    #[arg(long)]
    world: Option<String>,
    /// Run with planted defects, one after the other, until each is found; or only with this one.
    #[arg(long, num_args = 0..=1, default_missing_value = "")]
    planted: Option<String>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<bool> {
    let tenure = world::program()?;
    let folder = tenure.with_file_name("robust");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let seed = args.seed.unwrap_or(now.as_secs());
    let kinds: Vec<Kind> = match &args.world {
        None => Kind::ALL.to_vec(),
        Some(name) => Kind::ALL.into_iter().filter(|kind| kind.name() == name).collect(),
    };
    if kinds.is_empty() {
        bail!("unknown world; use one of {}", Kind::ALL.map(Kind::name).join(", "));
    }
    println!("seed {seed}");
    if let Some(name) = &args.planted {
        return find_all(name, seed, &tenure, folder).await;
    }
    let (begin, mut total) = (Instant::now(), Verdict::default());
    for round in 0u32.. {
        // A round that would mostly be too late does not begin.
        let half = begin.elapsed().checked_div(2 * round).unwrap_or_default();
        if begin.elapsed() + half >= args.length && round > 0 {
            break;
        }
        let round = u64::from(round);
        let order = Order {
            // A minute has room for one to three worlds: the seed, which is the time of day, chooses which.
            kind: kinds[usize::try_from(seed.wrapping_add(round) % kinds.len() as u64)?],
            length: ROUND,
            seed: seed.wrapping_add(round),
            tenure: &tenure,
            planted: None,
            folder: &folder.join(format!("{}", seed.wrapping_add(round))),
        };
        let verdict = round::run(order)
            .await
            .with_context(|| format!("seed {}", order.seed))?;
        println!("{} seed {}: {}", order.kind.name(), order.seed, summary(&verdict));
        total.calls += verdict.calls;
        total.unknown += verdict.unknown;
        for (name, count) in verdict.faults {
            *total.faults.entry(name).or_default() += count;
        }
        if !verdict.violations.is_empty() {
            show(&verdict.violations, &order);
            return Ok(false);
        }
    }
    println!("{}", summary(&total));
    Ok(true)
}

fn summary(verdict: &Verdict) -> String {
    let faults: Vec<_> = verdict
        .faults
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    format!(
        "{} operations ({} unknown); faults: {}; violations {}",
        verdict.calls,
        verdict.unknown,
        faults.join(", "),
        verdict.violations.len()
    )
}

fn show(violations: &[Violation], order: &Order<'_>) {
    for violation in violations.iter().take(5) {
        println!("\nVIOLATION {}: {}", violation.check, violation.text);
        for call in &violation.calls {
            println!("    {call}");
        }
    }
    println!(
        "\nall of it is in {}; again: cargo xtask robust --world {} --seed {} --for 1s",
        order.folder.display(),
        order.kind.name(),
        order.seed
    );
}

async fn find_all(name: &str, seed: u64, tenure: &std::path::Path, folder: PathBuf) -> Result<bool> {
    let wanted: Vec<&Defect> = planted::ALL
        .iter()
        .filter(|defect| name.is_empty() || defect.name == name)
        .collect();
    if wanted.is_empty() {
        let known: Vec<_> = planted::ALL.iter().map(|defect| defect.name).collect();
        bail!("unknown defect {name}; use one of {}", known.join(", "));
    }
    let mut all_found = true;
    println!("| Defect | World | Found by | After |\n|---|---|---|---|");
    for defect in wanted {
        let (begin, mut checks) = (Instant::now(), BTreeMap::new());
        for round in 0u64.. {
            if !checks.is_empty() || begin.elapsed() > LIMIT {
                break;
            }
            let order = Order {
                kind: defect.kind,
                length: ROUND,
                seed: seed.wrapping_add(round),
                tenure,
                planted: Some(defect.name),
                folder: &folder.join(defect.name),
            };
            let verdict = round::run(order).await.with_context(|| defect.name)?;
            for violation in verdict.violations {
                *checks.entry(violation.check).or_insert(0) += 1;
            }
        }
        all_found &= !checks.is_empty();
        let found: Vec<_> = checks.keys().copied().collect();
        let found = if found.is_empty() {
            "**not found**".to_owned()
        } else {
            found.join(", ")
        };
        let after = begin.elapsed().as_secs();
        println!("| {} | {} | {found} | {after} s |", defect.what, defect.kind.name());
    }
    Ok(all_found)
}
