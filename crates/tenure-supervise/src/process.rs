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
    set_child_subreaper, test_kill_process_group, wait, waitid, waitpid,
};
use tenure_core::clock::Clock;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

pub(crate) use table::{all, children_of, has_variable};

/// The reap interval if SIGCHLD is lost.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// The exit code of a process that reports none.
const FAILED: u8 = 1;

/// The processes that this program started and those they left behind. Clones share state.
#[derive(Debug, Clone)]
pub struct Processes {
    own: Arc<Mutex<ExitWatchers>>,
    adopts: bool,
    _reaper: Arc<Reaper>,
}

/// The exit code channels of our own children, by pid.
type ExitWatchers = HashMap<i32, watch::Sender<Option<u8>>>;

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
    /// The exit code once it has ended: its own, or 128 + the signal that killed it.
    pub ended: watch::Receiver<Option<u8>>,
    /// Its stdin, if the command asked for a pipe.
    pub stdin: Option<std::process::ChildStdin>,
}

impl Started {
    /// Waits until it has ended and returns its exit code. May be called again.
    pub async fn code(&mut self) -> u8 {
        match self.ended.wait_for(Option::is_some).await {
            Ok(code) => code.unwrap_or(FAILED),
            // The reaper is gone.
            Err(_) => FAILED,
        }
    }
}

impl Processes {
    /// Manages all children of this program: it adopts the processes they leave behind and reaps every child. For a
    /// program that only runs another one, like a container's entrypoint. At most one per process, which must not start
    /// processes in any other way.
    ///
    /// # Errors
    /// When the system refuses a signal handler.
    pub fn adopting(clock: &Arc<dyn Clock>) -> io::Result<Self> {
        // Without it (old kernels) orphans outside the group are out of reach, unless we are process 1.
        if let Err(error) = set_child_subreaper(Some(getpid())) {
            tracing::warn!(%error, "cannot become a subreaper; orphans of the program are not adopted");
        }
        Self::start(clock, true)
    }

    /// Manages only the processes started here. For a program that also does other things.
    ///
    /// # Errors
    /// When the system refuses a signal handler.
    pub fn own(clock: &Arc<dyn Clock>) -> io::Result<Self> {
        Self::start(clock, false)
    }

    fn start(clock: &Arc<dyn Clock>, adopts: bool) -> io::Result<Self> {
        let mut ends = signal(SignalKind::child())?;
        let (own, clock) = (Arc::new(Mutex::new(ExitWatchers::new())), Arc::clone(clock));
        let waits_for = Arc::clone(&own);
        let reaper = tokio::spawn(async move {
            loop {
                reap(&waits_for, adopts);
                tokio::select! {
                    _ = ends.recv() => {}
                    () = clock.sleep(REAP_INTERVAL) => {}
                }
            }
        });
        Ok(Self {
            own,
            adopts,
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
            let (tell, ended) = watch::channel(None);
            own.insert(pid.as_raw_pid(), tell);
            Ok(Started {
                pid,
                ended,
                stdin: child.stdin.take(),
            })
        })
        .await
    }

    /// Whether any process that our children left behind is alive.
    #[must_use]
    pub fn has_strays(&self) -> bool {
        if !self.adopts {
            return false;
        }
        let any_child = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::All, any_child), Err(Errno::CHILD)) {
            return false;
        }
        let own = lock(&self.own);
        self.strays(&own).next().is_some()
    }

    /// Signals every process that our children left behind.
    pub fn signal_strays(&self, signal: Signal) {
        if !self.adopts {
            return;
        }
        // Holding the lock stops the reaper, so no pid can be reused.
        let own = lock(&self.own);
        for stray in self.strays(&own) {
            let _ = kill_process(stray, signal);
        }
    }

    /// Signals the strays that are not in `known`, then sets `known` to all current strays.
    pub(crate) fn signal_new_strays(&self, signal: Signal, known: &mut HashSet<Pid>) {
        if !self.adopts {
            return;
        }
        let own = lock(&self.own);
        let strays: HashSet<Pid> = self.strays(&own).collect();
        for stray in strays.difference(known) {
            let _ = kill_process(*stray, signal);
        }
        *known = strays;
    }

    /// Kills the group that one of our processes leads. If that process has ended, only while a stray of ours is in the
    /// group: otherwise its number may belong to another group.
    pub(crate) fn kill_group_of(&self, leader: Pid) {
        let own = lock(&self.own);
        let leads = own.contains_key(&leader.as_raw_pid());
        let has_left = || {
            let is_there = self.adopts && test_kill_process_group(leader).is_ok();
            is_there && self.strays(&own).any(|stray| getpgid(Some(stray)) == Ok(leader))
        };
        if leads || has_left() {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }

    fn strays<'a>(&self, own: &'a ExitWatchers) -> impl Iterator<Item = Pid> + 'a {
        children_of(getpid())
            .into_iter()
            .filter(|pid| !own.contains_key(&pid.as_raw_pid()))
    }
}

/// Reaps every process that has ended.
fn reap(own: &Mutex<ExitWatchers>, adopts: bool) {
    let mut own = lock(own);
    if adopts {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => tell(&mut own, pid, status),
                Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }
    let pids: Vec<_> = own.keys().copied().filter_map(Pid::from_raw).collect();
    for pid in pids {
        match waitpid(Some(pid), WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => tell(&mut own, pid, status),
            // Another waiter reaped it, so its exit code is unknown.
            Err(Errno::CHILD) => _ = own.remove(&pid.as_raw_pid()),
            Ok(None) | Err(_) => {}
        }
    }
}

fn tell(own: &mut ExitWatchers, pid: Pid, status: WaitStatus) {
    if let Some(tell) = own.remove(&pid.as_raw_pid()) {
        tell.send_replace(Some(code_of(status)));
    }
}

/// A process's exit code: its own, or 128 + the signal that killed it.
fn code_of(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    let code = status.exit_status().or(signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

fn lock(own: &Mutex<ExitWatchers>) -> MutexGuard<'_, ExitWatchers> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use tenure_core::clock::SystemClock;

    #[tokio::test]
    async fn only_a_group_that_is_still_ours_is_killed() {
        let processes = Processes::own(&SystemClock::shared()).unwrap();
        let mut sleep = Command::new("sleep");
        sleep.arg("1000").process_group(0);
        let mut ours = processes.spawn(sleep).await.unwrap();
        processes.kill_group_of(ours.pid);
        assert_eq!(ours.code().await, 128 + 9);
        // A foreign group, which could have reused the number.
        let mut stranger = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(stranger.id()).unwrap()).unwrap();
        processes.kill_group_of(pid);
        // A KILL would have arrived first.
        kill_process(pid, Signal::TERM).unwrap();
        let ended = std::os::unix::process::ExitStatusExt::signal(&stranger.wait().unwrap());
        assert_eq!(ended, Some(Signal::TERM.as_raw()));
    }
}
