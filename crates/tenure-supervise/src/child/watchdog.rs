//! The watchdog: a separate process that kills the child's group when the supervisor cannot.
//!
//! When a supervisor is killed, the kernel's parent-death signal kills the child, but not the processes that the child
//! started. When a supervisor is frozen (SIGSTOP, a debugger), nothing is killed while its lease runs out. The watchdog
//! reads the child's deadline from a pipe and kills when the deadline passes or the pipe breaks. Deadlines use the
//! kernel's boot clock, which both processes share and which counts suspend.
//!
//! Processes that left the child's group become children of the supervisor, or of another process once it is killed. So
//! the child carries a mark in its environment, which its descendants inherit, and the watchdog searches for the mark.
//! It misses only a process that was started with an empty environment in its own session, and only if the supervisor
//! was killed. The group is killed first because a search can take long.

use std::collections::HashSet;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, kill_process_group};
use rustix::time::{ClockId, clock_gettime};
use tenure_core::clock::{Clock, Mono};

use super::Helpers;
use super::search::Search;
use crate::process::{Processes, Started, children_of};

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

/// The supervisor's handle of the watchdog process.
#[derive(Debug)]
pub struct Watchdog {
    process: Started,
    pipe: Option<ChildStdin>,
}

impl Watchdog {
    /// Starts a watchdog for the group of a running child.
    pub(super) async fn start(processes: &Processes, helpers: &Helpers, group: Pid, mark: &str) -> io::Result<Self> {
        let mut command = Command::new(&helpers.program);
        command
            .args(&helpers.watchdog)
            .arg(std::process::id().to_string())
            .arg(group.as_raw_pid().to_string())
            // If a nested supervisor kept the mark, the outer watchdog would also kill the inner one, which must still
            // act.
            .env_remove(MARK)
            .env(WATCHDOG_MARK, mark)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0);
        let mut process = processes.spawn(command).await?;
        let pipe = process.stdin.take();
        if let Some(pipe) = &pipe {
            // The write must not block when the watchdog does not read.
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(Self { process, pipe })
    }

    /// Sets the deadline of the child. `None`: as long as the supervisor lives.
    pub(super) fn set_deadline(&mut self, until: Option<Mono>, clock: &dyn Clock) {
        let line = match until {
            // The boot clock is read first: a pause between the two reads can only make the deadline earlier.
            Some(until) => {
                let boot = boot_time();
                format!("until {}\n", boot.saturating_add(until.since(clock.mono())).as_nanos())
            }
            None => "forever\n".to_owned(),
        };
        if let Some(pipe) = &mut self.pipe
            && let Err(error) = pipe.write_all(line.as_bytes())
        {
            tracing::warn!(%error, "cannot send the deadline to the child's watchdog");
        }
    }

    /// Stops the watchdog: none of the child's processes is left.
    pub(super) async fn stop(&mut self) {
        if self.process.ended.borrow().is_none() {
            let _ = kill_process(self.process.pid, Signal::KILL);
            self.process.code().await;
        }
    }
}

impl Drop for Watchdog {
    /// If the child may still run, the broken pipe makes the watchdog kill it.
    fn drop(&mut self) {
        self.pipe = None;
    }
}

/// The watchdog process itself.
#[derive(Debug, Clone, Copy)]
pub struct WatchdogProcess {
    /// The process id of the supervisor.
    pub supervisor: Pid,
    /// The child's process group.
    pub group: Pid,
}

impl WatchdogProcess {
    /// Reads deadlines from stdin. Kills the group and everything the child started when the deadline passes or stdin
    /// ends. Returns when nothing of it is left.
    pub fn run(self) {
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
        let mut until = None;
        while until.is_none_or(|until| boot_time() < until) {
            let wait = until.map_or(LOOK, |until: Duration| until.saturating_sub(boot_time()).min(LOOK));
            match heard.recv_timeout(wait) {
                Ok(line) => until = instant(&line).unwrap_or(until),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.kill_all(Search::of(format!("{MARK}={mark}")));
    }

    /// Kills the group and every marked process until none is left.
    fn kill_all(self, mut search: Search) {
        let (mut is_empty, mut known, mut pause) = (false, HashSet::new(), AGAIN.0);
        loop {
            // An empty group never fills again, and its number may be reused.
            is_empty = is_empty || kill_process_group(self.group, Signal::KILL) == Err(Errno::SRCH);
            let (mut any, mut news) = (false, false);
            let mut kill = |pid| {
                let _ = kill_process(pid, Signal::KILL);
                (any, news) = (true, known.insert(pid) || news);
            };
            self.strays().into_iter().for_each(&mut kill);
            let complete = search.scan(&mut kill);
            if is_empty && complete && !any {
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

/// `None`: not understood. `Some(None)`: no deadline.
#[expect(clippy::option_option, reason = "an unreadable line differs from no deadline")]
fn instant(line: &str) -> Option<Option<Duration>> {
    if line == "forever" {
        return Some(None);
    }
    let nanos = line.strip_prefix("until ")?.parse::<u64>().ok()?;
    Some(Some(Duration::from_nanos(nanos)))
}

fn boot_time() -> Duration {
    let at = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(at.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(at.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
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
            WatchdogProcess { supervisor, group }.kill_all(Search::by(std::sync::Arc::new(look)))
        });
        let long = Duration::from_secs(20);
        tenure_testkit::wait::until("the group is dead", long, || kept.try_wait().unwrap().is_some());
        looks.recv_timeout(long).unwrap();
        // All kills that need no search are done by now; a KILL would have arrived first.
        kill_process(its, Signal::TERM).unwrap();
        let ended = std::os::unix::process::ExitStatusExt::signal(&stranger.wait().unwrap());
        assert_eq!(ended, Some(Signal::TERM.as_raw()));
    }

    #[test]
    fn lines_parse_as_deadline_or_forever() {
        assert_eq!(instant("until 1500"), Some(Some(Duration::from_nanos(1_500))));
        assert_eq!(instant("forever"), Some(None));
        for line in ["", "until", "until -1", "until x", "for ever"] {
            assert_eq!(instant(line), None, "{line}");
        }
    }
}
