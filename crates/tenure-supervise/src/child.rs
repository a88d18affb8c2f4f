//! The child: one program in a process group of its own, from its start until nothing of it is left.

mod keeper;
mod search;

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
    /// What is different in the environment of every command that is started: variables that it does not get, since they
    /// are secrets of ours, and those that it gets in other words.
    pub environment: Vec<(OsString, Option<OsString>)>,
}

impl Helpers {
    /// The running executable, with its own words for the two.
    #[must_use]
    pub fn of_this_program(launch: &str, keep: &str) -> Self {
        Self {
            program: PathBuf::from("/proc/self/exe"),
            launch: vec![launch.into()],
            keep: vec![keep.into()],
            environment: Vec::new(),
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
    keeper: Option<Keeper>,
    /// It has ended, and then its group was seen empty: the number may mean another group by now.
    group_is_over: AtomicBool,
    /// It was asked to end, and so were these, which it has left behind.
    termed: Mutex<Option<HashSet<Pid>>>,
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
        let mark = keeper::mark();
        let mut command = program.helpers.launch(&program.command);
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
            group_is_over: AtomicBool::new(false),
            termed: Mutex::default(),
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
        if self.has_group() {
            let _ = kill_process_group(self.pid(), signal);
        }
    }

    /// Asks it to end, with everything that it has left behind. What it leaves behind from now on is asked while
    /// [`Child::gone`] is waited for.
    pub fn term(&self) {
        self.pass(Signal::TERM);
        *self.termed.lock().unwrap_or_else(PoisonError::into_inner) = Some(HashSet::new());
        self.term_strays();
    }

    /// Kills it, with everything that it has started.
    pub fn kill(&mut self) {
        self.killed = true;
        self.pass(Signal::KILL);
        self.processes.signal_strays(Signal::KILL);
    }

    /// A daemon in a session of its own is nobody's but its parent's to end, for as long as it has one.
    fn term_strays(&self) {
        if let Some(termed) = &mut *self.termed.lock().unwrap_or_else(PoisonError::into_inner) {
            self.processes.signal_new_strays(Signal::TERM, termed);
        }
    }

    fn has_ended(&self) -> bool {
        self.started.ended.borrow().is_some()
    }

    /// Whether its group may still be signalled.
    fn has_group(&self) -> bool {
        if self.has_ended() && test_kill_process_group(self.pid()) == Err(Errno::SRCH) {
            self.group_is_over.store(true, Ordering::Relaxed);
        }
        !self.group_is_over.load(Ordering::Relaxed)
    }

    /// Whether it has ended, and nothing that it has started is left.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.has_ended() && !self.has_group() && !self.processes.has_strays()
    }

    /// Waits until it is gone. Once it was asked to end, so is whatever it leaves behind meanwhile; once it was killed, so
    /// is whatever appears of it.
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
        // Its group's number may mean somebody else from now on.
        if let Some(mut keeper) = self.keeper.take() {
            keeper.dismiss().await;
        }
    }
}
