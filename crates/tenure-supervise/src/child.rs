//! The child: one program in its own process group, from its start until none of its processes is left.

mod search;
mod watchdog;

use std::collections::HashSet;
use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgrp, kill_process_group, test_kill_process_group};
use tenure_core::clock::{Clock, Mono};

use crate::process::{ProcessState, Processes, Started, has_living};
use crate::terminal::{self, Terminal};

use watchdog::Guard;
pub use watchdog::WatchdogProcess;

/// The poll interval for an empty group: the kernel reports no event for it.
const LOOK: Duration = Duration::from_millis(20);
/// Exit codes above stand for a signal.
const OF_SIGNALS: u8 = 128;

/// The program to run.
#[derive(Debug, Clone)]
pub struct Program {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The helper commands that start and guard it.
    pub helpers: Helpers,
}

/// The command lines of this executable for the two helper processes. The supervisor's process id is appended to both; to
/// the first also `--foreground` if the program shall wait for the terminal, `--` and the command.
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
        self.launch_with(&[], command)
    }

    fn launch_with(&self, options: &[&str], command: &[OsString]) -> Command {
        let mut launch = Command::new(&self.program);
        launch
            .args(&self.launch)
            .arg(std::process::id().to_string())
            .args(options)
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
    watchdog: Option<Guard>,
    /// That was returned as an event.
    unguarded: bool,
    terminal: Option<Terminal>,
    /// The program was stopped at the terminal, and so was this process. Both go on at this time of this process, or when
    /// it is continued.
    continues_at: Option<Mono>,
    /// The program has ended and its group was empty afterwards. Its number may belong to another group by now.
    group_is_over: AtomicBool,
    /// Set once the program was asked to end: the strays that already received TERM.
    termed: Mutex<Option<HashSet<Pid>>>,
    killed: bool,
}

/// What happened to a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildEvent {
    /// The program itself has ended, with this exit code (128 + n for a signal).
    Ended(u8),
    /// Nothing would kill the child if this process could not: its watchdogs are killed, or cannot be started.
    Unguarded,
}

impl Child {
    /// Starts the program with these variables in addition to our own. If this process is in the foreground of a terminal,
    /// the program takes its place.
    ///
    /// # Errors
    /// The system's; nothing runs then. A missing program is not an error here: the child exits with 127.
    pub async fn start(
        processes: &Processes,
        program: &Program,
        variables: Vec<(OsString, OsString)>,
        clock: &Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let mark = watchdog::mark();
        // First, so that the program never runs without it.
        let watchdog = Guard::start(processes, &program.helpers, &mark, clock).await?;
        let in_foreground = Terminal::open().is_some_and(|terminal| terminal.is_ours());
        let options = if in_foreground { &["--foreground"][..] } else { &[] };
        let mut command = program.helpers.launch_with(options, &program.command);
        command.envs(variables).env(watchdog::MARK, &mark);
        let started = match processes.spawn(command).await {
            Ok(started) => started,
            Err(error) => {
                watchdog.stop().await;
                return Err(error);
            }
        };
        watchdog.set_child(started.pid, None);
        let mut child = Self {
            processes: processes.clone(),
            started,
            watchdog: Some(watchdog),
            unguarded: false,
            terminal: Terminal::open(),
            continues_at: None,
            group_is_over: AtomicBool::new(false),
            termed: Mutex::default(),
            killed: false,
        };
        child.give_terminal();
        Ok(child)
    }

