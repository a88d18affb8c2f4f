//! The child: one program in its own process group, from its start until none of its processes is left.

mod search;
mod watchdog;

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tenure_core::clock::{Clock, Mono};

use crate::process::{Processes, Started};

pub use watchdog::{Watchdog, WatchdogProcess};

/// The poll interval for an empty group: the kernel reports no event for it.
const LOOK: Duration = Duration::from_millis(20);

/// The program to run.
#[derive(Debug, Clone)]
pub struct Program {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The helper commands that start and guard it.
    pub helpers: Helpers,
}

/// The command lines of this executable for the two helper processes. The supervisor's process id is appended to both,
/// followed by the command or by the child's process group.
#[derive(Debug, Clone)]
pub struct Helpers {
    /// The executable.
    pub program: PathBuf,
    /// The arguments that run [`crate::process::launch::become_program`].
    pub launch: Vec<OsString>,
    /// The arguments that run [`WatchdogProcess::run`].
    pub watchdog: Vec<OsString>,
    /// Changes to the environment of every started command: `None` removes a variable (our secrets), `Some` replaces
    /// its value.
    pub environment: Vec<(OsString, Option<OsString>)>,
}

impl Helpers {
    /// The running executable, with these subcommands.
    #[must_use]
    pub fn of_this_program(launch: &str, watchdog: &str) -> Self {
        Self {
            program: PathBuf::from("/proc/self/exe"),
            launch: vec![launch.into()],
            watchdog: vec![watchdog.into()],
            environment: Vec::new(),
        }
    }

    /// A command that dies with this process, in its own process group.
    #[must_use]
    pub fn launch(&self, command: &[OsString]) -> Command {
        let mut launch = Command::new(&self.program);
        launch
            .args(&self.launch)
            .arg(std::process::id().to_string())
            .arg("--")
            .args(command)
            // Set before the program runs and before the spawn returns, so it never shares our group.
            .process_group(0);
        for (name, value) in &self.environment {
            match value {
                Some(value) => launch.env(name, value),
                None => launch.env_remove(name),
            };
        }
        launch
    }
}

/// The running program.
#[derive(Debug)]
pub struct Child {
    processes: Processes,
    started: Started,
    watchdog: Option<Watchdog>,
    /// The program has ended and its group was empty afterwards. Its number may belong to another group by now.
    group_is_over: AtomicBool,
    /// Set once the program was asked to end: the strays that already received TERM.
    termed: Mutex<Option<HashSet<Pid>>>,
    killed: bool,
}

impl Child {
    /// Starts the program with these variables in addition to our own.
    ///
    /// # Errors
    /// The system's; nothing runs then. A missing program is not an error here: the child exits with 127.
    pub async fn start(
        processes: &Processes,
        program: &Program,
        variables: Vec<(OsString, OsString)>,
    ) -> io::Result<Self> {
        let mark = watchdog::mark();
        let mut command = program.helpers.launch(&program.command);
        command.envs(variables).env(watchdog::MARK, &mark);
        let started = processes.spawn(command).await?;
        // A failed watchdog does not stop the child from being supervised.
        let watchdog = Watchdog::start(processes, &program.helpers, started.pid, &mark)
            .await
            .inspect_err(|error| tracing::warn!(%error, "no watchdog: processes of the child survive if this supervisor is killed"))
            .ok();
        Ok(Self {
            processes: processes.clone(),
            started,
            watchdog,
            group_is_over: AtomicBool::new(false),
            termed: Mutex::default(),
            killed: false,
        })
    }

    /// The process id, which is also the id of the group.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.started.pid
    }

    /// Waits until the program itself has ended. Returns its exit code, or 128 + the signal that killed it. May be
    /// called again.
    pub async fn ended(&mut self) -> u8 {
        self.started.code().await
    }

    /// Lets the watchdog kill the child at `until`, even if this process is frozen. `None` clears the deadline.
    pub fn set_deadline(&mut self, until: Option<Mono>, clock: &dyn Clock) {
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.set_deadline(until, clock);
        }
    }

    /// Forwards a signal to the process group, if it still exists.
    pub fn pass(&self, signal: Signal) {
        if self.has_group() {
            let _ = kill_process_group(self.pid(), signal);
        }
    }

    /// Sends TERM to the group and to every process it left behind. Processes left behind later get TERM while
    /// [`Child::gone`] waits.
    pub fn term(&self) {
        self.pass(Signal::TERM);
        *self.termed.lock().unwrap_or_else(PoisonError::into_inner) = Some(HashSet::new());
        self.term_strays();
    }

    /// Kills the group and every process it left behind.
    pub fn kill(&mut self) {
        self.killed = true;
        self.pass(Signal::KILL);
        self.processes.signal_strays(Signal::KILL);
    }

    /// A daemon in its own session can only be ended by its parent, and we are its adoptive parent.
    fn term_strays(&self) {
        if let Some(termed) = &mut *self.termed.lock().unwrap_or_else(PoisonError::into_inner) {
            self.processes.signal_new_strays(Signal::TERM, termed);
        }
    }

    fn has_ended(&self) -> bool {
        self.started.ended.borrow().is_some()
    }

    /// Whether the group may still be signalled.
    fn has_group(&self) -> bool {
        if self.has_ended() && test_kill_process_group(self.pid()) == Err(Errno::SRCH) {
            self.group_is_over.store(true, Ordering::Relaxed);
        }
        !self.group_is_over.load(Ordering::Relaxed)
    }

    /// Whether the program has ended and none of its processes is left.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.has_ended() && !self.has_group() && !self.processes.has_strays()
    }

    /// Waits until [`Child::is_gone`]. After `term` or `kill`, processes that the child leaves behind get the same
    /// signal.
    pub async fn gone(&mut self, clock: &dyn Clock) {
        self.ended().await;
        while !self.is_gone() {
            if self.killed {
                self.kill();
            } else {
                self.term_strays();
            }
            clock.sleep(LOOK).await;
        }
        // The group's number may be reused from now on.
        if let Some(mut watchdog) = self.watchdog.take() {
            watchdog.stop().await;
        }
    }
}
