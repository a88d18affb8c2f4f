//! The mirror is compared with the ledger, and made to agree: now and then, at the start, and whenever something happened
//! that may have cost it something. It fills an empty mirror in the same way.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::ledger::{Provider, Version};
use tenure_core::roster::{Comparison, Put, Rows, Standing, Task, Turn, Verified};
use tenure_core::store::{MAX_PAGE, PageRequest};
use tenure_core::sweep::{BATCH, ReconcileRequest};

use super::super::line::BULK;
use super::super::one::One;
use super::super::status::Sweep;
use super::super::trust::Wish;
use super::round::Sweeping;
use super::{SOON, Visit};
use crate::meters;

/// After so many steps the turn is prolonged.
const PROLONG: usize = 25;
/// For how long the settings count that the ledger told when it was polled.
const SETTINGS_KEPT: Duration = Duration::from_secs(5);
/// A ledger without any provider removes no more than this from a mirror: it is the wrong one, or has lost its data.
const FEW: usize = 10;

/// The sweep.
pub(super) struct Reconcile;

#[async_trait]
impl Sweeping for Reconcile {
    const SWEEP: Sweep = Sweep::Reconcile;

    async fn visit(&self, visit: &Visit<'_>) -> Result<Duration> {
        let now = visit.store_now().await?;
        let every = match visit.one.wish() {
            None => visit.interval,
            Some(Wish::Seed | Wish::Own) => Duration::ZERO,
            // What anybody has compared since then will do.
            Some(Wish::Since(since)) => now.since(since).min(visit.interval),
        };
        match visit.take_turn(Task::Reconcile, every).await? {
            Turn::Mine(_) => {}
            Turn::Others(_) => return Ok(SOON),
            Turn::DoneUntil(at) => {
                let done_at = at.minus(every);
                visit.one.last_reconciled(done_at, visit.inner.clock().mono());
                return Ok((done_at + visit.interval).since(now));
            }
        }
        let done = visit.reconcile().await;
        visit.end_turn(Task::Reconcile, done.is_ok()).await;
        done.map(|()| visit.interval)
    }

    fn is_early(&self, one: &One) -> bool {
        one.wish().is_some()
    }
}

impl Visit<'_> {
    async fn reconcile(&self) -> Result<()> {
        let (line, ledger, roster) = (self.line(), self.inner.ledger(), self.one.roster());
        // As polled a moment ago: an idle roster costs its ledger one statement.
        let settings = match self.one.polled_settings(SETTINGS_KEPT, self.inner.clock().mono()) {
            Some(settings) => settings,
            None => ledger.settings(roster).await?,
        };
        self.inner.put_settings(self.one, settings).await?;
        // After a first step: it is that which notices a gap, or begins a new life of the data.
        let since = line.stamp().await?.resumed_at;

        let mut comparison = Comparison::new(Version::NONE);
        let mut repaired = self.see_mirror(&mut comparison).await?;
        let mut providers = self.see_ledger(&mut comparison).await?;
        let mut differences = 0;
        if comparison.is_beyond() {
            // A removal needs a version that was drawn before anything was read, so all of it is read again.
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
        self.seat_strangers().await?;

        let call = line.limits(line.patience());
        let marked = line.mirror()?.mark_seeded(line.group(), since, call);
        if !line.ask(line.patience(), marked).await? {
            let why = "the hot store has resumed since the reconcile began; what was brought first may be gone";
            return Err(Error::unavailable(why, Outcome::Unchanged));
        }
        let stamp = line.stamp().await?;
        differences += comparison.differences();
        self.one.reconciled(&stamp, differences, self.inner.clock().mono());
        meters::roster_drift(&line.label(), &repaired);
        if differences > 0 || !repaired.is_empty() {
            tracing::info!(%roster, providers, differences, repaired = ?repaired, "the mirror agrees with the ledger again");
        }
        Ok(())
    }

    /// All of the mirror, which is mended in itself on the way.
    async fn see_mirror(&self, comparison: &mut Comparison) -> Result<BTreeMap<String, u64>> {
        let line = self.line();
        let mut repaired: BTreeMap<String, u64> = BTreeMap::new();
        let mut request = ReconcileRequest {
            after: None,
            limit: BATCH,
        };
        for step in 1.. {
            let call = line.limits(BULK);
            let part = line.mirror()?.verify_roster(line.group(), &request, call);
            let part: Verified = line.ask(BULK, part).await?;
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

    /// All of the ledger, page by page; what differs is put at once. Answers how many providers there are.
    async fn see_ledger(&self, comparison: &mut Comparison) -> Result<usize> {
        let mut page = PageRequest {
            after: None,
            limit: MAX_PAGE,
        };
        let mut providers = 0;
        for step in 1.. {
            let rows = self.inner.ledger().providers(self.one.roster(), None, &page).await?;
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
            self.inner.put_rows(self.one, part).await?;
            self.prolong(step + 1).await?;
        }
        Ok(())
    }

    /// Those whose rows agree and name a tenure that the store does not know: it lost the end of its data.
    async fn seat_strangers(&self) -> Result<()> {
        let line = self.line();
        let mut page = PageRequest {
            after: None,
            limit: MAX_PAGE,
        };
        for step in 1.. {
            let rows = line.mirror()?.rows(line.group(), &page);
            let (rows, _) = line.read(rows, |rows: &Rows| &rows.stamp).await?;
            let strange = rows.rows.into_iter().filter(|seen| seen.standing == Standing::Unknown);
            let strange: Vec<Provider> = strange.map(|seen| seen.row).collect();
            self.inner.seat_and_follow(self.one, &strange).await?;
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
