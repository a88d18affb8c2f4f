//! One group in memory: its model, how far it is durable, and the calls that wait for that.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{oneshot, watch};

use super::backlog::Backlog;
use super::disk::{Batch, Lost, StoredRows};
use crate::error::{Error, Outcome};
use crate::event::EventId;
use crate::id::Group;
use crate::memory::GroupModel;
use crate::memory::rows::{RowKey, Taken};
use crate::store::StoreOptions;
use crate::time::StoreTime;

/// A group.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) group: Group,
    state: Mutex<State>,
}

/// What the lock of a group guards.
#[derive(Debug)]
pub(super) struct State {
    pub(super) model: GroupModel,
    /// The number of the newest step that changed something; steps are counted from 1.
    applied: u64,
    /// Every step up to this one is durable, or was lost.
    settled: u64,
    /// The group has a row on the disk.
    pub(super) is_kept: bool,
    /// The step that removed the group, while that is not durable.
    leaving: Option<u64>,
    /// A step panicked; the model is not to be used before its rows were put back.
    is_torn: bool,
    /// It was removed, or its first commit failed. Another may have taken its place.
    is_gone: bool,
    /// When it is due in the index.
    pub(super) is_due_at: Option<StoreTime>,
    /// Since when the group could not be used.
    torn_at: Option<StoreTime>,
    /// It is in the queue of the writer.
    pub(super) is_queued: bool,
    /// Its share of the backlog of all groups: rows and bytes.
    backlog: (usize, usize),
    waiting: Vec<(u64, Waiter)>,
    /// The newest durable event.
    newest: EventId,
    /// Those who wait for a newer one.
    news: Option<watch::Sender<EventId>>,
}

/// The other side of a [`Gate`].
pub(super) type Waiter = oneshot::Sender<Result<(), Lost>>;

/// Opens when a step is durable, or lost.
#[derive(Debug)]
pub(super) struct Gate(Option<oneshot::Receiver<Result<(), Lost>>>);

impl Gate {
    /// Whether there is nothing to wait for.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_none()
    }

    /// Waits for it.
    pub(super) async fn wait(self) -> Result<(), Lost> {
        let Some(waiting) = self.0 else { return Ok(()) };
        waiting.await.unwrap_or_else(|_| Err(Lost::for_good(&stopped())))
    }
}

/// Why a group cannot be used now.
#[derive(Debug)]
pub(super) enum Detour {
    /// Look for it again when this opens.
    Wait(Gate),
    /// Look for it again.
    Gone,
}

impl Detour {
    /// Waits until it makes sense to look again.
    ///
    /// # Errors
    /// Nothing is served any more.
    pub(super) async fn wait(self) -> Result<(), Error> {
        let Self::Wait(gate) = self else { return Ok(()) };
        match gate.wait().await {
            Err(lost) if lost.for_good => Err(lost.to_error()),
            _ => Ok(()),
        }
    }
}

impl State {
    /// The newest durable event, and each later one.
    pub(super) fn subscribe(&mut self) -> watch::Receiver<EventId> {
        let newest = self.newest;
        self.news.get_or_insert_with(|| watch::Sender::new(newest)).subscribe()
    }

    /// Lets those who wait for events look again.
    pub(super) fn wake(&mut self) {
        self.publish(self.newest);
    }

    /// Events up to this one are durable.
    pub(super) fn publish(&mut self, newest: EventId) {
        self.newest = newest;
        self.news.take_if(|news| news.is_closed());
        if let Some(news) = &self.news {
            news.send_replace(newest);
        }
    }
}

impl Cell {
    /// A group that begins with its first step.
    pub(super) fn new(group: Group, options: StoreOptions, now: StoreTime) -> Arc<Self> {
        Self::of(group, GroupModel::new(options, now).kept(), false)
    }

    /// A group that the disk holds.
    pub(super) fn loaded(group: Group, model: GroupModel) -> Arc<Self> {
        Self::of(group, model, true)
    }

    fn of(group: Group, model: GroupModel, is_kept: bool) -> Arc<Self> {
        let state = State {
            newest: if is_kept { model.last_event() } else { EventId(0) },
            news: None,
            model,
            applied: 0,
            settled: 0,
            is_kept,
            leaving: None,
            is_torn: false,
            is_gone: false,
            is_due_at: None,
            torn_at: None,
            is_queued: false,
            backlog: (0, 0),
            waiting: Vec::new(),
        };
        Arc::new(Self {
            group,
            state: Mutex::new(state),
        })
    }

    /// Locks the state. Panics under this lock are caught, so poisoning is ignored.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the model must not be used now.
    pub(super) fn detour(&mut self) -> Option<Detour> {
        if self.is_gone {
            return Some(Detour::Gone);
        }
        if self.is_torn {
            // No step has this number yet; putting the rows back opens all gates.
            return Some(Detour::Wait(self.gate(self.applied + 1)));
        }
        let leaving = self.leaving?;
        Some(Detour::Wait(self.gate(leaving)))
    }

