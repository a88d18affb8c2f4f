//! The store itself: opening, its steps and reads, closing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;
use tenure_core::call::{Ask, Op, Reply, Serve, serve_all};
use tenure_core::event::EventId;
use tenure_core::settling::{self, GapCause};
use tenure_core::store::{
    Backend, Call, FindGroups, Finding, Health, ListGroups, NewestEvents, Now, Probe, Probed, StoreOptions,
};
use tenure_core::sweep::{BATCH, GroupStatus};
use tenure_core::{Clock, Error, Group, Result, StoreTime};
use tokio::sync::watch;

use crate::books::{Books, Context};
use crate::clock::StoreClock;
use crate::desk::{Desk, OpenFile};
use crate::error::Cause;
use crate::file::{self, unreadable};
use crate::found::Found;
use crate::live::Live;
use crate::mark::mark_path;
use crate::reader::Readers;
use crate::recall::Life;
use crate::sql::{read_instant, statements};
use crate::step::{Answer, Step};
use crate::writer::{Bookkeeping, raise_high_water};

statements! { "group.sql":
    HIGH_WATER = "high_water",
}

/// The live table of each group.
pub(crate) type Groups = HashMap<Group, Arc<Live>>;

/// What the store and its writer share, besides the file.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: StoreOptions,
    groups: RwLock<Groups>,
    /// Groups that were forgotten since the file was opened: a tick does not bring them back.
    forgotten: Mutex<HashSet<Group>>,
    /// Changes when a group is made, and when the store is closed.
    births: watch::Sender<()>,
    pub(crate) life: Life,
}

/// The books of the groups, as the writer has them.
#[derive(Debug)]
pub(crate) struct StoreBooks {
    books: Books,
    shared: Arc<Shared>,
    file: Arc<OpenFile>,
}

impl Bookkeeping for StoreBooks {
    fn keep(&mut self) {
        self.books.keep();
    }

    fn undo(&mut self) {
        self.books.undo();
    }

    fn flush(&mut self, sql: &Connection, before: u64) -> Result<(), Cause> {
        let longest = self.books.flush(sql)?;
        if sql.total_changes() > before {
            self.shared.life.count(sql, self.file.clock.now(), longest)?;
        }
        Ok(())
    }

    fn publish(&mut self) {
        self.shared.life.committed();
        let (born, gone) = self.books.publish();
        if born.is_empty() && gone.is_empty() {
            return;
        }
        let mut groups = self.shared.groups.write().unwrap_or_else(PoisonError::into_inner);
        let mut forgotten = self.shared.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|group, _| !gone.contains(group));
        forgotten.retain(|group| born.iter().all(|(new, _)| new != group));
        forgotten.extend(gone);
        groups.extend(born);
        drop((groups, forgotten));
        self.shared.births.send_replace(());
    }

    fn logged(&mut self) {
        self.shared.life.logged();
    }

    fn completed(&mut self) {
        self.shared.life.close();
    }

    fn roll_back(&mut self) {
        self.shared.life.rolled_back();
        self.books.roll_back();
    }

    fn reload(&mut self, sql: &Connection) -> Result<(), Cause> {
        let clock = &self.file.clock;
        let fell_back = self.shared.life.compare(sql, clock.now())?;
        let mut books = Books::load(sql, clock, Some(&self.books))?;
        if fell_back {
            books.restart();
        }
        *self.shared.groups.write().unwrap_or_else(PoisonError::into_inner) = books.groups();
        self.books = books;
        Ok(())
    }

    fn released(&mut self) {
        self.shared.births.send_replace(());
    }
}

/// Everything in one SQLite file, owned by this process. `sqlite:PATH`.
#[derive(Debug)]
pub struct SqliteStore {
    shared: Arc<Shared>,
    desk: Desk<StoreBooks>,
}

