//! `tenure adopt sessions`: an index and a reaper for sessions that other programs keep as hashes.

mod daemon;
mod meters;
mod progress;
mod show;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::error::{Error, Outcome};
use tenure_core::store::Health;
use tenure_valkey::adopt::{
    KeyTemplate, ReapNotice, ReapSettings, Reaper, SessionSettings, Sessions, UndoReport, WalkNotice, text,
};
use tenure_valkey::{Connection, ConnectionOptions};

use super::Early;
use super::daemon::Signals;
use crate::cli::FormatArgs;
use crate::connect;
use crate::exit::{DONE, FAILED, Usage};
use crate::settings::{FlagsOf, adopt as settings};
use daemon::LAST_PAGE;
use progress::Progress;

/// Builds an index of the disconnected over sessions that other programs keep as hashes, and reaps the orphans by it.
///
/// Without --reap, --compare or --undo it brings the index up to date in one pass over the keyspace and verifies it
/// afterwards; run it as often as you like. Exit code 1 when something is missing or differs, or when the store's health
/// held the reaper back.
#[derive(Debug, Clone, Args)]
pub(super) struct SessionsArgs {
    #[command(flatten)]
    flags: FlagsOf<settings::Sessions>,
    /// Delete sessions that are disconnected for --max-age, by the index: the session, its count and its aliases. Never an
    /// active one, and none that is referred to.
    #[arg(long)]
    reap: bool,
    /// Only show how the index and the sessions differ. Exit code 1 when they do.
    #[arg(long, conflicts_with_all = ["reap", "undo", settings::SESSIONS_INTERVAL])]
    compare: bool,
    /// Take out of the index what was added to it, and nothing else.
    #[arg(long, conflicts_with_all = ["reap", settings::SESSIONS_INTERVAL])]
    undo: bool,
    /// Only tell what would be done now; nothing is written.
    #[arg(long, conflicts_with_all = ["compare", settings::SESSIONS_INTERVAL])]
    dry_run: bool,
    /// Tell about each session that is indexed, mended or reaped.
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    format: FormatArgs,
}

/// What is to be done with sessions.
struct Work {
    given: settings::Sessions,
    settings: SessionSettings,
    /// `None` when nothing is to be reaped.
    reaping: Option<ReapSettings>,
    compare: bool,
    undo: bool,
    dry_run: bool,
    verbose: bool,
    json: bool,
}

impl SessionsArgs {
    pub(super) fn run(self) -> anyhow::Result<u8> {
        let once = self.dry_run || self.compare || self.undo;
        let given = settings::Sessions::load(&self.flags, once, &|name| std::env::var(name).ok())?;
        let mut settings = SessionSettings::new(&given.pattern, &given.disconnected_field)?;
        (settings.index, settings.unit, settings.rate) = (given.index.clone(), given.unit, given.rate);
        // What cannot be reaped by is refused also when nothing is to be reaped yet.
        let reaping = reaping(&given)?;
        let work = Work {
            settings,
            reaping: self.reap.then_some(reaping),
            compare: self.compare,
            undo: self.undo,
            dry_run: self.dry_run,
            verbose: self.verbose,
            json: self.format.json,
            given,
        };
        match work.given.interval {
            Some(interval) => daemon::run(&work, interval),
            None => {
                crate::logging::start_quiet("error")?;
                connect::block_on(work.once())
            }
        }
    }
}

fn reaping(given: &settings::Sessions) -> anyhow::Result<ReapSettings> {
    let all = |templates: &Option<String>| -> tenure_core::error::Result<Vec<KeyTemplate>> {
        let words = templates.as_deref().unwrap_or_default().split_whitespace();
        words.map(KeyTemplate::parse).collect()
    };
    Ok(ReapSettings {
        max_age: given.max_age,
        limit: given.limit,
        refs: all(&given.refs)?,
        aliases: all(&given.alias)?,
    })
}

impl Work {
    /// Connects, or tells why it cannot.
    fn connection(&self, clock: Arc<dyn Clock>) -> anyhow::Result<Connection> {
        Connection::open(&self.given.store, ConnectionOptions::default(), Vec::new(), clock)
            .map_err(|error| Usage::new(format!("--store: {}", error.chain())).into())
    }

    async fn once(&self) -> anyhow::Result<u8> {
        let connection = self.connection(SystemClock::shared())?;
        connection.first_try().await;
        if let Health::Down { reason } = connection.health() {
            let message = format!("the store at {} is out of reach: {reason}", connection.place());
            return Err(Error::unavailable(message, Outcome::Unchanged).into());
        }
        let sessions = Sessions::new(connection, self.settings.clone())?;
        match &self.reaping {
            Some(reaping) => self.reap(Reaper::new(sessions, reaping.clone())?).await,
            None if self.undo => self.take_out(&sessions).await,
            None if self.compare => self.compare(&sessions).await,
            None => self.index(&sessions).await,
        }
    }