    /// Begins the group again, if no step has changed it: it is born with its first step, and not when it was looked for.
    pub(super) fn be_born(&mut self, options: &StoreOptions, now: StoreTime) {
        if self.is_unborn() {
            self.model = GroupModel::new(options.clone(), now).kept();
        }
    }

    /// Whether the group does not exist yet: no step has changed anything.
    pub(super) fn is_unborn(&self) -> bool {
        !self.is_kept && self.applied == 0
    }

    /// Begins a step. Answers its number, which it has if it changes something.
    pub(super) fn begin(&mut self) -> u64 {
        let number = self.applied + 1;
        self.model.begin_step(number);
        number
    }

    /// Notes that a step ended. Answers whether it changed something. The first step of a group always does.
    pub(super) fn end(&mut self, number: u64) -> bool {
        let changed = self.is_unborn() || self.model.touched() == number;
        if changed {
            self.applied = number;
        }
        changed
    }

    /// Notes that the step removes the group.
    pub(super) fn leave(&mut self, number: u64) {
        self.applied = number;
        self.leaving = Some(number);
    }

    /// Notes that a step panicked.
    pub(super) fn tear(&mut self, now: StoreTime) {
        self.is_torn = true;
        self.torn_at.get_or_insert(now);
    }

    /// Notes that the group can be used again. If it could not for longer than its gap, every ttl restarts.
    pub(super) fn mended(&mut self, since: StoreTime, now: StoreTime) {
        let since = self.torn_at.take().unwrap_or(since);
        if now.since(since) > self.model.gap() {
            self.model.note_failed(now);
        }
    }

    /// Opens when everything that was applied is durable.
    pub(super) fn gate_of_all(&mut self) -> Gate {
        self.gate(self.applied)
    }

    /// Opens when a look at the model may leave the store: what it depended on is durable.
    pub(super) fn gate_of_look(&mut self) -> Gate {
        let seen = self.model.seen();
        // The first step made the group itself.
        let born = u64::from(!self.is_kept && self.applied > 0);
        self.gate(seen.max(born))
    }

    fn gate(&mut self, number: u64) -> Gate {
        if number <= self.settled {
            return Gate(None);
        }
        let (opens, waits) = oneshot::channel();
        self.waiting.push((number, opens));
        Gate(Some(waits))
    }

    /// Takes what is not on its way to the disk yet; `None` when that is nothing.
    pub(super) fn take(&mut self, group: &Group) -> Option<(Batch, u64)> {
        self.is_queued = false;
        if self.is_gone || self.is_torn || self.settled == self.applied {
            return None;
        }
        // The first step of a group has a number although it may have touched no row.
        let taken = Taken {
            number: self.applied,
            ..self.model.take()
        };
        let batch = Batch {
            group: group.clone(),
            taken,
            forgotten: self.leaving.is_some(),
        };
        Some((batch, self.applied))
    }

    /// Everything up to this step is durable. Answers the gates to open when the lock is free again.
    pub(super) fn durable(&mut self, number: u64) -> Vec<(u64, Waiter)> {
        self.settled = self.settled.max(number);
        self.is_kept = true;
        self.model.durable(number);
        if self.leaving.is_some_and(|leaving| leaving <= number) {
            self.is_gone = true;
        }
        let opens = |(step, _): &mut (u64, _)| *step <= number;
        self.waiting.extract_if(.., opens).collect()
    }

    /// Everything that is not durable is lost: `of_commit` for the steps up to `number`, `later` for those that came after.
    pub(super) fn lose(&mut self, number: u64, of_commit: &Lost, later: &Lost) {
        self.settled = self.applied;
        self.leaving = None;
        self.is_torn = false;
        for (step, waiting) in std::mem::take(&mut self.waiting) {
            let lost = if step <= number { of_commit } else { later };
            let _ = waiting.send(Err(lost.clone()));
        }
    }

    /// Nothing is served any more: nothing of it may be seen.
    pub(super) fn abandon(&mut self, number: u64, of_commit: &Lost, later: &Lost) {
        self.lose(number, of_commit, later);
        self.is_queued = false;
        self.is_gone = true;
    }

    /// Counts again how much waits for the disk.
    pub(super) fn recount(&mut self, all: &Backlog) {
        all.replace(&mut self.backlog, self.model.backlog());
    }

    /// Puts the rows that are not durable back as the disk has them. Without a row of the group there is none.
    pub(super) fn put_back(&mut self, (row, rows): StoredRows, keys: Vec<RowKey>) {
        match row {
            Some(row) => self.model.put_back(keys.into_iter().zip(rows).collect(), row),
            None => self.is_gone = true,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }
}

/// The error for callers whose gate was dropped together with the writer.
pub(super) fn stopped() -> Arc<Error> {
    let message = "the writer of the store stopped before it answered";
    Arc::new(Error::unavailable(message, Outcome::Unknown))
}
