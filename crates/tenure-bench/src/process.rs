//! CPU time and memory of a process, as the kernel reports them.

use std::fs;

use anyhow::{Context, Result};

/// The CPU time (user and system, all threads) of a process so far, in seconds. The kernel counts in steps of 10 ms.
///
/// # Errors
/// If there is no such process.
#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 ticks")]
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid}"))?;
    // The name in parentheses may contain any character; the fields after it start with the third.
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |number: usize| -> Result<u64> {
        let field = fields.get(number - 3).context("a short line in /proc")?;
        field.parse().context("a number in /proc")
    };
    Ok((ticks(14)? + ticks(15)?) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Resident memory of a process, in bytes.
///
/// # Errors
/// If there is no such process.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.context("no VmRSS in /proc")?.trim().trim_end_matches(" kB");
    Ok(kib.parse::<u64>().context("a number in /proc")? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_run_and_has_memory() {
        let pid = std::process::id();
        assert!(cpu_seconds(pid).unwrap() >= 0.0);
        assert!(resident_bytes(pid).unwrap() > 100_000);
        assert!(resident_bytes(u32::MAX).is_err());
    }
}
