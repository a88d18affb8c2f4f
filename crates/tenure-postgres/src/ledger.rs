//! The ledger's steps, as calls of functions in the database.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use tenure_core::clock::{Clock, within};
use tenure_core::error::Outcome;
use tenure_core::ledger::hot_store::{CONFIRM_EVERY, UNCONFIRMED};
use tenure_core::ledger::provider::check_batch;
use tenure_core::ledger::{
    Candidate, Candidates, Capacity, Dirty, EndedBatch, EndedTenure, Engagement, EngagementOutcome, ExpiredBatch,
    Expiry, Follow, HeartbeatPass, HotStoreClaim, HotStoreOutcome, LogEntry, Move, NewEngagement, OnlineOutcome,
    Overview, Provider, ProviderChange, ProviderSpec, ProviderState, Reassign, RecordedHotStore, RemoveOutcome,
    ReserveOutcome, RosterSettings, RosterStats, SettingsPatch, Version, check_follows, check_tenure,
};
use tenure_core::store::{Finding, Health, Page, PageRequest, Severity, bad_cursor, check_limit};
use tenure_core::time::micros;
use tenure_core::{EngagementId, Error, ErrorKind, Ledger, ProviderId, Result, RosterName, StoreTime, TenureId};
use tokio_postgres::types::Type;

use crate::call::{CallLimits, Caller, Param, flag, maybe_numbers, number, numbers, small, text, texts};
use crate::lanes::Lane;
use crate::migrate::SchemaChange;
use crate::options::PostgresOptions;
use crate::rows::{
    Acknowledgement, Count, DirtyCount, DirtyRow, DrawnVersion, EndedReply, EngagementRead, EngagementReply,
    ExpiredReply, HeartbeatRow, HotStoreRead, Items, LogRow, NowReply, OverviewRead, PassRead, ProviderReply,
    ProviderRow, SettingsRead, StatsRow, providers,
};
use crate::{examine, migrate, pool};

/// The time-out of a step that changes the rows of all providers: 100,000 rows took about ten seconds.
const EVERY_ROW: Duration = Duration::from_secs(60);

/// The ledger of rosters on Postgres.
pub struct PostgresLedger {
    options: PostgresOptions,
    caller: Arc<Caller>,
    /// Held while the schema is checked and updated.
    preparing: Arc<tokio::sync::Mutex<()>>,
    is_ready: Arc<AtomicBool>,
    /// Whether it was ever ready: a schema that is missing later was removed by an operator, and is not created again.
    was_ready: Arc<AtomicBool>,
    health: Mutex<CallHealth>,
}

/// The results of the last calls. A server can serve reads and no writes: a full disk, a standby that is away.
#[derive(Debug)]
struct CallHealth {
    reads: Health,
    writes: Health,
}

