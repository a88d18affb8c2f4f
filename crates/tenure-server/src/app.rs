//! What all requests share.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use tenure::batch::{BatchSettings, BeatBatcher};
use tenure::crowd::CrowdLog;
use tenure::loops::Loops;
use tenure::roster::Rosters;
use tenure::sweeper::Sweeper;
use tenure_core::clock::{Clock, Mono};
use tenure_core::error::Result;
use tenure_core::ledger::Ledger;
use tenure_core::remote_clock::{FRESH, RemoteClock};
use tenure_core::store::Store;
use tenure_core::time::StoreTime;
use tenure_core::timeout::Timeout;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::auth::Guard;
use crate::bodies::Bodies;
use crate::door::Door;
use crate::jwt::Verifier;
use crate::limits::Limiter;
use crate::refusals::Refusals;
use crate::room::Room;
use crate::settings::Settings;
use crate::tls::Tls;
use crate::watch::Watch;

/// What a server works with.
#[derive(Clone)]
pub struct Parts {
    /// The store that it serves.
    pub store: Arc<dyn Store>,
    /// Local time.
    pub clock: Arc<dyn Clock>,
    /// The background loops that `/livez` and `/v1/status` report on. The server adds its own (`watch`, `metrics`);
    /// whoever owns the supervisor shuts it down after the server.
    pub loops: Loops,
    /// The janitor of this process, when it has one: told at once which groups are joined here, so that none waits for
    /// its next look at the store.
    pub sweeper: Option<Sweeper>,
    /// Rosters; without them their routes answer 501.
    pub rosters: Option<RosterParts>,
}

/// What a server needs to serve rosters.
#[derive(Clone)]
pub struct RosterParts {
    /// The service, on the store of the server.
    pub rosters: Rosters,
    /// Its ledger, for status and doctor.
    pub ledger: Arc<dyn Ledger>,
    /// Checks the tokens of providers, who need one from then on. Whoever starts the server runs its
    /// [`KeyWatch`](crate::jwt::KeyWatch).
    pub jwt: Option<Arc<Verifier>>,
}

impl Parts {
    /// A store, a clock, and a supervisor of its own on the current runtime; no janitor, and no rosters.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let loops = Loops::new(Arc::clone(&clock), Handle::current());
        Self {
            store,
            clock,
            loops,
            sweeper: None,
            rosters: None,
        }
    }
}

/// The state behind the routes.
pub(crate) struct App {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) loops: Loops,
    pub(crate) sweeper: Option<Sweeper>,
    pub(crate) rosters: Option<Rosters>,
    pub(crate) ledger: Option<Arc<dyn Ledger>>,
    pub(crate) jwt: Option<Arc<Verifier>>,
    pub(crate) guard: Guard,
    pub(crate) door: Door,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) limiter: Option<Limiter>,
    pub(crate) settings: Settings,
    pub(crate) beats: BeatBatcher,
    pub(crate) watch: Watch,
    pub(crate) began: Mono,
    /// The shutdown has begun: streams end, readiness fails.
    pub(crate) draining: CancellationToken,
    pub(crate) requests: Room,
    /// Beats have room of their own, for their places and for their bodies.
    pub(crate) beating: Room,
    pub(crate) streams: Room,
    pub(crate) sweeps: Room,
    pub(crate) refusals: Refusals,
    /// Limits the lines about members that come and go.
    pub(crate) crowd: CrowdLog,
    pub(crate) bodies: Bodies,
    pub(crate) beat_bodies: Bodies,
    /// A secret of this process, from which the counters of callers and groups are derived.
    pub(crate) seed: u64,
    pub(crate) openapi: OnceLock<Bytes>,
    store_clock: RemoteClock,
}

/// How many times as long as others the body of a batch may be.
pub(crate) const BATCH: usize = 4;
/// How many sweeps one caller may ask for over HTTP at once.
const MAX_SWEEPS: usize = 8;

