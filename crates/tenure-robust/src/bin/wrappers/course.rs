//! The course of a cell: the wrapper starts its command, the event happens, and everything that must follow is looked at.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::Signal;
use tenure_testkit::Proxy;

use crate::cell::{Cell, End, Shape, Surrounding, Wrapper};
use crate::census::{Census, Proc};
use crate::daemon::{Api, Daemon, Daemons};
use crate::expect::{After, Expected, Frees};
use crate::judge::{Failure, Rule, Seen, judge};
use crate::lateness::Lateness;
use crate::running::Running;
use crate::script::{arguments, surround};
use crate::waiter::{Grant, Waiter};

/// How long the command may take to run.
const START: Duration = Duration::from_secs(15);
/// How long a command that must go on is watched.
pub(crate) const WATCH: Duration = Duration::from_millis(700);
/// How long after the end a process may still be there.
const LEAVE: Duration = Duration::from_secs(3);
/// A lateness that can have been the reason of a failure.
const DISTURBED: Duration = Duration::from_secs(1);
/// A delay that uses up most of the margin between the kill by a watchdog and the next grant.
const STALL: Duration = Duration::from_millis(100);
/// How often a cell is repeated that failed while the machine was late.
const REPEATS: usize = 2;

/// What all cells share.
#[derive(Debug)]
pub(crate) struct Ground {
    /// The mark of this run.
    pub(crate) run: String,
    /// The program of this harness.
    pub(crate) own: PathBuf,
    /// The program that is judged.
    pub(crate) tenure: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) daemons: Daemons,
    /// The address of a Consul agent, for comparison.
    pub(crate) consul: Option<String>,
    pub(crate) census: Census,
    pub(crate) lateness: Lateness,
}

/// The verdict on a cell.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) cell: Cell,
    pub(crate) failures: Vec<Failure>,
    pub(crate) log: String,
    pub(crate) took: Duration,
    pub(crate) repeats: usize,
}

/// The parts of a running cell.
pub(crate) struct Course<'a> {
    pub(crate) cell: Cell,
    pub(crate) expected: Expected,
    pub(crate) running: Running,
    waiter: Option<Waiter>,
    pub(crate) api: Option<Api>,
    pub(crate) proxy: Option<Proxy>,
    ground: &'a Ground,
    pub(crate) seen: Seen,
    _daemon: Option<Arc<Daemon>>,
}

/// Runs a cell and judges it. A cell that failed on a late machine is repeated. If two were at work, that is a failure without
/// a repeat, unless the command had to be killed at a given time and the machine stalled.
///
/// # Errors
/// If the harness itself fails.
pub(crate) fn run(ground: &Ground, cell: Cell, number: usize, may_repeat: impl Fn() -> bool) -> Result<Verdict> {
    let begin = Instant::now();
    let mut repeats = 0;
    loop {
        let mut course = Course::start(ground, cell, &format!("{number}-{repeats}"))?;
        course.play()?;
        let failures = judge(&course.expected, &course.seen);
        let log = course.running.log_tail();
        let breaks_promise = failures.iter().any(|failure| failure.rule == Rule::OneHolder);
        let begun = course.running.begun;
        let is_strict = breaks_promise && !(course.expected.is_timed() && ground.lateness.longest(begun) > STALL);
        let dir = course.running.dir.clone();
        let late = ground.lateness.since(begun);
        drop(course);
        if failures.is_empty() {
            let _ = std::fs::remove_dir_all(dir);
        } else if !is_strict && late > DISTURBED && repeats < REPEATS && may_repeat() {
            repeats += 1;
            continue;
        }
        return Ok(Verdict {
            cell,
            failures,
            log,
            took: begin.elapsed(),
            repeats,
        });
    }
}

