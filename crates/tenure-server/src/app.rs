//! The state that all requests share, and the time-outs of their calls to the store.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use tenure::batch::{BatchSettings, BeatBatcher};
use tenure::burst::BurstLog;
use tenure::lease::LeaseWaits;
use tenure::loops::Loops;
use tenure::pulse::Pulser;
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
use crate::jwt::Verifier;
use crate::limits::Limiter;
use crate::new_groups::NewGroups;
use crate::origin_check::OriginCheck;
use crate::refusals::Refusals;
use crate::room::Room;
use crate::settings::Settings;
use crate::settings_watch::StoreWarnings;
use crate::tls::Tls;
use crate::watch::Watch;

/// The parts a server is built from.
#[derive(Clone)]
pub struct Parts {
    /// The store it serves, with its pulse. Everything that takes beats goes through [`Pulser::watched`].
    pub pulser: Arc<Pulser>,
    /// Local time.
    pub clock: Arc<dyn Clock>,
    /// The background loops that `/livez` and `/v1/status` report on. The server adds its own (`watch`, `metrics`); the owner
    /// of the loops shuts them down after the server.
    pub loops: Loops,
    /// The janitor of this process, if it has one. Each join registers its group here, so that the janitor does not have to
    /// discover it.
    pub sweeper: Option<Sweeper>,
    /// Rosters; without them the roster routes answer 501.
    pub rosters: Option<RosterParts>,
}

/// What a server needs to serve rosters.
#[derive(Clone)]
pub struct RosterParts {
    /// The service, on the same store as the server.
    pub rosters: Rosters,
    /// The ledger, for status and doctor.
    pub ledger: Arc<dyn Ledger>,
    /// Checks providers' tokens, which are then required. The caller runs its [`KeyWatch`](crate::jwt::KeyWatch).
    pub jwt: Option<Arc<Verifier>>,
}

impl Parts {
    /// A store, a clock, and loops on the current runtime; no janitor and no rosters.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let loops = Loops::new(Arc::clone(&clock), Handle::current());
        Self {
            pulser: Pulser::new(store, Arc::clone(&clock)),
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
    pub(crate) pulser: Arc<Pulser>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) loops: Loops,
    pub(crate) sweeper: Option<Sweeper>,
    pub(crate) rosters: Option<Rosters>,
    pub(crate) ledger: Option<Arc<dyn Ledger>>,
    pub(crate) jwt: Option<Arc<Verifier>>,
    pub(crate) guard: Guard,
    pub(crate) origin_check: OriginCheck,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) limiter: Option<Limiter>,
    pub(crate) new_groups: Option<NewGroups>,
    pub(crate) settings: Settings,
    pub(crate) beats: BeatBatcher,
    pub(crate) watch: Watch,
    pub(crate) store_warnings: StoreWarnings,
    pub(crate) began: Mono,
    /// Cancelled when shutdown begins: streams end, readiness fails.
    pub(crate) draining: CancellationToken,
    pub(crate) requests: Room,
    /// Beats have permits and body memory of their own, which other requests cannot use up.
    pub(crate) beating: Room,
    pub(crate) streams: Room,
    /// Requests that wait for leases.
    pub(crate) waiters: Room,
    pub(crate) waits: LeaseWaits,
    pub(crate) sweeps: Room,
    pub(crate) refusals: Refusals,
    /// Limits log lines about joins and ends.
    pub(crate) crowd: BurstLog,
    pub(crate) bodies: Bodies,
    pub(crate) beat_bodies: Bodies,
    /// A random value of this process that keys the counters of callers and groups.
    pub(crate) seed: u64,
    pub(crate) openapi: OnceLock<Bytes>,
    store_clock: RemoteClock,
}

/// The body limit of a batch, as a multiple of the usual one.
pub(crate) const BATCH: usize = 4;
/// Concurrent sweeps per caller and group over HTTP.
const MAX_SWEEPS: usize = 8;

