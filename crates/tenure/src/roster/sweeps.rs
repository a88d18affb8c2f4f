//! The periodic tasks of rosters: the ledger follows ended tenures, heartbeats are recorded in the ledger, the mirror
//! is compared with the ledger, and engagements expire.
//!
//! Each is a loop with its own schedule per roster; a failure in one roster delays no other. Any number of processes
//! may run them: every step is idempotent, and turns in the hot store keep most steps from being made twice.

mod expiry;
mod follow;
mod heartbeats;
mod reconcile;
mod sweep_loop;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::error::{Error, Result};
use tenure_core::roster::{Task, Turn, TurnRequest};
use tenure_core::time::StoreTime;

use self::sweep_loop::SweepLoop;
use super::mirror_client::MirrorClient;
use super::service::Inner;
use super::state::RosterState;
use crate::loops::{FLOOR, LoopSettings, Loops, Waker};

/// The loop in which the ledger follows ended tenures. Woken by the janitor.
pub const FOLLOW: &str = "roster_offline";
/// The loop that records heartbeats in the ledger.
pub const HEARTBEATS: &str = "roster_heartbeats";
/// The loop that compares mirrors with the ledger.
pub const RECONCILE: &str = "roster_reconcile";
/// The loop that ends expired engagements.
pub const EXPIRY: &str = "roster_expiry";

/// How long a turn lasts without renewal: a process that dies blocks the others for this time.
pub(super) const TURN: Duration = Duration::from_secs(10);
/// When to retry while the hot store is unreachable or another process has the turn.
const SOON: Duration = Duration::from_millis(500);

/// The longest intervals between sweeps. A shorter one notices changes sooner, a longer one costs less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepIntervals {
    /// The ledger follows ended tenures. Usually it follows immediately; this is the fallback for a missed wake-up.
    pub offline: Duration,
    /// Heartbeats are recorded in the ledger: a loss of the hot store's data loses at most this much of them.
    pub heartbeats: Duration,
    /// The mirror is compared with the ledger.
    pub reconcile: Duration,
    /// Engagements expire that another process wrote with an early end.
    pub expiry: Duration,
}

impl Default for SweepIntervals {
    fn default() -> Self {
        Self {
            offline: Duration::from_secs(30),
            heartbeats: Duration::from_secs(60),
            reconcile: Duration::from_secs(300),
            expiry: Duration::from_secs(5),
        }
    }
}

impl SweepIntervals {
    /// # Errors
    /// `Invalid` for an interval that no loop can have.
    pub(super) fn check(&self) -> Result<()> {
        let all = [self.offline, self.heartbeats, self.reconcile, self.expiry];
        match all.into_iter().find(|interval| *interval < FLOOR) {
            None => Ok(()),
            Some(interval) => Err(Error::invalid(format!(
                "the interval {interval:?} of a roster's sweep is too short; it must be at least {FLOOR:?}"
            ))),
        }
    }
}

/// Wakes sweeps that are known to be due.
pub(super) struct Wakers {
    pub(super) follow: Waker,
    pub(super) heartbeats: Waker,
    pub(super) reconcile: Waker,
    pub(super) expiry: Waker,
}

/// Starts the sweeps.
///
/// # Errors
/// `Invalid` when `loops` contains them already.
pub(super) fn start(inner: &Arc<Inner>, intervals: SweepIntervals, loops: &Loops) -> Result<Wakers> {
    let holder = format!("{:016x}", inner.clock().entropy());
    let begin = |name: &str, interval| (LoopSettings::new(name, interval), Arc::clone(inner), holder.clone());
    let (settings, body, name) = begin(FOLLOW, intervals.offline);
    let follow = loops.start(settings, move || {
        SweepLoop::new(Arc::clone(&body), name.clone(), intervals.offline, follow::Follow)
    })?;
    let (settings, body, name) = begin(HEARTBEATS, intervals.heartbeats);
    let heartbeats = loops.start(settings, move || {
        SweepLoop::new(
            Arc::clone(&body),
            name.clone(),
            intervals.heartbeats,
            heartbeats::RecordHeartbeats,
        )
    })?;
    let (settings, body, name) = begin(RECONCILE, intervals.reconcile);
    let reconcile = loops.start(settings, move || {
        SweepLoop::new(
            Arc::clone(&body),
            name.clone(),
            intervals.reconcile,
            reconcile::Reconcile,
        )
    })?;
    let (settings, body, name) = begin(EXPIRY, intervals.expiry);
    let expiry = loops.start(settings, move || {
        SweepLoop::new(Arc::clone(&body), name.clone(), intervals.expiry, expiry::Expiry)
    })?;
    Ok(Wakers {
        follow,
        heartbeats,
        reconcile,
        expiry,
    })
}

/// One visit of one roster by a sweep.
struct Visit<'a> {
    inner: &'a Inner,
    state: &'a RosterState,
    /// The name of this process in turns.
    holder: &'a str,
    interval: Duration,
}

impl Visit<'_> {
    fn mirror(&self) -> &MirrorClient {
        self.state.mirror()
    }

    /// The hot store's time.
    async fn store_now(&self) -> Result<StoreTime> {
        Ok(self.mirror().stamp().await?.as_of)
    }

    /// The time until `at` by the hot store's clock.
    async fn until(&self, at: StoreTime) -> Result<Duration> {
        Ok(at.since(self.store_now().await?))
    }

    /// Takes or renews the turn at a task.
    async fn take_turn(&self, task: Task, every: Duration) -> Result<Turn> {
        let mirror = self.mirror();
        let request = TurnRequest {
            task,
            holder: self.holder.to_owned(),
            lasts: TURN,
            every,
        };
        let call = mirror.limits(mirror.patience());
        let turn = mirror.api()?.take_turn(mirror.group(), &request, call);
        mirror.call(mirror.patience(), turn).await
    }

    /// Ends the turn. If the call fails, the turn expires.
    async fn end_turn(&self, task: Task, done: bool) {
        let mirror = self.mirror();
        let Ok(api) = mirror.api() else { return };
        let call = mirror.limits(mirror.patience());
        let ended = api.end_turn(mirror.group(), task, self.holder, done, call);
        if let Err(error) = mirror.call(mirror.patience(), ended).await {
            let (roster, task) = (self.state.roster(), task.as_str());
            tracing::debug!(%roster, task, error = error.chain(), "a turn could not be ended; it will expire");
        }
    }
}
