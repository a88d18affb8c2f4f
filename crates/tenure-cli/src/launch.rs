//! The step between `join` and its command: ties the command's life to `join`'s, then becomes the command.
//!
//! A wrapper that is killed with SIGKILL can stop nothing any more, and its command would work on under a tenure that
//! nobody keeps alive. So the kernel is asked to kill the command then. Only a process itself can ask that, and it
//! has to be asked between the fork and the command: this is a program of its own because that needs no unsafe code.
//! The kernel kills the command alone then, not what the command started.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::exit::say;

/// The command cannot be executed, as shells tell it.
pub(crate) const CANNOT_EXECUTE: u8 = 126;
/// The command is not there, as shells tell it.
pub(crate) const NOT_FOUND: u8 = 127;

/// Becomes the command, which dies with its parent (used by `join`).
#[derive(Debug, Clone, Args)]
pub(crate) struct Launch {
    /// The process id of the parent.
    #[arg(long)]
    parent: i32,
    /// The command.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Launch {
    /// Returns only when the command cannot be started.
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before it was asked for.
        if getppid().map(rustix::process::Pid::as_raw_pid) != Some(self.parent) {
            anyhow::bail!("the process that started this command is gone");
        }
        let Some((program, args)) = self.command.split_first() else {
            anyhow::bail!("there is no command");
        };
        let error = Command::new(program).args(args).exec();
        say(format_args!("{} cannot be started: {error}", program.to_string_lossy()));
        Ok(if error.kind() == ErrorKind::NotFound {
            NOT_FOUND
        } else {
            CANNOT_EXECUTE
        })
    }
}
