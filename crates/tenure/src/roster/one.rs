//! What this process knows of one roster: whether to believe its mirror, its settings, who was heard of while the hot
//! store was away, and how its sweeps stand. Holds no I/O but the gathering of heartbeats.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::id::{ProviderId, RosterName};
use tenure_core::ledger::{HeartbeatPass, RosterSettings, Version};
use tenure_core::roster::Stamp;
use tenure_core::time::StoreTime;

use super::answer::Availability;
use super::fallback::Mark;
use super::heartbeat::Hearts;
use super::line::Line;
use super::status::{RosterStatus, Sweep, SweepAges};
use super::trust::Wish;
use crate::batch::Gatherer;
use crate::meters;

/// Two looks at one moment of the ledger differ by less on our clock: replies take their time.
const SAME: Duration = Duration::from_millis(500);
/// The most heartbeats that wait to be written down; more are answered all the same and are not written.
const MAX_NOTES: usize = 200_000;

/// One roster. Shared by its handles, the loops and the sweeps.
pub(crate) struct One {
    line: Arc<Line>,
    heartbeats: Gatherer<Hearts>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    settings: Option<RosterSettings>,
    /// The ledger listed the roster when it was asked for it.
    listed: bool,
    /// The ledger's, and when it was polled for them.
    polled: Option<(Mono, RosterSettings)>,
    /// Members may have another ttl than the settings say.
    retime: bool,
    /// The settings that were last compared with the interval of the sweeps.
    compared: Option<Version>,
    used_at: Mono,
    /// When a write was last answered: reads of the ledger must have begun after it.
    wrote: Option<Mark>,
    /// Who was heard of and is not written down, and when on the local clock.
    notes: BTreeMap<ProviderId, Mono>,
    noted_at: Option<Mono>,
    /// Another process wants heartbeats in the ledger every few seconds.
    wanted: bool,
    /// This process wants them: since when the mark has stood without a break, and when it was made last.
    marked: Option<(Mono, Mono)>,
    /// The last pass, and when the ledger was asked for it.
    pass: Option<(Mono, Option<HeartbeatPass>)>,
    /// The count of this process while the ledger answers, and when it was asked for.
    counted: Option<(Mono, Availability)>,
    seen_dirty: bool,
    /// The outbox has more than was drained, or cannot be drained.
    left_dirty: bool,
    dirty: u64,
    divergence: Option<u64>,
    /// When the reconcile was done of which `divergence` tells, on the hot store's clock, as far as that is known.
    compared_at: Option<StoreTime>,
    swept: BTreeMap<Sweep, Mono>,
    /// An engagement was written down that may end earlier than the sweep knows.
    expiring: bool,
    /// When the first engagement expires, and when the ledger was asked for it.
    next_expiry: Option<(Mono, Option<Mono>)>,
    /// Heartbeats before this, on the hot store's clock, are in the ledger by this process.
    written_before: Option<StoreTime>,
}

impl One {
    pub(crate) fn new(line: Arc<Line>, heartbeats: Gatherer<Hearts>, now: Mono) -> Self {
        let state = State {
            used_at: now,
            ..State::default()
        };
        Self {
            line,
            heartbeats,
            state: Mutex::new(state),
        }
    }

    /// Which.
    pub(crate) fn roster(&self) -> &RosterName {
        self.line.roster()
    }

    /// The line to its mirror.
    pub(crate) fn line(&self) -> &Line {
        &self.line
    }

    pub(super) fn heartbeats(&self) -> &Gatherer<Hearts> {
        &self.heartbeats
    }

    /// Whether the ledger has the roster, as far as this process knows.
    pub(super) fn is_listed(&self) -> bool {
        self.line.is_known() || self.state().listed
    }

    pub(super) fn set_listed(&self) {
        self.state().listed = true;
    }

    // What the sweeps ask and say.

    /// Whether the mirror is to be compared with the ledger out of turn, and what makes it done.
    pub(crate) fn wish(&self) -> Option<Wish> {
        self.line.trust().wish()
    }

    /// A reconcile of this process went through all of both sides, and the mirror said this after it: belief may return.
    pub(crate) fn reconciled(&self, stamp: &Stamp, differences: u64, now: Mono) {
        self.line.trust().reconciled(stamp, now);
        let mut state = self.state();
        (state.divergence, state.compared_at) = (Some(differences), None);
        drop(state);
        meters::roster_reconciled(&self.line.label(), differences);
        self.swept(Sweep::Reconcile, now);
    }

    /// The last reconcile, of this process or another, was done then on the hot store's clock.
    pub(crate) fn last_reconciled(&self, done_at: StoreTime, now: Mono) {
        self.line.trust().reconciled_elsewhere(done_at, now);
        self.forget_divergence(done_at);
        self.swept(Sweep::Reconcile, now);
    }

