//! The child: one program in a process group of its own, from its start until nothing of it is left.

mod keeper;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tenure_core::clock::{Clock, Mono};

use crate::process::{Processes, Started};

pub use keeper::{Keep, Keeper};

/// How often to look whether a group is empty: the kernel tells nobody when that happens.
const LOOK: Duration = Duration::from_millis(20);

/// What to run.
#[derive(Debug, Clone)]
pub struct Program {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The two small programs that stand by it.
    pub helpers: Helpers,
}

/// How this program calls itself for the two steps that need a process of their own. The supervisor's process id comes
/// behind both; it is followed by the command, or by the child's process group.
#[derive(Debug, Clone)]
pub struct Helpers {
    /// The executable.
    pub program: PathBuf,
    /// Leads to [`crate::process::launch::become_program`].
    pub launch: Vec<OsString>,
    /// Leads to [`Keep::run`].
    pub keep: Vec<OsString>,
}

impl Helpers {
    /// The running executable, with its own words for the two.
    #[must_use]
    pub fn of_this_program(launch: &str, keep: &str) -> Self {
        Self {
            program: PathBuf::from("/proc/self/exe"),
            launch: vec![launch.into()],
            keep: vec![keep.into()],
        }
    }

    /// A command that dies with this process, in a process group of its own.
    #[must_use]
    pub fn launch(&self, command: &[OsString]) -> Command {
        let mut launch = Command::new(&self.program);
        launch
            .args(&self.launch)
            .arg(std::process::id().to_string())
            .arg("--")
            .args(command)
            // Set before the program runs, and before the call that starts it returns: nobody sees it in our group.
            .process_group(0);
        launch
    }
}

/// The running program.
#[derive(Debug)]
pub struct Child {
    processes: Processes,
    started: Started,
    keeper: Option<Keeper>,
    killed: bool,
}

impl Child {
    /// Starts the program with these variables besides our own.
    ///
    /// # Errors
    /// Those of the system; nothing runs then. A program that is not there is no error here: it ends with 127.
    pub async fn start(
        processes: &Processes,
        program: &Program,
        variables: Vec<(OsString, OsString)>,
    ) -> io::Result<Self> {
        Self::start_without(processes, program, variables, &[]).await
    }

    /// As [`Child::start`], but the program does not get the variables of our own that are named in `kept_back`: secrets
    /// that it was not asked to know.
    ///
    /// # Errors
    /// As [`Child::start`].
    pub async fn start_without(
        processes: &Processes,
        program: &Program,
        variables: Vec<(OsString, OsString)>,
        kept_back: &[&str],
    ) -> io::Result<Self> {
        let mark = keeper::mark();
        let mut command = program.helpers.launch(&program.command);
        for variable in kept_back {
            command.env_remove(variable);
        }
        command.envs(variables).env(keeper::MARK, &mark);
        let started = processes.spawn(command).await?;
        // A group that nobody keeps is still a child that is supervised.
        let keeper = Keeper::start(processes, &program.helpers, started.pid, &mark)
            .await
            .inspect_err(|error| tracing::warn!(%error, "nobody will end what the child started if we are killed"))
            .ok();
        Ok(Self {
            processes: processes.clone(),
            started,
            keeper,
            killed: false,
        })
    }

    /// Its process id, which is that of its group.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.started.pid
    }

    /// Waits until the program itself has ended, and tells its exit code, or 128 + the signal that killed it. May be
    /// called again.
    pub async fn ended(&mut self) -> u8 {
        self.started.code().await
    }

    /// Has it killed at `until` even if this process is frozen then. `None`: for now nobody has to.
    pub fn keep_until(&mut self, until: Option<Mono>, clock: &dyn Clock) {
        if let Some(keeper) = &mut self.keeper {
            keeper.until(until, clock);
        }
    }

    /// Passes a signal on to its process group. There may be nobody left to get it.
    pub fn pass(&self, signal: Signal) {
        if !self.is_gone() {
            let _ = kill_process_group(self.pid(), signal);
        }
    }

    /// Asks it to end, with everything that it has started.
    pub fn term(&self) {
        self.blow(Signal::TERM);
    }

    /// Kills it, with everything that it has started.
    pub fn kill(&mut self) {
        self.killed = true;
        self.blow(Signal::KILL);
    }

    fn blow(&self, signal: Signal) {
        if self.is_gone() {
            return;
        }
        let _ = kill_process_group(self.pid(), signal);
        self.processes.signal_strays(signal);
    }

    /// Whether it has ended, and nothing that it has started is left.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let has_ended = self.started.ended.borrow().is_some();
        let group_is_empty = || test_kill_process_group(self.pid()) == Err(Errno::SRCH);
        has_ended && group_is_empty() && !self.processes.has_strays()
    }

    /// Waits until it is gone. Once it was killed, so is whatever appears of it meanwhile.
    pub async fn gone(&mut self, clock: &dyn Clock) {
        self.ended().await;
        while !self.is_gone() {
            if self.killed {
                self.blow(Signal::KILL);
            }
            clock.sleep(LOOK).await;
        }
        // Its group's number may mean somebody else from now on.
        if let Some(mut keeper) = self.keeper.take() {
            keeper.dismiss().await;
        }
    }
}
