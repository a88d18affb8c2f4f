//! The circuit breaker: stops calls to a ledger that keeps failing, and probes it once per pause. Pure: the caller
//! passes the time.
//!
//! Closed, it counts failures in a row and opens at the limit. Open, it refuses calls until the pause is over; the next
//! call is the only probe. A probe that is answered closes it; a probe that fails or is abandoned opens it for another
//! pause. Results of calls from an earlier phase are ignored.

use std::time::Duration;

use tenure_core::clock::Mono;

/// Whether a call may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerDecision {
    /// It may, unless another call becomes the probe first.
    Allowed,
    /// Not before `until`. A time in the past means: after the probe in flight has ended.
    Refused {
        /// When to retry.
        until: Mono,
    },
}

/// The state as reported to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BreakerState {
    /// Calls run.
    Closed,
    /// No call runs for this long.
    Open(Duration),
    /// The next call is the probe, or the probe is in flight.
    HalfOpen,
}

/// The permission for one call; its result is reported with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    epoch: u64,
}

/// What a result changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transition {
    /// Nothing visible.
    None,
    /// The breaker opened for the first time since it was closed.
    Opened,
    /// The breaker closed.
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
    /// Rises with every change of the phase, so that a late result is recognized.
    epoch: u64,
    opened: u64,
}

impl Breaker {
    /// A closed breaker that opens after `limit` failures in a row.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit,
            phase: Phase::Closed { failures: 0 },
            epoch: 0,
            opened: 0,
        }
    }

    /// Checks whether a call may run, without starting it.
    pub(crate) fn check(&self, now: Mono) -> BreakerDecision {
        match self.phase {
            Phase::Closed { .. } => BreakerDecision::Allowed,
            Phase::Open { until } if now >= until => BreakerDecision::Allowed,
            Phase::Open { until } => BreakerDecision::Refused { until },
            Phase::Probing => BreakerDecision::Refused { until: now },
        }
    }

    /// Admits a call.
    ///
    /// # Errors
    /// When to retry, as in [`BreakerDecision::Refused`].
    pub(crate) fn admit(&mut self, now: Mono) -> Result<Ticket, Mono> {
        if let BreakerDecision::Refused { until } = self.check(now) {
            return Err(until);
        }
        if let Phase::Open { .. } = self.phase {
            self.enter(Phase::Probing);
        }
        Ok(Ticket { epoch: self.epoch })
    }

    /// A call was answered.
    pub(crate) fn answered(&mut self, ticket: Ticket) -> Transition {
        match self.phase {
            _ if ticket.epoch != self.epoch => Transition::None,
            Phase::Probing => {
                self.enter(Phase::Closed { failures: 0 });
                Transition::Closed
            }
            _ => {
                self.phase = Phase::Closed { failures: 0 };
                Transition::None
            }
        }
    }

    /// A call failed. If that opens the breaker, it stays open until `until`.
    pub(crate) fn failed(&mut self, ticket: Ticket, until: Mono) -> Transition {
        match self.phase {
            Phase::Probing if ticket.epoch == self.epoch => {
                self.enter(Phase::Open { until });
                Transition::None
            }
            Phase::Closed { failures } if ticket.epoch == self.epoch => {
                let failures = failures.saturating_add(1);
                if failures < self.limit {
                    self.phase = Phase::Closed { failures };
                    return Transition::None;
                }
                self.enter(Phase::Open { until });
                self.opened += 1;
                Transition::Opened
            }
            _ => Transition::None,
        }
    }

    /// A call panicked or was dropped, so it says nothing about the ledger. An abandoned probe opens the breaker again.
    pub(crate) fn abandoned(&mut self, ticket: Ticket, until: Mono) {
        if ticket.epoch == self.epoch && self.phase == Phase::Probing {
            self.enter(Phase::Open { until });
        }
    }

    /// The state at a time.
    pub(crate) fn state(&self, now: Mono) -> BreakerState {
        match self.phase {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::Open { until } if now < until => BreakerState::Open(until.since(now)),
            Phase::Open { .. } | Phase::Probing => BreakerState::HalfOpen,
        }
    }

    /// How often the breaker has opened.
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

    /// A breaker that failed three times at 100 ms and is open until 1 s.
    fn open() -> Breaker {
        let mut breaker = Breaker::new(3);
        for n in 1..=3 {
            let ticket = breaker.admit(at(100)).expect("it is closed");
            let shift = breaker.failed(ticket, at(1_000));
            assert_eq!(shift == Transition::Opened, n == 3);
        }
        breaker
    }

    #[test]
    fn only_failures_in_a_row_open_the_breaker() {
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
    fn one_call_probes_after_the_pause() {
        let mut breaker = open();
        assert_eq!(breaker.admit(at(999)), Err(at(1_000)));
        assert_eq!(breaker.state(at(1_000)), BreakerState::HalfOpen);
        let probe = breaker.admit(at(1_000)).expect("the probe");
        assert_eq!(breaker.admit(at(5_000)), Err(at(5_000)), "one probe at a time");
        assert_eq!(breaker.failed(probe, at(9_000)), Transition::None);
        assert_eq!(breaker.admit(at(8_999)), Err(at(9_000)));
        let probe = breaker.admit(at(9_000)).expect("the next probe");
        assert_eq!(breaker.answered(probe), Transition::Closed);
        assert_eq!((breaker.state(at(9_000)), breaker.opened()), (BreakerState::Closed, 1));
    }

    #[test]
    fn abandoned_probe_is_followed_by_another() {
        let mut breaker = open();
        let probe = breaker.admit(at(1_000)).expect("the probe");
        breaker.abandoned(probe, at(2_000));
        assert_eq!(breaker.admit(at(1_999)), Err(at(2_000)));
        breaker.admit(at(2_000)).expect("the next probe");
    }

    #[test]
    fn results_of_an_earlier_phase_are_ignored() {
        let mut breaker = Breaker::new(1);
        let (early, late) = (breaker.admit(at(0)), breaker.admit(at(0)));
        breaker.failed(early.expect("closed"), at(1_000));
        let late = late.expect("closed");
        assert_eq!(breaker.answered(late), Transition::None);
        assert_eq!(
            breaker.admit(at(500)),
            Err(at(1_000)),
            "a result from an earlier phase closes nothing"
        );
        let probe = breaker.admit(at(1_000)).expect("the probe");
        breaker.failed(late, at(3_000));
        breaker.abandoned(late, at(3_000));
        assert_eq!(breaker.state(at(1_000)), BreakerState::HalfOpen);
        breaker.answered(probe);
        breaker.failed(late, at(3_000));
        assert_eq!(breaker.state(at(1_000)), BreakerState::Closed);
    }
}
