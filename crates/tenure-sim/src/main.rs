//! `tenure-sim`: runs seeds, and prints the command and the end of the history for each seed that fails.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use tenure_sim::time::At;
use tenure_sim::{BrokenRule, HistoryMode, Mix, Parts, Plan, run};

/// For the simulated time of a run.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Runs the library in a seeded simulation with faults, and checks every step.
#[derive(Debug, Parser)]
#[command(name = "tenure-sim")]
struct Options {
    /// One seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// A range of seeds, `A..B`, without B.
    #[arg(long, default_value = "0..100")]
    seeds: String,
    /// The number of faults in a run.
    #[arg(long, default_value_t = Plan::of(0).steps)]
    steps: u32,
    /// The number of machines.
    #[arg(long, default_value_t = Plan::of(0).nodes)]
    nodes: usize,
    /// Families of faults: network, slow, nodes, store, ledger, clocks, loss (comma-separated); or all, or none.
    #[arg(long, default_value = "all")]
    faults: Mix,
    /// What the programs use beside claims and leases: sessions, rosters; or all, or none. Without it, the seed decides.
    #[arg(long)]
    parts: Option<Parts>,
    /// A rule to break on purpose.
    #[arg(long, value_enum)]
    broken: Option<BrokenRule>,
    /// Print the whole history.
    #[arg(long)]
    trace: bool,
    /// How many lines of a failing history to print.
    #[arg(long, default_value_t = 60)]
    tail: usize,
    /// Continue after a failing seed.
    #[arg(long)]
    keep_going: bool,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let (first, end) = match options.seed {
        Some(seed) => (seed, seed + 1),
        None => range(&options.seeds)?,
    };
    let (mut seeds, mut failed, mut events, mut digest, mut lasted) = (0u64, 0u64, 0, 0u64, Duration::ZERO);
    for seed in first..end {
        let plan = options.plan(seed);
        let outcome = run(&plan)?;
        seeds += 1;
        events += outcome.events;
        lasted += outcome.lasted.since(At::default());
        digest = digest.rotate_left(5) ^ outcome.digest;
        if let Some(violation) = outcome.violation {
            failed += 1;
            options.report(&plan, &violation.to_string())?;
            if !options.keep_going {
                break;
            }
        }
    }
    let years = lasted.as_secs_f64() / YEAR.as_secs_f64();
    say(&format!(
        "{seeds} seeds, {events} events, {years:.4} years simulated, {failed} failed, digest {digest:016x}"
    ));
    Ok(ExitCode::from(u8::from(failed > 0)))
}

impl Options {
    fn plan(&self, seed: u64) -> Plan {
        Plan {
            seed,
            nodes: self.nodes.max(1),
            steps: self.steps,
            mix: self.faults.clone(),
            parts: self.parts.unwrap_or_else(|| Parts::drawn(seed)),
            broken: self.broken,
            keep: if self.trace {
                HistoryMode::Print
            } else {
                HistoryMode::Digest
            },
        }
    }

    /// Runs the plan again with its history kept as text, and prints the end of it and the command that reproduces it.
    fn report(&self, plan: &Plan, violation: &str) -> Result<()> {
        if !self.trace {
            let again = run(&Plan {
                keep: HistoryMode::Tail(self.tail),
                ..plan.clone()
            })?;
            for line in again.tail {
                say(&line);
            }
        }
        let broken = plan.broken.map_or_else(String::new, |broken| {
            let name = clap::ValueEnum::to_possible_value(&broken);
            format!(
                " --broken {}",
                name.map_or_else(String::new, |name| name.get_name().to_owned())
            )
        });
        say(&format!(
            "FAILED: {violation}\n  cargo run -p tenure-sim -- --seed {} --steps {} --nodes {} --faults {} --parts {}{broken} --trace",
            plan.seed, plan.steps, plan.nodes, plan.mix, plan.parts
        ));
        Ok(())
    }
}

fn range(text: &str) -> Result<(u64, u64)> {
    let (first, end) = text.split_once("..").context("a range of seeds has the form A..B")?;
    Ok((first.parse().context("A of A..B")?, end.parse().context("B of A..B")?))
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn say(text: &str) {
    println!("{text}");
}
