//! The event of a cell: what happens to the wrapper, its watchdog, its command or its store.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;
use tenure_testkit::Mode;

use crate::cell::{End, Key, Shape, Surrounding, To, Wrapper};
use crate::course::{Course, WATCH};
use crate::daemon::Api;
use crate::expect::{Frees, TTL};
use crate::judge::Rule;

/// How long a suspension lasts that loses nothing.
const SUSPENDED: Duration = Duration::from_millis(500);
/// How long a watchdog may take to be replaced: a second, and the start of a program.
const REPLACED: Duration = Duration::from_secs(2);
/// How long a watchdog may be missing, and the time in which a new one learns what it must know.
const GUARDED: Duration = Duration::from_secs(1);
const LEARNT: Duration = Duration::from_millis(500);

impl Course<'_> {
    /// Lets the event happen, with what belongs to it. Afterwards the wrapper ends, or goes on.
    pub(crate) fn event(&mut self) -> Result<()> {
        if self.cell.shape == Shape::Storm {
            self.running.write("storm", "");
        }
        self.seen.event_at = self.since_begin();
        self.seen.asked_at = self.seen.event_at;
        match self.cell.end {
            End::Exit(_) | End::Dies => drop(self.running.write("go", "\n")),
            End::Signal(Signal::TSTP, to) => self.suspend(to),
            End::Signal(signal, To::Wrapper) => self.running.signal(signal),
            End::Signal(signal, To::Group) => self.running.signal_group(signal),
            End::TermAll => self.running.signal_all(Signal::TERM),
            End::KillWrapper => self.running.signal(Signal::KILL),
            End::KillWatchdog => self.without_watchdog(Signal::KILL),
            End::FreezeWatchdog => self.without_watchdog(Signal::STOP),
            End::FreezeWrapper => self.freeze(),
            End::StoreAway => self.cut(),
            End::Release => self.api.as_ref().map_or(Ok(()), Api::release)?,
            End::Expel => self.api.as_ref().map_or(Ok(()), Api::expel)?,
            End::Key(key) => self.type_key(key),
            End::Hangup => self.running.kill_stage(),
        }
        Ok(())
    }

    fn suspend(&mut self, to: To) {
        match to {
            To::Wrapper => self.running.signal(Signal::TSTP),
            To::Group => self.running.signal_group(Signal::TSTP),
        }
        if self.cell.wrapper.has_lease() && to == To::Wrapper {
            self.wait_until_granted(TTL + WATCH);
        } else {
            sleep(SUSPENDED);
        }
        self.resume();
    }

    /// CONT, as the shell of the surrounding sends it.
    fn resume(&mut self) {
        if self.cell.surrounding == Surrounding::Terminal {
            let _ = std::fs::write(self.running.dir.join("fg"), "");
        } else {
            self.running.signal_group(Signal::CONT);
        }
        self.seen.asked_at = self.since_begin();
    }

    fn type_key(&mut self, key: Key) {
        let byte = match key {
            Key::CtrlC => "\x03",
            Key::CtrlBackslash => "\x1c",
            Key::CtrlZ => "\x1a",
        };
        self.running.write("keys", byte);
        if key == Key::CtrlZ {
            if !self.running.poll(TTL / 2, |running| running.has("suspended")) {
                let note = "expected that Ctrl-Z suspends the job, saw that it runs on";
                self.seen.notes.push((Rule::Terminal, note.to_owned()));
            }
            sleep(SUSPENDED);
            self.resume();
        }
    }

    /// Stops the wrapper until the lease is granted to another process, and lets it go on.
    fn freeze(&mut self) {
        self.seen.event_at = self.since_begin();
        self.running.signal(Signal::STOP);
        if self.cell.wrapper.has_lease() {
            if let Frees::AfterEvent(limit) = self.expected.frees {
                self.wait_until_granted(limit);
            }
        } else {
            sleep(TTL + WATCH);
        }
        self.resume();
    }

    /// Takes the watchdog away, and looks at its successor by a freeze or the end of the wrapper.
    fn without_watchdog(&mut self, signal: Signal) {
        let Some(first) = self.running.watchdog(0) else {
            let note = "expected a watchdog, saw none".to_owned();
            return self.seen.notes.push((Rule::Guarded, note));
        };
        first.signal(signal);
        let begin = std::time::Instant::now();
        let replaced = self
            .running
            .poll(REPLACED, |running| running.watchdog(first.pid).is_some());
        if !replaced {
            let note = format!("expected another watchdog within {REPLACED:?}, saw none");
            self.seen.notes.push((Rule::Guarded, note));
        }
        if self.running.census.command(&self.running.cell).is_empty() {
            let note = "expected that the command runs on without its watchdog, saw that it ended".to_owned();
            self.seen.notes.push((Rule::Guarded, note));
        }
        // A new watchdog needs a moment to learn the deadline.
        sleep(GUARDED.saturating_sub(begin.elapsed()));
        self.running.poll(LEARNT, |_| false);
        if self.cell.wrapper == Wrapper::Join {
            self.running.signal(Signal::KILL);
        } else {
            self.freeze();
        }
    }

    fn cut(&mut self) {
        if let Some(proxy) = &self.proxy {
            proxy.set(Mode::BlackHole);
        }
        if self.cell.wrapper == Wrapper::Join {
            sleep(TTL + WATCH);
            if let Some(proxy) = &self.proxy {
                proxy.set(Mode::Pass);
            }
            self.seen.asked_at = self.since_begin();
        }
    }
}
