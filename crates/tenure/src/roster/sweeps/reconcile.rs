//! Compares the mirror with the ledger and corrects it: at intervals, at the start, and after events that may have lost
//! data. An empty mirror is filled in the same way.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::ledger::{Provider, Version};
use tenure_core::roster::{Comparison, Put, Rows, Standing, Task, Turn, Verified};
use tenure_core::store::{MAX_PAGE, PageRequest};
use tenure_core::sweep::{BATCH, ReconcileRequest};

use super::super::mirror_client::BULK;
use super::super::state::RosterState;
use super::super::status::Sweep;
use super::super::trust::ReconcileReason;
use super::sweep_loop::RosterSweep;
use super::{SOON, Visit};
use crate::meters;

/// The turn is renewed after this many steps.
const PROLONG: usize = 25;
/// The maximum age of polled settings.
const SETTINGS_KEPT: Duration = Duration::from_secs(5);
/// A ledger without any provider removes at most this many from a mirror: it is the wrong ledger, or has lost its data.
const FEW: usize = 10;

/// The reconcile sweep.
pub(super) struct Reconcile;

#[async_trait]
impl RosterSweep for Reconcile {
    const SWEEP: Sweep = Sweep::Reconcile;

    async fn visit(&self, visit: &Visit<'_>) -> Result<Duration> {
        let now = visit.store_now().await?;
        let every = match visit.state.reconcile_reason() {
            None => visit.interval,
            Some(ReconcileReason::Seed | ReconcileReason::Own) => Duration::ZERO,
            // A reconcile by any process since then is enough.
            Some(ReconcileReason::Since(since)) => now.since(since).min(visit.interval),
        };
        match visit.take_turn(Task::Reconcile, every).await? {
            Turn::Mine(_) => {}
            Turn::Others(_) => return Ok(SOON),
            Turn::DoneUntil(at) => {
                let done_at = at.minus(every);
                visit.state.last_reconciled(done_at, visit.inner.clock().mono());
                return Ok((done_at + visit.interval).since(now));
            }
        }
        let done = visit.reconcile().await;
        visit.end_turn(Task::Reconcile, done.is_ok()).await;
        done.map(|()| visit.interval)
    }

    fn is_early(&self, state: &RosterState) -> bool {
        state.reconcile_reason().is_some()
    }
}

