//! A running server: the accept loop, and graceful shutdown.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tenure::loops::{LoopSettings, Waker};
use tenure::pulse::PULSE;
use tenure_core::clock::{Mono, within};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::settling::{PULSE_EVERY, gap};
use tenure_core::timing::MIN_TTL;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{App, Parts};
use crate::auth::TokenWatch;
use crate::connections::Connections;
use crate::meters::{self, Upkeep};
use crate::origin_check::OriginCheck;
use crate::own_beat::{AcceptChecks, OwnBeat};
use crate::refusals::{self, REFUSALS, RefusalReporter};
use crate::settings::Settings;
use crate::tls::TlsWatch;
use crate::watch::{self, Watcher};
use crate::{conn, exposed, routes, settings_watch};

/// The pause after a failed accept, which usually means that file descriptors ran out.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// How often failed accepts are logged.
const ACCEPT_LOG: Duration = Duration::from_secs(1);

/// A server that runs until its shutdown future completes and its requests are answered.
///
/// Dropping it stops the server without waiting for requests.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    abort: CancellationToken,
    /// Wake the loops that reload credentials.
    credentials: Vec<Waker>,
    running: JoinHandle<Drained>,
}

/// The result of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections cut because their request exceeded the drain timeout.
    pub cut: usize,
    /// What is left of the drain timeout.
    pub left: Duration,
}

impl Server {
    /// Serves the store on a bound listener until `shutdown` completes. Then it stops accepting, finishes requests in flight
    /// and ends all streams, for at most [`Settings::drain_timeout`]. Reads the token and certificate files first, which
    /// blocks.
    ///
    /// # Errors
    /// `Misconfigured` for invalid settings or files, and for an address that other machines can reach
    /// ([`Settings::check_address`]); `Invalid` when the loops of another server run under the same [`Parts::loops`]. Nothing
    /// runs then.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(
        listener: TcpListener,
        parts: Parts,
        settings: Settings,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self> {
        settings.check()?;
        let addr = listener
            .local_addr()
            .map_err(|error| Error::new(ErrorKind::Misconfigured, "the listener has no address").because(error))?;
        settings.check_address(addr)?;
        // Before the first metric handle: a handle keeps the recorder that was installed when it was made.
        meters::recorder();
        let draining = CancellationToken::new();
        let origin_check = OriginCheck::new(&settings, addr);
        let app = App::new(parts, settings, origin_check, draining.clone())?;
        let watcher = Arc::downgrade(&app);
        app.loops.start(LoopSettings::new("watch", watch::INTERVAL), move || {
            Watcher::new(watcher.clone())
        })?;
        let reporter = Arc::downgrade(&app);
        app.loops
            .start(LoopSettings::new(REFUSALS, refusals::INTERVAL), move || {
                RefusalReporter::new(reporter.clone())
            })?;
        app.loops
            .start(LoopSettings::new("metrics", meters::UPKEEP), || Upkeep)?;
        let credentials = watch_credentials(&app)?;
        for exposed in exposed::findings(&app.settings, &app.store.place()) {
            tracing::warn!("{}", exposed.detail);
        }
        tokio::spawn(settings_watch::watch(Arc::downgrade(&app)));
        let router = routes::router(&app);
        let (own_beat, checks) = OwnBeat::new(&app, &router);
        app.loops.start(LoopSettings::new(PULSE, PULSE_EVERY), own_beat)?;
        let abort = CancellationToken::new();
        let acceptor = Acceptor {
            listener,
            checks: Mutex::new(checks),
            app,
            router,
            draining,
            abort: abort.clone(),
            connections: TaskTracker::new(),
        };
        let running = tokio::spawn(acceptor.run(shutdown));
        Ok(Self {
            addr,
            abort,
            credentials,
            running,
        })
    }

    /// Reloads the token and certificate files now instead of within seconds. Open connections stay open.
    pub fn reload(&self) {
        self.credentials.iter().for_each(Waker::wake);
    }

    /// The address it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops now, without waiting for requests in flight. For a second stop signal.
    pub fn abort(&self) {
        self.abort.cancel();
    }

    /// A function that does what [`Server::abort`] does and outlives the borrow.
    pub fn aborter(&self) -> impl Fn() + Send + Sync + 'static {
        let abort = self.abort.clone();
        move || abort.cancel()
    }

    /// Waits for the end of the shutdown.
    pub async fn wait(mut self) -> Drained {
        (&mut self.running).await.unwrap_or(Drained {
            cut: 0,
            left: Duration::ZERO,
        })
    }
}

