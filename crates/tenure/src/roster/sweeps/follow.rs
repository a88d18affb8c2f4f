//! The ledger follows ended tenures: it records, once, that their providers are offline.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::Result;
use tenure_core::id::{ProviderId, TenureId};
use tenure_core::ledger::EndedTenure;
use tenure_core::roster::{MirrorEntry, Offlined, Put};
use tenure_core::store::MAX_PAGE;
use tenure_core::time::StoreTime;

use super::super::mirror_client::BULK;
use super::super::state::RosterState;
use super::super::status::Sweep;
use super::sweep_loop::RosterSweep;
use super::{SOON, Visit};
use crate::meters;

/// How many batches one visit handles before other rosters are visited.
const BATCHES: usize = 20;

/// The follow sweep.
pub(super) struct Follow;

#[async_trait]
impl RosterSweep for Follow {
    const SWEEP: Sweep = Sweep::Offline;

    async fn visit(&self, visit: &Visit<'_>) -> Result<Duration> {
        let mirror = visit.mirror();
        for _ in 0..BATCHES {
            let call = mirror.limits(BULK);
            let pending = mirror.api()?.pending_offline(mirror.group(), MAX_PAGE, false, call);
            let pending = mirror.call(BULK, pending).await?;
            if pending.items.is_empty() {
                visit.state.swept(Sweep::Offline, visit.inner.clock().mono());
                return match pending.next {
                    Some(at) => visit.until(at).await,
                    None => Ok(visit.interval),
                };
            }
            if !visit.follow(&pending.items).await? {
                return Ok(SOON);
            }
        }
        Ok(Duration::ZERO)
    }

    /// The janitor wakes the loop for some roster; asking each is cheaper than saying which.
    fn is_early(&self, _: &RosterState) -> bool {
        true
    }
}

impl Visit<'_> {
    /// If it fails half way, all of it is repeated: the ledger changes only rows that name exactly these tenures. Returns
    /// false if some rows could not be changed yet.
    async fn follow(&self, items: &[Offlined]) -> Result<bool> {
        let (mirror, ledger, roster) = (self.mirror(), self.inner.ledger(), self.state.roster());
        let heard: Vec<(ProviderId, StoreTime)> = items
            .iter()
            .filter_map(|item| Some((ProviderId::from(item.tenure.member()), item.heard_at?)))
            .collect();
        ledger.record_heartbeats(roster, &heard).await?;
        let ended: Vec<EndedTenure> = items.iter().map(EndedTenure::from).collect();
        let batch = ledger.offline_ended(roster, &ended).await?;
        for row in &batch.offline {
            let item = items
                .iter()
                .find(|item| item.tenure.member().as_str() == row.provider.as_str());
            let reason = item.map_or("unknown", |item| item.reason.as_str());
            tracing::info!(%roster, provider = %row.provider, reason, version = row.version.0, "offline");
            meters::roster_offline(&mirror.label(), reason);
        }
        if !batch.busy.is_empty() {
            tracing::warn!(%roster, count = batch.busy.len(), first = %batch.busy[0],
                "rows of providers that lapsed are locked in the ledger by another transaction; they are tried again");
        }
        // These providers beat at a process without the hot store.
        self.inner.seat_and_follow(self.state, &batch.spared).await?;
        let puts: Vec<Put> = batch
            .offline
            .into_iter()
            .map(|row| Put::newer(MirrorEntry::Row(row)))
            .collect();
        self.inner.put_rows(self.state, &puts).await?;
        let is_busy = |tenure: &TenureId| batch.busy.iter().any(|name| name.as_str() == tenure.member().as_str());
        let tenures = items.iter().map(|item| item.tenure.clone());
        let tenures: Vec<TenureId> = tenures.filter(|tenure| !is_busy(tenure)).collect();
        let call = mirror.limits(BULK);
        let done = mirror.api()?.offline_done(mirror.group(), &tenures, call);
        mirror.call(BULK, done).await?;
        Ok(batch.busy.is_empty())
    }
}
