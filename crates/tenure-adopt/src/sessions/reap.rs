//! The reaper: deletes sessions that have been disconnected for too long, by the index and never by a scan.
//!
//! The index only selects candidates. The session itself decides whether it is an orphan, in the same step that deletes
//! it. A failure of the store makes no session an orphan: after an outage, a restart, a failover, lost data or a clock
//! jump, every session gets the full age again to be resumed. While no reaper runs, such events are detected only by
//! the server's uptime.

mod page;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::error::{Error, Result};
use tenure_core::time::{StoreTime, micros, show_duration};

use super::report::{Doomed, ReapNotice, ReapReport};
use super::step::{Candidate, Steps};
use super::{KeyTemplate, Sessions, check_slots};
use crate::MARKER_KEPT;
use crate::health::{Break, ServerSnapshot};

use page::{IndexCursor, Pending};

/// The minimum age of an orphan.
pub const MIN_MAX_AGE: Duration = Duration::from_secs(1);

/// The most sessions that a preview lists.
const LISTED: usize = 1_000;

/// Called with the events of the reaper. It must return soon.
pub type ReapListener = Box<dyn Fn(&ReapNotice<'_>) + Send + Sync>;

/// The definition of an orphan, and the keys that are deleted with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReapSettings {
    /// How long a session is disconnected before it is an orphan.
    pub max_age: Duration,
    /// The most sessions that one pass reaps.
    pub limit: Option<u64>,
    /// Keys with reference counts. The session is kept unless all are missing, empty or 0. They are deleted with it.
    pub refs: Vec<KeyTemplate>,
    /// Keys whose value is the session's id or key. They are deleted with it, unless they lead to another session by
    /// now.
    pub aliases: Vec<KeyTemplate>,
}

impl ReapSettings {
    fn check(&self) -> Result<()> {
        if self.max_age < MIN_MAX_AGE {
            let (age, least) = (show_duration(self.max_age), show_duration(MIN_MAX_AGE));
            return Err(Error::invalid(format!("the age {age} of an orphan is below {least}")));
        }
        match self.refs.iter().find(|refs| !refs.needs_only_the_id()) {
            Some(refs) => Err(Error::invalid(format!(
                "the template {refs} of a reference count depends on a field, and without the field the count is unknown; \
                 write it with {{id}} alone"
            ))),
            None => Ok(()),
        }
    }
}

/// The reaper of one index.
pub struct Reaper {
    steps: Steps,
    settings: ReapSettings,
    marker: String,
    listener: Option<ReapListener>,
    /// The last snapshot of the server, and its epoch.
    previous: Option<(ServerSnapshot, String)>,
    /// A break that was detected while the store could not be asked when it resumed serving.
    broken: Option<Break>,
    /// When the store resumed serving, and the break before it, if known.
    resumed: Option<(StoreTime, Break)>,
    pending: Option<Pending>,
    warned_no_info: bool,
    stop: Arc<AtomicBool>,
    /// The results of a pass that did not complete.
    unfinished: Option<ReapReport>,
}

