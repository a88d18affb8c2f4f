//! The processes of this program: started by one thread, waited for in one place.
//!
//! * The kernel kills a child whose parent *thread* ends (see [`launch`]), so one thread that never ends starts all.
//! * Whoever waits for "any child" takes the exit codes that others wait for. So here one task waits for all: it gives
//!   the code of a child of ours to whom it concerns, and buries the rest. As process 1 of a container, and as a
//!   *subreaper*, that rest are processes which somebody left behind.
//! * What a child has left behind, also in sessions and groups of its own, becomes a child of this process; so nothing
//!   can hide from its end.
//! * As process 1 so does what somebody has put into the background by entering the container from outside (`docker exec`).
//!   The kernel keeps no trace of where an orphan came from, and an environment can be written over, so it counts as left
//!   behind by the child and ends with it. Where that matters, let another program be process 1 (`docker run --init`): a
//!   subreaper that is not process 1 adopts its own descendants alone.

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

/// A child's end may be noticed this late when the kernel's word for it is lost.
const LOOK_ANYWAY: Duration = Duration::from_secs(1);

/// The exit code when a process has none that fits.
const FAILED: u8 = 1;

/// The processes that this program has started, and what they left behind. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Processes {
    own: Arc<Mutex<Own>>,
    adopts: bool,
    _reaper: Arc<Reaper>,
}

/// Whom an end concerns.
type Own = HashMap<i32, watch::Sender<Option<u8>>>;

/// The task that waits, which ends with the last handle.
#[derive(Debug)]
struct Reaper(tokio::task::JoinHandle<()>);

impl Drop for Reaper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A process that was started here.
#[derive(Debug)]
pub struct Started {
    /// Its id.
    pub pid: Pid,
    /// Its exit code, when it has ended: its own, or 128 + the signal that killed it.
    pub ended: watch::Receiver<Option<u8>>,
    /// A pipe to it, when the command asked for one.
    pub stdin: Option<std::process::ChildStdin>,
}

impl Started {
    /// Waits until it has ended, and tells its exit code. May be called again.
    pub async fn code(&mut self) -> u8 {
        match self.ended.wait_for(Option::is_some).await {
            Ok(code) => code.unwrap_or(FAILED),
            // Nobody waits for it any more.
            Err(_) => FAILED,
        }
    }
}

impl Processes {
    /// Takes charge of all children of this program: from now on what they leave behind becomes a child of this process
    /// too, and every child is reaped here. For a program whose one job is to run another, like the entrypoint of a
    /// container; at most one in a process, which must start no processes by other means.
    ///
    /// # Errors
    /// When the system gives no signals.
    pub fn adopting(clock: &Arc<dyn Clock>) -> io::Result<Self> {
        // Without it (an old kernel) what leaves the group and the parent is lost to us, unless we are process 1.
        if let Err(error) = set_child_subreaper(Some(getpid())) {
            tracing::warn!(%error, "what the program leaves behind cannot be adopted");
        }
        Self::start(clock, true)
    }

    /// Takes charge only of what is started here. For a program that does other things as well.
    ///
    /// # Errors
    /// When the system gives no signals.
    pub fn own(clock: &Arc<dyn Clock>) -> io::Result<Self> {
        Self::start(clock, false)
    }

    fn start(clock: &Arc<dyn Clock>, adopts: bool) -> io::Result<Self> {
        let mut ends = signal(SignalKind::child())?;
        let (own, clock) = (Arc::new(Mutex::new(Own::new())), Arc::clone(clock));
        let waits_for = Arc::clone(&own);
        let reaper = tokio::spawn(async move {
            loop {
                reap(&waits_for, adopts);
                tokio::select! {
                    _ = ends.recv() => {}
                    () = clock.sleep(LOOK_ANYWAY) => {}
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
    /// Those of the system. Nothing was started then.
    pub async fn spawn(&self, mut command: Command) -> io::Result<Started> {
        let own = Arc::clone(&self.own);
        spawner::run(move || {
            // Held until the child is known to be ours, so that it cannot be buried as a stranger.
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

    /// Whether anything is alive that the children of this program have left behind.
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

    /// Signals everything that the children of this program have left behind.
    pub fn signal_strays(&self, signal: Signal) {
        if !self.adopts {
            return;
        }
        // Nothing is reaped while it is held, so no id can get another meaning.
        let own = lock(&self.own);
        for stray in self.strays(&own) {
            let _ = kill_process(stray, signal);
        }
    }

    /// Signals those of them that are not among `known`; afterwards that has all that are there.
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

    /// Kills the group that a process of ours leads. When that process has ended, only as long as something is in the group
    /// that it has left behind, as far as that is known here: the number may mean another group by now.
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

    fn strays<'a>(&self, own: &'a Own) -> impl Iterator<Item = Pid> + 'a {
        children_of(getpid())
            .into_iter()
            .filter(|pid| !own.contains_key(&pid.as_raw_pid()))
    }
}

/// Buries everybody who has ended.
fn reap(own: &Mutex<Own>, adopts: bool) {
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
            // Somebody else has buried it; nobody will ever know its code.
            Err(Errno::CHILD) => _ = own.remove(&pid.as_raw_pid()),
            Ok(None) | Err(_) => {}
        }
    }
}

fn tell(own: &mut Own, pid: Pid, status: WaitStatus) {
    if let Some(tell) = own.remove(&pid.as_raw_pid()) {
        tell.send_replace(Some(code_of(status)));
    }
}

/// The exit code that tells how a process ended: its own, or 128 + the signal that killed it.
fn code_of(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    let code = status.exit_status().or(signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

fn lock(own: &Mutex<Own>) -> MutexGuard<'_, Own> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use tenure_core::clock::SystemClock;

    #[tokio::test]
    async fn a_group_is_killed_while_it_is_ours_and_its_number_is_left_alone_afterwards() {
        let processes = Processes::own(&SystemClock::shared()).unwrap();
        let mut sleep = Command::new("sleep");
        sleep.arg("1000").process_group(0);
        let mut ours = processes.spawn(sleep).await.unwrap();
        processes.kill_group_of(ours.pid);
        assert_eq!(ours.code().await, 128 + 9);
        // Somebody else's group, which could have got the number.
        let mut stranger = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(stranger.id()).unwrap()).unwrap();
        processes.kill_group_of(pid);
        // KILL would come before it.
        kill_process(pid, Signal::TERM).unwrap();
        let ended = std::os::unix::process::ExitStatusExt::signal(&stranger.wait().unwrap());
        assert_eq!(ended, Some(Signal::TERM.as_raw()));
    }
}
