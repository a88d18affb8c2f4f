//! The file as the disk of the engine: rows in, rows out, one transaction for each commit.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use rusqlite::Connection;
use tenure_core::engine::{Batch, Commit, Disk, EventPages, Fault, Loaded, Loader, StoredRows};
use tenure_core::error::Outcome;
use tenure_core::event::{EventPage, EventQuery};
use tenure_core::memory::rows::RowKey;
use tenure_core::recall::Recall;
use tenure_core::store::StoreOptions;
use tenure_core::time::show_duration;
use tenure_core::{Error, Group, Result, StoreTime};

use crate::alarm::Alarm;
use crate::error::{Cause, closed};
use crate::event::{self, LogSize};
use crate::file::{close_as_it_is, unreadable};
use crate::found::Found;
use crate::open_file::OpenFile;
use crate::reader::Readers;
use crate::recall::Life;
use crate::repair::repair;
use crate::rows;
use crate::writer::raise_high_water;

/// After so many changed rows the log is copied into the file as soon as no commit waits.
const CHECKPOINT_IDLE: u64 = 2_000;
/// After so many it is done although commits wait, so that the log stays small.
const CHECKPOINT_BUSY: u64 = 50_000;

/// The connection that writes, and what it knows of the file.
pub(crate) struct FileDisk {
    sql: Option<Connection>,
    file: Arc<OpenFile>,
    options: StoreOptions,
    found: Found,
    /// What the file remembers of itself, and whether it may have forgotten something; known once it was loaded.
    life: Option<(Life, Recall)>,
    groups: HashMap<Group, Stored>,
    /// The changes that the connection had made at the last checkpoint.
    checkpointed: u64,
    alarm: Alarm,
    /// What a test does on the connection before each commit.
    #[cfg(test)]
    pub(crate) before: Option<Before>,
}

/// What a test does on the connection that writes, each before the next commit. An error is that of the commit.
#[cfg(test)]
pub(crate) type Before = std::sync::mpsc::Receiver<Box<dyn FnOnce(&Connection) -> rusqlite::Result<()> + Send>>;

/// A group in the file.
#[derive(Debug, Clone, Copy)]
struct Stored {
    /// The id of its rows.
    id: i64,
    log: LogSize,
}

impl FileDisk {
    pub(crate) fn new(sql: Connection, file: Arc<OpenFile>, options: StoreOptions, found: Found) -> Self {
        Self {
            checkpointed: sql.total_changes(),
            sql: Some(sql),
            file,
            options,
            found,
            life: None,
            groups: HashMap::new(),
            alarm: Alarm::default(),
            #[cfg(test)]
            before: None,
        }
    }

    fn sql(&self) -> Result<&Connection, Cause> {
        self.sql.as_ref().ok_or(Cause::Closed)
    }

    /// The connection, while the log is whole.
    fn sound(&self) -> Option<&Connection> {
        self.sql.as_ref().filter(|_| self.file.watch.damaged_log().is_none())
    }

    fn give_up_a_damaged_log(&mut self) {
        if self.sound().is_none()
            && let Some(sql) = self.sql.take()
        {
            close_as_it_is(sql);
        }
    }

    fn read_all(&mut self, into: &mut dyn Loader) -> Result<(), Cause> {
        let sql = self.sql()?;
        sql.execute_batch("BEGIN IMMEDIATE")?;
        let found = rows::all_groups(sql)?;
        for stored in &found {
            rows::delete_unreadable(sql, stored.id)?;
        }
        repair(sql, self.options.sessions.grace)?;
        let mut groups = HashMap::new();
        for stored in found {
            let log = LogSize::count(sql, stored.id, stored.oldest_event)?;
            groups.insert(stored.group.clone(), Stored { id: stored.id, log });
            into.group(stored.group, stored.row);
            rows::read_all(sql, stored.id, |key, row| into.row(key, row))?;
        }
        sql.execute_batch("COMMIT")?;
        self.groups = groups;
        Ok(())
    }

    fn begin(&self) -> Result<(Life, Recall)> {
        let sql = self.sql().map_err(|cause| cause.to_error())?;
        Life::begin(
            &self.file.path,
            &self.found,
            sql,
            &self.file.clock,
            self.options.max_ttl,
        )
    }

