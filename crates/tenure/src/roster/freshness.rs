//! Which providers are considered fresh while the ledger answers in place of the mirror.
//!
//! The ledger gets heartbeats late, so a process that alone lost the hot store must not judge by them alone: it would
//! call every provider stale. While its outage is younger than the roster's `stale_after`, it considers all of them fresh.
//! After that it needs a proof: a *pass* of a process that reaches the hot store and has written all heartbeats to the ledger.
//! To get one it marks its rosters in the ledger, and those processes then make a pass every few seconds. If no pass comes
//! although the mark has stood for long enough, no process reaches the hot store; then each of them writes its heartbeats to
//! the ledger, and the ledger's times count. In between the answer is unknown, and a read that depends on it is refused.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::error::{Error, Outcome, Result};
use tenure_core::ledger::settings::MAX_SNAPSHOT;
use tenure_core::ledger::{HeartbeatPass, Ledger};
use tenure_core::time::StoreTime;

use super::fallback::breaker::BreakerState;
use super::one::One;
use super::service::Inner;

/// For how long the mirror is not believed before heartbeats are wanted. Longer spares the others work when the hot store
/// only hiccups.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a mark stands that is not repeated, and how often it is repeated.
const MARK: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3));
/// How often heartbeats of a marked roster are written down.
pub(super) const PASS: Duration = Duration::from_secs(2);
/// An older pass proves nothing: as old as the snapshot of availability may be.
const PASS_COUNTS: Duration = MAX_SNAPSHOT;
/// After a mark has stood for this long without a pass, no process reaches the hot store. More than a look for marks, two
/// passes (the one before the look proved nothing) and the jitter of all.
pub(super) const SILENCE: Duration = Duration::from_secs(8);
/// The same after the last of some passes: a process that dies in the midst of one holds the others up for a whole turn.
const SILENCE_AFTER_PASS: Duration = Duration::from_secs(15);
/// How long this process believes what it has read about passes.
const PASS_KEPT: Duration = Duration::from_secs(1);

/// Which providers count as fresh, of those that the ledger has online.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Freshness {
    /// All of them.
    Everyone,
    /// Those that were heard this long ago or later, as far as the ledger knows.
    Within(Duration),
    /// Those that were heard since.
    Since(StoreTime),
}

impl Freshness {
    /// Since when a provider must have been heard, now being this on the ledger's clock; `None` for everyone.
    pub(super) fn at(self, now: StoreTime) -> Option<StoreTime> {
        match self {
            Self::Everyone => None,
            Self::Within(span) => Some(now.minus(span)),
            Self::Since(since) => Some(since),
        }
    }

    /// The same, with the time from the ledger where it matters.
    pub(super) async fn since(self, ledger: &dyn Ledger) -> Result<Option<StoreTime>> {
        match self {
            Self::Within(_) => Ok(self.at(ledger.now().await?)),
            Self::Everyone | Self::Since(_) => Ok(self.at(StoreTime::default())),
        }
    }
}

impl Inner {
    /// Which providers count as fresh for the ledger's answer.
    ///
    /// # Errors
    /// `Unavailable` while that is not known.
    pub(super) async fn freshness(&self, one: &One) -> Result<Freshness> {
        let settings = self.settings_of(one).await;
        let (now, stale_after) = (self.clock().mono(), settings.stale_after);
        let outage = one.line().trust().untrusted_since();
        // A roster that this process has not discovered is younger than its last look, or there is none of that name.
        let is_young = outage.is_some_and(|since| now.since(since) < stale_after) || !one.line().is_known();
        if !settings.require_heartbeat || is_young {
            return Ok(Freshness::Everyone);
        }
        if outage.is_none() {
            // The mirror is believed and has answered before the ledger is asked.
            return Ok(Freshness::Within(stale_after));
        }
        let pass = self.pass(one).await?;
        if let Some(pass) = pass.filter(|pass| pass.age < PASS_COUNTS) {
            return Ok(Freshness::Since(pass.fresh_since));
        }
        let marked = one.marked_for(self.clock().mono()).unwrap_or_default();
        let (silence, enough) = match pass {
            Some(pass) if pass.age < marked => (pass.age, SILENCE_AFTER_PASS),
            _ => (marked, SILENCE),
        };
        match silence >= enough {
            true => Ok(Freshness::Within(stale_after)),
            false => Err(unknown()),
        }
    }

    /// The last pass, as read within a second.
    async fn pass(&self, one: &One) -> Result<Option<HeartbeatPass>> {
        let now = self.clock().mono();
        if let Some(known) = one.pass(PASS_KEPT, now) {
            return Ok(known);
        }
        let (ledger, roster) = (Arc::clone(self.ledger()), one.roster().clone());
        let work = move || async move { ledger.heartbeat_pass(&roster).await };
        let pass = self.reads().passes.read(one.roster().clone(), None, work).await?;
        one.set_pass(pass, now);
        Ok(pass)
    }

    /// Marks the rosters whose mirror this process cannot believe: one statement for all of them.
    pub(super) async fn want_heartbeats(&self) -> Result<()> {
        let now = self.clock().mono();
        let (lasts, every) = MARK;
        let (doubted, rest): (Vec<_>, Vec<_>) = self.known().into_iter().partition(|one| {
            let since = one.line().trust().untrusted_since();
            since.is_some_and(|since| now.since(since) >= PATIENCE)
        });
        for one in rest {
            one.unmark();
        }
        let is_shut = matches!(self.guard().status().breaker, BreakerState::Open(_));
        if is_shut || doubted.iter().all(|one| !one.mark_is_due(every, now)) {
            return Ok(());
        }
        let names: Vec<_> = doubted.iter().map(|one| one.roster().clone()).collect();
        let marked = self.ledger().want_heartbeats(&names, lasts);
        self.in_time(marked).await?;
        for one in doubted {
            one.mark(lasts, now);
        }
        Ok(())
    }
}

/// The answer while it is not known which providers are fresh. The next pass may come soon.
fn unknown() -> Error {
    Error::unavailable(
        "the hot store cannot be reached from here, and it is not known yet which providers sent heartbeats to other processes",
        Outcome::Unchanged,
    )
    .with_retry_after(PASS)
}
