//! The step between the supervisor and its child: ties the child's life to the supervisor's, then becomes the child.
//!
//! A supervisor that is killed with SIGKILL can stop nothing any more. So the kernel is asked to kill the child then. Only
//! a process itself can ask that, and it has to be asked between the fork and the program: this is a step of its own
//! because that needs no unsafe code. A setuid program loses the tie when it starts; that is the kernel's rule.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// The program cannot be executed, as shells tell it.
pub const CANNOT_EXECUTE: u8 = 126;
/// The program is not there, as shells tell it.
pub const NOT_FOUND: u8 = 127;

/// Why the program was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The parent has died before it was noticed.
    #[error("the process that started this one is gone")]
    Orphaned,
    /// There is no program in the command.
    #[error("there is no command")]
    Empty,
    /// The system refuses to tie it to its parent.
    #[error("cannot be tied to its parent")]
    Tie(#[source] io::Error),
    /// The program is not there, or cannot be executed.
    #[error("{program} cannot be started: {source}", program = program.display())]
    Program {
        /// Which one.
        program: OsString,
        /// What the system says.
        source: io::Error,
    },
}

impl LaunchError {
    /// The exit code for it, as shells have it.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Program { source, .. } if source.kind() == ErrorKind::NotFound => NOT_FOUND,
            _ => CANNOT_EXECUTE,
        }
    }
}

/// Becomes the program, which is killed when the thread of `parent` that started this process ends. Returns only when
/// that cannot be.
#[must_use]
pub fn become_program(parent: i32, command: &[OsString]) -> LaunchError {
    let Some((program, args)) = command.split_first() else {
        return LaunchError::Empty;
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return LaunchError::Tie(error.into());
    }
    // The parent may have died before it was asked for.
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        return LaunchError::Orphaned;
    }
    LaunchError::Program {
        program: program.clone(),
        source: Command::new(program).args(args).exec(),
    }
}
