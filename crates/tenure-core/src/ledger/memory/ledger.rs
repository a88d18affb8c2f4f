//! The reference ledger: the model with a lock and a clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::model::{Moment, RosterModel};
use crate::clock::{Clock, Mono};
use crate::error::{Error, Outcome, Result};
use crate::id::{EngagementId, ProviderId, RosterName, TenureId};
use crate::ledger::hot_store::HotStoreRecord;
use crate::ledger::provider::check_batch;
use crate::ledger::{
    Candidate, Candidates, Dirty, EndedBatch, EndedTenure, Engagement, EngagementOutcome, ExpiredBatch, Follow,
    HeartbeatMarks, HeartbeatPass, HotStoreClaim, HotStoreOutcome, Ledger, LogEntry, Move, NewEngagement,
    OnlineOutcome, Overview, Provider, ProviderChange, ProviderSpec, ProviderState, RecordedHotStore, RemoveOutcome,
    ReserveOutcome, RosterSettings, RosterStats, SettingsPatch, Version, check_follows, check_tenure,
};
use crate::store::{Finding, Health, Page, PageRequest, Severity, bad_cursor, check_limit};
use crate::time::StoreTime;

/// A ledger in memory, lost with the process.
#[derive(Debug)]
pub struct MemoryLedger {
    clock: Arc<dyn Clock>,
    /// Ledger time = `base` + local time since `origin`.
    base: StoreTime,
    origin: Mono,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rosters: BTreeMap<RosterName, RosterModel>,
    heartbeats: HeartbeatMarks,
    hot_store: HotStoreRecord,
    last_version: u64,
    closed: bool,
}

impl MemoryLedger {
    /// An empty ledger whose time starts at the clock's wall time and advances with its trust time.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let (base, origin) = (StoreTime::from_micros(clock.wall_micros()), clock.mono());
        Arc::new(Self {
            clock,
            base,
            origin,
            state: Mutex::default(),
        })
    }

    fn time(&self) -> StoreTime {
        self.base + self.clock.mono().since(self.origin)
    }

    fn open(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.closed {
            true => Err(Error::unavailable("the ledger was closed", Outcome::Unchanged)),
            false => Ok(state),
        }
    }

    /// A step that may change a roster.
    fn step<T>(
        &self,
        roster: &RosterName,
        step: impl FnOnce(&mut RosterModel, &mut Moment<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.open()?;
        let now = self.time();
        let state = &mut *state;
        let mut moment = Moment {
            now,
            last_version: &mut state.last_version,
        };
        match state.rosters.get_mut(roster) {
            Some(model) => step(model, &mut moment),
            None => {
                let mut model = RosterModel::default();
                let done = step(&mut model, &mut moment);
                if !model.providers.is_empty()
                    || !model.engagements.is_empty()
                    || model.settings.version > Version::NONE
                {
                    state.rosters.insert(roster.clone(), model);
                }
                done
            }
        }
    }

    fn read<T>(&self, roster: &RosterName, read: impl FnOnce(&RosterModel) -> T) -> Result<T> {
        let state = self.open()?;
        Ok(match state.rosters.get(roster) {
            Some(model) => read(model),
            None => read(&RosterModel::default()),
        })
    }
}

#[async_trait]
impl Ledger for MemoryLedger {
    fn place(&self) -> String {
        "memory:".to_owned()
    }

    fn health(&self) -> Health {
        match self.open() {
            Ok(_) => Health::Up,
            Err(error) => Health::Down {
                reason: error.to_string(),
            },
        }
    }

    async fn now(&self) -> Result<StoreTime> {
        self.open().map(|_| self.time())
    }

    async fn examine(&self) -> Vec<Finding> {
        let detail = "rosters are in memory and lost with the process; configure a ledger to keep them";
        vec![Finding::new("ledger", Severity::Warning, detail)]
    }