impl fmt::Debug for Reaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper")
            .field("sessions", &self.steps.settings)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Reaper {
    /// A reaper of these sessions, with their stop flag. No I/O.
    ///
    /// # Errors
    /// `Invalid` for an age below a second, or a reference count whose key depends on more than the id.
    pub fn new(sessions: Sessions, settings: ReapSettings) -> Result<Self> {
        settings.check()?;
        let name = sessions.steps.connection.clock().entropy();
        Ok(Self {
            marker: format!("{}{name:016x}", sessions.steps.keys.marker),
            steps: sessions.steps,
            settings,
            listener: None,
            previous: None,
            broken: None,
            resumed: None,
            pending: None,
            warned_no_info: false,
            stop: sessions.stop,
            unfinished: None,
        })
    }

    /// Sets the listener for the events of passes.
    #[must_use]
    pub fn with_listener(mut self, listener: ReapListener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Runs one pass. O(old entries), in batches of at most 100, with pauses according to the rate.
    ///
    /// # Errors
    /// `Unavailable` if the store was unreachable. It may become so during the pass: then earlier results were reported
    /// to the listener and are in [`Reaper::unfinished`], and every age starts again. `Denied`, `Misconfigured`.
    pub async fn pass(&mut self) -> Result<ReapReport> {
        let mut report = ReapReport::default();
        self.unfinished = None;
        let done = self.run(&mut report).await;
        self.unfinished = done.is_err().then(|| report.clone());
        if let Err(error) = &done
            && self.broken.is_none()
        {
            self.broken = Some(Break::Unreachable { reason: error.chain() });
        }
        done.map(|()| report)
    }

    /// The results of the last pass, if it failed or was dropped. A page in flight is not counted.
    #[must_use]
    pub fn unfinished(&self) -> Option<&ReapReport> {
        self.unfinished.as_ref()
    }

    /// What a pass would reap now. Writes nothing.
    ///
    /// # Errors
    /// Those of [`Reaper::pass`].
    pub async fn preview(&mut self) -> Result<ReapReport> {
        let mut report = ReapReport::default();
        let (snapshot, _) = self.steps.check(&self.marker, "").await?;
        self.check_slots(&snapshot)?;
        report.never_due = self.steps.never_due(snapshot.at).await?;
        let resumed = self.since_when(&snapshot);
        self.hold(&snapshot, &resumed, &mut report);
        let resumed = resumed.map_or(StoreTime::ZERO, |(at, _)| at);
        let mut cursor = IndexCursor::start();
        loop {
            let some = self.candidates(&snapshot, &cursor, &report).await?;
            if some.is_empty() {
                return Ok(report);
            }
            let reply = self
                .steps
                .reap(&self.settings, &self.marker, None, resumed, &some)
                .await?;
            let marks = reply.marks.unwrap_or_default();
            self.count(&some, &marks, &mut report);
            let doomed = some.iter().zip(&marks).filter(|(_, mark)| matches!(mark, b'x' | b'z'));
            let named = doomed.zip(reply.goes_with).map(|((entry, _), keys)| Doomed {
                id: entry.id.clone(),
                keys,
            });
            report.doomed.extend(named.take(LISTED - report.doomed.len()));
            cursor.advance(&some, |_| true);
            self.steps.rest(some.len() as u64).await;
        }
    }

    /// Deletes the reaper's marker and closes the connection. Returns how many sessions may have been reaped without
    /// being counted, because the store stayed unreachable.
    pub async fn close(mut self) -> u64 {
        let unsure = self.pending.take().map_or(0, |pending| pending.candidates.len() as u64);
        if let Err(error) = self.steps.forget(&self.marker).await {
            tracing::debug!(
                error = error.chain(),
                "cannot delete the marker; it stays until it expires"
            );
        }
        self.steps.connection.close();
        unsure
    }

    async fn run(&mut self, report: &mut ReapReport) -> Result<()> {
        self.read_back(report).await?;
        let epoch = format!("{:016x}", self.steps.connection.clock().entropy());
        report.pass.clone_from(&epoch);
        let begun = self.mono();
        let mut base = self.begin(&epoch).await?;
        report.never_due = self.steps.never_due(base.at).await?;
        report.took += self.mono().since(begun);
        let resumed = self.since_when(&base);
        if self.hold(&base, &resumed, report) {
            return Ok(());
        }
        let resumed = resumed.map_or(StoreTime::ZERO, |(at, _)| at);
        let (mut cursor, mut number) = (IndexCursor::start(), 0);
        loop {
            let begun = self.mono();
            let some = self.candidates(&base, &cursor, report).await?;
            if some.is_empty() || self.stop.load(Ordering::Relaxed) {
                report.entries = self.steps.count().await.ok();
                self.previous = Some((base, epoch));
                return Ok(());
            }
            number += 1;
            let ids: Vec<Vec<u8>> = some.iter().map(|entry| entry.id.clone()).collect();
            self.tell(&ReapNotice::Reaping(&ids));
            let done = self.reap(&epoch, number, &some, resumed, &base, report).await?;
            report.took += self.mono().since(begun);
            match done {
                Ok((snapshot, marks)) => {
                    let stays = |n: usize| marks.get(n).is_some_and(u8::is_ascii_uppercase);
                    self.count(&some, &marks, report);
                    if number == 1 && marks.contains(&b'z') && !marks.iter().any(|mark| b"xF".contains(mark)) {
                        self.tell(&ReapNotice::Uncounted(report.uncounted));
                    }
                    let left = some.iter().enumerate().filter(|(n, _)| stays(*n));
                    let overdue = left.filter_map(|(_, entry)| self.overdue(entry, snapshot.at));
                    report.oldest_overdue = overdue.fold(report.oldest_overdue, Duration::max);
                    cursor.advance(&some, stays);
                    base = snapshot;
                    self.unfinished = Some(report.clone());
                }
                Err(broken) => {
                    self.broken = Some(broken.clone());
                    self.log(&broken);
                    self.tell(&ReapNotice::Quarantined(&broken));
                    report.quarantined = Some(broken);
                    report.settles_in = self.settings.max_age;
                    return Ok(());
                }
            }
            self.steps.rest(some.len() as u64).await;
        }
    }

    /// Writes a marker and checks whether the store served continuously since the last pass.
    async fn begin(&mut self, epoch: &str) -> Result<ServerSnapshot> {
        let (mut base, before) = self.steps.begin(&self.marker, epoch).await?;
        self.check_slots(&base)?;
        if base.info.is_none() && !self.warned_no_info {
            self.warned_no_info = true;
            tracing::warn!(
                "the store denies INFO: a restart before this reaper started, a failover or keys evicted for lack of memory \
                 are detected only by a lost connection or lost data"
            );
        }
        let broken = self.previous.take().and_then(|(previous, epoch)| {
            let is_kept = base.arrived.since(previous.arrived) < MARKER_KEPT / 2;
            base.marker = !is_kept || before.is_some_and(|before| before.starts_with(&epoch));
            let broken = previous.broken_by(&base);
            base.marker = true;
            broken
        });
        if let Some(broken) = self.broken.take().or(broken) {
            self.log(&broken);
            self.resumed = Some((base.at, broken));
        }
        // A pass that is held back continues to watch from here.
        self.previous = Some((base.clone(), epoch.to_owned()));
        Ok(base)
    }

    /// When the store resumed serving, as far as known.
    fn since_when(&self, snapshot: &ServerSnapshot) -> Option<(StoreTime, Break)> {
        let started = snapshot
            .info
            .as_ref()
            .map(|info| (snapshot.at.minus(info.uptime()), Break::Restarted));
        match (&self.resumed, started) {
            (Some(known), Some(started)) if known.0 < started.0 => Some(started),
            (Some(known), _) => Some(known.clone()),
            (None, started) => started,
        }
    }

    /// Whether sessions still have time to be resumed after an outage.
    fn hold(&self, snapshot: &ServerSnapshot, resumed: &Option<(StoreTime, Break)>, report: &mut ReapReport) -> bool {
        let served = |(at, _): &(StoreTime, Break)| snapshot.at.since(*at);
        let short = resumed
            .as_ref()
            .filter(|resumed| served(resumed) < self.settings.max_age);
        let Some(resumed) = short else {
            self.tell(&ReapNotice::Settled);
            return false;
        };
        report.quarantined = Some(resumed.1.clone());
        report.settles_in = self.settings.max_age - served(resumed);
        self.tell(&ReapNotice::Quarantined(&resumed.1));
        true
    }

    /// How long an entry is overdue. `None` if its score is not a time.
    fn overdue(&self, entry: &Candidate, now: StoreTime) -> Option<Duration> {
        let score: f64 = entry.score.parse().ok()?;
        let unit = Duration::from_micros(self.steps.settings.unit.micros());
        let since = Duration::try_from_secs_f64(score * unit.as_secs_f64()).ok()?;
        let due = StoreTime::from_micros(micros(since)) + self.settings.max_age;
        Some(now.since(due))
    }

    fn check_slots(&self, snapshot: &ServerSnapshot) -> Result<()> {
        if !snapshot.info.as_ref().is_some_and(|info| info.cluster) {
            return Ok(());
        }
        let templates: Vec<&KeyTemplate> = self.settings.refs.iter().chain(&self.settings.aliases).collect();
        check_slots(&self.steps.keys, &self.steps.settings, &templates)
    }

    fn log(&self, broken: &Break) {
        tracing::warn!(
            sessions = %self.steps.settings.pattern,
            reason = broken.as_str(),
            detail = %broken,
            "the store's health broke; reaping pauses until it has held for the age of an orphan"
        );
    }

    fn tell(&self, notice: &ReapNotice<'_>) {
        if let Some(listener) = &self.listener {
            listener(notice);
        }
    }

    fn mono(&self) -> Mono {
        self.steps.connection.clock().mono()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_reap_settings_are_rejected() {
        let settings = |age, refs: &str| ReapSettings {
            max_age: age,
            limit: None,
            refs: vec![KeyTemplate::parse(refs).unwrap()],
            aliases: Vec::new(),
        };
        assert!(settings(MIN_MAX_AGE, "r:{id}").check().is_ok());
        let short = settings(Duration::from_millis(999), "r:{id}").check().unwrap_err();
        assert!(short.to_string().contains("below 1s"), "{short}");
        let field = settings(MIN_MAX_AGE, "r:{field:x}").check().unwrap_err();
        assert!(field.to_string().contains("{id} alone"), "{field}");
    }
}
