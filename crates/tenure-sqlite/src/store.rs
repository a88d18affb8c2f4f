//! The store itself: opening, the doors to the writer and the readers, closing.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;
use tenure_core::error::Outcome;
use tenure_core::event::EventId;
use tenure_core::settling;
use tenure_core::store::{Call, Finding, Health, Store, StoreOptions};
use tenure_core::sweep::GroupStatus;
use tenure_core::{Clock, Error, ErrorKind, Group, Result, StoreTime};
use tokio::sync::{mpsc, oneshot, watch};

use crate::books::{Books, Context};
use crate::clock::StoreClock;
use crate::error::{Cause, closed};
use crate::file::{check_path, open_writer, unreadable};
use crate::live::Live;
use crate::lock::{LockFile, Owner, Refused, lock_path, resolved};
use crate::reader::Readers;
use crate::sql::{read_instant, statements};
use crate::step::{Answer, Step};
use crate::writer::{Message, QUEUE, Request, Writer};

statements! { "group.sql":
    HIGH_WATER = "high_water",
}

/// How often the clock's high-water mark is written while the store is used.
const KEEP_EVERY: Duration = Duration::from_secs(1);

/// The live table of each group.
pub(crate) type Groups = HashMap<Group, Arc<Live>>;

/// What the store, its writer and its readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) path: PathBuf,
    pub(crate) options: StoreOptions,
    pub(crate) clock: StoreClock,
    groups: RwLock<Groups>,
    /// Changes when a group is made, and when the store is closed.
    births: watch::Sender<()>,
    /// What went wrong last, until something goes right.
    trouble: Mutex<Option<String>>,
    closed: AtomicBool,
    /// When to write the high-water mark next, in µs of store time.
    next_keep: AtomicU64,
    lock: Mutex<Option<LockFile>>,
}

/// Everything in one SQLite file, owned by this process. `sqlite:PATH`.
#[derive(Debug)]
pub struct SqliteStore {
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Message>,
    readers: Readers,
}

impl SqliteStore {
    /// Opens the file at `path`, makes it if it is missing, and owns it until [`close`](Store::close) or the end of the
    /// process. Everything that was acknowledged is there again; every tenure that was alive gets one full ttl from the
    /// first step on. O(members); blocks meanwhile, so call it at start-up or on a thread that may block.
    ///
    /// # Errors
    /// `Misconfigured`, with nothing changed in the file: another process owns it (named with its address), the path is
    /// a directory or cannot be written, the file is damaged, another program's, or a newer Tenure's. `Unavailable` when
    /// another program holds SQLite's write lock for more than 10 s.
    pub fn open(path: impl AsRef<Path>, options: StoreOptions, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        let path = resolved(path.as_ref());
        check_path(&path)?;
        let lock = LockFile::take(&path).map_err(|refused| not_ours(&path, refused))?;
        let sql = open_writer(&path)?;
        let load = || -> Result<_, Cause> {
            let high_water = sql.query_row(HIGH_WATER, [], |row| read_instant(row, 0))?;
            let clock = StoreClock::new(clock, high_water);
            let context = Context {
                sql: &sql,
                clock: &clock,
                options: &options,
            };
            let books = Books::load(&context, high_water, None)?;
            Ok((clock, books, Readers::open(&path)?))
        };
        let (clock, books, readers) = load().map_err(|cause| unreadable(&path, &cause))?;
        let shared = Arc::new(Shared {
            path,
            options,
            clock,
            groups: RwLock::new(books.groups()),
            births: watch::Sender::new(()),
            trouble: Mutex::new(None),
            closed: AtomicBool::new(false),
            next_keep: AtomicU64::new(0),
            lock: Mutex::new(Some(lock)),
        });
        let (jobs, messages) = mpsc::channel(QUEUE);
        let writer = Writer::new(sql, books, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("tenure-writer".to_owned());
        thread.spawn(move || writer.run(messages)).map_err(|error| {
            Error::unavailable("the writer's thread could not be started", Outcome::Unchanged).because(error)
        })?;
        Ok(Arc::new(Self { shared, jobs, readers }))
    }

    /// Writes down where this process serves the store, so that others find it in the lock file ([`crate::owner`]) and
    /// talk to it instead of opening the file.
    ///
    /// # Errors
    /// `Unavailable` when the lock file cannot be written or the store is closed.
    pub fn set_address(&self, listen: &str) -> Result<()> {
        match &mut *guard(&self.shared.lock) {
            Some(lock) => lock.tell(Some(listen)).map_err(|error| {
                Error::unavailable(
                    "the lock file beside the SQLite file cannot be written",
                    Outcome::Unchanged,
                )
                .because(error)
            }),
            None => Err(closed()),
        }
    }

    /// The file, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// What the store was opened with.
    #[must_use]
    pub fn options(&self) -> &StoreOptions {
        &self.shared.options
    }

    pub(crate) fn clock(&self) -> &StoreClock {
        &self.shared.clock
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn births(&self) -> watch::Receiver<()> {
        self.shared.births.subscribe()
    }

    /// The live table of a group that exists.
    pub(crate) fn live(&self, group: &Group) -> Result<Option<Arc<Live>>> {
        self.check_open()?;
        let groups = self.shared.groups.read().unwrap_or_else(PoisonError::into_inner);
        Ok(groups.get(group).cloned())
    }

    /// The status of a group that does not exist.
    pub(crate) fn status_of_none(&self) -> GroupStatus {
        let now = self.clock().now();
        GroupStatus {
            as_of: now,
            members: 0,
            gap: settling::gap(None),
            resumed_at: now,
            unsettled: None,
            brake: None,
            next_due: None,
            next_release: None,
            releasing: 0,
            leases: 0,
            sessions: 0,
            disconnected: 0,
            next_reap: None,
            pending_offline: 0,
            next_offline: None,
            last_event: EventId(0),
        }
    }

    /// Has the writer run a step on a group, and waits until it is durable.
    pub(crate) async fn step<T: Send + 'static>(
        &self,
        group: &Group,
        call: Call,
        work: impl FnOnce(&mut Step<'_>) -> Answer<T> + Send + 'static,
    ) -> Result<T> {
        self.check_open()?;
        let (reply, answer) = oneshot::channel();
        let request = Request {
            group: group.clone(),
            not_after: call.not_after,
            work: Some(work),
            done: None,
            reply,
        };
        let sent = self.jobs.send(Message::Work(Box::new(request))).await;
        sent.map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| {
            Err(Error::unavailable(
                "the writer stopped before it answered",
                Outcome::Unknown,
            ))
        })
    }

    /// Reads on a connection of its own.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Cause> + Send + 'static,
    ) -> Result<T> {
        self.check_open()?;
        self.readers.read(read).await
    }

