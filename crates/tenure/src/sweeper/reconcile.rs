//! The reconcile: compares sessions with their indexes in every direction, rarely and in small parts, and repairs
//! differences.
//!
//! A store changes a session and its index in one step, so differences come from other programs or manual edits. The
//! reconcile reports them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use tenure_core::clock::jitter;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::sweep::{BATCH, ReconcileRequest, drift};
use tenure_core::timeout::Timeout;
use tokio::sync::OwnedMutexGuard;

use super::context::VisitContext;
use super::visit::Visited;
use super::{Inner, Janitor, RECONCILE, lock};
use crate::loops::{LoopBody, Turn};
use crate::{meters, trace};

/// The pause between two slices, so that a reconcile takes at most half of the store's time.
const REST: Duration = Duration::from_millis(100);
/// The pause after a search that the store did not answer.
const SEARCH_AGAIN: Duration = Duration::from_secs(10);

/// The reconcile of one group.
#[derive(Default)]
pub(super) struct ReconcileWork {
    /// The cursor; `None` at the start.
    after: Option<String>,
    looked_at: u64,
    repaired: BTreeMap<String, u64>,
    /// The kinds with a gauge.
    told: BTreeSet<String>,
    failed_in_a_row: u32,
}

/// The loop body of the reconcile.
pub(super) struct Reconciler {
    inner: Arc<Inner>,
}

impl Reconciler {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        // After a panic: retry interrupted reconciles after a while.
        let soon = inner.clock.mono() + inner.settings.reconcile_interval / 100;
        let mut schedule = lock(&inner.reconcile_due);
        for group in schedule.taken() {
            schedule.done(&group, soon, true);
        }
        drop(schedule);
        Self { inner }
    }
}

#[async_trait]
impl LoopBody for Reconciler {
    async fn turn(&mut self) -> Result<Turn> {
        let inner = &*self.inner;
        let due = lock(&inner.reconcile_due).take(inner.clock.mono());
        let failed: Vec<Error> = stream::iter(due)
            // One at a time: nothing here is urgent.
            .then(|due| async move {
                let visit = Visit {
                    context: VisitContext::new(inner, &due.group),
                    work: due.work.lock_owned().await,
                };
                let visited = visit.run().await;
                let due_at = inner.clock.mono() + visited.wait;
                lock(&inner.reconcile_due).done(&due.group, due_at, visited.error.is_some());
                visited.error
            })
            .filter_map(std::future::ready)
            .collect()
            .await;
        search(inner).await;
        // A failed group does not fail the turn; it only delays that group.
        let (search_in, now) = (inner.search_in(), inner.clock.mono());
        let schedule = lock(&inner.reconcile_due);
        let (next, all_fail) = (schedule.next(), schedule.all_fail());
        drop(schedule);
        Ok(Turn {
            next: Some(next.map_or(search_in, |at| at.since(now).min(search_in))),
            skipped: failed.len() as u64,
            stalled: all_fail.unwrap_or(false) || inner.all_fail::<Janitor>(),
        })
    }
}

/// Searches a part of the store for groups missing in its list, when due.
async fn search(inner: &Inner) {
    if !inner.search_in().is_zero() {
        return;
    }
    let settings = &inner.settings;
    let bound = Timeout::change(settings.give_up * 5);
    let pause = match bound.call(&*inner.clock, "the store", inner.store.find_groups()).await {
        Ok(true) => REST,
        Ok(false) => settings.reconcile_interval,
        Err(error) if error.kind() == ErrorKind::Denied => {
            let error = error.chain();
            tracing::warn!(
                error,
                "cannot search for groups missing in the list: the store's user may not run SCAN"
            );
            settings.reconcile_interval
        }
        Err(error) => {
            tracing::debug!(
                error = error.chain(),
                "the search for lost groups failed; retrying later"
            );
            SEARCH_AGAIN
        }
    };
    inner.search_from(inner.clock.mono() + pause);
}

struct Visit<'a> {
    context: VisitContext<'a>,
    work: OwnedMutexGuard<ReconcileWork>,
}

impl Visit<'_> {
    async fn run(mut self) -> Visited {
        let of = ("tenure.group", self.context.group.as_str());
        match trace::pass(RECONCILE, of, self.slice()).await {
            Ok(wait) => {
                self.work.failed_in_a_row = 0;
                Visited { wait, error: None }
            }
            Err(error) => {
                self.work.failed_in_a_row = self.work.failed_in_a_row.saturating_add(1);
                if error.kind() == ErrorKind::Invalid {
                    // The store does not know this cursor: start over.
                    self.work.after = None;
                }
                if self.work.failed_in_a_row == 1 {
                    let error = error.chain();
                    tracing::warn!(group = %self.context.group, error, "a reconcile was interrupted; it continues later");
                }
                Visited {
                    wait: self.context.backoff(self.work.failed_in_a_row) * 10,
                    error: Some(error),
                }
            }
        }
    }

    /// Processes parts until the slice is used up. Returns when to continue or to start the next reconcile.
    async fn slice(&mut self) -> Result<Duration> {
        let (inner, group) = (self.context.inner, self.context.group);
        self.context.read_status(inner.store.status(group)).await?;
        loop {
            let request = ReconcileRequest {
                after: self.work.after.clone(),
                limit: BATCH,
            };
            let step = self.context.steps()?.reconcile(group, &request, self.context.call());
            let part = self.context.in_time(step).await?;
            self.work.looked_at += part.looked_at;
            for (kind, count) in part.repaired {
                *self.work.repaired.entry(kind).or_default() += count;
            }
            self.work.after = part.next;
            if self.work.after.is_none() {
                self.log();
                return Ok(jitter(&*inner.clock, inner.settings.reconcile_interval, 10));
            }
            if self.context.slice_is_over() {
                return Ok(REST);
            }
        }
    }

    fn log(&mut self) {
        let (group, work) = (self.context.group, &mut *self.work);
        let looked_at = std::mem::take(&mut work.looked_at);
        let mut repaired = std::mem::take(&mut work.repaired);
        if repaired.is_empty() {
            tracing::debug!(%group, looked_at, "reconciled: sessions and their index agree");
        } else {
            tracing::warn!(%group, looked_at, ?repaired, "reconciled: repaired differences");
        }
        // An aged connection is not drift.
        repaired.remove(drift::AGED_CONNECTION);
        work.told.extend(repaired.keys().cloned());
        for kind in &work.told {
            meters::drift(group, kind, repaired.get(kind).copied().unwrap_or(0));
        }
    }
}
