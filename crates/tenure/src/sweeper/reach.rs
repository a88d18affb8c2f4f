//! What every sweep needs to act on one group: the steps, the limits of a call, and the store's time as far as it is known.

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

/// All sweepers sleep until the same due time; each comes a little after it, so that they do not all come at once.
const SLOT_MICROS: u64 = 2_000;
/// Passes whose outcome is unknown that are kept at most, per group and sweep.
const MAX_PENDING: usize = 64;

/// A step whose reply was lost: its count is in the events, if it took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) pass: String,
    /// After this store time it can no longer take effect.
    pub(super) not_after: StoreTime,
    /// The newest event before it.
    pub(super) since: EventId,
}

/// The steps of one group and sweep that were not answered.
#[derive(Debug, Default)]
pub(super) struct Unanswered(Vec<Pending>);

impl Unanswered {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Remembers a step to read back.
    pub(super) fn remember(&mut self, group: &Group, pass: String, call: Call, since: EventId) {
        if self.0.len() >= MAX_PENDING {
            let lost = self.0.remove(0);
            tracing::warn!(%group, pass = lost.pass, "too many passes without an answer; one is not counted");
        }
        self.0.push(Pending {
            pass,
            not_after: call.not_after.unwrap_or_default(),
            since,
        });
    }

    /// Those that can no longer take effect.
    pub(super) fn over(&self, now: StoreTime) -> Vec<Pending> {
        let over = self.0.iter().filter(|pending| now > pending.not_after);
        over.cloned().collect()
    }

    /// Its count was found.
    pub(super) fn settle(&mut self, pending: &Pending) {
        self.0.retain(|kept| kept != pending);
    }
}

/// One visit's hold on its group.
pub(super) struct Reach<'a> {
    pub(super) inner: &'a Inner,
    pub(super) group: &'a Group,
    started: Mono,
    /// The store's clock, as the statuses of this visit show it.
    store_clock: RemoteClock,
}

impl<'a> Reach<'a> {
    pub(super) fn new(inner: &'a Inner, group: &'a Group) -> Self {
        Self {
            inner,
            group,
            started: inner.clock.mono(),
            store_clock: RemoteClock::default(),
        }
    }

    /// Asks for the status of the group. Answers when it arrived as well.
    pub(super) async fn ask(&self, status: impl Future<Output = Result<GroupStatus>>) -> Result<(GroupStatus, Mono)> {
        let asked = self.inner.clock.mono();
        let status = self.in_time(status).await?;
        let arrived = self.inner.clock.mono();
        self.store_clock.learn(status.as_of, asked, arrived);
        Ok((status, arrived))
    }

    /// The limits of a step that is given up in a while.
    pub(super) fn call(&self) -> Call {
        let give_up = self.inner.clock.mono() + self.inner.settings.give_up;
        self.store_clock.not_after(give_up, Call::default())
    }

    /// The store's time by now, or a little less.
    pub(super) fn store_now(&self, status: &GroupStatus) -> StoreTime {
        let now = self.store_clock.at_least(self.inner.clock.mono());
        now.unwrap_or(status.as_of)
    }

    /// How long until the first of some store times, and a little more; `longest` when there is none before it.
    pub(super) fn until(&self, dues: &[Option<StoreTime>], status: &GroupStatus, longest: Duration) -> Duration {
        let now = self.store_now(status);
        let slot = Duration::from_micros(self.inner.clock.entropy() % SLOT_MICROS);
        let waits = dues.iter().flatten().map(|due| due.since(now) + slot);
        waits.fold(longest, Duration::min)
    }

    /// How long to wait after the visits that failed in a row.
    pub(super) fn backoff(&self, failed_in_a_row: u32) -> Duration {
        let doubled = FIRST_BACKOFF.saturating_mul(1 << failed_in_a_row.saturating_sub(1).min(8));
        let longest = doubled.min(self.inner.settings.idle_tick);
        jitter(&*self.inner.clock, longest.mul_f64(0.75), 33).max(FLOOR)
    }

    /// A name that no other pass has.
    pub(super) fn pass(&self) -> String {
        let number = self.inner.passes.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}.{number}", self.inner.name)
    }

    pub(super) fn slice_is_over(&self) -> bool {
        self.inner.clock.mono().since(self.started) >= self.inner.settings.slice
    }

    pub(super) fn steps(&self) -> Result<&'a dyn SweepSteps> {
        let gone = || Error::new(ErrorKind::Unsupported, "this store is swept by its daemon");
        self.inner.store.steps().ok_or_else(gone)
    }

    pub(super) async fn in_time<T>(&self, step: impl Future<Output = Result<T>>) -> Result<T> {
        let bound = Timeout::change(self.inner.settings.give_up);
        bound.call(&*self.inner.clock, "the store", step).await
    }
}

/// Whether a time of a status has come.
pub(super) fn is_due(at: Option<StoreTime>, status: &GroupStatus) -> bool {
    at.is_some_and(|at| at <= status.as_of)
}
