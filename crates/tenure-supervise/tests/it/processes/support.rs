//! A scripted supervisor, and observations of its processes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;
use tenure_testkit::wait;

pub(crate) const FIXTURE: &str = env!("CARGO_BIN_EXE_supervise-fixture");
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A supervisor that runs a shell script. Killed at the end of the test.
pub(crate) struct Supervisor {
    process: Child,
    pid: Pid,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// All output so far.
    pub(crate) heard: Vec<String>,
    pub(crate) dir: TempDir,
}

/// A supervisor of `sh -c SCRIPT` in a new working directory.
pub(crate) fn supervise(settings: &[&str], script: &str) -> Supervisor {
    Supervisor::start(Command::new(FIXTURE), settings, script)
}

impl Supervisor {
    pub(crate) fn start(mut command: Command, settings: &[&str], script: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let mut process = command
            .arg("run")
            .args(settings)
            .args(["--", "sh", "-c", script])
            .env("FIXTURE", FIXTURE)
            .current_dir(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, lines) = mpsc::channel();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            stdout
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| tell.send(line))
        });
        Self {
            pid: pid(process.id()),
            stdin: process.stdin.take(),
            process,
            lines,
            heard: Vec::new(),
            dir,
        }
    }

    /// Sends evidence of leadership.
    pub(crate) fn say(&mut self, word: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{word}").unwrap();
    }

    /// Waits for a line with this text. The lines before it are in `heard`.
    #[track_caller]
    pub(crate) fn hear(&mut self, part: &str) -> String {
        loop {
            match self.lines.recv_timeout(LONG) {
                Ok(line) => {
                    self.heard.push(line.clone());
                    if line.contains(part) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("timed out waiting for {part:?} after {:#?}", self.heard),
                Err(RecvTimeoutError::Disconnected) => panic!("no {part:?} in {:#?}", self.heard),
            }
        }
    }

    /// Waits until the child is ready. Returns its process id.
    #[track_caller]
    pub(crate) fn running(&mut self) -> Pid {
        let line = self.hear("\"state\":\"running\"");
        let (_, rest) = line.split_once("\"pid\":").unwrap();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        pid(digits.parse().unwrap())
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sets the supervisor's pid, if it is not the started process but its child.
    pub(crate) fn is_really(&mut self, pid: Pid) {
        self.pid = pid;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    /// Waits for its end. Returns the exit code.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let mut status = None;
        wait::until("the supervisor has ended", LONG, || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        self.heard.extend(self.lines.iter());
        status.unwrap().code()
    }

    /// Waits for a file written by the script and reads it.
    #[track_caller]
    pub(crate) fn file(&self, name: &str) -> String {
        let path: PathBuf = self.dir.path().join(name);
        let mut content = String::new();
        wait::until(&format!("{name} exists"), LONG, || {
            content = fs::read_to_string(&path).unwrap_or_default();
            content.ends_with('\n')
        });
        content.trim_end().to_owned()
    }

    /// A process id written by the script.
    #[track_caller]
    pub(crate) fn pid_in(&self, name: &str) -> Pid {
        pid(self.file(name).parse().unwrap())
    }

    /// The desired catalog states, in order.
    pub(crate) fn wants(&self) -> Vec<&str> {
        let wants = self.heard.iter().filter(|line| line.starts_with("want "));
        wants.map(String::as_str).collect()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        if self.process.id() != u32::try_from(self.pid.as_raw_pid()).unwrap() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
        let _ = self.process.wait();
    }
}

pub(crate) fn pid(raw: u32) -> Pid {
    Pid::from_raw(i32::try_from(raw).unwrap()).unwrap()
}

/// Whether a process exists and is not a zombie.
pub(crate) fn is_alive(pid: Pid) -> bool {
    test_kill_process(pid).is_ok() && !matches!(stat(pid), None | Some((_, 'Z', _)))
}

/// A test process with this free pid and its own group. `None`, with a message, where pids cannot be chosen.
#[expect(clippy::print_stderr, reason = "a test that does nothing says so")]
pub(crate) fn stranger(id: Pid) -> Option<Child> {
    // Another process may take the pid first; then retry.
    for _ in 0..1_000 {
        let last = (id.as_raw_pid() - 1).to_string();
        if let Err(error) = fs::write("/proc/sys/kernel/ns_last_pid", last) {
            eprintln!("SKIPPED: cannot choose a process id (needs root): {error}");
            return None;
        }
        let mut process = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        if pid(process.id()) == id {
            return Some(process);
        }
        process.kill().unwrap();
        process.wait().unwrap();
    }
    panic!("the id {id} is not free");
}

#[track_caller]
pub(crate) fn dies(what: &str, pid: Pid) {
    wait::until(&format!("{what} is dead"), LONG, || !is_alive(pid));
}

/// The children of a process: id, state, name.
pub(crate) fn children_of(parent: Pid) -> Vec<(Pid, char, String)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter_map(|pid| {
        let (name, state, parent_of_it) = stat(pid)?;
        (parent_of_it == parent.as_raw_pid()).then_some((pid, state, name))
    })
    .collect()
}

/// The name, state and parent of a process.
fn stat(pid: Pid) -> Option<(String, char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    Some((
        name.to_owned(),
        fields.next()?.chars().next()?,
        fields.next()?.parse().ok()?,
    ))
}