    /// Writes a commit up to the last statement before it is durable. Answers the groups as they are then; `None` for one that
    /// is removed.
    fn write(&self, commit: &Commit) -> Result<Vec<(Group, Option<Stored>)>, Cause> {
        self.file.look(Outcome::Unchanged)?;
        let sql = self.sql()?;
        roll_back(sql);
        #[cfg(test)]
        for before in self.before.iter().flat_map(std::sync::mpsc::Receiver::try_iter) {
            before(sql)?;
        }
        sql.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let mut groups = Vec::with_capacity(commit.batches.len());
        for batch in &commit.batches {
            groups.push((batch.group.clone(), self.write_batch(sql, batch)?));
        }
        if let Some((life, _)) = &self.life {
            life.count(sql, commit)?;
        }
        Ok(groups)
    }

    fn write_batch(&self, sql: &Connection, batch: &Batch) -> Result<Option<Stored>, Cause> {
        let (known, taken) = (self.groups.get(&batch.group).copied(), &batch.taken);
        if batch.forgotten {
            if let Some(known) = known {
                rows::remove_group(sql, known.id)?;
            }
            return Ok(None);
        }
        let mut stored = match known {
            Some(known) => known,
            None => {
                let born_at = taken.group.born_at;
                let id = rows::insert_group(sql, &batch.group, born_at)?;
                let log = LogSize::empty(born_at.micros() + 1);
                Stored { id, log }
            }
        };
        rows::free_aliases(sql, stored.id, &taken.rows)?;
        if tenure_core::planted::planted("not-on-disk") {
            let is_kept = |row: &&(RowKey, Option<_>)| !matches!(row.0, RowKey::Claim(..));
            let kept: Vec<_> = taken.rows.iter().filter(is_kept).cloned().collect();
            rows::write(sql, stored.id, &kept)?;
        } else {
            rows::write(sql, stored.id, &taken.rows)?;
        }
        stored.log.append(sql, stored.id, &taken.events, &self.options)?;
        rows::update_group(sql, stored.id, &taken.group, stored.log.oldest)?;
        Ok(Some(stored))
    }

    /// Notes a commit that is durable.
    fn committed(&mut self, commit: &Commit, groups: Vec<(Group, Option<Stored>)>) {
        if self.alarm.calm(commit.at) {
            tracing::info!("the SQLite file takes writes again");
        }
        for (group, stored) in groups {
            match stored {
                Some(stored) => drop(self.groups.insert(group, stored)),
                None => drop(self.groups.remove(&group)),
            }
        }
        let Some((life, recall)) = &mut self.life else { return };
        life.committed(commit.longest);
        if let Some((doubt, until)) = commit.recall.kept().filter(|_| commit.recall != *recall) {
            let wait = show_duration(until.since(commit.at));
            tracing::error!(why = doubt.as_str(), "{doubt}; no lease is granted for {wait}");
        }
        *recall = commit.recall;
    }

    fn read_rows(&self, group: &Group, keys: &[RowKey]) -> Result<StoredRows, Cause> {
        let sql = self.sql()?;
        let Some(stored) = rows::one_group(sql, group)? else {
            return Ok((None, Vec::new()));
        };
        let rows: Result<_, Cause> = keys.iter().map(|key| rows::read(sql, stored.id, key)).collect();
        Ok((Some(stored.row), rows?))
    }
}

/// Ends a transaction that a fault has left open.
fn roll_back(sql: &Connection) {
    if !sql.is_autocommit()
        && let Err(error) = sql.execute_batch("ROLLBACK")
    {
        tracing::warn!(%error, "a transaction could not be rolled back");
    }
}

/// Logs a failure of what may fail, unless the disk cannot be trusted after it.
fn unless_broken(cause: &Cause, what: &str) -> Result<()> {
    if let Fault::Broken(error) = cause.to_fault() {
        return Err(error);
    }
    tracing::warn!(error = %cause, "{what}");
    Ok(())
}

impl Disk for FileDisk {
    fn load(&mut self, into: &mut dyn Loader) -> Result<Loaded, Fault> {
        let read = self.read_all(into);
        read.map_err(|cause| Fault::RolledBack(unreadable(&self.file.path, self.file.kind, &cause)))?;
        // A file that cannot be loaded is left as it is.
        let begun = self.begin().map_err(Fault::RolledBack)?;
        let loaded = Loaded {
            recall: begun.1,
            longest: begun.0.longest(),
        };
        self.life = Some(begun);
        Ok(loaded)
    }

