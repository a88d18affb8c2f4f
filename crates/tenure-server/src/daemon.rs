//! The daemon: opens a store and a ledger, serves them over HTTP, and runs the sweeps, from start to shutdown.

mod descriptors;
mod traces;

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure::connect::{OpenOptions, open_store};
use tenure::ledger;
use tenure::loops::{LoopSettings, Loops};
use tenure::pulse::Pulser;
use tenure::roster::{Rosters, RostersSettings, SweepIntervals};
use tenure::sweeper::{Sweeper, SweeperSettings};
use tenure_core::clock::Clock;
use tenure_core::error::{Error, Result};
use tenure_core::ledger::Ledger;
use tenure_core::store::{Store, StoreOptions};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::app::{Parts, RosterParts};
use crate::jwt::{JwtSettings, KeyWatch, Verifier};
use crate::server::Server;
use crate::settings::Settings;

pub use traces::TraceSettings;
use traces::Traces;

/// How long the loops may take to finish at shutdown.
const LOOPS_WAIT: Duration = Duration::from_secs(2);
/// How long the last traces may take to be sent at shutdown; at most what is left of the drain timeout.
const TRACES_WAIT: Duration = Duration::from_secs(2);

/// What a daemon serves, and where.
#[derive(Debug)]
pub struct DaemonSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The limits of the server.
    pub server: Settings,
    /// The URL of the store; not of another daemon.
    pub store: String,
    /// A directory to create first, for a store that lives in it.
    pub make_directory: Option<PathBuf>,
    /// Settings that all processes on the store must agree on.
    pub options: StoreOptions,
    /// The sweeps of the store.
    pub sweeper: SweeperSettings,
    /// The ledger of its rosters, if any.
    pub ledger: Option<LedgerSettings>,
    /// Where it sends traces, if it does.
    pub traces: Option<TraceSettings>,
}

/// The ledger of a daemon's rosters.
#[derive(Debug)]
pub struct LedgerSettings {
    /// Its URL.
    pub url: String,
    /// Whether a store that cannot mirror it is an error. Otherwise the daemon runs without rosters.
    pub is_required: bool,
    /// How providers' tokens are verified, if they are required.
    pub tokens: Option<JwtSettings>,
    /// For how long closed engagements are kept; `None` for ever.
    pub keep_engagements: Option<Duration>,
    /// The sweeps of rosters.
    pub sweeps: SweepIntervals,
}

/// Why a daemon did not start.
#[derive(Debug)]
pub enum StartError {
    /// The address cannot be listened on.
    Listen(std::io::Error),
    /// The directory of the store cannot be created.
    Directory(PathBuf, std::io::Error),
    /// The store cannot be opened.
    Store(Error),
    /// Another daemon, at this URL, serves the store already.
    Served(String),
    /// The store with this URL cannot mirror the configured ledger.
    NoMirror(String),
    /// The ledger cannot be opened.
    Ledger(Error),
    /// Traces cannot be sent.
    Traces(Error),
    /// The server refused its settings.
    Server(Error),
    /// A loop or service could not be started.
    Beside(Error),
}

/// A command to a running daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonCommand {
    /// Reload the token and certificate files now.
    Reload,
    /// Stop; names the signal.
    Stop(&'static str),
}

/// Why a daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonExit {
    /// A stop command.
    Stopped,
    /// A loop kept panicking.
    Broken,
    /// The disk of the store failed. A new process must read the store again.
    StoreBroken,
}

/// A running daemon.
pub struct Daemon {
    server: Server,
    url: String,
    store: Arc<dyn Store>,
    ledger: Option<Arc<dyn Ledger>>,
    loops: Loops,
    traces: Option<Traces>,
    stop: CancellationToken,
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon")
            .field("addr", &self.addr())
            .field("store", &self.store.place())
            .finish_non_exhaustive()
    }
}

