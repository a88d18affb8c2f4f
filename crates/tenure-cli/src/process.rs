//! Processes that the demo and `bench failover` start and end: this program again, in other roles.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tenure_core::clock::{Clock, within};
use tenure_supervise::child::Helpers;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

/// Time-out for the first line of a process.
const START: Duration = Duration::from_secs(20);
/// Time-out for a graceful end.
const END: Duration = Duration::from_secs(8);

/// A process. It dies with this one, and when it is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    /// Its first line: its address, or that it is ready.
    pub(crate) said: String,
    /// Kept open, so that the process can write.
    out: Option<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this program with these arguments, and waits for its first line. What it logs goes into a file. With a store it
    /// has the variables of this process and `TENURE_STORE`; without one it has no variable of Tenure.
    pub(crate) async fn start(
        clock: &dyn Clock,
        args: Vec<OsString>,
        log: &Path,
        store: Option<&str>,
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program cannot be found again")?;
        let mut command = vec![program.into_os_string()];
        command.extend(args);
        let log_file = File::create(log).with_context(|| format!("{} cannot be written", log.display()))?;
        let mut launch = Command::from(Helpers::of_this_program("launch", "keep").launch(&command));
        match store {
            Some(url) => {
                launch.env("TENURE_STORE", url);
            }
            // The environment configures other daemons.
            None => {
                let names = std::env::vars_os().map(|(name, _)| name);
                for name in names.filter(|name| name.to_string_lossy().starts_with("TENURE_")) {
                    launch.env_remove(name);
                }
            }
        }
        let mut child = launch
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log_file)
            .kill_on_drop(true)
            .spawn()
            .context("a process cannot be started")?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let mut out = BufReader::new(child.stdout.take().context("a process has no output")?);
        let mut said = String::new();
        within(clock, START, out.read_line(&mut said)).await.transpose()?;
        if said.is_empty() {
            let told = std::fs::read_to_string(log).unwrap_or_default();
            bail!("a process did not start: {}", told.trim());
        }
        Ok(Self {
            child,
            pid: pid.context("a process has no id")?,
            said: said.trim().to_owned(),
            out: Some(out),
        })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    /// What it prints after its first line; once.
    pub(crate) fn take_output(&mut self) -> Option<BufReader<ChildStdout>> {
        self.out.take()
    }

    /// Sends it a signal; it may have exited already.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid, signal);
    }

    /// Waits until it has ended. Its exit code; `None` when it did not end in time, or by a signal.
    pub(crate) async fn ended(&mut self, clock: &dyn Clock) -> Option<i32> {
        let ended = within(clock, END, self.child.wait()).await;
        ended?.ok()?.code()
    }

    /// Kills it, so that it cannot leave.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("a process cannot be killed")
    }

    /// Asks it to end, and kills it if it does not.
    pub(crate) async fn stop(mut self, clock: &dyn Clock) {
        // A stopped process handles no signal.
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        if self.ended(clock).await.is_none() {
            let _ = self.child.kill().await;
        }
    }
}
