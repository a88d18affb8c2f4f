//! One visit of the janitor to one group.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::clock::{Mono, jitter, within};
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::event::EventId;
use tenure_core::id::{Group, TenureId};
use tenure_core::membership::EndReason;
use tenure_core::store::Call;
use tenure_core::sweep::{BATCH, GroupStatus, ReleaseRequest, SweepSteps};
use tenure_core::time::StoreTime;
use tokio::sync::OwnedMutexGuard;

use super::{Inner, journal};
use crate::loops::{FIRST_BACKOFF, FLOOR};
use crate::membership::in_time;
use crate::meters;

/// The pause after a step that only moved lapse times that had been extended meanwhile. In a large group such times are
/// due all the time; the pause lets them gather, so that many sweepers cost little, and still detects within it.
const GATHER: Duration = Duration::from_millis(30);
/// All sweepers sleep until the same due time; each comes a little after it, so that they do not all come at once.
const SLOT_MICROS: u64 = 2_000;
/// Passes whose outcome is unknown that are kept at most, per group.
const MAX_PENDING: usize = 64;

/// What is known of a group from visit to visit.
#[derive(Default)]
pub(super) struct Work {
    pub(super) status: Option<GroupStatus>,
    pub(super) pending: Vec<Pending>,
    failed_in_a_row: u32,
}

/// A release whose reply was lost: its count is in the events, if it took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) pass: String,
    /// After this store time it can no longer take effect.
    pub(super) not_after: StoreTime,
    /// The newest event before it.
    pub(super) since: EventId,
}

/// How a visit went.
pub(super) struct Visited {
    /// When to come again.
    pub(super) wait: Duration,
    pub(super) error: Option<Error>,
}

pub(super) struct Visit<'a> {
    pub(super) inner: &'a Inner,
    pub(super) group: &'a Group,
    pub(super) work: OwnedMutexGuard<Work>,
    started: Mono,
    /// When the last status arrived.
    arrived: Mono,
}

impl<'a> Visit<'a> {
    pub(super) fn new(inner: &'a Inner, group: &'a Group, work: OwnedMutexGuard<Work>) -> Self {
        let now = inner.clock.mono();
        Self {
            inner,
            group,
            work,
            started: now,
            arrived: now,
        }
    }

    pub(super) async fn run(mut self) -> Visited {
        match self.sweep().await {
            Ok(wait) => {
                if std::mem::take(&mut self.work.failed_in_a_row) > 0 {
                    tracing::info!(group = %self.group, "the janitor reaches the group again");
                }
                Visited {
                    wait: wait.max(FLOOR),
                    error: None,
                }
            }
            Err(error) => {
                self.work.failed_in_a_row = self.work.failed_in_a_row.saturating_add(1);
                let failed = self.work.failed_in_a_row;
                if failed == 1 {
                    let error = error.chain();
                    tracing::warn!(group = %self.group, error, "a pass was given up; nobody is declared dead");
                }
                let longest = FIRST_BACKOFF
                    .saturating_mul(1 << (failed - 1).min(8))
                    .min(self.inner.settings.idle_tick);
                let wait = jitter(&*self.inner.clock, longest.mul_f64(0.75), 33);
                Visited {
                    wait: wait.max(FLOOR),
                    error: Some(error),
                }
            }
        }
    }

    /// Step 1 until it has drained, then step 2. Answers when to come again.
    async fn sweep(&mut self) -> Result<Duration> {
        let mut ended = BTreeSet::new();
        let mut status = self.tick(&ended).await?;
        journal::read_back(self, &status).await?;
        if is_due(status.next_due, &status) {
            let drained = self.end_lapsed(&status, &mut ended).await;
            // Also when a later batch failed: what the earlier ones did is to be told.
            if !ended.is_empty() {
                status = self.tick(&ended).await?;
            }
            match drained? {
                false => return Ok(Duration::ZERO),
                true if ended.is_empty() && !is_due(status.next_release, &status) => return Ok(GATHER),
                true => {}
            }
        }
        if is_due(status.next_release, &status) {
            if !self.release(&status).await? {
                return Ok(Duration::ZERO);
            }
            status = self.tick(&BTreeSet::new()).await?;
        }
        Ok(self.until_next(&status))
    }

    async fn tick(&mut self, ended: &BTreeSet<TenureId>) -> Result<GroupStatus> {
        let tick = self.steps()?.tick(self.group);
        let status = self.in_time(tick).await?;
        self.arrived = self.inner.clock.mono();
        meters::group(
            self.group,
            status.members,
            status.unsettled.is_some(),
            status.brake.is_some(),
        );
        let before = self.work.status.replace(status.clone());
        journal::tell_changes(self, before.as_ref(), &status, ended).await;
        Ok(status)
    }