impl Daemon {
    /// Listens, opens the store and the ledger, starts the sweeps and the server. `beside` starts additional loops on the
    /// store.
    ///
    /// # Errors
    /// [`StartError`]. A ledger on a network may be unreachable: it is retried.
    pub async fn start(
        mut settings: DaemonSettings,
        clock: Arc<dyn Clock>,
        beside: impl FnOnce(&Arc<dyn Store>, &Loops) -> Result<()>,
    ) -> std::result::Result<Self, StartError> {
        settings.server.max_connections = descriptors::connections(settings.server.max_connections);
        let traces = settings.traces.as_ref().map(|traces| Traces::start(traces, &clock));
        let traces = traces.transpose().map_err(StartError::Traces)?;
        let listener = listen(settings.listen).map_err(StartError::Listen)?;
        let address = listener.local_addr().map_err(StartError::Listen)?;
        let mut store = open(&settings, &clock, address).await?;
        if traces.is_some() {
            store = Traces::of_calls(store);
        }
        let loops = Loops::new(Arc::clone(&clock), Handle::current());
        let pulser = Pulser::new(Arc::clone(&store), Arc::clone(&clock));
        let rosters = rosters(settings.ledger, &pulser.watched(), &clock, &loops).await?;
        let ledger = rosters.as_ref().map(|parts| Arc::clone(&parts.ledger));
        let sweeper = Sweeper::start(Arc::clone(&store), Arc::clone(&clock), settings.sweeper, &loops)
            .map_err(StartError::Beside)?;
        sweeper.find_groups();
        beside(&store, &loops).map_err(StartError::Beside)?;
        if let Some(parts) = &rosters {
            parts.rosters.follow(&sweeper);
        }
        let parts = Parts {
            pulser,
            clock,
            loops: loops.clone(),
            sweeper: Some(sweeper),
            rosters,
        };
        let (stop, url) = (CancellationToken::new(), settings.server.url_at(address));
        let server = Server::start(listener, parts, settings.server, stop.clone().cancelled_owned())
            .map_err(StartError::Server)?;
        Ok(Self {
            server,
            url,
            store,
            ledger,
            loops,
            traces,
            stop,
        })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// Where clients reach it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The store that it serves.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Serves until a stop command, until a loop panics too often, or until the disk of the store fails. The first stop command
    /// drains requests; the second one does not wait for them.
    pub async fn run(self, mut asked: impl AsyncFnMut() -> DaemonCommand) -> DaemonExit {
        let (ended, left) = serve(self.server, &*self.store, &self.loops, &mut asked, &self.stop).await;
        self.loops.shut_down(LOOPS_WAIT).await;
        if let Some(ledger) = self.ledger {
            ledger.close().await;
        }
        self.store.close().await;
        if let Some(traces) = self.traces {
            traces.finish(left.min(TRACES_WAIT)).await;
        }
        tracing::info!("stopped");
        ended
    }
}

/// Listens with a backlog for a burst of connections: a client that finds it full retries only a second later.
fn listen(at: SocketAddr) -> std::io::Result<TcpListener> {
    const QUEUE: u32 = 4096;
    let socket = if at.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(QUEUE)
}

async fn open(
    settings: &DaemonSettings,
    clock: &Arc<dyn Clock>,
    address: SocketAddr,
) -> std::result::Result<Arc<dyn Store>, StartError> {
    if let Some(directory) = &settings.make_directory {
        // Readable by the daemon's user only: labels and keys may be confidential.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| StartError::Directory(directory.clone(), error))?;
    }
    let options = OpenOptions {
        store: settings.options.clone(),
        clock: Arc::clone(clock),
        http_address: Some(settings.server.url_at(address)),
        ..OpenOptions::default()
    };
    let store = open_store(&settings.store, &options).await.map_err(StartError::Store)?;
    // A file that another daemon owns opens as that daemon's client, which cannot be served.
    if store.steps().is_none() {
        return Err(StartError::Served(store.place()));
    }
    Ok(store)
}

/// Opens the ledger and starts the rosters. A ledger on a network may be unreachable: it is retried.
async fn rosters(
    settings: Option<LedgerSettings>,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    loops: &Loops,
) -> std::result::Result<Option<RosterParts>, StartError> {
    let Some(settings) = settings else {
        tracing::info!("no rosters: with a store on a network they need a ledger; name one with --ledger postgres://…");
        return Ok(None);
    };
    if store.mirror().is_none() {
        if settings.is_required {
            return Err(StartError::NoMirror(store.place()));
        }
        tracing::info!(store = %store.place(), "no rosters: this store does not mirror a ledger");
        return Ok(None);
    }
    let ledger = ledger::open(&settings.url, Arc::clone(clock)).await;
    let ledger = ledger.map_err(StartError::Ledger)?;
    let jwt = settings
        .tokens
        .map(Verifier::new)
        .transpose()
        .map_err(StartError::Beside)?;
    if let Some(verifier) = &jwt {
        let (watched, every) = (Arc::clone(verifier), verifier.settings().refresh);
        let keys = loops.start(LoopSettings::new("jwt_keys", every), move || {
            KeyWatch(Arc::clone(&watched))
        });
        keys.map_err(StartError::Beside)?;
    }
    let (store, clock) = (Arc::clone(store), Arc::clone(clock));
    let sweeps = RostersSettings {
        keep_engagements: settings.keep_engagements,
        sweeps: settings.sweeps,
        ..RostersSettings::default()
    };
    let rosters = Rosters::start(store, Arc::clone(&ledger), clock, sweeps, loops).map_err(StartError::Beside)?;
    tracing::info!(ledger = %ledger.place(), tokens = jwt.is_some(), "serving rosters");
    Ok(Some(RosterParts { rosters, ledger, jwt }))
}

/// Serves to the end. Also returns what is left of the drain timeout; nothing after a second stop command.
async fn serve(
    server: Server,
    store: &dyn Store,
    loops: &Loops,
    asked: &mut impl AsyncFnMut() -> DaemonCommand,
    stop: &CancellationToken,
) -> (DaemonExit, Duration) {
    let ended = loop {
        tokio::select! {
            asked = asked() => match asked {
                DaemonCommand::Stop(name) => {
                    tracing::info!(signal = name, "stopping");
                    break DaemonExit::Stopped;
                }
                DaemonCommand::Reload => {
                    tracing::info!(signal = "HUP", "reloading token and certificate files");
                    server.reload();
                }
            },
            name = loops.escalated() => {
                tracing::error!(sweep = name, "a loop keeps panicking; stopping so that a supervisor can restart the daemon");
                break DaemonExit::Broken;
            }
            error = store.until_broken() => {
                tracing::error!(error = error.chain(), "the disk of the store failed; stopping so that a supervisor can restart the daemon");
                break DaemonExit::StoreBroken;
            }
        }
    };
    stop.cancel();
    let abort = server.aborter();
    let down = server.wait();
    tokio::pin!(down);
    let again = async {
        loop {
            if let DaemonCommand::Stop(name) = asked().await {
                return name;
            }
        }
    };
    let left = tokio::select! {
        drained = &mut down => {
            if drained.cut > 0 {
                tracing::warn!(cut = drained.cut, "requests were cut at shutdown: they exceeded the drain timeout");
            }
            drained.left
        }
        name = again => {
            tracing::warn!(signal = name, "second stop signal; not waiting for requests");
            abort();
            down.await;
            Duration::ZERO
        }
    };
    (ended, left)
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use tenure_core::call::{Reply, StoreRequest};
    use tenure_core::clock::SystemClock;
    use tenure_core::error::Outcome;
    use tenure_core::memory::MemoryStore;
    use tenure_core::store::{Backend, Finding, Health};

    use super::*;

    async fn ended(store: Arc<dyn Store>, clock: Arc<dyn Clock>, loops: Loops) -> DaemonExit {
        let sweeper = Sweeper::start(
            Arc::clone(&store),
            Arc::clone(&clock),
            SweeperSettings::default(),
            &loops,
        )
        .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stop = CancellationToken::new();
        let parts = Parts {
            loops: loops.clone(),
            sweeper: Some(sweeper),
            ..Parts::new(Arc::clone(&store), clock)
        };
        let server = Server::start(listener, parts, Settings::default(), stop.clone().cancelled_owned()).unwrap();
        serve(
            server,
            &*store,
            &loops,
            &mut async || std::future::pending().await,
            &stop,
        )
        .await
        .0
    }

    #[tokio::test]
    async fn panicking_loop_ends_the_daemon_with_a_failure() {
        let clock = SystemClock::shared();
        let panics: tenure::loops::Probe = Arc::new(|name| assert_ne!(name, tenure::sweeper::JANITOR, "on purpose"));
        let loops = Loops::with_probe(Arc::clone(&clock), Handle::current(), Some(panics));
        let store = MemoryStore::new(StoreOptions::default(), Arc::clone(&clock));
        assert_eq!(ended(store, clock, loops).await, DaemonExit::Broken);
    }

    /// A store whose disk fails immediately.
    struct Breaks(Arc<MemoryStore>);

    #[async_trait]
    impl Backend for Breaks {
        async fn call(&self, ask: StoreRequest) -> Result<Reply> {
            self.0.call(ask).await
        }
        fn max_ttl(&self) -> Duration {
            self.0.max_ttl()
        }
        fn place(&self) -> String {
            self.0.place()
        }
        fn health(&self) -> Health {
            self.0.health()
        }
        async fn until_broken(&self) -> Error {
            Error::unavailable("a sync failed", Outcome::Unchanged)
        }
        async fn examine(&self) -> Vec<Finding> {
            Vec::new()
        }
        async fn close(&self) {
            self.0.close().await;
        }
    }

    #[tokio::test]
    async fn broken_store_ends_the_daemon() {
        let clock = SystemClock::shared();
        let loops = Loops::with_probe(Arc::clone(&clock), Handle::current(), None);
        let store = Arc::new(Breaks(MemoryStore::new(StoreOptions::default(), Arc::clone(&clock))));
        assert_eq!(ended(store, clock, loops).await, DaemonExit::StoreBroken);
    }
}
