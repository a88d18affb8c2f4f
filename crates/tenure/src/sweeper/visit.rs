//! One visit of the janitor to one group.

use std::time::Duration;

use tenure_core::clock::jitter;
use tenure_core::error::{Error, Outcome, Result};
use tenure_core::event::EventId;
use tenure_core::id::Group;
use tenure_core::membership::EndReason;
use tenure_core::sweep::{BATCH, GroupStatus, ReleaseRequest};
use tenure_core::time::StoreTime;
use tokio::sync::OwnedMutexGuard;

use super::context::{PendingSteps, RARELY, VisitContext, is_due};
use super::{Inner, JANITOR, journal};
use crate::loops::FLOOR;
use crate::{meters, trace};

/// Shortest time between two visits, unless the group is touched.
pub(super) const PACE: Duration = Duration::from_millis(2);

/// How many steps drop old records of an empty group before it is forgotten.
const OLD_RECORDS: usize = 3;
/// How often a group that the brake holds is visited: its members may return.
const BRAKED: Duration = Duration::from_secs(1);

/// The state kept per group between visits.
#[derive(Default)]
pub(super) struct Work {
    pub(super) status: Option<GroupStatus>,
    pub(super) pending_steps: PendingSteps,
    /// Store times of our steps that ended tenures since the last status.
    ended_at: Vec<StoreTime>,
    failed_in_a_row: u32,
}

/// The result of a visit.
pub(super) struct Visited {
    /// The time until the next visit.
    pub(super) wait: Duration,
    pub(super) error: Option<Error>,
}

pub(super) struct Visit<'a> {
    pub(super) context: VisitContext<'a>,
    pub(super) work: OwnedMutexGuard<Work>,
}

impl<'a> Visit<'a> {
    pub(super) fn new(inner: &'a Inner, group: &'a Group, work: OwnedMutexGuard<Work>) -> Self {
        Self {
            context: VisitContext::new(inner, group),
            work,
        }
    }

    pub(super) async fn run(mut self) -> Visited {
        match self.sweep().await {
            Ok(wait) => {
                if std::mem::take(&mut self.work.failed_in_a_row) > 0 {
                    tracing::info!(group = %self.context.group, "the janitor reaches the group again");
                }
                Visited {
                    wait: wait.max(PACE),
                    error: None,
                }
            }
            Err(error) => {
                self.work.failed_in_a_row = self.work.failed_in_a_row.saturating_add(1);
                let failed = self.work.failed_in_a_row;
                if failed == 1 {
                    let error = error.chain();
                    tracing::warn!(group = %self.context.group, error, "a pass failed; no member is marked dead");
                }
                // Without a pulse, visits may be all that ticks the group: their pauses must not look like a gap.
                let known = self.work.status.as_ref().filter(|status| !status.has_pulse);
                let longest = known.map_or(Duration::MAX, |status| status.gap / 2);
                Visited {
                    wait: self.context.backoff(failed).min(longest),
                    error: Some(error),
                }
            }
        }
    }

    /// Ticks, and works off what is due. Returns when to visit again.
    async fn sweep(&mut self) -> Result<Duration> {
        let status = self.tick().await?;
        journal::read_back(self, &status).await?;
        let group = self.context.group;
        let dues = [status.next_due, status.next_release];
        if dues.iter().any(|at| is_due(*at, &status)) {
            let of = ("tenure.group", group.as_str());
            return trace::pass(JANITOR, of, self.work_off(status)).await;
        }
        self.finish(&status).await
    }

    /// Runs step 1 until nothing is left, then step 2.
    async fn work_off(&mut self, mut status: GroupStatus) -> Result<Duration> {
        if is_due(status.next_due, &status) {
            let ended = self.end_lapsed(&status).await;
            // Even if a later batch failed: log the effects of the earlier ones.
            if !self.work.ended_at.is_empty() {
                status = self.tick().await?;
            }
            status.next_due = ended?;
            if is_due(status.next_due, &status) {
                return Ok(FLOOR);
            }
        }
        if is_due(status.next_release, &status) {
            if !self.release(&status).await? {
                return Ok(FLOOR);
            }
            status = self.tick().await?;
        }
        self.finish(&status).await
    }

    async fn finish(&mut self, status: &GroupStatus) -> Result<Duration> {
        self.forget(status).await?;
        Ok(self.until_next(status))
    }

    /// Asks the store to forget a group that was empty for long, or that no longer exists: a process that used it
    /// concurrently may have put its name back into the list.
    async fn forget(&mut self, status: &GroupStatus) -> Result<()> {
        let (inner, group) = (self.context.inner, self.context.group);
        let is_there = status.last_event != EventId(0);
        if is_there && empty_for(status) < inner.settings.forget_after {
            return Ok(());
        }
        // Old records of its tenures would keep the group from being forgotten.
        for _ in 0..OLD_RECORDS {
            self.end_lapsed(status).await?;
        }
        let step = self.context.steps()?.forget_group(group, self.context.call());
        if self.context.in_time(step).await? {
            if is_there {
                tracing::info!(%group, "the group was empty for long and is forgotten");
            }
            inner.forget(group);
        }
        Ok(())
    }