/// Starts the loops that reload the token and certificate files, if configured.
fn watch_credentials(app: &Arc<App>) -> Result<Vec<Waker>> {
    let mut wakers = Vec::new();
    if let (Some(token_file), Some(settings)) = (app.guard.token_file(), &app.settings.tokens) {
        let token_file = Arc::clone(token_file);
        let watch = move || TokenWatch(Arc::clone(&token_file));
        wakers.push(app.loops.start(LoopSettings::new("tokens", settings.refresh), watch)?);
    }
    if let (Some(tls), Some(settings)) = (&app.tls, &app.settings.tls) {
        let tls = Arc::clone(tls);
        let watch = move || TlsWatch(Arc::clone(&tls));
        wakers.push(app.loops.start(LoopSettings::new("tls", settings.refresh), watch)?);
    }
    Ok(wakers)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.abort.cancel();
    }
}

struct Acceptor {
    listener: TcpListener,
    checks: Mutex<AcceptChecks>,
    app: Arc<App>,
    router: Router,
    draining: CancellationToken,
    abort: CancellationToken,
    connections: TaskTracker,
}

impl Acceptor {
    async fn run(self, shutdown: impl Future<Output = ()>) -> Drained {
        tokio::select! {
            biased;
            () = self.abort.cancelled() => {}
            () = shutdown => {}
            () = self.answer_checks(self.accept()) => {}
        }
        self.drain().await
    }

    /// Answers the daemon's checks of itself as a part of the accept loop's task, also while it waits for room.
    async fn answer_checks(&self, accept: impl Future<Output = ()>) {
        let mut checks = self.checks.lock().await;
        let mut accept = std::pin::pin!(accept);
        loop {
            tokio::select! {
                () = &mut accept => return,
                Some(check) = checks.recv() => drop(check.send(())),
            }
        }
    }

    async fn accept(&self) {
        let (clock, idle) = (&*self.app.clock, self.app.settings.idle_timeout);
        let open = Connections::new(self.app.settings.max_connections);
        let mut failures = AcceptFailures::default();
        loop {
            let (socket, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                // The client disconnected while it waited in the backlog.
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    // Closing connections frees descriptors.
                    open.shed(clock.mono(), idle);
                    failures.count(&error, clock.mono());
                    failures.still_failing(&self.app);
                    clock.sleep(ACCEPT_BACKOFF).await;
                    continue;
                }
            };
            let opened = loop {
                match open.open_one(clock, idle, peer).await {
                    Some(opened) => break opened,
                    None => failures.still_failing(&self.app),
                }
            };
            failures.since = None;
            let link = Arc::clone(&opened.link);
            let connection = conn::serve(
                Arc::clone(&self.app),
                self.router.clone(),
                (socket, peer),
                Arc::clone(&link),
                self.draining.clone(),
            );
            let abort = self.abort.clone();
            self.connections.spawn(async move {
                tokio::select! {
                    biased;
                    () = abort.cancelled() => {}
                    () = connection => {}
                    () = link.cut() => {}
                }
                drop(opened);
            });
        }
    }

    async fn drain(self) -> Drained {
        let Self {
            listener,
            checks: _,
            app,
            router,
            draining,
            abort,
            connections,
        } = self;
        // Connections in the backlog are refused from here on.
        drop(listener);
        drop(router);
        draining.cancel();
        connections.close();
        let began = app.clock.mono();
        let open = connections.len();
        tracing::info!(connections = open, "shutting down");
        let finished = async {
            tokio::select! {
                biased;
                () = connections.wait() => {}
                () = abort.cancelled() => {}
            }
        };
        let _ = within(&*app.clock, app.settings.drain_timeout, finished).await;
        let cut = connections.len();
        abort.cancel();
        connections.wait().await;
        if cut > 0 {
            tracing::warn!(connections = cut, "connections were cut with a request in flight");
        }
        let took = app.clock.mono().since(began);
        Drained {
            cut,
            left: app.settings.drain_timeout.saturating_sub(took),
        }
    }
}

/// Whether a failed accept concerns that connection only.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionReset)
}

/// Failed accepts. Errors are logged at most once a second.
#[derive(Default)]
struct AcceptFailures {
    /// When accepting began to fail.
    since: Option<Mono>,
    unlogged: u64,
    logged_at: Option<Mono>,
}

impl AcceptFailures {
    fn count(&mut self, error: &io::Error, now: Mono) {
        meters::not_accepted();
        self.unlogged += 1;
        if self.logged_at.is_none_or(|at| now.since(at) >= ACCEPT_LOG) {
            tracing::warn!(%error, times = self.unlogged, "cannot accept connections");
            (self.unlogged, self.logged_at) = (0, Some(now));
        }
    }

    /// Accepting keeps failing. After a gap, beats are missing because of it.
    fn still_failing(&mut self, app: &App) {
        let now = app.clock.mono();
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= gap(Some(MIN_TTL)) {
            app.cannot_accept();
        }
    }
}
