//! A pass: look, wait, look again, ask the brake, remove.
//!
//! A pass of a daemon does not wait for those that it finds: it ends when the next one is due, and they settle across
//! passes. So an owner is looked at for the first time within one interval after its heartbeat went, however many others
//! are settling by then.

use std::fmt;
use std::time::Duration;

use tenure_core::clock::{Clock, Mono};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_valkey::connection::Connection;

use super::AdoptSettings;
use super::brake::{self, Change, Dead, Ruling};
use super::evict::Pending;
use super::owner::Pulse;
use super::report::{Notice, PassReport, Preview};
use super::step::{Brakes, Steps};
use super::watch::Watch;
use crate::health::{Break, Vitals};
use crate::{MARKER_KEPT, text};

/// How often the looks of one pass may begin anew before it gives up.
const RESTARTS: usize = 3;
/// How long to wait before a store that was out of reach is tried again.
pub(super) const BACKOFF: Duration = Duration::from_millis(500);
/// How long a pass waits for a store that is out of reach.
const OUTAGE: Duration = Duration::from_secs(30);

/// Hears what a pass does, while it does it. It must return soon.
pub type Listener = Box<dyn Fn(&Notice<'_>) + Send + Sync>;

/// The janitor of one adopted hash.
pub struct Janitor {
    pub(super) steps: Steps,
    pub(super) settings: AdoptSettings,
    listener: Option<Listener>,
    /// The last look at the server, and the marker of then.
    previous: Option<(Vitals, String)>,
    /// Owners that a pass of a daemon left to the next one.
    watch: Option<Watch>,
    pub(super) pending: Option<Pending>,
    said_no_info: bool,
}

impl fmt::Debug for Janitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Janitor")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// How an attempt ended.
enum Attempt {
    Done,
    Broken(Break),
}

/// Whether trying again may help.
fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TooLate)
}

impl Janitor {
    /// A janitor that works over this connection. No I/O.
    #[must_use]
    pub fn new(connection: Connection, settings: AdoptSettings) -> Self {
        let name = format!("{:016x}", connection.clock().entropy());
        Self {
            steps: Steps::new(connection, settings.clone(), &name),
            settings,
            listener: None,
            previous: None,
            watch: None,
            pending: None,
            said_no_info: false,
        }
    }

