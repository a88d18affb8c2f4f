//! The keeper: a process of its own that ends the child's group when the supervisor cannot.
//!
//! A supervisor that is killed takes the child along by the kernel's parent-death signal, but not what the child started;
//! and one that is frozen (SIGSTOP, a debugger) takes nobody along, while its lease runs out. The keeper reads from a
//! pipe until when the child may live: when that instant passes, and when the pipe breaks, it kills. The instants are
//! those of the kernel's boot clock, which both processes share and which counts suspend.
//!
//! What has left the child's group becomes a child of the supervisor, and of somebody else when that is killed. So the
//! child carries a mark in its environment, which all that it starts inherits: by that the keeper finds it, wherever it
//! hides. A program that starts another one with an empty environment in a session of its own, and whose supervisor is
//! killed, is the one that is not found. The group is struck first: it needs no search, and a search can take long.

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

/// The longest wait between two looks at the boot clock: what waits counts no suspend.
const LOOK: Duration = Duration::from_millis(100);
/// The pause between two blows: it doubles from the first to the second for as long as nobody new is found. What is left
/// then does not die of KILL, or nobody buries it (the supervisor is frozen).
const AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The variable that the child has, and all that it starts.
pub(super) const MARK: &str = "TENURE_RUN_MARK";
/// The variable in which its keeper has the same; another one, or it would find itself.
const KEEPS: &str = "TENURE_KEEP_MARK";

/// A mark that no other run on this machine has.
pub(super) fn mark() -> String {
    format!("{}-{}", std::process::id(), boot_time().as_nanos())
}

/// The supervisor's end of it.
#[derive(Debug)]
pub struct Keeper {
    process: Started,
    pipe: Option<ChildStdin>,
}

impl Keeper {
    /// Starts one for the group of a child that runs.
    pub(super) async fn start(processes: &Processes, helpers: &Helpers, group: Pid, mark: &str) -> io::Result<Self> {
        let mut command = Command::new(&helpers.program);
        command
            .args(&helpers.keep)
            .arg(std::process::id().to_string())
            .arg(group.as_raw_pid().to_string())
            // A supervisor below another one is killed by the keeper of that, and its own keeper then has work to do.
            .env_remove(MARK)
            .env(KEEPS, mark)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0);
        let mut process = processes.spawn(command).await?;
        let pipe = process.stdin.take();
        if let Some(pipe) = &pipe {
            // A keeper that does not read must not hold us up.
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(Self { process, pipe })
    }

    /// The child may live until this instant, or `None`: for as long as the supervisor does.
    pub(super) fn until(&mut self, until: Option<Mono>, clock: &dyn Clock) {
        let line = match until {
            // The boot clock is read first: a pause between the two can only make it earlier.
            Some(until) => {
                let boot = boot_time();
                format!("until {}\n", boot.saturating_add(until.since(clock.mono())).as_nanos())
            }
            None => "forever\n".to_owned(),
        };
        if let Some(pipe) = &mut self.pipe
            && let Err(error) = pipe.write_all(line.as_bytes())
        {
            tracing::warn!(%error, "the keeper of the child does not hear");
        }
    }

    /// There is nothing to keep any more.
    pub(super) async fn dismiss(&mut self) {
        if self.process.ended.borrow().is_none() {
            let _ = kill_process(self.process.pid, Signal::KILL);
            self.process.code().await;
        }
    }
}

impl Drop for Keeper {
    /// A supervisor that ends without the child's end being known leaves it to the keeper, by the broken pipe.
    fn drop(&mut self) {
        self.pipe = None;
    }
}

/// The keeper's own end of it.
#[derive(Debug, Clone, Copy)]
pub struct Keep {
    /// The process id of the supervisor.
    pub supervisor: Pid,
    /// The child's process group.
    pub group: Pid,
}

impl Keep {
    /// Reads from stdin until when the child may live, and kills its group and all that it has started when that has
    /// passed or nobody speaks any more. Returns when nothing of it is left.
    pub fn run(self) {
        let mark = std::env::var(KEEPS).unwrap_or_default();
        let (tell, heard) = mpsc::channel();
        // It ends with this process.
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
        self.strike(Search::of(format!("{MARK}={mark}")));
    }

    /// Kills the group and whatever else the child has started, until nothing of it is left.
    fn strike(self, mut search: Search) {
        let (mut is_empty, mut known, mut pause) = (false, HashSet::new(), AGAIN.0);
        loop {
            // An empty group never fills again: its number may mean another one by now.
            is_empty = is_empty || kill_process_group(self.group, Signal::KILL) == Err(Errno::SRCH);
            let (mut any, mut news) = (false, false);
            let mut kill = |pid| {
                let _ = kill_process(pid, Signal::KILL);
                (any, news) = (true, known.insert(pid) || news);
            };
            self.strays().into_iter().for_each(&mut kill);
            let complete = search.look_around(&mut kill);
            if is_empty && complete && !any {
                return;
            }
            search.rest(pause);
            pause = if news { AGAIN.0 } else { (pause * 2).min(AGAIN.1) };
        }
    }

    /// What has left the group and is a child of the supervisor, if that is there to adopt: we are one of its children.
    fn strays(self) -> Vec<Pid> {
        if getppid() != Some(self.supervisor) {
            // Its number may be another's by now.
            return Vec::new();
        }
        let mut strays = children_of(self.supervisor);
        strays.retain(|pid| *pid != getpid());
        strays
    }
}

/// `None`: not understood. `Some(None)`: for ever.
#[expect(clippy::option_option, reason = "an instant that may be never, or no word at all")]
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

    /// A process in a group of its own, which is its keeper's to kill.
    fn group() -> (std::process::Child, Pid) {
        let process = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
        (process, pid)
    }

    #[test]
    fn the_group_is_struck_before_anything_that_may_hang_and_nothing_of_a_stranger() {
        let ((mut kept, group), (mut stranger, its)) = (self::group(), self::group());
        let ((tell, looks), (_go, wait)) = (mpsc::channel(), mpsc::channel::<()>());
        let wait = std::sync::Mutex::new(wait);
        let look = move |_| {
            tell.send(()).unwrap();
            wait.lock().unwrap().recv().is_ok()
        };
        // Whoever has the number of the supervisor is not our parent.
        let supervisor = getpid();
        std::thread::spawn(move || Keep { supervisor, group }.strike(Search::by(std::sync::Arc::new(look))));
        let long = Duration::from_secs(20);
        tenure_testkit::wait::until("the group is dead", long, || kept.try_wait().unwrap().is_some());
        looks.recv_timeout(long).unwrap();
        // By now all that could be killed without a look is; KILL would come before it.
        kill_process(its, Signal::TERM).unwrap();
        let ended = std::os::unix::process::ExitStatusExt::signal(&stranger.wait().unwrap());
        assert_eq!(ended, Some(Signal::TERM.as_raw()));
    }

    #[test]
    fn a_line_is_an_instant_or_never_or_nothing() {
        assert_eq!(instant("until 1500"), Some(Some(Duration::from_nanos(1_500))));
        assert_eq!(instant("forever"), Some(None));
        for line in ["", "until", "until -1", "until x", "for ever"] {
            assert_eq!(instant(line), None, "{line}");
        }
    }
}
