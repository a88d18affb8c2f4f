//! The reaper: deletes sessions whose grace is over, as a loop of its own beside the janitor.
//!
//! It sleeps until the earliest end of a grace. The janitor, which looks at every group all the time, tells it when that
//! becomes earlier ([`Inner::hear`]); at its longest interval it looks by itself. A reap whose reply was lost is read back
//! from the events, so that no session is told twice and none is forgotten.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::clock::jitter;
use tenure_core::error::{Outcome, Result};
use tenure_core::id::Group;
use tenure_core::sweep::{BATCH, GroupStatus, ReleaseRequest};
use tokio::sync::OwnedMutexGuard;

use super::lanes::{Lanes, Sweeping};
use super::reach::{Reach, Unanswered, is_due};
use super::rest::rests;
use super::slot::Slot;
use super::visit::{GATHER, Visited};
use super::{Entry, Inner, journal};
use crate::loops::{FLOOR, LoopBody, Turn};
use crate::meters;

/// What is known of a group from visit to visit.
#[derive(Default)]
pub(super) struct ReapWork {
    unanswered: Unanswered,
    failed_in_a_row: u32,
}

/// The body of the loop.
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
        Lanes::<Self>::turn(&self.inner, None)
    }
}

impl Sweeping for Reaper {
    type Work = ReapWork;

    fn slot(entry: &mut Entry) -> &mut Slot<ReapWork> {
        &mut entry.reaper
    }

    fn lanes(inner: &Inner) -> &Lanes<Self> {
        &inner.reaper
    }

    async fn visit(inner: &Inner, group: &Group, work: OwnedMutexGuard<ReapWork>) -> Visited {
        let visit = Visit {
            reach: Reach::new(inner, group),
            work,
        };
        visit.run().await
    }
}

struct Visit<'a> {
    reach: Reach<'a>,
    work: OwnedMutexGuard<ReapWork>,
}

impl Visit<'_> {
    async fn run(mut self) -> Visited {
        match self.sweep().await {
            Ok(wait) => {
                if std::mem::take(&mut self.work.failed_in_a_row) > 0 {
                    tracing::info!(group = %self.reach.group, "the reaper reaches the group again");
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
                    tracing::warn!(group = %self.reach.group, error, "reaping was given up; it is tried again");
                }
                Visited {
                    wait: self.reach.backoff(self.work.failed_in_a_row),
                    error: Some(error),
                }
            }
        }
    }

    /// Reaps what is due. Answers when to come again.
    async fn sweep(&mut self) -> Result<Duration> {
        let mut status = self.look().await?;
        journal::read_back_reaps(&self.reach, &mut self.work.unanswered, &status).await?;
        if is_due(status.next_reap, &status) {
            let (reaped, drained) = self.reap(&status).await?;
            if !drained {
                return Ok(Duration::ZERO);
            }
            status = self.look().await?;
            if reaped == 0 && is_due(status.next_reap, &status) {
                return Ok(GATHER);
            }
        }
        let inner = self.reach.inner;
        let longest = match rests(&status) {
            true => inner.rest(&status),
            false => jitter(&*inner.clock, inner.settings.reap_interval.mul_f64(0.9), 10),
        };
        let settled = (!self.work.unanswered.is_empty()).then(|| status.as_of + inner.settings.give_up);
        Ok(self.reach.until(&[status.next_reap, settled], &status, longest))
    }

    /// Looks at the group. What a tick changes the janitor tells of, so the ticks are left to it.
    async fn look(&mut self) -> Result<GroupStatus> {
        let look = self.reach.inner.store.status(self.reach.group);
        let (status, _) = self.reach.ask(look).await?;
        meters::sessions(self.reach.group, &status);
        Ok(status)
    }

    /// Deletes orphans. Answers how many, and whether nothing is left for now.
    async fn reap(&mut self, status: &GroupStatus) -> Result<(u64, bool)> {
        let mut reaped = 0;
        loop {
            let request = ReleaseRequest {
                pass: self.reach.pass(),
                limit: BATCH,
                force: false,
            };
            let (group, call) = (self.reach.group, self.reach.call());
            let (clock, began) = (&self.reach.inner.clock, self.reach.inner.clock.mono());
            let step = self.reach.steps()?.reap(group, &request, call);
            match self.reach.in_time(step).await {
                Ok(batch) => {
                    if !batch.reaped.is_empty() {
                        meters::orphan_cleanup(group, clock.mono().since(began));
                    }
                    for gone in &batch.reaped {
                        journal::tell_reaped(group, &gone.session, gone.epoch, &request.pass);
                    }
                    reaped += batch.reaped.len() as u64;
                    if batch.skipped > 0 {
                        let skipped = batch.skipped;
                        tracing::warn!(%group, skipped, "the index of disconnected sessions named others; reconcile tells");
                    }
                    if !batch.more {
                        return Ok((reaped, true));
                    }
                }
                Err(error) => {
                    if error.outcome() == Outcome::Unknown {
                        let unanswered = &mut self.work.unanswered;
                        unanswered.remember(group, request.pass, call, status.last_event);
                    }
                    return Err(error);
                }
            }
            if self.reach.slice_is_over() {
                return Ok((reaped, false));
            }
        }
    }
}

impl Inner {
    /// The janitor has looked at a group: the reaper comes when the first grace ends, if it does not come before.
    pub(super) fn hear(&self, group: &Group, status: &GroupStatus, arrived: tenure_core::clock::Mono) {
        meters::sessions(group, status);
        self.hear_of_ends(group, status);
        if let Some(entry) = self.groups().get_mut(group) {
            entry.occupied = status.is_occupied();
            entry.resting = rests(status).then_some(status.last_event);
        }
        let Some(at) = status.next_reap else { return };
        let due_at = arrived + at.since(status.as_of);
        let sooner = self
            .groups()
            .get_mut(group)
            .is_some_and(|entry| !entry.reaper.failing() && entry.reaper.at_latest(due_at));
        if sooner {
            self.reaper.wake();
        }
    }

    fn hear_of_ends(&self, group: &Group, status: &GroupStatus) {
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
