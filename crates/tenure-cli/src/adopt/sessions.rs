//! `tenure adopt sessions`: an index and a reaper for sessions that other programs keep as hashes.

mod progress;
mod show;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use tenure_adopt::{
    DaemonEnd, EarlyEnd, IndexProgress, IndexReport, KeyTemplate, LAST_SESSIONS_PAGE, PageInFlight, ReapNotice,
    ReapReport, ReapSettings, ReapedListener, Reaper, SessionSettings, Sessions, SessionsDaemon, UndoReport,
    WalkNotice, text,
};
use tenure_core::clock::{Clock, SystemClock};

use super::daemon::{metrics_listener, on_runtime, printed, signals};
use super::{connection, reach};
use crate::cli::FormatArgs;
use crate::confirm::confirm;
use crate::connect;
use crate::exit::{DONE, FAILED, say};
use crate::settings::{FlagsOf, adopt as settings};
use progress::WalkProgress;
use tenure_supervise::signals::Signals;

/// Indexes disconnected sessions that other programs keep as hashes, and reaps orphans.
///
/// Without --reap, --compare or --undo it updates the index in one pass over the keyspace and verifies it; it can be repeated
/// at any time. Exit code 1 if entries are missing or differ, or if the store's health held the reaper back.
#[derive(Debug, Clone, Args)]
pub(super) struct SessionsArgs {
    #[command(flatten)]
    flags: FlagsOf<settings::Sessions>,
    /// Delete sessions that have been disconnected for --max-age, with their reference counts and aliases. Active and
    /// referenced sessions are kept.
    #[arg(long)]
    reap: bool,
    /// Only show how the index and the sessions differ (exit 1 if they do).
    #[arg(long, conflicts_with_all = ["reap", "undo", settings::SESSIONS_INTERVAL])]
    compare: bool,
    /// Remove from the index only what this command added. Of an index that other programs use it asks first.
    #[arg(long, conflicts_with_all = ["reap", settings::SESSIONS_INTERVAL])]
    undo: bool,
    /// With --undo: do not ask for confirmation.
    #[arg(long, requires = "undo")]
    yes: bool,
    /// Also correct entries that other programs wrote to --index: set the time of their session, or remove them if it is active
    /// or gone.
    #[arg(long, conflicts_with_all = ["reap", "undo", "compare", settings::SESSIONS_INTERVAL])]
    repair: bool,
    /// Only show what would be done; no writes.
    #[arg(long, conflicts_with_all = ["compare", settings::SESSIONS_INTERVAL])]
    dry_run: bool,
    /// Print each session that is indexed, repaired or reaped.
    #[arg(long, short)]
    verbose: bool,
    /// Do not fail if no key matches --pattern.
    #[arg(long, conflicts_with_all = ["reap", "undo"])]
    allow_empty: bool,
    #[command(flatten)]
    format: FormatArgs,
}

/// A run over sessions.
struct Work {
    given: settings::Sessions,
    settings: SessionSettings,
    /// `None` without --reap.
    reaping: Option<ReapSettings>,
    compare: bool,
    undo: bool,
    yes: bool,
    repair: bool,
    dry_run: bool,
    verbose: bool,
    allow_empty: bool,
    json: bool,
}