    async fn tick(&mut self) -> Result<GroupStatus> {
        let group = self.context.group;
        let waiting = self.context.inner.waiting.get();
        let node = waiting.and_then(|waiting| waiting.node_in(group));
        let tick = self.context.steps()?.tick_of(group, node);
        let (status, arrived) = self.context.read_status(tick).await?;
        meters::group(
            group,
            status.members,
            status.unsettled.map(|grace| grace.cause),
            status.brake.is_some(),
        );
        self.context.inner.schedule_reap(group, &status, arrived);
        if let Some(entry) = self.context.inner.groups().get_mut(group) {
            entry.visited_at = Some(arrived);
        }
        self.context.inner.bursts.flush(arrived);
        let before = self.work.status.replace(status.clone());
        let has_any = |status: &GroupStatus| status.members + status.releasing > 0;
        if has_any(&status) && !before.as_ref().is_some_and(has_any) {
            meters::begin_group(group);
        }
        let ended_at = std::mem::take(&mut self.work.ended_at);
        journal::log_changes(&self.context, before.as_ref(), &status, &ended_at).await;
        Ok(status)
    }

    /// Ends due tenures. Returns when the next one may be due; in the past if the slice was over before that.
    async fn end_lapsed(&mut self, status: &GroupStatus) -> Result<Option<StoreTime>> {
        loop {
            let (group, call) = (self.context.group, self.context.call());
            let step = self.context.steps()?.end_lapsed(group, BATCH, call);
            let batch = self.context.in_time(step).await?;
            if let (false, Some(due)) = (batch.ended.is_empty(), status.next_due) {
                // The earliest of the batch. The step re-reads the true end time of each due entry.
                meters::detection_lag(self.context.store_now(status).since(due));
                meters::ended(group, EndReason::Lapsed, batch.ended.len() as u64);
            }
            let (bursts, now) = (&self.context.inner.bursts, self.context.inner.clock.mono());
            for tenure in &batch.ended {
                crate::burst_line!(bursts.admits(group, "lapsed", now), %group, %tenure, "lapsed");
            }
            if !batch.ended.is_empty() {
                self.work.ended_at.push(batch.as_of);
            }
            if !batch.more() || self.context.slice_is_over() {
                return Ok(batch.next_due);
            }
        }
    }

    /// Releases due holdings. `true` when none is left for now.
    async fn release(&mut self, status: &GroupStatus) -> Result<bool> {
        loop {
            let request = ReleaseRequest {
                pass: self.context.pass(),
                limit: BATCH,
                force: false,
            };
            let (group, call) = (self.context.group, self.context.call());
            let step = self.context.steps()?.release(group, &request, call);
            match self.context.in_time(step).await {
                Ok(batch) => {
                    for eviction in &batch.evicted {
                        journal::log_eviction(group, eviction, &request.pass);
                    }
                    if !batch.more {
                        return Ok(true);
                    }
                }
                Err(error) => {
                    if error.outcome() == Outcome::Unknown {
                        self.work
                            .pending_steps
                            .remember(group, request.pass, call, status.last_event);
                    }
                    return Err(error);
                }
            }
            if self.context.slice_is_over() {
                return Ok(false);
            }
        }
    }

    /// The time until something is due. A store without a pulse goes by the ticks of its groups, so they are kept up; so are
    /// those of groups with waiting requests of this process, which a tick confirms.
    fn until_next(&self, status: &GroupStatus) -> Duration {
        let inner = self.context.inner;
        let idle = status.members == 0 && status.releasing == 0 && self.work.pending_steps.is_empty();
        let waits = inner
            .waiting
            .get()
            .is_some_and(|waiting| waiting.node_in(self.context.group).is_some());
        let longest = if waits || !(status.has_pulse || idle) {
            status.gap / 3
        } else if status.brake.is_some() {
            BRAKED
        } else if idle {
            RARELY
        } else {
            inner.settings.interval
        };
        // Jitter only shortens it. It includes the time that the store took.
        let longest = jitter(&*inner.clock, longest.min(RARELY).mul_f64(0.9), 10);
        let longest = longest.saturating_sub(self.context.elapsed());
        let to_forget = status.empty_since.map(|since| since + inner.settings.forget_after);
        let dues = [
            status.next_due,
            status.next_release,
            status.next_wake,
            status.unsettled.map(|unsettled| unsettled.until),
            to_forget,
        ];
        self.context.until(&dues, self.context.slot(), status, longest)
    }
}

/// How long a group has been empty.
fn empty_for(status: &GroupStatus) -> Duration {
    let since = status.empty_since;
    since.map_or(Duration::ZERO, |since| status.as_of.since(since))
}
