//! Writes to the mirror: rows after a write, the outbox, and tenures for providers that went online during an outage.
//!
//! [`Inner::put_rows`] writes rows of the ledger to the mirror, with all consequences. [`Inner::seat_and_follow`] gives
//! tenures to providers whose rows name a tenure that the store does not know. [`Inner::drain_outbox`] empties the
//! outbox. All of them are idempotent and may run concurrently.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::Clock;
use tenure_core::error::{ErrorKind, Result};
use tenure_core::id::{Group, ProviderId, RosterName};
use tenure_core::ledger::{Follow, Ledger, Provider, Version};
use tenure_core::membership::EndBy;
use tenure_core::roster::{MirrorEntry, Overwrite, Put, PutOutcome, Standing};
use tenure_core::timeout::Timeout;

use super::mirror_client::BULK_ITEMS;
use super::service::Inner;
use super::state::RosterState;
use crate::batch::BatchSender;

/// How many pages of the outbox one turn drains.
const PAGES: usize = 20;
/// How many rows a page of the outbox has.
const PAGE: u32 = 1_000;
/// A provider that goes online gets its tenure first; its row follows well within this time.
const JUST_NOW: Duration = Duration::from_secs(5);

impl Inner {
    /// Copies written rows to the mirror, best effort. Returns whether the mirror has them. The outbox delivers the
    /// rest.
    pub(super) async fn mirror_now(&self, state: &RosterState, entries: Vec<MirrorEntry>) -> bool {
        // While the mirror is unreachable, waiting for a time-out would only delay the writers.
        if state.mirror().is_away() {
            state.mirror().trust().missed(self.clock().mono());
            return false;
        }
        let puts: Vec<Put> = entries.into_iter().map(Put::newer).collect();
        match self.put_rows(state, &puts).await {
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(roster = %state.roster(), error = error.chain(), "a write did not reach the mirror");
                false
            }
        }
    }

    /// Writes entries to the mirror, marks the entries that it now has as clean, and gives tenures to providers whose
    /// tenure it does not know. Returns one outcome per entry, in order. After an error nothing is lost: entries that
    /// the mirror has stay, and entries not marked clean are drained again.
    ///
    /// # Errors
    /// Those of the mirror. A failure to mark entries clean is not an error.
    pub(crate) async fn put_rows(&self, state: &RosterState, puts: &[Put]) -> Result<Vec<PutOutcome>> {
        let mut outcomes = Vec::with_capacity(puts.len());
        for part in puts.chunks(BULK_ITEMS) {
            let mut done = state.mirror().put(part).await?;
            self.force_ledger_rows(state, part, &mut done).await?;
            let arrived = part.iter().zip(&done);
            let arrived = arrived.filter(|(put, outcome)| outcome.version >= put.entry.version());
            let clean = arrived.map(|(put, _)| (put.entry.provider().clone(), put.entry.version()));
            self.clean(state, clean.collect());
            let strange = part.iter().zip(&done).filter_map(|(put, outcome)| match &put.entry {
                MirrorEntry::Row(row) if outcome.standing == Standing::Unknown && outcome.version == row.version => {
                    Some(row.clone())
                }
                _ => None,
            });
            let strange: Vec<Provider> = strange.collect();
            if let Err(error) = self.seat_and_follow(state, &strange).await {
                // They cannot be chosen until the next heartbeat or reconcile gives them a tenure.
                tracing::warn!(roster = %state.roster(), error = error.chain(), count = strange.len(),
                    "providers got no tenure; their next heartbeat or the next reconcile retries");
            }
            outcomes.extend(done);
        }
        Ok(outcomes)
    }

    /// Overwrites mirror rows that are newer than the ledger's present ones: the ledger has lost the end of its data,
    /// and still decides. Mostly there is nothing to do, because another writer was only faster.
    async fn force_ledger_rows(&self, state: &RosterState, puts: &[Put], outcomes: &mut [PutOutcome]) -> Result<()> {
        let is_newer = |put: &Put, outcome: &PutOutcome| !outcome.applied && outcome.version > put.entry.version();
        let pairs = puts.iter().zip(&*outcomes);
        let newer = pairs.filter(|(put, outcome)| is_newer(put, outcome));
        let names: Vec<ProviderId> = newer.map(|(put, _)| put.entry.provider().clone()).collect();
        let mut rows = self.rows_named(state, &names).await?;
        for (put, outcome) in puts.iter().zip(outcomes) {
            if !is_newer(put, outcome) {
                continue;
            }
            let provider = put.entry.provider();
            let entry = match rows.remove(provider) {
                Some(row) => MirrorEntry::Row(row),
                None => match &put.entry {
                    gone @ MirrorEntry::Gone { .. } => gone.clone(),
                    // It was removed in the meantime; the outbox delivers the tombstone.
                    MirrorEntry::Row(_) => continue,
                },
            };
            if entry.version() >= outcome.version {
                continue;
            }
            tracing::warn!(roster = %state.roster(), %provider, ledger = %entry.version(), mirror = %outcome.version,
                "the ledger's row is older than the mirror's: the ledger has lost data; its row replaces the mirror's");
            let over = Overwrite::Exactly(outcome.version);
            let insisted = state.mirror().put(&[Put { entry, over }]).await?;
            if let Some(insisted) = insisted.into_iter().next() {
                *outcome = insisted;
            }
        }
        Ok(())
    }

    /// The ledger's present rows of these providers, in one statement: after a bulk edit by another program they are many.
    async fn rows_named(&self, state: &RosterState, names: &[ProviderId]) -> Result<BTreeMap<ProviderId, Provider>> {
        match names {
            [] => Ok(BTreeMap::new()),
            _ => self.in_time(self.ledger().providers_named(state.roster(), names)).await,
        }
    }

    /// Gives a tenure to providers whose rows name one that the hot store does not know, lets the ledger follow, and
    /// writes the resulting rows to the mirror. Heartbeat times stay, except for new tenures.
    ///
    /// # Errors
    /// Those of the mirror and the ledger. Repeating it is safe.
    pub(crate) async fn seat_and_follow(&self, state: &RosterState, rows: &[Provider]) -> Result<()> {
        let online: Vec<(&Provider, _)> = rows.iter().filter_map(|row| Some((row, row.online.clone()?))).collect();
        for part in online.chunks(BULK_ITEMS) {
            let names: Vec<ProviderId> = part.iter().map(|(row, _)| row.provider.clone()).collect();
            let settings = self.settings_of(state).await;
            let seated = state.mirror().seat(&names, settings.ttl(), false).await?;
            let pairs = part.iter().zip(&seated);
            let follows: Vec<Follow> = pairs
                .filter(|((_, from), seated)| *from != seated.tenure)
                .map(|((_, from), seated)| Follow {
                    from: from.clone(),
                    to: seated.tenure.clone(),
                })
                .collect();
            let ledger = self.ledger();
            let followed = self.in_time(ledger.follow_tenures(state.roster(), &follows)).await?;
            let done: BTreeSet<&ProviderId> = followed.iter().map(|row| &row.provider).collect();
            let left = part.iter().zip(&seated);
            let left = left.filter(|((row, from), seated)| *from != seated.tenure && !done.contains(&row.provider));
            let mut entries: Vec<MirrorEntry> = followed.iter().cloned().map(MirrorEntry::Row).collect();
            // Providers that went offline in the meantime, or for which another process was faster.
            let left: Vec<_> = left.map(|((row, _), seated)| (&row.provider, seated)).collect();
            let names: Vec<ProviderId> = left.iter().map(|(name, _)| (*name).clone()).collect();
            let mut rows = self.rows_named(state, &names).await?;
            for (name, seated) in left {
                match rows.remove(name) {
                    Some(row) if row.online.is_some() => entries.push(MirrorEntry::Row(row)),
                    _ if seated.new => state.mirror().end(&seated.tenure, EndBy::Leave).await,
                    _ => {}
                }
            }
            self.put_followed(state, entries).await?;
        }
        Ok(())
    }

    /// Writes rows to the mirror that name a tenure it has just given.
    async fn put_followed(&self, state: &RosterState, entries: Vec<MirrorEntry>) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let puts: Vec<Put> = entries.into_iter().map(Put::newer).collect();
        state.mirror().put(&puts).await?;
        let clean = puts
            .iter()
            .map(|put| (put.entry.provider().clone(), put.entry.version()));
        self.clean(state, clean.collect());
        Ok(())
    }

    /// Empties the outbox, up to a bounded number of rows. Returns the number of rows and whether the outbox is empty,
    /// in which case the mirror may be trusted again.
    ///
    /// # Errors
    /// Those of the ledger and the mirror.
    pub(crate) async fn drain_outbox(&self, state: &RosterState) -> Result<(u64, bool)> {
        let reach_epoch = state.mirror().trust().reach_epoch();
        let mut drained = 0;
        for _ in 0..PAGES {
            let dirty = self.in_time(self.ledger().dirty(state.roster(), PAGE)).await?;
            let last = dirty.len() < PAGE as usize;
            drained += dirty.len() as u64;
            let rows: Vec<_> = dirty.iter().map(|row| (row.provider.clone(), row.version)).collect();
            let puts: Vec<Put> = dirty.into_iter().map(MirrorEntry::from).map(Put::newer).collect();
            // Before the rows leave the outbox: after an error they are still in it.
            self.end_offline_tenures(state, &puts).await?;
            self.put_rows(state, &puts).await?;
            if last {
                state.mirror().trust().drained(reach_epoch, self.clock().mono());
                return Ok((drained, true));
            }
            // The next page begins after these rows only once they are marked clean.
            self.in_time(self.ledger().clean(state.roster(), &rows)).await?;
        }
        Ok((drained, false))
    }

    /// Ends the tenures of providers that went offline while the hot store was unreachable, in a roster whose tenures
    /// never lapse. A tenure with a very recent heartbeat may belong to a provider that is going online again, and
    /// stays.
    async fn end_offline_tenures(&self, state: &RosterState, puts: &[Put]) -> Result<()> {
        let mirror = state.mirror();
        if self.settings_of(state).await.require_heartbeat {
            return Ok(());
        }
        let offline = puts.iter().filter_map(|put| match &put.entry {
            MirrorEntry::Row(row) if row.online.is_none() => Some(row),
            _ => None,
        });
        for row in offline {
            let Some(member) = mirror.member(&row.provider).await?.filter(|member| member.alive) else {
                continue;
            };
            if mirror.stamp().await?.as_of.since(member.last_beat_at) > JUST_NOW {
                let by = if row.active { EndBy::Leave } else { EndBy::Expel };
                mirror.end(&member.tenure, by).await;
            }
        }
        Ok(())
    }

    /// Marks rows as clean, batched and in the background.
    fn clean(&self, state: &RosterState, rows: Vec<(ProviderId, Version)>) {
        if rows.is_empty() {
            return;
        }
        let (cleaner, group) = (self.cleaner().clone(), state.mirror().group().clone());
        self.runtime().spawn(async move {
            if let Err(error) = cleaner.submit(&group, rows).await {
                tracing::debug!(%group, error = error.chain(), "rows stay in the outbox and are drained again");
            }
        });
    }
}

