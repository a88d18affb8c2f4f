//! What this process knows of one roster: its settings, heartbeats to record, the outbox, and the state of its sweeps.
//! The only I/O is the batching of heartbeats.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::id::{ProviderId, RosterName};
use tenure_core::ledger::{HeartbeatPass, RosterSettings, Version};
use tenure_core::roster::MirrorStatus;
use tenure_core::time::StoreTime;

use super::answer::Availability;
use super::fallback::Moment;
use super::heartbeat::HeartbeatSender;
use super::mirror_client::MirrorClient;
use super::status::{RosterStatus, Sweep, SweepAges};
use super::trust::ReconcileReason;
use crate::batch::Batcher;
use crate::meters;

/// Two reads of the same expiry time differ by less than this on the local clock, because of latency.
const SAME: Duration = Duration::from_millis(500);
/// The most heartbeats that wait to be recorded in the ledger. More are answered but not recorded.
const MAX_NOTES: usize = 200_000;

/// The state of one roster. Shared by its handles, the loops and the sweeps.
pub(crate) struct RosterState {
    mirror: Arc<MirrorClient>,
    heartbeats: Batcher<HeartbeatSender>,
    facts: Mutex<RosterFacts>,
}

#[derive(Default)]
struct RosterFacts {
    settings: Option<RosterSettings>,
    /// The ledger listed the roster when it was read.
    listed: bool,
    /// The settings in the ledger, and when they were polled.
    polled: Option<(Mono, RosterSettings)>,
    /// Members may have another ttl than the settings require.
    retime: bool,
    /// The settings that were last compared with the intervals of the sweeps.
    compared: Option<Version>,
    used_at: Mono,
    /// When the last write was answered: a read of the ledger must begin after it.
    wrote: Option<Moment>,
    /// Heartbeats to record in the ledger, with their time on the local clock.
    notes: BTreeMap<ProviderId, Mono>,
    noted_at: Option<Mono>,
    /// Another process needs heartbeats in the ledger every few seconds.
    wanted: bool,
    /// This process needs them: since when its mark has stood without a break, and when it was last renewed.
    marked: Option<(Mono, Mono)>,
    /// The last heartbeat pass, and when it was read from the ledger.
    pass: Option<(Mono, Option<HeartbeatPass>)>,
    /// This process's count from the ledger, and when it was read.
    counted: Option<(Mono, Availability)>,
    seen_dirty: bool,
    /// The outbox has rows that were not drained.
    left_dirty: bool,
    dirty: u64,
    divergence: Option<u64>,
    /// When the reconcile behind `divergence` finished, on the hot store's clock, if known.
    compared_at: Option<StoreTime>,
    swept: BTreeMap<Sweep, Mono>,
    /// An engagement was written that may end before the sweep's next visit.
    expiring: bool,
    /// When the next engagement expires, and when that was read from the ledger.
    next_expiry: Option<(Mono, Option<Mono>)>,
    /// When old closed engagements were last removed.
    pruned_at: Option<Mono>,
    /// This process has recorded all heartbeats before this time on the hot store's clock.
    written_before: Option<StoreTime>,
}

impl RosterState {
    pub(crate) fn new(mirror: Arc<MirrorClient>, heartbeats: Batcher<HeartbeatSender>, now: Mono) -> Self {
        let facts = RosterFacts {
            used_at: now,
            ..RosterFacts::default()
        };
        Self {
            mirror,
            heartbeats,
            facts: Mutex::new(facts),
        }
    }

    pub(crate) fn roster(&self) -> &RosterName {
        self.mirror.roster()
    }

    pub(crate) fn mirror(&self) -> &MirrorClient {
        &self.mirror
    }

    pub(super) fn heartbeats(&self) -> &Batcher<HeartbeatSender> {
        &self.heartbeats
    }

    /// Whether the ledger has the roster, as far as this process knows.
    pub(super) fn is_listed(&self) -> bool {
        self.mirror.is_known() || self.facts().listed
    }

    pub(super) fn set_listed(&self) {
        self.facts().listed = true;
    }