impl std::fmt::Debug for PostgresLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresLedger")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl PostgresLedger {
    /// Creates a ledger that is not connected yet. The first call, or [`PostgresLedger::prepare`], checks the schema.
    ///
    /// Must be created and used inside a tokio runtime.
    #[must_use]
    pub fn new(options: PostgresOptions, clock: Arc<dyn Clock>) -> Arc<Self> {
        let pool = pool::pool(&options, &clock);
        Arc::new(Self {
            caller: Caller::new(pool, clock, options.waiting, options.connect_timeout),
            options,
            preparing: Arc::default(),
            is_ready: Arc::default(),
            was_ready: Arc::default(),
            health: Mutex::new(CallHealth {
                reads: Health::Up,
                writes: Health::Up,
            }),
        })
    }

    /// Connects, and creates or updates the schema; after that it is ready for calls. Waits for another program that
    /// does the same; other calls keep their own time-outs.
    ///
    /// # Errors
    /// `Misconfigured` if the schema is newer than this program, was created by another build, or was removed;
    /// `Denied`; `Unavailable`. A failed update is rolled back.
    pub async fn prepare(&self) -> Result<()> {
        if self.is_ready.load(Ordering::Acquire) {
            return Ok(());
        }
        let (caller, options) = (Arc::clone(&self.caller), self.options.clone());
        let (preparing, is_ready) = (Arc::clone(&self.preparing), Arc::clone(&self.is_ready));
        let was_ready = Arc::clone(&self.was_ready);
        // In its own task, so that a caller that times out does not abort an update.
        let preparing = tokio::spawn(async move {
            let _one_at_a_time = preparing.lock().await;
            if is_ready.load(Ordering::Acquire) {
                return Ok(());
            }
            let clock = caller.clock.as_ref();
            let connection = pool::get(&caller.pool, clock, options.connect_timeout).await?;
            let allowed = match (options.migrate, was_ready.load(Ordering::Acquire)) {
                (false, _) => SchemaChange::Forbidden,
                (true, true) => SchemaChange::Update,
                (true, false) => SchemaChange::Create,
            };
            let work = migrate::migrate(&connection.client, allowed);
            match within(clock, Duration::from_secs(90), work).await {
                Some(Ok(())) => {
                    was_ready.store(true, Ordering::Release);
                    is_ready.store(true, Ordering::Release);
                }
                Some(Err(error)) => {
                    // Dropping the connection rolls back an open transaction.
                    pool::discard(connection);
                    return Err(error);
                }
                None => {
                    pool::discard(connection);
                    let message = "the ledger's schema could not be checked in time";
                    return Err(Error::unavailable(message, Outcome::Unchanged));
                }
            }
            Ok(())
        });
        let done = preparing.await.unwrap_or_else(|broken| {
            Err(Error::new(ErrorKind::Internal, "preparing the ledger was aborted").because(broken))
        });
        self.note(&done, Lane::Read);
        done
    }

    /// The number of connections, busy ones included, and of calls that wait for one.
    #[must_use]
    pub fn connections(&self) -> (usize, usize) {
        let status = self.caller.pool.status();
        (status.size, status.waiting)
    }

    fn note<T>(&self, result: &Result<T>, lane: Lane) {
        let reason = match result {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Unavailable | ErrorKind::Denied | ErrorKind::Misconfigured
                ) =>
            {
                Some(error.chain())
            }
            _ => None,
        };
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        match (lane, reason) {
            (Lane::Read, None) => health.reads = Health::Up,
            (Lane::Read, Some(reason)) => health.reads = Health::Down { reason },
            (_, None) => {
                health.reads = Health::Up;
                health.writes = Health::Up;
            }
            (_, Some(reason)) => {
                let reason = format!("writes fail: {reason}");
                health.writes = Health::Down { reason };
            }
        }
    }

    async fn ask<T: DeserializeOwned>(&self, step: &'static str, params: Vec<Param>, limits: CallLimits) -> Result<T> {
        let result = async {
            if !self.is_ready.load(Ordering::Acquire) {
                let ready = within(self.caller.clock.as_ref(), limits.within, self.prepare()).await;
                ready.unwrap_or_else(|| {
                    let message = "the ledger's schema is not ready yet";
                    Err(Error::unavailable(message, Outcome::Unchanged))
                })?;
                // Reads the time once, so that the first statement can carry a not-after.
                let _: NowReply = self.caller.call("read_now", Vec::new(), self.reading()).await?;
            }
            self.caller.call(step, params, limits).await
        }
        .await;
        if result
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::Misconfigured)
        {
            // The schema was restored or removed since it was checked. The next call checks it again.
            self.is_ready.store(false, Ordering::Release);
        }
        self.note(&result, limits.lane);
        result
    }

    fn reading(&self) -> CallLimits {
        CallLimits {
            within: self.options.call_timeout,
            lane: Lane::Read,
        }
    }

    fn reading_many(&self) -> CallLimits {
        CallLimits {
            within: self.options.batch_timeout,
            lane: Lane::Read,
        }
    }

    fn writing(&self) -> CallLimits {
        CallLimits {
            within: self.options.call_timeout,
            lane: Lane::Write,
        }
    }

    fn writing_many(&self) -> CallLimits {
        CallLimits {
            within: self.options.batch_timeout,
            lane: Lane::Write,
        }
    }

    /// For what the hot store decided, which no hanging write may delay.
    fn following(&self) -> CallLimits {
        CallLimits {
            within: self.options.batch_timeout,
            lane: Lane::Liveness,
        }
    }
}