    /// Asks the writer to write the high-water mark down, at most once in a while. Never waits.
    pub(crate) fn keep_high_water(&self) {
        if self.shared.is_time_to_keep() {
            // A full queue means commits, and those write it too.
            let _ = self.jobs.try_send(Message::Keep);
        }
    }

    fn check_open(&self) -> Result<()> {
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        Ok(())
    }
}

impl Shared {
    /// Whether the high-water mark is due; if so, the caller writes it.
    pub(crate) fn is_time_to_keep(&self) -> bool {
        let now = self.clock.now();
        let due = self.next_keep.load(Ordering::Relaxed);
        let next = (now + KEEP_EVERY).micros();
        now.micros() >= due
            && self
                .next_keep
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    pub(crate) fn add_groups(&self, born: Vec<(Group, Arc<Live>)>) {
        if !born.is_empty() {
            self.groups.write().unwrap_or_else(PoisonError::into_inner).extend(born);
            self.births.send_replace(());
        }
    }

    pub(crate) fn set_groups(&self, groups: Groups) {
        *self.groups.write().unwrap_or_else(PoisonError::into_inner) = groups;
    }

    pub(crate) fn note_health(&self, failed: Option<&Cause>) {
        *guard(&self.trouble) = failed.map(|cause| cause.to_error().chain());
    }

    /// Lets the lock go. The connections are closed by now.
    pub(crate) fn release(&self) {
        self.closed.store(true, Ordering::Release);
        guard(&self.lock).take();
        self.births.send_replace(());
    }

    /// The owner as the lock file names it: this process.
    pub(crate) fn owner(&self) -> Option<Owner> {
        guard(&self.lock).as_ref().map(|lock| lock.owner().clone())
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_ours(path: &Path, refused: Refused) -> Error {
    let shown = path.display();
    match refused {
        Refused::Owned(owner) => {
            let program = owner.command.as_deref();
            let program = program.map_or_else(String::new, |command| format!(" ({command})"));
            let who = match owner.pid {
                0 => "another process".to_owned(),
                pid => format!("process {pid}{program}"),
            };
            let advice = match &owner.listen {
                Some(listen) => format!("it serves the store at {listen}; use that address instead of the file"),
                None => "it does not serve it to others; stop it first, or run `tenure serve` on the file".to_owned(),
            };
            let message = format!("{shown} is in use by {who}: {advice}");
            Error::new(ErrorKind::Misconfigured, message)
        }
        Refused::Failed(error) => {
            let message = format!(
                "{} cannot be made or locked ({error}); look at the directory",
                lock_path(path).display()
            );
            Error::new(ErrorKind::Misconfigured, message).because(error)
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn place(&self) -> String {
        format!("sqlite:{}", self.shared.path.display())
    }

    fn health(&self) -> Health {
        if self.check_open().is_err() {
            return Health::Down {
                reason: "the store is closed".to_owned(),
            };
        }
        match &*guard(&self.shared.trouble) {
            Some(reason) => Health::Down { reason: reason.clone() },
            None => Health::Up,
        }
    }

    async fn now(&self) -> Result<StoreTime> {
        self.check_open()?;
        Ok(self.clock().now())
    }

    async fn groups(&self) -> Result<Vec<Group>> {
        self.check_open()?;
        let groups = self.shared.groups.read().unwrap_or_else(PoisonError::into_inner);
        let sorted: BTreeSet<&Group> = groups.keys().collect();
        Ok(sorted.into_iter().cloned().collect())
    }

    async fn examine(&self) -> Vec<Finding> {
        crate::examine::examine(self).await
    }

    async fn close(&self) {
        let first = !self.shared.closed.swap(true, Ordering::AcqRel);
        if first {
            self.readers.close().await;
        }
        let (done, answer) = oneshot::channel();
        // When the writer has gone already, there is nothing left to wait for.
        if self.jobs.send(Message::Close(done)).await.is_ok() {
            let _ = answer.await;
        }
        let groups = self.shared.groups.read().unwrap_or_else(PoisonError::into_inner);
        groups.values().for_each(|live| live.news.send_modify(|_| {}));
        self.shared.births.send_replace(());
    }
}

#[cfg(test)]
mod tests;
