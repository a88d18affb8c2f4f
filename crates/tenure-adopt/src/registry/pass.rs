//! A pass: check, wait, check again, ask the brake, evict.
//!
//! A daemon's pass does not wait for the owners it finds: it ends when the next pass is due, and owners settle across
//! passes. So an owner is first checked within one interval after its heartbeat expired, however many others are
//! settling then.

use std::fmt;
use std::time::Duration;

use tenure_core::clock::{Clock, Mono};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_valkey::connection::Connection;

use super::AdoptSettings;
use super::brake::{self, BrakeDecision, Dead, RecordChange};
use super::evict::Pending;
use super::owner::HeartbeatState;
use super::report::{Notice, PassReport, Preview};
use super::step::{BrakeCommand, Page, Steps};
use super::watch::Watch;
use crate::health::{Break, ServerSnapshot};
use crate::{MARKER_KEPT, text};

/// How often the checks of one pass may start again before it gives up.
const RESTARTS: usize = 3;
/// The pause before an unreachable store is tried again.
pub(super) const BACKOFF: Duration = Duration::from_millis(500);
/// How long a pass waits for an unreachable store.
const OUTAGE: Duration = Duration::from_secs(30);

/// Called with the events of a pass. It must return soon.
pub type Listener = Box<dyn Fn(&Notice<'_>) + Send + Sync>;

/// The janitor of one adopted hash.
pub struct Janitor {
    pub(super) steps: Steps,
    pub(super) settings: AdoptSettings,
    listener: Option<Listener>,
    /// The last snapshot of the server, and its marker.
    previous: Option<(ServerSnapshot, String)>,
    /// The owners that a daemon's pass left to the next one.
    watch: Option<Watch>,
    pub(super) pending: Option<Pending>,
    warned_no_info: bool,
}

impl fmt::Debug for Janitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Janitor")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The result of an attempt.
enum Attempt {
    Done,
    Broken(Break),
}

/// Whether a retry may help.
fn is_transient(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TooLate)
}