    /// What this process found is old news once another has compared everything after it: whoever looks at all of them
    /// sees it there. Which reconcile was its own, the store does not say: the first that it hears of afterwards is.
    fn forget_divergence(&self, done_at: StoreTime) {
        let mut state = self.state();
        let newer = state.compared_at.is_some_and(|known| known < done_at);
        state.compared_at = Some(done_at);
        let forgotten = state.divergence.take_if(|_| newer);
        drop(state);
        if forgotten.is_some() {
            meters::roster_divergence(&self.line.label(), 0);
        }
    }

    /// A sweep was done well, by this process or another.
    pub(crate) fn swept(&self, sweep: Sweep, now: Mono) {
        self.state().swept.insert(sweep, now);
    }

    /// Whether engagements may end earlier than the sweep knows.
    pub(super) fn is_expiring(&self) -> bool {
        self.state().expiring
    }

    /// Asks the sweep to look into the ledger.
    pub(super) fn set_expiring(&self) {
        self.state().expiring = true;
    }

    /// Whether that was asked, once.
    pub(super) fn take_expiring(&self) -> bool {
        std::mem::take(&mut self.state().expiring)
    }

    /// The ledger, asked at `asked_at`, says when the first engagement expires. Answers whether that is sooner than the
    /// sweep knows, which then has to look.
    pub(super) fn expires(&self, next: Option<Mono>, asked_at: Mono) -> bool {
        let mut state = self.state();
        let known = state.next_expiry;
        if known.is_some_and(|(at, _)| at > asked_at) {
            return false;
        }
        state.next_expiry = Some((asked_at, next));
        let before = known.and_then(|(_, next)| next);
        next.is_some_and(|next| before.is_none_or(|before| next + SAME < before))
    }

    /// For how long no engagement expires, as told by a ledger that was asked less than `kept` ago.
    pub(super) fn expires_after(&self, kept: Duration, now: Mono) -> Option<Duration> {
        let (asked_at, next) = self.state().next_expiry?;
        let is_kept = now.since(asked_at) < kept;
        is_kept.then(|| next.map_or(Duration::MAX, |next| next.since(now)))
    }

    /// Since when heartbeats may not be in the ledger yet.
    pub(super) fn written_before(&self) -> Option<StoreTime> {
        self.state().written_before
    }

    pub(super) fn set_written_before(&self, at: StoreTime) {
        self.state().written_before = Some(at);
    }

    // Settings.

    /// The settings, as far as they are known.
    pub(crate) fn settings(&self) -> Option<RosterSettings> {
        self.state().settings
    }

    /// Takes settings over if they are newer, and answers whether they were.
    pub(super) fn obey(&self, settings: RosterSettings) -> bool {
        let mut state = self.state();
        let newer = state.settings.is_none_or(|known| known.version < settings.version);
        if newer {
            state.settings = Some(settings);
            state.retime = settings.version > Version::NONE;
        }
        newer
    }

    /// Takes the ledger's settings over, newer or not: it may have lost the end of its data.
    pub(super) fn adopt(&self, settings: RosterSettings) {
        let mut state = self.state();
        if state.settings.is_none_or(|known| known.version != settings.version) {
            state.settings = Some(settings);
            state.retime = settings.version > Version::NONE;
        }
    }

    /// The settings, if they have not been asked for by this way: to be compared once with how this process is run.
    pub(super) fn settings_to_compare(&self) -> Option<RosterSettings> {
        let mut state = self.state();
        let settings = state.settings?;
        let is_news = state.compared.replace(settings.version) != Some(settings.version);
        is_news.then_some(settings)
    }

    /// The ledger, asked at `asked_at`, has these. They are obeyed if they are newer.
    pub(super) fn polled(&self, settings: RosterSettings, asked_at: Mono) {
        self.obey(settings);
        self.state().polled = Some((asked_at, settings));
    }

    /// What the ledger has, newer than ours or not, if it was asked less than `kept` ago.
    pub(super) fn polled_settings(&self, kept: Duration, now: Mono) -> Option<RosterSettings> {
        let (asked_at, settings) = self.state().polled?;
        (now.since(asked_at) < kept).then_some(settings)
    }

    /// Whether members may have another ttl than the settings say.
    pub(super) fn is_to_retime(&self) -> bool {
        self.state().retime
    }

    pub(super) fn set_to_retime(&self, retime: bool) {
        self.state().retime = retime;
    }

    // Reads of the ledger.

    /// A write was answered.
    pub(super) fn wrote(&self, mark: Mark) {
        let mut state = self.state();
        state.wrote = state.wrote.max(Some(mark));
    }

    /// After which moment a read of the ledger must have begun.
    pub(super) fn last_write(&self) -> Option<Mark> {
        self.state().wrote
    }

    /// The count of this process, if it is younger than `age`.
    pub(super) fn counted(&self, age: Duration, now: Mono) -> Option<Availability> {
        let (at, counted) = self.state().counted?;
        (now.since(at) < age).then_some(counted)
    }

    pub(super) fn set_counted(&self, asked_at: Mono, counted: Availability) {
        let mut state = self.state();
        if state.counted.is_none_or(|(at, _)| at <= asked_at) {
            state.counted = Some((asked_at, counted));
        }
    }

    // Heartbeats that the ledger has to be told.

