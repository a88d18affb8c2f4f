//! The loop that keeps this process in step with the mirrors: it looks whether they are there and what they say of
//! themselves, drains the outbox, obeys settings, writes down heartbeats that came while the hot store was away, and
//! passes heartbeats on to processes without the hot store.
//!
//! The ledger is polled for all rosters in one statement, and more often while something is to be done: a fleet of idle
//! rosters costs a database next to nothing.

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
use tenure_core::roster::{Over, Stamp};
use tenure_core::sweep::BATCH;
use tenure_core::time::StoreTime;

use super::fallback::breaker::BreakerState;
use super::line::BULK;
use super::one::One;
use super::service::Inner;
use super::status::Belief;
use super::trust::Reach;
use crate::loops::{FLOOR, LoopBody, LoopSettings, Loops, Turn, Waker};
use crate::meters;

/// The name of the loop.
pub(crate) const SYNC: &str = "roster_sync";
/// How many rosters are looked at at once.
const AT_ONCE: usize = 16;
/// How soon to look again at a mirror that is not believed.
const SOON: Duration = Duration::from_millis(200);
/// How often rosters that the ledger does not know are forgotten, at the latest.
const FORGET: Duration = Duration::from_secs(5);
/// How often the outbox is counted while it cannot be drained.
const COUNT: Duration = Duration::from_secs(5);
/// How many members get another ttl in one step, and how many steps one turn makes.
const RETIME: (u32, usize) = (BATCH, 50);

/// For each roster, in which stretch its mirror was reached when the ledger was asked; `None` while it was away.
pub(super) type Reaches = BTreeMap<RosterName, Option<Reach>>;

/// Starts it.
pub(super) fn start(inner: &Arc<Inner>, loops: &Loops) -> Result<Waker> {
    let settings = LoopSettings::new(SYNC, inner.settings().look);
    let inner = Arc::clone(inner);
    loops.start(settings, move || Sync {
        ask_at: inner.clock().mono(),
        names: BTreeSet::new(),
        mirrors_away: 0,
        forget_at: inner.clock().mono(),
        count_at: inner.clock().mono(),
        inner: Arc::clone(&inner),
    })
}

struct Sync {
    inner: Arc<Inner>,
    ask_at: Mono,
    /// The rosters that the ledger has told of.
    names: BTreeSet<RosterName>,
    /// Of how many mirrors it was said that they are away.
    mirrors_away: usize,
    forget_at: Mono,
    count_at: Mono,
}

