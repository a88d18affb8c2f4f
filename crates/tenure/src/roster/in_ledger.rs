//! Reads of the ledger in place of the mirror, each through the guard.
//!
//! Freshness is judged by the heartbeats recorded in the ledger, which lag; see `freshness`.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_core::error::Result;
use tenure_core::id::{ProviderId, RosterName};
use tenure_core::ledger::{Candidate, HeartbeatPass, Ledger, Provider, ProviderState, RosterSettings, RosterStats};
use tenure_core::roster::SNAPSHOT_AT_MOST_EVERY;
use tenure_core::store::{Page, PageRequest};
use tenure_core::time::StoreTime;

use super::answer::Availability;
use super::fallback::{Guard, Moment, Reads};
use super::freshness::Freshness;
use super::service::Inner;
use super::state::RosterState;

type PageKey = (RosterName, &'static str, Option<String>, u32);

/// One set of coalesced reads per kind.
pub(super) struct LedgerReads {
    rows: Reads<(RosterName, ProviderId), Option<Provider>>,
    pages: Reads<PageKey, Page<Provider>>,
    available: Reads<(RosterName, Option<String>, u32, Freshness), Page<Candidate>>,
    stats: Reads<(RosterName, Freshness), (RosterStats, StoreTime)>,
    snapshot: Reads<(RosterName, Freshness), (RosterStats, StoreTime)>,
    settings: Reads<RosterName, RosterSettings>,
    fresh: Reads<(RosterName, Freshness), Option<StoreTime>>,
    pub(super) passes: Reads<RosterName, Option<HeartbeatPass>>,
    dirty: Reads<(), BTreeMap<RosterName, u64>>,
    rosters: Reads<(), Vec<RosterName>>,
    heard: Reads<(RosterName, Vec<ProviderId>), BTreeMap<ProviderId, StoreTime>>,
}

impl LedgerReads {
    pub(super) fn new(guard: &Guard) -> Self {
        Self {
            rows: guard.reads(),
            pages: guard.reads(),
            available: guard.reads(),
            stats: guard.reads(),
            snapshot: guard.reads(),
            settings: guard.reads(),
            fresh: guard.reads(),
            passes: guard.reads(),
            dirty: guard.reads(),
            rosters: guard.reads(),
            heard: guard.reads(),
        }
    }
}

impl Inner {
    /// A row, no older than the last write of this process.
    pub(super) async fn row(&self, state: &RosterState, provider: &ProviderId) -> Result<Option<Provider>> {
        self.row_after(state, provider, state.last_write()).await
    }

    /// A row, no older than this call.
    pub(super) async fn row_now(&self, state: &RosterState, provider: &ProviderId) -> Result<Option<Provider>> {
        self.row_after(state, provider, Some(self.guard().moment())).await
    }

    async fn row_after(
        &self,
        state: &RosterState,
        provider: &ProviderId,
        after: Option<Moment>,
    ) -> Result<Option<Provider>> {
        let (ledger, key) = (Arc::clone(self.ledger()), (state.roster().clone(), provider.clone()));
        let (roster, provider) = key.clone();
        let work = move || async move { ledger.provider(&roster, &provider).await };
        self.reads().rows.read(key, after, work).await
    }

    pub(super) async fn page(
        &self,
        state: &RosterState,
        in_state: Option<ProviderState>,
        page: &PageRequest,
    ) -> Result<Page<Provider>> {
        let (ledger, roster, page) = (Arc::clone(self.ledger()), state.roster().clone(), page.clone());
        let name = in_state.map_or("", ProviderState::as_str);
        let key = (roster.clone(), name, page.after.clone(), page.limit);
        let work = move || async move { ledger.providers(&roster, in_state, &page).await };
        self.reads().pages.read(key, state.last_write(), work).await
    }

    pub(super) async fn candidates(&self, state: &RosterState, page: &PageRequest) -> Result<Page<Candidate>> {
        let freshness = self.freshness(state).await?;
        let (ledger, roster, page) = (Arc::clone(self.ledger()), state.roster().clone(), page.clone());
        let key = (roster.clone(), page.after.clone(), page.limit, freshness);
        let work = move || async move {
            let fresh = freshness.since(&*ledger).await?;
            ledger.available(&roster, &page, fresh).await
        };
        self.reads().available.read(key, state.last_write(), work).await
    }

    /// The counts, and the ledger's time at which they were made.
    pub(super) async fn counts(&self, state: &RosterState) -> Result<(RosterStats, StoreTime)> {
        let freshness = self.freshness(state).await?;
        let (ledger, roster) = (Arc::clone(self.ledger()), state.roster().clone());
        let key = (roster.clone(), freshness);
        let work = move || async move { counted(&*ledger, &roster, freshness).await };
        self.reads().stats.read(key, state.last_write(), work).await
    }

    /// How many providers can take work, cached for a second.
    pub(super) async fn count(&self, state: &Arc<RosterState>) -> Result<Availability> {
        let clock = Arc::clone(self.shared_clock());
        if let Some(counted) = state.counted(SNAPSHOT_AT_MOST_EVERY, clock.mono()) {
            return Ok(counted);
        }
        let freshness = self.freshness(state).await?;
        let (ledger, roster) = (Arc::clone(self.ledger()), state.roster().clone());
        let (key, kept) = ((roster.clone(), freshness), Arc::clone(state));
        let work = move || async move {
            let asked_at = clock.mono();
            let (stats, as_of) = counted(&*ledger, &roster, freshness).await?;
            let count = stats.available;
            // Cached before the result is delivered: later callers find it.
            kept.set_counted(
                asked_at,
                Availability {
                    count,
                    as_of,
                    complete: true,
                },
            );
            Ok((stats, as_of))
        };
        let (stats, as_of) = self.reads().snapshot.read(key, None, work).await?;
        Ok(Availability {
            count: stats.available,
            as_of,
            complete: true,
        })
    }

    /// Since when, on the ledger's clock, a provider must have sent a heartbeat to be chosen by the ledger alone.
    pub(super) async fn fresh_since(&self, state: &RosterState) -> Result<Option<StoreTime>> {
        let freshness = self.freshness(state).await?;
        let ledger = Arc::clone(self.ledger());
        let work = move || async move { freshness.since(&*ledger).await };
        let key = (state.roster().clone(), freshness);
        self.reads().fresh.read(key, None, work).await
    }

    /// The existing rosters, no older than this call.
    pub(super) async fn rosters_now(&self) -> Result<Vec<RosterName>> {
        let ledger = Arc::clone(self.ledger());
        let work = move || async move { ledger.rosters().await };
        self.reads().rosters.read((), Some(self.guard().moment()), work).await
    }

    /// The last heartbeats of these providers that the ledger has.
    pub(super) async fn last_heartbeats(
        &self,
        state: &RosterState,
        providers: Vec<ProviderId>,
    ) -> Result<BTreeMap<ProviderId, StoreTime>> {
        let (ledger, key) = (Arc::clone(self.ledger()), (state.roster().clone(), providers));
        let (roster, providers) = key.clone();
        let work = move || async move { ledger.last_heartbeats(&roster, &providers).await };
        self.reads().heard.read(key, None, work).await
    }

    /// How many rows wait for the mirror, for each roster that has some.
    pub(super) async fn dirty_counts(&self) -> Result<BTreeMap<RosterName, u64>> {
        let ledger = Arc::clone(self.ledger());
        let work = move || async move { ledger.dirty_counts().await };
        self.reads().dirty.read((), None, work).await
    }

    /// The settings: the known ones, else the ledger's, else the mirror's, else the defaults.
    pub(super) async fn settings_of(&self, state: &RosterState) -> RosterSettings {
        if let Some(known) = state.settings() {
            return known;
        }
        let from_ledger = self.settings_in_ledger(state).await;
        let settings = match from_ledger {
            Ok(settings) => Some(settings),
            Err(_) => self.settings_in_mirror(state).await.ok().flatten(),
        };
        settings.map_or_else(RosterSettings::default, |settings| {
            state.apply_if_newer(settings);
            state.settings().unwrap_or(settings)
        })
    }

    pub(super) async fn settings_in_ledger(&self, state: &RosterState) -> Result<RosterSettings> {
        let (ledger, roster) = (Arc::clone(self.ledger()), state.roster().clone());
        let key = roster.clone();
        let work = move || async move { ledger.settings(&roster).await };
        self.reads().settings.read(key, state.last_write(), work).await
    }

    pub(super) async fn settings_in_mirror(&self, state: &RosterState) -> Result<Option<RosterSettings>> {
        let mirror = state.mirror();
        if mirror.is_away() {
            return Ok(None);
        }
        let call = mirror.api()?.roster_settings(mirror.group());
        mirror.call(mirror.patience(), call).await
    }
}

async fn counted(ledger: &dyn Ledger, roster: &RosterName, freshness: Freshness) -> Result<(RosterStats, StoreTime)> {
    let now = ledger.now().await?;
    Ok((ledger.stats(roster, freshness.at(now)).await?, now))
}