impl Janitor {
    /// A janitor over this connection. No I/O.
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
            warned_no_info: false,
        }
    }

    /// Sets the listener for the events of passes.
    #[must_use]
    pub fn with_listener(mut self, listener: Listener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Runs one pass. `force` lifts the brake first, but never a quarantine. Takes at least the settle time if there is
    /// anything to remove. O(entries) in pages.
    ///
    /// # Errors
    /// `Unavailable` if the store was unreachable for too long; `Denied`; `Misconfigured` if it does not match the
    /// settings. Earlier removals of the pass stay and were reported to the listener.
    pub async fn pass(&mut self, force: bool) -> Result<PassReport> {
        let mut report = PassReport::default();
        self.run(&mut report, force, None).await?;
        self.watch = None;
        Ok(report)
    }

    /// Runs one pass of a daemon whose next pass starts at `until`: it ends by then, or earlier if no owner is
    /// settling. The next pass continues to watch owners without a heartbeat, so it should start immediately.
    ///
    /// # Errors
    /// Those of [`Janitor::pass`]. After an error all owners need two new checks.
    pub async fn pass_until(&mut self, until: Mono) -> Result<PassReport> {
        let mut report = PassReport::default();
        self.run(&mut report, false, Some(until)).await?;
        Ok(report)
    }

    async fn run(&mut self, report: &mut PassReport, force: bool, until: Option<Mono>) -> Result<()> {
        report.pass = format!("{:016x}", self.clock().entropy());
        self.resolve(report).await?;
        // Without a settle time a second attempt would see the same as the first.
        let mut left = if self.settings.settle.is_zero() { 0 } else { RESTARTS };
        let mut away_since = None;
        loop {
            let broken = match self.attempt(report, force, until).await {
                Ok(Attempt::Done) => return Ok(()),
                Ok(Attempt::Broken(broken)) => broken,
                Err(error) if is_transient(&error) && left > 0 && self.pending.is_none() => {
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
                "the store's health broke; removal pauses until it has held for the settle time"
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

    /// What a pass would remove now. One check, no wait. Writes nothing.
    ///
    /// # Errors
    /// Those of [`Janitor::pass`].
    pub async fn preview(&mut self) -> Result<Preview> {
        let survey = self.survey(None).await?;
        let dead = survey.owners.absent();
        let alive = survey.owners.len() - dead.len() as u64;
        let (record, now) = self.steps.brakes(BrakeCommand::Read).await?;
        let decision = brake::decide(&self.settings.brake, record.as_ref(), &dead, alive, now, false);
        Ok(Preview {
            scanned: survey.scanned,
            skipped: survey.skipped,
            skipped_first: survey.skipped_first,
            owners: survey.owners.len(),
            endless: survey.owners.with(HeartbeatState::Endless),
            dead,
            doomed: survey.doomed,
            braked: decision.braked,
        })
    }

    /// Deletes the janitor's marker and closes the connection. Returns how many entries may have been removed without
    /// being counted, because the store stayed unreachable.
    pub async fn close(mut self) -> u64 {
        let unsure = self.pending.take().map_or(0, |pending| pending.size());
        if let Err(error) = self.steps.forget().await {
            tracing::debug!(
                error = error.chain(),
                "cannot delete the marker; it stays until it expires"
            );
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

    pub(super) fn tell_scanned(&self, page: &Page) {
        let bytes: usize = page.iter().map(|(field, value)| field.len() + value.len()).sum();
        self.tell(&Notice::Scanned {
            entries: page.len() as u64,
            bytes: bytes as u64,
        });
    }

    /// One attempt. The watch survives only if no break occurs.
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
        // Also if no owner is due, because this can end the brake.
        let mut is_due = watch.is_due() || !watch.is_settling();
        loop {
            if is_due && let Some(broken) = self.evict_due(watch, report, force).await? {
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

    /// Evicts the entries of due owners, unless the brake holds them back.
    async fn evict_due(&mut self, watch: &mut Watch, report: &mut PassReport, force: bool) -> Result<Option<Break>> {
        let dead = match self.second_look(&watch.epoch, watch.due()).await? {
            Ok(dead) => dead,
            Err(broken) => return Ok(Some(broken)),
        };
        let (snapshot, _) = self.steps.check(&watch.epoch).await?;
        self.previous = Some((snapshot.clone(), watch.epoch.clone()));
        if let Some(broken) = watch.confirm(snapshot, &dead) {
            return Ok(Some(broken));
        }
        report.dead.extend(dead.clone());
        // Settling owners are silent as well: a mass death counts as one, however the passes divide it.
        let absent = watch.absent();
        let (decision, record) = self.ask_brake(&absent, watch.alive, force).await?;
        report.braked.clone_from(&decision.braked);
        let mut free = dead;
        free.retain(|owner, _| decision.free.contains_key(owner));
        if let Some(broken) = self.evict(watch, &free, report).await? {
            return Ok(Some(broken));
        }
        watch.forget(|owner| free.contains_key(owner));
        self.lift_brake(&decision, record).await?;
        self.tell(&Notice::Settled);
        report.quarantined = None;
        if watch.is_empty() {
            return Ok(None);
        }
        self.catch_up(watch).await
    }

    /// Starts a new epoch. Returns the break since the last one, if any.
    async fn begin(&mut self) -> Result<Result<Watch, Break>> {
        let epoch = format!("{:016x}", self.clock().entropy());
        let (mut base, before) = self.steps.begin(&epoch).await?;
        if let Some((previous, epoch)) = &self.previous {
            let fresh = base.arrived.since(previous.arrived) < MARKER_KEPT / 2;
            base.marker = !fresh || before.is_some_and(|before| before.starts_with(epoch.as_str()));
        }
        match &base.info {
            Some(info) if info.cluster => self.settings.heartbeat.check_slots(&self.settings.hash)?,
            None if !self.warned_no_info => {
                self.warned_no_info = true;
                tracing::warn!(
                    "the store denies INFO: a restart, a failover or keys evicted for lack of memory \
                     are detected only by a lost connection or lost data"
                );
            }
            _ => {}
        }
        let broken = self.broken_since_last_pass(&base);
        self.previous = Some((base.clone(), epoch.clone()));
        Ok(broken.map_or_else(|| Ok(Watch::begin(epoch, base)), Err))
    }

    /// With a settle time, a pass checks twice anyway. Without it, it must check what happened since the last pass.
    fn broken_since_last_pass(&self, base: &ServerSnapshot) -> Option<Break> {
        let (previous, _) = self.previous.as_ref().filter(|_| self.settings.settle.is_zero())?;
        match previous.broken_by(base) {
            // Between passes only the server's clock counts: our own may have been set.
            Some(Break::ClockJumped) if base.at >= previous.at => None,
            broken => broken,
        }
    }

    async fn ask_brake(
        &self,
        dead: &Dead,
        alive: u64,
        force: bool,
    ) -> Result<(BrakeDecision, Option<brake::BrakeRecord>)> {
        let (record, now) = self.steps.brakes(BrakeCommand::Read).await?;
        let mut decision = brake::decide(&self.settings.brake, record.as_ref(), dead, alive, now, force);
        if decision.record == RecordChange::Engage {
            let held: Vec<&Vec<u8>> = dead
                .keys()
                .filter(|owner| !decision.free.contains_key(*owner))
                .collect();
            let body = brake::BrakeRecord::body(held.into_iter());
            let replaces = record.as_ref().map_or(&[][..], |record| &record.raw);
            let kept = self.settings.brake.hold + brake::KEPT_AFTER;
            let (now_in_force, _) = self
                .steps
                .brakes(BrakeCommand::Engage {
                    body: &body,
                    replaces,
                    kept,
                })
                .await?;
            // If another janitor engaged first, its record counts.
            if let (Some(braked), Some(record)) = (&mut decision.braked, now_in_force) {
                braked.since = record.since;
                braked.until = record.since + self.settings.brake.hold;
            }
        }
        if let Some(braked) = &decision.braked {
            tracing::warn!(
                registry = text(&self.settings.hash),
                dead = braked.lapsed,
                alive = braked.present,
                since = %braked.since,
                until = %braked.until,
                "sweep_braked: too many owners appear dead at once; their entries are kept until then (--force overrides)"
            );
            self.tell(&Notice::Braked(braked));
        }
        Ok((decision, record))
    }

    /// Lifts the brake after the entries of the freed owners are removed.
    async fn lift_brake(&self, decision: &BrakeDecision, record: Option<brake::BrakeRecord>) -> Result<()> {
        if let (RecordChange::Lift(reason), Some(record)) = (&decision.record, record) {
            self.steps.brakes(BrakeCommand::Lift(&record.raw)).await?;
            tracing::info!(registry = text(&self.settings.hash), reason, "sweep_unbraked");
            self.tell(&Notice::Unbraked(reason));
        }
        Ok(())
    }
}