fn name(name: impl Into<String>) -> Param {
    text(name.into())
}

fn instant(at: Option<StoreTime>) -> Param {
    number(at.map(signed))
}

/// Instants stay far below 2^53 µs, which is in the year 2255.
fn signed(at: StoreTime) -> i64 {
    i64::try_from(at.micros().min((1 << 53) - 1)).unwrap_or(i64::MAX)
}

fn span(span: Option<Duration>) -> Option<i64> {
    span.map(|span| i64::try_from(micros(span)).unwrap_or(i64::MAX))
}

fn room(capacity: Capacity) -> Param {
    let number = match capacity {
        Capacity::Keep => None,
        Capacity::Default => Some(-1),
        Capacity::Own(capacity) => Some(i32::try_from(capacity).unwrap_or(i32::MAX)),
    };
    (Box::new(number), Type::INT4)
}

fn millis(span: Option<Duration>) -> Param {
    number(span.map(|span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
}

fn version_number(version: Version) -> i64 {
    i64::try_from(version.0).unwrap_or(i64::MAX)
}

#[async_trait]
impl Ledger for PostgresLedger {
    fn place(&self) -> String {
        self.options.place()
    }

    fn health(&self) -> Health {
        let health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        match &health.reads {
            Health::Up => health.writes.clone(),
            down @ Health::Down { .. } => down.clone(),
        }
    }

    async fn now(&self) -> Result<StoreTime> {
        let reply: NowReply = self.ask("read_now", Vec::new(), self.reading()).await?;
        Ok(StoreTime::from_micros(reply.now))
    }

    async fn examine(&self) -> Vec<Finding> {
        let broken = |error: Error| vec![Finding::new("ledger", Severity::Error, error.chain())];
        if let Err(error) = self.prepare().await {
            return broken(error);
        }
        let clock = self.caller.clock.as_ref();
        match pool::get(&self.caller.pool, clock, self.options.connect_timeout).await {
            Err(error) => broken(error),
            Ok(connection) => {
                let look = examine::examine(&connection.client);
                match within(clock, self.options.batch_timeout, look).await {
                    Some(findings) => findings,
                    None => {
                        pool::discard(connection);
                        broken(Error::unavailable("it does not answer", Outcome::Unchanged))
                    }
                }
            }
        }
    }

    async fn close(&self) {
        self.caller.pool.close();
    }

    async fn claim_hot_store(&self, claim: &HotStoreClaim) -> Result<HotStoreOutcome> {
        let params = vec![
            name(claim.own.id.clone()),
            name(claim.own.place.clone()),
            text(claim.was.clone()),
            flag(Some(claim.replaces)),
            number(span(Some(CONFIRM_EVERY.mul_f64(0.9)))),
            number(span(Some(UNCONFIRMED))),
        ];
        let read: HotStoreRead = self.ask("claim_hot_store", params, self.following()).await?;
        Ok(match read.into() {
            Some(recorded) => HotStoreOutcome::Refused(recorded),
            None => HotStoreOutcome::Admitted,
        })
    }

    async fn hot_store(&self) -> Result<Option<RecordedHotStore>> {
        let read: HotStoreRead = self.ask("read_hot_store", Vec::new(), self.reading()).await?;
        Ok(read.into())
    }

    async fn rosters(&self) -> Result<Vec<RosterName>> {
        let all: Items<RosterName> = self.ask("read_rosters", Vec::new(), self.reading_many()).await?;
        Ok(all.items)
    }

    async fn overview(&self) -> Result<Overview> {
        let read: OverviewRead = self.ask("read_overview", Vec::new(), self.reading()).await?;
        Ok(read.into())
    }

    async fn settings(&self, roster: &RosterName) -> Result<RosterSettings> {
        let read: SettingsRead = self
            .ask("read_settings", vec![name(roster.clone())], self.reading())
            .await?;
        Ok(read.into())
    }

    async fn set_settings(&self, roster: &RosterName, patch: &SettingsPatch) -> Result<RosterSettings> {
        patch.check()?;
        let params = vec![
            name(roster.clone()),
            small(patch.default_capacity),
            millis(patch.stale_after),
            flag(patch.require_heartbeat),
            millis(patch.snapshot),
        ];
        let limits = match patch.default_capacity {
            Some(_) => CallLimits {
                within: EVERY_ROW.max(self.options.batch_timeout),
                ..self.writing_many()
            },
            None => self.writing(),
        };
        let read: SettingsRead = self.ask("set_settings", params, limits).await?;
        Ok(read.into())
    }

    async fn put_provider(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        spec: &ProviderSpec,
    ) -> Result<ProviderChange> {
        spec.check()?;
        let params = vec![
            name(roster.clone()),
            name(provider.clone()),
            text(spec.display_name.clone()),
            room(spec.capacity),
        ];
        let answer: ProviderReply = self.ask("put_provider", params, self.writing()).await?;
        answer.change()
    }

    async fn remove_provider(&self, roster: &RosterName, provider: &ProviderId) -> Result<RemoveOutcome> {
        let params = vec![name(roster.clone()), name(provider.clone())];
        let answer: ProviderReply = self.ask("remove_provider", params, self.writing()).await?;
        answer.removal()
    }

    async fn provider(&self, roster: &RosterName, provider: &ProviderId) -> Result<Option<Provider>> {
        let params = vec![name(roster.clone()), name(provider.clone())];
        let read: Items<ProviderRow> = self.ask("read_provider", params, self.reading()).await?;
        Ok(providers(read.items).pop())
    }

    async fn providers_named(
        &self,
        roster: &RosterName,
        providers: &[ProviderId],
    ) -> Result<BTreeMap<ProviderId, Provider>> {
        check_batch(providers.len())?;
        let names = providers.iter().map(ToString::to_string).collect();
        let params = vec![name(roster.clone()), texts(Some(names))];
        let read: Items<ProviderRow> = self.ask("read_named", params, self.reading_many()).await?;
        let rows = self::providers(read.items);
        Ok(rows.into_iter().map(|row| (row.provider.clone(), row)).collect())
    }

    async fn providers(
        &self,
        roster: &RosterName,
        state: Option<ProviderState>,
        page: &PageRequest,
    ) -> Result<Page<Provider>> {
        let limit = check_limit(page.limit)?;
        let after = match &page.after {
            Some(cursor) => ProviderId::new(cursor).map_err(|_| bad_cursor(cursor))?.to_string(),
            None => String::new(),
        };
        let params = vec![
            name(roster.clone()),
            text(state.map(|state| state.as_str().to_owned())),
            name(after),
            small(Some(limit + 1)),
        ];
        let read: Items<ProviderRow> = self.ask("read_providers", params, self.reading_many()).await?;
        Ok(page_of(providers(read.items), limit, |row| row.provider.to_string()))
    }

    async fn activate(&self, roster: &RosterName, provider: &ProviderId) -> Result<ProviderChange> {
        let params = vec![name(roster.clone()), name(provider.clone()), flag(Some(true))];
        let answer: ProviderReply = self.ask("set_active", params, self.writing()).await?;
        answer.change()
    }

    async fn deactivate(&self, roster: &RosterName, provider: &ProviderId) -> Result<ProviderChange> {
        let params = vec![name(roster.clone()), name(provider.clone()), flag(Some(false))];
        let answer: ProviderReply = self.ask("set_active", params, self.writing()).await?;
        answer.change()
    }

    async fn go_online(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        tenure: Option<&TenureId>,
    ) -> Result<OnlineOutcome> {
        check_tenure(provider, tenure)?;
        let params = vec![
            name(roster.clone()),
            name(provider.clone()),
            text(tenure.map(ToString::to_string)),
        ];
        let answer: ProviderReply = self.ask("go_online", params, self.writing()).await?;
        answer.online()
    }

    async fn go_offline(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        tenure: Option<&TenureId>,
    ) -> Result<ProviderChange> {
        let params = vec![
            name(roster.clone()),
            name(provider.clone()),
            text(tenure.map(ToString::to_string)),
        ];
        let answer: ProviderReply = self.ask("go_offline", params, self.writing()).await?;
        answer.change()
    }

    async fn offline_ended(&self, roster: &RosterName, ended: &[EndedTenure]) -> Result<EndedBatch> {
        check_batch(ended.len())?;
        let params = vec![
            name(roster.clone()),
            texts(Some(
                ended.iter().map(|ended| ended.tenure.member().to_string()).collect(),
            )),
            texts(Some(ended.iter().map(|ended| ended.tenure.to_string()).collect())),
            numbers(ended.iter().map(|ended| signed(ended.at)).collect()),
            texts(Some(
                ended.iter().map(|ended| ended.reason.as_str().to_owned()).collect(),
            )),
            maybe_numbers(ended.iter().map(|ended| ended.heard_at.map(signed)).collect()),
        ];
        let reply: EndedReply = self.ask("offline_ended", params, self.following()).await?;
        Ok(reply.into())
    }

    async fn follow_tenures(&self, roster: &RosterName, follows: &[Follow]) -> Result<Vec<Provider>> {
        check_follows(follows)?;
        let params = vec![
            name(roster.clone()),
            texts(Some(
                follows.iter().map(|follow| follow.from.member().to_string()).collect(),
            )),
            texts(Some(follows.iter().map(|follow| follow.from.to_string()).collect())),
            texts(Some(follows.iter().map(|follow| follow.to.to_string()).collect())),
        ];
        let changed: Items<ProviderRow> = self.ask("follow_tenures", params, self.following()).await?;
        Ok(providers(changed.items))
    }

    async fn record_heartbeats(&self, roster: &RosterName, heartbeats: &[(ProviderId, StoreTime)]) -> Result<u64> {
        check_batch(heartbeats.len())?;
        let mut latest: BTreeMap<&ProviderId, StoreTime> = BTreeMap::new();
        for (provider, at) in heartbeats {
            let known = latest.entry(provider).or_insert(*at);
            *known = (*known).max(*at);
        }
        let params = vec![
            name(roster.clone()),
            texts(Some(latest.keys().map(ToString::to_string).collect())),
            numbers(latest.values().map(|at| signed(*at)).collect()),
        ];
        let news: Count = self.ask("record_heartbeats", params, self.following()).await?;
        Ok(news.count)
    }

    async fn last_heartbeats(
        &self,
        roster: &RosterName,
        providers: &[ProviderId],
    ) -> Result<BTreeMap<ProviderId, StoreTime>> {
        check_batch(providers.len())?;
        let names = providers.iter().map(ToString::to_string).collect();
        let params = vec![name(roster.clone()), texts(Some(names))];
        let read: Items<HeartbeatRow> = self.ask("read_last_heartbeats", params, self.reading()).await?;
        Ok(read.items.into_iter().map(HeartbeatRow::into_pair).collect())
    }

    async fn want_heartbeats(&self, rosters: &[RosterName], lasts: Duration) -> Result<()> {
        check_batch(rosters.len())?;
        let names = rosters.iter().map(ToString::to_string).collect();
        let params = vec![texts(Some(names)), number(span(Some(lasts)))];
        let Acknowledgement {} = self.ask("want_heartbeats", params, self.following()).await?;
        Ok(())
    }

    async fn note_heartbeat_pass(&self, roster: &RosterName, fresh_since: StoreTime) -> Result<()> {
        let params = vec![name(roster.clone()), instant(Some(fresh_since))];
        let Acknowledgement {} = self.ask("note_heartbeat_pass", params, self.following()).await?;
        Ok(())
    }

    async fn heartbeat_pass(&self, roster: &RosterName) -> Result<Option<HeartbeatPass>> {
        let read: PassRead = self
            .ask("read_heartbeat_pass", vec![name(roster.clone())], self.reading())
            .await?;
        Ok(read.pass.map(HeartbeatPass::from))
    }

    async fn available(
        &self,
        roster: &RosterName,
        page: &PageRequest,
        fresh_since: Option<StoreTime>,
    ) -> Result<Page<Candidate>> {
        let (limit, after) = (check_limit(page.limit)?, Candidate::after(page)?);
        let (occupancy, provider) = after.unzip();
        let params = vec![
            name(roster.clone()),
            small(Some(limit + 1)),
            instant(fresh_since),
            number(occupancy.map_or(-1, i64::from)),
            name(provider.map(String::from).unwrap_or_default()),
        ];
        let able: Items<Candidate> = self.ask("read_available", params, self.reading()).await?;
        Ok(page_of(able.items, limit, |one: &Candidate| {
            Candidate::cursor(one.occupancy, &one.provider)
        }))
    }

    async fn stats(&self, roster: &RosterName, fresh_since: Option<StoreTime>) -> Result<RosterStats> {
        let params = vec![name(roster.clone()), instant(fresh_since)];
        let stats: StatsRow = self.ask("read_stats", params, self.reading_many()).await?;
        Ok(stats.into())
    }

    async fn log(
        &self,
        roster: &RosterName,
        provider: Option<&ProviderId>,
        page: &PageRequest,
    ) -> Result<Page<LogEntry>> {
        let limit = check_limit(page.limit)?;
        let after: i64 = match &page.after {
            Some(cursor) => cursor.parse().map_err(|_| bad_cursor(cursor))?,
            None => 0,
        };
        let params = vec![
            name(roster.clone()),
            text(provider.map(ToString::to_string)),
            number(after),
            small(Some(limit + 1)),
        ];
        let read: Items<LogRow> = self.ask("read_log", params, self.reading_many()).await?;
        let entries: Result<Vec<LogEntry>> = read.items.into_iter().map(LogEntry::try_from).collect();
        Ok(page_of(entries?, limit, |entry| entry.id.to_string()))
    }

    async fn create_engagement(&self, roster: &RosterName, engagement: &NewEngagement) -> Result<EngagementOutcome> {
        engagement.check()?;
        let params = vec![
            name(roster.clone()),
            name(engagement.engagement.clone()),
            text(engagement.provider.clone().map(String::from)),
            name(engagement.status.as_str()),
            number(span(engagement.first_expiry())),
            number(span(engagement.active_for)),
        ];
        let answer: EngagementReply = self.ask("create_engagement", params, self.writing()).await?;
        answer.outcome()
    }

    async fn move_engagement(
        &self,
        roster: &RosterName,
        engagement: &EngagementId,
        to: &Move,
    ) -> Result<EngagementOutcome> {
        to.check()?;
        let params = vec![
            name(roster.clone()),
            name(engagement.clone()),
            text(to.status.map(|status| status.as_str().to_owned())),
            text(match &to.provider {
                Reassign::Keep => None,
                Reassign::Unassign => Some(String::new()),
                Reassign::To(provider) => Some(provider.to_string()),
            }),
            number(match to.expiry {
                Expiry::Keep => None,
                Expiry::Never => Some(0),
                Expiry::In(after) => span(Some(after)),
            }),
        ];
        let answer: EngagementReply = self.ask("move_engagement", params, self.writing()).await?;
        answer.outcome()
    }

    async fn reserve(
        &self,
        roster: &RosterName,
        new: &NewEngagement,
        candidates: &Candidates,
    ) -> Result<ReserveOutcome> {
        new.check()?;
        candidates.check()?;
        let names = |names: &[ProviderId]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (among, except) = match candidates {
            Candidates::Among(among) => (Some(names(among)), Vec::new()),
            Candidates::Any { except, .. } => (None, names(except)),
        };
        let params = vec![
            name(roster.clone()),
            name(new.engagement.clone()),
            text(new.provider.clone().map(String::from)),
            texts(among),
            texts(Some(except)),
            instant(candidates.fresh_since()),
            name(new.status.as_str()),
            number(span(new.first_expiry())),
            number(span(new.active_for)),
        ];
        let answer: EngagementReply = self.ask("reserve", params, self.writing()).await?;
        answer.reserved()
    }

    async fn engagement(&self, roster: &RosterName, engagement: &EngagementId) -> Result<Option<Engagement>> {
        let params = vec![name(roster.clone()), name(engagement.clone())];
        let read: EngagementRead = self.ask("read_engagement", params, self.reading()).await?;
        read.engagement.map(Engagement::try_from).transpose()
    }

    async fn expire_due(&self, roster: &RosterName, limit: u32) -> Result<ExpiredBatch> {
        let limit = check_limit(limit)?;
        let params = vec![name(roster.clone()), small(Some(limit))];
        let answer: ExpiredReply = self.ask("expire_due", params, self.writing_many()).await?;
        answer.try_into()
    }

    async fn remove_closed(&self, roster: &RosterName, age: Duration, limit: u32) -> Result<u64> {
        let limit = check_limit(limit)?;
        let params = vec![name(roster.clone()), number(span(Some(age))), small(Some(limit))];
        let count: Count = self.ask("remove_closed", params, self.writing_many()).await?;
        Ok(count.count)
    }

    async fn recount(&self, roster: &RosterName) -> Result<u64> {
        let count: Count = self
            .ask("recount", vec![name(roster.clone())], self.writing_many())
            .await?;
        Ok(count.count)
    }

    async fn dirty(&self, roster: &RosterName, limit: u32) -> Result<Vec<Dirty>> {
        let limit = check_limit(limit)?;
        let params = vec![name(roster.clone()), small(Some(limit))];
        let read: Items<DirtyRow> = self.ask("read_dirty", params, self.reading_many()).await?;
        Ok(read.items.into_iter().map(Dirty::from).collect())
    }

    async fn dirty_counts(&self) -> Result<BTreeMap<RosterName, u64>> {
        let counts: Items<DirtyCount> = self.ask("read_dirty_counts", Vec::new(), self.reading_many()).await?;
        Ok(counts.items.into_iter().map(|row| (row.roster, row.count)).collect())
    }

    async fn clean(&self, roster: &RosterName, rows: &[(ProviderId, Version)]) -> Result<u64> {
        check_batch(rows.len())?;
        let params = vec![
            name(roster.clone()),
            texts(Some(rows.iter().map(|(provider, _)| provider.to_string()).collect())),
            numbers(rows.iter().map(|(_, version)| version_number(*version)).collect()),
        ];
        let cleaned: Count = self.ask("clean", params, self.writing_many()).await?;
        Ok(cleaned.count)
    }

    async fn next_version(&self) -> Result<Version> {
        let drawn: DrawnVersion = self.ask("next_version", Vec::new(), self.writing()).await?;
        Ok(Version(drawn.version))
    }
}

/// Builds a page from rows that were read with a limit one higher.
fn page_of<T>(mut items: Vec<T>, limit: u32, cursor: impl Fn(&T) -> String) -> Page<T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(cursor);
    Page { items, next }
}
