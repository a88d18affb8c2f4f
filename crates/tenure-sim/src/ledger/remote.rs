//! The ledger as a node sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::{
    Clock, Engagement, EngagementId, Error, Health, Ledger, Move, NewEngagement, Outcome, Page, PageRequest, Provider,
    ProviderId, ProviderSpec, ProviderState, Result, RosterName, RosterSettings, SettingsPatch, StoreTime, TenureId,
};
use tenure_core::ledger::{
    Candidate, Candidates, Dirty, EndedBatch, EndedTenure, EngagementOutcome, ExpiredBatch, Follow, HeartbeatPass,
    LogEntry, MemoryLedger, OnlineOutcome, Overview, ProviderChange, RemoveOutcome, ReserveOutcome, RosterStats,
    Version,
};
use tenure_core::store::Finding;

use super::{LedgerMachine, LedgerRecord, LedgerServing};
use crate::broken::BrokenRule;
use crate::server::poll_once;

const MS: Duration = Duration::from_millis(1);
/// The time-out of a call.
const GIVE_UP: Duration = Duration::from_millis(1_000);

/// One process's connection to the ledger.
pub struct NodeLedger {
    machine: Arc<LedgerMachine>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for NodeLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeLedger")
    }
}

impl NodeLedger {
    /// Creates a connection.
    #[must_use]
    pub fn new(machine: Arc<LedgerMachine>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { machine, clock })
    }

    /// Makes a call: a way there, one step, a way back.
    async fn exchange<T: Send>(
        &self,
        step: impl FnOnce(&MemoryLedger, &mut LedgerRecord) -> Result<T> + Send,
    ) -> Result<T> {
        let ways = {
            let mut state = self.machine.state();
            [0, 1].map(|_| state.chance.duration(MS / 5, MS * 4))
        };
        self.clock.sleep(ways[0]).await;
        let answer = self.carry_out(step)?;
        let Some(reply) = answer else {
            self.clock.sleep(GIVE_UP).await;
            return Err(Error::unavailable(
                "the ledger did not answer in time",
                Outcome::Unknown,
            ));
        };
        self.clock.sleep(ways[1]).await;
        reply
    }

    /// `None`: the answer is lost, whether or not the call was carried out.
    fn carry_out<T>(
        &self,
        step: impl FnOnce(&MemoryLedger, &mut LedgerRecord) -> Result<T>,
    ) -> Result<Option<Result<T>>> {
        let mut state = self.machine.state();
        let serving = state.serving;
        if matches!(serving, LedgerServing::Up(_)) {
            state.catch_up(&self.machine);
        }
        let lost = match serving {
            LedgerServing::Away => {
                return Err(Error::unavailable("the ledger refuses connections", Outcome::Unchanged));
            }
            LedgerServing::Hanging if state.chance.happens(500) => return Ok(None),
            LedgerServing::Hanging => true,
            LedgerServing::Up(often) => state.chance.happens(often),
        };
        let reply = step(&self.machine.memory, &mut state.record);
        Ok((!lost).then_some(reply))
    }

    fn is_broken(&self, rule: BrokenRule) -> bool {
        self.machine.broken == Some(rule)
    }
}

/// Broken rule: the tenures under which the same providers are online now.
pub(super) fn of_the_same(memory: &MemoryLedger, roster: &RosterName, ended: &[EndedTenure]) -> Vec<EndedTenure> {
    let current = |ended: &EndedTenure| {
        let provider = ProviderId::from(ended.tenure.member());
        let row = poll_once(memory.provider(roster, &provider)).ok().flatten();
        let tenure = row.and_then(|row| row.online).unwrap_or_else(|| ended.tenure.clone());
        EndedTenure {
            tenure,
            ..ended.clone()
        }
    };
    ended.iter().map(current).collect()
}

/// Broken rule: gives an engagement to a provider without room.
fn squeeze_in(memory: &MemoryLedger, roster: &RosterName, new: &NewEngagement) -> Option<ReserveOutcome> {
    let online = poll_once(memory.providers(roster, Some(ProviderState::Online), &PageRequest::default())).ok()?;
    let provider = online.items.into_iter().find(|row| row.active)?.provider;
    let new = NewEngagement {
        provider: Some(provider),
        ..new.clone()
    };
    match poll_once(memory.create_engagement(roster, &new)).ok()? {
        EngagementOutcome::Done(change) => Some(ReserveOutcome::Reserved(change)),
        EngagementOutcome::Conflict(_) => None,
    }
}

