//! The watchdog: a separate process that kills the child's group when the supervisor cannot.
//!
//! When a supervisor is killed, the kernel's parent-death signal kills the child, but not the processes that the child
//! started. When a supervisor is frozen (SIGSTOP, a debugger), nothing is killed while its lease runs out. The watchdog
//! reads the child's deadline from a pipe and kills when the deadline passes or the pipe breaks. Deadlines use the
//! kernel's boot clock, which both processes share and which counts suspend.
//!
//! A watchdog blocks all signals, since a service manager sends them to every process of a unit. One that is killed or
//! stopped all the same is replaced ([`Guard`]).
//!
//! Processes that left the child's group become children of the supervisor, or of another process once it is killed. So
//! the child carries a mark in its environment, which its descendants inherit, and the watchdog searches for the mark.
//! It misses only a process that was started with an empty environment in its own session, and only if the supervisor
//! was killed. The group is killed first because a search can take long.

mod guard;
mod orders;

use std::collections::HashSet;
use std::io::{self, BufRead};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, kill_process_group};
use rustix::time::{ClockId, clock_gettime};

use super::search::Search;
use crate::process::{children_of, has_living};
use crate::terminal::Terminal;

pub(super) use guard::Guard;
use orders::Orders;

/// The longest sleep between two checks of the boot clock, because sleeps do not count suspend.
const LOOK: Duration = Duration::from_millis(100);
/// The pause between two rounds of KILL: doubled from the first to the second value while a round finds no new process.
/// Such processes do not die of KILL, or a frozen supervisor does not reap them.
const AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The variable that marks the child and its descendants.
pub(super) const MARK: &str = "TENURE_RUN_MARK";
/// The variable that holds the mark in the watchdog. A different name, so that the watchdog does not find itself.
const WATCHDOG_MARK: &str = "TENURE_KEEP_MARK";

/// A mark that no other run on this machine has.
pub(super) fn mark() -> String {
    format!("{}-{}", std::process::id(), boot_time().as_nanos())
}

/// The watchdog process itself.
#[derive(Debug, Clone, Copy)]
pub struct WatchdogProcess {
    /// The process id of the supervisor.
    pub supervisor: Pid,
}

impl WatchdogProcess {
    /// Reads orders from stdin. Kills the child's group and everything the child started when the deadline passes or
    /// stdin ends, and takes the terminal back from it. Returns when nothing of the child is left.
    pub fn run(self) {
        // Before the first thread, so that all of them block the signals. Fails only for an invalid request.
        let _ = SigSet::all().thread_block();
        let mark = std::env::var(WATCHDOG_MARK).unwrap_or_default();
        let (tell, heard) = mpsc::channel();
        // The thread ends with the process.
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                if line.is_err() || tell.send(line.unwrap_or_default()).is_err() {
                    return;
                }
            }
        });
        let (mut orders, mut is_alone) = (Orders::default(), false);
        while orders.until.is_none_or(|until| boot_time() < until) {
            let wait = orders
                .until
                .map_or(LOOK, |until| until.saturating_sub(boot_time()).min(LOOK));
            match heard.recv_timeout(wait) {
                Ok(line) => orders.read(&line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    is_alone = true;
                    break;
                }
            }
        }
        if let Some(group) = orders.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        give_terminal_back(orders, is_alone);
        self.kill_all(orders.group, Search::of(format!("{MARK}={mark}")));
    }

    /// Kills the group and every marked process until none is left.
    fn kill_all(self, group: Option<Pid>, mut search: Search) {
        let (mut left, mut known, mut pause) = (group, HashSet::new(), AGAIN.0);
        loop {
            // An empty group never fills again, and its number may be reused.
            left = left.filter(|group| {
                let killed = kill_process_group(*group, Signal::KILL);
                killed != Err(Errno::SRCH) && has_living(*group) != Some(false)
            });
            let (mut any, mut news) = (false, false);
            let mut kill = |pid| {
                let _ = kill_process(pid, Signal::KILL);
                (any, news) = (true, known.insert(pid) || news);
            };
            self.strays().into_iter().for_each(&mut kill);
            let complete = search.scan(&mut kill);
            if left.is_none() && complete && !any {
                return;
            }
            search.wait(pause);
            pause = if news { AGAIN.0 } else { (pause * 2).min(AGAIN.1) };
        }
    }

    /// The supervisor's children outside the group, if the supervisor still exists: we are one of its children.
    fn strays(self) -> Vec<Pid> {
        if getppid() != Some(self.supervisor) {
            // The supervisor is gone, so its pid may be reused.
            return Vec::new();
        }
        let mut strays = children_of(self.supervisor);
        strays.retain(|pid| *pid != getpid());
        strays
    }
}

/// Does at the terminal what the supervisor does not. `is_alone`: it is gone. A script around it may have been stopped in the
/// meantime, because it read from the terminal, and no shell continues it.
fn give_terminal_back(orders: Orders, is_alone: bool) {
    let Some((group, (own, modes))) = orders.group.zip(orders.terminal) else {
        return;
    };
    if let Some(terminal) = Terminal::of(own, modes)
        && terminal.take_from(group)
    {
        terminal.restore();
        if is_alone {
            let _ = kill_process_group(own, Signal::CONT);
        }
    }
}

fn boot_time() -> Duration {
    let at = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(at.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(at.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    /// A process in its own group, for the watchdog to kill.
    fn group() -> (std::process::Child, Pid) {
        let process = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
        (process, pid)
    }

    #[test]
    fn group_is_killed_before_the_search_and_strangers_survive() {
        let ((mut kept, group), (mut stranger, its)) = (self::group(), self::group());
        let ((tell, looks), (_go, wait)) = (mpsc::channel(), mpsc::channel::<()>());
        let wait = std::sync::Mutex::new(wait);
        let look = move |_| {
            tell.send(()).unwrap();
            wait.lock().unwrap().recv().is_ok()
        };
        // No process is both this pid and our parent, so the watchdog skips the children search.
        let supervisor = getpid();
        std::thread::spawn(move || {
            WatchdogProcess { supervisor }.kill_all(Some(group), Search::by(std::sync::Arc::new(look)))
        });
        let long = Duration::from_secs(20);
        tenure_testkit::wait::until("the group is dead", long, || kept.try_wait().unwrap().is_some());
        looks.recv_timeout(long).unwrap();
        // All kills that need no search are done by now; a KILL would have arrived first.
        kill_process(its, Signal::TERM).unwrap();
        let ended = std::os::unix::process::ExitStatusExt::signal(&stranger.wait().unwrap());
        assert_eq!(ended, Some(Signal::TERM.as_raw()));
    }
}
