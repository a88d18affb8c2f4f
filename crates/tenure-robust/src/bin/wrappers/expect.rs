//! What a cell must show, from its four parts alone.

use std::time::Duration;

use rustix::process::Signal;

use crate::cell::{Cell, End, Key, Shape, Surrounding, To, Wrapper};

/// The ttl of every wrapper. A shorter one leaves too little time for a late heartbeat on a busy machine.
pub(crate) const TTL: Duration = Duration::from_secs(3);
/// The time between TERM and KILL.
pub(crate) const GRACE: Duration = Duration::from_millis(500);
/// The whole shutdown of a `run`.
pub(crate) const BUDGET: Duration = Duration::from_secs(3);
/// How long after a kill, a freeze or an outage the lease may stay held beyond the ttl.
const LAPSE_MARGIN: Duration = Duration::from_secs(2);
/// How long after an orderly end the lease may stay held.
const RELEASE_MARGIN: Duration = Duration::from_secs(1);
/// The time that a wrapper may take in addition to the grace.
const END_MARGIN: Duration = Duration::from_secs(3);

/// The outcome of the event of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// The wrapper ends.
    Ends,
    /// The command runs on, and the wrapper ends when it gets TERM.
    GoesOn,
    /// Either of the two.
    EndsOrGoesOn,
    /// The command is ended, and the wrapper waits to be the holder again.
    StandsBy,
    /// The wrapper was killed.
    Killed,
}

/// When another process can be granted the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frees {
    /// There is no lease.
    No,
    AfterEnd(Duration),
    AfterEvent(Duration),
}

/// What must be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) after: After,
    /// The exit codes that are right; empty if any is.
    pub(crate) codes: Vec<i32>,
    /// How long the wrapper may take to end, from the event or from the TERM that follows it.
    pub(crate) within: Duration,
    pub(crate) frees: Frees,
    /// The member leaves, and no process of the command may be alive then.
    pub(crate) leaves: bool,
    /// The terminal must be as it was.
    pub(crate) restores_terminal: bool,
}

impl Expected {
    pub(crate) fn of(cell: &Cell) -> Self {
        let (after, codes) = outcome(cell);
        let is_orderly = !matches!(cell.end, End::KillWrapper | End::Hangup) && after != After::Killed;
        let leaves = cell.wrapper == Wrapper::Join && is_orderly && cell.end != End::Expel;
        let away = if cell.end == End::StoreAway {
            TTL
        } else {
            Duration::ZERO
        };
        let work = if cell.wrapper == Wrapper::Run { BUDGET } else { GRACE };
        Self {
            after,
            codes,
            within: work + END_MARGIN + away,
            frees: frees(cell, after),
            leaves,
            restores_terminal: cell.surrounding == Surrounding::Terminal && is_orderly,
        }
    }
}

impl Expected {
    /// Whether the lease is free because of the time that has passed, and not because the wrapper has released it.
    pub(crate) const fn is_timed(&self) -> bool {
        matches!(self.frees, Frees::AfterEvent(_))
    }
}

/// Whether the main process of the command stops itself. On a terminal that is a request to suspend the whole job, which
/// [`Key::CtrlZ`] covers.
pub(crate) fn main_stops(cell: &Cell) -> bool {
    cell.shape == Shape::Stopped && cell.surrounding != Surrounding::Terminal && !cell.end.is_own()
}

fn outcome(cell: &Cell) -> (After, Vec<i32>) {
    let is_run = cell.wrapper == Wrapper::Run;
    let ignores = cell.shape == Shape::Ignores;
    let term = asked(cell, Signal::TERM);
    match cell.end {
        End::Exit(code) => (After::Ends, vec![code]),
        End::Dies => (After::Ends, vec![of_signal(Signal::USR1)]),
        End::Signal(Signal::HUP, _) if ignores || cell.surrounding == Surrounding::Nohup => (After::GoesOn, term),
        // A stopped process gets no HUP, and TERM with CONT lets it have both.
        End::Signal(Signal::HUP, _) if main_stops(cell) => {
            let codes = [term, vec![of_signal(Signal::HUP)]].concat();
            (After::EndsOrGoesOn, codes)
        }
        End::Signal(Signal::HUP, _) => (After::Ends, vec![of_signal(Signal::HUP)]),
        // A suspension longer than the ttl: the lock is lost, unless the wrapper does not stop.
        End::Signal(Signal::TSTP, To::Wrapper) if cell.wrapper.has_lease() => (After::EndsOrGoesOn, Vec::new()),
        End::Signal(Signal::TSTP, _) | End::Key(Key::CtrlZ) => (After::GoesOn, term),
        // The command decides about a signal that it may use for something else, as without a wrapper.
        End::Signal(Signal::INT | Signal::QUIT, _) if ignores && !is_run => (After::GoesOn, term),
        End::Signal(signal, _) => (After::Ends, asked(cell, signal)),
        End::TermAll => (After::Ends, term),
        End::Key(_) if ignores => (After::GoesOn, term),
        End::Key(Key::CtrlC) => (After::Ends, vec![of_signal(Signal::INT)]),
        End::Key(Key::CtrlBackslash) => (After::Ends, vec![of_signal(Signal::QUIT)]),
        End::Hangup => (After::Ends, Vec::new()),
        End::KillWrapper => (After::Killed, Vec::new()),
        End::KillWatchdog | End::FreezeWatchdog if cell.wrapper == Wrapper::Join => (After::Killed, Vec::new()),
        End::FreezeWrapper | End::StoreAway if cell.wrapper == Wrapper::Join => (After::GoesOn, term),
        _ if is_run => (After::StandsBy, Vec::new()),
        // The lock was lost, or the member was expelled.
        _ => (After::Ends, vec![1]),
    }
}

