//! Engagements end whose time has come. The ledger's work alone; the mirror hears of it.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::Result;
use tenure_core::roster::{Entry, Task, Turn};
use tenure_core::store::Call;
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

    async fn visit(&self, visit: &Visit<'_>) -> Result<Duration> {
        // Only to spare the ledger the question of every process; without a hot store each asks.
        if visit.line().is_believed()
            && let Ok(Turn::Others(_)) = visit.take_turn(Task::Expiry, Duration::ZERO).await
        {
            return Ok(visit.interval);
        }
        let (ledger, roster) = (visit.inner.ledger(), visit.one.roster());
        for _ in 0..BATCHES {
            let batch = ledger.expire_due(roster, BATCH, Call::default()).await?;
            for engagement in &batch.expired {
                let provider = engagement.provider.as_ref().map(ToString::to_string);
                tracing::info!(%roster, engagement = %engagement.engagement, provider, "expired");
            }
            if !batch.providers.is_empty() {
                let rows = batch.providers.into_iter().map(Entry::Row).collect();
                visit.inner.mirror_now(visit.one, rows).await;
            }
            let Some(next) = batch.next else {
                visit.one.swept(Sweep::Expiry, visit.inner.clock().mono());
                return Ok(visit.interval);
            };
            let wait = next.since(ledger.now().await?);
            if !wait.is_zero() {
                visit.one.swept(Sweep::Expiry, visit.inner.clock().mono());
                return Ok(wait);
            }
        }
        Ok(Duration::ZERO)
    }

    fn is_early(&self, _: &One) -> bool {
        false
    }
}
