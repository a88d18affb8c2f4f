//! What has to reach the mirror: rows after a write, the outbox, tenures that the ledger made up while the store was away.
//!
//! For the sweeps: [`Inner::put_rows`] gives the mirror rows that the ledger answered, and does everything that follows
//! from it; [`Inner::seat_and_follow`] gives tenures to providers whose rows name one that the store does not know;
//! [`Inner::drain_outbox`] empties the outbox. All of them may be done by several at once, and again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::Clock;
use tenure_core::error::{ErrorKind, Result};
use tenure_core::id::{Group, ProviderId, RosterName};
use tenure_core::ledger::{Follow, Ledger, Provider, Version};
use tenure_core::membership::EndBy;
use tenure_core::roster::{Entry, Over, Put, PutOutcome, Standing};
use tenure_core::timeout::Timeout;

use super::line::BULK_ITEMS;
use super::one::One;
use super::service::Inner;
use crate::batch::Gathered;

/// How many pages of the outbox one turn drains.
const PAGES: usize = 20;
/// How many rows such a page has.
const PAGE: u32 = 1_000;
/// Whoever goes online is heard of first, and its row follows well within this.
const JUST_NOW: Duration = Duration::from_secs(5);

impl Inner {
    /// Gives the mirror what a write has left in the ledger, as well as it can, and answers whether the mirror has it. What
    /// it does not get now, it gets from the outbox.
    pub(super) async fn mirror_now(&self, one: &One, entries: Vec<Entry>) -> bool {
        // While nobody answers, waiting for each write's turn to fail would only hold up the writers.
        if one.line().is_away() {
            one.line().trust().missed(self.clock().mono());
            return false;
        }
        let puts: Vec<Put> = entries.into_iter().map(Put::newer).collect();
        match self.put_rows(one, &puts).await {
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(roster = %one.roster(), error = error.chain(), "a write did not reach the mirror");
                false
            }
        }
    }

    /// Gives the mirror entries, marks those as clean that it has now, and seats providers whose tenure it does not know.
    /// Answers each, in the order asked. When it fails half way nothing is lost: what the mirror has, it has, and what is
    /// not marked clean is drained again.
    ///
    /// # Errors
    /// Those of the mirror; that the ledger cannot mark them clean is none.
    pub(crate) async fn put_rows(&self, one: &One, puts: &[Put]) -> Result<Vec<PutOutcome>> {
        let mut outcomes = Vec::with_capacity(puts.len());
        for part in puts.chunks(BULK_ITEMS) {
            let mut done = one.line().put(part).await?;
            self.insist(one, part, &mut done).await?;
            let arrived = part.iter().zip(&done);
            let arrived = arrived.filter(|(put, outcome)| outcome.version >= put.entry.version());
            let clean = arrived.map(|(put, _)| (put.entry.provider().clone(), put.entry.version()));
            self.clean(one, clean.collect());
            let strange = part.iter().zip(&done).filter_map(|(put, outcome)| match &put.entry {
                Entry::Row(row) if outcome.standing == Standing::Unknown && outcome.version == row.version => {
                    Some(row.clone())
                }
                _ => None,
            });
            let strange: Vec<Provider> = strange.collect();
            if let Err(error) = self.seat_and_follow(one, &strange).await {
                // They cannot be chosen until somebody does it: the next heartbeat, or the next reconcile.
                tracing::warn!(roster = %one.roster(), error = error.chain(), count = strange.len(),
                    "providers could not be given the tenures that their rows lack");
            }
            outcomes.extend(done);
        }
        Ok(outcomes)
    }

    /// Puts those once more, over whatever is there, whose row in the mirror is newer than the ledger's still is: the ledger
    /// has lost the end of its data, and wins all the same. Mostly somebody was only faster.
    async fn insist(&self, one: &One, puts: &[Put], outcomes: &mut [PutOutcome]) -> Result<()> {
        for (put, outcome) in puts.iter().zip(outcomes) {
            if outcome.applied || outcome.version <= put.entry.version() {
                continue;
            }
            let provider = put.entry.provider();
            let entry = match self.in_time(self.ledger().provider(one.roster(), provider)).await? {
                Some(row) => Entry::Row(row),
                None => match &put.entry {
                    gone @ Entry::Gone { .. } => gone.clone(),
                    // It was removed meanwhile; its tombstone is on its way.
                    Entry::Row(_) => continue,
                },
            };
            if entry.version() >= outcome.version {
                continue;
            }
            tracing::warn!(roster = %one.roster(), %provider, ledger = %entry.version(), mirror = %outcome.version,
                "the ledger's row is older than the mirror's, and wins");
            let over = Over::Exactly(outcome.version);
            let insisted = one.line().put(&[Put { entry, over }]).await?;
            if let Some(insisted) = insisted.into_iter().next() {
                *outcome = insisted;
            }
        }
        Ok(())
    }

    /// Gives providers a tenure whose rows name one that the hot store knows nothing of, lets the ledger follow, and gives
    /// the mirror the rows that come of it. Their heartbeats stay as old as they are, but for those who get a new tenure.
    ///
    /// # Errors
    /// Those of the mirror and the ledger. Doing it again is safe.
    pub(crate) async fn seat_and_follow(&self, one: &One, rows: &[Provider]) -> Result<()> {
        let online: Vec<(&Provider, _)> = rows.iter().filter_map(|row| Some((row, row.online.clone()?))).collect();
        for part in online.chunks(BULK_ITEMS) {
            let names: Vec<ProviderId> = part.iter().map(|(row, _)| row.provider.clone()).collect();
            let settings = self.settings_of(one).await;
            let seated = one.line().seat(&names, settings.ttl(), false).await?;
            let pairs = part.iter().zip(&seated);
            let follows: Vec<Follow> = pairs
                .filter(|((_, from), seated)| *from != seated.tenure)
                .map(|((_, from), seated)| Follow {
                    from: from.clone(),
                    to: seated.tenure.clone(),
                })
                .collect();
            let ledger = self.ledger();
            let followed = self.in_time(ledger.follow_tenures(one.roster(), &follows)).await?;
            let done: BTreeSet<&ProviderId> = followed.iter().map(|row| &row.provider).collect();
            let left = part.iter().zip(&seated);
            let left = left.filter(|((row, from), seated)| *from != seated.tenure && !done.contains(&row.provider));
            let mut entries: Vec<Entry> = followed.iter().cloned().map(Entry::Row).collect();
            for ((row, _), seated) in left {
                // It went offline meanwhile, or somebody else was faster.
                match self.in_time(ledger.provider(one.roster(), &row.provider)).await? {
                    Some(row) if row.online.is_some() => entries.push(Entry::Row(row)),
                    _ if seated.new => one.line().end(&seated.tenure, EndBy::Leave).await,
                    _ => {}
                }
            }
            self.put_followed(one, entries).await?;
        }
        Ok(())
    }

    /// Gives the mirror rows that name a tenure which it has just given out.
    async fn put_followed(&self, one: &One, entries: Vec<Entry>) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let puts: Vec<Put> = entries.into_iter().map(Put::newer).collect();
        one.line().put(&puts).await?;
        let clean = puts
            .iter()
            .map(|put| (put.entry.provider().clone(), put.entry.version()));
        self.clean(one, clean.collect());
        Ok(())
    }

    /// Empties the outbox, a bounded part of it at a time; answers how many rows it was, and whether it is empty. An outbox
    /// that was emptied lets belief return.
    ///
    /// # Errors
    /// Those of the ledger and the mirror.
    pub(crate) async fn drain_outbox(&self, one: &One) -> Result<(u64, bool)> {
        let reach = one.line().trust().reach();
        let mut drained = 0;
        for _ in 0..PAGES {
            let dirty = self.in_time(self.ledger().dirty(one.roster(), PAGE)).await?;
            let last = dirty.len() < PAGE as usize;
            drained += dirty.len() as u64;
            let rows: Vec<_> = dirty.iter().map(|row| (row.provider.clone(), row.version)).collect();
            let puts: Vec<Put> = dirty.into_iter().map(Entry::from).map(Put::newer).collect();
            // Before they leave the outbox: whoever fails here comes to it again.
            self.dismiss(one, &puts).await?;
            self.put_rows(one, &puts).await?;
            if last {
                one.line().trust().drained(reach, self.clock().mono());
                return Ok((drained, true));
            }
            // The next page begins where this one ends only when this one is gone.
            self.in_time(self.ledger().clean(one.roster(), &rows)).await?;
        }
        Ok((drained, false))
    }

    /// Ends the tenures of those who went offline while nobody could tell the hot store, in a roster whose tenures never
    /// lapse by themselves. One that was heard of a moment ago may be on its way online again, and stays.
    async fn dismiss(&self, one: &One, puts: &[Put]) -> Result<()> {
        let line = one.line();
        if self.settings_of(one).await.require_heartbeat {
            return Ok(());
        }
        let offline = puts.iter().filter_map(|put| match &put.entry {
            Entry::Row(row) if row.online.is_none() => Some(row),
            _ => None,
        });
        for row in offline {
            let Some(member) = line.member(&row.provider).await?.filter(|member| member.alive) else {
                continue;
            };
            if line.stamp().await?.as_of.since(member.last_beat_at) > JUST_NOW {
                let by = if row.active { EndBy::Leave } else { EndBy::Expel };
                line.end(&member.tenure, by).await;
            }
        }
        Ok(())
    }

    /// Marks rows as clean, in the background and together with others.
    fn clean(&self, one: &One, rows: Vec<(ProviderId, Version)>) {
        if rows.is_empty() {
            return;
        }
        let (cleaner, group) = (self.cleaner().clone(), one.line().group().clone());
        self.runtime().spawn(async move {
            if let Err(error) = cleaner.ask(&group, rows).await {
                tracing::debug!(%group, error = error.chain(), "rows stay in the outbox and are drained again");
            }
        });
    }
}

/// Rows on their way to be marked clean: each item is what one step has brought to the mirror.
pub(super) struct Cleaning {
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) bound: Timeout,
}

#[async_trait]
impl Gathered for Cleaning {
    type Item = Vec<(ProviderId, Version)>;
    type Answer = ();
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