    /// Lets someone hear what passes do.
    #[must_use]
    pub fn with_listener(mut self, listener: Listener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Runs one pass. With `force` the brake is lifted first; a quarantine never is. Takes at least the settle time when
    /// there is anything to remove. O(entries) in pages.
    ///
    /// # Errors
    /// `Unavailable` when the store was out of reach for too long, `Denied`, `Misconfigured` when it is not what the
    /// settings say. What was removed before stays removed and was told to the listener.
    pub async fn pass(&mut self, force: bool) -> Result<PassReport> {
        let mut report = PassReport::default();
        self.run(&mut report, force, None).await?;
        self.watch = None;
        Ok(report)
    }

    /// Runs one pass of a daemon, whose next one begins at `until`: it ends by then, or earlier when there is nothing left
    /// to wait for. Owners without a heartbeat are watched on by the next pass, so it should begin at once.
    ///
    /// # Errors
    /// Those of [`Janitor::pass`]. All owners are looked at twice again after it.
    pub async fn pass_until(&mut self, until: Mono) -> Result<PassReport> {
        let mut report = PassReport::default();
        self.run(&mut report, false, Some(until)).await?;
        Ok(report)
    }

    async fn run(&mut self, report: &mut PassReport, force: bool, until: Option<Mono>) -> Result<()> {
        report.pass = format!("{:016x}", self.clock().entropy());
        self.resolve(report).await?;
        // Without a wait a second attempt would see nothing that the first one did not.
        let mut left = if self.settings.settle.is_zero() { 0 } else { RESTARTS };
        let mut away_since = None;
        loop {
            let broken = match self.attempt(report, force, until).await {
                Ok(Attempt::Done) => return Ok(()),
                Ok(Attempt::Broken(broken)) => broken,
                Err(error) if is_passing(&error) && left > 0 && self.pending.is_none() => {
                    let now = self.clock().mono();
                    if now.since(*away_since.get_or_insert(now)) > OUTAGE {
                        return Err(error);
                    }
                    self.clock().sleep(BACKOFF).await;
                    let reason = error.chain();
                    if matches!(report.breaks.last(), Some(Break::Unreachable { .. })) {
                        continue;
                    }
                    left += 1;
                    Break::Unreachable { reason }
                }
                Err(error) => return Err(error),
            };
            tracing::warn!(
                registry = text(&self.settings.hash),
                pass = report.pass,
                reason = broken.as_str(),
                detail = %broken,
                "the store's health broke; nothing is removed until it held for the settle time"
            );
            self.tell(&Notice::Quarantined(&broken));
            report.breaks.push(broken.clone());
            report.quarantined = Some(broken);
            if left == 0 {
                return Ok(());
            }
            left -= 1;
        }
    }

    /// Tells what a pass would remove if nothing changed until then. One look, no wait; writes nothing.
    ///
    /// # Errors
    /// Those of [`Janitor::pass`].
    pub async fn preview(&mut self) -> Result<Preview> {
        let survey = self.survey(None).await?;
        let dead = survey.owners.absent();
        let alive = survey.owners.len() - dead.len() as u64;
        let (record, now) = self.steps.brakes(Brakes::Read).await?;
        let ruling = brake::rule(&self.settings.brake, record.as_ref(), &dead, alive, now, false);
        Ok(Preview {
            scanned: survey.scanned,
            skipped: survey.skipped,
            owners: survey.owners.len(),
            endless: survey.owners.with(Pulse::Endless),
            dead,
            doomed: survey.doomed,
            braked: ruling.braked,
        })
    }

    /// Removes what the janitor left in the store for itself, and lets go of the connection. Answers how many entries
    /// may have been removed without being counted, because the store was away ever since.
    pub async fn close(mut self) -> u64 {
        let unsure = self.pending.take().map_or(0, |pending| pending.size());
        if let Err(error) = self.steps.forget().await {
            tracing::debug!(error = error.chain(), "the marker stays until it expires");
        }
        self.steps.connection.close();
        unsure
    }

    pub(super) fn clock(&self) -> std::sync::Arc<dyn Clock> {
        std::sync::Arc::clone(self.steps.connection.clock())
    }

    pub(super) fn tell(&self, notice: &Notice<'_>) {
        if let Some(listener) = &self.listener {
            listener(notice);
        }
    }

    /// One attempt. What was watched is watched on only when it comes to its end unbroken.
    async fn attempt(&mut self, report: &mut PassReport, force: bool, until: Option<Mono>) -> Result<Attempt> {
        let begun = match self.watch.take() {
            Some(mut watch) => {
                let broken = self.check_on(&mut watch).await?;
                broken.map_or_else(|| Ok(watch), Err)
            }
            None => self.begin().await?,
        };
        let mut watch = match begun {
            Ok(watch) => watch,
            Err(broken) => return Ok(Attempt::Broken(broken)),
        };
        if let Some(broken) = self.work(&mut watch, report, force, until).await? {
            return Ok(Attempt::Broken(broken));
        }
        self.watch = (!watch.is_empty()).then_some(watch);
        Ok(Attempt::Done)
    }

    async fn work(
        &mut self,
        watch: &mut Watch,
        report: &mut PassReport,
        force: bool,
        until: Option<Mono>,
    ) -> Result<Option<Break>> {
        if let Some(broken) = self.look(watch, report).await? {
            return Ok(Some(broken));
        }
        // Also when nothing is due: a brake ends by that.
        let mut is_due = watch.is_due() || !watch.is_settling();
        loop {
            if is_due && let Some(broken) = self.judge(watch, report, force).await? {
                return Ok(Some(broken));
            }
            let is_over = |until: Mono| watch.is_empty() || self.clock().mono() >= until;
            if until.map_or(!watch.is_settling(), is_over) {
                return Ok(None);
            }
            if let Some(broken) = self.wait(watch, until).await? {
                return Ok(Some(broken));
            }
            is_due = watch.has_settled();
        }
    }

    /// Removes what those own that are due, unless the brake holds it back.
    async fn judge(&mut self, watch: &mut Watch, report: &mut PassReport, force: bool) -> Result<Option<Break>> {
        let dead = match self.second_look(&watch.epoch, watch.due()).await? {
            Ok(dead) => dead,
            Err(broken) => return Ok(Some(broken)),
        };
        let (vitals, _) = self.steps.check(&watch.epoch).await?;
        self.previous = Some((vitals.clone(), watch.epoch.clone()));
        if let Some(broken) = watch.judged(vitals, &dead) {
            return Ok(Some(broken));
        }
        report.dead.extend(dead.clone());
        // Whoever is still settling is silent as well: a mass death is one, however the passes divide it.
        let absent = watch.absent();
        let (ruling, record) = self.ask_brake(&absent, watch.alive, force).await?;
        report.braked.clone_from(&ruling.braked);
        let mut free = dead;
        free.retain(|owner, _| ruling.free.contains_key(owner));
        if let Some(broken) = self.evict(watch, &free, report).await? {
            return Ok(Some(broken));
        }
        watch.forget(|owner| free.contains_key(owner));
        self.lift_brake(&ruling, record).await?;
        self.tell(&Notice::Settled);
        report.quarantined = None;
        if watch.is_empty() {
            return Ok(None);
        }
        self.catch_up(watch).await
    }

    /// A new epoch, or what broke since the last one.
    async fn begin(&mut self) -> Result<Result<Watch, Break>> {
        let epoch = format!("{:016x}", self.clock().entropy());
        let (mut base, before) = self.steps.begin(&epoch).await?;
        if let Some((previous, epoch)) = &self.previous {
            let fresh = base.arrived.since(previous.arrived) < MARKER_KEPT / 2;
            base.marker = !fresh || before.is_some_and(|before| before.starts_with(epoch.as_str()));
        }
        match &base.info {
            Some(info) if info.cluster => self.settings.heartbeat.check_slots(&self.settings.hash)?,
            None if !self.said_no_info => {
                self.said_no_info = true;
                tracing::warn!(
                    "the store does not let us ask INFO: a restart, a failover or keys thrown away for want of memory \
                     are noticed only by a lost connection or lost data"
                );
            }
            _ => {}
        }
        let broken = self.broken_since_last_pass(&base);
        self.previous = Some((base.clone(), epoch.clone()));
        Ok(broken.map_or_else(|| Ok(Watch::begin(epoch, base)), Err))
    }

    /// With a wait, a pass looks twice after whatever happened before it. With one look only, it has to ask.
    fn broken_since_last_pass(&self, base: &Vitals) -> Option<Break> {
        let (previous, _) = self.previous.as_ref().filter(|_| self.settings.settle.is_zero())?;
        match previous.broken_by(base) {
            // Between passes only the server counts: our own clock may have been set.
            Some(Break::ClockJumped) if base.at >= previous.at => None,
            broken => broken,
        }
    }

    async fn ask_brake(&self, dead: &Dead, alive: u64, force: bool) -> Result<(Ruling, Option<brake::Record>)> {
        let (record, now) = self.steps.brakes(Brakes::Read).await?;
        let mut ruling = brake::rule(&self.settings.brake, record.as_ref(), dead, alive, now, force);
        if ruling.record == Change::Engage {
            let held: Vec<&Vec<u8>> = dead.keys().filter(|owner| !ruling.free.contains_key(*owner)).collect();
            let body = brake::Record::body(held.into_iter());
            let replaces = record.as_ref().map_or(&[][..], |record| &record.raw);
            let kept = self.settings.brake.hold + brake::KEPT_AFTER;
            let (now_in_force, _) = self
                .steps
                .brakes(Brakes::Engage {
                    body: &body,
                    replaces,
                    kept,
                })
                .await?;
            // Another janitor may have been first: its record counts.
            if let (Some(braked), Some(record)) = (&mut ruling.braked, now_in_force) {
                braked.since = record.since;
                braked.until = record.since + self.settings.brake.hold;
            }
        }
        if let Some(braked) = &ruling.braked {
            tracing::warn!(
                registry = text(&self.settings.hash),
                dead = braked.lapsed,
                alive = braked.present,
                since = %braked.since,
                until = %braked.until,
                "sweep_braked: too many owners seem dead at once; nothing of theirs is removed until then (--force overrides)"
            );
            self.tell(&Notice::Braked(braked));
        }
        Ok((ruling, record))
    }

    /// Lifts the brake once what it freed is removed.
    async fn lift_brake(&self, ruling: &Ruling, record: Option<brake::Record>) -> Result<()> {
        if let (Change::Lift(reason), Some(record)) = (&ruling.record, record) {
            self.steps.brakes(Brakes::Lift(&record.raw)).await?;
            tracing::info!(registry = text(&self.settings.hash), reason, "sweep_unbraked");
            self.tell(&Notice::Unbraked(reason));
        }
        Ok(())
    }
}
