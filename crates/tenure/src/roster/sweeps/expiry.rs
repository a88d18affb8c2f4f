//! Engagements end whose time has come. The ledger's work alone; the mirror hears of it.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::Result;
use tenure_core::roster::Entry;
use tenure_core::sweep::BATCH;

use super::super::one::One;
use super::super::status::Sweep;
use super::Visit;
use super::round::Sweeping;

/// How many batches one visit ends before others have their turn.
const BATCHES: usize = 20;

/// The sweep.
pub(super) struct Expiry;

#[async_trait]
impl Sweeping for Expiry {
    const SWEEP: Sweep = Sweep::Expiry;
    const NEEDS_HOT_STORE: bool = false;

    async fn visit(&self, visit: &Visit<'_>) -> Result<Duration> {
        // No turns: whoever wrote an early end down knows best when to come, and those who come at once share the work.
        let (is_asked, now) = (visit.one.take_expiring(), visit.inner.clock().mono());
        // The poll of the ledger tells of all rosters when the next engagement expires.
        let told = visit.one.expires_after(visit.interval, now);
        if let Some(wait) = told.filter(|wait| !is_asked && !wait.is_zero()) {
            visit.one.swept(Sweep::Expiry, now);
            return Ok(wait);
        }
        let (ledger, roster) = (visit.inner.ledger(), visit.one.roster());
        for _ in 0..BATCHES {
            let asked_at = visit.inner.clock().mono();
            let batch = ledger.expire_due(roster, BATCH).await?;
            for engagement in &batch.expired {
                let provider = engagement.provider.as_ref().map(ToString::to_string);
                tracing::info!(%roster, engagement = %engagement.engagement, provider, "expired");
            }
            if !batch.providers.is_empty() {
                let rows = batch.providers.into_iter().map(Entry::Row).collect();
                visit.inner.mirror_now(visit.one, rows).await;
            }
            let Some(next) = batch.next else {
                visit.one.expires(None, asked_at);
                visit.one.swept(Sweep::Expiry, visit.inner.clock().mono());
                return Ok(visit.interval);
            };
            let wait = next.since(ledger.now().await?);
            if !wait.is_zero() {
                visit.one.expires(Some(visit.inner.clock().mono() + wait), asked_at);
                visit.one.swept(Sweep::Expiry, visit.inner.clock().mono());
                return Ok(wait);
            }
        }
        Ok(Duration::ZERO)
    }

    fn is_early(&self, one: &One) -> bool {
        one.is_expiring()
    }
}