impl SqliteStore {
    /// Opens the file at `path`, makes it if it is missing, and owns it until [`close`](Backend::close) or the end of the
    /// process. Everything that was acknowledged is there again; every tenure that was alive gets one full ttl from the
    /// first step on. O(members); blocks meanwhile, so call it at start-up or on a thread that may block.
    ///
    /// # Errors
    /// `Misconfigured`, with nothing changed in the file: another process owns it (named with its address), the path is
    /// a directory or cannot be written, the file is damaged, another program's, or a newer Tenure's. `Unavailable` when
    /// another program holds SQLite's write lock for more than 10 s.
    pub fn open(path: impl AsRef<Path>, options: StoreOptions, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        let (path, lock) = file::lock(path.as_ref(), &file::STORE)?;
        let found = Found::look(&path, lock.pin())?;
        let sql = file::open_writer(&path, &file::STORE)?;
        let damaged = |cause: Cause| unreadable(&path, &file::STORE, &cause);
        let high_water = sql.query_row(HIGH_WATER, [], |row| read_instant(row, 0));
        let clock = StoreClock::new(clock, high_water.map_err(|error| damaged(error.into()))?);
        let books = Books::load(&sql, &clock, None).map_err(damaged)?;
        let readers = Readers::open(&path, lock.pin()).map_err(damaged)?;
        // A file that cannot be loaded is left as it is.
        let life = Life::begin(&path, &found, &sql, &clock, options.max_ttl)?;
        let mark = mark_path(&path);
        let file = Arc::new(OpenFile::new(&file::STORE, path, clock, lock, vec![mark]));
        let shared = Arc::new(Shared {
            options,
            life,
            groups: RwLock::new(books.groups()),
            forgotten: Mutex::default(),
            births: watch::Sender::new(()),
        });
        let books = StoreBooks {
            books,
            shared: Arc::clone(&shared),
            file: Arc::clone(&file),
        };
        let desk = Desk::start(file, sql, readers, books)?;
        Ok(Arc::new(Self { shared, desk }))
    }

    /// Writes down where this process serves the store, so that others find it in the lock file ([`crate::owner`]) and
    /// talk to it instead of opening the file.
    ///
    /// # Errors
    /// `Unavailable` when the lock file cannot be written or the store is closed.
    pub fn set_address(&self, listen: &str) -> Result<()> {
        self.file().set_address(listen)
    }

    /// The file, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file().path
    }

    /// What the store was opened with.
    #[must_use]
    pub fn options(&self) -> &StoreOptions {
        &self.shared.options
    }

    pub(crate) fn clock(&self) -> &StoreClock {
        &self.file().clock
    }

    pub(crate) fn file(&self) -> &OpenFile {
        self.desk.file()
    }

    pub(crate) fn life(&self) -> &Life {
        &self.shared.life
    }

    pub(crate) fn births(&self) -> watch::Receiver<()> {
        self.shared.births.subscribe()
    }

    /// The live table of a group that exists.
    pub(crate) fn live(&self, group: &Group) -> Result<Option<Arc<Live>>> {
        self.file().check_open()?;
        let groups = self.shared.groups.read().unwrap_or_else(PoisonError::into_inner);
        Ok(groups.get(group).cloned())
    }

    /// The groups, by name.
    pub(crate) fn group_names(&self) -> Result<Vec<Group>> {
        self.file().check_open()?;
        let groups = self.shared.groups.read().unwrap_or_else(PoisonError::into_inner);
        let sorted: BTreeSet<&Group> = groups.keys().collect();
        Ok(sorted.into_iter().cloned().collect())
    }

    pub(crate) fn is_forgotten(&self, group: &Group) -> bool {
        let forgotten = self.shared.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        forgotten.contains(group)
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
            empty_since: None,
        }
    }

    /// Has the writer run a step on a group, and waits until it is durable.
    pub(crate) async fn step<T: Send + 'static>(
        &self,
        group: &Group,
        call: Call,
        work: impl FnOnce(&mut Step<'_>) -> Answer<T> + Send + 'static,
    ) -> Result<T> {
        let (group, shared, file) = (group.clone(), Arc::clone(&self.shared), Arc::clone(self.desk.file()));
        let work = move |books: &mut StoreBooks, sql: &Connection| {
            let context = Context {
                sql,
                clock: &file.clock,
                options: &shared.options,
                life: &shared.life,
            };
            books.books.run(&context, &group, call.not_after, work)
        };
        self.desk.step(work).await
    }

    /// An operator's word that nothing was held, for groups to come; durable when this returns.
    pub(crate) async fn settle_new(&self, named: Option<GapCause>, call: Call) -> Result<()> {
        let (shared, file) = (Arc::clone(&self.shared), Arc::clone(self.desk.file()));
        let settle = move |_: &mut StoreBooks, sql: &Connection| {
            let now = file.clock.now();
            if call.not_after.is_some_and(|limit| now > limit) {
                return Ok(Err(Error::too_late()));
            }
            // A row that changes, so that the commit writes the wait down.
            raise_high_water(sql, now)?;
            shared.life.settle(named);
            Ok(Ok(()))
        };
        self.desk.step(settle).await
    }

    /// Reads on a connection of its own.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Cause> + Send + 'static,
    ) -> Result<T> {
        self.desk.read(read).await
    }

    /// Asks the writer to write the high-water mark down, at most once in a while. Never waits.
    pub(crate) fn keep_high_water(&self) {
        self.desk.keep_high_water();
    }
}

