//! The loop that keeps this process in sync with the mirrors. It reads their stamps, drains the outbox, applies
//! settings, records heartbeats that arrived while the hot store was unreachable, and requests heartbeats from other
//! processes.
//!
//! One statement polls the ledger for all rosters, more often while there is work: idle rosters cost a database almost
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use tenure_core::clock::{Mono, jitter};
use tenure_core::error::Result;
use tenure_core::id::{ProviderId, RosterName};
use tenure_core::ledger::provider::MAX_BATCH;
use tenure_core::ledger::{Overview, RosterSettings, Version};
use tenure_core::roster::{MirrorStatus, Overwrite};
use tenure_core::store::Health;
use tenure_core::sweep::BATCH;
use tenure_core::time::StoreTime;

use super::fallback::breaker::BreakerState;
use super::mirror_client::BULK;
use super::service::Inner;
use super::state::RosterState;
use super::status::Belief;
use super::trust::ReachEpoch;
use crate::loops::{FLOOR, LoopBody, LoopSettings, Loops, Turn, Waker};
use crate::meters;

/// The name of the loop.
pub(crate) const SYNC: &str = "roster_sync";
/// How many rosters are handled concurrently.
const AT_ONCE: usize = 16;
/// How soon an untrusted mirror is checked again.
const SOON: Duration = Duration::from_millis(200);
/// The longest interval between removals of rosters that the ledger does not know.
const FORGET: Duration = Duration::from_secs(5);
/// How often the outbox is counted while it cannot be drained.
const COUNT: Duration = Duration::from_secs(5);
/// How many members get another ttl in one step, and how many steps one turn makes.
const RETIME: (u32, usize) = (BATCH, 50);

/// The reach epoch of each mirror at the time of a poll; `None` while it was unreachable.
pub(super) type ReachEpochs = BTreeMap<RosterName, Option<ReachEpoch>>;

/// Starts the loop.
pub(super) fn start(inner: &Arc<Inner>, loops: &Loops) -> Result<Waker> {
    let settings = LoopSettings::new(SYNC, inner.settings().look);
    let inner = Arc::clone(inner);
    loops.start(settings, move || SyncLoop {
        ask_at: inner.clock().mono(),
        names: BTreeSet::new(),
        mirrors_away: 0,
        forget_at: inner.clock().mono(),
        count_at: inner.clock().mono(),
        inner: Arc::clone(&inner),
    })
}

struct SyncLoop {
    inner: Arc<Inner>,
    ask_at: Mono,
    /// The rosters that the ledger listed.
    names: BTreeSet<RosterName>,
    /// For how many mirrors an outage was logged.
    mirrors_away: usize,
    forget_at: Mono,
    count_at: Mono,
}

#[async_trait]
impl LoopBody for SyncLoop {
    async fn turn(&mut self) -> Result<Turn> {
        // The mirrors before the ledger: the poll then covers all writes that failed before the mirror answered.
        let mut stamps = self.inner.stamps().await;
        self.log_mirrors(&stamps);
        let asked = self.ask().await;
        let inner = &*self.inner;
        let known = inner.known();
        let rosters = known.len() as u64;
        let failed = stream::iter(known)
            .map(|state| {
                let stamp = stamps.remove(state.roster());
                async move { inner.sync(&state, stamp).await }
            })
            .buffer_unordered(AT_ONCE)
            .filter(|done| std::future::ready(done.is_err()))
            .count()
            .await as u64;
        let wanted = inner.want_heartbeats().await;
        let counted = self.count().await;
        let inner = &*self.inner;
        meters::roster_breaker(match inner.guard().status().breaker {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open(_) => 2,
        });
        let look = jitter(inner.clock(), inner.settings().look.mul_f64(0.9), 10);
        let all_believed = inner.known().iter().all(|state| state.mirror().is_believed());
        let next = if all_believed { look } else { look.min(SOON) };
        let next = next.min(self.ask_at.since(inner.clock().mono()));
        let ledger_failed = [&asked, &wanted, &counted].iter().filter(|done| done.is_err()).count() as u64;
        Ok(Turn {
            next: Some(next.max(FLOOR)),
            skipped: failed + ledger_failed,
            // Without the ledger the loop makes no progress.
            stalled: asked.is_err() || (rosters > 0 && failed == rosters),
        })
    }
}

