//! The processes of this program: one thread starts them, one task waits for them.
//!
//! * The kernel kills a child whose parent *thread* ends (see [`launch`]). So one thread that never ends starts all.
//! * A `wait` for any child takes the exit codes that other waiters need. So one task waits for all: it delivers the
//!   codes of our own children and reaps the rest. As process 1 of a container, and as a *subreaper*, the rest are
//!   orphans.
//! * A process that a child leaves behind becomes our child, even in its own session and group. So it cannot escape the
//!   child's end.
//! * As process 1 we also adopt background processes of `docker exec`. The kernel does not record where an orphan came
//!   from, and its environment can be overwritten, so such a process counts as left behind by the child and ends with
//!   it. If that matters, make another program process 1 (`docker run --init`): a subreaper that is not process 1
//!   adopts only its own descendants.

pub mod launch;
mod spawner;
mod table;

use std::collections::{HashMap, HashSet};
use std::io;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpgid, getpid, kill_process, kill_process_group,
    set_child_subreaper, test_kill_process_group, wait, waitid,
};
use tenure_core::clock::Clock;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

pub(crate) use table::{all, children_of, has_living, has_variable};

/// The reap interval if SIGCHLD is lost.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// The exit code of a process that reports none.
const FAILED: u8 = 1;

/// The processes that this program started and those they left behind. Clones share state.
#[derive(Debug, Clone)]
pub struct Processes {
    own: Arc<Mutex<OwnChildren>>,
    _reaper: Arc<Reaper>,
}

/// The channels of our own children, by pid.
type OwnChildren = HashMap<i32, watch::Sender<ProcessState>>;

/// What is known of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// It was started.
    Running,
    /// This signal stopped it. It may have been continued since.
    Stopped(Signal),
    /// It has ended with this exit code: its own, or 128 + the signal that killed it.
    Ended(u8),
}

/// The reaping task. It ends with the last handle.
#[derive(Debug)]
struct Reaper(tokio::task::JoinHandle<()>);

impl Drop for Reaper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A process started here.
#[derive(Debug)]
pub struct Started {
    /// The process id.
    pub pid: Pid,
    /// Its state.
    pub state: watch::Receiver<ProcessState>,
    /// Its stdin, if the command asked for a pipe.
    pub stdin: Option<std::process::ChildStdin>,
}

impl Started {
    /// The exit code, once it has ended.
    #[must_use]
    pub fn code_now(&self) -> Option<u8> {
        match *self.state.borrow() {
            ProcessState::Ended(code) => Some(code),
            ProcessState::Running | ProcessState::Stopped(_) => None,
        }
    }

    /// Waits until it has ended and returns its exit code. May be called again.
    pub async fn code(&mut self) -> u8 {
        // Without a reaper there is no code.
        let ended = self
            .state
            .wait_for(|state| matches!(state, ProcessState::Ended(_)))
            .await;
        ended.map_or(FAILED, |state| match *state {
            ProcessState::Ended(code) => code,
            ProcessState::Running | ProcessState::Stopped(_) => FAILED,
        })
    }

    /// Waits until it stops or has ended. Returns each stop once, and the end each time. Cancel-safe.
    pub async fn stopped_or_ended(&mut self) -> ProcessState {
        loop {
            if let Some(code) = self.code_now() {
                return ProcessState::Ended(code);
            }
            if self.state.changed().await.is_err() {
                return ProcessState::Ended(FAILED);
            }
            let state = *self.state.borrow();
            if matches!(state, ProcessState::Stopped(_)) {
                return state;
            }
        }
    }
}

impl Processes {
    /// Manages all children of this program: it adopts the processes they leave behind and reaps every child. At most
    /// one per process, which must not start processes in any other way.
    ///
    /// # Errors
    /// When the system refuses a signal handler.
    pub fn adopting(clock: &Arc<dyn Clock>) -> io::Result<Self> {
        // Without it (old kernels) orphans outside the group are out of reach, unless we are process 1.
        if let Err(error) = set_child_subreaper(Some(getpid())) {
            tracing::warn!(%error, "cannot become a subreaper; orphans of the program are not adopted");
        }
        let mut ends = signal(SignalKind::child())?;
        let (own, clock) = (Arc::new(Mutex::new(OwnChildren::new())), Arc::clone(clock));
        let waits_for = Arc::clone(&own);
        let reaper = tokio::spawn(async move {
            loop {
                reap(&waits_for);
                tokio::select! {
                    _ = ends.recv() => {}
                    () = clock.sleep(REAP_INTERVAL) => {}
                }
            }
        });
        Ok(Self {
            own,
            _reaper: Arc::new(Reaper(reaper)),
        })
    }