#[async_trait]
impl Ledger for NodeLedger {
    fn place(&self) -> String {
        "sim:ledger".to_owned()
    }
    fn health(&self) -> Health {
        Health::Up
    }
    async fn examine(&self) -> Vec<Finding> {
        Vec::new()
    }
    async fn close(&self) {}
    async fn now(&self) -> Result<StoreTime> {
        self.exchange(|memory, _| poll_once(memory.now())).await
    }
    async fn rosters(&self) -> Result<Vec<RosterName>> {
        self.exchange(|memory, _| poll_once(memory.rosters())).await
    }
    async fn overview(&self) -> Result<Overview> {
        self.exchange(|memory, _| poll_once(memory.overview())).await
    }
    async fn settings(&self, roster: &RosterName) -> Result<RosterSettings> {
        self.exchange(|memory, _| poll_once(memory.settings(roster))).await
    }
    async fn set_settings(&self, roster: &RosterName, patch: &SettingsPatch) -> Result<RosterSettings> {
        self.exchange(|memory, _| poll_once(memory.set_settings(roster, patch)))
            .await
    }
    async fn remove_provider(&self, roster: &RosterName, provider: &ProviderId) -> Result<RemoveOutcome> {
        self.exchange(|memory, _| poll_once(memory.remove_provider(roster, provider)))
            .await
    }
    async fn provider(&self, roster: &RosterName, provider: &ProviderId) -> Result<Option<Provider>> {
        self.exchange(|memory, _| poll_once(memory.provider(roster, provider)))
            .await
    }
    async fn providers(
        &self,
        roster: &RosterName,
        state: Option<ProviderState>,
        page: &PageRequest,
    ) -> Result<Page<Provider>> {
        self.exchange(|memory, _| poll_once(memory.providers(roster, state, page)))
            .await
    }
    async fn record_heartbeats(&self, roster: &RosterName, heartbeats: &[(ProviderId, StoreTime)]) -> Result<u64> {
        self.exchange(|memory, _| poll_once(memory.record_heartbeats(roster, heartbeats)))
            .await
    }
    async fn last_heartbeats(
        &self,
        roster: &RosterName,
        providers: &[ProviderId],
    ) -> Result<BTreeMap<ProviderId, StoreTime>> {
        self.exchange(|memory, _| poll_once(memory.last_heartbeats(roster, providers)))
            .await
    }
    async fn want_heartbeats(&self, rosters: &[RosterName], lasts: Duration) -> Result<()> {
        self.exchange(|memory, _| poll_once(memory.want_heartbeats(rosters, lasts)))
            .await
    }
    async fn note_heartbeat_pass(&self, roster: &RosterName, fresh_since: StoreTime) -> Result<()> {
        self.exchange(|memory, _| poll_once(memory.note_heartbeat_pass(roster, fresh_since)))
            .await
    }
    async fn heartbeat_pass(&self, roster: &RosterName) -> Result<Option<HeartbeatPass>> {
        self.exchange(|memory, _| poll_once(memory.heartbeat_pass(roster)))
            .await
    }
    async fn available(
        &self,
        roster: &RosterName,
        page: &PageRequest,
        fresh_since: Option<StoreTime>,
    ) -> Result<Page<Candidate>> {
        self.exchange(|memory, _| poll_once(memory.available(roster, page, fresh_since)))
            .await
    }
    async fn stats(&self, roster: &RosterName, fresh_since: Option<StoreTime>) -> Result<RosterStats> {
        self.exchange(|memory, _| poll_once(memory.stats(roster, fresh_since)))
            .await
    }
    async fn log(
        &self,
        roster: &RosterName,
        provider: Option<&ProviderId>,
        page: &PageRequest,
    ) -> Result<Page<LogEntry>> {
        self.exchange(|memory, _| poll_once(memory.log(roster, provider, page)))
            .await
    }
    async fn create_engagement(&self, roster: &RosterName, engagement: &NewEngagement) -> Result<EngagementOutcome> {
        self.exchange(|memory, _| poll_once(memory.create_engagement(roster, engagement)))
            .await
    }
    async fn engagement(&self, roster: &RosterName, engagement: &EngagementId) -> Result<Option<Engagement>> {
        self.exchange(|memory, _| poll_once(memory.engagement(roster, engagement)))
            .await
    }
    async fn dirty(&self, roster: &RosterName, limit: u32) -> Result<Vec<Dirty>> {
        self.exchange(|memory, _| poll_once(memory.dirty(roster, limit))).await
    }
    async fn dirty_counts(&self) -> Result<BTreeMap<RosterName, u64>> {
        self.exchange(|memory, _| poll_once(memory.dirty_counts())).await
    }
    async fn remove_closed(&self, roster: &RosterName, age: Duration, limit: u32) -> Result<u64> {
        self.exchange(|memory, _| poll_once(memory.remove_closed(roster, age, limit)))
            .await
    }
    async fn providers_named(
        &self,
        roster: &RosterName,
        providers: &[ProviderId],
    ) -> Result<BTreeMap<ProviderId, Provider>> {
        self.exchange(|memory, _| poll_once(memory.providers_named(roster, providers)))
            .await
    }
    async fn recount(&self, roster: &RosterName) -> Result<u64> {
        self.exchange(|memory, _| poll_once(memory.recount(roster))).await
    }
    async fn clean(&self, roster: &RosterName, rows: &[(ProviderId, Version)]) -> Result<u64> {
        self.exchange(|memory, _| poll_once(memory.clean(roster, rows))).await
    }
    async fn next_version(&self) -> Result<Version> {
        self.exchange(|memory, _| poll_once(memory.next_version())).await
    }
    async fn put_provider(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        spec: &ProviderSpec,
    ) -> Result<ProviderChange> {
        self.exchange(|memory, record| {
            let reply = poll_once(memory.put_provider(roster, provider, spec));
            record.changed(&reply);
            reply
        })
        .await
    }
    async fn activate(&self, roster: &RosterName, provider: &ProviderId) -> Result<ProviderChange> {
        self.exchange(|memory, record| {
            let reply = poll_once(memory.activate(roster, provider));
            record.decided(true, &reply);
            reply
        })
        .await
    }
    async fn deactivate(&self, roster: &RosterName, provider: &ProviderId) -> Result<ProviderChange> {
        self.exchange(|memory, record| {
            let reply = poll_once(memory.deactivate(roster, provider));
            record.decided(false, &reply);
            reply
        })
        .await
    }
    async fn go_online(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        tenure: Option<&TenureId>,
    ) -> Result<OnlineOutcome> {
        self.exchange(|memory, record| {
            let reply = poll_once(memory.go_online(roster, provider, tenure));
            record.went_online(provider, &reply);
            reply
        })
        .await
    }
    async fn go_offline(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        tenure: Option<&TenureId>,
    ) -> Result<ProviderChange> {
        self.exchange(|memory, record| {
            let reply = poll_once(memory.go_offline(roster, provider, tenure));
            record.changed(&reply);
            reply
        })
        .await
    }
    async fn follow_tenures(&self, roster: &RosterName, follows: &[Follow]) -> Result<Vec<Provider>> {
        self.exchange(|memory, record| {
            let reply = poll_once(memory.follow_tenures(roster, follows));
            record.followed(follows, &reply);
            reply
        })
        .await
    }
    async fn move_engagement(
        &self,
        roster: &RosterName,
        engagement: &EngagementId,
        to: &Move,
    ) -> Result<EngagementOutcome> {
        self.exchange(|memory, record| {
            let reply = poll_once(memory.move_engagement(roster, engagement, to));
            record.moved(engagement, &reply);
            reply
        })
        .await
    }
    async fn expire_due(&self, roster: &RosterName, limit: u32) -> Result<ExpiredBatch> {
        self.exchange(|memory, record| {
            let reply = poll_once(memory.expire_due(roster, limit));
            record.expired(&reply);
            reply
        })
        .await
    }
    async fn offline_ended(&self, roster: &RosterName, ended: &[EndedTenure]) -> Result<EndedBatch> {
        let call = self.exchange(|_, record| {
            let reply = self.machine.follow(roster, ended);
            record.ended(ended, &reply);
            reply
        });
        let reply = call.await;
        if reply.as_ref().is_err_and(|error| error.outcome() == Outcome::Unknown) {
            let mut state = self.machine.state();
            let at = self.machine.world.now() + state.chance.duration(Duration::ZERO, MS * 4_000);
            state.late.push((at, roster.clone(), ended.to_vec()));
        }
        reply
    }
    async fn reserve(
        &self,
        roster: &RosterName,
        new: &NewEngagement,
        candidates: &Candidates,
    ) -> Result<ReserveOutcome> {
        let broken = self.is_broken(BrokenRule::ReserveAboveCapacity);
        self.exchange(|memory, record| {
            let mut reply = poll_once(memory.reserve(roster, new, candidates));
            if let (Ok(ReserveOutcome::NoneAvailable), true) = (&reply, broken)
                && let Some(squeezed) = squeeze_in(memory, roster, new)
            {
                reply = Ok(squeezed);
            }
            record.reserved(new, &reply);
            reply
        })
        .await
    }
}