    async fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
    }

    async fn claim_hot_store(&self, claim: &HotStoreClaim) -> Result<HotStoreOutcome> {
        let mut state = self.open()?;
        let now = self.time();
        Ok(state.hot_store.claim(claim, now))
    }

    async fn hot_store(&self) -> Result<Option<RecordedHotStore>> {
        Ok(self.open()?.hot_store.read(self.time()))
    }

    async fn rosters(&self) -> Result<Vec<RosterName>> {
        Ok(self.open()?.rosters.keys().cloned().collect())
    }

    async fn overview(&self) -> Result<Overview> {
        let (mut state, as_of) = (self.open()?, self.time());
        let rosters = state.rosters.iter();
        Ok(Overview {
            as_of,
            rosters: rosters.map(|(name, model)| (name.clone(), model.view())).collect(),
            wanted: state.heartbeats.wanted(as_of).into_iter().collect(),
        })
    }

    async fn settings(&self, roster: &RosterName) -> Result<RosterSettings> {
        self.read(roster, |model| model.settings)
    }

    async fn set_settings(&self, roster: &RosterName, patch: &SettingsPatch) -> Result<RosterSettings> {
        patch.check()?;
        self.step(roster, |model, moment| Ok(model.set_settings(patch, moment)))
    }

    async fn put_provider(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        spec: &ProviderSpec,
    ) -> Result<ProviderChange> {
        spec.check()?;
        self.step(roster, |model, moment| Ok(model.put(provider, spec, moment)))
    }

    async fn remove_provider(&self, roster: &RosterName, provider: &ProviderId) -> Result<RemoveOutcome> {
        self.step(roster, |model, moment| Ok(model.remove(provider, moment)))
    }

    async fn provider(&self, roster: &RosterName, provider: &ProviderId) -> Result<Option<Provider>> {
        self.read(roster, |model| model.providers.get(provider).cloned())
    }

    async fn providers_named(
        &self,
        roster: &RosterName,
        providers: &[ProviderId],
    ) -> Result<BTreeMap<ProviderId, Provider>> {
        check_batch(providers.len())?;
        self.read(roster, |model| {
            let rows = providers.iter().filter_map(|name| model.providers.get(name));
            rows.map(|row| (row.provider.clone(), row.clone())).collect()
        })
    }

    async fn providers(
        &self,
        roster: &RosterName,
        state: Option<ProviderState>,
        page: &PageRequest,
    ) -> Result<Page<Provider>> {
        let limit = check_limit(page.limit)? as usize;
        let after = match &page.after {
            Some(cursor) => Some(ProviderId::new(cursor).map_err(|_| bad_cursor(cursor))?),
            None => None,
        };
        self.read(roster, |model| {
            let wanted = |row: &&Provider| {
                after.as_ref().is_none_or(|after| row.provider > *after) && state.is_none_or(|state| state.is_of(row))
            };
            let mut items: Vec<Provider> = model
                .providers
                .values()
                .filter(wanted)
                .take(limit + 1)
                .cloned()
                .collect();
            let more = items.len() > limit;
            items.truncate(limit);
            let next = items.last().filter(|_| more).map(|row| row.provider.to_string());
            Page { items, next }
        })
    }

    async fn activate(&self, roster: &RosterName, provider: &ProviderId) -> Result<ProviderChange> {
        self.step(roster, |model, moment| model.set_active(provider, true, moment))
    }

    async fn deactivate(&self, roster: &RosterName, provider: &ProviderId) -> Result<ProviderChange> {
        self.step(roster, |model, moment| model.set_active(provider, false, moment))
    }

    async fn go_online(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        tenure: Option<&TenureId>,
    ) -> Result<OnlineOutcome> {
        check_tenure(provider, tenure)?;
        self.step(roster, |model, moment| model.go_online(provider, tenure, moment))
    }

    async fn go_offline(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        tenure: Option<&TenureId>,
    ) -> Result<ProviderChange> {
        self.step(roster, |model, moment| model.go_offline(provider, tenure, moment))
    }

    async fn offline_ended(&self, roster: &RosterName, ended: &[EndedTenure]) -> Result<EndedBatch> {
        check_batch(ended.len())?;
        self.step(roster, |model, moment| Ok(model.offline_ended(ended, moment)))
    }

    async fn follow_tenures(&self, roster: &RosterName, follows: &[Follow]) -> Result<Vec<Provider>> {
        check_follows(follows)?;
        self.step(roster, |model, moment| Ok(model.follow_tenures(follows, moment)))
    }

    async fn record_heartbeats(&self, roster: &RosterName, heartbeats: &[(ProviderId, StoreTime)]) -> Result<u64> {
        check_batch(heartbeats.len())?;
        self.step(roster, |model, moment| {
            Ok(model.record_heartbeats(heartbeats, moment.now))
        })
    }

    async fn last_heartbeats(
        &self,
        roster: &RosterName,
        providers: &[ProviderId],
    ) -> Result<BTreeMap<ProviderId, StoreTime>> {
        check_batch(providers.len())?;
        self.read(roster, |model| {
            let heard = |provider: &ProviderId| {
                let row = model.providers.get(provider)?;
                Some((provider.clone(), row.last_heartbeat_at?))
            };
            providers.iter().filter_map(heard).collect()
        })
    }

    async fn want_heartbeats(&self, rosters: &[RosterName], lasts: Duration) -> Result<()> {
        check_batch(rosters.len())?;
        let (mut state, now) = (self.open()?, self.time());
        state.heartbeats.want(rosters, now + lasts);
        Ok(())
    }

    async fn note_heartbeat_pass(&self, roster: &RosterName, fresh_since: StoreTime) -> Result<()> {
        let (mut state, now) = (self.open()?, self.time());
        state.heartbeats.passed(roster, fresh_since, now);
        Ok(())
    }

    async fn heartbeat_pass(&self, roster: &RosterName) -> Result<Option<HeartbeatPass>> {
        Ok(self.open()?.heartbeats.pass(roster, self.time()))
    }

    async fn available(
        &self,
        roster: &RosterName,
        page: &PageRequest,
        fresh_since: Option<StoreTime>,
    ) -> Result<Page<Candidate>> {
        let (limit, after) = (check_limit(page.limit)? as usize, Candidate::after(page)?);
        self.read(roster, |model| {
            let mut items = model.available(fresh_since);
            items.retain(|one| {
                let place = (one.occupancy, &one.provider);
                after
                    .as_ref()
                    .is_none_or(|(occupancy, provider)| place > (*occupancy, provider))
            });
            let more = items.len() > limit;
            items.truncate(limit);
            let last = items.last().filter(|_| more);
            let next = last.map(|one| Candidate::cursor(one.occupancy, &one.provider));
            Page { items, next }
        })
    }

    async fn stats(&self, roster: &RosterName, fresh_since: Option<StoreTime>) -> Result<RosterStats> {
        self.read(roster, |model| model.stats(fresh_since))
    }

    async fn log(
        &self,
        roster: &RosterName,
        provider: Option<&ProviderId>,
        page: &PageRequest,
    ) -> Result<Page<LogEntry>> {
        let limit = check_limit(page.limit)? as usize;
        let after: u64 = match &page.after {
            Some(cursor) => cursor.parse().map_err(|_| bad_cursor(cursor))?,
            None => 0,
        };
        self.read(roster, |model| {
            let wanted =
                |entry: &&LogEntry| entry.id > after && provider.is_none_or(|provider| entry.provider == *provider);
            let mut items: Vec<LogEntry> = model.log.iter().filter(wanted).take(limit + 1).cloned().collect();
            let more = items.len() > limit;
            items.truncate(limit);
            let next = items.last().filter(|_| more).map(|entry| entry.id.to_string());
            Page { items, next }
        })
    }

    async fn create_engagement(&self, roster: &RosterName, engagement: &NewEngagement) -> Result<EngagementOutcome> {
        engagement.check()?;
        self.step(roster, |model, moment| model.create(engagement, moment))
    }

    async fn move_engagement(
        &self,
        roster: &RosterName,
        engagement: &EngagementId,
        to: &Move,
    ) -> Result<EngagementOutcome> {
        to.check()?;
        self.step(roster, |model, moment| model.move_to(engagement, to, moment))
    }

    async fn reserve(
        &self,
        roster: &RosterName,
        new: &NewEngagement,
        candidates: &Candidates,
    ) -> Result<ReserveOutcome> {
        new.check()?;
        candidates.check()?;
        self.step(roster, |model, moment| model.reserve(new, candidates, moment))
    }

    async fn engagement(&self, roster: &RosterName, engagement: &EngagementId) -> Result<Option<Engagement>> {
        self.read(roster, |model| model.engagements.get(engagement).cloned())
    }

    async fn expire_due(&self, roster: &RosterName, limit: u32) -> Result<ExpiredBatch> {
        let limit = check_limit(limit)?;
        self.step(roster, |model, moment| Ok(model.expire_due(limit, moment)))
    }

    async fn remove_closed(&self, roster: &RosterName, age: Duration, limit: u32) -> Result<u64> {
        let limit = check_limit(limit)?;
        self.step(roster, |model, moment| {
            Ok(model.remove_closed(moment.now.minus(age), limit))
        })
    }

    async fn recount(&self, roster: &RosterName) -> Result<u64> {
        self.step(roster, |model, moment| Ok(model.recount(moment)))
    }

    async fn dirty(&self, roster: &RosterName, limit: u32) -> Result<Vec<Dirty>> {
        let limit = check_limit(limit)?;
        self.read(roster, |model| model.dirty(limit))
    }

    async fn dirty_counts(&self) -> Result<BTreeMap<RosterName, u64>> {
        let state = self.open()?;
        let dirty = state.rosters.iter().filter(|(_, model)| !model.outbox.is_empty());
        Ok(dirty
            .map(|(name, model)| (name.clone(), model.outbox.len() as u64))
            .collect())
    }

    async fn clean(&self, roster: &RosterName, rows: &[(ProviderId, Version)]) -> Result<u64> {
        check_batch(rows.len())?;
        self.step(roster, |model, _| Ok(model.clean(rows)))
    }

    async fn next_version(&self) -> Result<Version> {
        let mut state = self.open()?;
        state.last_version += 1;
        Ok(Version(state.last_version))
    }
}
