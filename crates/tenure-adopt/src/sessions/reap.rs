//! The reaper: deletes sessions that have been disconnected for too long, by the index, never by a scan.
//!
//! The index only says where to look. Whether a session is an orphan is decided by the session itself, in the very step
//! that deletes it. And it is not decided by the store's own trouble: after an outage, a restart, a failover, lost data or
//! a jump of the clock everyone gets the whole age of an orphan anew to come back. What happened while no reaper ran shows
//! only as far as the server tells how long it has been running.

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
use crate::health::{Break, Vitals};

use page::{Pending, Place};

/// The shortest age of an orphan.
pub const MIN_MAX_AGE: Duration = Duration::from_secs(1);

/// The most sessions that a preview lists.
const LISTED: usize = 1_000;

/// Hears what the reaper does, while it does it. It must return soon.
pub type ReapListener = Box<dyn Fn(&ReapNotice<'_>) + Send + Sync>;

/// What is an orphan, and what goes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReapSettings {
    /// For how long a session is disconnected before it is an orphan.
    pub max_age: Duration,
    /// The most sessions that one pass reaps.
    pub limit: Option<u64>,
    /// Keys that count who refers to a session. Unless they are missing, empty or 0, it is kept; they go with it.
    pub refs: Vec<KeyTemplate>,
    /// Keys whose value is the session's id (or key). They go with it, unless they lead to another one by now.
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
                "the template {refs} of a count depends on a field: without the field nobody could tell who refers to a \
                 session; write it with {{id}} alone"
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
    /// The last look at the server, and the epoch of then.
    previous: Option<(Vitals, String)>,
    /// What was noticed while the store could not be asked since when it serves again.
    broken: Option<Break>,
    /// When the store resumed serving, and why it had not, as far as this reaper knows.
    resumed: Option<(StoreTime, Break)>,
    pending: Option<Pending>,
    said_no_info: bool,
    stop: Arc<AtomicBool>,
    /// What a pass did that did not come to its end.
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
    /// A reaper of these sessions, which ends a pass early as they would. No I/O.
    ///
    /// # Errors
    /// `Invalid` for an age below a second, or a count that depends on more than the id.
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
            said_no_info: false,
            stop: sessions.stop,
            unfinished: None,
        })
    }

    /// Lets someone hear what passes do.
    #[must_use]
    pub fn with_listener(mut self, listener: ReapListener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Runs one pass. O(old entries), in batches of at most 100, with pauses as the rate wants them.
    ///
    /// # Errors
    /// `Unavailable` when the store was out of reach (also in the midst of it: what was reaped before was told to the
    /// listener and is in [`Reaper::unfinished`], and every age starts again), `Denied`, `Misconfigured`.
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

    /// What the last pass did, if it failed or was dropped before its end. A page that was under way is not counted.
    #[must_use]
    pub fn unfinished(&self) -> Option<&ReapReport> {
        self.unfinished.as_ref()
    }

    /// Tells what a pass would reap now. Writes nothing.
    ///
    /// # Errors
    /// Those of [`Reaper::pass`].
    pub async fn preview(&mut self) -> Result<ReapReport> {
        let mut report = ReapReport::default();
        let (vitals, _) = self.steps.check(&self.marker, "").await?;
        self.check_slots(&vitals)?;
        report.never_due = self.steps.never_due(vitals.at).await?;
        let resumed = self.since_when(&vitals);
        self.hold(&vitals, &resumed, &mut report);
        let resumed = resumed.map_or(StoreTime::ZERO, |(at, _)| at);
        let mut place = Place::start();
        loop {
            let some = self.candidates(&vitals, &place, &report).await?;
            if some.is_empty() {
                return Ok(report);
            }
            let judged = self
                .steps
                .reap(&self.settings, &self.marker, None, resumed, &some)
                .await?;
            let marks = judged.marks.unwrap_or_default();
            self.count(&some, &marks, &mut report);
            let doomed = some.iter().zip(&marks).filter(|(_, mark)| matches!(mark, b'x' | b'z'));
            let named = doomed.zip(judged.goes_with).map(|((entry, _), keys)| Doomed {
                id: entry.id.clone(),
                keys,
            });
            report.doomed.extend(named.take(LISTED - report.doomed.len()));
            place.advance(&some, |_| true);
            self.steps.rest(some.len() as u64).await;
        }
    }

    /// Removes what the reaper left in the store for itself, and lets go of the connection. Answers how many sessions may
    /// have been reaped without being counted, because the store was away ever since.
    pub async fn close(mut self) -> u64 {
        let unsure = self.pending.take().map_or(0, |pending| pending.candidates.len() as u64);
        if let Err(error) = self.steps.forget(&self.marker).await {
            tracing::debug!(error = error.chain(), "the marker stays until it expires");
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
        let (mut place, mut number) = (Place::start(), 0);
        loop {
            let begun = self.mono();
            let some = self.candidates(&base, &place, report).await?;
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
                Ok((vitals, marks)) => {
                    let stays = |n: usize| marks.get(n).is_some_and(u8::is_ascii_uppercase);
                    self.count(&some, &marks, report);
                    if number == 1 && marks.contains(&b'z') && !marks.iter().any(|mark| b"xF".contains(mark)) {
                        self.tell(&ReapNotice::Uncounted(report.uncounted));
                    }
                    let left = some.iter().enumerate().filter(|(n, _)| stays(*n));
                    let overdue = left.filter_map(|(_, entry)| self.overdue(entry, vitals.at));
                    report.oldest_overdue = overdue.fold(report.oldest_overdue, Duration::max);
                    place.advance(&some, stays);
                    base = vitals;
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

    /// Leaves a marker and finds out whether the store served all along since the last pass.
    async fn begin(&mut self, epoch: &str) -> Result<Vitals> {
        let (mut base, before) = self.steps.begin(&self.marker, epoch).await?;
        self.check_slots(&base)?;
        if base.info.is_none() && !self.said_no_info {
            self.said_no_info = true;
            tracing::warn!(
                "the store does not let us ask INFO: a restart before this reaper began, a failover or keys thrown away \
                 for want of memory are noticed only by a lost connection or lost data"
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
        // So that a pass that is held back watches on from here.
        self.previous = Some((base.clone(), epoch.to_owned()));
        Ok(base)
    }

    /// Since when the store serves, as far as anyone knows.
    fn since_when(&self, vitals: &Vitals) -> Option<(StoreTime, Break)> {
        let started = vitals
            .info
            .as_ref()
            .map(|info| (vitals.at.minus(info.uptime()), Break::Restarted));
        match (&self.resumed, started) {
            (Some(known), Some(started)) if known.0 < started.0 => Some(started),
            (Some(known), _) => Some(known.clone()),
            (None, started) => started,
        }
    }

    /// Whether everyone still has time to come back after an outage.
    fn hold(&self, vitals: &Vitals, resumed: &Option<(StoreTime, Break)>, report: &mut ReapReport) -> bool {
        let served = |(at, _): &(StoreTime, Break)| vitals.at.since(*at);
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

    /// For how long an entry has been older than an orphan; `None` for one whose score is no time.
    fn overdue(&self, entry: &Candidate, now: StoreTime) -> Option<Duration> {
        let score: f64 = entry.score.parse().ok()?;
        let unit = Duration::from_micros(self.steps.settings.unit.micros());
        let since = Duration::try_from_secs_f64(score * unit.as_secs_f64()).ok()?;
        let due = StoreTime::from_micros(micros(since)) + self.settings.max_age;
        Some(now.since(due))
    }

    fn check_slots(&self, vitals: &Vitals) -> Result<()> {
        if !vitals.info.as_ref().is_some_and(|info| info.cluster) {
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
            "the store's health broke; nothing is reaped until it held for the age of an orphan"
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
    fn what_cannot_be_an_orphan_is_refused() {
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
