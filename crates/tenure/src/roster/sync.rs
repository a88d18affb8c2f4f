//! The loop that keeps this process in step with the mirrors: it looks whether they are there and what they say of
//! themselves, drains the outbox, obeys settings, writes down heartbeats that came while the hot store was away, and
//! passes heartbeats on to processes without the hot store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use tenure_core::clock::{Mono, jitter};
use tenure_core::error::Result;
use tenure_core::id::ProviderId;
use tenure_core::ledger::provider::MAX_BATCH;
use tenure_core::ledger::{RosterSettings, Version};
use tenure_core::roster::Over;
use tenure_core::store::Call;
use tenure_core::sweep::BATCH;
use tenure_core::time::StoreTime;

use super::fallback::breaker::BreakerState;
use super::freshness;
use super::line::BULK;
use super::one::One;
use super::service::Inner;
use super::status::Belief;
use crate::loops::{FLOOR, LoopBody, LoopSettings, Loops, Turn, Waker};
use crate::meters;

/// The name of the loop.
pub(crate) const SYNC: &str = "roster_sync";
/// How many rosters are looked at at once.
const AT_ONCE: usize = 16;
/// How soon to look again at a mirror that is not believed.
const SOON: Duration = Duration::from_millis(200);
/// How often the outbox is counted while it cannot be drained.
const COUNT: Duration = Duration::from_secs(5);
/// How many members get another ttl in one step, and how many steps one turn makes.
const RETIME: (u32, usize) = (BATCH, 50);

/// Starts it.
pub(super) fn start(inner: &Arc<Inner>, loops: &Loops) -> Result<Waker> {
    let settings = LoopSettings::new(SYNC, inner.settings().look);
    let inner = Arc::clone(inner);
    loops.start(settings, move || Sync {
        discover_at: inner.clock().mono(),
        watch_at: inner.clock().mono(),
        count_at: inner.clock().mono(),
        inner: Arc::clone(&inner),
    })
}

struct Sync {
    inner: Arc<Inner>,
    discover_at: Mono,
    watch_at: Mono,
    count_at: Mono,
}

#[async_trait]
impl LoopBody for Sync {
    async fn turn(&mut self) -> Result<Turn> {
        let discovered = self.discover().await;
        let inner = &*self.inner;
        let known = inner.known();
        let rosters = known.len() as u64;
        let failed = stream::iter(known)
            .map(|one| async move { inner.sync(&one).await })
            .buffer_unordered(AT_ONCE)
            .filter(|done| std::future::ready(done.is_err()))
            .count()
            .await as u64;
        let (wanted, watched) = (inner.want_heartbeats().await, self.watch().await);
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
        Ok(Turn {
            next: Some(next.max(FLOOR)),
            skipped: failed
                + [discovered, wanted, watched, counted]
                    .iter()
                    .filter(|done| done.is_err())
                    .count() as u64,
            stalled: rosters > 0 && failed == rosters,
        })
    }
}

impl Sync {
    async fn discover(&mut self) -> Result<()> {
        let now = self.inner.clock().mono();
        if now < self.discover_at {
            return Ok(());
        }
        let names = self.inner.in_time(self.inner.ledger().rosters()).await?;
        self.discover_at = now + jitter(self.inner.clock(), self.inner.settings().discover, 10);
        self.inner.discovered(&names);
        Ok(())
    }

    async fn count(&mut self) -> Result<()> {
        let now = self.inner.clock().mono();
        if now < self.count_at || !self.inner.known().iter().any(|one| one.is_left_dirty()) {
            return Ok(());
        }
        self.count_at = now + COUNT;
        self.inner.count_dirty().await
    }

    async fn watch(&mut self) -> Result<()> {
        let now = self.inner.clock().mono();
        if now < self.watch_at {
            return Ok(());
        }
        self.watch_at = now + jitter(self.inner.clock(), freshness::WATCH, 10);
        self.inner.watch_marks().await
    }
}

impl Inner {
    /// Looks after one roster. What fails is tried again at the next turn; the rest is done all the same.
    async fn sync(&self, one: &One) -> Result<()> {
        let now = self.clock().mono();
        let stamp = one.line().stamp().await;
        if one.line().is_known() && one.wish().is_some() {
            self.wake_reconcile();
        }
        let due = one.ledger_is_due(self.settings().drain, now);
        let settings = match &stamp {
            Ok(stamp) => self.obey(one, stamp.settings, due).await,
            Err(_) if due => self.poll_settings(one).await,
            Err(_) => Ok(()),
        };
        let drained = match &stamp {
            Ok(_) if due || one.line().trust().needs_drain() => self.drain(one, now).await,
            Ok(_) => Ok(()),
            Err(_) => {
                one.leave_dirty();
                Ok(())
            }
        };
        let written = self.write_notes(one).await;
        if one.line().is_known() {
            self.tell(one);
            self.compare_settings(one);
        }
        stamp.map(drop).and(settings).and(drained).and(written)
    }

    async fn drain(&self, one: &One, now: Mono) -> Result<()> {
        one.asked_ledger(now);
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

    /// Compares the settings of the mirror with ours, and now and then with the ledger's, and lets the newest win. Where the
    /// mirror's are older than ours the ledger is asked: it may be the ledger that went back.
    async fn obey(&self, one: &One, there: Version, ask_ledger: bool) -> Result<()> {
        if one.settings().is_none_or(|known| known.version < there)
            && let Some(settings) = self.settings_in_mirror(one).await?
        {
            one.obey(settings);
        }
        if one.settings().is_some_and(|known| known.version > there) {
            one.asked_ledger(self.clock().mono());
            one.adopt(self.in_time(self.ledger().settings(one.roster())).await?);
        } else if ask_ledger || one.settings().is_none() {
            self.poll_settings(one).await?;
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

    async fn poll_settings(&self, one: &One) -> Result<()> {
        one.asked_ledger(self.clock().mono());
        let settings = self.in_time(self.ledger().settings(one.roster())).await?;
        one.obey(settings);
        Ok(())
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

    async fn write_down(&self, one: &One, notes: &std::collections::BTreeMap<ProviderId, Mono>) -> Result<()> {
        let as_of = self.in_time(self.ledger().now()).await?;
        let now = self.clock().mono();
        let at = |heard: &Mono| as_of.minus(now.since(*heard));
        let heard: Vec<(ProviderId, StoreTime)> = notes.iter().map(|(who, when)| (who.clone(), at(when))).collect();
        for part in heard.chunks(MAX_BATCH) {
            let ledger = self.ledger();
            self.in_time(ledger.record_heartbeats(one.roster(), part, Call::default()))
                .await?;
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
