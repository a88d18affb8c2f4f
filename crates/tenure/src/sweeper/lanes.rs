//! The visits of one sweep that are under way. They outlast the turn that began them, so that a slow group holds up only
//! itself.
//!
//! Each node of the store has its own lane, with a few places for quick visits and many for slow ones. A visit that takes
//! long moves to a slow place, and a group whose last visit was slow begins in one. So slow groups take neither the quick
//! places of their node nor any place of another node.

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
use super::{Entry, Inner, Janitor};
use crate::loops::{FIRST_BACKOFF, Turn, Waker, Workers};

/// The most slow visits of one node at once.
pub(super) const SLOW_PLACES: usize = 256;
/// This part of a slice makes a visit slow.
const QUICK_PART: u32 = 4;
/// When a group is visited again whose visit panicked.
const AFTER_PANIC: Duration = FIRST_BACKOFF.saturating_mul(5);

/// A node by the name that the store has for it.
type Node = Option<String>;

/// A sweep that visits groups.
pub(super) trait Sweeping: Sized + Send + Sync + 'static {
    /// What it keeps of a group from visit to visit.
    type Work: Default + Send + 'static;

    fn slot(entry: &mut Entry) -> &mut Slot<Self::Work>;

    fn lanes(inner: &Inner) -> &Lanes<Self>;

    fn visit(inner: &Inner, group: &Group, work: OwnedMutexGuard<Self::Work>) -> impl Future<Output = Visited> + Send;
}

/// All lanes of one sweep.
pub(super) struct Lanes<S: Sweeping> {
    workers: Workers,
    waker: OnceLock<Waker>,
    state: Mutex<State<S::Work>>,
}

struct State<W> {
    lanes: BTreeMap<Node, Lane<W>>,
    /// Groups that wait for a place or are visited.
    under_way: usize,
    ended: Ended,
    panics: VecDeque<Box<dyn Any + Send>>,
    /// When the loop turns next: a group that is due before that wakes it.
    turns_at: Mono,
}

/// The visits that ended since the last turn.
#[derive(Default)]
struct Ended {
    well: u64,
    failed: u64,
    /// The first of the errors.
    error: Option<Error>,
}

/// The visits on one node.
struct Lane<W> {
    quick: Queue<W>,
    slow: Queue<W>,
}

struct Queue<W> {
    waiting: VecDeque<Due<W>>,
    visited: usize,
}

impl Ended {
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

impl<W> Default for Lane<W> {
    fn default() -> Self {
        let queue = || Queue {
            waiting: VecDeque::new(),
            visited: 0,
        };
        Self {
            quick: queue(),
            slow: queue(),
        }
    }
}

impl<W> Lane<W> {
    fn queue(&mut self, slow: bool) -> &mut Queue<W> {
        if slow { &mut self.slow } else { &mut self.quick }
    }

    fn is_empty(&self) -> bool {
        [&self.quick, &self.slow]
            .iter()
            .all(|queue| queue.visited == 0 && queue.waiting.is_empty())
    }
}

impl<W> Queue<W> {
    /// Takes the next group, if there is a place for it.
    fn next(&mut self, places: usize) -> Option<Due<W>> {
        let due = (self.visited < places).then(|| self.waiting.pop_front())??;
        self.visited += 1;
        Some(due)
    }
}

impl<S: Sweeping> Lanes<S> {
    pub(super) fn new(workers: Workers) -> Self {
        let state = State {
            lanes: BTreeMap::new(),
            under_way: 0,
            ended: Ended::default(),
            panics: VecDeque::new(),
            turns_at: Mono::from_origin(Duration::ZERO),
        };
        Self {
            workers,
            waker: OnceLock::new(),
            state: Mutex::new(state),
        }
    }

    /// The loop that takes its turns with these lanes.
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