impl App {
    /// Reads the token and certificate files that the settings name.
    ///
    /// # Errors
    /// `Misconfigured` for a file that cannot be used.
    pub(crate) fn new(
        parts: Parts,
        settings: Settings,
        origin_check: OriginCheck,
        draining: CancellationToken,
    ) -> Result<Arc<Self>> {
        let guard = Guard::new(settings.tokens.as_ref().map(|tokens| tokens.file.clone()))?;
        let tls = settings.tls.as_ref().map(Tls::new).transpose()?.map(Arc::new);
        let Parts {
            pulser,
            clock,
            loops,
            sweeper,
            rosters,
        } = parts;
        let (rosters, ledger, jwt) = match rosters {
            Some(parts) => (Some(parts.rosters), Some(parts.ledger), parts.jwt),
            None => (None, None, None),
        };
        let store = pulser.watched();
        let batch = BatchSettings {
            give_up: settings.request_timeout,
            ..BatchSettings::default()
        };
        let waits = LeaseWaits::new(
            Arc::clone(&store),
            Arc::clone(&clock),
            Handle::current(),
            settings.request_timeout,
            sweeper.clone(),
            draining.clone(),
        );
        let bodies = || Bodies::new(settings.body_limit.saturating_mul(BATCH), settings.body_timeout);
        let beats = BeatBatcher::new(Arc::clone(&store), Arc::clone(&clock), Handle::current(), batch);
        Ok(Arc::new(Self {
            limiter: settings.rate.map(Limiter::new),
            new_groups: NewGroups::new(settings.new_groups),
            guard,
            origin_check,
            tls,
            began: clock.mono(),
            watch: Watch::default(),
            store_warnings: StoreWarnings::default(),
            requests: Room::new(settings.max_requests),
            beating: Room::new(settings.max_requests),
            streams: Room::new(settings.max_streams),
            waiters: Room::new(settings.waiters()),
            waits,
            sweeps: Room::new(MAX_SWEEPS),
            refusals: Refusals::default(),
            crowd: BurstLog::default(),
            bodies: bodies(),
            beat_bodies: bodies(),
            seed: clock.entropy(),
            openapi: OnceLock::new(),
            store_clock: RemoteClock::default(),
            store,
            pulser,
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

    /// Runs a read of the store within the request timeout.
    pub(crate) async fn read<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let bound = Timeout::read(self.settings.request_timeout);
        bound.call(&*self.clock, "the store", work).await
    }

    /// Runs a change of the store within the request timeout.
    pub(crate) async fn write<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let bound = Timeout::change(self.settings.request_timeout);
        bound.call(&*self.clock, "the store", work).await
    }

    /// Runs a change of `items` items. Each step of the store is bounded by the store's own time-out.
    pub(crate) async fn step<T>(&self, items: usize, work: impl Future<Output = Result<T>>) -> Result<T> {
        let bound = Timeout::change(self.settings.request_timeout);
        bound.steps(&*self.clock, &*self.store, items, work).await
    }

    /// Runs a call whose answer carries the store's time, and learns from it.
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

    /// Learns the store's clock from a reply.
    pub(crate) fn learn(&self, shown: StoreTime, asked: Mono, arrived: Mono) {
        self.store_clock.learn(shown, asked, arrived);
    }

    /// Reads the store's clock.
    pub(crate) async fn now(&self) -> Result<StoreTime> {
        self.timed(self.read(self.store.now()), |now| *now).await
    }

    /// A lower bound of the store's clock; `None` when no recent reply carried it. It is never ahead, so a not-after computed
    /// from it is never too late.
    pub(crate) fn store_time(&self) -> Option<StoreTime> {
        let now = self.clock.mono();
        self.store_clock
            .at_least(now)
            .filter(|_| self.store_clock.is_fresh(now))
    }
}

impl App {
    /// Requests that hold a permit.
    pub(crate) fn in_flight(&self) -> usize {
        self.requests.held() + self.beating.held()
    }

    /// Whether the store answered recently, or the server just started. The watch loop asks it every second.
    pub(crate) fn store_answered_lately(&self) -> bool {
        self.store_time().is_some() || self.clock.mono().since(self.began) <= FRESH
    }
}