    fn commit(&mut self, commit: &Commit) -> Result<(), Fault> {
        let done = self.write(commit).and_then(|groups| {
            self.sql()?.prepare_cached("COMMIT")?.execute([])?;
            Ok(groups)
        });
        match done {
            Ok(groups) => self.committed(commit, groups),
            Err(cause) => {
                if let Some(sql) = &self.sql {
                    roll_back(sql);
                }
                return Err(cause.to_fault());
            }
        }
        // The file may have been replaced during the transaction; then it is not known which one is kept.
        self.file.look(Outcome::Unknown).map_err(|cause| cause.to_fault())
    }

    fn read(&mut self, group: &Group, keys: &[RowKey]) -> Result<StoredRows, Fault> {
        if let Some(wrong) = self.file.watch.damaged_log() {
            return Err(Fault::Broken(Error::unavailable(wrong, Outcome::Unknown)));
        }
        self.read_rows(group, keys)
            .map_err(|cause| Fault::Broken(cause.to_error()))
    }

    /// In a commit that does not wait for the disk: losing it costs little.
    fn keep_time(&mut self, now: StoreTime) -> Result<()> {
        let Some(sql) = self.sound() else { return Ok(()) };
        let relaxed = sql.pragma_update(None, "synchronous", "normal").map_err(Cause::from);
        let kept = relaxed.and_then(|()| raise_high_water(sql, now));
        // Without this, commits on the connection might not be durable.
        let strict = sql.pragma_update(None, "synchronous", "full").map_err(Cause::from);
        strict.map_err(|cause| cause.to_error())?;
        match kept {
            Ok(()) => self.life.iter_mut().for_each(|(life, _)| life.note()),
            Err(cause) => unless_broken(&cause, "the clock's high-water mark was not written")?,
        }
        Ok(())
    }

    /// Copies the log into the file when no commit waits, or when it has grown long.
    fn tidy(&mut self, idle: bool) -> Result<()> {
        let Some(sql) = &self.sql else { return Ok(()) };
        let changed = sql.total_changes() - self.checkpointed;
        if changed < if idle { CHECKPOINT_IDLE } else { CHECKPOINT_BUSY } {
            return Ok(());
        }
        self.checkpointed = sql.total_changes();
        let Some(sql) = self.sound() else { return Ok(()) };
        match sql.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
            Ok(()) => Ok(()),
            Err(error) => unless_broken(
                &error.into(),
                "the log was not copied into the SQLite file; it is tried again",
            ),
        }
    }

    fn note_health(&mut self, trouble: Option<&Error>) {
        let reason = trouble.map(Error::chain);
        if let Some(error) = reason.filter(|error| self.alarm.raise(self.file.clock.now(), error)) {
            tracing::error!(error, "the SQLite file takes no writes; they are refused");
        }
    }

    fn close(&mut self) {
        self.file.begin_to_close();
        self.give_up_a_damaged_log();
        if let Err(error) = self.keep_time(self.file.clock.now()) {
            tracing::warn!(error = error.chain(), "the clock's high-water mark was not written");
        }
        let Some(sql) = self.sql.take() else { return };
        let copied = sql.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
        match copied.and_then(|is_busy| sql.close().map_err(|(_, error)| error).map(|()| is_busy)) {
            Ok(false) => self.life.iter_mut().for_each(|(life, _)| life.close()),
            Ok(true) => {}
            Err(error) => {
                tracing::warn!(%error, "the SQLite file was closed with its log beside it; the next open reads it");
            }
        }
    }
}

impl Drop for FileDisk {
    /// The lock goes after the connection.
    fn drop(&mut self) {
        self.file.begin_to_close();
        self.give_up_a_damaged_log();
        drop(self.sql.take());
        self.file.release();
    }
}

/// Events, read on connections of their own, as long as the store has them open.
#[derive(Debug)]
pub(crate) struct FilePages {
    pub(crate) readers: Weak<Readers>,
    pub(crate) file: Arc<OpenFile>,
}

#[async_trait]
impl EventPages for FilePages {
    async fn page(&self, group: &Group, query: EventQuery) -> Result<EventPage> {
        let group = group.clone();
        let readers = self.readers.upgrade().ok_or_else(closed)?;
        self.file.look(Outcome::Unchanged).map_err(|cause| cause.to_error())?;
        readers.read(move |sql| event::page(sql, &group, &query)).await
    }
}
