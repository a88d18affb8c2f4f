//! A wrapper that runs in its surroundings: its start, its processes, its end, and the end of everything that is left.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, getpgid, kill_process_group};

use crate::census::{Census, Proc, Role};
use crate::lateness::Lateness;
use crate::script::CELL;
use crate::stage::make_pipe;

/// The pause between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(10);
/// How long the clean-up may take.
const CLEAN_UP: Duration = Duration::from_secs(20);
/// The number of lines of the log that are shown.
const TAIL: usize = 12;
/// The pipes by which the harness reaches the command and the terminal.
const PIPES: [&str; 3] = ["go", "storm", "keys"];

/// Where and by what a cell runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// The value of the mark that all its processes have.
    pub(crate) cell: String,
    pub(crate) dir: PathBuf,
    pub(crate) begun: Instant,
    pub(crate) census: Census,
    pub(crate) lateness: Lateness,
    stage: Child,
    /// The exit code is written by the stage, which lives longer than the wrapper.
    writes_code: bool,
    wrapper: Option<Pid>,
}

impl Running {
    /// Starts a command line in an empty folder.
    pub(crate) fn start(
        line: &[String],
        cell: &str,
        dir: PathBuf,
        writes_code: bool,
        (census, lateness): (&Census, &Lateness),
    ) -> Result<Self> {
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        for pipe in PIPES {
            make_pipe(&dir.join(pipe))?;
        }
        let log = File::options().create(true).append(true).open(dir.join("log"))?;
        let mut command = Command::new(&line[0]);
        command
            .args(&line[1..])
            .current_dir(&dir)
            .env(CELL, cell)
            .env_remove("TMPDIR");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TENURE_") {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let stage = command.spawn().with_context(|| format!("start {line:?}"))?;
        Ok(Self {
            cell: cell.to_owned(),
            dir,
            begun: Instant::now(),
            census: census.clone(),
            lateness: lateness.clone(),
            stage,
            writes_code,
            wrapper: None,
        })
    }

    /// All its processes.
    pub(crate) fn now(&self) -> Vec<Proc> {
        self.census.now(&self.cell)
    }

    /// Polls until `done` or `within` has passed; the time that the machine was late is added. Returns whether it is done.
    pub(crate) fn poll(&mut self, within: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let begin = Instant::now();
        loop {
            if done(self) {
                return true;
            }
            if begin.elapsed() > within + self.lateness.since(begin) {
                return false;
            }
            sleep(LOOK);
        }
    }

    /// Whether the command has created this file.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.dir.join(name).exists()
    }

    /// Finds the wrapper among the processes.
    pub(crate) fn find_wrapper(&mut self) -> bool {
        let all = self.now();
        let wrapper = all
            .iter()
            .find(|process| process.role == Role::Wrapper && process.is_alive());
        self.wrapper = wrapper.and_then(|process| Pid::from_raw(process.pid));
        self.wrapper.is_some()
    }

    /// The watchdog, unless it is stopped or has this number.
    pub(crate) fn watchdog(&self, but: i32) -> Option<Proc> {
        let all = self.now().into_iter();
        let mut guards = all.filter(|process| process.role == Role::Watchdog && process.is_alive());
        guards.find(|process| !process.is_stopped() && process.pid != but)
    }

    /// Signals the wrapper alone.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.wrapper {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Signals the wrapper's process group.
    pub(crate) fn signal_group(&self, signal: Signal) {
        if let Some(group) = self.wrapper.and_then(|pid| getpgid(Some(pid)).ok()) {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Signals all processes but those of the surrounding.
    pub(crate) fn signal_all(&self, signal: Signal) {
        let all = self.now();
        for process in all.iter().filter(|process| process.role != Role::Stage) {
            process.signal(signal);
        }
    }

    /// Ends the surrounding itself.
    pub(crate) fn kill_stage(&mut self) {
        let _ = self.stage.kill();
    }

    /// Writes a line to a pipe once it is read.
    pub(crate) fn write(&mut self, pipe: &str, line: &str) -> bool {
        let path = self.dir.join(pipe);
        self.poll(Duration::from_secs(5), |_| {
            // It fails while there is no reader.
            let open = rustix::fs::open(
                &path,
                OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
                Mode::empty(),
            );
            open.is_ok_and(|pipe| File::from(pipe).write_all(line.as_bytes()).is_ok())
        })
    }

    /// Whether the wrapper has ended, with its exit code if that can be known.
    pub(crate) fn ended(&mut self) -> Option<Option<i32>> {
        if self.writes_code
            && let Ok(code) = fs::read_to_string(self.dir.join("code"))
        {
            return Some(code.parse().ok());
        }
        match self.stage.try_wait() {
            Ok(Some(status)) if !self.writes_code => Some(status.code().or(status.signal().map(|signal| 128 + signal))),
            // The surrounding is gone, and nothing else can be asked than whether the wrapper is.
            Ok(Some(_)) => {
                let wrapper = self.now().into_iter().find(|process| process.role == Role::Wrapper);
                (!wrapper.is_some_and(|process| process.is_alive())).then_some(None)
            }
            _ => None,
        }
    }

    /// The processes of the command and the helpers of the wrapper that are alive.
    pub(crate) fn left(&self) -> Vec<String> {
        let all = self.now().into_iter();
        let of_wrapper = |role| matches!(role, Role::Command | Role::Watchdog | Role::Helper);
        all.filter(|process| of_wrapper(process.role) && process.is_alive())
            .map(|process| process.shown())
            .collect()
    }

    /// The last lines that the wrapper has written.
    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read(self.dir.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<String> = log.lines().map(plain).collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// Kills everything that is left, by number.
    pub(crate) fn clean_up(&mut self) -> bool {
        let is_clean = self.poll(CLEAN_UP, |running| {
            let alive: Vec<Proc> = running.now().into_iter().filter(Proc::is_alive).collect();
            for process in &alive {
                process.signal(Signal::KILL);
            }
            alive.is_empty()
        });
        let _ = self.stage.kill();
        let _ = self.stage.wait();
        is_clean
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stage.kill();
        let _ = self.stage.wait();
    }
}

/// A line without the colours that it has on a terminal.
fn plain(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_left_out_of_a_shown_line() {
        assert_eq!(plain("\x1b[2mnow\x1b[0m WARN it ends"), "now WARN it ends");
    }
}
