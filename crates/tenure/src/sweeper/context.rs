//! The context of a visit: the steps of the store, call limits, and an estimate of the store's time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::clock::{Mono, jitter};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::event::EventId;
use tenure_core::id::Group;
use tenure_core::remote_clock::RemoteClock;
use tenure_core::store::Call;
use tenure_core::sweep::{GroupStatus, SweepSteps};
use tenure_core::time::StoreTime;
use tenure_core::timeout::Timeout;

use super::Inner;
use crate::loops::{FIRST_BACKOFF, FLOOR};

/// Sweepers share due times; each waits a random part of this longer, so that they do not all run at the same instant.
const SLOT_MICROS: u64 = 2_000;
/// The longest visit with work left; it continues with the next one.
const SLICE: Duration = Duration::from_millis(100);
/// The longest wait after failed visits.
const LONGEST_BACKOFF: Duration = Duration::from_secs(2);
/// How often a group in which nothing is due is visited: an index of due groups may be wrong.
pub(super) const RARELY: Duration = Duration::from_secs(900);
/// The most passes with an unknown outcome that are kept per group and sweep.
const MAX_PENDING: usize = 64;

/// A step whose reply was lost. If it took effect, the events contain its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingStep {
    pub(super) pass: String,
    /// The step cannot take effect after this store time.
    pub(super) not_after: StoreTime,
    /// The newest event before it.
    pub(super) since: EventId,
}

/// The unanswered steps of one sweep in one group.
#[derive(Debug, Default)]
pub(super) struct PendingSteps(Vec<PendingStep>);

impl PendingSteps {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a step for a later read of its events.
    pub(super) fn remember(&mut self, group: &Group, pass: String, call: Call, since: EventId) {
        if self.0.len() >= MAX_PENDING {
            let lost = self.0.remove(0);
            tracing::warn!(%group, pass = lost.pass, "too many unanswered passes; one is not counted");
        }
        self.0.push(PendingStep {
            pass,
            not_after: call.not_after.unwrap_or_default(),
            since,
        });
    }

    /// The steps that can no longer take effect.
    pub(super) fn over(&self, now: StoreTime) -> Vec<PendingStep> {
        let over = self.0.iter().filter(|pending| now > pending.not_after);
        over.cloned().collect()
    }

    /// Removes a step whose counts were found.
    pub(super) fn settle(&mut self, pending: &PendingStep) {
        self.0.retain(|kept| kept != pending);
    }
}

/// One visit's access to its group.
pub(super) struct VisitContext<'a> {
    pub(super) inner: &'a Inner,
    pub(super) group: &'a Group,
    started: Mono,
    /// Estimate of the store's clock, from the statuses of this visit.
    store_clock: RemoteClock,
}

impl<'a> VisitContext<'a> {
    pub(super) fn new(inner: &'a Inner, group: &'a Group) -> Self {
        Self {
            inner,
            group,
            started: inner.clock.mono(),
            store_clock: RemoteClock::default(),
        }
    }

    /// Reads the status of the group. Also returns when it arrived.
    pub(super) async fn read_status(
        &self,
        status: impl Future<Output = Result<GroupStatus>>,
    ) -> Result<(GroupStatus, Mono)> {
        let asked = self.inner.clock.mono();
        let status = self.in_time(status).await?;
        let arrived = self.inner.clock.mono();
        self.store_clock.learn(status.as_of, asked, arrived);
        Ok((status, arrived))
    }

    /// The limits of a step.
    pub(super) fn call(&self) -> Call {
        let give_up = self.inner.clock.mono() + self.inner.settings.give_up;
        self.store_clock.not_after(give_up, Call::default())
    }

    /// The current store time, or slightly less.
    pub(super) fn store_now(&self, status: &GroupStatus) -> StoreTime {
        let now = self.store_clock.at_least(self.inner.clock.mono());
        now.unwrap_or(status.as_of)
    }

    /// A random wait after a due time that other sweepers may know as well.
    pub(super) fn slot(&self) -> Duration {
        Duration::from_micros(self.inner.clock.entropy() % SLOT_MICROS)
    }

    /// The time until `slot` after the first of some store times; at most `longest`.
    pub(super) fn until(
        &self,
        dues: &[Option<StoreTime>],
        slot: Duration,
        status: &GroupStatus,
        longest: Duration,
    ) -> Duration {
        let now = self.store_now(status);
        let waits = dues.iter().flatten().map(|due| due.since(now) + slot);
        waits.fold(longest, Duration::min)
    }

    /// The wait after this many failed visits in a row.
    pub(super) fn backoff(&self, failed_in_a_row: u32) -> Duration {
        let doubled = FIRST_BACKOFF.saturating_mul(1 << failed_in_a_row.saturating_sub(1).min(8));
        let longest = doubled.min(LONGEST_BACKOFF);
        jitter(&*self.inner.clock, longest.mul_f64(0.75), 33).max(FLOOR)
    }

    /// A unique pass name.
    pub(super) fn pass(&self) -> String {
        let number = self.inner.passes.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}.{number}", self.inner.name)
    }

    /// The time since the visit began.
    pub(super) fn elapsed(&self) -> Duration {
        self.inner.clock.mono().since(self.started)
    }

    pub(super) fn slice_is_over(&self) -> bool {
        self.elapsed() >= SLICE
    }

    pub(super) fn steps(&self) -> Result<&'a dyn SweepSteps> {
        let gone = || Error::new(ErrorKind::Unsupported, "the daemon of this store runs the sweeps");
        self.inner.store.steps().ok_or_else(gone)
    }

    pub(super) async fn in_time<T>(&self, step: impl Future<Output = Result<T>>) -> Result<T> {
        let bound = Timeout::change(self.inner.settings.give_up);
        bound.call(&*self.inner.clock, "the store", step).await
    }
}

/// Whether a time in a status has passed.
pub(super) fn is_due(at: Option<StoreTime>, status: &GroupStatus) -> bool {
    at.is_some_and(|at| at <= status.as_of)
}
