//! A loop that visits every roster at its own time.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt, stream};
use tenure_core::clock::Mono;
use tenure_core::error::{Error, Result};
use tenure_core::id::RosterName;

use super::super::one::One;
use super::super::service::Inner;
use super::super::status::Sweep;
use super::{SOON, Visit};
use crate::loops::{FIRST_BACKOFF, FLOOR, LoopBody, Turn};

/// How many rosters are visited at once.
const AT_ONCE: usize = 8;

/// What is done at a visit.
#[async_trait]
pub(super) trait Sweeping: Send + Sync + 'static {
    /// Which of the sweeps it is.
    const SWEEP: Sweep;
    /// Whether there is nothing to do while the hot store is away.
    const NEEDS_HOT_STORE: bool = true;

    /// Does it. Answers when to come again at the latest.
    async fn visit(&self, visit: &Visit<'_>) -> Result<Duration>;

    /// Whether to come before that.
    fn is_early(&self, one: &One) -> bool;
}

/// When a roster is visited next.
#[derive(Debug, Default, Clone, Copy)]
struct Slot {
    due_at: Mono,
    failed_in_a_row: u32,
    /// The hot store was away.
    away: bool,
}

/// The body of such a loop.
pub(super) struct Round<S> {
    inner: Arc<Inner>,
    holder: String,
    interval: Duration,
    sweeping: S,
    slots: BTreeMap<RosterName, Slot>,
}

impl<S: Sweeping> Round<S> {
    pub(super) fn new(inner: Arc<Inner>, holder: String, interval: Duration, sweeping: S) -> Self {
        Self {
            inner,
            holder,
            interval,
            sweeping,
            slots: BTreeMap::new(),
        }
    }

    /// Answers when to come again; `None` when nothing could be done.
    async fn visit(&self, one: Arc<One>) -> (Arc<One>, Option<Result<Duration>>) {
        if S::NEEDS_HOT_STORE && one.line().is_away() {
            return (one, None);
        }
        let visit = Visit {
            inner: &self.inner,
            one: &one,
            holder: &self.holder,
            interval: self.interval,
        };
        let done = self.sweeping.visit(&visit).await;
        (one, Some(done))
    }

    /// Notes when to come again. Answers whether that is news: it failed, and did not before, or the other way round.
    fn settle(&mut self, one: &One, done: Option<&Result<Duration>>, now: Mono) -> Option<News> {
        let slot = self.slots.entry(one.roster().clone()).or_default();
        slot.away = done.is_none();
        let (wait, news) = match done {
            None => (SOON, None),
            Some(Ok(wait)) => {
                let failed = std::mem::take(&mut slot.failed_in_a_row) > 0;
                (*wait, failed.then_some(News::WorksAgain))
            }
            Some(Err(_)) => {
                slot.failed_in_a_row = slot.failed_in_a_row.saturating_add(1);
                let wait = FIRST_BACKOFF * 2u32.saturating_pow(slot.failed_in_a_row.min(16));
                (wait, (slot.failed_in_a_row == 1).then_some(News::Fails))
            }
        };
        slot.due_at = now + wait.clamp(FLOOR, self.interval);
        news
    }

    /// One line for all rosters of a turn: mostly it is one thing that they all lack. While that is known to be the ledger,
    /// no line at all.
    fn tell(&self, fails: &[(&RosterName, &Error)], works_again: &[&RosterName]) {
        let sweep = S::SWEEP.as_str();
        if let Some((roster, error)) = fails.first() {
            let (rosters, error) = (fails.len(), error.chain());
            match self.inner.ledger_watch().why_away() {
                None => {
                    tracing::warn!(%roster, rosters, sweep, error, "the sweep of rosters was given up; it is tried again")
                }
                Some(_) => {
                    tracing::debug!(%roster, rosters, sweep, error, "the sweep of rosters was given up; it is tried again")
                }
            }
        }
        if let Some(roster) = works_again.first() {
            tracing::info!(%roster, rosters = works_again.len(), sweep, "the sweep of rosters works again");
        }
    }
}

/// How a visit differs from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    Fails,
    WorksAgain,
}

#[async_trait]
impl<S: Sweeping> LoopBody for Round<S> {
    async fn turn(&mut self) -> Result<Turn> {
        let known = self.inner.known();
        self.slots
            .retain(|roster, _| known.iter().any(|one| one.roster() == roster));
        let now = self.inner.clock().mono();
        let is_due = |one: &Arc<One>| {
            let slot = self.slots.get(one.roster()).copied().unwrap_or_default();
            slot.due_at <= now || (slot.failed_in_a_row == 0 && self.sweeping.is_early(one))
        };
        let due: Vec<Arc<One>> = known.into_iter().filter(is_due).collect();
        let this = &*self;
        // A visit that panics takes this body with it, but not before the other visits are done.
        let visits = stream::iter(due).map(|one| AssertUnwindSafe(this.visit(one)).catch_unwind());
        let done: Vec<_> = visits.buffer_unordered(AT_ONCE).collect().await;
        let done: Vec<_> = done
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap_or_else(|panic| resume_unwind(panic));
        let now = self.inner.clock().mono();
        let (mut fails, mut works_again) = (Vec::new(), Vec::new());
        for (one, result) in &done {
            match (self.settle(one, result.as_ref(), now), result) {
                (Some(News::Fails), Some(Err(error))) => fails.push((one.roster(), error)),
                (Some(News::WorksAgain), _) => works_again.push(one.roster()),
                _ => {}
            }
        }
        self.tell(&fails, &works_again);
        let failed: Vec<Error> = done.into_iter().filter_map(|(_, result)| result?.err()).collect();
        let mut slots = self.slots.values();
        let nothing_works = !self.slots.is_empty() && slots.all(|slot| slot.away || slot.failed_in_a_row > 0);
        let skipped = failed.len() as u64;
        match failed.into_iter().next() {
            // That the ledger is away was said, once for all loops.
            Some(error) if nothing_works && self.inner.ledger_watch().why_away().is_none() => Err(error),
            _ => Ok(Turn {
                next: self.slots.values().map(|slot| slot.due_at.since(now)).min(),
                skipped,
                stalled: nothing_works,
            }),
        }
    }
}