    // For the sweeps.

    /// Why the mirror needs a reconcile before the next regular one.
    pub(crate) fn reconcile_reason(&self) -> Option<ReconcileReason> {
        self.mirror.trust().reconcile_reason()
    }

    /// This process has finished a reconcile, after which the mirror returned this stamp. The mirror may be trusted
    /// again.
    pub(crate) fn reconciled(&self, stamp: &MirrorStatus, differences: u64, now: Mono) {
        self.mirror.trust().reconciled(stamp, now);
        let mut facts = self.facts();
        (facts.divergence, facts.compared_at) = (Some(differences), None);
        drop(facts);
        meters::roster_reconciled(&self.mirror.label(), differences);
        self.swept(Sweep::Reconcile, now);
    }

    /// The last reconcile, of this or another process, finished then on the hot store's clock.
    pub(crate) fn last_reconciled(&self, done_at: StoreTime, now: Mono) {
        self.mirror.trust().reconciled_elsewhere(done_at, now);
        self.forget_divergence(done_at);
        self.swept(Sweep::Reconcile, now);
    }

    /// A count of differences expires once another process has finished a later reconcile: its metric shows the newer
    /// count. The store does not name the reconcile's process; the first finish time seen after a reconcile of its own
    /// counts as its own.
    fn forget_divergence(&self, done_at: StoreTime) {
        let mut facts = self.facts();
        let newer = facts.compared_at.is_some_and(|known| known < done_at);
        facts.compared_at = Some(done_at);
        let forgotten = facts.divergence.take_if(|_| newer);
        drop(facts);
        if forgotten.is_some() {
            meters::roster_divergence(&self.mirror.label(), 0);
        }
    }

    /// This or another process completed a sweep.
    pub(crate) fn swept(&self, sweep: Sweep, now: Mono) {
        self.facts().swept.insert(sweep, now);
    }

    /// Whether an engagement may end before the sweep's next visit.
    pub(super) fn is_expiring(&self) -> bool {
        self.facts().expiring
    }

    /// Asks the sweep to visit the ledger early.
    pub(super) fn set_expiring(&self) {
        self.facts().expiring = true;
    }

    /// Whether that was asked; resets it.
    pub(super) fn take_expiring(&self) -> bool {
        std::mem::take(&mut self.facts().expiring)
    }

    /// Records the next expiry in the ledger as of `asked_at`. Returns whether it is sooner than known, so that the
    /// sweep must visit early.
    pub(super) fn expires(&self, next: Option<Mono>, asked_at: Mono) -> bool {
        let mut facts = self.facts();
        let known = facts.next_expiry;
        if known.is_some_and(|(at, _)| at > asked_at) {
            return false;
        }
        facts.next_expiry = Some((asked_at, next));
        let before = known.and_then(|(_, next)| next);
        next.is_some_and(|next| before.is_none_or(|before| next + SAME < before))
    }

    /// How long no engagement expires, by a ledger read less than `kept` ago.
    pub(super) fn expires_after(&self, kept: Duration, now: Mono) -> Option<Duration> {
        let (asked_at, next) = self.facts().next_expiry?;
        let is_kept = now.since(asked_at) < kept;
        is_kept.then(|| next.map_or(Duration::MAX, |next| next.since(now)))
    }

    /// Whether old closed engagements were not removed for `every`; counts as done.
    pub(super) fn take_prune(&self, every: Duration, now: Mono) -> bool {
        let mut facts = self.facts();
        let is_due = facts.pruned_at.is_none_or(|at| now.since(at) >= every);
        if is_due {
            facts.pruned_at = Some(now);
        }
        is_due
    }

    /// Since when heartbeats may not be recorded in the ledger.
    pub(super) fn written_before(&self) -> Option<StoreTime> {
        self.facts().written_before
    }

    pub(super) fn set_written_before(&self, at: StoreTime) {
        self.facts().written_before = Some(at);
    }

    // Settings.

    /// The settings, if known.
    pub(crate) fn settings(&self) -> Option<RosterSettings> {
        self.facts().settings
    }

