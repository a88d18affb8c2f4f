//! The circuit breaker: who fails again and again is left alone, and probed once a pause. Pure: it is told the time.
//!
//! Closed, it counts failures in a row; at the limit it opens. Open, it refuses, until its pause is over: the next call is
//! the probe, and the only one. A probe that is answered closes it; one that fails, or ends without a word, opens it for
//! another pause. What calls of an earlier phase come to counts no more.

use std::time::Duration;

use tenure_core::clock::Mono;

/// Whether a call may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It may, as far as can be said before it goes.
    Free,
    /// Not before this. The past means: when the probe has ended that is under way.
    Refused {
        /// When to ask again.
        until: Mono,
    },
}

/// The breaker as others see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerState {
    /// Calls go.
    Closed,
    /// No call goes for as long as this.
    Open(Duration),
    /// The next call is the probe, or the probe is under way.
    HalfOpen,
}

/// The right to one call; what it comes to is to be said with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    epoch: u64,
}

/// What a word about a call has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shift {
    /// Nothing that others would notice.
    None,
    /// It opened, for the first time since it was closed.
    Opened,
    /// It closed.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Closed { failures: u32 },
    Open { until: Mono },
    Probing,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    limit: u32,
    phase: Phase,
    /// Rises with every change of the phase, so that a late word is known as one.
    epoch: u64,
    opened: u64,
}

impl Breaker {
    /// A closed one that opens after `limit` failures in a row.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit,
            phase: Phase::Closed { failures: 0 },
            epoch: 0,
            opened: 0,
        }
    }

    /// Looks whether a call may go, without taking its place.
    pub(crate) fn turn(&self, now: Mono) -> Turn {
        match self.phase {
            Phase::Closed { .. } => Turn::Free,
            Phase::Open { until } if now >= until => Turn::Free,
            Phase::Open { until } => Turn::Refused { until },
            Phase::Probing => Turn::Refused { until: now },
        }
    }

    /// Lets a call go.
    ///
    /// # Errors
    /// When to ask again, as [`Turn::Refused`] says it.
    pub(crate) fn admit(&mut self, now: Mono) -> Result<Ticket, Mono> {
        if let Turn::Refused { until } = self.turn(now) {
            return Err(until);
        }
        if let Phase::Open { .. } = self.phase {
            self.enter(Phase::Probing);
        }
        Ok(Ticket { epoch: self.epoch })
    }

    /// A call was answered.
    pub(crate) fn answered(&mut self, ticket: Ticket) -> Shift {
        match self.phase {
            _ if ticket.epoch != self.epoch => Shift::None,
            Phase::Probing => {
                self.enter(Phase::Closed { failures: 0 });
                Shift::Closed
            }
            _ => {
                self.phase = Phase::Closed { failures: 0 };
                Shift::None
            }
        }
    }

    /// A call failed. If that opens the breaker, it is for as long as `until`.
    pub(crate) fn failed(&mut self, ticket: Ticket, until: Mono) -> Shift {
        match self.phase {
            Phase::Probing if ticket.epoch == self.epoch => {
                self.enter(Phase::Open { until });
                Shift::None
            }
            Phase::Closed { failures } if ticket.epoch == self.epoch => {
                let failures = failures.saturating_add(1);
                if failures < self.limit {
                    self.phase = Phase::Closed { failures };
                    return Shift::None;
                }
                self.enter(Phase::Open { until });
                self.opened += 1;
                Shift::Opened
            }
            _ => Shift::None,
        }
    }

    /// A call ended without a word about the other side: it panicked or was dropped. Only a probe needs to be made good.
    pub(crate) fn broke_off(&mut self, ticket: Ticket, until: Mono) {
        if ticket.epoch == self.epoch && self.phase == Phase::Probing {
            self.enter(Phase::Open { until });
        }
    }

    /// How it stands.
    pub(crate) fn state(&self, now: Mono) -> BreakerState {
        match self.phase {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::Open { until } if now < until => BreakerState::Open(until.since(now)),
            Phase::Open { .. } | Phase::Probing => BreakerState::HalfOpen,
        }
    }

    /// How often it has opened.
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Mono {
        Mono::from_origin(Duration::from_millis(ms))
    }

    /// One that has failed three times at 100 ms, and is open until 1 s.
    fn open() -> Breaker {
        let mut breaker = Breaker::new(3);
        for n in 1..=3 {
            let ticket = breaker.admit(at(100)).expect("it is closed");
            let shift = breaker.failed(ticket, at(1_000));
            assert_eq!(shift == Shift::Opened, n == 3);
        }
        breaker
    }

    #[test]
    fn only_failures_in_a_row_open_it() {
        let mut breaker = Breaker::new(3);
        for n in 0..100 {
            let ticket = breaker.admit(at(n)).expect("it is closed");
            if n % 3 == 2 {
                breaker.answered(ticket);
            } else {
                breaker.failed(ticket, at(1_000));
            }
            assert_eq!(breaker.state(at(n)), BreakerState::Closed);
        }
        let open = open();
        assert_eq!(
            (open.state(at(400)), open.opened()),
            (BreakerState::Open(Duration::from_millis(600)), 1)
        );
    }

    #[test]
    fn one_call_probes_it_after_the_pause() {
        let mut breaker = open();
        assert_eq!(breaker.admit(at(999)), Err(at(1_000)));
        assert_eq!(breaker.state(at(1_000)), BreakerState::HalfOpen);
        let probe = breaker.admit(at(1_000)).expect("the probe");
        assert_eq!(breaker.admit(at(5_000)), Err(at(5_000)), "one probe at a time");
        assert_eq!(breaker.failed(probe, at(9_000)), Shift::None);
        assert_eq!(breaker.admit(at(8_999)), Err(at(9_000)));
        let probe = breaker.admit(at(9_000)).expect("the next probe");
        assert_eq!(breaker.answered(probe), Shift::Closed);
        assert_eq!((breaker.state(at(9_000)), breaker.opened()), (BreakerState::Closed, 1));
    }

    #[test]
    fn a_probe_that_ends_without_a_word_is_followed_by_another() {
        let mut breaker = open();
        let probe = breaker.admit(at(1_000)).expect("the probe");
        breaker.broke_off(probe, at(2_000));
        assert_eq!(breaker.admit(at(1_999)), Err(at(2_000)));
        breaker.admit(at(2_000)).expect("the next probe");
    }

    #[test]
    fn words_of_an_earlier_phase_count_no_more() {
        let mut breaker = Breaker::new(1);
        let (early, late) = (breaker.admit(at(0)), breaker.admit(at(0)));
        breaker.failed(early.expect("closed"), at(1_000));
        let late = late.expect("closed");
        assert_eq!(breaker.answered(late), Shift::None);
        assert_eq!(
            breaker.admit(at(500)),
            Err(at(1_000)),
            "an answer to an old question closes nothing"
        );
        let probe = breaker.admit(at(1_000)).expect("the probe");
        breaker.failed(late, at(3_000));
        breaker.broke_off(late, at(3_000));
        assert_eq!(breaker.state(at(1_000)), BreakerState::HalfOpen);
        breaker.answered(probe);
        breaker.failed(late, at(3_000));
        assert_eq!(breaker.state(at(1_000)), BreakerState::Closed);
    }
}