    /// Starts a process, on a thread that lives as long as this program.
    ///
    /// # Errors
    /// The system's. Nothing was started then.
    pub async fn spawn(&self, mut command: Command) -> io::Result<Started> {
        let own = Arc::clone(&self.own);
        spawner::run(move || {
            // Held until the pid is recorded, so the reaper cannot take the child for an orphan.
            let mut own = lock(&own);
            let mut child = command.spawn()?;
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let pid = pid.ok_or_else(|| io::Error::other("the process has no id"))?;
            let (tell, state) = watch::channel(ProcessState::Running);
            own.insert(pid.as_raw_pid(), tell);
            Ok(Started {
                pid,
                state,
                stdin: child.stdin.take(),
            })
        })
        .await
    }

    /// Whether any process that our children left behind is alive.
    #[must_use]
    pub fn has_strays(&self) -> bool {
        let any_child = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::All, any_child), Err(Errno::CHILD)) {
            return false;
        }
        let own = lock(&self.own);
        self.strays(&own).next().is_some()
    }

    /// Signals every process that our children left behind.
    pub fn signal_strays(&self, signal: Signal) {
        // Holding the lock stops the reaper, so no pid can be reused.
        let own = lock(&self.own);
        for stray in self.strays(&own) {
            let _ = kill_process(stray, signal);
        }
    }

    /// Sends TERM to the strays that are not in `known`, then sets `known` to all current strays.
    pub(crate) fn term_new_strays(&self, known: &mut HashSet<Pid>) {
        let own = lock(&self.own);
        let strays: HashSet<Pid> = self.strays(&own).collect();
        for stray in strays.difference(known) {
            let _ = kill_process(*stray, Signal::TERM);
            // A stopped process does not act on TERM.
            let _ = kill_process(*stray, Signal::CONT);
        }
        *known = strays;
    }

    /// Kills the group that one of our processes leads. If that process has ended, only while a stray of ours is in the
    /// group: otherwise its number may belong to another group.
    pub(crate) fn kill_group_of(&self, leader: Pid) {
        let own = lock(&self.own);
        let leads = own.contains_key(&leader.as_raw_pid());
        let has_left = || {
            let is_there = test_kill_process_group(leader).is_ok();
            is_there && self.strays(&own).any(|stray| getpgid(Some(stray)) == Ok(leader))
        };
        if leads || has_left() {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }

    fn strays<'a>(&self, own: &'a OwnChildren) -> impl Iterator<Item = Pid> + 'a {
        children_of(getpid())
            .into_iter()
            .filter(|pid| !own.contains_key(&pid.as_raw_pid()))
    }
}

/// Reaps every process that has ended, and notes which of ours have stopped.
fn reap(own: &Mutex<OwnChildren>) {
    let mut own = lock(own);
    loop {
        match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => tell(&mut own, pid, status),
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return,
        }
    }
}

fn tell(own: &mut OwnChildren, pid: Pid, status: WaitStatus) {
    let pid = pid.as_raw_pid();
    match status.stopping_signal().map(Signal::from_named_raw) {
        None => {
            if let Some(tell) = own.remove(&pid) {
                tell.send_replace(ProcessState::Ended(code_of(status)));
            }
        }
        Some(signal) => {
            if let Some(tell) = own.get(&pid) {
                tell.send_replace(ProcessState::Stopped(signal.unwrap_or(Signal::STOP)));
            }
        }
    }
}

/// A process's exit code: its own, or 128 + the signal that killed it.
fn code_of(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    let code = status.exit_status().or(signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

fn lock(own: &Mutex<OwnChildren>) -> MutexGuard<'_, OwnChildren> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use tenure_core::clock::SystemClock;

    #[tokio::test]
    #[expect(clippy::zombie_processes, reason = "the reaper waits for it")]
    async fn only_a_group_that_is_still_ours_is_killed() {
        let processes = Processes::adopting(&SystemClock::shared()).unwrap();
        let mut sleep = Command::new("sleep");
        sleep.arg("1000").process_group(0);
        let mut ours = processes.spawn(sleep).await.unwrap();
        processes.kill_group_of(ours.pid);
        assert_eq!(ours.code().await, 128 + 9);
        // A group of another process's child, which could have reused the number.
        let mut shell = Command::new("sh");
        shell.args(["-c", "setsid sleep 1000 & echo $!; wait $!; exit $?"]);
        shell.stdout(std::process::Stdio::piped());
        let mut parent = shell.spawn().unwrap();
        let mut pid = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(parent.stdout.take().unwrap()), &mut pid).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        processes.kill_group_of(pid);
        // A KILL would have arrived first.
        kill_process(pid, Signal::TERM).unwrap();
        let (tell, mut state) = watch::channel(ProcessState::Running);
        lock(&processes.own).insert(i32::try_from(parent.id()).unwrap(), tell);
        let ended = state.wait_for(|state| matches!(state, ProcessState::Ended(_))).await;
        assert_eq!(*ended.unwrap(), ProcessState::Ended(128 + 15));
    }
}