    /// Adopts settings if they are newer. Returns whether they were.
    pub(super) fn apply_if_newer(&self, settings: RosterSettings) -> bool {
        let mut facts = self.facts();
        let newer = facts.settings.is_none_or(|known| known.version < settings.version);
        if newer {
            facts.settings = Some(settings);
            facts.retime = settings.version > Version::NONE;
        }
        newer
    }

    /// Adopts the ledger's settings, newer or not: the ledger may have lost the end of its data.
    pub(super) fn adopt(&self, settings: RosterSettings) {
        let mut facts = self.facts();
        if facts.settings.is_none_or(|known| known.version != settings.version) {
            facts.settings = Some(settings);
            facts.retime = settings.version > Version::NONE;
        }
    }

    /// The settings, once per version: for the comparison with the intervals of the sweeps.
    pub(super) fn settings_to_compare(&self) -> Option<RosterSettings> {
        let mut facts = self.facts();
        let settings = facts.settings?;
        let is_news = facts.compared.replace(settings.version) != Some(settings.version);
        is_news.then_some(settings)
    }

    /// Records the settings in the ledger as of `asked_at`, and adopts them if they are newer.
    pub(super) fn polled(&self, settings: RosterSettings, asked_at: Mono) {
        self.apply_if_newer(settings);
        self.facts().polled = Some((asked_at, settings));
    }

    /// The settings in the ledger, if read less than `kept` ago.
    pub(super) fn polled_settings(&self, kept: Duration, now: Mono) -> Option<RosterSettings> {
        let (asked_at, settings) = self.facts().polled?;
        (now.since(asked_at) < kept).then_some(settings)
    }

    /// Whether members may have another ttl than the settings require.
    pub(super) fn is_to_retime(&self) -> bool {
        self.facts().retime
    }

    pub(super) fn set_to_retime(&self, retime: bool) {
        self.facts().retime = retime;
    }

    // Reads of the ledger.

    /// A write was answered.
    pub(super) fn wrote(&self, at: Moment) {
        let mut facts = self.facts();
        facts.wrote = facts.wrote.max(Some(at));
    }

    /// The moment after which a read of the ledger must begin.
    pub(super) fn last_write(&self) -> Option<Moment> {
        self.facts().wrote
    }

    /// This process's count, if it is younger than `age`.
    pub(super) fn counted(&self, age: Duration, now: Mono) -> Option<Availability> {
        let (at, counted) = self.facts().counted?;
        (now.since(at) < age).then_some(counted)
    }

    pub(super) fn set_counted(&self, asked_at: Mono, counted: Availability) {
        let mut facts = self.facts();
        if facts.counted.is_none_or(|(at, _)| at <= asked_at) {
            facts.counted = Some((asked_at, counted));
        }
    }

    // Heartbeats to record in the ledger.

    /// Notes a heartbeat that arrived while the hot store was unreachable.
    pub(super) fn note(&self, provider: &ProviderId, now: Mono) {
        let mut facts = self.facts();
        if facts.notes.len() < MAX_NOTES || facts.notes.contains_key(provider) {
            facts.notes.insert(provider.clone(), now);
        }
    }

    /// Takes the noted heartbeats, if the last batch was taken at least `wait` ago.
    pub(super) fn take_notes(&self, wait: Duration, now: Mono) -> BTreeMap<ProviderId, Mono> {
        let mut facts = self.facts();
        if facts.notes.is_empty() || facts.noted_at.is_some_and(|at| now.since(at) < wait) {
            return BTreeMap::new();
        }
        facts.noted_at = Some(now);
        std::mem::take(&mut facts.notes)
    }

    /// Returns heartbeats that could not be recorded; newer ones stay.
    pub(super) fn give_notes_back(&self, notes: BTreeMap<ProviderId, Mono>) {
        let mut facts = self.facts();
        for (provider, at) in notes {
            let kept = facts.notes.entry(provider).or_insert(at);
            *kept = (*kept).max(at);
        }
    }

    // Heartbeats for a process that cannot reach the hot store.

