//! A store that one process owns: the model decides in memory, and a disk keeps its rows.
//!
//! *Apply at once, answer when durable.* A step runs on the [model](crate::memory::GroupModel) of its group under the lock of
//! that group, and yields its reply and the rows that it changed. One thread commits rows, many steps at a time. A
//! reply, a refusal, a read or a wake-up leaves only when everything that it depends on is durable:
//!
//! * Steps are numbered for each group. A reply waits until the number of its step is durable.
//! * The model knows which of its rows are not durable, and by which step. A read that came across such a row waits for
//!   that step; a read that did not waits for nothing.
//! * A beat that only renews is answered from memory: after a restart every ttl starts again, so a deadline need not be
//!   durable. Its revision is the newest durable one. A beat of a tenure whose end is durable is answered from memory too.
//!
//! When a commit fails, exactly the rows that are not durable are read again, and the waiting calls fail: either
//! nothing happened, or that the outcome is unknown. From then on changes are refused before they are applied, until a
//! commit succeeds; beats and reads continue. After a fault that leaves the
//! disk unreliable nothing is served any more, for good: the engine is part of a host process, so it does not end that
//! process, but reports it ([`Engine::until_broken`]).
//!
//! | file | what it holds |
//! |---|---|
//! | `disk` | what an engine needs of the place where rows are kept |
//! | `step`, `beat`, `whole`, `cursor` | calls: on a group, beats, about the whole store, pages |
//! | `cell`, `groups` | a group, all groups |
//! | `queue`, `writer` | the thread that commits, and what follows from the outcome |
//! | `backlog`, `service`, `doubt` | how much may wait, what is served, whether the disk may have forgotten something |

mod backlog;
mod beat;
mod cell;
mod clock;
mod cursor;
mod disk;
mod doubt;
mod groups;
mod load;
mod pulse;
mod queue;
mod service;
#[cfg(test)]
mod sim;
mod step;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trace;
mod whole;
mod writer;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;

use self::backlog::Backlog;
pub use self::clock::StoreClock;
pub use self::disk::{Batch, Commit, Disk, EventPages, Fault, Loaded, Loader, StoredRows};
use self::doubt::Doubts;
use self::groups::Groups;
use self::load::Load;
use self::pulse::EnginePulse;
use self::queue::Queue;
use self::service::Service;
use self::writer::Writer;
use crate::call::{Op, Reply, Scope, StoreRequest};
use crate::error::{Error, Outcome, Result};
use crate::memory::{DueIndex, GroupModel};
use crate::pulse::VISITS_APART;
use crate::store::{Health, StoreOptions};
use crate::time::StoreTime;

/// How often store time is written down while nothing else is.
const KEEP_TIME_EVERY: Duration = Duration::from_secs(1);

/// A store over a disk that only this process uses. Dropping it commits what was applied, and releases the disk.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// What callers and the writer share.
pub(crate) struct Shared {
    options: StoreOptions,
    clock: Arc<StoreClock>,
    pages: Arc<dyn EventPages>,
    groups: Groups,
    queue: Queue,
    service: Service,
    backlog: Backlog,
    doubts: Doubts,
    pulse: EnginePulse,
    /// When something is due, by group.
    due: Mutex<DueIndex>,
    /// When to write store time down next, in µs.
    next_keep: AtomicU64,
}

impl Engine {
    /// Loads everything from the disk, and starts the writer. Every tenure that was alive gets one full ttl from the first
    /// step on. O(rows).
    ///
    /// # Errors
    /// That of the fault when the disk cannot be read; `Unavailable` when no thread can be started.
    pub fn start<D: Disk>(
        options: StoreOptions,
        clock: Arc<StoreClock>,
        disk: D,
        pages: Arc<dyn EventPages>,
    ) -> Result<Self> {
        let (engine, writer) = Self::assemble(options, clock, disk, pages)?;
        let thread = std::thread::Builder::new().name("tenure-writer".to_owned());
        thread.spawn(move || writer.run()).map_err(|error| {
            let message = "the writer of the store could not be started";
            Error::unavailable(message, Outcome::Unchanged).because(error)
        })?;
        Ok(engine)
    }