#[async_trait]
impl LoopBody for Sync {
    async fn turn(&mut self) -> Result<Turn> {
        // The mirrors before the ledger: what the ledger tells then covers all that failed before the mirror answered.
        let mut stamps = self.inner.stamps().await;
        self.tell_of_mirrors(&stamps);
        let asked = self.ask().await;
        let inner = &*self.inner;
        let known = inner.known();
        let rosters = known.len() as u64;
        let failed = stream::iter(known)
            .map(|one| {
                let stamp = stamps.remove(one.roster());
                async move { inner.sync(&one, stamp).await }
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
        let all_believed = inner.known().iter().all(|one| one.line().is_believed());
        let next = if all_believed { look } else { look.min(SOON) };
        let next = next.min(self.ask_at.since(inner.clock().mono()));
        let ledger_failed = [&asked, &wanted, &counted].iter().filter(|done| done.is_err()).count() as u64;
        Ok(Turn {
            next: Some(next.max(FLOOR)),
            skipped: failed + ledger_failed,
            // Without the ledger nothing here gets on.
            stalled: asked.is_err() || (rosters > 0 && failed == rosters),
        })
    }
}

impl Sync {
    /// Polls the ledger: one statement for all rosters, when it is due, and at once for a mirror that is back.
    async fn ask(&mut self) -> Result<()> {
        let inner = &*self.inner;
        let now = inner.clock().mono();
        if now < self.ask_at && !inner.known().iter().any(|one| one.line().trust().waits_for_drain()) {
            return Ok(());
        }
        // While it fails it is asked again as after a change.
        self.ask_at = now + inner.settings().drain;
        let reaches = inner.reaches();
        let overview = inner.in_time(inner.ledger().overview()).await;
        let place = inner.ledger().place();
        inner.ledger_watch().polled(&overview, &place, inner.clock().mono());
        let overview = overview?;
        if now >= self.forget_at || !overview.rosters.keys().eq(&self.names) {
            self.forget_at = now + FORGET;
            self.names = overview.rosters.keys().cloned().collect();
            inner.discovered(&self.names);
        }
        let is_quiet = inner.take_overview(&overview, &reaches, now);
        let every = match is_quiet && inner.guard().status().breaker == BreakerState::Closed {
            true => inner.settings().idle,
            false => inner.settings().drain,
        };
        self.ask_at = now + jitter(inner.clock(), every, 5);
        Ok(())
    }

    /// One line for all mirrors that do not serve, and one when all are back.
    fn tell_of_mirrors(&mut self, stamps: &BTreeMap<RosterName, Result<Stamp>>) {
        let mut failed = stamps
            .iter()
            .filter_map(|(roster, stamp)| Some((roster, stamp.as_ref().err()?)));
        let Some((roster, error)) = failed.next() else {
            if std::mem::take(&mut self.mirrors_away) > 0 {
                tracing::info!("the mirrors of all rosters serve again");
            }
            return;
        };
        let rosters = 1 + failed.count();
        if rosters > self.mirrors_away {
            tracing::warn!(rosters, %roster, error = error.chain(),
                "the mirrors of rosters do not serve; the ledger answers for them");
            self.mirrors_away = rosters;
        }
    }

    async fn count(&mut self) -> Result<()> {
        let now = self.inner.clock().mono();
        if now < self.count_at || !self.inner.known().iter().any(|one| one.is_left_dirty()) {
            return Ok(());
        }
        self.count_at = now + COUNT;
        self.inner.count_dirty().await
    }
}

impl Inner {
    /// What the mirrors say of themselves.
    async fn stamps(&self) -> BTreeMap<RosterName, Result<Stamp>> {
        stream::iter(self.known())
            .map(|one| async move { (one.roster().clone(), one.line().stamp().await) })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await
    }

    /// Takes in how the rosters stand in the ledger, which was asked at `asked_at` when the mirrors had been reached since
    /// `reaches`. Answers whether nothing is to be done: the ledger may then be asked less often.
    fn take_overview(&self, overview: &Overview, reaches: &Reaches, asked_at: Mono) -> bool {
        let (mut is_quiet, mut is_wanted, mut expires) = (overview.wanted.is_empty(), false, false);
        for one in self.known() {
            is_wanted |= one.set_wanted(overview.wanted.contains(one.roster()));
            let Some(view) = overview.rosters.get(one.roster()) else {
                continue;
            };
            one.polled(view.settings, asked_at);
            one.set_seen_dirty(view.is_dirty);
            // A roster that was unknown when the ledger was asked had not failed yet.
            let reach = reaches
                .get(one.roster())
                .copied()
                .unwrap_or_else(|| Some(Reach::default()));
            if let Some(reach) = reach.filter(|_| !view.is_dirty) {
                one.line().trust().drained(reach, self.clock().mono());
                one.drained();
            }
            let next = view.next_expiry.map(|at| asked_at + at.since(overview.as_of));
            if one.expires(next, asked_at) {
                one.set_expiring();
                expires = true;
            }
            is_quiet &= !view.is_dirty && one.line().is_believed();
        }
        if is_wanted {
            self.wake_heartbeats();
        }
        if expires {
            self.wake_expiry_loop();
        }
        is_quiet
    }

    /// Looks after one roster, whose mirror has said this if it was asked in this turn. What fails is tried again at the
    /// next turn; the rest is done all the same.
    async fn sync(&self, one: &One, stamp: Option<Result<Stamp>>) -> Result<()> {
        let stamp = match stamp {
            Some(stamp) => stamp,
            None => one.line().stamp().await,
        };
        if one.wish().is_some() {
            self.wake_reconcile();
        }
        let settings = match &stamp {
            Ok(stamp) => self.obey(one, stamp.settings).await,
            Err(_) => Ok(()),
        };
        let drained = match &stamp {
            Ok(_) if one.take_seen_dirty() => self.drain(one).await,
            Ok(_) => Ok(()),
            Err(_) => {
                one.leave_dirty();
                Ok(())
            }
        };
        let written = self.write_notes(one).await;
        self.tell(one);
        self.compare_settings(one);
        stamp.map(drop).and(settings).and(drained).and(written)
    }

    async fn drain(&self, one: &One) -> Result<()> {
        let (_, empty) = self.drain_outbox(one).await?;
        match empty {
            true => one.drained(),
            false => one.leave_dirty(),
        }
        Ok(())
    }

    /// Counts the outboxes that were not drained to their end: one statement for all, and none while the ledger is left
    /// alone.
    async fn count_dirty(&self) -> Result<()> {
        let counts = self.dirty_counts().await?;
        for one in self.known().iter().filter(|one| one.is_left_dirty()) {
            one.set_dirty(counts.get(one.roster()).copied().unwrap_or_default());
        }
        Ok(())
    }

    /// Compares the settings of the mirror with ours, and lets the newest win. Where the mirror's are older than ours the
    /// ledger is asked: it may be the ledger that went back.
    async fn obey(&self, one: &One, there: Version) -> Result<()> {
        if one.settings().is_none_or(|known| known.version < there)
            && let Some(settings) = self.settings_in_mirror(one).await?
        {
            one.obey(settings);
        }
        if one.settings().is_none_or(|known| known.version > there) {
            one.adopt(self.in_time(self.ledger().settings(one.roster())).await?);
        }
        let known = one.settings().unwrap_or_default();
        if known.version > there {
            self.mirror_settings(one, known).await;
        }
        // What is not there yet is nobody's ttl.
        match known.version == there {
            true => self.retime(one).await,
            false => Ok(()),
        }
    }

    /// Gives the mirror settings; answers whether it has them.
    pub(super) async fn mirror_settings(&self, one: &One, settings: RosterSettings) -> bool {
        if one.line().is_away() {
            return false;
        }
        match self.put_settings(one, settings).await {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(roster = %one.roster(), error = error.chain(), "settings did not reach the mirror");
                false
            }
        }
    }

    /// Gives the mirror the ledger's settings. Where the mirror has newer ones and the ledger still has not, the ledger has
    /// lost the end of its data, and wins all the same.
    ///
    /// # Errors
    /// Those of the mirror and the ledger.
    pub(crate) async fn put_settings(&self, one: &One, settings: RosterSettings) -> Result<()> {
        let line = one.line();
        let put = async |settings: RosterSettings, over: Over| {
            let call = line.limits(line.patience());
            let put = line.mirror()?.put_roster_settings(line.group(), &settings, over, call);
            line.ask(line.patience(), put).await
        };
        if put(settings, Over::Older).await? {
            one.set_to_retime(true);
            return Ok(());
        }
        let there = self.settings_in_mirror(one).await?.unwrap_or_default();
        if there.version <= settings.version {
            return Ok(());
        }
        let settings = self.in_time(self.ledger().settings(one.roster())).await?;
        if settings.version < there.version && put(settings, Over::Exactly(there.version)).await? {
            tracing::warn!(roster = %one.roster(), "the ledger's settings are older than the mirror's, and win");
            one.adopt(settings);
            one.set_to_retime(true);
        }
        Ok(())
    }

    /// Gives members the ttl of the settings, a bounded number of them.
    async fn retime(&self, one: &One) -> Result<()> {
        let line = one.line();
        let (limit, steps) = RETIME;
        for _ in 0..steps {
            if !one.is_to_retime() {
                return Ok(());
            }
            let step = line.mirror()?.retime(line.group(), limit, line.limits(BULK));
            let more = line.ask(BULK, step).await?;
            one.set_to_retime(more);
        }
        Ok(())
    }

    /// Writes down who was heard of while the hot store was away.
    async fn write_notes(&self, one: &One) -> Result<()> {
        let stale_after = one.settings().unwrap_or_default().stale_after;
        let wait = self.settings().note.min(stale_after / 4);
        let notes = one.take_notes(wait, self.clock().mono());
        if notes.is_empty() {
            return Ok(());
        }
        let written = self.write_down(one, &notes).await;
        if written.is_err() {
            one.give_notes_back(notes);
        }
        written
    }

    async fn write_down(&self, one: &One, notes: &BTreeMap<ProviderId, Mono>) -> Result<()> {
        let as_of = self.in_time(self.ledger().now()).await?;
        let now = self.clock().mono();
        let at = |heard: &Mono| as_of.minus(now.since(*heard));
        let heard: Vec<(ProviderId, StoreTime)> = notes.iter().map(|(who, when)| (who.clone(), at(when))).collect();
        for part in heard.chunks(MAX_BATCH) {
            let ledger = self.ledger();
            self.in_time(ledger.record_heartbeats(one.roster(), part)).await?;
        }
        Ok(())
    }

    /// Warns of a `stale_after` for which the ledger alone is too far behind.
    fn compare_settings(&self, one: &One) {
        let Some(settings) = one.settings_to_compare() else {
            return;
        };
        let (stale_after, interval) = (settings.stale_after, self.settings().sweeps.heartbeats);
        if settings.require_heartbeat && stale_after < interval {
            tracing::warn!(roster = %one.roster(), ?stale_after, ?interval,
                "stale_after is shorter than the interval at which heartbeats are written down in the ledger: a process \
                 that alone loses the hot store for longer than stale_after depends on what others write down for it, \
                 and answers 503 until it has that");
        }
    }

    fn tell(&self, one: &One) {
        let now = self.clock().mono();
        let (status, label) = (one.status(now), one.line().label());
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