impl<'a> Course<'a> {
    fn start(ground: &'a Ground, cell: Cell, number: &str) -> Result<Self> {
        let (name, group) = (format!("{}-{number}", ground.run), format!("cell-{number}"));
        let dir = ground.folder.join(number);
        let is_ours = Wrapper::OURS.contains(&cell.wrapper);
        let daemon = if is_ours { Some(ground.daemons.one()?) } else { None };
        let api = daemon.as_ref().map(|daemon| Api {
            addr: daemon.addr(),
            group: group.clone(),
        });
        let away = api.as_ref().filter(|_| cell.end == End::StoreAway);
        let proxy = away.map(|api| Proxy::start(api.addr));
        let store = match (&proxy, &api) {
            (Some(proxy), _) => proxy.url("http"),
            (None, Some(api)) => format!("http://{}", api.addr),
            (None, None) => ground.consul.clone().unwrap_or_default(),
        };
        let program = match cell.wrapper {
            Wrapper::Flock => PathBuf::from("flock"),
            Wrapper::ConsulLock => PathBuf::from("consul"),
            _ => ground.tenure.clone(),
        };
        let line = surround(
            &cell,
            &ground.own,
            &program,
            &arguments(&cell, &group, &store, &dir),
            &dir,
        );
        let writes_code = matches!(
            cell.surrounding,
            Surrounding::Unreaped | Surrounding::Reaped | Surrounding::Terminal
        );
        let running = Running::start(&line, &name, dir, writes_code, (&ground.census, &ground.lateness))?;
        Ok(Self {
            cell,
            expected: Expected::of(&cell),
            running,
            waiter: None,
            api,
            proxy,
            ground,
            seen: Seen::default(),
            _daemon: daemon,
        })
    }

    fn play(&mut self) -> Result<()> {
        if let Err(why) = self.begin() {
            self.seen.not_begun = Some(why);
        } else {
            self.wait_for_lease()?;
            self.event()?;
            self.aftermath();
        }
        if !self.running.clean_up() {
            anyhow::bail!("{}: processes survive KILL: {:?}", self.cell, self.running.left());
        }
        Ok(())
    }

    /// Waits until the command and all its processes run.
    fn begin(&mut self) -> Result<(), String> {
        let started = if self.cell.shape == Shape::Asks {
            "asking"
        } else {
            "ready"
        };
        self.comes(started)?;
        if self.cell.shape == Shape::Asks {
            self.running.write("keys", "yes\r");
            self.comes("ready")
                .map_err(|why| format!("its question was answered; {why}"))?;
        }
        if !self.running.poll(START, Running::find_wrapper) {
            return Err("no wrapper".to_owned());
        }
        Ok(())
    }

    /// Waits for a file of the command.
    fn comes(&mut self, file: &str) -> Result<(), String> {
        let mut code = None;
        let is_there = self.running.poll(START, |running| {
            code = running.ended();
            running.has(file) || code.is_some()
        });
        if is_there && self.running.has(file) {
            return Ok(());
        }
        let alive: Vec<_> = self
            .running
            .census
            .command(&self.running.cell)
            .iter()
            .map(Proc::shown)
            .collect();
        Err(match code {
            Some(code) => format!("the wrapper ended before its command was {file}, exit code {code:?}"),
            None => format!("the command was not {file} in {START:?}; alive: {}", alive.join(", ")),
        })
    }

    fn wait_for_lease(&mut self) -> Result<()> {
        let (name, census) = (&self.running.cell, &self.running.census);
        self.waiter = match (&self.api, self.cell.wrapper) {
            (_, Wrapper::Join) => None,
            (Some(api), _) => Some(Waiter::at(api, name, census)?),
            (None, Wrapper::Flock) => {
                let mut next = Command::new("flock");
                next.arg(self.running.dir.join(crate::script::LEASE)).arg("true");
                Some(Waiter::by(&mut next, name, census)?)
            }
            (None, _) => {
                let mut next = Command::new("consul");
                let agent = self.ground.consul.as_deref().unwrap_or_default();
                let number = name.rsplit_once(&self.ground.run).map_or("", |(_, number)| number);
                next.args(["lock", "-http-addr", agent, &format!("cell{number}"), "true"]);
                Some(Waiter::by(&mut next, name, census)?)
            }
        };
        // The request of the waiter shall come before the event.
        sleep(10 * crate::running::LOOK);
        Ok(())
    }

