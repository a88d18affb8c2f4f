//! What is done for rosters now and then: the ledger follows tenures that ended, heartbeats are written down, the mirror is
//! compared with the ledger, engagements end whose time has come.
//!
//! Each is a loop that visits every roster that the ledger knows, each at its own time; one that fails delays no other.
//! Any number of processes may run them: every step may be repeated, and turns in the hot store see to it that it rarely
//! is.

mod expiry;
mod follow;
mod heartbeats;
mod reconcile;
mod round;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::error::{Error, Result};
use tenure_core::roster::{Task, Turn, TurnRequest};
use tenure_core::time::StoreTime;

use self::round::Round;
use super::line::Line;
use super::one::One;
use super::service::Inner;
use crate::loops::{FLOOR, LoopSettings, Loops, Waker};

/// The loop that lets the ledger follow. Woken by the janitor.
pub const FOLLOW: &str = "roster_offline";
/// The loop that writes heartbeats down.
pub const HEARTBEATS: &str = "roster_heartbeats";
/// The loop that compares mirrors with the ledger.
pub const RECONCILE: &str = "roster_reconcile";
/// The loop that ends engagements.
pub const EXPIRY: &str = "roster_expiry";

/// How long a turn lasts that is not prolonged: so long a process that dies holds the others up.
const TURN: Duration = Duration::from_secs(10);
/// When to look again whether the hot store is back, or somebody else's turn is over.
const SOON: Duration = Duration::from_millis(500);

/// How often the sweeps come at the latest. Shorter notices more by polling, longer costs less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepIntervals {
    /// The ledger follows tenures that ended. Mostly it does so at once: this is for when nobody told.
    pub offline: Duration,
    /// Heartbeats are written down in the ledger: as much of them as this is lost with the hot store's data.
    pub heartbeats: Duration,
    /// The mirror is compared with the ledger.
    pub reconcile: Duration,
    /// Engagements end that another process has written down with an early end.
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
    /// `Invalid` for one that no loop can have.
    pub(super) fn check(&self) -> Result<()> {
        let all = [self.offline, self.heartbeats, self.reconcile, self.expiry];
        match all.into_iter().find(|interval| *interval < FLOOR) {
            None => Ok(()),
            Some(interval) => Err(Error::invalid(format!(
                "the interval {interval:?} of a roster's sweep is below {FLOOR:?}"
            ))),
        }
    }
}

/// Wakes the sweeps that somebody can know to be due.
pub(super) struct Wakers {
    pub(super) follow: Waker,
    pub(super) heartbeats: Waker,
    pub(super) reconcile: Waker,
    pub(super) expiry: Waker,
}

/// Starts them.
///
/// # Errors
/// `Invalid` when `loops` has them already.
pub(super) fn start(inner: &Arc<Inner>, intervals: SweepIntervals, loops: &Loops) -> Result<Wakers> {
    let holder = format!("{:016x}", inner.clock().entropy());
    let begin = |name: &str, interval| (LoopSettings::new(name, interval), Arc::clone(inner), holder.clone());
    let (settings, body, name) = begin(FOLLOW, intervals.offline);
    let follow = loops.start(settings, move || {
        Round::new(Arc::clone(&body), name.clone(), intervals.offline, follow::Follow)
    })?;
    let (settings, body, name) = begin(HEARTBEATS, intervals.heartbeats);
    let heartbeats = loops.start(settings, move || {
        Round::new(
            Arc::clone(&body),
            name.clone(),
            intervals.heartbeats,
            heartbeats::WriteDown,
        )
    })?;
    let (settings, body, name) = begin(RECONCILE, intervals.reconcile);
    let reconcile = loops.start(settings, move || {
        Round::new(
            Arc::clone(&body),
            name.clone(),
            intervals.reconcile,
            reconcile::Reconcile,
        )
    })?;
    let (settings, body, name) = begin(EXPIRY, intervals.expiry);
    let expiry = loops.start(settings, move || {
        Round::new(Arc::clone(&body), name.clone(), intervals.expiry, expiry::Expiry)
    })?;
    Ok(Wakers {
        follow,
        heartbeats,
        reconcile,
        expiry,
    })
}

/// One visit of one roster.
struct Visit<'a> {
    inner: &'a Inner,
    one: &'a One,
    /// The name of this process among those that take turns.
    holder: &'a str,
    interval: Duration,
}

impl Visit<'_> {
    fn line(&self) -> &Line {
        self.one.line()
    }

    /// The hot store's time.
    async fn store_now(&self) -> Result<StoreTime> {
        Ok(self.line().stamp().await?.as_of)
    }

    /// How long it is until then, by the hot store's clock.
    async fn until(&self, at: StoreTime) -> Result<Duration> {
        Ok(at.since(self.store_now().await?))
    }

    /// Takes or prolongs the turn at a task.
    async fn take_turn(&self, task: Task, every: Duration) -> Result<Turn> {
        let line = self.line();
        let request = TurnRequest {
            task,
            holder: self.holder.to_owned(),
            lasts: TURN,
            every,
        };
        let call = line.limits(line.patience());
        let turn = line.mirror()?.take_turn(line.group(), &request, call);
        line.ask(line.patience(), turn).await
    }

    /// Gives the turn back. One that cannot be given back is over by itself.
    async fn end_turn(&self, task: Task, done: bool) {
        let line = self.line();
        let Ok(mirror) = line.mirror() else { return };
        let call = line.limits(line.patience());
        let ended = mirror.end_turn(line.group(), task, self.holder, done, call);
        if let Err(error) = line.ask(line.patience(), ended).await {
            let (roster, task) = (self.one.roster(), task.as_str());
            tracing::debug!(%roster, task, error = error.chain(), "a turn could not be given back; it will be over by itself");
        }
    }
}
