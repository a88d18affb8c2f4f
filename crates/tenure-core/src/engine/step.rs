//! Steps and looks: applied immediately, answered when durable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use tokio::sync::oneshot;

use super::Shared;
use super::cell::{Cell, Detour, Gate, State, stopped};
use super::disk::Lost;
#[cfg(test)]
use super::trace::{self, Noted};
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::id::Group;
use crate::memory::{Decide, GroupModel};
use crate::store::Call;
use crate::sweep::ForgetGroup;
use crate::time::StoreTime;

/// The result of an attempt to use a group.
pub(super) enum Attempt<T> {
    /// The group cannot be used now.
    Again(Detour),
    /// It was refused before anything was applied.
    Refused(Error),
    /// It was done, and is answered when the gate opens.
    Done {
        reply: T,
        /// It changed something.
        changed: bool,
        gate: Gate,
    },
}

impl Shared {
    /// Takes a step on a group, and makes the group if it is new.
    pub(super) async fn step<T>(
        self: &Arc<Self>,
        group: &Group,
        call: Call,
        decide: impl Fn(&mut GroupModel, StoreTime) -> Result<T>,
    ) -> Result<T> {
        loop {
            self.admit().await?;
            let cell = match self.groups.find(group) {
                Some(cell) => cell,
                None => self.make(group, call)?,
            };
            // A reply that waits is boxed, so that the future has no room for it.
            let waits = match ready(self.apply(&cell, call, |model, now| (decide(model, now), false))) {
                Ok(reply) => return reply?,
                Err(attempt) => Box::pin(wait(attempt)),
            };
            if let Some(reply) = waits.await? {
                return reply;
            }
        }
    }

    /// A late call does not even make a place for a group.
    fn make(&self, group: &Group, call: Call) -> Result<Arc<Cell>> {
        let now = self.clock.now();
        match is_late(call, now) {
            true => Err(Error::too_late()),
            false => Ok(self.groups.make(group, &self.options, now)),
        }
    }

    /// Removes a group, if nothing keeps it. Answers whether it is gone.
    pub(super) async fn forget(self: &Arc<Self>, group: &Group, call: Call) -> Result<bool> {
        loop {
            self.admit().await?;
            let Some(cell) = self.groups.find(group) else {
                return Ok(true);
            };
            let forget = |model: &mut GroupModel, now| {
                let reply = model.step(&ForgetGroup, call, now);
                let leaves = matches!(reply, Ok(true));
                (reply, leaves)
            };
            let attempt = self.apply(&cell, call, forget);
            if let Some(reply) = finish(attempt).await? {
                return reply;
            }
        }
    }

    /// Looks at a group, and changes nothing that is stored. `None` when the group does not exist.
    pub(super) async fn look<T>(
        &self,
        group: &Group,
        look: impl Fn(&mut GroupModel, StoreTime) -> T,
    ) -> Result<Option<T>> {
        loop {
            self.service.check()?;
            let Some(cell) = self.groups.find(group) else {
                return Ok(None);
            };
            let waits = match ready(self.glance(&cell, &look)) {
                Ok(reply) => return reply,
                Err(attempt) => Box::pin(wait(attempt)),
            };
            if let Some(reply) = waits.await? {
                return Ok(reply);
            }
        }
    }

    /// Lets a change through when writes are taken. When the last commit failed, one is tried first.
    async fn admit(&self) -> Result<()> {
        match self.service.takes_writes()? {
            true => Ok(()),
            false => Box::pin(self.try_commit()).await,
        }
    }

    /// Has the writer make a commit that contains nothing but what waits, and says how it went.
    pub(super) async fn try_commit(&self) -> Result<()> {
        self.service.check()?;
        let (opens, tried) = oneshot::channel();
        if !self.queue.add(|work| work.trials.push(opens)) {
            return Err(self.over());
        }
        let tried = tried.await.unwrap_or_else(|_| Err(self.lost_for_good()));
        tried.map_err(|lost| lost.to_error())
    }

    /// Keeps the index of due groups. Under the lock of the group, so that a later step is indexed later.
    pub(super) fn note_due(&self, group: &Group, state: &mut State, now: StoreTime) {
        let due = match state.is_unborn() {
            true => None,
            false => state.model.due(now),
        };
        if state.is_due_at != due {
            state.is_due_at = due;
            let mut index = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            index.set(group, due);
        }
    }