    /// The process id, which is also the id of the group.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.started.pid
    }

    /// Waits for the next event, and keeps to the rules of a terminal in between. The end may be returned again.
    /// Cancel-safe.
    pub async fn next(&mut self, clock: &dyn Clock) -> ChildEvent {
        loop {
            let continues_at = self.continues_at;
            let continues = async {
                match continues_at {
                    Some(at) => clock.sleep(at.since(clock.mono())).await,
                    None => pending().await,
                }
            };
            let unguarded = async {
                match &mut self.watchdog {
                    Some(watchdog) if !self.unguarded => watchdog.failed().await,
                    _ => pending().await,
                }
            };
            let state = tokio::select! {
                biased;
                state = self.started.stopped_or_ended() => state,
                () = continues => {
                    self.go_on();
                    continue;
                }
                () = unguarded => {
                    self.unguarded = true;
                    return ChildEvent::Unguarded;
                }
            };
            match state {
                ProcessState::Stopped(signal) => self.stopped(signal, clock),
                ProcessState::Ended(code) => {
                    self.give_terminal_back(code);
                    return ChildEvent::Ended(code);
                }
                ProcessState::Running => {}
            }
        }
    }

    /// Lets the watchdog kill the child at `until`, even if this process is frozen. `None` clears the deadline.
    pub fn set_deadline(&mut self, until: Option<Mono>, clock: &dyn Clock) {
        if let Some(watchdog) = &self.watchdog {
            watchdog.set_deadline(until, clock);
        }
    }

    /// Forwards a signal to the process group, if it still exists. CONT also moves the group into the foreground, if this
    /// process is there.
    pub fn pass(&mut self, signal: Signal) {
        match signal {
            Signal::CONT => self.go_on(),
            // A stopped process does not act on a signal that asks it to end.
            Signal::TERM | Signal::INT | Signal::QUIT => {
                self.signal_group(signal);
                self.signal_group(Signal::CONT);
            }
            _ => self.signal_group(signal),
        }
    }

    /// Asks the child to end: TERM and CONT to the group and to every process it left behind. Processes left behind later
    /// get the same while [`Child::gone`] waits.
    pub fn end(&self) {
        self.signal_group(Signal::TERM);
        self.signal_group(Signal::CONT);
        *self.termed.lock().unwrap_or_else(PoisonError::into_inner) = Some(HashSet::new());
        self.term_strays();
    }

    /// Kills the group and every process it left behind.
    pub fn kill(&mut self) {
        self.killed = true;
        self.signal_group(Signal::KILL);
        self.processes.signal_strays(Signal::KILL);
    }

    fn signal_group(&self, signal: Signal) {
        if self.has_group() {
            let _ = kill_process_group(self.pid(), signal);
        }
    }

    /// A daemon in its own session can only be ended by its parent, and we are its adoptive parent.
    fn term_strays(&self) {
        if let Some(termed) = &mut *self.termed.lock().unwrap_or_else(PoisonError::into_inner) {
            self.processes.term_new_strays(termed);
        }
    }

    /// A program at the terminal was stopped, by Ctrl-Z or because it read in the background. A shell waits for this
    /// process and not for the program, so this process stops as well.
    fn stopped(&mut self, signal: Signal, clock: &dyn Clock) {
        let Some(terminal) = &self.terminal else { return };
        if matches!(signal, Signal::TTIN | Signal::TTOU) && terminal.is_ours() {
            // This process was moved into the foreground in the meantime.
            return self.go_on();
        }
        terminal.take_from(self.started.pid);
        let _ = kill_process_group(getpgrp(), Signal::TSTP);
        // The kernel ignores TSTP where no shell could continue this process, and for process 1.
        self.continues_at = Some(clock.mono() + LOOK);
    }

    fn go_on(&mut self) {
        self.continues_at = None;
        self.give_terminal();
        self.signal_group(Signal::CONT);
    }

    fn give_terminal(&mut self) {
        let given = self
            .terminal
            .as_mut()
            .is_some_and(|terminal| terminal.give_to(self.started.pid));
        if let Some(watchdog) = self.watchdog.as_ref().filter(|_| given) {
            watchdog.set_child(self.started.pid, self.terminal.as_ref());
        }
    }

    /// Keeps the modes that a program set which ended by itself, like `stty`.
    fn give_terminal_back(&mut self, code: u8) {
        let Some(terminal) = self.terminal.take() else { return };
        if terminal.take_from(self.started.pid) {
            terminal::note_end(code);
        } else if !terminal.is_ours() {
            return;
        }
        if self.killed || code > OF_SIGNALS {
            terminal.restore();
        }
    }

    /// Whether the group may still be signalled.
    fn has_group(&self) -> bool {
        if self.started.code_now().is_some()
            && (test_kill_process_group(self.pid()) == Err(Errno::SRCH) || has_living(self.pid()) == Some(false))
        {
            self.group_is_over.store(true, Ordering::Relaxed);
        }
        !self.group_is_over.load(Ordering::Relaxed)
    }

    /// Whether the program has ended and none of its processes is left.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.started.code_now().is_some() && !self.has_group() && !self.processes.has_strays()
    }

    /// Waits until [`Child::is_gone`]. After `end` or `kill`, processes that the child leaves behind get TERM or KILL.
    pub async fn gone(&mut self, clock: &dyn Clock) {
        let code = self.started.code().await;
        self.give_terminal_back(code);
        while !self.is_gone() {
            if self.killed {
                self.kill();
            } else {
                self.term_strays();
            }
            clock.sleep(LOOK).await;
        }
        // The group's number may be reused from now on.
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.stop().await;
        }
    }
}
