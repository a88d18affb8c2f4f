//! A child process under a test's control: started, paused, killed, started again.
//!
//! The process leads a process group of its own. A guard in the same group, a shell blocked on a pipe from us, kills the
//! group and removes its directory when we die without running our destructors. As long as the guard is not reaped, the
//! group's number can't pass to somebody else, so that killing the group is safe even after its leader has ended.
//!
//! A process that outlives the test ([`Process::spawn_for_run`]) is guarded in the same way until the test runner ends.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
pub use rustix::process::Signal;
use rustix::process::{Pid, getppid, kill_process, kill_process_group};
use tempfile::TempDir;

use crate::wait::Pace;

/// Lines of its log that a process may say when it fails.
const TAIL: usize = 40;
/// How long [`Process::pause`] watches for a standstill. One whose child was stopped between fork and exec never shows
/// it, though it does stand still.
const STILL: Duration = Duration::from_secs(5);

/// A running (or stopped, and restartable) child process with a temporary directory of its own.
///
/// Its output goes to the file `log` in that directory. Dropping the handle kills the process and removes the
/// directory; when the test is panicking, the end of the log is printed first.
#[derive(Debug)]
pub struct Process {
    name: String,
    dir: TempDir,
    /// The folder of the run, for a process that lives as long as that.
    of_run: Option<PathBuf>,
    command: Mutex<Command>,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    guard: Child,
}

impl Process {
    /// Starts the command that `build` makes for the new process' directory.
    ///
    /// # Errors
    /// When the directory or the process can't be created.
    pub fn spawn(name: &str, build: impl FnOnce(&Path) -> Command) -> Result<Process> {
        Process::spawn_in(None, name, build)
    }

    /// As [`Process::spawn`], for a process that many tests of one run share: once its handle is forgotten
    /// (`std::mem::forget`) it lives until the program that started this one, the test runner, has ended. Then `folder`,
    /// in which it has its directory, is removed.
    ///
    /// # Errors
    /// As [`Process::spawn`].
    pub fn spawn_for_run(folder: &Path, name: &str, build: impl FnOnce(&Path) -> Command) -> Result<Process> {
        Process::spawn_in(Some(folder), name, build)
    }

    fn spawn_in(of_run: Option<&Path>, name: &str, build: impl FnOnce(&Path) -> Command) -> Result<Process> {
        let dir = tempfile::Builder::new()
            .prefix("tenure-test-")
            .tempdir_in(of_run.map_or_else(std::env::temp_dir, Path::to_owned))
            .context("create a directory")?;
        let mut command = build(dir.path());
        let log = File::options()
            .create(true)
            .append(true)
            .open(dir.path().join("log"))
            .context("create the log")?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        let process = Process {
            name: name.to_owned(),
            dir,
            of_run: of_run.map(Path::to_owned),
            command: Mutex::new(command),
            running: Mutex::new(None),
        };
        process.restart()?;
        Ok(process)
    }

    /// Polls `probe` until it succeeds.
    ///
    /// # Errors
    /// When the process ends or `within` passes first; the error carries the last probe's error and the log's tail.
    pub fn wait_ready(&self, within: Duration, mut probe: impl FnMut() -> Result<()>) -> Result<()> {
        let (deadline, mut pace) = (Instant::now() + within, Pace::new());
        loop {
            let Err(error) = probe() else { return Ok(()) };
            if !self.is_running() {
                bail!("{} ended before it was ready; its log:\n{}", self.name, self.log_tail());
            }
            if Instant::now() > deadline {
                bail!(
                    "{} not ready in {within:?}: {error:#}; its log:\n{}",
                    self.name,
                    self.log_tail()
                );
            }
            pace.sleep();
        }
    }

    /// Kills the process if it runs and starts the same command in the same directory. Readiness is the caller's to
    /// wait for.
    ///
    /// # Errors
    /// When the process can't be started.
    pub fn restart(&self) -> Result<()> {
        self.kill();
        let mut command = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = command.spawn().with_context(|| format!("start {}", self.name))?;
        let guard = guard(child.id(), self.dir.path(), self.of_run.as_deref()).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        *self.lock() = Some(Running { child, guard });
        Ok(())
    }

    /// Kills the process group with SIGKILL, what its leader may have left behind included. Does nothing when there is
    /// none.
    pub fn kill(&self) {
        let Some(mut running) = self.lock().take() else {
            return;
        };
        // A failure means that all of it is gone already, which is what was asked for.
        let _ = kill_process_group(Pid::from_child(&running.child), Signal::KILL);
        let _ = running.child.wait();
        let _ = running.guard.wait();
    }