/// Marks rows as clean in batches. Each item is the rows that one step wrote to the mirror.
pub(super) struct OutboxCleaner {
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) bound: Timeout,
}

#[async_trait]
impl BatchSender for OutboxCleaner {
    type Item = Vec<(ProviderId, Version)>;
    type Reply = ();
    const WHAT: &'static str = "rows to mark as clean";

    async fn send(&self, group: &Group, items: &[Self::Item]) -> Result<Vec<()>> {
        let Some(roster) = tenure_core::roster::roster_of(group) else {
            return Err(tenure_core::error::Error::new(
                ErrorKind::Internal,
                "a group without a roster has no rows",
            ));
        };
        let roster: RosterName = roster;
        let mut newest: BTreeMap<&ProviderId, Version> = BTreeMap::new();
        for (provider, version) in items.iter().flatten() {
            let kept = newest.entry(provider).or_insert(*version);
            *kept = (*kept).max(*version);
        }
        let rows: Vec<_> = newest
            .into_iter()
            .map(|(provider, version)| (provider.clone(), version))
            .collect();
        for part in rows.chunks(tenure_core::ledger::provider::MAX_BATCH) {
            let clean = self.ledger.clean(&roster, part);
            self.bound.call(&*self.clock, "the ledger", clean).await?;
        }
        Ok(vec![(); items.len()])
    }
}
