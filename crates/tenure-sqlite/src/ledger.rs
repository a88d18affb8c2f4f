//! The ledger of rosters in a SQLite file of its own.
//!
//! It is separate from the store's file for three reasons. Other programs may write to it with plain SQL; only this crate
//! may write to the store's. It must be backed up; a store can be removed, and all members join again. And a batch of ten
//! thousand heartbeats does not delay a lease. The executor provides one owner, one writer with group commit and full sync, separate
//! readers, and a clock that never falls.
//!
//! Each step is one savepoint of the writer's transaction and decides by the contents of the file; nothing is cached.
//! Triggers write the version, the outbox and the log of a change (`sql/ledger/schema/triggers.sql`).

mod engagement;
mod liveness;
mod log;
mod outbox;
mod provider;
mod reserve;
mod rows;
mod settings;
mod step;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;
use tenure_core::ledger::provider::check_batch;
use tenure_core::ledger::{
    Candidate, Candidates, Dirty, EndedBatch, EndedTenure, Engagement, EngagementOutcome, ExpiredBatch, Follow,
    HeartbeatMarks, HeartbeatPass, LogEntry, Move, NewEngagement, OnlineOutcome, Overview, Provider, ProviderChange,
    ProviderSpec, ProviderState, RemoveOutcome, ReserveOutcome, RosterSettings, RosterStats, SettingsPatch, Version,
    check_follows, check_tenure,
};
use tenure_core::store::{Finding, Health, Page, PageRequest, bad_cursor, check_limit};
use tenure_core::{Clock, EngagementId, Ledger, ProviderId, Result, RosterName, StoreTime, TenureId};

use self::step::Step;
use crate::error::Cause;
use crate::executor::Executor;
use crate::file::{self, unreadable};
use crate::open_file::OpenFile;
use crate::reader::Readers;
use crate::sql::{read_instant, statements};
use crate::writer::{Answer, Transaction};
use tenure_core::engine::StoreClock;

statements! { "ledger/step.sql":
    HIGH_WATER = "high_water",
}

/// The ledger of rosters in one SQLite file, owned by this process. `sqlite:PATH`.
///
/// Other programs may read the file, and write to its tables `rosters`, `providers`, `heartbeats` and `engagements`, while
/// it is open: what they change gets versions, log entries and outbox rows like what the steps change. A transaction of
/// theirs delays every step, and makes it fail when it takes more than 10 s.
#[derive(Debug)]
pub struct SqliteLedger {
    executor: Executor,
    /// In memory: no other process can have this file.
    heartbeats: Mutex<HeartbeatMarks>,
}

impl SqliteLedger {
    /// Opens the file at `path`, makes it if it is missing, and owns it until [`close`](Ledger::close) or the end of the
    /// process. All acknowledged changes are present. O(1). Blocks, so call it at start-up or on a
    /// thread that may block.
    ///
    /// # Errors
    /// `Misconfigured`, with nothing changed in the file: another process owns it (named), the path is a directory or
    /// cannot be written, the file is damaged, another program's, a store's, or a newer Tenure's. `Unavailable` when
    /// another program holds SQLite's write lock for more than 10 s.
    pub fn open(path: impl AsRef<Path>, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        let (path, lock) = file::lock(path.as_ref(), &file::LEDGER)?;
        let sql = file::open_writer(&path, &file::LEDGER)?;
        let load = || -> Result<_, Cause> {
            let high_water = sql.query_row(HIGH_WATER, [], |row| read_instant(row, 0))?;
            Ok((high_water, Readers::open(&path, lock.pin())?))
        };
        let (high_water, readers) = load().map_err(|cause| unreadable(&path, &file::LEDGER, &cause))?;
        let clock = Arc::new(StoreClock::new(clock, high_water));
        let file = Arc::new(OpenFile::new(&file::LEDGER, path, clock, lock, Vec::new()));
        let executor = Executor::start(file, sql, readers)?;
        Ok(Arc::new(Self {
            executor,
            heartbeats: Mutex::default(),
        }))
    }

    /// Records where this process serves the ledger, for the error of processes that find the file locked.
    ///
    /// # Errors
    /// `Unavailable` when the lock file cannot be written or the ledger is closed.
    pub fn set_address(&self, listen: &str) -> Result<()> {
        self.executor.file().set_address(listen)
    }

    /// The file, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.executor.file().path
    }

    /// Has the writer run a step on a roster, and waits until it is durable.
    async fn step<T: Send + 'static>(
        &self,
        roster: &RosterName,
        work: impl FnOnce(&mut Step<'_>) -> Answer<T> + Send + 'static,
    ) -> Result<T> {
        let (file, roster) = (Arc::clone(self.executor.file()), roster.clone());
        let step = move |transaction: &mut Transaction, sql: &Connection| {
            let now = file.clock.now();
            work(&mut Step::new(sql, &roster, now, transaction))
        };
        self.executor.step(step).await
    }

    /// The marks and passes of heartbeats, and the ledger's time.
    fn heartbeats(&self) -> Result<(MutexGuard<'_, HeartbeatMarks>, StoreTime)> {
        self.executor.file().check_open()?;
        let marks = self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((marks, self.executor.file().clock.now()))
    }

    /// Reads a roster on a connection of its own.
    async fn read<T: Send + 'static>(
        &self,
        roster: &RosterName,
        read: impl FnOnce(&Connection, &str) -> Result<T, Cause> + Send + 'static,
    ) -> Result<T> {
        let roster = roster.clone();
        self.executor.read(move |sql| read(sql, roster.as_str())).await
    }
}