    /// Asks the process to end (SIGTERM, to the process alone) and waits until it has. Children that it leaves behind
    /// are killed with the handle, not here: whether it cleans up is for the test to see.
    ///
    /// # Errors
    /// When it is not running or still runs after `within`; it is left running then.
    pub fn terminate(&self, within: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        // A paused one would not see the request; and one that is not may have ended by now.
        let _ = self.resume();
        self.wait(within)
    }

    /// Waits until the process ends by itself. Its status can be asked for again until it is restarted or killed.
    ///
    /// # Errors
    /// When it was killed or still runs after `within`.
    pub fn wait(&self, within: Duration) -> Result<ExitStatus> {
        let (deadline, mut pace) = (Instant::now() + within, Pace::new());
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!(
                    "{} still runs after {within:?}; its log:\n{}",
                    self.name,
                    self.log_tail()
                );
            }
            pace.sleep();
        }
    }

    /// Stops the process group with SIGSTOP and waits until it stands still.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause(&self) -> Result<()> {
        let pid = self.group(Signal::STOP)?;
        let (deadline, mut pace) = (Instant::now() + STILL, Pace::new());
        while !stands_still(pid) && Instant::now() < deadline {
            pace.sleep();
        }
        Ok(())
    }

    /// Lets a paused process group run on.
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume(&self) -> Result<()> {
        self.group(Signal::CONT).map(drop)
    }

    /// Sends a signal to the process (not to its group).
    ///
    /// # Errors
    /// When it is not running.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.send(|pid| kill_process(pid, signal)).map(drop)
    }

    fn group(&self, signal: Signal) -> Result<u32> {
        self.send(|group| kill_process_group(group, signal))
    }

    fn send(&self, send: impl FnOnce(Pid) -> rustix::io::Result<()>) -> Result<u32> {
        let mut slot = self.lock();
        let child = alive(slot.as_mut()).with_context(|| format!("{} is not running", self.name))?;
        send(Pid::from_child(child)).with_context(|| format!("signal {}", self.name))?;
        Ok(child.id())
    }

    /// Whether the process runs (a paused one does).
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.pid().is_some()
    }

    /// The process' id while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        alive(self.lock().as_mut()).map(|child| child.id())
    }

    /// The process' directory, removed with the handle.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Everything it printed so far, of all its restarts.
    #[must_use]
    pub fn log(&self) -> String {
        let path: PathBuf = self.dir.path().join("log");
        fs::read(path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The last lines of [`Process::log`].
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    fn try_wait(&self) -> Result<Option<ExitStatus>> {
        let mut slot = self.lock();
        let running = slot.as_mut().with_context(|| format!("{} is not running", self.name))?;
        Ok(running.child.try_wait()?)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the log of {} ends with:\n{}\n---", self.name, self.log_tail());
        }
        self.kill();
    }
}

/// The leader, unless it has ended.
fn alive(running: Option<&mut Running>) -> Option<&Child> {
    let child = &mut running?.child;
    matches!(child.try_wait(), Ok(None)).then_some(child)
}

/// A shell in `group` that waits for our end of its stdin to close, which the system does when we die in whatever way,
/// kills the group's leader, removes its directory, and kills the group. If the group is stopped then, the system wakes it
/// with a SIGHUP, which must not end it.
///
/// For a whole run it waits for the test runner instead, and asks the leader to end before it kills it: a Postgres gives
/// its shared memory back.
fn guard(group: u32, dir: &Path, of_run: Option<&Path>) -> Result<Child> {
    let wait = match of_run {
        None => "read -r _",
        Some(_) => r#"tail --pid="$3" -f /dev/null; kill -s QUIT "$1"; timeout 5 tail --pid="$1" -f /dev/null"#,
    };
    let script = format!(r#"trap "" HUP INT TERM QUIT; {wait}; kill -s KILL "$1"; rm -rf "$2"; kill -s KILL 0"#);
    Command::new("sh")
        .args(["-c", &script, "tenure-test-guard", &group.to_string()])
        .arg(of_run.unwrap_or(dir))
        .arg(Pid::as_raw(getppid()).to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(i32::try_from(group).context("a process group's number")?)
        .spawn()
        .context("start the guard")
}

/// Whether the system says that the process is stopped. Without `/proc` the signal is taken at its word.
fn stands_still(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    // The name in parentheses may contain anything, the state follows the last of them.
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| rest.trim_start().starts_with(['T', 't', 'Z', 'X']))
}

/// What the handles of the servers do with a failure: the test can't go on.
#[track_caller]
pub(crate) fn must<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error:#}"),
    }
}

#[cfg(test)]
mod tests;
