//! The server's child processes. Each leads its own session, so no signal to a group reaches them.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait::Pace;

/// The time limit for children to stop or end.
const PATIENCE: Duration = Duration::from_secs(20);

/// The current children of a process.
pub(super) fn of(parent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| look(*pid).is_some_and(|(_, its_parent)| its_parent == parent))
        .collect()
}

/// Signals each child; one that has ended is skipped.
pub(super) fn signal(children: &[u32], signal: Signal) {
    for pid in children
        .iter()
        .filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?))
    {
        let _ = kill_process(pid, signal);
    }
}

/// Waits until none of them runs.
pub(super) fn wait_gone(children: &[u32]) {
    wait_for(children, |state| matches!(state, None | Some('Z' | 'X')));
}

fn wait_for(children: &[u32], is_so: impl Fn(Option<char>) -> bool) {
    let (deadline, mut pace) = (Instant::now() + PATIENCE, Pace::new());
    let all = || children.iter().all(|pid| is_so(look(*pid).map(|(state, _)| state)));
    while !all() && Instant::now() < deadline {
        pace.sleep();
    }
}

/// The state and the parent of a process: the two fields after its name, which may contain any character and ends at
/// the last `)`.
fn look(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Stopped children, and a shell that kills them if the test process dies before it resumes them.
#[derive(Debug)]
pub(super) struct Frozen {
    children: Vec<u32>,
    guard: Child,
}

impl Frozen {
    /// Stops the children of a stopped parent, which therefore creates no others.
    pub(super) fn freeze(children: Vec<u32>) -> Result<Frozen> {
        let numbers = children.iter().map(u32::to_string);
        let guard = Command::new("sh")
            .args([
                "-c",
                r#"trap "" HUP INT TERM; read -r _; kill -s KILL "$@""#,
                "tenure-test-guard",
            ])
            .args(numbers)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A kill of the test's process group must not reach the guard.
            .process_group(0)
            .spawn()
            .context("start the guard")?;
        signal(&children, Signal::STOP);
        wait_for(&children, |state| matches!(state, None | Some('T' | 't' | 'Z' | 'X')));
        Ok(Frozen { children, guard })
    }

    /// Ends the guard, and resumes the children if `run`.
    pub(super) fn release(mut self, run: bool) {
        // Before its pipe closes, which would make it kill the children.
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        if run {
            signal(&self.children, Signal::CONT);
        }
    }
}