impl SessionsArgs {
    pub(super) fn run(self) -> anyhow::Result<u8> {
        let once = self.dry_run || self.compare || self.undo || self.repair;
        let given = settings::Sessions::load(&self.flags, once, &|name| std::env::var(name).ok())?;
        let mut settings = SessionSettings::new(&given.pattern, &given.disconnected_field)?;
        (settings.index, settings.unit, settings.rate) = (given.index.clone(), given.unit, given.rate);
        // Invalid reap settings are refused without --reap, too.
        let reaping = reaping(&given)?;
        let work = Work {
            settings,
            reaping: self.reap.then_some(reaping),
            compare: self.compare,
            undo: self.undo,
            yes: self.yes,
            repair: self.repair,
            dry_run: self.dry_run,
            verbose: self.verbose,
            allow_empty: self.allow_empty,
            json: self.format.json,
            given,
        };
        match work.given.interval {
            Some(interval) => on_runtime(work.serve(interval)),
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
    /// A copy for the loop that prints.
    fn printing(&self) -> Self {
        Self {
            given: self.given.clone(),
            settings: self.settings.clone(),
            reaping: self.reaping.clone(),
            ..*self
        }
    }

    async fn serve(&self, interval: Duration) -> anyhow::Result<DaemonEnd> {
        let mut signals = signals()?;
        let work = self.printing();
        let print: ReapedListener =
            Arc::new(move |report: &ReapReport, early| printed(show::reap_line(&work, report, early)));
        let mut daemon = SessionsDaemon {
            connection: connection(&self.given.store)?,
            settings: self.settings.clone(),
            reaping: self.reaping.clone(),
            interval,
            index_every: self.given.index_every,
            verbose: self.verbose,
            allow_empty: self.allow_empty,
            metrics: None,
            listener: self.json.then_some(print),
        };
        daemon.check()?;
        let listen = self.given.metrics_listen;
        let listen = listen.map(|address| (address, "adopt.sessions.metrics_listen"));
        daemon.metrics = metrics_listener(listen, self.json).await?;
        Ok(daemon.run(async { _ = signals.asked_to_end().await }).await?)
    }

    async fn once(&self) -> anyhow::Result<u8> {
        let sessions = Sessions::new(reach(&self.given.store).await?, self.settings.clone())?;
        match &self.reaping {
            Some(reaping) => self.reap(sessions, reaping.clone()).await,
            None if self.undo => self.take_out(&sessions).await,
            None if self.compare => self.compare(&sessions).await,
            None => self.index(sessions).await,
        }
    }

    async fn index(&self, sessions: Sessions) -> anyhow::Result<u8> {
        if self.dry_run {
            return self.preview(&sessions).await;
        }
        let ending = Ending::new()?;
        let sessions = sessions.with_stop(Arc::clone(&ending.asked));
        let (progress, so_far) = (WalkProgress::new(self.verbose), IndexProgress::default());
        let listener = |notice: &WalkNotice<'_>| {
            progress.note(notice);
            so_far.note(notice);
        };
        let pass = async {
            if self.repair {
                sessions.repair(&listener).await
            } else {
                sessions.index(&listener).await
            }
        };
        let done = ending.or_asked(pass).await;
        progress.finish();
        let report = match done {
            Some(Ok(report)) if !ending.is_asked() => report,
            Some(Err(error)) => return self.index_failed(&so_far.report(), error.into()),
            Some(Ok(_)) | None => {
                show::index(self, &so_far.report(), None, Some(EarlyEnd::Interrupted))?;
                return Ok(FAILED);
            }
        };
        // A second look, which has no part in the first one's counts.
        let progress = WalkProgress::new(false);
        let listener = |notice: &WalkNotice<'_>| progress.note(notice);
        let found = ending.or_asked(sessions.compare(Some(report.began), &listener)).await;
        progress.finish();
        match found {
            Some(Ok(found)) if !ending.is_asked() => {
                show::index(self, &report, Some(&found), None)?;
                Ok(if found.missing == 0 && self.is_there(&report) {
                    DONE
                } else {
                    FAILED
                })
            }
            Some(Err(error)) => self.index_failed(&report, error.into()),
            Some(Ok(_)) | None => {
                show::index(self, &report, None, Some(EarlyEnd::Interrupted))?;
                Ok(FAILED)
            }
        }
    }

    /// Whether there are sessions, or none are expected. Without any, mostly --pattern is mistyped.
    fn is_there(&self, report: &IndexReport) -> bool {
        report.counts.scanned > 0 || self.allow_empty
    }

    /// Prints what a pass did before it failed.
    fn index_failed(&self, report: &IndexReport, error: anyhow::Error) -> anyhow::Result<u8> {
        if !report.is_nothing() {
            show::index(self, report, None, Some(EarlyEnd::Failed))?;
        }
        Err(error)
    }

    async fn preview(&self, sessions: &Sessions) -> anyhow::Result<u8> {
        let progress = WalkProgress::new(self.verbose);
        let listener = |notice: &WalkNotice<'_>| progress.note(notice);
        let report = if self.repair {
            sessions.preview_repair(&listener).await
        } else {
            sessions.preview(&listener).await
        };
        progress.finish();
        let report = report?;
        show::index(self, &report, None, None)?;
        Ok(if self.is_there(&report) { DONE } else { FAILED })
    }

    async fn compare(&self, sessions: &Sessions) -> anyhow::Result<u8> {
        let progress = WalkProgress::new(self.verbose);
        let listener = |notice: &WalkNotice<'_>| progress.note(notice);
        let found = sessions.compare(None, &listener).await;
        progress.finish();
        let found = found?;
        show::comparison(self, &found)?;
        let is_there = found.counts.scanned > 0 || self.allow_empty;
        Ok(if found.is_equal() && is_there { DONE } else { FAILED })
    }

    async fn take_out(&self, sessions: &Sessions) -> anyhow::Result<u8> {
        if self.dry_run {
            show::undo(self, sessions.preview_undo().await?, None)?;
            return Ok(DONE);
        }
        if !self.is_confirmed(sessions).await? {
            say("nothing was changed");
            return Ok(FAILED);
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
                    show::undo(self, known(), Some(EarlyEnd::Failed))?;
                }
                Err(error.into())
            }
            Some(Ok(_)) | None => {
                show::undo(self, known(), Some(EarlyEnd::Interrupted))?;
                Ok(FAILED)
            }
        }
    }

    /// Asks before entries go that other programs may need by now.
    async fn is_confirmed(&self, sessions: &Sessions) -> anyhow::Result<bool> {
        let Some(index) = self.given.index.as_deref().filter(|_| !self.yes) else {
            return Ok(true);
        };
        let entries = sessions.preview_undo().await?.removed;
        if entries == 0 {
            return Ok(true);
        }
        let what = format!("{} from {index}", show::entries_of(entries));
        confirm(
            &format!(
                "Remove {what}? A clean-up of other programs that uses this index no longer finds these sessions."
            ),
            &format!(
                "--undo would remove {what}, and a clean-up of other programs that uses this index would no longer find \
                 these sessions; confirm with --yes"
            ),
        )
    }

    async fn reap(&self, sessions: Sessions, reaping: ReapSettings) -> anyhow::Result<u8> {
        let (verbose, dry_run) = (self.verbose, self.dry_run);
        let page = PageInFlight::default();
        let in_flight = page.clone();
        let refs = self.given.refs.clone().unwrap_or_default();
        let tell = move |notice: &ReapNotice<'_>| {
            in_flight.note(notice);
            match notice {
                ReapNotice::Reaped(id) if verbose => {
                    let what = if dry_run { "would be reaped" } else { "reaped" };
                    say(format_args!("{} {what}", text(id)));
                }
                ReapNotice::Uncounted(sessions) => show::uncounted(*sessions, &refs),
                _ => {}
            }
        };
        if dry_run {
            let mut reaper = Reaper::new(sessions, reaping)?.with_listener(Box::new(tell));
            show::reap(self, &reaper.preview().await?, None)?;
            return Ok(DONE);
        }
        let ending = Ending::new()?;
        let sessions = sessions.with_stop(Arc::clone(&ending.asked));
        let mut reaper = Reaper::new(sessions, reaping)?.with_listener(Box::new(tell));
        let done = ending.or_asked(reaper.pass()).await;
        match done {
            Some(Ok(mut report)) => {
                report.unsure += reaper.close().await;
                show::reap(self, &report, ending.is_asked().then_some(EarlyEnd::Interrupted))?;
                let is_done = report.quarantined.is_none() && !ending.is_asked();
                Ok(if is_done { DONE } else { FAILED })
            }
            Some(Err(error)) => {
                let mut report = reaper.unfinished().cloned().unwrap_or_default();
                report.unsure += reaper.close().await;
                if !report.is_nothing() {
                    show::reap(self, &report, Some(EarlyEnd::Failed))?;
                }
                Err(error.into())
            }
            None => {
                show::reap(self, &page.dropped(reaper).await, Some(EarlyEnd::Interrupted))?;
                Ok(FAILED)
            }
        }
    }
}

/// The end of a run by a signal: after the current page, or without it if that takes too long.
struct Ending {
    signals: tokio::sync::Mutex<Signals>,
    asked: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
}

impl Ending {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            signals: tokio::sync::Mutex::new(signals()?),
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
            self.signals.lock().await.asked_to_end().await;
            self.asked.store(true, Ordering::Relaxed);
            self.clock.sleep(LAST_SESSIONS_PAGE).await;
        };
        tokio::select! {
            biased;
            done = work => Some(done),
            () = asked => None,
        }
    }
}
