//! The visits of a sweep. A visit may outlast the turn that started it, so that a slow group delays only itself.
//!
//! Each node of the store has its own places, so that a slow node does not delay the others. A late visit harms no
//! member: it only finds later who has died.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tenure_core::clock::Mono;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::Group;
use tokio::sync::OwnedMutexGuard;

use super::schedule::{Due, Schedule};
use super::visit::Visited;
use super::{Inner, Janitor};
use crate::loops::{FIRST_BACKOFF, Turn, Waker, Workers};

/// Concurrent visits per node of the store.
pub(super) const PLACES: usize = 1_024;
/// The wait after a visit that panicked.
const AFTER_PANIC: Duration = FIRST_BACKOFF.saturating_mul(5);

/// The name of a store node, if the store has several.
type Node = Option<String>;

/// A sweep that visits groups.
pub(super) trait Sweeping: Sized + Send + Sync + 'static {
    /// The state kept per group between visits.
    type Work: Default + Send + 'static;

    fn schedule(inner: &Inner) -> MutexGuard<'_, Schedule<Self::Work>>;

    fn queues(inner: &Inner) -> &VisitQueues<Self>;

    fn visit(inner: &Inner, group: &Group, work: OwnedMutexGuard<Self::Work>) -> impl Future<Output = Visited> + Send;
}

/// The queues of one sweep, by node.
pub(super) struct VisitQueues<S: Sweeping> {
    workers: Workers,
    waker: OnceLock<Waker>,
    state: Mutex<QueuesState<S::Work>>,
}

struct QueuesState<W> {
    queues: BTreeMap<Node, VisitQueue<W>>,
    /// Groups queued or being visited.
    under_way: usize,
    ended: FinishedVisits,
    panics: VecDeque<Box<dyn Any + Send>>,
}

/// The visits that ended since the last turn.
#[derive(Default)]
struct FinishedVisits {
    well: u64,
    failed: u64,
    /// The first error.
    error: Option<Error>,
}

/// The visits of one node.
struct VisitQueue<W> {
    waiting: VecDeque<Due<W>>,
    visited: usize,
}

impl FinishedVisits {
    fn note(&mut self, error: Option<Error>) {
        match error {
            None => self.well += 1,
            Some(error) => {
                self.failed += 1;
                self.error.get_or_insert(error);
            }
        }
    }
}

impl<W> Default for VisitQueue<W> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            visited: 0,
        }
    }
}

impl<W> VisitQueue<W> {
    /// Takes the next group if a place is free.
    fn next(&mut self) -> Option<Due<W>> {
        let due = (self.visited < PLACES).then(|| self.waiting.pop_front())??;
        self.visited += 1;
        Some(due)
    }

    fn is_empty(&self) -> bool {
        self.visited == 0 && self.waiting.is_empty()
    }
}

impl<S: Sweeping> VisitQueues<S> {
    pub(super) fn new(workers: Workers) -> Self {
        let state = QueuesState {
            queues: BTreeMap::new(),
            under_way: 0,
            ended: FinishedVisits::default(),
            panics: VecDeque::new(),
        };
        Self {
            workers,
            waker: OnceLock::new(),
            state: Mutex::new(state),
        }
    }

    /// Sets the loop that is woken for these queues.
    pub(super) fn attach(&self, waker: Waker) {
        self.waker.get_or_init(|| waker);
    }

