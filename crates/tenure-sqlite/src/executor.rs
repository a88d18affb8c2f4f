//! Runs work on a ledger file: steps on the thread that writes, reads on connections beside it.

use std::sync::Arc;

use rusqlite::Connection;
use tenure_core::error::Outcome;
use tenure_core::{Error, Result};
use tokio::sync::{mpsc, oneshot};

use crate::error::{Cause, closed};
use crate::open_file::OpenFile;
use crate::reader::Readers;
use crate::watch;
use crate::writer::{Answer, Message, QUEUE, Request, Transaction, Writer};

/// The writer and the readers of a ledger file. When it is dropped, the writer finishes and releases the file.
#[derive(Debug)]
pub(crate) struct Executor {
    file: Arc<OpenFile>,
    jobs: mpsc::Sender<Message>,
    readers: Readers,
}

impl Executor {
    /// Starts the writer.
    pub(crate) fn start(file: Arc<OpenFile>, sql: Connection, readers: Readers) -> Result<Self> {
        let (jobs, messages) = mpsc::channel(QUEUE);
        let writer = Writer::new(sql, Arc::clone(&file));
        let thread = std::thread::Builder::new().name("tenure-writer".to_owned());
        let started = thread.spawn(move || writer.run(messages)).map(drop);
        started.and_then(|()| watch::start(&file)).map_err(|error| {
            Error::unavailable(
                "the threads of the SQLite file could not be started",
                Outcome::Unchanged,
            )
            .because(error)
        })?;
        Ok(Self { file, jobs, readers })
    }

    pub(crate) fn file(&self) -> &Arc<OpenFile> {
        &self.file
    }

    /// Has the writer run a step, and waits until it is durable.
    pub(crate) async fn step<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction, &Connection) -> Answer<T> + Send + 'static,
    ) -> Result<T> {
        self.file.check_open()?;
        let (reply, answer) = oneshot::channel();
        let request = Request {
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
        self.file.check_open()?;
        self.readers.read(read).await
    }

    /// Asks the writer to write the high-water mark down, at most once in a while. Never waits.
    pub(crate) fn keep_high_water(&self) {
        if self.file.is_time_to_keep() {
            // A full queue means commits, and those write it too.
            let _ = self.jobs.try_send(Message::Keep);
        }
    }

    /// Waits for pending work, and releases the file.
    pub(crate) async fn close(&self) {
        if self.file.begin_to_close() {
            self.readers.close().await;
        }
        let (done, answer) = oneshot::channel();
        // When the writer has gone already, there is nothing left to wait for.
        if self.jobs.send(Message::Close(done)).await.is_ok() {
            let _ = answer.await;
        }
    }
}
