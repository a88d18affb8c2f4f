//! A child process that a test starts, pauses, kills and restarts.
//!
//! The process leads its own process group. A guard in the same group, a shell that reads from a pipe of the test,
//! kills the group and removes its directory if the test dies without running its destructors. While the guard is not
//! reaped, the group's id cannot be reused, so killing the group is safe even after its leader has ended.
//!
//! The same guard stops a process that outlives the test ([`Process::spawn_for_run`]) when the test runner ends.

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

/// The number of log lines shown for a process that fails.
const TAIL: usize = 40;
/// How long [`Process::pause`] waits for the stop. A process whose child was stopped between fork and exec never shows
/// the state, although it is stopped.
const STILL: Duration = Duration::from_secs(5);

/// A running (or stopped and restartable) child process with a temporary directory.
///
/// Its output goes to the file `log` in that directory. Dropping the handle kills the process and removes the
/// directory; if the test is panicking, the end of the log is printed first.
#[derive(Debug)]
pub struct Process {
    name: String,
    dir: TempDir,
    /// The folder of the run, for a process that lives until the run ends.
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
    /// Starts the command that `build` returns for the new process' directory.
    ///
    /// # Errors
    /// If the directory or the process cannot be created.
    pub fn spawn(name: &str, build: impl FnOnce(&Path) -> Command) -> Result<Process> {
        Process::spawn_in(None, name, build)
    }

    /// Like [`Process::spawn`], for a process that many tests of one run share. Once its handle is forgotten
    /// (`std::mem::forget`), it lives until the parent of this process, the test runner, has ended. Then `folder`,
    /// which contains its directory, is removed.
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
    /// If the process ends or `within` passes first; the error contains the last probe's error and the end of the log.
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

    /// Kills the process if it runs and starts the same command in the same directory. The caller waits for readiness.
    ///
    /// # Errors
    /// If the process cannot be started.
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

    /// Kills the process group with SIGKILL, including children that the leader left behind. Does nothing if there is
    /// none.
    pub fn kill(&self) {
        let Some(mut running) = self.lock().take() else {
            return;
        };
        // An error means that the whole group has ended already.
        let _ = kill_process_group(Pid::from_child(&running.child), Signal::KILL);
        let _ = running.child.wait();
        let _ = running.guard.wait();
    }

    /// Sends SIGTERM to the process (not the group) and waits for its end. Children that it leaves behind are killed
    /// with the handle, so that a test can check whether it cleans up.
    ///
    /// # Errors
    /// If it is not running or still runs after `within`; it keeps running then.
    pub fn terminate(&self, within: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        // A stopped process would not handle the signal. It may already have ended.
        let _ = self.resume();
        self.wait(within)
    }

    /// Waits until the process ends. Its status can be read again until it is restarted or killed.
    ///
    /// # Errors
    /// If it was killed or still runs after `within`.
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

    /// Stops the process group with SIGSTOP and waits until it is stopped.
    ///
    /// # Errors
    /// If it is not running.
    pub fn pause(&self) -> Result<()> {
        let pid = self.group(Signal::STOP)?;
        let (deadline, mut pace) = (Instant::now() + STILL, Pace::new());
        while !is_stopped(pid) && Instant::now() < deadline {
            pace.sleep();
        }
        Ok(())
    }

    /// Resumes a paused process group.
    ///
    /// # Errors
    /// If it is not running.
    pub fn resume(&self) -> Result<()> {
        self.group(Signal::CONT).map(drop)
    }

    /// Sends a signal to the process (not to its group).
    ///
    /// # Errors
    /// If it is not running.
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

    /// Whether the process runs; true for a paused one.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.pid().is_some()
    }

    /// The process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        alive(self.lock().as_mut()).map(|child| child.id())
    }

    /// The process' directory, removed with the handle.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its output so far, of all restarts.
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

/// Starts a shell in `group` that reads from a pipe. The kernel closes the pipe when the test process dies; then the
/// shell kills the group's leader, removes its directory, and kills the group. A stopped group is woken with a SIGHUP,
/// which the shell must survive.
///
/// For a whole run it waits for the test runner instead, and sends the leader SIGQUIT before the SIGKILL, so that
/// Postgres frees its shared memory.
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

/// Whether the kernel reports the process as stopped. Without `/proc` it returns true.
fn is_stopped(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    // The name in parentheses may contain any character; the state follows the last parenthesis.
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| rest.trim_start().starts_with(['T', 't', 'Z', 'X']))
}

/// Unwraps the result of a server handle; a failure ends the test.
#[track_caller]
pub(crate) fn must<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error:#}"),
    }
}

#[cfg(test)]
mod tests;