/// The exit codes of a wrapper that was asked to end by this signal.
fn asked(cell: &Cell, signal: Signal) -> Vec<i32> {
    let killed = (cell.shape == Shape::Ignores).then_some(of_signal(Signal::KILL));
    match (cell.wrapper, killed) {
        // It stops its command by TERM, and names the signal that it got itself.
        (Wrapper::Run, _) => {
            let mut codes = vec![of_signal(signal), of_signal(Signal::TERM)];
            codes.extend(killed);
            codes.dedup();
            codes
        }
        (_, Some(killed)) => vec![killed],
        (_, None) => vec![of_signal(signal)],
    }
}

pub(crate) fn of_signal(signal: Signal) -> i32 {
    128 + signal.as_raw()
}

fn frees(cell: &Cell, after: After) -> Frees {
    let lapses = matches!(
        cell.end,
        End::KillWrapper
            | End::FreezeWrapper
            | End::KillWatchdog
            | End::FreezeWatchdog
            | End::StoreAway
            | End::Release
            | End::Expel
    );
    if !cell.wrapper.has_lease() {
        Frees::No
    } else if lapses || after == After::Killed {
        Frees::AfterEvent(TTL + LAPSE_MARGIN)
    } else {
        Frees::AfterEnd(RELEASE_MARGIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Matrix;

    fn expected(name: &str) -> Expected {
        let matrix = Matrix::of(&Wrapper::OURS);
        let cell = matrix.cells.iter().find(|cell| cell.to_string() == name);
        Expected::of(cell.unwrap())
    }

    #[test]
    fn exit_codes_are_those_of_the_command() {
        for (name, codes) in [
            ("lock/plain/plain/exit-5", &[5][..]),
            ("join/process-1/setsid/dies", &[138]),
            ("lock/plain/plain/int", &[130]),
            ("lock/plain/ignores/int-group", &[137]),
            ("run/plain/plain/int", &[130, 143]),
            ("run/plain/ignores/term", &[143, 137]),
            ("lock/terminal/asks/ctrl-c", &[130]),
            ("lock/plain/plain/release", &[1]),
            ("join/plain/plain/expel", &[1]),
            ("lock/nohup/plain/hup", &[143]),
            ("lock/plain/plain/hup", &[129]),
            ("lock/plain/stopped/hup", &[143, 129]),
        ] {
            assert_eq!(expected(name).codes, codes, "{name}");
        }
    }

    #[test]
    fn ignored_hangups_and_short_suspensions_end_nothing() {
        for (name, after) in [
            ("lock/nohup/plain/hup", After::GoesOn),
            ("lock/plain/ignores/hup", After::GoesOn),
            ("lock/plain/plain/tstp-group", After::GoesOn),
            ("lock/plain/plain/tstp", After::EndsOrGoesOn),
            ("join/plain/plain/store-away", After::GoesOn),
            ("lock/plain/plain/store-away", After::Ends),
            ("run/plain/plain/store-away", After::StandsBy),
            ("join/plain/plain/kill-watchdog", After::Killed),
        ] {
            assert_eq!(expected(name).after, after, "{name}");
        }
    }

    #[test]
    fn a_lease_is_released_by_an_end_and_lapses_after_a_kill() {
        assert_eq!(
            expected("lock/plain/plain/exit-0").frees,
            Frees::AfterEnd(RELEASE_MARGIN)
        );
        assert_eq!(
            expected("lock/plain/plain/kill").frees,
            Frees::AfterEvent(TTL + LAPSE_MARGIN)
        );
        assert_eq!(expected("join/plain/plain/exit-0").frees, Frees::No);
    }
}
