//! Access to rosters: through a daemon, or by a store and a ledger.

use std::sync::Arc;
use std::time::Duration;

use tenure::client::Tenure;
use tenure::http::{HttpSettings, HttpStore, RemoteRoster, RemoteRosters};
use tenure::ledger;
use tenure::loops::Loops;
use tenure::roster::{
    self, Availability, EngagementAnswer, HeartbeatOutcome, Online, ProviderView, Removal, Reservation, Rosters,
    RostersSettings, Sourced, Written,
};
use tenure::wire::roster::HotStoreState;
use tenure_core::error::Result;
use tenure_core::id::{EngagementId, ProviderId, RosterName};
use tenure_core::ledger::{
    Candidate, Engagement, Ledger, LogEntry, Move, NewEngagement, Provider, ProviderSpec, ProviderState,
    RosterSettings, RosterStats, SettingsPatch,
};
use tenure_core::store::{Page, PageRequest};
use tokio::runtime::Handle;

use crate::cli::StoreArgs;
use crate::connect::{is_daemon, refused_ledger, token};
use crate::exit::Usage;
use crate::settings::beside;

/// How long the loops of the local service may take to end.
const LOOPS_WAIT: Duration = Duration::from_secs(1);

/// A connection to rosters.
pub(super) enum RosterAccess {
    /// A daemon.
    Daemon(RemoteRosters, Tenure),
    /// A roster service in this process.
    Local(Box<LocalRosters>),
}

/// A roster service in this process.
pub(super) struct LocalRosters {
    rosters: Rosters,
    ledger: Arc<dyn Ledger>,
    loops: Loops,
    tenure: Tenure,
}

impl RosterAccess {
    /// Connects. A SQLite file that a daemon owns is reached through that daemon, and its ledger with it.
    ///
    /// # Errors
    /// `Usage` for a store on a network without a ledger, and what connecting answers.
    pub(super) async fn open(store: &StoreArgs, ledger: Option<&str>) -> anyhow::Result<Self> {
        let connected = store.connect().await?;
        let (tenure, url) = (connected.tenure, connected.url);
        let clock = Arc::clone(tenure.clock());
        if is_daemon(&url) {
            let settings = HttpSettings::default();
            let store = HttpStore::with_token(&url, clock, Handle::current(), settings, token()?)?;
            let rosters = RemoteRosters::of(store);
            return Ok(Self::Daemon(rosters, tenure));
        }
        let given = ledger.filter(|url| !url.is_empty()).map(str::to_owned);
        let Some(url) = given.or_else(|| beside(&url)) else {
            return Err(Usage::new(
                "--ledger: a store without a daemon needs the ledger of its rosters (postgres://…); or name a daemon as the store",
            )
            .into());
        };
        let opened = ledger::open(&url, Arc::clone(&clock)).await;
        let ledger = opened.map_err(|error| refused_ledger(&url, error))?;
        let loops = Loops::new(Arc::clone(&clock), Handle::current());
        let (store, settings) = (Arc::clone(tenure.store()), RostersSettings::default());
        let rosters = Rosters::start(store, Arc::clone(&ledger), clock, settings, &loops)?;
        Ok(Self::Local(Box::new(LocalRosters {
            rosters,
            ledger,
            loops,
            tenure,
        })))
    }

    /// Closes all connections.
    pub(super) async fn close(self) {
        match self {
            Self::Daemon(_, tenure) => tenure.close().await,
            Self::Local(own) => {
                own.loops.shut_down(LOOPS_WAIT).await;
                own.ledger.close().await;
                own.tenure.close().await;
            }
        }
    }

    /// The rosters by name.
    pub(super) async fn names(&self) -> Result<Vec<RosterName>> {
        match self {
            Self::Daemon(rosters, _) => rosters.names().await,
            Self::Local(own) => own.ledger.rosters().await,
        }
    }

    /// The hot store, and that of the ledger.
    pub(super) async fn hot_store(&self) -> Result<HotStoreState> {
        match self {
            Self::Daemon(rosters, _) => rosters.hot_store().await,
            Self::Local(own) => own.rosters.hot_store().await.map(HotStoreState::from),
        }
    }

    /// Makes the hot store that of the ledger.
    pub(super) async fn replace_hot_store(&self) -> Result<HotStoreState> {
        match self {
            Self::Daemon(rosters, _) => rosters.replace_hot_store().await,
            Self::Local(own) => own.rosters.replace_hot_store().await.map(HotStoreState::from),
        }
    }

    /// One of them.
    pub(super) fn roster(&self, name: &RosterName) -> Result<RosterClient> {
        match self {
            Self::Daemon(rosters, _) => Ok(RosterClient::Remote(rosters.roster(name))),
            Self::Local(own) => Ok(RosterClient::Local(own.rosters.roster(name)?)),
        }
    }
}

/// One roster, wherever it is.
pub(super) enum RosterClient {
    Remote(RemoteRoster),
    Local(roster::Roster),
}

macro_rules! either {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl RosterClient {
            $(pub(super) async fn $name(&self, $($argument: $type),*) -> Result<$answer> {
                match self {
                    Self::Remote(roster) => roster.$name($($argument),*).await,
                    Self::Local(roster) => roster.$name($($argument),*).await,
                }
            })*
        }
    };
}

either! {
    fn settings() -> Sourced<RosterSettings>;
    fn set_settings(patch: &SettingsPatch) -> Written<RosterSettings>;
    fn provider(provider: &ProviderId) -> Sourced<Option<ProviderView>>;
    fn available_page(page: &PageRequest) -> Sourced<Page<Candidate>>;
    fn availability() -> Sourced<Availability>;
    fn stats() -> Sourced<RosterStats>;
    fn providers(state: Option<ProviderState>, page: &PageRequest) -> Sourced<Page<ProviderView>>;
    fn log(provider: Option<&ProviderId>, page: &PageRequest) -> Page<LogEntry>;
    fn put_provider(provider: &ProviderId, spec: &ProviderSpec) -> Written<Provider>;
    fn remove_provider(provider: &ProviderId) -> Removal;
    fn online(provider: &ProviderId) -> Online;
    fn offline(provider: &ProviderId) -> Written<Provider>;
    fn activate(provider: &ProviderId) -> Written<Provider>;
    fn deactivate(provider: &ProviderId) -> Written<Provider>;
    fn create_engagement(engagement: &NewEngagement) -> EngagementAnswer;
    fn move_engagement(engagement: &EngagementId, to: &Move) -> EngagementAnswer;
    fn engagement(engagement: &EngagementId) -> Option<Engagement>;
    fn reserve_except(new: &NewEngagement, except: &[ProviderId]) -> Reservation;
}

impl RosterClient {
    pub(super) async fn heartbeat(&self, provider: &ProviderId) -> Result<HeartbeatOutcome> {
        match self {
            Self::Remote(roster) => roster.heartbeat(provider).await,
            Self::Local(roster) => roster.heartbeat(provider, None).await,
        }
    }

    pub(super) fn name_engagement(&self) -> Result<EngagementId> {
        match self {
            Self::Remote(roster) => roster.name_engagement(),
            Self::Local(roster) => roster.name_engagement(),
        }
    }
}
