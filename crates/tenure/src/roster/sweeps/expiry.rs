//! Ends engagements past their expiry, and removes those that were closed long ago. The ledger decides; the mirror receives
//! the changed rows.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::Result;
use tenure_core::roster::MirrorEntry;
use tenure_core::store::MAX_PAGE;
use tenure_core::sweep::BATCH;

use super::super::state::RosterState;
use super::super::status::Sweep;
use super::Visit;
use super::sweep_loop::RosterSweep;

/// How many batches one visit ends before other rosters are visited.
const BATCHES: usize = 20;

/// How often old closed engagements are removed, and how many batches one visit removes.
const PRUNE: (Duration, usize) = (Duration::from_secs(60), 5);

/// The expiry sweep.
pub(super) struct Expiry;

#[async_trait]
impl RosterSweep for Expiry {
    const SWEEP: Sweep = Sweep::Expiry;
    const NEEDS_HOT_STORE: bool = false;

    async fn visit(&self, visit: &Visit<'_>) -> Result<Duration> {
        visit.prune().await?;
        // No turns: the process that wrote an early end visits in time, and concurrent visits share the work.
        let (is_asked, now) = (visit.state.take_expiring(), visit.inner.clock().mono());
        // The poll of the ledger reads the next expiry of every roster.
        let told = visit.state.expires_after(visit.interval, now);
        if let Some(wait) = told.filter(|wait| !is_asked && !wait.is_zero()) {
            visit.state.swept(Sweep::Expiry, now);
            return Ok(wait);
        }
        let (ledger, roster) = (visit.inner.ledger(), visit.state.roster());
        for _ in 0..BATCHES {
            let asked_at = visit.inner.clock().mono();
            let batch = ledger.expire_due(roster, BATCH).await?;
            for engagement in &batch.expired {
                let provider = engagement.provider.as_ref().map(ToString::to_string);
                tracing::info!(%roster, engagement = %engagement.engagement, provider, "expired");
            }
            if !batch.providers.is_empty() {
                let rows = batch.providers.into_iter().map(MirrorEntry::Row).collect();
                visit.inner.mirror_now(visit.state, rows).await;
            }
            let Some(next) = batch.next else {
                visit.state.expires(None, asked_at);
                visit.state.swept(Sweep::Expiry, visit.inner.clock().mono());
                return Ok(visit.interval);
            };
            let wait = next.since(ledger.now().await?);
            if !wait.is_zero() {
                visit.state.expires(Some(visit.inner.clock().mono() + wait), asked_at);
                visit.state.swept(Sweep::Expiry, visit.inner.clock().mono());
                return Ok(wait);
            }
        }
        Ok(Duration::ZERO)
    }

    fn is_early(&self, state: &RosterState) -> bool {
        state.is_expiring()
    }
}

impl Visit<'_> {
    /// Removes closed engagements that are older than the settings keep them.
    async fn prune(&self) -> Result<()> {
        let (every, batches) = PRUNE;
        let now = self.inner.clock().mono();
        let Some(kept) = self.inner.settings().keep_engagements else {
            return Ok(());
        };
        if !self.state.take_prune(every, now) {
            return Ok(());
        }
        let (mut removed, roster) = (0, self.state.roster());
        for _ in 0..batches {
            let part = self.inner.ledger().remove_closed(roster, kept, MAX_PAGE).await?;
            removed += part;
            if part < u64::from(MAX_PAGE) {
                break;
            }
        }
        if removed > 0 {
            tracing::info!(%roster, removed, ?kept, "old closed engagements were removed");
        }
        Ok(())
    }
}
