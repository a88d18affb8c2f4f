//! The two small programs that stand by a command: one ties it to its parent and becomes it, one ends its process group
//! when the parent cannot.

use std::ffi::OsString;

use clap::Args;
use rustix::process::Pid;
use tenure_supervise::child::WatchdogProcess;
use tenure_supervise::process::launch::become_program;

use crate::exit::{DONE, Usage, say};

/// Becomes the command, which dies with its parent (used by `join`, `lock` and `run`).
#[derive(Debug, Clone, Args)]
pub(crate) struct Launch {
    /// The process id of the parent.
    parent: i32,
    /// Wait until the terminal is the command's.
    #[arg(long)]
    foreground: bool,
    /// The command.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Launch {
    /// Returns only when the command cannot be started.
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        let error = become_program(self.parent, self.foreground, &self.command);
        say(&error);
        Ok(error.code())
    }
}

/// Ends a process group when its supervisor is gone, or its time is over (used by `join`, `lock` and `run`).
#[derive(Debug, Clone, Args)]
pub(crate) struct Keep {
    /// The process id of the supervisor.
    supervisor: i32,
}

impl Keep {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        let supervisor = Pid::from_raw(self.supervisor).ok_or_else(|| Usage::new("0 is no process"))?;
        WatchdogProcess { supervisor }.run();
        Ok(DONE)
    }
}
