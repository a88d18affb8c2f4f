//! A loop that visits each roster on its own schedule.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt, stream};
use tenure_core::clock::Mono;
use tenure_core::error::{Error, Result};
use tenure_core::id::RosterName;

use super::super::service::Inner;
use super::super::state::RosterState;
use super::super::status::Sweep;
use super::{SOON, Visit};
use crate::loops::{FIRST_BACKOFF, FLOOR, LoopBody, Turn};
use crate::trace;

/// How many rosters are visited concurrently.
const AT_ONCE: usize = 8;

/// A task that visits rosters.
#[async_trait]
pub(super) trait RosterSweep: Send + Sync + 'static {
    /// The name of the sweep.
    const SWEEP: Sweep;
    /// Whether there is nothing to do while the hot store is unreachable.
    const NEEDS_HOT_STORE: bool = true;

    /// Visits a roster. Returns the longest time until the next visit.
    async fn visit(&self, visit: &Visit<'_>) -> Result<Duration>;

    /// Whether to visit before that.
    fn is_early(&self, state: &RosterState) -> bool;
}

/// When a roster is visited next.
#[derive(Debug, Default, Clone, Copy)]
struct VisitSchedule {
    due_at: Mono,
    failed_in_a_row: u32,
    /// The hot store was unreachable at the last visit.
    away: bool,
}

/// The body of the loop.
pub(super) struct SweepLoop<S> {
    inner: Arc<Inner>,
    holder: String,
    interval: Duration,
    sweep: S,
    schedules: BTreeMap<RosterName, VisitSchedule>,
}

impl<S: RosterSweep> SweepLoop<S> {
    pub(super) fn new(inner: Arc<Inner>, holder: String, interval: Duration, sweep: S) -> Self {
        Self {
            inner,
            holder,
            interval,
            sweep,
            schedules: BTreeMap::new(),
        }
    }

    /// Returns the time until the next visit; `None` when the hot store is unreachable.
    async fn visit(&self, state: Arc<RosterState>) -> (Arc<RosterState>, Option<Result<Duration>>) {
        let is_usable = || self.inner.hot_store().is_admitted() && !state.mirror().is_away();
        if S::NEEDS_HOT_STORE && !is_usable() {
            return (state, None);
        }
        let visit = Visit {
            inner: &self.inner,
            state: &state,
            holder: &self.holder,
            interval: self.interval,
        };
        let of = ("tenure.roster", state.roster().as_str());
        let done = trace::pass(S::SWEEP.as_str(), of, self.sweep.visit(&visit)).await;
        (state, Some(done))
    }

    /// Schedules the next visit. Returns a transition from success to failure or back.
    fn record_result(&mut self, state: &RosterState, done: Option<&Result<Duration>>, now: Mono) -> Option<Transition> {
        let schedule = self.schedules.entry(state.roster().clone()).or_default();
        schedule.away = done.is_none();
        let (wait, news) = match done {
            None => (SOON, None),
            Some(Ok(wait)) => {
                let failed = std::mem::take(&mut schedule.failed_in_a_row) > 0;
                (*wait, failed.then_some(Transition::Recovered))
            }
            Some(Err(_)) => {
                schedule.failed_in_a_row = schedule.failed_in_a_row.saturating_add(1);
                let wait = FIRST_BACKOFF * 2u32.saturating_pow(schedule.failed_in_a_row.min(16));
                (wait, (schedule.failed_in_a_row == 1).then_some(Transition::Failed))
            }
        };
        schedule.due_at = now + wait.clamp(FLOOR, self.interval);
        news
    }

    /// Logs one line for all rosters of a turn, since they mostly share the cause; at debug level while the ledger is
    /// known to be down.
    fn log(&self, fails: &[(&RosterName, &Error)], works_again: &[&RosterName]) {
        let sweep = S::SWEEP.as_str();
        if let Some((roster, error)) = fails.first() {
            let (rosters, error) = (fails.len(), error.chain());
            match self.inner.ledger_watch().why_away() {
                None => {
                    tracing::warn!(%roster, rosters, sweep, error, "the sweep failed; retrying")
                }
                Some(_) => {
                    tracing::debug!(%roster, rosters, sweep, error, "the sweep failed; retrying")
                }
            }
        }
        if let Some(roster) = works_again.first() {
            tracing::info!(%roster, rosters = works_again.len(), sweep, "the sweep works again");
        }
    }
}

/// A change from the visit before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transition {
    Failed,
    Recovered,
}

#[async_trait]
impl<S: RosterSweep> LoopBody for SweepLoop<S> {
    async fn turn(&mut self) -> Result<Turn> {
        let known = self.inner.known();
        self.schedules
            .retain(|roster, _| known.iter().any(|state| state.roster() == roster));
        let now = self.inner.clock().mono();
        let is_due = |state: &Arc<RosterState>| {
            let schedule = self.schedules.get(state.roster()).copied().unwrap_or_default();
            schedule.due_at <= now || (schedule.failed_in_a_row == 0 && self.sweep.is_early(state))
        };
        let due: Vec<Arc<RosterState>> = known.into_iter().filter(is_due).collect();
        let this = &*self;
        // A panic in a visit is resumed only after the other visits have finished.
        let visits = stream::iter(due).map(|state| AssertUnwindSafe(this.visit(state)).catch_unwind());
        let done: Vec<_> = visits.buffer_unordered(AT_ONCE).collect().await;
        let done: Vec<_> = done
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap_or_else(|panic| resume_unwind(panic));
        let now = self.inner.clock().mono();
        let (mut fails, mut works_again) = (Vec::new(), Vec::new());
        for (state, result) in &done {
            match (self.record_result(state, result.as_ref(), now), result) {
                (Some(Transition::Failed), Some(Err(error))) => fails.push((state.roster(), error)),
                (Some(Transition::Recovered), _) => works_again.push(state.roster()),
                _ => {}
            }
        }
        self.log(&fails, &works_again);
        let failed: Vec<Error> = done.into_iter().filter_map(|(_, result)| result?.err()).collect();
        let mut schedules = self.schedules.values();
        let nothing_works =
            !self.schedules.is_empty() && schedules.all(|schedule| schedule.away || schedule.failed_in_a_row > 0);
        let skipped = failed.len() as u64;
        match failed.into_iter().next() {
            // The outage of the ledger was already logged for all loops.
            Some(error) if nothing_works && self.inner.ledger_watch().why_away().is_none() => Err(error),
            _ => Ok(Turn {
                next: self.schedules.values().map(|schedule| schedule.due_at.since(now)).min(),
                skipped,
                stalled: nothing_works,
            }),
        }
    }
}