impl SyncLoop {
    /// Polls the ledger, in one statement for all rosters, when due, and immediately for a mirror that is reachable
    /// again.
    async fn ask(&mut self) -> Result<()> {
        let inner = &*self.inner;
        let now = inner.clock().mono();
        if now < self.ask_at
            && !inner
                .known()
                .iter()
                .any(|state| state.mirror().trust().waits_for_drain())
        {
            return Ok(());
        }
        // After a failure the next poll comes as soon as after a change.
        self.ask_at = now + inner.settings().drain;
        let reach_epochs = inner.reach_epochs();
        let claimed = inner.claim_hot_store().await;
        let overview = inner.in_time(inner.ledger().overview()).await;
        if overview.is_ok() && inner.ledger().health() != Health::Up {
            // Its last write failed, and only a write shows whether it takes them again.
            let _ = inner.in_time(inner.ledger().next_version()).await;
        }
        let (health, place) = (inner.ledger().health(), inner.ledger().place());
        let now_polled = inner.clock().mono();
        inner.ledger_watch().polled(&overview, &health, &place, now_polled);
        let overview = overview?;
        claimed?;
        if now >= self.forget_at || !overview.rosters.keys().eq(&self.names) {
            self.forget_at = now + FORGET;
            self.names = overview.rosters.keys().cloned().collect();
            inner.discovered(&self.names);
        }
        let is_quiet = inner.take_overview(&overview, &reach_epochs, now);
        let every = match is_quiet && inner.guard().status().breaker == BreakerState::Closed {
            true => inner.settings().idle,
            false => inner.settings().drain,
        };
        self.ask_at = now + jitter(inner.clock(), every, 5);
        Ok(())
    }

    /// Logs one line for all mirrors that do not serve, and one when all serve again.
    fn log_mirrors(&mut self, stamps: &BTreeMap<RosterName, Result<MirrorStatus>>) {
        let mut failed = stamps
            .iter()
            .filter_map(|(roster, stamp)| Some((roster, stamp.as_ref().err()?)));
        let Some((roster, error)) = failed.next() else {
            if std::mem::take(&mut self.mirrors_away) > 0 {
                tracing::info!("the mirrors of all rosters are reachable again");
            }
            return;
        };
        let rosters = 1 + failed.count();
        if rosters > self.mirrors_away {
            tracing::warn!(rosters, %roster, error = error.chain(),
                "mirrors are unreachable; the ledger answers in their place");
            self.mirrors_away = rosters;
        }
    }

    async fn count(&mut self) -> Result<()> {
        let now = self.inner.clock().mono();
        if now < self.count_at || !self.inner.known().iter().any(|state| state.is_left_dirty()) {
            return Ok(());
        }
        self.count_at = now + COUNT;
        self.inner.count_dirty().await
    }
}

impl Inner {
    /// Reads the stamps of all mirrors.
    async fn stamps(&self) -> BTreeMap<RosterName, Result<MirrorStatus>> {
        stream::iter(self.known())
            .map(|state| async move { (state.roster().clone(), state.mirror().stamp().await) })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await
    }