#[async_trait]
impl Ledger for SqliteLedger {
    fn place(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    fn health(&self) -> Health {
        self.executor.file().health()
    }

    async fn now(&self) -> Result<StoreTime> {
        self.executor.file().check_open()?;
        self.executor.keep_high_water();
        Ok(self.executor.file().clock.now())
    }

    async fn examine(&self) -> Vec<Finding> {
        crate::examine::examine(self.executor.file()).await
    }

    async fn close(&self) {
        self.executor.close().await;
    }

    async fn rosters(&self) -> Result<Vec<RosterName>> {
        self.executor.read(settings::rosters).await
    }

    async fn overview(&self) -> Result<Overview> {
        let rosters = self.executor.read(settings::overview).await?;
        let (mut marks, as_of) = self.heartbeats()?;
        Ok(Overview {
            as_of,
            rosters,
            wanted: marks.wanted(as_of).into_iter().collect(),
        })
    }

    async fn settings(&self, roster: &RosterName) -> Result<RosterSettings> {
        let known = self.read(roster, settings::get).await?;
        Ok(known.unwrap_or_default())
    }

    async fn set_settings(&self, roster: &RosterName, patch: &SettingsPatch) -> Result<RosterSettings> {
        patch.check()?;
        let patch = *patch;
        self.step(roster, move |step| step.set_settings(&patch)).await
    }

    async fn put_provider(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        spec: &ProviderSpec,
    ) -> Result<ProviderChange> {
        spec.check()?;
        let (provider, spec) = (provider.clone(), spec.clone());
        self.step(roster, move |step| step.put(&provider, &spec)).await
    }

    async fn remove_provider(&self, roster: &RosterName, provider: &ProviderId) -> Result<RemoveOutcome> {
        let provider = provider.clone();
        self.step(roster, move |step| step.remove(&provider)).await
    }

    async fn provider(&self, roster: &RosterName, provider: &ProviderId) -> Result<Option<Provider>> {
        let provider = provider.clone();
        self.read(roster, move |sql, roster| provider::get(sql, roster, provider.as_str()))
            .await
    }

    async fn providers_named(
        &self,
        roster: &RosterName,
        providers: &[ProviderId],
    ) -> Result<BTreeMap<ProviderId, Provider>> {
        check_batch(providers.len())?;
        let names = providers.to_vec();
        self.read(roster, move |sql, roster| {
            let mut rows = BTreeMap::new();
            for name in names {
                rows.extend(provider::get(sql, roster, name.as_str())?.map(|row| (name, row)));
            }
            Ok(rows)
        })
        .await
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
        self.read(roster, move |sql, roster| {
            provider::list(sql, roster, state, &after, limit)
        })
        .await
    }

    async fn activate(&self, roster: &RosterName, provider: &ProviderId) -> Result<ProviderChange> {
        let provider = provider.clone();
        self.step(roster, move |step| step.set_active(&provider, true)).await
    }

    async fn deactivate(&self, roster: &RosterName, provider: &ProviderId) -> Result<ProviderChange> {
        let provider = provider.clone();
        self.step(roster, move |step| step.set_active(&provider, false)).await
    }

    async fn go_online(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        tenure: Option<&TenureId>,
    ) -> Result<OnlineOutcome> {
        check_tenure(provider, tenure)?;
        let (provider, tenure) = (provider.clone(), tenure.cloned());
        self.step(roster, move |step| step.go_online(&provider, tenure.as_ref()))
            .await
    }

    async fn go_offline(
        &self,
        roster: &RosterName,
        provider: &ProviderId,
        tenure: Option<&TenureId>,
    ) -> Result<ProviderChange> {
        let (provider, tenure) = (provider.clone(), tenure.cloned());
        self.step(roster, move |step| step.go_offline(&provider, tenure.as_ref()))
            .await
    }

    async fn offline_ended(&self, roster: &RosterName, ended: &[EndedTenure]) -> Result<EndedBatch> {
        check_batch(ended.len())?;
        let ended = ended.to_vec();
        self.step(roster, move |step| step.offline_ended(ended)).await
    }

    async fn follow_tenures(&self, roster: &RosterName, follows: &[Follow]) -> Result<Vec<Provider>> {
        check_follows(follows)?;
        let follows = follows.to_vec();
        self.step(roster, move |step| step.follow_tenures(follows)).await
    }

    async fn record_heartbeats(&self, roster: &RosterName, heartbeats: &[(ProviderId, StoreTime)]) -> Result<u64> {
        check_batch(heartbeats.len())?;
        let heartbeats = heartbeats.to_vec();
        self.step(roster, move |step| step.record_heartbeats(&heartbeats)).await
    }

    async fn last_heartbeats(
        &self,
        roster: &RosterName,
        providers: &[ProviderId],
    ) -> Result<BTreeMap<ProviderId, StoreTime>> {
        check_batch(providers.len())?;
        let providers = providers.to_vec();
        self.read(roster, move |sql, roster| {
            liveness::last_heartbeats(sql, roster, &providers)
        })
        .await
    }

    async fn want_heartbeats(&self, rosters: &[RosterName], lasts: Duration) -> Result<()> {
        check_batch(rosters.len())?;
        let (mut marks, now) = self.heartbeats()?;
        marks.want(rosters, now + lasts);
        Ok(())
    }

    async fn note_heartbeat_pass(&self, roster: &RosterName, fresh_since: StoreTime) -> Result<()> {
        let (mut marks, now) = self.heartbeats()?;
        marks.passed(roster, fresh_since, now);
        Ok(())
    }

    async fn heartbeat_pass(&self, roster: &RosterName) -> Result<Option<HeartbeatPass>> {
        let (marks, now) = self.heartbeats()?;
        Ok(marks.pass(roster, now))
    }

    async fn available(
        &self,
        roster: &RosterName,
        page: &PageRequest,
        fresh_since: Option<StoreTime>,
    ) -> Result<Page<Candidate>> {
        let (limit, after) = (check_limit(page.limit)?, Candidate::after(page)?);
        self.read(roster, move |sql, roster| {
            let rows = reserve::available(sql, roster, after.as_ref(), limit + 1, fresh_since)?;
            Ok(rows::page(rows, limit, |one| {
                Candidate::cursor(one.occupancy, &one.provider)
            }))
        })
        .await
    }

    async fn stats(&self, roster: &RosterName, fresh_since: Option<StoreTime>) -> Result<RosterStats> {
        self.read(roster, move |sql, roster| provider::stats(sql, roster, fresh_since))
            .await
    }

    async fn log(
        &self,
        roster: &RosterName,
        provider: Option<&ProviderId>,
        page: &PageRequest,
    ) -> Result<Page<LogEntry>> {
        let limit = check_limit(page.limit)?;
        let after: u64 = match &page.after {
            Some(cursor) => cursor.parse().map_err(|_| bad_cursor(cursor))?,
            None => 0,
        };
        let provider = provider.cloned();
        self.read(roster, move |sql, roster| {
            log::read(sql, roster, provider.as_ref(), after, limit)
        })
        .await
    }

    async fn create_engagement(&self, roster: &RosterName, engagement: &NewEngagement) -> Result<EngagementOutcome> {
        engagement.check()?;
        let new = engagement.clone();
        self.step(roster, move |step| step.create(&new)).await
    }

    async fn move_engagement(
        &self,
        roster: &RosterName,
        engagement: &EngagementId,
        to: &Move,
    ) -> Result<EngagementOutcome> {
        to.check()?;
        let (engagement, to) = (engagement.clone(), to.clone());
        self.step(roster, move |step| step.move_to(&engagement, &to)).await
    }

    async fn reserve(
        &self,
        roster: &RosterName,
        new: &NewEngagement,
        candidates: &Candidates,
    ) -> Result<ReserveOutcome> {
        new.check()?;
        candidates.check()?;
        let (new, candidates) = (new.clone(), candidates.clone());
        self.step(roster, move |step| step.reserve(&new, &candidates)).await
    }

    async fn engagement(&self, roster: &RosterName, engagement: &EngagementId) -> Result<Option<Engagement>> {
        let engagement = engagement.clone();
        self.read(roster, move |sql, roster| engagement::get(sql, roster, &engagement))
            .await
    }

    async fn expire_due(&self, roster: &RosterName, limit: u32) -> Result<ExpiredBatch> {
        let limit = check_limit(limit)?;
        self.step(roster, move |step| step.expire_due(limit)).await
    }

    async fn remove_closed(&self, roster: &RosterName, age: Duration, limit: u32) -> Result<u64> {
        let limit = check_limit(limit)?;
        self.step(roster, move |step| step.remove_closed(age, limit)).await
    }

    async fn recount(&self, roster: &RosterName) -> Result<u64> {
        self.step(roster, |step| step.recount()).await
    }

    async fn dirty(&self, roster: &RosterName, limit: u32) -> Result<Vec<Dirty>> {
        let limit = check_limit(limit)?;
        self.read(roster, move |sql, roster| outbox::dirty(sql, roster, limit))
            .await
    }

    async fn dirty_counts(&self) -> Result<BTreeMap<RosterName, u64>> {
        self.executor.read(outbox::counts).await
    }

    async fn clean(&self, roster: &RosterName, rows: &[(ProviderId, Version)]) -> Result<u64> {
        check_batch(rows.len())?;
        let rows = rows.to_vec();
        self.step(roster, move |step| step.clean(&rows)).await
    }

    async fn next_version(&self) -> Result<Version> {
        self.executor.step(|_, sql| outbox::next_version(sql)).await
    }
}

#[cfg(test)]
mod tests;