    /// Begins the visits that are due, and reports those that ended since the last turn. A visit that
    /// panicked makes a turn panic, so that the loop counts it. `longest` bounds how long until the next turn.
    ///
    /// # Errors
    /// The first error of a visit, when the last visit of every group has failed.
    pub(super) fn turn(inner: &Arc<Inner>, longest: Option<Duration>) -> Result<Turn> {
        let lanes = S::lanes(inner);
        lanes.begin(inner);
        let nothing_works = inner.nothing_works(S::slot);
        let next = inner.next_due(S::slot).into_iter().chain(longest).min();
        let mut state = lanes.state();
        let (ended, panic) = (std::mem::take(&mut state.ended), state.panics.pop_front());
        let pending = ended.well == 0 && state.under_way > 0;
        // A failed turn is followed by a pause that no visit cuts short.
        let fails = nothing_works && ended.error.is_some();
        state.turns_at = match next {
            _ if fails => Mono::from_origin(Duration::ZERO),
            Some(next) => inner.clock.mono() + next,
            None => Mono::from_origin(Duration::MAX),
        };
        drop(state);
        match (panic, ended.error) {
            (Some(panic), _) => resume_unwind(panic),
            // Not even one group can be reached: that is a failed turn, and the age of the last success tells. As long
            // as there is one that can, its pace must not suffer.
            (None, Some(error)) if nothing_works => Err(error),
            _ => Ok(Turn {
                next,
                skipped: ended.failed,
                // The janitor, which looks at every group all the time, sees first that the store is away.
                stalled: nothing_works || pending || inner.nothing_works(Janitor::slot),
            }),
        }
    }

    fn begin(&self, inner: &Arc<Inner>) {
        let due = inner.take_due(S::slot);
        let mut state = self.state();
        // Whatever ends from here on wakes the loop, until the turn knows when the next one is.
        state.turns_at = Mono::from_origin(Duration::MAX);
        if state.under_way == 0 && !due.is_empty() {
            self.progressed(inner, true);
        }
        state.under_way += due.len();
        for due in due {
            let node = inner.store.node_of(&due.group);
            let lane = state.lanes.entry(node).or_default();
            lane.queue(due.slow).waiting.push_back(due);
        }
        let nodes: Vec<Node> = state.lanes.keys().cloned().collect();
        for node in nodes {
            self.fill(inner, &mut state, &node);
        }
    }

    /// Begins as many visits on a node as there are places for.
    fn fill(&self, inner: &Arc<Inner>, state: &mut State<S::Work>, node: &Node) {
        let Some(lane) = state.lanes.get_mut(node) else { return };
        for (slow, places) in [(false, inner.settings.at_once), (true, SLOW_PLACES)] {
            while !self.workers.are_stopping()
                && let Some(due) = lane.queue(slow).next(places)
            {
                self.workers.spawn(Self::visit(Arc::clone(inner), node.clone(), due));
            }
        }
        if lane.is_empty() {
            state.lanes.remove(node);
        }
    }

    async fn visit(inner: Arc<Inner>, node: Node, due: Due<S::Work>) {
        let (lanes, began, quick) = (S::lanes(&inner), inner.clock.mono(), inner.settings.slice / QUICK_PART);
        let Due { group, work, slow } = due;
        let visit = async { S::visit(&inner, &group, work.lock_owned().await).await };
        let mut visit = std::pin::pin!(AssertUnwindSafe(visit).catch_unwind());
        let mut in_slow = slow;
        let done = tokio::select! {
            biased;
            done = &mut visit => done,
            () = inner.clock.sleep(quick), if !slow => {
                in_slow = lanes.make_room(&inner, &node);
                visit.await
            }
        };
        let slow = inner.clock.mono().since(began) >= quick;
        lanes.visited(&inner, &node, in_slow, |state| {
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

    /// A visit turned out to be slow: it leaves its quick place, unless all slow ones are taken. Whether it did.
    fn make_room(&self, inner: &Arc<Inner>, node: &Node) -> bool {
        let mut state = self.state();
        let Some(lane) = state.lanes.get_mut(node) else {
            return false;
        };
        if lane.slow.visited >= SLOW_PLACES {
            return false;
        }
        lane.quick.visited -= 1;
        lane.slow.visited += 1;
        self.fill(inner, &mut state, node);
        true
    }

    /// A visit is over: its place is the next group's. Wakes the loop when the group is due before its next turn.
    fn visited(&self, inner: &Arc<Inner>, node: &Node, in_slow: bool, note: impl FnOnce(&mut State<S::Work>) -> Mono) {
        let mut state = self.state();
        let due_at = note(&mut state);
        state.under_way -= 1;
        if let Some(lane) = state.lanes.get_mut(node) {
            lane.queue(in_slow).visited -= 1;
        }
        self.fill(inner, &mut state, node);
        self.progressed(inner, state.under_way > 0);
        let early = due_at < state.turns_at;
        drop(state);
        if early {
            self.wake();
        }
    }

    fn progressed(&self, inner: &Inner, under_way: bool) {
        if let Some(waker) = self.waker.get() {
            waker.progressed(inner.clock.mono(), under_way);
        }
    }

    fn state(&self) -> MutexGuard<'_, State<S::Work>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