    pub(super) fn workers(&self) -> &Workers {
        &self.workers
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Makes the loop turn at `at` if it turns later.
    pub(super) fn wake_at(&self, at: Mono) {
        if let Some(waker) = self.waker.get() {
            waker.wake_at(at);
        }
    }

    /// Starts the due visits, and reports those that ended since the last turn. If a visit panicked, the turn panics
    /// with it, so that the loop counts it. `longest` bounds the time until the next turn.
    ///
    /// # Errors
    /// The first error of a visit, if the last visit of every group failed.
    pub(super) fn turn(inner: &Arc<Inner>, longest: Option<Duration>) -> Result<Turn> {
        let queues = S::queues(inner);
        queues.begin(inner);
        let all_fail = inner.all_fail::<S>();
        let next = inner.next_due::<S>().into_iter().chain(longest).min();
        let mut state = queues.state();
        let (ended, panic) = (std::mem::take(&mut state.ended), state.panics.pop_front());
        let pending = ended.well == 0 && state.under_way > 0;
        drop(state);
        match (panic, ended.error) {
            (Some(panic), _) => resume_unwind(panic),
            // If no group can be reached, the turn fails, and the age of the last success grows. If at least one can,
            // the loop keeps its pace.
            (None, Some(error)) if all_fail => {
                // The groups have pauses of their own.
                if let Some(next) = next {
                    queues.wake_at(inner.clock.mono() + next);
                }
                Err(error)
            }
            _ => Ok(Turn {
                next,
                skipped: ended.failed,
                // The janitor has something to do most often, so it notices first that the store is down.
                stalled: all_fail || pending || inner.all_fail::<Janitor>(),
            }),
        }
    }

    fn begin(&self, inner: &Arc<Inner>) {
        let due = S::schedule(inner).take(inner.clock.mono());
        let mut state = self.state();
        if state.under_way == 0 && !due.is_empty() {
            self.progressed(inner, true);
        }
        state.under_way += due.len();
        for due in due {
            let node = inner.store.node_of(&due.group);
            state.queues.entry(node).or_default().waiting.push_back(due);
        }
        let nodes: Vec<Node> = state.queues.keys().cloned().collect();
        for node in nodes {
            self.fill(inner, &mut state, &node);
        }
    }

    /// Starts visits on a node while places are free.
    fn fill(&self, inner: &Arc<Inner>, state: &mut QueuesState<S::Work>, node: &Node) {
        let Some(queue) = state.queues.get_mut(node) else {
            return;
        };
        while !self.workers.are_stopping()
            && let Some(due) = queue.next()
        {
            self.workers.spawn(Self::visit(Arc::clone(inner), node.clone(), due));
        }
        if queue.is_empty() {
            state.queues.remove(node);
        }
    }

    async fn visit(inner: Arc<Inner>, node: Node, due: Due<S::Work>) {
        let Due { group, work } = due;
        let visit = async { S::visit(&inner, &group, work.lock_owned().await).await };
        let done = AssertUnwindSafe(visit).catch_unwind().await;
        S::queues(&inner).visited(&inner, &node, |state| {
            let visited = done.unwrap_or_else(|panic| {
                state.panics.push_back(panic);
                Visited {
                    wait: AFTER_PANIC,
                    error: Some(Error::new(ErrorKind::Internal, "a visit panicked")),
                }
            });
            let due_at = inner.visited::<S>(&group, &visited);
            state.ended.note(visited.error);
            due_at
        });
    }

    /// Ends a visit and gives its place to the next group. The loop turns at the latest when the group is due again.
    fn visited(&self, inner: &Arc<Inner>, node: &Node, note: impl FnOnce(&mut QueuesState<S::Work>) -> Mono) {
        let mut state = self.state();
        let due_at = note(&mut state);
        state.under_way -= 1;
        if let Some(queue) = state.queues.get_mut(node) {
            queue.visited -= 1;
        }
        self.fill(inner, &mut state, node);
        self.progressed(inner, state.under_way > 0);
        // The last visit makes the loop report how the visits ended.
        let last = state.under_way == 0;
        drop(state);
        self.wake_at(if last { inner.clock.mono() } else { due_at });
    }

    fn progressed(&self, inner: &Inner, under_way: bool) {
        if let Some(waker) = self.waker.get() {
            waker.progressed(inner.clock.mono(), under_way);
        }
    }

    fn state(&self) -> MutexGuard<'_, QueuesState<S::Work>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