    /// A provider was heard of while the hot store was away.
    pub(super) fn note(&self, provider: &ProviderId, now: Mono) {
        let mut state = self.state();
        if state.notes.len() < MAX_NOTES || state.notes.contains_key(provider) {
            state.notes.insert(provider.clone(), now);
        }
    }

    /// Takes the notes to write them down, if the oldest may have waited for `wait`.
    pub(super) fn take_notes(&self, wait: Duration, now: Mono) -> BTreeMap<ProviderId, Mono> {
        let mut state = self.state();
        if state.notes.is_empty() || state.noted_at.is_some_and(|at| now.since(at) < wait) {
            return BTreeMap::new();
        }
        state.noted_at = Some(now);
        std::mem::take(&mut state.notes)
    }

    /// They could not be written; what was heard since is newer.
    pub(super) fn give_notes_back(&self, notes: BTreeMap<ProviderId, Mono>) {
        let mut state = self.state();
        for (provider, at) in notes {
            let kept = state.notes.entry(provider).or_insert(at);
            *kept = (*kept).max(at);
        }
    }

    // Heartbeats that a process without the hot store waits for.

    /// Whether another process wants them.
    pub(super) fn is_wanted(&self) -> bool {
        self.state().wanted
    }

    /// Whether that is news: it wants them and did not before.
    pub(super) fn set_wanted(&self, wanted: bool) -> bool {
        !std::mem::replace(&mut self.state().wanted, wanted) && wanted
    }

    /// For how long the mark of this process has stood.
    pub(super) fn marked_for(&self, now: Mono) -> Option<Duration> {
        self.state().marked.map(|(since, _)| now.since(since))
    }

    pub(super) fn mark_is_due(&self, every: Duration, now: Mono) -> bool {
        self.state().marked.is_none_or(|(_, at)| now.since(at) >= every)
    }

    /// The mark was made, and stands for `lasts`.
    pub(super) fn mark(&self, lasts: Duration, now: Mono) {
        let mut state = self.state();
        let stood = state.marked.filter(|(_, at)| now.since(*at) < lasts);
        state.marked = Some((stood.map_or(now, |(since, _)| since), now));
    }

    /// The mirror is believed again.
    pub(super) fn unmark(&self) {
        self.state().marked = None;
    }

    /// The last pass as it is known, if the ledger was asked less than `kept` ago.
    pub(super) fn pass(&self, kept: Duration, now: Mono) -> Option<Option<HeartbeatPass>> {
        let (at, pass) = self.state().pass?;
        let age = now.since(at);
        let older = |pass: HeartbeatPass| HeartbeatPass {
            age: pass.age + age,
            ..pass
        };
        (age < kept).then(|| pass.map(older))
    }

    pub(super) fn set_pass(&self, pass: Option<HeartbeatPass>, now: Mono) {
        self.state().pass = Some((now, pass));
    }

    // What the loop keeps in mind.

    /// Whether anybody has asked for it lately.
    pub(super) fn is_idle(&self, now: Mono, idle: Duration) -> bool {
        now.since(self.state().used_at) > idle
    }

    pub(super) fn used(&self, now: Mono) {
        self.state().used_at = now;
    }

    /// Whether the ledger had dirty rows when it was last asked.
    pub(super) fn set_seen_dirty(&self, dirty: bool) {
        self.state().seen_dirty = dirty;
    }

    /// Whether it had, once.
    pub(super) fn take_seen_dirty(&self) -> bool {
        std::mem::take(&mut self.state().seen_dirty)
    }

    /// Whether the outbox may have rows that were not counted lately.
    pub(super) fn is_left_dirty(&self) -> bool {
        self.state().left_dirty
    }

    pub(super) fn leave_dirty(&self) {
        self.state().left_dirty = true;
    }

    /// So many rows are in the outbox.
    pub(super) fn set_dirty(&self, dirty: u64) {
        self.state().dirty = dirty;
    }

    /// The outbox was drained to its end.
    pub(super) fn drained(&self) {
        let mut state = self.state();
        (state.dirty, state.left_dirty) = (0, false);
    }

    pub(super) fn dirty(&self) -> u64 {
        self.state().dirty
    }

    /// How it stands.
    pub(super) fn status(&self, now: Mono) -> RosterStatus {
        let (belief, away, since) = {
            let trust = self.line.trust();
            (trust.belief(), trust.is_away(), trust.untrusted_since())
        };
        let state = self.state();
        let age = |sweep: Sweep| state.swept.get(&sweep).map(|at| now.since(*at));
        RosterStatus {
            roster: self.roster().clone(),
            belief,
            untrusted_for: since.map(|since| now.since(since)),
            away,
            dirty: state.dirty,
            divergence: state.divergence,
            noted: state.notes.len() as u64,
            settings: state.settings.unwrap_or_default(),
            sweeps: SweepAges {
                offline: age(Sweep::Offline),
                heartbeats: age(Sweep::Heartbeats),
                reconcile: age(Sweep::Reconcile),
                expiry: age(Sweep::Expiry),
            },
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