impl App {
    /// Puts it together. Reads the files of tokens and certificates that the settings name.
    ///
    /// # Errors
    /// `Misconfigured` for a file that cannot be used.
    pub(crate) fn new(parts: Parts, settings: Settings, door: Door, draining: CancellationToken) -> Result<Arc<Self>> {
        let guard = Guard::new(settings.tokens.as_ref().map(|tokens| tokens.file.clone()))?;
        let tls = settings.tls.as_ref().map(Tls::new).transpose()?.map(Arc::new);
        let Parts {
            store,
            clock,
            loops,
            sweeper,
            rosters,
        } = parts;
        let (rosters, ledger, jwt) = match rosters {
            Some(parts) => (Some(parts.rosters), Some(parts.ledger), parts.jwt),
            None => (None, None, None),
        };
        let batch = BatchSettings {
            give_up: settings.request_timeout,
            ..BatchSettings::default()
        };
        let bodies = || Bodies::new(settings.body_limit.saturating_mul(BATCH), settings.body_timeout);
        let beats = BeatBatcher::new(Arc::clone(&store), Arc::clone(&clock), Handle::current(), batch);
        Ok(Arc::new(Self {
            limiter: settings.rate.map(Limiter::new),
            guard,
            door,
            tls,
            began: clock.mono(),
            watch: Watch::default(),
            requests: Room::new(settings.max_requests),
            beating: Room::new(settings.max_requests),
            streams: Room::new(settings.max_streams),
            sweeps: Room::new(MAX_SWEEPS),
            refusals: Refusals::default(),
            crowd: CrowdLog::default(),
            bodies: bodies(),
            beat_bodies: bodies(),
            seed: clock.entropy(),
            openapi: OnceLock::new(),
            store_clock: RemoteClock::default(),
            store,
            clock,
            loops,
            sweeper,
            rosters,
            ledger,
            jwt,
            settings,
            beats,
            draining,
        }))
    }

    /// Asks the store for something that changes nothing, within the request timeout.
    pub(crate) async fn read<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let bound = Timeout::read(self.settings.request_timeout);
        bound.call(&*self.clock, "the store", work).await
    }

    /// Asks the store for a change, within the request timeout.
    pub(crate) async fn write<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let bound = Timeout::change(self.settings.request_timeout);
        bound.call(&*self.clock, "the store", work).await
    }

    /// The same for an end, or for so many beats, claims or leases: one step of the store has the store's own time-out.
    pub(crate) async fn step<T>(&self, items: usize, work: impl Future<Output = Result<T>>) -> Result<T> {
        let bound = Timeout::change(self.settings.request_timeout);
        bound.steps(&*self.clock, &*self.store, items, work).await
    }

    /// Asks for something whose answer shows the store's time.
    pub(crate) async fn timed<T>(
        &self,
        work: impl Future<Output = Result<T>>,
        as_of: impl FnOnce(&T) -> StoreTime,
    ) -> Result<T> {
        let asked = self.clock.mono();
        let answer = work.await?;
        self.learn(as_of(&answer), asked, self.clock.mono());
        Ok(answer)
    }

    /// A reply showed the store's time.
    pub(crate) fn learn(&self, shown: StoreTime, asked: Mono, arrived: Mono) {
        self.store_clock.learn(shown, asked, arrived);
    }

    /// Asks for the store's time.
    pub(crate) async fn now(&self) -> Result<StoreTime> {
        self.timed(self.read(self.store.now()), |now| *now).await
    }

    /// The store's clock, or a little less; `None` when no recent reply showed it. Never ahead of it, so that a not-after
    /// that a client makes from it is never too generous.
    pub(crate) fn store_time(&self) -> Option<StoreTime> {
        let now = self.clock.mono();
        self.store_clock
            .at_least(now)
            .filter(|_| self.store_clock.is_fresh(now))
    }
}

impl App {
    /// How many requests have a place.
    pub(crate) fn in_flight(&self) -> usize {
        self.requests.held() + self.beating.held()
    }

    /// Whether the store was heard of lately, or cannot have been yet. The watch loop sees to it every second.
    pub(crate) fn heard_of_store(&self) -> bool {
        self.store_time().is_some() || self.clock.mono().since(self.began) <= FRESH
    }
}
