//! The reaper: deletes sessions whose grace is over, in its own loop beside the janitor.
//!
//! It sleeps until the earliest end of a grace. The janitor, which visits every group in which something is due, wakes it
//! when that time becomes earlier ([`Inner::schedule_reap`]); in any case it runs at its longest interval. The counts of a reap whose
//! reply was lost are read from the events, so each session is logged and counted once.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::jitter;
use tenure_core::error::{Outcome, Result};
use tenure_core::id::Group;
use tenure_core::sweep::{BATCH, GroupStatus, ReleaseRequest};
use tokio::sync::OwnedMutexGuard;

use super::context::{PendingSteps, RARELY, VisitContext, is_due};
use super::queues::{Sweeping, VisitQueues};
use super::schedule::Schedule;
use super::visit::Visited;
use super::{Inner, REAPER, journal, lock};
use crate::loops::{FLOOR, LoopBody, Turn};
use crate::{meters, trace};

/// The pause after a step that only updated extended ends of graces; it batches them.
const GATHER: Duration = Duration::from_millis(30);

/// The state kept per group between visits.
#[derive(Default)]
pub(super) struct ReapWork {
    pending_steps: PendingSteps,
    failed_in_a_row: u32,
}

/// The loop body of the reaper.
pub(super) struct Reaper {
    inner: Arc<Inner>,
}

impl Reaper {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }
}

#[async_trait]
impl LoopBody for Reaper {
    async fn turn(&mut self) -> Result<Turn> {
        VisitQueues::<Self>::turn(&self.inner, None)
    }
}

impl Sweeping for Reaper {
    type Work = ReapWork;

    fn schedule(inner: &Inner) -> MutexGuard<'_, Schedule<ReapWork>> {
        lock(&inner.reaper_due)
    }

    fn queues(inner: &Inner) -> &VisitQueues<Self> {
        &inner.reaper
    }

    async fn visit(inner: &Inner, group: &Group, work: OwnedMutexGuard<ReapWork>) -> Visited {
        let visit = Visit {
            context: VisitContext::new(inner, group),
            work,
        };
        visit.run().await
    }
}

struct Visit<'a> {
    context: VisitContext<'a>,
    work: OwnedMutexGuard<ReapWork>,
}

impl Visit<'_> {
    async fn run(mut self) -> Visited {
        match self.sweep().await {
            Ok(wait) => {
                if std::mem::take(&mut self.work.failed_in_a_row) > 0 {
                    tracing::info!(group = %self.context.group, "the reaper reaches the group again");
                }
                Visited {
                    wait: wait.max(FLOOR),
                    error: None,
                }
            }
            Err(error) => {
                self.work.failed_in_a_row = self.work.failed_in_a_row.saturating_add(1);
                if self.work.failed_in_a_row == 1 {
                    let error = error.chain();
                    tracing::warn!(group = %self.context.group, error, "reaping failed; retrying");
                }
                Visited {
                    wait: self.context.backoff(self.work.failed_in_a_row),
                    error: Some(error),
                }
            }
        }
    }

    /// Reaps what is due. Returns when to run again.
    async fn sweep(&mut self) -> Result<Duration> {
        let mut status = self.look().await?;
        journal::read_back_reaps(&self.context, &mut self.work.pending_steps, &status).await?;
        if is_due(status.next_reap, &status) {
            let of = ("tenure.group", self.context.group.as_str());
            let reaped = trace::pass(REAPER, of, self.reap(&status)).await?;
            status = self.look().await?;
            if reaped == 0 && is_due(status.next_reap, &status) {
                return Ok(GATHER);
            }
        }
        let inner = self.context.inner;
        // Without sessions the janitor sees the first one.
        let longest = match status.sessions {
            0 => RARELY,
            _ => inner.settings.reap_interval,
        };
        let longest = jitter(&*inner.clock, longest.mul_f64(0.9), 10);
        let settled = (!self.work.pending_steps.is_empty()).then(|| status.as_of + inner.settings.give_up);
        let dues = [status.next_reap, settled];
        Ok(self.context.until(&dues, self.context.slot(), &status, longest))
    }

    /// Reads the status. Ticks are left to the janitor, which logs their changes.
    async fn look(&mut self) -> Result<GroupStatus> {
        let look = self.context.inner.store.status(self.context.group);
        let (status, _) = self.context.read_status(look).await?;
        meters::sessions(self.context.group, &status);
        Ok(status)
    }

    /// Deletes the orphans that are due. Returns how many.
    async fn reap(&mut self, status: &GroupStatus) -> Result<u64> {
        let mut reaped = 0;
        loop {
            let request = ReleaseRequest {
                pass: self.context.pass(),
                limit: BATCH,
                force: false,
            };
            let (group, call) = (self.context.group, self.context.call());
            let (clock, began) = (&self.context.inner.clock, self.context.inner.clock.mono());
            let step = self.context.steps()?.reap(group, &request, call);
            match self.context.in_time(step).await {
                Ok(batch) => {
                    if !batch.reaped.is_empty() {
                        meters::orphan_cleanup(clock.mono().since(began));
                    }
                    for gone in &batch.reaped {
                        journal::log_reaped(group, &gone.session, gone.epoch, &request.pass);
                    }
                    reaped += batch.reaped.len() as u64;
                    if batch.skipped > 0 {
                        let skipped = batch.skipped;
                        tracing::warn!(%group, skipped, "the index of disconnected sessions has wrong entries; the reconcile repairs them");
                    }
                    if !batch.more {
                        return Ok(reaped);
                    }
                }
                Err(error) => {
                    if error.outcome() == Outcome::Unknown {
                        let pending_steps = &mut self.work.pending_steps;
                        pending_steps.remember(group, request.pass, call, status.last_event);
                    }
                    return Err(error);
                }
            }
        }
    }
}

impl Inner {
    /// Called by the janitor with a group's status: schedules the reaper for the first end of a grace.
    pub(super) fn schedule_reap(&self, group: &Group, status: &GroupStatus, arrived: tenure_core::clock::Mono) {
        meters::sessions(group, status);
        self.schedule_ledger(group, status);
        if let Some(entry) = self.groups().get_mut(group) {
            (entry.occupied, entry.members) = (status.is_occupied(), status.members);
        }
        let Some(at) = status.next_reap else { return };
        let due_at = arrived + at.since(status.as_of);
        let mut schedule = Reaper::schedule(self);
        let sooner = !schedule.is_failing(group) && schedule.at_latest(group, due_at);
        drop(schedule);
        if sooner {
            self.reaper.wake_at(due_at);
        }
    }

    fn schedule_ledger(&self, group: &Group, status: &GroupStatus) {
        let changed = self
            .groups()
            .get_mut(group)
            .is_some_and(|entry| std::mem::replace(&mut entry.offline, status.next_offline) != status.next_offline);
        if changed
            && status.next_offline.is_some()
            && let Some(followers) = self.followers.get()
        {
            followers.wake();
        }
    }
}
