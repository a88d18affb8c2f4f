//! The one thread that writes, with group commit.
//!
//! Requests queue up in a bounded channel. The thread takes all that are there (up to [`MOST`]), runs each in a
//! savepoint of one transaction, commits, publishes the outcome to what is in memory, and only then answers. So one sync
//! of the disk serves many callers, and no caller sees what is not durable. A request that fails is rolled back alone;
//! a commit that fails takes all of them back, in the file and in memory, and says so. A panic is a failure like others.
//!
//! A request whose caller has gone before it was run is dropped: what was given up must not take effect later.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rusqlite::Connection;
use tenure_core::error::Outcome;
use tenure_core::{Error, Result, StoreTime};
use tokio::sync::{mpsc, oneshot};

use crate::error::{Cause, closed};
use crate::file::{close_as_it_is, reopen_writer};
use crate::open_file::OpenFile;
use crate::sql::{instant, statements};

statements! { "group.sql":
    RAISE_HIGH_WATER = "raise_high_water",
}
statements! { "ledger/step.sql":
    OVER = "over",
}

/// How many requests wait at most, beyond those in the transaction.
pub(crate) const QUEUE: usize = 1_024;
/// How many requests share one transaction at most.
const MOST: usize = 512;
/// After so many changed rows the log is copied into the file as soon as no commit waits.
const CHECKPOINT_IDLE: u64 = 2_000;
/// After so many it is done although commits wait, so that the log stays small.
const CHECKPOINT_BUSY: u64 = 50_000;

/// What a step answers: a refusal keeps what the step has done, a [`Cause`] undoes it.
pub(crate) type Answer<T> = Result<Result<T>, Cause>;

/// What is known of the open transaction.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// A step has said why it changes rows. That is undone before the commit: what follows is from other programs.
    pub(crate) has_reason: bool,
}

/// What the writer is asked.
pub(crate) enum Message {
    /// Run a step.
    Work(Box<dyn Job>),
    /// Write the clock's high-water mark down.
    Keep,
    /// Write everything down, let the file go, and answer.
    Close(oneshot::Sender<()>),
}

/// A step, and the caller that waits for its answer.
pub(crate) trait Job: Send {
    /// Whether the caller has given up.
    fn is_abandoned(&self) -> bool;
    /// Runs it in the open transaction.
    fn run(&mut self, transaction: &mut Transaction, sql: &Connection) -> Result<(), Cause>;
    /// Sets the answer of a step that was undone.
    fn refuse(&mut self, error: Error);
    /// Answers, after the commit or its failure.
    fn answer(self: Box<Self>, failed: Option<&Cause>);
}

/// The job of one call.
pub(crate) struct Request<T, W> {
    pub(crate) work: Option<W>,
    pub(crate) done: Option<Result<T>>,
    pub(crate) reply: oneshot::Sender<Result<T>>,
}

impl<T: Send, W: FnOnce(&mut Transaction, &Connection) -> Answer<T> + Send> Job for Request<T, W> {
    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn run(&mut self, transaction: &mut Transaction, sql: &Connection) -> Result<(), Cause> {
        if let Some(work) = self.work.take() {
            self.done = Some(work(transaction, sql)?);
        }
        Ok(())
    }

    fn refuse(&mut self, error: Error) {
        self.done = Some(Err(error));
    }

    fn answer(self: Box<Self>, failed: Option<&Cause>) {
        let answer = match failed {
            Some(cause) => Err(cause.to_error()),
            None => self.done.unwrap_or_else(|| Err(closed())),
        };
        // The caller may have given up; then it reads back.
        let _ = self.reply.send(answer);
    }
}

/// The state of the thread.
pub(crate) struct Writer {
    sql: Option<Connection>,
    transaction: Transaction,
    file: Arc<OpenFile>,
    /// The changes that the connection had made at the last checkpoint.
    checkpointed: u64,
}

impl Writer {
    pub(crate) fn new(sql: Connection, file: Arc<OpenFile>) -> Self {
        let checkpointed = sql.total_changes();
        Self {
            sql: Some(sql),
            transaction: Transaction::default(),
            file,
            checkpointed,
        }
    }

