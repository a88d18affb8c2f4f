//! Who is alive: one thread reads `/proc` for all cells when one of them asks. Processes are recognised by their environment, which they inherit,
//! so also daemons and orphans in other namespaces are found.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::script::{CELL, COMMAND, MAIN};

/// The least pause between two passes.
const PAUSE: Duration = Duration::from_millis(20);
/// How long after its start a process may still change its environment by `exec`.
const YOUNG: Duration = Duration::from_secs(2);

/// The part of a process in its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Wrapper,
    Watchdog,
    Command,
    /// It belongs to the surrounding.
    Stage,
    /// Another helper of the wrapper.
    Helper,
}

/// A process of a cell.
#[derive(Debug, Clone)]
pub(crate) struct Proc {
    pub(crate) pid: i32,
    pub(crate) state: char,
    pub(crate) role: Role,
    pub(crate) args: Vec<String>,
}

impl Proc {
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }

    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Whether it is the main process of a command that sleeps.
    pub(crate) fn is_main(&self) -> bool {
        self.role == Role::Command && self.args.last().is_some_and(|last| last == MAIN)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = kill_process(pid, signal);
        }
    }

    pub(crate) fn shown(&self) -> String {
        let args: String = self.args.join(" ").chars().take(60).collect();
        let args = args.lines().next().unwrap_or_default().to_owned();
        format!("{:?} `{args}` ({})", self.role, self.state)
    }
}

/// One pass over all processes.
#[derive(Debug, Default)]
struct Pass {
    begun: Option<Instant>,
    cells: HashMap<String, Vec<Proc>>,
}

#[derive(Debug, Default)]
struct Shared {
    pass: Mutex<Arc<Pass>>,
    is_asked: AtomicBool,
    asked: Condvar,
    done: Condvar,
}

/// The census of a run; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Census(Arc<Shared>);

impl Census {
    /// Starts the thread, which lives as long as this program.
    pub(crate) fn start(run: &str) -> Self {
        let shared = Arc::new(Shared::default());
        let (inner, mark) = (Arc::clone(&shared), format!("{CELL}={run}-"));
        thread::spawn(move || {
            let mut known = HashMap::new();
            loop {
                let mut last = lock(&inner.pass);
                while !inner.is_asked.swap(false, Ordering::Relaxed) {
                    last = inner.asked.wait(last).unwrap_or_else(PoisonError::into_inner);
                }
                drop(last);
                let begun = Instant::now();
                let cells = pass(&mark, &mut known, begun);
                *lock(&inner.pass) = Arc::new(Pass {
                    begun: Some(begun),
                    cells,
                });
                inner.done.notify_all();
                thread::sleep(PAUSE);
            }
        });
        Self(shared)
    }

    /// The processes of a cell, by a pass that begins from now on.
    pub(crate) fn now(&self, cell: &str) -> Vec<Proc> {
        let asked = Instant::now();
        let mut pass = lock(&self.0.pass);
        while pass.begun.is_none_or(|begun| begun < asked) {
            self.0.is_asked.store(true, Ordering::Relaxed);
            self.0.asked.notify_one();
            pass = self.0.done.wait(pass).unwrap_or_else(PoisonError::into_inner);
        }
        pass.cells.get(cell).cloned().unwrap_or_default()
    }