    /// The engine beside its writer, which does not run yet.
    fn assemble<D: Disk>(
        options: StoreOptions,
        clock: Arc<StoreClock>,
        mut disk: D,
        pages: Arc<dyn EventPages>,
    ) -> Result<(Self, Writer<D>)> {
        let now = clock.now();
        let mut load = Load::new(&options, now);
        let loaded = disk.load(&mut load).map_err(Fault::into_error)?;
        let cells = load.finish();
        let mut due = DueIndex::default();
        for (nth, (group, cell)) in (0..).zip(&cells) {
            let mut state = cell.lock();
            // An empty group is only to be forgotten.
            state.is_due_at = match state.model.is_idle(now) {
                true => Some(now + VISITS_APART * nth),
                false => Some(state.model.due(now).unwrap_or(now)),
            };
            due.set(group, state.is_due_at);
        }
        let shared = Arc::new(Shared {
            doubts: Doubts::new(options.max_ttl, loaded.recall, loaded.longest, now),
            options,
            clock,
            pages,
            groups: Groups::new(cells),
            queue: Queue::default(),
            service: Service::default(),
            backlog: Backlog::default(),
            pulse: EnginePulse::default(),
            due: Mutex::new(due),
            next_keep: AtomicU64::new(0),
        });
        let writer = Writer::new(disk, Arc::clone(&shared));
        Ok((Self { shared }, writer))
    }

    /// Answers a call that is within its limits. Beats, heartbeats and looks at providers may have any number of items.
    ///
    /// # Errors
    /// Those of the call; `Unsupported` for a pass of a sweep.
    pub fn call(&self, mut ask: StoreRequest) -> impl Future<Output = Result<Reply>> + Send {
        let shared = &self.shared;
        // The request stays where it is, so that the future has it once.
        async move {
            let StoreRequest { group, op, call } = &mut ask;
            match op {
                Op::Now(_)
                | Op::Probe(_)
                | Op::Groups(_)
                | Op::BeatPulse(_)
                | Op::Due(_)
                | Op::WaitForGrants(_)
                | Op::FindGroups(_) => Box::pin(shared.about_whole(op)).await,
                Op::Settle(ask) => {
                    let settled = Box::pin(shared.settle(group.take(), ask.cause, *call)).await;
                    settled.map(Reply::Settle)
                }
                op => shared.about(Scope::of(group)?, op, *call).await,
            }
        }
    }

    /// Whether commits succeed. No I/O.
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.service.health()
    }

    /// Waits until nothing is served any more, after a fault that left the disk unreliable, and says why. A process that exists
    /// for this store alone should end then, so that the next one reads the disk again.
    pub async fn until_broken(&self) -> Error {
        self.shared.service.until_broken().await
    }

    /// Commits what was applied and closes the disk. Later calls fail with `Unavailable`.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        self.shared.service.close();
        let close = |work: &mut queue::Work| {
            work.is_closing = true;
            work.closing.push(done);
        };
        // When the writer has gone already, there is nothing left to wait for.
        if self.shared.queue.add(close) {
            let _ = closed.await;
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.service.close();
        self.shared.queue.add(|work| work.is_closing = true);
    }
}

impl Shared {
    /// Has store time written down, at most once in a while. Never waits.
    fn keep_time(&self, now: StoreTime) {
        let due = self.next_keep.load(Ordering::Relaxed);
        let next = (now + KEEP_TIME_EVERY).micros();
        let is_due = now.micros() >= due
            && self
                .next_keep
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_due {
            self.queue.add(|work| work.keep_time = true);
        }
    }

    /// A group that is not there, as reads see it.
    fn absent(&self) -> GroupModel {
        GroupModel::absent(self.options.clone(), self.clock.now())
    }

    /// The writer has gone: no caller waits any more, and none begins to.
    fn end(&self) {
        self.service.close();
        let reason = self.service.broken();
        let lost = reason.unwrap_or_else(|| disk::Lost::never(&Arc::new(service::closed())));
        drop(self.queue.end());
        for cell in self.groups.all() {
            cell.lock().abandon(0, &lost, &lost);
            cell.lock().wake();
        }
        self.groups.wake();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}