    pub(crate) fn since_begin(&self) -> Duration {
        self.running.begun.elapsed()
    }

    fn late_from(&self, at: Duration) -> Duration {
        self.ground.lateness.since(self.running.begun + at)
    }

    /// Waits for the end, for the grant and for the end of all processes.
    fn aftermath(&mut self) {
        match self.expected.after {
            After::Ends | After::Killed => {}
            After::GoesOn => self.go_on(),
            After::EndsOrGoesOn => {
                if !self.running.poll(WATCH, |running| running.ended().is_some()) {
                    self.ask_to_end();
                }
            }
            After::StandsBy => {
                if let Frees::AfterEvent(limit) = self.expected.frees {
                    self.wait_until_granted(limit);
                }
                self.ask_to_end();
            }
        }
        let mut code = None;
        let limit = self.expected.within + crate::running::LOOK;
        if self.running.poll(limit, |running| {
            running.ended().inspect(|ended| code = *ended).is_some()
        }) {
            self.seen.ended_at = Some(self.since_begin());
            self.seen.late_end = self.late_from(self.seen.asked_at);
            self.seen.code = code;
            if self.expected.leaves {
                let alive = self.running.census.command(&self.running.cell);
                self.seen.alive_at_end = alive.iter().map(Proc::shown).collect();
            }
        }
        self.look_at_terminal();
        if let (Frees::AfterEnd(limit) | Frees::AfterEvent(limit), true) =
            (self.expected.frees, self.seen.ended_at.is_some())
        {
            self.wait_until_granted(limit);
            let from = match self.expected.frees {
                Frees::AfterEvent(_) => self.seen.event_at,
                _ => self.seen.ended_at.unwrap_or_default(),
            };
            self.seen.late_grant = self.late_from(from);
        }
        let mut left = Vec::new();
        self.running.poll(LEAVE, |running| {
            left = running.left();
            left.is_empty()
        });
        self.seen.left = left;
        self.take_grant();
    }

    /// Watches the command go on, then asks the wrapper to end.
    fn go_on(&mut self) {
        let may_be_stopped = self.cell.shape == Shape::Stopped;
        let is_on = |running: &Running| {
            let command = running.census.command(&running.cell);
            command
                .iter()
                .any(|process| may_be_stopped || (process.is_main() && !process.is_stopped()))
        };
        sleep(WATCH);
        let goes_on = self
            .running
            .poll(WATCH, |running| running.ended().is_some() || is_on(running));
        if let Some(code) = self.running.ended() {
            self.seen.halted = Some(format!("the wrapper ended, exit code {code:?}"));
        } else if !goes_on {
            let command = self.running.census.command(&self.running.cell);
            let alive: Vec<_> = command.iter().map(Proc::shown).collect();
            self.seen.halted = Some(format!("alive are only: {}", alive.join(", ")));
        }
        self.ask_to_end();
    }

    fn ask_to_end(&mut self) {
        self.seen.asked_at = self.since_begin();
        self.running.signal(Signal::TERM);
    }

    fn look_at_terminal(&mut self) {
        if let Ok(wrong) = std::fs::read_to_string(self.running.dir.join("terminal")) {
            self.seen.terminal = wrong.lines().map(ToOwned::to_owned).collect();
        }
    }

    pub(crate) fn wait_until_granted(&mut self, within: Duration) {
        if let Some(waiter) = self.waiter.take() {
            self.running.poll(within, |_| waiter.grant().at.is_some());
            self.waiter = Some(waiter);
        }
    }

    fn take_grant(&mut self) {
        if let Some(Grant { at: Some(at), alive }) = self.waiter.as_ref().map(Waiter::grant) {
            self.seen.granted_at = Some(at.duration_since(self.running.begun));
            self.seen.alive_at_grant = alive;
        }
    }
}