    /// Applies a poll of the ledger made at `asked_at`, with the `reach_epochs` at that time. Returns whether there is
    /// nothing to do, so that the next poll may come later.
    fn take_overview(&self, overview: &Overview, reach_epochs: &ReachEpochs, asked_at: Mono) -> bool {
        let (mut is_quiet, mut is_wanted, mut expires) = (overview.wanted.is_empty(), false, false);
        for state in self.known() {
            is_wanted |= state.set_wanted(overview.wanted.contains(state.roster()));
            let Some(view) = overview.rosters.get(state.roster()) else {
                continue;
            };
            state.polled(view.settings, asked_at);
            state.set_seen_dirty(view.is_dirty);
            // A roster that was unknown at the time of the poll had not failed yet.
            let reach_epoch = reach_epochs
                .get(state.roster())
                .copied()
                .unwrap_or_else(|| Some(ReachEpoch::default()));
            if let Some(reach_epoch) = reach_epoch.filter(|_| !view.is_dirty) {
                state.mirror().trust().drained(reach_epoch, self.clock().mono());
                state.drained();
            }
            let next = view.next_expiry.map(|at| asked_at + at.since(overview.as_of));
            if state.expires(next, asked_at) {
                state.set_expiring();
                expires = true;
            }
            is_quiet &= !view.is_dirty && state.mirror().is_believed();
        }
        if is_wanted {
            self.wake_heartbeats();
        }
        if expires {
            self.wake_expiry_loop();
        }
        is_quiet
    }

    /// Handles one roster; `stamp` is the mirror's, if it was read in this turn. A step that fails is retried at the
    /// next turn and does not stop the others.
    async fn sync(&self, state: &RosterState, stamp: Option<Result<MirrorStatus>>) -> Result<()> {
        let stamp = match stamp {
            Some(stamp) => stamp,
            None => state.mirror().stamp().await,
        };
        if state.reconcile_reason().is_some() {
            self.wake_reconcile();
        }
        let settings = match &stamp {
            Ok(stamp) => self.sync_settings(state, stamp.settings).await,
            Err(_) => Ok(()),
        };
        let drained = match &stamp {
            Ok(_) if state.take_seen_dirty() => self.drain(state).await,
            Ok(_) => Ok(()),
            Err(_) => {
                state.leave_dirty();
                Ok(())
            }
        };
        let written = self.write_notes(state).await;
        self.export_metrics(state);
        self.compare_settings(state);
        stamp.map(drop).and(settings).and(drained).and(written)
    }

    async fn drain(&self, state: &RosterState) -> Result<()> {
        let (_, empty) = self.drain_outbox(state).await?;
        match empty {
            true => state.drained(),
            false => state.leave_dirty(),
        }
        Ok(())
    }

    /// Counts the outboxes that were not emptied, in one statement; skipped while the breaker is open.
    async fn count_dirty(&self) -> Result<()> {
        let counts = self.dirty_counts().await?;
        for state in self.known().iter().filter(|state| state.is_left_dirty()) {
            state.set_dirty(counts.get(state.roster()).copied().unwrap_or_default());
        }
        Ok(())
    }

    /// Compares the mirror's settings with the known ones; the newest win. If the mirror's are older, the ledger is
    /// asked, because the ledger may have lost data.
    async fn sync_settings(&self, state: &RosterState, there: Version) -> Result<()> {
        if state.settings().is_none_or(|known| known.version < there)
            && let Some(settings) = self.settings_in_mirror(state).await?
        {
            state.apply_if_newer(settings);
        }
        if state.settings().is_none_or(|known| known.version > there) {
            state.adopt(self.in_time(self.ledger().settings(state.roster())).await?);
        }
        let known = state.settings().unwrap_or_default();
        if known.version > there {
            self.mirror_settings(state, known).await;
        }
        // The ttl of members changes only after the mirror has the settings.
        match known.version == there {
            true => self.retime(state).await,
            false => Ok(()),
        }
    }