#[async_trait]
impl Backend for SqliteStore {
    async fn call(&self, ask: Ask) -> Result<Reply> {
        serve_all(self, ask).await
    }

    fn max_ttl(&self) -> Duration {
        self.options().max_ttl
    }

    /// Beats are not cut: memory answers most of them at once. Nor is what one snapshot answers.
    fn part(&self, op: &Op) -> usize {
        match op {
            Op::Beat(_) | Op::Heartbeat(_) | Op::Look(_) => usize::MAX,
            _ => BATCH as usize,
        }
    }

    fn place(&self) -> String {
        format!("sqlite:{}", self.file().path.display())
    }

    fn health(&self) -> Health {
        self.file().health()
    }

    async fn examine(&self) -> Vec<Finding> {
        crate::examine::examine(self.file()).await
    }

    async fn close(&self) {
        self.desk.close().await;
        let groups = self.shared.groups.read().unwrap_or_else(PoisonError::into_inner);
        groups.values().for_each(|live| live.news.send_modify(|_| {}));
        self.shared.births.send_replace(());
    }
}

#[async_trait]
impl Serve<Now> for SqliteStore {
    async fn serve(&self, _: &Option<Group>, _: Now, _: Call) -> Result<StoreTime> {
        self.file().check_open()?;
        Ok(self.clock().now())
    }
}

#[async_trait]
impl Serve<Probe> for SqliteStore {
    /// Commits the clock's high-water mark: a tick of a quiet group writes nothing, and would not see a full disk.
    async fn serve(&self, _: &Option<Group>, _: Probe, _: Call) -> Result<Probed> {
        let file = Arc::clone(self.desk.file());
        let write = move |_: &mut StoreBooks, sql: &Connection| {
            let as_of = file.clock.now();
            raise_high_water(sql, as_of)?;
            Ok(Ok(Probed {
                as_of,
                away: Vec::new(),
            }))
        };
        self.desk.step(write).await
    }
}

#[async_trait]
impl Serve<ListGroups> for SqliteStore {
    async fn serve(&self, _: &Option<Group>, _: ListGroups, _: Call) -> Result<Vec<Group>> {
        self.group_names()
    }
}

#[async_trait]
impl Serve<NewestEvents> for SqliteStore {
    /// No other process writes to this store.
    async fn serve(&self, _: &Option<Group>, _: NewestEvents, _: Call) -> Result<Vec<(Group, EventId)>> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Serve<FindGroups> for SqliteStore {
    /// A group is a row, and cannot be lost from the list.
    async fn serve(&self, _: &Option<Group>, _: FindGroups, _: Call) -> Result<bool> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
