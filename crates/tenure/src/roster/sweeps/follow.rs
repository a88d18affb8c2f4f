//! The ledger follows tenures that ended. The hot store has decided; here that becomes durable, once.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::Result;
use tenure_core::id::{ProviderId, TenureId};
use tenure_core::ledger::EndedTenure;
use tenure_core::roster::{Entry, Offlined, Put};
use tenure_core::store::MAX_PAGE;
use tenure_core::time::StoreTime;

use super::super::line::BULK;
use super::super::one::One;
use super::super::status::Sweep;
use super::Visit;
use super::round::Sweeping;
use crate::meters;

/// How many batches one visit follows before others have their turn.
const BATCHES: usize = 20;

/// The sweep.
pub(super) struct Follow;

#[async_trait]
impl Sweeping for Follow {
    const SWEEP: Sweep = Sweep::Offline;

    async fn visit(&self, visit: &Visit<'_>) -> Result<Duration> {
        let line = visit.line();
        for _ in 0..BATCHES {
            let call = line.limits(BULK);
            let pending = line.mirror()?.pending_offline(line.group(), MAX_PAGE, false, call);
            let pending = line.ask(BULK, pending).await?;
            if pending.items.is_empty() {
                visit.one.swept(Sweep::Offline, visit.inner.clock().mono());
                return match pending.next {
                    Some(at) => visit.until(at).await,
                    None => Ok(visit.interval),
                };
            }
            visit.follow(&pending.items).await?;
        }
        Ok(Duration::ZERO)
    }

    /// The janitor wakes the loop for some roster; asking is cheaper than telling which.
    fn is_early(&self, _: &One) -> bool {
        true
    }
}

impl Visit<'_> {
    /// When it fails half way, all of it is done again: the ledger changes only rows that name exactly these tenures.
    async fn follow(&self, items: &[Offlined]) -> Result<()> {
        let (line, ledger, roster) = (self.line(), self.inner.ledger(), self.one.roster());
        let heard: Vec<(ProviderId, StoreTime)> = items
            .iter()
            .filter_map(|item| Some((ProviderId::from(item.tenure.member()), item.heard_at?)))
            .collect();
        ledger.record_heartbeats(roster, &heard).await?;
        let ended: Vec<EndedTenure> = items.iter().map(EndedTenure::from).collect();
        let rows = ledger.offline_ended(roster, &ended).await?;
        for row in &rows {
            let item = items
                .iter()
                .find(|item| item.tenure.member().as_str() == row.provider.as_str());
            let reason = item.map_or("unknown", |item| item.reason.as_str());
            tracing::info!(%roster, provider = %row.provider, reason, version = row.version.0, "offline");
            meters::roster_offline(&line.label(), reason);
        }
        let puts: Vec<Put> = rows.into_iter().map(|row| Put::newer(Entry::Row(row))).collect();
        self.inner.put_rows(self.one, &puts).await?;
        let tenures: Vec<TenureId> = items.iter().map(|item| item.tenure.clone()).collect();
        let call = line.limits(BULK);
        let done = line.mirror()?.offline_done(line.group(), &tenures, call);
        line.ask(BULK, done).await?;
        Ok(())
    }
}
