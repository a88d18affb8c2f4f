//! The reconcile: compares all that is kept about sessions in every direction, rarely and in small parts, and repairs what
//! does not fit together.
//!
//! Nothing of it should ever be needed: a store changes a session and its index in one step. It is there for what was
//! written by others or by hand, and it tells what it found.

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

use super::lanes::Sweeping;
use super::reach::Reach;
use super::visit::Visited;
use super::{Inner, Janitor};
use crate::loops::{LoopBody, Turn};
use crate::meters;

/// The pause between two slices of parts, so that it never takes more than half of a store's time.
const REST: Duration = Duration::from_millis(100);
/// The pause after a search that the store did not answer.
const SEARCH_AGAIN: Duration = Duration::from_secs(10);

/// A reconcile of one group, under way or over.
#[derive(Default)]
pub(super) struct ReconcileWork {
    /// Where to go on; `None` at the beginning.
    after: Option<String>,
    looked_at: u64,
    repaired: BTreeMap<String, u64>,
    /// The kinds that the gauge has told of.
    told: BTreeSet<String>,
    failed_in_a_row: u32,
}

/// The body of the loop.
pub(super) struct Reconciler {
    inner: Arc<Inner>,
}

impl Reconciler {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        // After a panic: what was under way then goes on after a while.
        let soon = inner.clock.mono() + inner.settings.reconcile_interval / 100;
        let mut groups = inner.groups();
        let taken = groups.values_mut().filter(|entry| entry.reconcile.is_taken());
        taken.for_each(|entry| {
            entry.reconcile.done(soon, true, false);
        });
        drop(groups);
        Self { inner }
    }
}

#[async_trait]
impl LoopBody for Reconciler {
    async fn turn(&mut self) -> Result<Turn> {
        let inner = &*self.inner;
        let due = inner.take_due(|entry| &mut entry.reconcile);
        let failed: Vec<Error> = stream::iter(due)
            // One after the other: nothing here is urgent.
            .then(|due| async move {
                let visit = Visit {
                    reach: Reach::new(inner, &due.group),
                    work: due.work.lock_owned().await,
                };
                let visited = visit.run().await;
                inner.visited(&due.group, &visited, false, |entry| &mut entry.reconcile);
                visited.error
            })
            .filter_map(std::future::ready)
            .collect()
            .await;
        search(inner).await;
        // A failed group is not a failed turn: all that suffers is when it is its turn again.
        let search_in = inner.search_in();
        Ok(Turn {
            next: Some(
                inner
                    .next_due(|entry| &mut entry.reconcile)
                    .map_or(search_in, |due| due.min(search_in)),
            ),
            skipped: failed.len() as u64,
            stalled: inner.nothing_works(|entry| &mut entry.reconcile) || inner.nothing_works(Janitor::slot),
        })
    }
}

/// A part of the search for groups that the store's list has lost, when its time has come.
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
                "groups that the list has lost are not searched for: the store's user may not run SCAN"
            );
            settings.reconcile_interval
        }
        Err(error) => {
            tracing::debug!(
                error = error.chain(),
                "the search for lost groups failed; it is retried later"
            );
            SEARCH_AGAIN
        }
    };
    inner.search_from(inner.clock.mono() + pause);
}

struct Visit<'a> {
    reach: Reach<'a>,
    work: OwnedMutexGuard<ReconcileWork>,
}

impl Visit<'_> {
    async fn run(mut self) -> Visited {
        match self.slice().await {
            Ok(wait) => {
                self.work.failed_in_a_row = 0;
                Visited { wait, error: None }
            }
            Err(error) => {
                self.work.failed_in_a_row = self.work.failed_in_a_row.saturating_add(1);
                if error.kind() == ErrorKind::Invalid {
                    // A place that the store no longer knows: from the beginning.
                    self.work.after = None;
                }
                if self.work.failed_in_a_row == 1 {
                    let error = error.chain();
                    tracing::warn!(group = %self.reach.group, error, "a reconcile was interrupted; it goes on later");
                }
                Visited {
                    wait: self.reach.backoff(self.work.failed_in_a_row) * 10,
                    error: Some(error),
                }
            }
        }
    }

    /// As many parts as fit into a slice. Answers when to go on, or to begin anew.
    async fn slice(&mut self) -> Result<Duration> {
        let (inner, group) = (self.reach.inner, self.reach.group);
        self.reach.ask(inner.store.status(group)).await?;
        loop {
            let request = ReconcileRequest {
                after: self.work.after.clone(),
                limit: BATCH,
            };
            let step = self.reach.steps()?.reconcile(group, &request, self.reach.call());
            let part = self.reach.in_time(step).await?;
            self.work.looked_at += part.looked_at;
            for (kind, count) in part.repaired {
                *self.work.repaired.entry(kind).or_default() += count;
            }
            self.work.after = part.next;
            if self.work.after.is_none() {
                self.tell();
                return Ok(jitter(&*inner.clock, inner.settings.reconcile_interval, 10));
            }
            if self.reach.slice_is_over() {
                return Ok(REST);
            }
        }
    }

    fn tell(&mut self) {
        let (group, work) = (self.reach.group, &mut *self.work);
        let looked_at = std::mem::take(&mut work.looked_at);
        let mut repaired = std::mem::take(&mut work.repaired);
        if repaired.is_empty() {
            tracing::debug!(%group, looked_at, "reconciled: sessions and their index agree");
        } else {
            tracing::warn!(%group, looked_at, ?repaired, "reconciled: repaired what did not fit together");
        }
        // Too old is not adrift.
        repaired.remove(drift::AGED_CONNECTION);
        work.told.extend(repaired.keys().cloned());
        for kind in &work.told {
            meters::drift(group, kind, repaired.get(kind).copied().unwrap_or(0));
        }
    }
}