    async fn index(&self, sessions: &Sessions) -> anyhow::Result<u8> {
        let progress = Progress::new(self.verbose);
        let listener = |notice: &WalkNotice<'_>| progress.note(notice);
        if self.dry_run {
            let report = sessions.preview(&listener).await;
            progress.finish();
            show::index(self, &report?, None)?;
            return Ok(DONE);
        }
        let report = sessions.index(&listener).await;
        progress.finish();
        let report = report?;
        // A second look, which has no part in the first one's counts.
        let progress = Progress::new(false);
        let listener = |notice: &WalkNotice<'_>| progress.note(notice);
        let found = sessions.compare(Some(report.began), &listener).await;
        progress.finish();
        let found = found?;
        show::index(self, &report, Some(&found))?;
        Ok(if found.missing == 0 { DONE } else { FAILED })
    }

    async fn compare(&self, sessions: &Sessions) -> anyhow::Result<u8> {
        let progress = Progress::new(self.verbose);
        let listener = |notice: &WalkNotice<'_>| progress.note(notice);
        let found = sessions.compare(None, &listener).await;
        progress.finish();
        let found = found?;
        show::comparison(self, &found)?;
        Ok(if found.is_equal() { DONE } else { FAILED })
    }

    async fn take_out(&self, sessions: &Sessions) -> anyhow::Result<u8> {
        if self.dry_run {
            show::undo(self, sessions.preview_undo().await?, None)?;
            return Ok(DONE);
        }
        let (ending, so_far) = (Ending::new()?, Mutex::new(UndoReport::default()));
        let known = || *so_far.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = |report| {
            *so_far.lock().unwrap_or_else(PoisonError::into_inner) = report;
            !ending.is_asked()
        };
        let done = ending.or_asked(sessions.undo_telling(&listener)).await;
        match done {
            Some(Ok(undone)) if !ending.is_asked() => {
                show::undo(self, undone, None)?;
                Ok(DONE)
            }
            Some(Err(error)) => {
                if known() != UndoReport::default() {
                    show::undo(self, known(), Some(Early::Failed))?;
                }
                Err(error.into())
            }
            Some(Ok(_)) | None => {
                show::undo(self, known(), Some(Early::Interrupted))?;
                Ok(FAILED)
            }
        }
    }

    async fn reap(&self, reaper: Reaper) -> anyhow::Result<u8> {
        let (verbose, dry_run) = (self.verbose, self.dry_run);
        let page: Arc<AtomicU64> = Arc::default();
        let under_way = Arc::clone(&page);
        let tell = move |notice: &ReapNotice<'_>| {
            let size = match notice {
                ReapNotice::Reaping(ids) => ids.len() as u64,
                _ => 0,
            };
            under_way.store(size, Ordering::Relaxed);
            if let ReapNotice::Reaped(id) = notice
                && verbose
            {
                let what = if dry_run { "would be reaped" } else { "reaped" };
                crate::exit::say(format_args!("{} {what}", text(id)));
            }
        };
        let mut reaper = reaper.with_listener(Box::new(tell));
        if dry_run {
            let report = reaper.preview().await?;
            show::reap(self, &report, None)?;
            return Ok(DONE);
        }
        let ending = Ending::new()?;
        let mut reaper = reaper.with_stop(Arc::clone(&ending.asked));
        let done = ending.or_asked(reaper.pass()).await;
        let unfinished = reaper.unfinished().cloned();
        let unsure = reaper.close().await;
        match done {
            Some(Ok(mut report)) => {
                report.unsure += unsure;
                show::reap(self, &report, ending.is_asked().then_some(Early::Interrupted))?;
                let is_done = report.quarantined.is_none() && !ending.is_asked();
                Ok(if is_done { DONE } else { FAILED })
            }
            Some(Err(error)) => {
                let mut report = unfinished.unwrap_or_default();
                report.unsure += unsure;
                if report.reaped + report.without_session + report.unsure > 0 {
                    show::reap(self, &report, Some(Early::Failed))?;
                }
                Err(error.into())
            }
            None => {
                let mut report = unfinished.unwrap_or_default();
                // A page that was left in the midst of it is the one that the reaper could not count, if there is one.
                report.unsure += page.load(Ordering::Relaxed).max(unsure);
                show::reap(self, &report, Some(Early::Interrupted))?;
                Ok(FAILED)
            }
        }
    }
}

/// How a run is ended by a signal: it ends after the page that is under way, or is left when that takes too long.
struct Ending {
    signals: tokio::sync::Mutex<Signals>,
    asked: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
}

impl Ending {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            signals: tokio::sync::Mutex::new(Signals::new()?),
            asked: Arc::default(),
            clock: SystemClock::shared(),
        })
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Does the work; `None` when it was asked to end and did not in time.
    async fn or_asked<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let asked = async {
            self.signals.lock().await.next().await;
            self.asked.store(true, Ordering::Relaxed);
            self.clock.sleep(LAST_PAGE).await;
        };
        tokio::select! {
            biased;
            done = work => Some(done),
            () = asked => None,
        }
    }
}
