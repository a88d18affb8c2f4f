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

use super::reach::{Reach, Unanswered, is_due};
use super::rest::{empty_for, rests};
use super::{Inner, journal};
use crate::loops::FLOOR;
use crate::meters;

/// The pause after a step that only moved lapse times that had been extended meanwhile. In a large group such times are
/// due all the time; the pause lets them gather, so that many sweepers cost little, and still detects within it.
pub(super) const GATHER: Duration = Duration::from_millis(30);

/// What is known of a group from visit to visit.
#[derive(Default)]
pub(super) struct Work {
    pub(super) status: Option<GroupStatus>,
    pub(super) unanswered: Unanswered,
    /// When our steps ended tenures, by the store's time, since the last status.
    ended_at: Vec<StoreTime>,
    failed_in_a_row: u32,
}

/// How a visit went.
pub(super) struct Visited {
    /// When to come again.
    pub(super) wait: Duration,
    pub(super) error: Option<Error>,
}

pub(super) struct Visit<'a> {
    pub(super) reach: Reach<'a>,
    pub(super) work: OwnedMutexGuard<Work>,
}

impl<'a> Visit<'a> {
    pub(super) fn new(inner: &'a Inner, group: &'a Group, work: OwnedMutexGuard<Work>) -> Self {
        Self {
            reach: Reach::new(inner, group),
            work,
        }
    }

    pub(super) async fn run(mut self) -> Visited {
        match self.sweep().await {
            Ok(wait) => {
                if std::mem::take(&mut self.work.failed_in_a_row) > 0 {
                    tracing::info!(group = %self.reach.group, "the janitor reaches the group again");
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
                    tracing::warn!(group = %self.reach.group, error, "a pass was given up; nobody is declared dead");
                }
                Visited {
                    wait: self.reach.backoff(failed),
                    error: Some(error),
                }
            }
        }
    }

    /// Step 1 until it has drained, then step 2. Answers when to come again.
    async fn sweep(&mut self) -> Result<Duration> {
        let mut status = self.tick().await?;
        journal::read_back(self, &status).await?;
        if is_due(status.next_due, &status) {
            let drained = self.end_lapsed(&status).await;
            let ended_any = !self.work.ended_at.is_empty();
            // Also when a later batch failed: what the earlier ones did is to be told.
            if ended_any {
                status = self.tick().await?;
            }
            match drained? {
                false => return Ok(Duration::ZERO),
                true if !ended_any && !is_due(status.next_release, &status) => return Ok(GATHER),
                true => {}
            }
        }
        if is_due(status.next_release, &status) {
            if !self.release(&status).await? {
                return Ok(Duration::ZERO);
            }
            status = self.tick().await?;
        }
        if rests(&status) {
            // Nothing comes due in it any more, and old records of its tenures would keep it from being forgotten.
            self.end_lapsed(&status).await?;
        }
        self.forget(&status).await?;
        Ok(self.until_next(&status))
    }

    /// Has the store forget a group that has been empty for long, or that is gone: a process that used it before another one
    /// forgot it has put its name back into the list.
    async fn forget(&self, status: &GroupStatus) -> Result<()> {
        let (inner, group) = (self.reach.inner, self.reach.group);
        let is_there = status.last_event != EventId(0);
        if is_there && empty_for(status) < inner.settings.forget_after {
            return Ok(());
        }
        let step = self.reach.steps()?.forget_group(group, self.reach.call());
        if self.reach.in_time(step).await? {
            if is_there {
                tracing::info!(%group, "the group was empty for long; it is forgotten");
            }
            inner.forget(group);
        }
        Ok(())
    }

    async fn tick(&mut self) -> Result<GroupStatus> {
        let group = self.reach.group;
        let tick = self.reach.steps()?.tick(group);
        let (status, arrived) = self.reach.ask(tick).await?;
        meters::group(
            group,
            status.members,
            status.unsettled.map(|grace| grace.cause),
            status.brake.is_some(),
        );
        self.reach.inner.hear(group, &status, arrived);
        self.reach.inner.crowd.flush(arrived);
        let before = self.work.status.replace(status.clone());
        let has_any = |status: &GroupStatus| status.members + status.releasing > 0;
        if has_any(&status) && !before.as_ref().is_some_and(has_any) {
            meters::begin_group(group);
        }
        let ended_at = std::mem::take(&mut self.work.ended_at);
        journal::tell_changes(&self.reach, before.as_ref(), &status, &ended_at).await;
        Ok(status)
    }

    /// Ends what is due. `true` when nothing is left.
    async fn end_lapsed(&mut self, status: &GroupStatus) -> Result<bool> {
        loop {
            let (group, call) = (self.reach.group, self.reach.call());
            let step = self.reach.steps()?.end_lapsed(group, BATCH, call);
            let batch = self.reach.in_time(step).await?;
            if let (false, Some(due)) = (batch.ended.is_empty(), status.next_due) {
                // The earliest of the batch; the step that finds an entry due re-reads and re-indexes its true end.
                meters::detection_lag(group, self.reach.store_now(status).since(due));
                meters::ended(group, EndReason::Lapsed, batch.ended.len() as u64);
            }
            let (crowd, now) = (&self.reach.inner.crowd, self.reach.inner.clock.mono());
            for tenure in &batch.ended {
                crate::crowd_line!(crowd.admits(group, "lapsed", now), %group, %tenure, "lapsed");
            }
            if !batch.ended.is_empty() {
                self.work.ended_at.push(batch.as_of);
            }
            if !batch.more {
                return Ok(true);
            }
            if self.reach.slice_is_over() {
                return Ok(false);
            }
        }
    }

    /// Releases what is due. `true` when nothing is left for now.
    async fn release(&mut self, status: &GroupStatus) -> Result<bool> {
        loop {
            let request = ReleaseRequest {
                pass: self.reach.pass(),
                limit: BATCH,
                force: false,
            };
            let (group, call) = (self.reach.group, self.reach.call());
            let step = self.reach.steps()?.release(group, &request, call);
            match self.reach.in_time(step).await {
                Ok(batch) => {
                    for eviction in &batch.evicted {
                        journal::tell_eviction(group, eviction, &request.pass);
                    }
                    if !batch.more {
                        return Ok(true);
                    }
                }
                Err(error) => {
                    if error.outcome() == Outcome::Unknown {
                        self.work
                            .unanswered
                            .remember(group, request.pass, call, status.last_event);
                    }
                    return Err(error);
                }
            }
            if self.reach.slice_is_over() {
                return Ok(false);
            }
        }
    }

    fn until_next(&self, status: &GroupStatus) -> Duration {
        let settings = &self.reach.inner.settings;
        let idle = status.members == 0 && status.releasing == 0 && self.work.unanswered.is_empty();
        if idle && rests(status) {
            return self.reach.inner.rest(status);
        }
        let cadence = if idle {
            settings.idle_tick
        } else {
            (status.gap / 3).min(settings.interval)
        };
        // Jitter only ever makes it earlier: a third of the gap is a promise.
        let cadence = jitter(&*self.reach.inner.clock, cadence.mul_f64(0.9), 10);
        self.reach
            .until(&[status.next_due, status.next_release], status, cadence)
    }
}
