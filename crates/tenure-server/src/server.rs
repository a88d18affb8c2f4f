//! A running server: accepting, and the way down.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tenure::loops::{LoopSettings, Waker};
use tenure_core::clock::{Mono, within};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::settling::gap;
use tenure_core::timing::MIN_TTL;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::{App, Parts};
use crate::auth::TokenWatch;
use crate::connections::Connections;
use crate::door::Door;
use crate::meters::{self, Upkeep};
use crate::refusals::{self, REFUSALS, Sparing};
use crate::settings::Settings;
use crate::tls::TlsWatch;
use crate::watch::{self, Watcher};
use crate::{conn, routes};

/// The wait after a failed accept: it usually means that file descriptors ran out, and a busy loop would not help.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
/// How often failed accepts are logged.
const ACCEPT_LOG: Duration = Duration::from_secs(1);

/// A server that runs until its shutdown future completes and its requests are answered.
///
/// Dropping it goes down without waiting for anyone.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    hurry: CancellationToken,
    /// Wake the loops that look at files.
    credentials: Vec<Waker>,
    running: JoinHandle<Drained>,
}

/// How a server went down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut with a request under way, because it did not end in time.
    pub cut: usize,
}

impl Server {
    /// Serves the store on a bound listener until `shutdown` completes. Reads the files of tokens and certificates first,
    /// which blocks. From then on it accepts nothing, finishes what is
    /// under way and ends all streams, for at most [`Settings::drain_timeout`].
    ///
    /// # Errors
    /// `Misconfigured` for settings and files that cannot work, and for an address that other machines can reach
    /// ([`Settings::check_address`]); `Invalid` when the supervisor runs the loops of a server already. Nothing runs then.
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
        // Before the first meter is made: a handle stays with the recorder of its time.
        meters::recorder();
        let draining = CancellationToken::new();
        let door = Door::new(&settings, addr);
        let app = App::new(parts, settings, door, draining.clone())?;
        let watcher = Arc::downgrade(&app);
        app.loops.start(LoopSettings::new("watch", watch::INTERVAL), move || {
            Watcher::new(watcher.clone())
        })?;
        let sparing = Arc::downgrade(&app);
        app.loops
            .start(LoopSettings::new(REFUSALS, refusals::INTERVAL), move || {
                Sparing::new(sparing.clone())
            })?;
        app.loops
            .start(LoopSettings::new("metrics", meters::UPKEEP), || Upkeep)?;
        let credentials = watch_credentials(&app)?;
        let router = routes::router(&app);
        let hurry = CancellationToken::new();
        let accepting = Accepting {
            listener,
            app,
            router,
            draining,
            hurry: hurry.clone(),
            connections: TaskTracker::new(),
        };
        let running = tokio::spawn(accepting.run(shutdown));
        Ok(Self {
            addr,
            hurry,
            credentials,
            running,
        })
    }

    /// Looks at the files of tokens and certificates now instead of within seconds. Connections that are open stay so.
    pub fn reload(&self) {
        self.credentials.iter().for_each(Waker::wake);
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Goes down now, without waiting for requests under way. For the second signal.
    pub fn hurry(&self) {
        self.hurry.cancel();
    }

    /// Something that does what [`Server::hurry`] does, to be given away.
    pub fn hurrier(&self) -> impl Fn() + Send + Sync + 'static {
        let hurry = self.hurry.clone();
        move || hurry.cancel()
    }

    /// Waits until it has gone down.
    pub async fn wait(mut self) -> Drained {
        (&mut self.running).await.unwrap_or(Drained { cut: 0 })
    }
}

/// Starts the loops that look at the files of tokens and certificates, where there are such.
fn watch_credentials(app: &Arc<App>) -> Result<Vec<Waker>> {
    let mut wakers = Vec::new();
    if let (Some(keeper), Some(settings)) = (app.guard.keeper(), &app.settings.tokens) {
        let keeper = Arc::clone(keeper);
        let watch = move || TokenWatch(Arc::clone(&keeper));
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
        self.hurry.cancel();
    }
}

struct Accepting {
    listener: TcpListener,
    app: Arc<App>,
    router: Router,
    draining: CancellationToken,
    hurry: CancellationToken,
    connections: TaskTracker,
}

impl Accepting {
    async fn run(self, shutdown: impl Future<Output = ()>) -> Drained {
        tokio::select! {
            biased;
            () = self.hurry.cancelled() => {}
            () = shutdown => {}
            () = self.accept() => {}
        }
        self.drain().await
    }

    async fn accept(&self) {
        let (clock, idle) = (&*self.app.clock, self.app.settings.idle_timeout);
        let open = Connections::new(self.app.settings.max_connections);
        let mut failures = Failures::default();
        loop {
            let (socket, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                // The client gave up while it waited in the kernel's queue.
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    // Closing some makes descriptors free.
                    open.shed(clock.mono(), idle);
                    failures.count(&error, clock.mono());
                    failures.last(&self.app);
                    clock.sleep(ACCEPT_BACKOFF).await;
                    continue;
                }
            };
            let opened = loop {
                match open.open_one(clock, idle, peer).await {
                    Some(opened) => break opened,
                    None => failures.last(&self.app),
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
            let hurry = self.hurry.clone();
            self.connections.spawn(async move {
                tokio::select! {
                    biased;
                    () = hurry.cancelled() => {}
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
            app,
            router,
            draining,
            hurry,
            connections,
        } = self;
        // Connections in the kernel's queue are refused from here on.
        drop(listener);
        drop(router);
        draining.cancel();
        connections.close();
        let open = connections.len();
        tracing::info!(connections = open, "shutting down");
        let finished = async {
            tokio::select! {
                biased;
                () = connections.wait() => {}
                () = hurry.cancelled() => {}
            }
        };
        let _ = within(&*app.clock, app.settings.drain_timeout, finished).await;
        let cut = connections.len();
        hurry.cancel();
        connections.wait().await;
        if cut > 0 {
            tracing::warn!(connections = cut, "connections were cut with a request under way");
        }
        Drained { cut }
    }
}

/// Whether a failed accept says nothing about the next one.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionReset)
}

/// Connections that could not be accepted. Their errors come in floods, and are logged once a second.
#[derive(Default)]
struct Failures {
    /// Since when no client could connect.
    since: Option<Mono>,
    unlogged: u64,
    logged_at: Option<Mono>,
}

impl Failures {
    fn count(&mut self, error: &io::Error, now: Mono) {
        meters::not_accepted();
        self.unlogged += 1;
        if self.logged_at.is_none_or(|at| now.since(at) >= ACCEPT_LOG) {
            tracing::warn!(%error, times = self.unlogged, "cannot accept connections");
            (self.unlogged, self.logged_at) = (0, Some(now));
        }
    }

    /// No client can connect now. When that lasts, beats are kept out.
    fn last(&mut self, app: &App) {
        let now = app.clock.mono();
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= gap(Some(MIN_TTL)) {
            app.nobody_can_connect();
        }
    }
}
