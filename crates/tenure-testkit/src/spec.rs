//! Random runs of the specification in `spec/`, printed by spin.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::program::have;
use crate::server::must;

/// The length of a run in steps of spin: about 200 lines.
const LENGTH: &str = "-u30000";
/// Seeds of spin are positive and have 31 bits.
const SEEDS: u64 = 2_000_000_000;

/// Prints `count` random runs. Each line is one step of the store, the answer and what reads show then. The seed
/// determines the runs. Prints a message and returns `None` if spin is not installed.
///
/// # Panics
/// If spin fails, or is required but not installed.
#[must_use]
#[track_caller]
pub fn traces(count: u64, seed: u64) -> Option<Vec<String>> {
    defective_traces(count, seed, None)
}

/// [`traces`] of the specification with this value of its switch `DEFECT`. A run ends where an assertion fails.
///
/// # Panics
/// As [`traces`].
#[must_use]
#[track_caller]
pub fn defective_traces(count: u64, seed: u64, defect: Option<&str>) -> Option<Vec<String>> {
    let spin = have("spin").or_skip()?;
    // Its preprocessor.
    have("gcc").or_skip()?;
    let first = seed.wrapping_mul(1_000_003);
    let seeds = (0..count).map(|nth| 1 + first.wrapping_add(nth) % SEEDS);
    Some(seeds.map(|seed| must(run(&spin, seed, defect))).collect())
}

fn run(spin: &Path, seed: u64, defect: Option<&str>) -> Result<String> {
    // Spin writes scratch files into its working directory.
    let dir = tempfile::tempdir().context("create a folder for spin")?;
    let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/tenure.pml");
    let output = Command::new(spin)
        .current_dir(dir.path())
        .args(["-T", "-DTRACE", LENGTH])
        .arg(format!("-n{seed}"))
        .args(defect.map(|defect| format!("-DDEFECT={defect}")))
        .arg(spec)
        .output()
        .context("run spin")?;
    let text = String::from_utf8_lossy(&output.stdout);
    // The last line may be cut off.
    let is_whole = |line: &&str| line.starts_with("step ") && line.contains(" tenures ");
    let trace: Vec<&str> = text.lines().filter(is_whole).collect();
    ensure!(
        !trace.is_empty(),
        "spin printed no trace with seed {seed}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(trace.join("\n"))
}