    /// Ends what is due. `true` when nothing is left.
    async fn end_lapsed(&mut self, status: &GroupStatus, ended: &mut BTreeSet<TenureId>) -> Result<bool> {
        loop {
            let call = self.call(status);
            let step = self.steps()?.end_lapsed(self.group, BATCH, call);
            let batch = self.in_time(step).await?;
            if let (false, Some(due)) = (batch.ended.is_empty(), status.next_due) {
                // The earliest of the batch; the step that finds an entry due re-reads and re-indexes its true end.
                meters::detection_lag(self.group, self.store_now(status).since(due));
                meters::ended(self.group, EndReason::Lapsed, batch.ended.len() as u64);
            }
            for tenure in &batch.ended {
                tracing::info!(group = %self.group, %tenure, "lapsed");
            }
            ended.extend(batch.ended);
            if !batch.more {
                return Ok(true);
            }
            if self.slice_is_over() {
                return Ok(false);
            }
        }
    }

    /// Releases what is due. `true` when nothing is left for now.
    async fn release(&mut self, status: &GroupStatus) -> Result<bool> {
        loop {
            let number = self.inner.passes.fetch_add(1, Ordering::Relaxed);
            let request = ReleaseRequest {
                pass: format!("{:016x}.{number}", self.inner.name),
                limit: BATCH,
                force: false,
            };
            let call = self.call(status);
            let step = self.steps()?.release(self.group, &request, call);
            match self.in_time(step).await {
                Ok(batch) => {
                    for eviction in &batch.evicted {
                        journal::tell_eviction(self.group, eviction, &request.pass);
                    }
                    if !batch.more {
                        return Ok(true);
                    }
                }
                Err(error) => {
                    if error.outcome() == Outcome::Unknown {
                        self.remember(request.pass, call, status.last_event);
                    }
                    return Err(error);
                }
            }
            if self.slice_is_over() {
                return Ok(false);
            }
        }
    }

    fn remember(&mut self, pass: String, call: Call, since: EventId) {
        let pending = &mut self.work.pending;
        if pending.len() >= MAX_PENDING {
            let lost = pending.remove(0);
            tracing::warn!(group = %self.group, pass = lost.pass, "too many passes without an answer; one is not counted");
        }
        pending.push(Pending {
            pass,
            not_after: call.not_after.unwrap_or_default(),
            since,
        });
    }

    fn until_next(&self, status: &GroupStatus) -> Duration {
        let settings = &self.inner.settings;
        let idle = status.members == 0 && status.releasing == 0 && self.work.pending.is_empty();
        let cadence = if idle {
            settings.idle_tick
        } else {
            (status.gap / 3).min(settings.interval)
        };
        // Jitter only ever makes it earlier: a third of the gap is a promise.
        let cadence = jitter(&*self.inner.clock, cadence.mul_f64(0.9), 10);
        let now = self.store_now(status);
        let slot = Duration::from_micros(self.inner.clock.entropy() % SLOT_MICROS);
        let dues = [status.next_due, status.next_release];
        dues.into_iter()
            .flatten()
            .map(|due| due.since(now) + slot)
            .fold(cadence, Duration::min)
    }

    /// The limits of a step that is given up in a while.
    fn call(&self, status: &GroupStatus) -> Call {
        Call::not_after(self.store_now(status) + self.inner.settings.give_up)
    }

    /// The store's time by now, as far as we can tell; never ahead of it, as long as its clock does not step.
    fn store_now(&self, status: &GroupStatus) -> StoreTime {
        status.as_of + self.inner.clock.mono().since(self.arrived)
    }

    fn slice_is_over(&self) -> bool {
        self.inner.clock.mono().since(self.started) >= self.inner.settings.slice
    }

    fn steps(&self) -> Result<&'a dyn SweepSteps> {
        let gone = || Error::new(ErrorKind::Unsupported, "this store is swept by its daemon");
        self.inner.store.steps().ok_or_else(gone)
    }

    pub(super) async fn in_time<T>(&self, step: impl Future<Output = Result<T>>) -> Result<T> {
        let bound = self.inner.settings.give_up;
        in_time(within(&*self.inner.clock, bound, step).await, bound)
    }
}

fn is_due(at: Option<StoreTime>, status: &GroupStatus) -> bool {
    at.is_some_and(|at| at <= status.as_of)
}