    /// Whether another process needs them.
    pub(super) fn is_wanted(&self) -> bool {
        self.facts().wanted
    }

    /// Returns whether another process began to need them just now.
    pub(super) fn set_wanted(&self, wanted: bool) -> bool {
        !std::mem::replace(&mut self.facts().wanted, wanted) && wanted
    }

    /// For how long this process's mark has stood.
    pub(super) fn marked_for(&self, now: Mono) -> Option<Duration> {
        self.facts().marked.map(|(since, _)| now.since(since))
    }

    pub(super) fn mark_is_due(&self, every: Duration, now: Mono) -> bool {
        self.facts().marked.is_none_or(|(_, at)| now.since(at) >= every)
    }

    /// Records that the mark was renewed and stands for `lasts`.
    pub(super) fn mark(&self, lasts: Duration, now: Mono) {
        let mut facts = self.facts();
        let stood = facts.marked.filter(|(_, at)| now.since(*at) < lasts);
        facts.marked = Some((stood.map_or(now, |(since, _)| since), now));
    }

    /// The mirror is trusted again.
    pub(super) fn unmark(&self) {
        self.facts().marked = None;
    }

    /// The last pass with its present age, if read less than `kept` ago.
    pub(super) fn pass(&self, kept: Duration, now: Mono) -> Option<Option<HeartbeatPass>> {
        let (at, pass) = self.facts().pass?;
        let age = now.since(at);
        let older = |pass: HeartbeatPass| HeartbeatPass {
            age: pass.age + age,
            ..pass
        };
        (age < kept).then(|| pass.map(older))
    }

    pub(super) fn set_pass(&self, pass: Option<HeartbeatPass>, now: Mono) {
        self.facts().pass = Some((now, pass));
    }

    // Use and outbox.

    /// Whether no caller has used the roster for `idle`.
    pub(super) fn is_idle(&self, now: Mono, idle: Duration) -> bool {
        now.since(self.facts().used_at) > idle
    }

    pub(super) fn used(&self, now: Mono) {
        self.facts().used_at = now;
    }

    /// Records whether the ledger had unmirrored rows when it was read.
    pub(super) fn set_seen_dirty(&self, dirty: bool) {
        self.facts().seen_dirty = dirty;
    }

    /// Whether it had; resets it.
    pub(super) fn take_seen_dirty(&self) -> bool {
        std::mem::take(&mut self.facts().seen_dirty)
    }

    /// Whether the outbox may have rows that were not counted lately.
    pub(super) fn is_left_dirty(&self) -> bool {
        self.facts().left_dirty
    }

    pub(super) fn leave_dirty(&self) {
        self.facts().left_dirty = true;
    }

    /// Records the number of rows in the outbox.
    pub(super) fn set_dirty(&self, dirty: u64) {
        self.facts().dirty = dirty;
    }

    /// The outbox is empty.
    pub(super) fn drained(&self) {
        let mut facts = self.facts();
        (facts.dirty, facts.left_dirty) = (0, false);
    }

    pub(super) fn dirty(&self) -> u64 {
        self.facts().dirty
    }

    /// The status for `readyz` and alerts.
    pub(super) fn status(&self, now: Mono) -> RosterStatus {
        let (belief, away, since) = {
            let trust = self.mirror.trust();
            (trust.belief(), trust.is_away(), trust.untrusted_since())
        };
        let facts = self.facts();
        let age = |sweep: Sweep| facts.swept.get(&sweep).map(|at| now.since(*at));
        RosterStatus {
            roster: self.roster().clone(),
            belief,
            untrusted_for: since.map(|since| now.since(since)),
            away,
            dirty: facts.dirty,
            divergence: facts.divergence,
            noted: facts.notes.len() as u64,
            settings: facts.settings.unwrap_or_default(),
            sweeps: SweepAges {
                offline: age(Sweep::Offline),
                heartbeats: age(Sweep::Heartbeats),
                reconcile: age(Sweep::Reconcile),
                expiry: age(Sweep::Expiry),
            },
        }
    }

    fn facts(&self) -> MutexGuard<'_, RosterFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
