//! Which providers are considered fresh while the ledger answers in place of the mirror.
//!
//! The ledger receives heartbeats late. A process that alone lost the hot store must not judge by them: it would
//! consider every provider stale. While its outage is younger than the roster's `stale_after`, it considers all
//! providers fresh. After that it needs a heartbeat *pass*: the proof that a process with access to the hot store has
//! recorded all heartbeats in the ledger. It requests passes by marking its rosters in the ledger; the other processes
//! then make one every few seconds. If no pass comes although the mark has stood long enough, no process reaches the
//! hot store. Then each process records its own heartbeats in the ledger, and the ledger's times count. In between the
//! answer is unknown, and a read that depends on it is refused.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::error::{Error, Outcome, Result};
use tenure_core::ledger::settings::MAX_SNAPSHOT;
use tenure_core::ledger::{HeartbeatPass, Ledger};
use tenure_core::time::StoreTime;

use super::fallback::breaker::BreakerState;
use super::service::Inner;
use super::state::RosterState;
use super::sweeps::TURN;

/// For how long the mirror is untrusted before heartbeats are requested. A longer time saves the other processes work
/// during short outages of the hot store.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a mark stands without renewal, and how often it is renewed.
const MARK: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3));
/// How often the heartbeats of a marked roster are recorded.
pub(super) const PASS: Duration = Duration::from_secs(2);
/// A pass older than this proves nothing: the same age as the snapshot of availability may have.
const PASS_COUNTS: Duration = MAX_SNAPSHOT;
/// After a mark has stood for this long without a pass, no process reaches the hot store. A process that dies in the
/// middle of a pass blocks the others for one turn, so this is one turn, and as long again for the delay until the mark
/// is read, the pass in progress at that time (which proves nothing), the next one, and their jitter.
pub(super) const SILENCE: Duration = TURN.saturating_mul(2);
/// How long a pass read from the ledger is cached.
const PASS_KEPT: Duration = Duration::from_secs(1);

/// Which of the ledger's online providers count as fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Freshness {
    /// All of them.
    Everyone,
    /// Those with a heartbeat in the ledger at most this old.
    Within(Duration),
    /// Those with a heartbeat since then.
    Since(StoreTime),
}

impl Freshness {
    /// The time since when a heartbeat is required, given the ledger's time; `None` for everyone.
    pub(super) fn at(self, now: StoreTime) -> Option<StoreTime> {
        match self {
            Self::Everyone => None,
            Self::Within(span) => Some(now.minus(span)),
            Self::Since(since) => Some(since),
        }
    }

    /// The same, reading the ledger's time where it matters.
    pub(super) async fn since(self, ledger: &dyn Ledger) -> Result<Option<StoreTime>> {
        match self {
            Self::Within(_) => Ok(self.at(ledger.now().await?)),
            Self::Everyone | Self::Since(_) => Ok(self.at(StoreTime::default())),
        }
    }
}

impl Inner {
    /// Which providers count as fresh in the ledger's answer.
    ///
    /// # Errors
    /// `Unavailable` while that is unknown.
    pub(super) async fn freshness(&self, state: &RosterState) -> Result<Freshness> {
        let settings = self.settings_of(state).await;
        let (now, stale_after) = (self.clock().mono(), settings.stale_after);
        let outage = state.mirror().trust().untrusted_since();
        // A roster that this process has not discovered is younger than its last poll, or does not exist.
        let is_young = outage.is_some_and(|since| now.since(since) < stale_after) || !state.mirror().is_known();
        if !settings.require_heartbeat || is_young {
            return Ok(Freshness::Everyone);
        }
        if outage.is_none() {
            // The mirror is trusted, and has answered before the ledger is asked.
            return Ok(Freshness::Within(stale_after));
        }
        let pass = self.pass(state).await?;
        if let Some(pass) = pass.filter(|pass| pass.age < PASS_COUNTS) {
            return Ok(Freshness::Since(pass.fresh_since));
        }
        let marked = state.marked_for(self.clock().mono()).unwrap_or_default();
        let silence = pass.map_or(marked, |pass| pass.age.min(marked));
        match silence >= SILENCE {
            true => Ok(Freshness::Within(stale_after)),
            false => Err(unknown()),
        }
    }

    /// The last pass, cached for a second.
    async fn pass(&self, state: &RosterState) -> Result<Option<HeartbeatPass>> {
        let now = self.clock().mono();
        if let Some(known) = state.pass(PASS_KEPT, now) {
            return Ok(known);
        }
        let (ledger, roster) = (Arc::clone(self.ledger()), state.roster().clone());
        let work = move || async move { ledger.heartbeat_pass(&roster).await };
        let pass = self.reads().passes.read(state.roster().clone(), None, work).await?;
        state.set_pass(pass, now);
        Ok(pass)
    }

    /// Marks the rosters whose mirror this process does not trust, in one statement.
    pub(super) async fn want_heartbeats(&self) -> Result<()> {
        let now = self.clock().mono();
        let (lasts, every) = MARK;
        let (doubted, rest): (Vec<_>, Vec<_>) = self.known().into_iter().partition(|state| {
            let since = state.mirror().trust().untrusted_since();
            since.is_some_and(|since| now.since(since) >= PATIENCE)
        });
        for state in rest {
            state.unmark();
        }
        let is_shut = matches!(self.guard().status().breaker, BreakerState::Open(_));
        if is_shut || doubted.iter().all(|state| !state.mark_is_due(every, now)) {
            return Ok(());
        }
        let names: Vec<_> = doubted.iter().map(|state| state.roster().clone()).collect();
        let marked = self.ledger().want_heartbeats(&names, lasts);
        self.in_time(marked).await?;
        for state in doubted {
            state.mark(lasts, now);
        }
        Ok(())
    }
}

/// The error while it is unknown which providers are fresh. The next pass may come soon.
fn unknown() -> Error {
    Error::unavailable(
        "this process cannot reach the hot store, and does not know yet which providers other processes heard from; \
         retry later",
        Outcome::Unchanged,
    )
    .with_retry_after(PASS)
}