    /// Applies a step, and puts the group into the queue of the writer if it changed something. `decide` answers whether the
    /// group is removed by it as well.
    fn apply<T>(
        self: &Arc<Self>,
        cell: &Arc<Cell>,
        call: Call,
        decide: impl FnOnce(&mut GroupModel, StoreTime) -> (T, bool),
    ) -> Attempt<T> {
        let mut state = cell.lock();
        if let Some(detour) = state.detour() {
            return Attempt::Again(detour);
        }
        let (pulse, now) = self.pulse.read(|| self.clock.now());
        if is_late(call, now) {
            return Attempt::Refused(Error::too_late());
        }
        if let Err(full) = self.backlog.check() {
            return Attempt::Refused(full);
        }
        state.be_born(&self.options, now);
        let number = state.begin();
        let work = AssertUnwindSafe(|| {
            state.model.take_pulse(pulse);
            // A gap is noticed before a wait begins; the call finds both done.
            if let Some(wait) = self.doubts.wait(now)
                && state.model.open(now, call).is_ok()
            {
                state.model.wait(wait, now);
            }
            decide(&mut state.model, now)
        });
        let Ok((reply, leaves)) = catch_unwind(work) else {
            state.tear(now);
            self.queue.add(|work| work.torn.push(Arc::clone(cell)));
            let message = "a step of the store panicked and was undone; please report it";
            return Attempt::Refused(Error::new(ErrorKind::Internal, message));
        };
        if leaves {
            state.leave(number);
        }
        let changed = state.end(number) || leaves;
        #[cfg(test)]
        trace::note(Noted::Step { number, changed, now });
        if changed {
            state.recount(&self.backlog);
            if !state.is_queued && !self.queue.add(|work| work.dirty.push(Arc::clone(cell))) {
                return Attempt::Refused(self.over());
            }
            state.is_queued = true;
        }
        let (gate, has_turns) = (state.gate_of_all(), state.model.has_turns());
        self.note_due(&cell.group, &mut state, now);
        drop(state);
        if has_turns {
            self.groups.note_turns(&cell.group);
        }
        Attempt::Done { reply, changed, gate }
    }

    fn glance<T>(&self, cell: &Cell, look: impl FnOnce(&mut GroupModel, StoreTime) -> T) -> Attempt<Option<T>> {
        let mut state = cell.lock();
        if let Some(detour) = state.detour() {
            return Attempt::Again(detour);
        }
        let reply = match state.is_unborn() {
            true => None,
            false => {
                let (pulse, now) = self.pulse.read(|| self.clock.now());
                #[cfg(test)]
                trace::note(Noted::Look { now, pulse });
                state.model.take_pulse(pulse);
                state.model.begin_look();
                Some(look(&mut state.model, now))
            }
        };
        Attempt::Done {
            reply,
            changed: false,
            gate: state.gate_of_look(),
        }
    }

    /// The error for a call that comes after the end of the writer.
    pub(super) fn over(&self) -> Error {
        let refused = self.service.check().err();
        refused.unwrap_or_else(|| super::disk::copy(&stopped(), Outcome::Unchanged))
    }

    fn lost_for_good(&self) -> Lost {
        self.service.broken().unwrap_or_else(|| Lost::for_good(&stopped()))
    }
}

impl Cell {
    /// A look at everything that was applied up to now.
    pub(super) fn after_all(&self) -> Attempt<()> {
        let mut state = self.lock();
        match state.detour() {
            Some(detour) => Attempt::Again(detour),
            None => Attempt::Done {
                reply: (),
                changed: false,
                gate: state.gate_of_all(),
            },
        }
    }
}

/// The answer of an attempt that waits for nothing; else the attempt.
fn ready<T>(attempt: Attempt<T>) -> std::result::Result<Result<T>, Attempt<T>> {
    match attempt {
        Attempt::Refused(error) => Ok(Err(error)),
        Attempt::Done { reply, gate, .. } if gate.is_open() => Ok(Ok(reply)),
        waits => Err(waits),
    }
}

/// Waits until an attempt may be answered. `None` when the caller must retry: the group could not be used, or a look
/// depended on changes that were lost.
pub(super) async fn finish<T>(attempt: Attempt<T>) -> Result<Option<T>> {
    let waits = match ready(attempt) {
        Ok(reply) => return reply.map(Some),
        Err(attempt) => Box::pin(wait(attempt)),
    };
    waits.await
}

async fn wait<T>(attempt: Attempt<T>) -> Result<Option<T>> {
    let (reply, changed, gate) = match attempt {
        Attempt::Again(detour) => return detour.wait().await.map(|()| None),
        Attempt::Refused(error) => return Err(error),
        Attempt::Done { reply, changed, gate } => (reply, changed, gate),
    };
    match gate.wait().await {
        Ok(()) => Ok(Some(reply)),
        Err(lost) if changed || lost.for_good => Err(lost.to_error()),
        Err(_) => Ok(None),
    }
}

fn is_late(call: Call, now: StoreTime) -> bool {
    call.not_after.is_some_and(|limit| now > limit)
}
