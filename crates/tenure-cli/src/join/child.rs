//! The command that `join` wraps: a process group of its own, from its start until nothing of it is left.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tenure_core::clock::{Clock, Mono};
use tenure_supervise::child::Helpers;
use tokio::process::{Child as Process, Command};

use super::signals::Signals;

/// How often to look whether a group is empty: the kernel tells nobody when that happens.
const LOOK: Duration = Duration::from_millis(20);

/// The running command.
#[derive(Debug)]
pub(super) struct Child {
    process: Process,
    group: Pid,
}

impl Child {
    /// Starts the command with these variables. It must be called on a thread that lives as long as this process: the
    /// command is killed when the thread that started it ends.
    pub(super) fn spawn(command: &[OsString], variables: &[(&str, OsString)]) -> anyhow::Result<Self> {
        let launch = Helpers::of_this_program("launch", "keep").launch(command);
        let process = Command::from(launch)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .spawn()
            .context("cannot start the command")?;
        let group = process
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        Ok(Self {
            process,
            group: group.context("the command has no process id")?,
        })
    }

    /// Waits until the command itself has ended. May be called again.
    pub(super) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        self.process.wait().await.context("cannot wait for the command")
    }

    /// Sends a signal to the whole group. There may be nobody left to get it.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
    }

    fn group_is_empty(&self) -> bool {
        test_kill_process_group(self.group).is_err()
    }

    /// Ends what is left of the group: TERM, and KILL for what is still there after `grace`. Signals that arrive
    /// meanwhile are passed on; a second request to end (TERM, INT or QUIT) cuts the grace short.
    pub(super) async fn stop(&mut self, clock: &dyn Clock, grace: Duration, signals: &mut Signals) {
        if self.has_gone() {
            return;
        }
        self.signal(Signal::TERM);
        let until: Mono = clock.mono() + grace;
        let mut asked = false;
        while clock.mono() < until && !self.has_gone() {
            tokio::select! {
                () = clock.sleep(LOOK.min(until.since(clock.mono()))) => {}
                signal = signals.next() => {
                    self.signal(signal);
                    if matches!(signal, Signal::TERM | Signal::INT | Signal::QUIT) {
                        if asked {
                            break;
                        }
                        asked = true;
                    }
                }
            }
        }
        if !self.has_gone() {
            self.signal(Signal::KILL);
        }
    }

    /// Whether the command has ended and nothing of its group is left.
    fn has_gone(&mut self) -> bool {
        // The command has to be reaped first; until then it counts as a member of its group.
        matches!(self.process.try_wait(), Ok(Some(_))) && self.group_is_empty()
    }
}

/// The exit code that tells how a command ended: its own, or 128 + the signal that killed it.
pub(super) fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(crate::exit::FAILED)
}
