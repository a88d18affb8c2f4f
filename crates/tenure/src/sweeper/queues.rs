//! The visits of a sweep. A visit may outlast the turn that started it, so that a slow group delays only itself.
//!
//! Each node of the store has its own queues: a few slots for quick visits and many for slow ones. A long visit moves
//! to a slow slot, and a group whose last visit was slow starts in one. Slow groups thus occupy neither the quick slots
//! of their node nor any slot of another node. When the visits of a node turn out slow one after the other, the node is
//! slow rather than its groups: then what waits for a quick slot takes the free slow ones.

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

use super::slot::{Due, Slot};
use super::visit::Visited;
use super::{GroupEntry, Inner, Janitor};
use crate::loops::{FIRST_BACKOFF, Turn, Waker, Workers};

/// Concurrent slow visits per node.
pub(super) const SLOW_PLACES: usize = 1_024;
/// A visit is slow after this part of a slice.
const QUICK_PART: u32 = 4;
/// The wait after a visit that panicked.
const AFTER_PANIC: Duration = FIRST_BACKOFF.saturating_mul(5);

/// The name of a store node, if the store has several.
type Node = Option<String>;

/// A sweep that visits groups.
pub(super) trait Sweeping: Sized + Send + Sync + 'static {
    /// The state kept per group between visits.
    type Work: Default + Send + 'static;

    fn slot(entry: &mut GroupEntry) -> &mut Slot<Self::Work>;

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
    queues: BTreeMap<Node, NodeQueues<W>>,
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

/// The queues of one node.
struct NodeQueues<W> {
    quick: VisitQueue<W>,
    slow: VisitQueue<W>,
    /// Visits that turned out slow since the last quick one.
    slow_in_a_row: usize,
}

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

impl<W> Default for NodeQueues<W> {
    fn default() -> Self {
        let queue = || VisitQueue {
            waiting: VecDeque::new(),
            visited: 0,
        };
        Self {
            quick: queue(),
            slow: queue(),
            slow_in_a_row: 0,
        }
    }
}

impl<W> NodeQueues<W> {
    fn queue(&mut self, slow: bool) -> &mut VisitQueue<W> {
        if slow { &mut self.slow } else { &mut self.quick }
    }

    /// Moves groups from the quick queue to the slow one while that has free slots.
    fn use_slow_slots(&mut self) {
        while self.slow.visited + self.slow.waiting.len() < SLOW_PLACES
            && let Some(mut due) = self.quick.waiting.pop_front()
        {
            due.slow = true;
            self.slow.waiting.push_back(due);
        }
    }

    fn is_empty(&self) -> bool {
        [&self.quick, &self.slow]
            .iter()
            .all(|queue| queue.visited == 0 && queue.waiting.is_empty())
    }
}

impl<W> VisitQueue<W> {
    /// Takes the next group if a slot is free.
    fn next(&mut self, places: usize) -> Option<Due<W>> {
        let due = (self.visited < places).then(|| self.waiting.pop_front())??;
        self.visited += 1;
        Some(due)
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
        let all_fail = inner.all_fail(S::slot);
        let next = inner.next_due(S::slot).into_iter().chain(longest).min();
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
                // The janitor visits every group all the time, so it notices first that the store is down.
                stalled: all_fail || pending || inner.all_fail(Janitor::slot),
            }),
        }
    }

    fn begin(&self, inner: &Arc<Inner>) {
        let due = inner.take_due(S::slot);
        let mut state = self.state();
        if state.under_way == 0 && !due.is_empty() {
            self.progressed(inner, true);
        }
        state.under_way += due.len();
        for due in due {
            let node = inner.store.node_of(&due.group);
            let node_queues = state.queues.entry(node).or_default();
            node_queues.queue(due.slow).waiting.push_back(due);
        }
        let nodes: Vec<Node> = state.queues.keys().cloned().collect();
        for node in nodes {
            self.fill(inner, &mut state, &node);
        }
    }

    /// Starts visits on a node while slots are free.
    fn fill(&self, inner: &Arc<Inner>, state: &mut QueuesState<S::Work>, node: &Node) {
        let Some(node_queues) = state.queues.get_mut(node) else {
            return;
        };
        if node_queues.slow_in_a_row >= inner.settings.at_once {
            node_queues.use_slow_slots();
        }
        for (slow, places) in [(false, inner.settings.at_once), (true, SLOW_PLACES)] {
            while !self.workers.are_stopping()
                && let Some(due) = node_queues.queue(slow).next(places)
            {
                self.workers.spawn(Self::visit(Arc::clone(inner), node.clone(), due));
            }
        }
        if node_queues.is_empty() {
            state.queues.remove(node);
        }
    }

    async fn visit(inner: Arc<Inner>, node: Node, due: Due<S::Work>) {
        let (queues, began, quick) = (S::queues(&inner), inner.clock.mono(), inner.settings.slice / QUICK_PART);
        let Due { group, work, slow } = due;
        let visit = async { S::visit(&inner, &group, work.lock_owned().await).await };
        let mut visit = std::pin::pin!(AssertUnwindSafe(visit).catch_unwind());
        let mut in_slow = slow;
        let done = tokio::select! {
            biased;
            done = &mut visit => done,
            () = inner.clock.sleep(quick), if !slow => {
                in_slow = queues.make_room(&inner, &node);
                visit.await
            }
        };
        let slow = inner.clock.mono().since(began) >= quick;
        queues.visited(&inner, &node, in_slow, |state| {
            if let (false, Some(node_queues)) = (slow, state.queues.get_mut(&node)) {
                node_queues.slow_in_a_row = 0;
            }
            let visited = done.unwrap_or_else(|panic| {
                state.panics.push_back(panic);
                Visited {
                    wait: AFTER_PANIC,
                    error: Some(Error::new(ErrorKind::Internal, "a visit panicked")),
                }
            });
            let due_at = inner.visited(&group, &visited, slow, S::slot);
            state.ended.note(visited.error);
            due_at
        });
    }

    /// Counts a slow visit, and moves it to a slow slot if one is free. Returns whether it moved.
    fn make_room(&self, inner: &Arc<Inner>, node: &Node) -> bool {
        let mut state = self.state();
        let Some(node_queues) = state.queues.get_mut(node) else {
            return false;
        };
        node_queues.slow_in_a_row += 1;
        let has_room = node_queues.slow.visited < SLOW_PLACES;
        if has_room {
            node_queues.quick.visited -= 1;
            node_queues.slow.visited += 1;
        }
        self.fill(inner, &mut state, node);
        has_room
    }

    /// Ends a visit and gives its slot to the next group. The loop turns at the latest when the group is due again.
    fn visited(
        &self,
        inner: &Arc<Inner>,
        node: &Node,
        in_slow: bool,
        note: impl FnOnce(&mut QueuesState<S::Work>) -> Mono,
    ) {
        let mut state = self.state();
        let due_at = note(&mut state);
        state.under_way -= 1;
        if let Some(node_queues) = state.queues.get_mut(node) {
            node_queues.queue(in_slow).visited -= 1;
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