    /// The living processes of a command.
    pub(crate) fn command(&self, cell: &str) -> Vec<Proc> {
        let mut all = self.now(cell);
        all.retain(|process| process.role == Role::Command && process.is_alive());
        all
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of a process from earlier passes.
struct Known {
    /// When the kernel started it: a number can be used again.
    started: String,
    name: String,
    seen: Instant,
    /// Its cell, role and arguments.
    of: Option<(String, Role, Vec<String>)>,
}

fn pass(mark: &str, known: &mut HashMap<i32, Known>, now: Instant) -> HashMap<String, Vec<Proc>> {
    let mut cells: HashMap<String, Vec<Proc>> = HashMap::new();
    let mut still: HashMap<i32, Known> = HashMap::with_capacity(known.len());
    for pid in pids() {
        let Some((name, state, started)) = stat(pid) else {
            continue;
        };
        let before = known.remove(&pid).filter(|before| before.started == started);
        let seen = before.as_ref().map_or(now, |before| before.seen);
        let is_dead = matches!(state, 'Z' | 'X' | 'x');
        let of = match before {
            // A zombie has no environment any longer.
            Some(before) if is_dead => before.of,
            Some(Known {
                of: Some(of),
                name: old,
                ..
            }) if of.1 == Role::Command && old == name => Some(of),
            Some(Known { of, name: old, .. }) if old == name && now.duration_since(seen) > YOUNG => of,
            _ => identify(pid, mark),
        };
        if let Some((cell, role, args)) = of.clone() {
            cells.entry(cell).or_default().push(Proc { pid, state, role, args });
        }
        let known = Known {
            started,
            name,
            seen,
            of,
        };
        still.insert(pid, known);
    }
    *known = still;
    cells
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The name, the state and the start of a process.
fn stat(pid: i32) -> Option<(String, char, String)> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name in parentheses may contain any character.
    let (head, rest) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some((name, fields.first()?.chars().next()?, (*fields.get(19)?).to_owned()))
}

fn identify(pid: i32, mark: &str) -> Option<(String, Role, Vec<String>)> {
    let environment = strings(&fs::read(format!("/proc/{pid}/environ")).ok()?);
    let cell = environment.iter().find(|variable| variable.starts_with(mark))?;
    let cell = cell.split_once('=')?.1.to_owned();
    let args = strings(&fs::read(format!("/proc/{pid}/cmdline")).ok()?);
    let is_command = environment
        .iter()
        .any(|variable| variable.strip_prefix(COMMAND) == Some("=1"));
    Some((cell, role_of(is_command, &args), args))
}

fn strings(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    text.split_terminator('\0').map(ToOwned::to_owned).collect()
}

fn role_of(is_command: bool, args: &[String]) -> Role {
    let program = args
        .first()
        .map_or("", |program| program.rsplit('/').next().unwrap_or_default());
    match (program, args.get(1).map_or("", String::as_str)) {
        _ if is_command => Role::Command,
        ("unshare" | "nohup" | "env" | "sh", _) | (_, "stage") => Role::Stage,
        (_, "keep") => Role::Watchdog,
        ("flock", _) | (_, "join" | "lock" | "run") => Role::Wrapper,
        _ => Role::Helper,
    }
}

/// Kills all processes of all cells of a run. Returns how many there were.
pub(crate) fn kill_run(run: &str) -> usize {
    let cells = pass(&format!("{CELL}={run}-"), &mut HashMap::new(), Instant::now());
    let alive: Vec<&Proc> = cells.values().flatten().filter(|process| process.is_alive()).collect();
    for process in &alive {
        process.signal(Signal::KILL);
    }
    alive.len()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn args(line: &str) -> Vec<String> {
        line.split(' ').map(ToOwned::to_owned).collect()
    }

    #[test]
    fn the_part_of_a_process_is_read_from_its_arguments() {
        for (line, role) in [
            ("/x/tenure lock job", Role::Wrapper),
            ("/proc/self/exe keep 1 2", Role::Watchdog),
            ("/proc/self/exe launch 1 -- sh", Role::Helper),
            ("unshare --pid /x/tenure lock", Role::Stage),
            ("/x/wrappers stage init idle", Role::Stage),
        ] {
            assert_eq!(role_of(false, &args(line)), role, "{line}");
        }
        assert_eq!(role_of(true, &args("/x/tenure lock job")), Role::Command);
    }

    #[test]
    fn processes_are_found_by_their_environment() {
        let run = format!("test{}", std::process::id());
        let census = Census::start(&run);
        let cell = format!("{run}-1");
        let mut child = Command::new("sleep")
            .arg(MAIN)
            .env(CELL, &cell)
            .env(COMMAND, "1")
            .spawn()
            .unwrap();
        tenure_testkit::wait::until("it is found", Duration::from_secs(10), || {
            census.command(&cell).iter().any(Proc::is_main)
        });
        assert!(census.now(&format!("{run}-2")).is_empty());
        assert_eq!(kill_run(&run), 1);
        child.wait().unwrap();
        assert!(census.command(&cell).is_empty());
    }
}