    /// Writes settings to the mirror. Returns whether it has them.
    pub(super) async fn mirror_settings(&self, state: &RosterState, settings: RosterSettings) -> bool {
        if state.mirror().is_away() {
            return false;
        }
        match self.put_settings(state, settings).await {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(roster = %state.roster(), error = error.chain(), "settings did not reach the mirror");
                false
            }
        }
    }

    /// Writes the ledger's settings to the mirror. If the mirror's are newer and the ledger's are confirmed to be
    /// older, the ledger has lost the end of its data, and its settings replace the mirror's.
    ///
    /// # Errors
    /// Those of the mirror and the ledger.
    pub(crate) async fn put_settings(&self, state: &RosterState, settings: RosterSettings) -> Result<()> {
        let mirror = state.mirror();
        let put = async |settings: RosterSettings, over: Overwrite| {
            let call = mirror.limits(mirror.patience());
            let put = mirror.api()?.put_roster_settings(mirror.group(), &settings, over, call);
            mirror.call(mirror.patience(), put).await
        };
        if put(settings, Overwrite::Older).await? {
            state.set_to_retime(true);
            return Ok(());
        }
        let there = self.settings_in_mirror(state).await?.unwrap_or_default();
        if there.version <= settings.version {
            return Ok(());
        }
        let settings = self.in_time(self.ledger().settings(state.roster())).await?;
        if settings.version < there.version && put(settings, Overwrite::Exactly(there.version)).await? {
            tracing::warn!(roster = %state.roster(),
                "the ledger's settings are older than the mirror's: the ledger has lost data; its settings replace the mirror's");
            state.adopt(settings);
            state.set_to_retime(true);
        }
        Ok(())
    }

    /// Gives a bounded number of members the ttl of the settings.
    async fn retime(&self, state: &RosterState) -> Result<()> {
        let mirror = state.mirror();
        let (limit, steps) = RETIME;
        for _ in 0..steps {
            if !state.is_to_retime() {
                return Ok(());
            }
            let step = mirror.api()?.retime(mirror.group(), limit, mirror.limits(BULK));
            let more = mirror.call(BULK, step).await?;
            state.set_to_retime(more);
        }
        Ok(())
    }

    /// Records heartbeats that arrived while the hot store was unreachable.
    async fn write_notes(&self, state: &RosterState) -> Result<()> {
        let stale_after = state.settings().unwrap_or_default().stale_after;
        let wait = self.settings().note.min(stale_after / 4);
        let notes = state.take_notes(wait, self.clock().mono());
        if notes.is_empty() {
            return Ok(());
        }
        let written = self.write_down(state, &notes).await;
        if written.is_err() {
            state.give_notes_back(notes);
        }
        written
    }

    async fn write_down(&self, state: &RosterState, notes: &BTreeMap<ProviderId, Mono>) -> Result<()> {
        let as_of = self.in_time(self.ledger().now()).await?;
        let now = self.clock().mono();
        let at = |heard: &Mono| as_of.minus(now.since(*heard));
        let heard: Vec<(ProviderId, StoreTime)> = notes.iter().map(|(who, when)| (who.clone(), at(when))).collect();
        for part in heard.chunks(MAX_BATCH) {
            let ledger = self.ledger();
            self.in_time(ledger.record_heartbeats(state.roster(), part)).await?;
        }
        Ok(())
    }

    /// Warns of a `stale_after` shorter than the delay of heartbeats in the ledger.
    fn compare_settings(&self, state: &RosterState) {
        let Some(settings) = state.settings_to_compare() else {
            return;
        };
        let (stale_after, interval) = (settings.stale_after, self.settings().sweeps.heartbeats);
        if settings.require_heartbeat && stale_after < interval {
            tracing::warn!(roster = %state.roster(), ?stale_after, ?interval,
                "stale_after is shorter than the interval at which heartbeats are recorded in the ledger: a process \
                 that alone loses the hot store for longer than stale_after depends on heartbeats that others record, \
                 and answers 503 until it has them");
        }
    }

    fn export_metrics(&self, state: &RosterState) {
        let now = self.clock().mono();
        let (status, label) = (state.status(now), state.mirror().label());
        meters::roster(&label, status.belief == Belief::Mirror, status.dirty);
        let ages = status.sweeps;
        let ages = [
            ("offline", ages.offline),
            ("heartbeats", ages.heartbeats),
            ("reconcile", ages.reconcile),
            ("expiry", ages.expiry),
        ];
        for (sweep, age) in ages {
            if let Some(age) = age {
                meters::roster_sweep_age(&label, sweep, age);
            }
        }
    }
}
