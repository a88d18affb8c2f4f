//! An estimate of a remote store's or ledger's clock from its replies: the source of every not-after that Tenure sends.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Mono;
use crate::store::Call;
use crate::time::StoreTime;

/// The age at which an estimate is replaced by the next reply, and at which a caller should read the remote clock
/// again.
pub const FRESH: Duration = Duration::from_secs(5);
/// The two clocks drift by at most one part in this many; crystals drift by a tenth of that.
const DRIFT: u32 = 1_000;

/// A lower bound of one remote clock.
///
/// A caller with a local deadline sends `at_least(deadline)` as the not-after of its call. The remote clock shows at
/// least that time at the deadline, so a call that arrives later is rejected.
///
/// # Policy
///
/// A reply shows the remote clock at some instant between `asked` and `arrived`. From `arrived` on, the remote clock is
/// at least the shown time plus the local time since `arrived`, minus the drift. The estimate is the reply with the
/// highest such bound, that is, the least delay. The newest reply replaces it in three cases: its bound is higher, the
/// estimate is older than [`FRESH`], or the estimate contradicts it, because it claims more for `asked` than the reply
/// showed. So after each reply `at_least(asked) <= shown <= at_least(arrived)`.
///
/// # Why no call takes effect after its caller's deadline
///
/// - **Delay and drift.** Each reply gives a lower bound, and the maximum of lower bounds is one.
/// - **The remote clock steps forward**, or a failover leads to a clock that is ahead: the old bound remains valid, and
///   the next reply raises it.
/// - **The remote clock steps back**, or a failover leads to a clock that is behind: the reply to the first later
///   request contradicts the estimate and replaces it. A step shorter than the delay of that request cannot be
///   distinguished from delay; it exceeds the true time by at most that delay, until [`FRESH`] is over.
/// - **The local clock jumps ahead** (see [`TrustTime`](crate::clock::TrustTime)): this is equivalent to a step back of
///   the remote clock.
/// - **The machine is suspended**: trust time counts the suspend, as the remote clock does.
///
/// Only a reply reveals a step. So a caller that can read the remote clock does so when the newest reply is not
/// [fresh](Self::is_fresh), which bounds how long a step stays unnoticed.
///
/// An estimate covers one clock: each node of a cluster has its own.
#[derive(Debug, Default)]
pub struct RemoteClock(Mutex<Option<Estimate>>);

#[derive(Debug, Clone, Copy)]
struct Estimate {
    best: Reply,
    /// The arrival of the newest reply.
    heard: Mono,
}

#[derive(Debug, Clone, Copy)]
struct Reply {
    shown: StoreTime,
    arrived: Mono,
}

impl Reply {
    /// Its lower bound for a local instant, before or after its arrival.
    fn at_least(self, local: Mono) -> StoreTime {
        let (before, after) = (self.arrived.since(local), local.since(self.arrived));
        self.shown.minus(before.saturating_add(before / DRIFT)) + (after - after / DRIFT)
    }

    /// Whether it stays the estimate after a newer reply.
    fn outlasts(self, newer: Self, asked: Mono) -> bool {
        let is_higher = self.at_least(newer.arrived) > newer.shown;
        let is_contradicted = self.at_least(asked) > newer.shown;
        is_higher && !is_contradicted && newer.arrived.since(self.arrived) <= FRESH
    }
}

impl RemoteClock {
    /// Records a reply that showed this time, requested at or after `asked` and received at `arrived`.
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

    /// A lower bound of the remote clock at a local instant; `None` before the first reply.
    #[must_use]
    pub fn at_least(&self, local: Mono) -> Option<StoreTime> {
        let estimate = *self.estimate();
        estimate.map(|estimate| estimate.best.at_least(local))
    }

    /// The call with the earlier not-after of its own and that of a local deadline, which is known after the first
    /// reply.
    #[must_use]
    pub fn not_after(&self, give_up: Mono, call: Call) -> Call {
        let limits = self.at_least(give_up).into_iter().chain(call.not_after);
        Call {
            not_after: limits.min(),
        }
    }

    /// The age of the newest reply.
    #[must_use]
    pub fn age(&self, now: Mono) -> Option<Duration> {
        let estimate = *self.estimate();
        estimate.map(|estimate| now.since(estimate.heard))
    }

    /// Whether the newest reply is recent enough that the remote clock need not be read again.
    #[must_use]
    pub fn is_fresh(&self, now: Mono) -> bool {
        self.age(now).is_some_and(|age| age <= FRESH)
    }

    /// Discards the estimate, because another clock may answer from now on.
    pub fn forget(&self) {
        *self.estimate() = None;
    }

    fn estimate(&self) -> MutexGuard<'_, Option<Estimate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
