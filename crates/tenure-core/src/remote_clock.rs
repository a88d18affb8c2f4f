//! An estimate of the clock of a store or a ledger, made from its replies: the source of every not-after that we send.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Mono;
use crate::store::Call;
use crate::time::StoreTime;

/// An estimate gives way to the next reply when it is older than this, and an estimate without a newer reply is not good
/// enough for a caller that can ask for the time.
pub const FRESH: Duration = Duration::from_secs(5);
/// The two clocks drift apart by at most one part in this many. Crystals drift by a tenth of it.
const DRIFT: u32 = 1_000;

/// A lower bound of one remote clock.
///
/// A caller that gives up at a local instant sends `at_least(that instant)` as the not-after of its call. The remote clock
/// shows at least that time when the caller gives up, so a call that arrives later is refused.
///
/// # Policy
///
/// A reply shows what the remote clock was at some instant between `asked` and `arrived`. From `arrived` on, the remote clock
/// is therefore at least what the reply showed, plus the local time since `arrived`, minus the drift. The estimate is the
/// reply for which this is highest: the one with the least delay. The newest reply replaces it in three cases: its bound is
/// higher, the estimate is older than [`FRESH`], or the estimate contradicts it, because it claims more for `asked` than the
/// reply showed. So after each reply `at_least(asked) <= shown <= at_least(arrived)`.
///
/// # Why no call takes effect after its caller gave up
///
/// - **Delay and drift.** Each reply gives a lower bound, and the highest of several lower bounds is one, too.
/// - **The remote clock steps forward**, or a failover leads to a clock that is ahead: the old bound is still a bound, and
///   the next reply raises it.
/// - **The remote clock steps back**, or a failover leads to a clock that is behind: the first reply that was asked for
///   afterwards contradicts the estimate and replaces it. What remains is a step that is shorter than the delay of that
///   request: it cannot be told from delay, exceeds the truth by no more than that delay, and ends after [`FRESH`].
/// - **The local clock jumps ahead** (see [`TrustTime`](crate::clock::TrustTime)): that looks like a step back of the remote
///   clock and is handled like one.
/// - **The machine is suspended**: trust time counts that, as the remote clock does.
///
/// A step can only be seen in a reply. A caller that can ask for the time therefore asks when the newest reply is not
/// [fresh](Self::is_fresh), which bounds for how long a step goes unseen.
///
/// An estimate is about one clock: the nodes of a cluster have one each.
#[derive(Debug, Default)]
pub struct RemoteClock(Mutex<Option<Estimate>>);

#[derive(Debug, Clone, Copy)]
struct Estimate {
    best: Reply,
    /// When the newest reply arrived.
    heard: Mono,
}

#[derive(Debug, Clone, Copy)]
struct Reply {
    shown: StoreTime,
    arrived: Mono,
}

impl Reply {
    /// What it promises for a local instant, before or after its arrival.
    fn at_least(self, local: Mono) -> StoreTime {
        let (before, after) = (self.arrived.since(local), local.since(self.arrived));
        self.shown.minus(before.saturating_add(before / DRIFT)) + (after - after / DRIFT)
    }

    /// Whether it is kept although a newer reply has arrived.
    fn outlasts(self, newer: Self, asked: Mono) -> bool {
        let is_higher = self.at_least(newer.arrived) > newer.shown;
        let is_contradicted = self.at_least(asked) > newer.shown;
        is_higher && !is_contradicted && newer.arrived.since(self.arrived) <= FRESH
    }
}

impl RemoteClock {
    /// A reply showed this time. It was asked for not before `asked`, and read at `arrived`.
    pub fn learn(&self, shown: StoreTime, asked: Mono, arrived: Mono) {
        let reply = Reply { shown, arrived };
        let mut estimate = self.estimate();
        let known = estimate.unwrap_or(Estimate {
            best: reply,
            heard: arrived,
        });
        *estimate = Some(Estimate {
            best: if known.best.outlasts(reply, asked) {
                known.best
            } else {
                reply
            },
            heard: known.heard.max(arrived),
        });
    }

    /// What the remote clock shows at a local instant, or less; `None` before the first reply.
    #[must_use]
    pub fn at_least(&self, local: Mono) -> Option<StoreTime> {
        let estimate = *self.estimate();
        estimate.map(|estimate| estimate.best.at_least(local))
    }

    /// The limits of a call that its caller gives up at a local instant: the earlier of the caller's own and of ours, which
    /// is there after the first reply.
    #[must_use]
    pub fn not_after(&self, give_up: Mono, call: Call) -> Call {
        let limits = self.at_least(give_up).into_iter().chain(call.not_after);
        Call {
            not_after: limits.min(),
        }
    }

    /// How long ago the newest reply arrived.
    #[must_use]
    pub fn age(&self, now: Mono) -> Option<Duration> {
        let estimate = *self.estimate();
        estimate.map(|estimate| now.since(estimate.heard))
    }

    /// Whether the newest reply is recent enough for a caller that could ask for another.
    #[must_use]
    pub fn is_fresh(&self, now: Mono) -> bool {
        self.age(now).is_some_and(|age| age <= FRESH)
    }

    /// Starts again without an estimate: another clock may answer from now on.
    pub fn forget(&self) {
        *self.estimate() = None;
    }

    fn estimate(&self) -> MutexGuard<'_, Option<Estimate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