impl Visit<'_> {
    async fn reconcile(&self) -> Result<()> {
        let (mirror, ledger, roster) = (self.mirror(), self.inner.ledger(), self.state.roster());
        // The polled settings save a statement per idle roster.
        let settings = match self.state.polled_settings(SETTINGS_KEPT, self.inner.clock().mono()) {
            Some(settings) => settings,
            None => ledger.settings(roster).await?,
        };
        self.inner.put_settings(self.state, settings).await?;
        // After a first step, which detects a gap or a data loss.
        let since = mirror.stamp().await?.resumed_at;

        // A ledger that takes no writes can still fill a mirror.
        match ledger.recount(roster).await {
            Ok(0) => {}
            Ok(recounted) => {
                tracing::warn!(%roster, recounted, "occupancies in the ledger were wrong: engagements were \
                written without its triggers; they are corrected")
            }
            Err(error) => tracing::debug!(%roster, error = error.chain(), "occupancies could not be counted"),
        }
        let mut comparison = Comparison::new(Version::NONE);
        let mut repaired = self.see_mirror(&mut comparison).await?;
        let mut providers = self.see_ledger(&mut comparison).await?;
        let mut differences = 0;
        if comparison.is_beyond() {
            // A removal needs a version drawn before anything was read, so everything is read again.
            differences = comparison.differences();
            comparison = Comparison::new(ledger.next_version().await?);
            for (kind, count) in self.see_mirror(&mut comparison).await? {
                *repaired.entry(kind).or_default() += count;
            }
            providers = self.see_ledger(&mut comparison).await?;
        }
        let rest = comparison.rest();
        if providers == 0 && rest.len() > FEW {
            let mirrored = rest.len();
            tracing::error!(%roster, mirrored, "the ledger has no provider of this roster and the mirror has many; nothing is \
                removed. Is it the right database?");
        } else {
            self.put(&rest).await?;
        }
        self.seat_unknown().await?;

        let call = mirror.limits(mirror.patience());
        let marked = mirror.api()?.mark_seeded(mirror.group(), since, call);
        if !mirror.call(mirror.patience(), marked).await? {
            let why = "the hot store has resumed since the reconcile began; the first rows written may be lost";
            return Err(Error::unavailable(why, Outcome::Unchanged));
        }
        let stamp = mirror.stamp().await?;
        differences += comparison.differences();
        self.state.reconciled(&stamp, differences, self.inner.clock().mono());
        meters::roster_drift(&mirror.label(), &repaired);
        if differences > 0 || !repaired.is_empty() {
            tracing::info!(%roster, providers, differences, repaired = ?repaired, "the mirror agrees with the ledger again");
        }
        Ok(())
    }

    /// Reads all of the mirror, which also repairs its indexes.
    async fn see_mirror(&self, comparison: &mut Comparison) -> Result<BTreeMap<String, u64>> {
        let mirror = self.mirror();
        let mut repaired: BTreeMap<String, u64> = BTreeMap::new();
        let mut request = ReconcileRequest {
            after: None,
            limit: BATCH,
        };
        for step in 1.. {
            let call = mirror.limits(BULK);
            let part = mirror.api()?.verify_roster(mirror.group(), &request, call);
            let part: Verified = mirror.call(BULK, part).await?;
            part.entries.iter().for_each(|entry| comparison.saw(entry));
            for (kind, count) in part.repaired {
                *repaired.entry(kind).or_default() += count;
            }
            request.after = part.next;
            if request.after.is_none() {
                break;
            }
            self.prolong(step).await?;
        }
        Ok(repaired)
    }

    /// Reads all of the ledger page by page and corrects differences immediately. Returns the number of providers.
    async fn see_ledger(&self, comparison: &mut Comparison) -> Result<usize> {
        let mut page = PageRequest {
            after: None,
            limit: MAX_PAGE,
        };
        let mut providers = 0;
        for step in 1.. {
            let rows = self.inner.ledger().providers(self.state.roster(), None, &page).await?;
            providers += rows.items.len();
            let puts = comparison.compare(rows.items);
            self.put(&puts).await?;
            page.after = rows.next;
            if page.after.is_none() {
                break;
            }
            self.prolong(step).await?;
        }
        Ok(providers)
    }

    async fn put(&self, puts: &[Put]) -> Result<()> {
        for (step, part) in puts.chunks(MAX_PAGE as usize).enumerate() {
            self.inner.put_rows(self.state, part).await?;
            self.prolong(step + 1).await?;
        }
        Ok(())
    }

    /// Gives tenures to providers whose rows agree but name a tenure that the store does not know: the store lost the
    /// end of its data.
    async fn seat_unknown(&self) -> Result<()> {
        let mirror = self.mirror();
        let mut page = PageRequest {
            after: None,
            limit: MAX_PAGE,
        };
        for step in 1.. {
            let rows = mirror.api()?.rows(mirror.group(), &page);
            let (rows, _) = mirror.read(rows, |rows: &Rows| &rows.mirror).await?;
            let strange = rows.rows.into_iter().filter(|seen| seen.standing == Standing::Unknown);
            let strange: Vec<Provider> = strange.map(|seen| seen.row).collect();
            self.inner.seat_and_follow(self.state, &strange).await?;
            page.after = rows.next;
            if page.after.is_none() {
                break;
            }
            self.prolong(step).await?;
        }
        Ok(())
    }

    async fn prolong(&self, step: usize) -> Result<()> {
        if step.is_multiple_of(PROLONG) {
            self.take_turn(Task::Reconcile, Duration::ZERO).await?;
        }
        Ok(())
    }
}