    /// Serves until the file is closed or its executor dropped, then releases the file and its lock.
    pub(crate) fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        let mut closing = Vec::new();
        while closing.is_empty() {
            let Some(first) = messages.blocking_recv() else { break };
            let (mut jobs, mut keep, mut next) = (Vec::new(), false, Some(first));
            while let Some(message) = next {
                match message {
                    Message::Work(job) => jobs.push(job),
                    Message::Keep => keep = true,
                    Message::Close(done) => closing.push(done),
                }
                let full = jobs.len() >= MOST || !closing.is_empty();
                next = if full { None } else { messages.try_recv().ok() };
            }
            self.serve(jobs);
            if keep {
                self.keep();
            }
            self.checkpoint(messages.is_empty());
        }
        messages.close();
        while let Ok(message) = messages.try_recv() {
            match message {
                Message::Work(mut job) => {
                    job.refuse(closed());
                    job.answer(None);
                }
                Message::Keep => {}
                Message::Close(done) => closing.push(done),
            }
        }
        self.finish();
        for done in closing {
            // The caller may have given up.
            let _ = done.send(());
        }
    }

    /// Runs requests in one transaction and answers them.
    fn serve(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        if jobs.is_empty() {
            return;
        }
        let work = AssertUnwindSafe(|| self.transact(&mut jobs));
        let done = catch_unwind(work).unwrap_or_else(|panic| Err(panicked(&*panic)));
        let failed = done.err();
        if let Some(cause) = &failed {
            self.recover(cause);
        }
        self.file.note_health(failed.as_ref());
        for job in jobs {
            job.answer(failed.as_ref());
        }
    }

    fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Cause> {
        self.file.look(Outcome::Unchanged)?;
        self.reconnect()?;
        let Some(sql) = &self.sql else { return Ok(()) };
        sql.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let before = sql.total_changes();
        for job in jobs.iter_mut().filter(|job| !job.is_abandoned()) {
            run_alone(&mut **job, &mut self.transaction, sql)?;
        }
        if std::mem::take(&mut self.transaction).has_reason {
            sql.prepare_cached(OVER)?.execute([])?;
        }
        if sql.total_changes() > before && self.file.is_time_to_keep() {
            raise_high_water(sql, self.file.clock.now())?;
        }
        sql.prepare_cached("COMMIT")?.execute([])?;
        // The file may have been replaced during the transaction; then it is not known which one is kept.
        self.file.look(Outcome::Unknown)
    }

    /// Brings file, connection and memory back to the last commit.
    fn recover(&mut self, cause: &Cause) {
        tracing::error!(error = %cause, "a transaction was rolled back");
        self.transaction = Transaction::default();
        let rolled_back = self
            .sql
            .as_ref()
            .is_some_and(|sql| sql.is_autocommit() || sql.execute_batch("ROLLBACK").is_ok());
        if !rolled_back || cause.is_doubtful() {
            self.sql = None;
        }
    }

    /// Opens the file again after the connection was given up.
    fn reconnect(&mut self) -> Result<(), Cause> {
        if self.sql.is_some() {
            return Ok(());
        }
        let lost = |cause: Cause| Cause::Lost(cause.to_string());
        let sql = reopen_writer(&self.file.path).map_err(lost)?;
        self.checkpointed = sql.total_changes();
        self.sql = Some(sql);
        Ok(())
    }

    /// Writes the high-water mark down in a commit that does not wait for the disk: losing it costs little.
    fn keep(&mut self) {
        let Some(sql) = &self.sql else { return };
        if self.file.watch.damaged_log().is_some() {
            return;
        }
        let relaxed = sql.pragma_update(None, "synchronous", "normal").map_err(Cause::from);
        let kept = relaxed.and_then(|()| raise_high_water(sql, self.file.clock.now()));
        match kept {
            Ok(()) => {}
            Err(cause) => tracing::warn!(error = %cause, "the clock's high-water mark was not written"),
        }
        if sql.pragma_update(None, "synchronous", "full").is_err() {
            // Commits on this connection might not be durable; the next one opens another.
            self.sql = None;
        }
    }

    /// Copies the log into the file when no commit waits, or when it has grown long.
    fn checkpoint(&mut self, idle: bool) {
        let Some(sql) = &self.sql else { return };
        let changed = sql.total_changes() - self.checkpointed;
        if changed < if idle { CHECKPOINT_IDLE } else { CHECKPOINT_BUSY } {
            return;
        }
        self.checkpointed = sql.total_changes();
        if self.file.watch.damaged_log().is_some() {
            return;
        }
        if let Err(error) = sql.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
            tracing::warn!(%error, "the log could not be copied into the SQLite file; it is tried again later");
        }
    }

    fn finish(mut self) {
        self.file.begin_to_close();
        if self.file.watch.damaged_log().is_some()
            && let Some(sql) = self.sql.take()
        {
            close_as_it_is(sql);
        }
        self.keep();
        if let Some(sql) = self.sql.take() {
            let copied = sql.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
            match copied.and_then(|is_busy| sql.close().map_err(|(_, error)| error).map(|()| is_busy)) {
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "the SQLite file was closed with its log beside it; the next open reads it");
                }
            }
        }
        self.file.release();
    }
}

fn run_alone(job: &mut dyn Job, transaction: &mut Transaction, sql: &Connection) -> Result<(), Cause> {
    sql.prepare_cached("SAVEPOINT step")?.execute([])?;
    let done = catch_unwind(AssertUnwindSafe(|| job.run(transaction, sql)));
    let failed = match done {
        Ok(Ok(())) => {
            sql.prepare_cached("RELEASE step")?.execute([])?;
            return Ok(());
        }
        Ok(Err(cause)) => cause,
        Err(panic) => panicked(&*panic),
    };
    tracing::error!(error = %failed, "a step was rolled back");
    if sql.is_autocommit() {
        // SQLite has rolled the whole transaction back (disk full, I/O error).
        return Err(failed);
    }
    sql.prepare_cached("ROLLBACK TO step")?.execute([])?;
    sql.prepare_cached("RELEASE step")?.execute([])?;
    if failed.is_doubtful() {
        return Err(failed);
    }
    job.refuse(failed.to_error());
    Ok(())
}

pub(crate) fn raise_high_water(sql: &Connection, now: StoreTime) -> Result<(), Cause> {
    sql.prepare_cached(RAISE_HIGH_WATER)?.execute([instant(now)])?;
    Ok(())
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Cause {
    let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
    Cause::Panicked(message.unwrap_or_default())
}
