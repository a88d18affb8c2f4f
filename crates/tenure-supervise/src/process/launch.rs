//! The launch step: binds the life of the new process to the supervisor's, then becomes the program.
//!
//! A supervisor killed by SIGKILL cannot stop its child, so the kernel must kill it. Only the child itself can
//! request that, between the fork and the exec. A separate process does so because a pre-exec hook would need unsafe
//! code. A setuid program loses the parent-death signal when it starts; that is the kernel's rule.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::terminal::Terminal;

/// The exit code for a program that cannot be executed, as in shells.
pub const CANNOT_EXECUTE: u8 = 126;
/// The exit code for a missing program, as in shells.
pub const NOT_FOUND: u8 = 127;

/// Why the program was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The parent died before the signal was set.
    #[error("the process that started this one is gone")]
    Orphaned,
    /// The command is empty.
    #[error("there is no command")]
    Empty,
    /// The system refused the parent-death signal.
    #[error("cannot be tied to its parent")]
    Tie(#[source] io::Error),
    /// The program is missing or cannot be executed.
    #[error("{program} cannot be started: {source}", program = program.display())]
    Program {
        /// The program.
        program: OsString,
        /// The system's error.
        source: io::Error,
    },
}

impl LaunchError {
    /// The exit code for this error, as in shells.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Program { source, .. } if source.kind() == ErrorKind::NotFound => NOT_FOUND,
            _ => CANNOT_EXECUTE,
        }
    }
}

/// The most milliseconds that the program waits for the terminal. After that the kernel stops the program when it reads, and
/// the supervisor continues it.
const FOREGROUND: u32 = 1_000;

/// Becomes the program, which is killed when the thread of `parent` that started this process ends. With `foreground`, it
/// waits until its group has the terminal. Returns only on failure.
#[must_use]
pub fn become_program(parent: i32, foreground: bool, command: &[OsString]) -> LaunchError {
    let Some((program, args)) = command.split_first() else {
        return LaunchError::Empty;
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return LaunchError::Tie(error.into());
    }
    // The parent may have died before the call above.
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        return LaunchError::Orphaned;
    }
    if foreground {
        await_terminal();
    }
    LaunchError::Program {
        program: program.clone(),
        source: Command::new(program).args(args).exec(),
    }
}

#[expect(clippy::disallowed_methods, reason = "this process does nothing else")]
fn await_terminal() {
    let Some(terminal) = Terminal::open() else { return };
    for _ in 0..FOREGROUND {
        if terminal.is_ours() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
