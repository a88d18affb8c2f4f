//! A TCP proxy that injects network faults.
//!
//! It runs on its own thread, so it needs no runtime and works while a test blocks. Its address is the same in all
//! modes, and a new mode is in effect when [`Proxy::set`] returns.
//!
//! As in TCP, a stream with a gap never continues. A connection that lost bytes stays silent until the mode changes and
//! is reset then; the next reply is never delivered in place of the lost one.

mod connection;

use std::net::SocketAddr;
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::port::Port;
use crate::server::must;
use crate::wait::Pace;

/// The time limit for a count that should change immediately.
const PATIENCE: Duration = Duration::from_secs(30);

/// How traffic is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Forward everything.
    #[default]
    Pass,
    /// Forward everything after a delay.
    Delay {
        /// The delay of requests (client to server).
        requests: Duration,
        /// The delay of replies (server to client).
        replies: Duration,
    },
    /// Accept connections and drop all bytes without a notice: no reply, no close, no reset.
    BlackHole,
    /// Forward requests and drop replies: the server acts, and its client cannot know.
    DropReplies,
    /// Hold requests until [`Proxy::release`], which delivers them even if their client has gone.
    HoldRequests,
    /// Hold both directions until [`Proxy::release`]: a partition that heals, as TCP sees it.
    HoldAll,
    /// Reset existing connections, and new ones after accepting them.
    Reset,
    /// Reset existing connections and refuse new ones: nothing listens.
    Refuse,
}

impl Mode {
    fn cuts(self) -> bool {
        matches!(self, Mode::Reset | Mode::Refuse)
    }
}

/// The traffic of a proxy so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open now.
    pub open: u64,
    /// Connections that the proxy reset.
    pub reset: u64,
    /// Bytes delivered to the server.
    pub requests: u64,
    /// Bytes delivered to clients.
    pub replies: u64,
    /// Bytes dropped.
    pub swallowed: u64,
    /// Bytes received and not yet delivered: held or delayed.
    pub held: u64,
}

/// The mode and counters of its changes, so that a connection that checks late misses no mode in between.
#[derive(Clone, Copy, Debug, Default)]
struct ModeState {
    mode: Mode,
    /// How often the mode has changed.
    changes: u64,
    /// How often all connections were to be reset.
    cuts: u64,
    /// How often held bytes were released.
    releases: u64,
}

impl ModeState {
    fn apply(&mut self, order: &ModeChange) {
        self.changes += u64::from(order.mode != self.mode || order.moved);
        self.cuts += u64::from(order.mode.cuts() || order.moved);
        self.releases += u64::from(order.release);
        self.mode = order.mode;
    }
}

/// The state that all connections share.
#[derive(Debug)]
struct ProxyState {
    upstream: Arc<Mutex<SocketAddr>>,
    state: watch::Receiver<ModeState>,
    counts: watch::Sender<Counts>,
}

impl ProxyState {
    fn upstream(&self) -> SocketAddr {
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }
}

/// A change for the proxy's thread, and the channel that reports when it is in effect.
struct ModeChange {
    mode: Mode,
    release: bool,
    /// The upstream has changed: existing connections are reset.
    moved: bool,
    done: blocking::Sender<Result<()>>,
}

/// A proxy in front of one server; dropping it closes its connections and frees its port.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    upstream: Arc<Mutex<SocketAddr>>,
    orders: Option<mpsc::UnboundedSender<ModeChange>>,
    counts: watch::Receiver<Counts>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of the server at `upstream`, which need not run yet.
    ///
    /// # Panics
    /// If its thread or its listener cannot be created.
    #[must_use]
    #[track_caller]
    pub fn start(upstream: SocketAddr) -> Proxy {
        must(Proxy::launch(upstream))
    }

    fn launch(upstream: SocketAddr) -> Result<Proxy> {
        let port = Port::reserve();
        // Created here, entered only on the thread: the test may already run on a runtime.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = std::net::TcpListener::bind(port.addr()).context("listen")?;
        listener.set_nonblocking(true)?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let (orders, inbox) = mpsc::unbounded_channel();
        let (states, state) = watch::channel(ModeState::default());
        let (counts, counted) = watch::channel(Counts::default());
        let upstream = Arc::new(Mutex::new(upstream));
        let shared = Arc::new(ProxyState {
            upstream: Arc::clone(&upstream),
            state,
            counts,
        });
        let addr = port.addr();
        let thread = thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            runtime.block_on(serve(listener, addr, inbox, states, shared));
        })?;
        Ok(Proxy {
            port,
            upstream,
            orders: Some(orders),
            counts: counted,
            thread: Some(thread),
        })
    }

    /// The address for clients: `127.0.0.1:PORT`.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// `SCHEME://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.addr())
    }

    /// Changes the mode of existing and new connections; it is in effect when this returns.
    ///
    /// Bytes held by [`Mode::HoldRequests`] and [`Mode::HoldAll`] stay held, like everything after them on the same
    /// connection, until [`Proxy::release`]; new connections get the new mode. A delayed request still arrives.
    ///
    /// # Panics
    /// If the listener cannot be reopened after [`Mode::Refuse`].
    #[track_caller]
    pub fn set(&self, mode: Mode) {
        self.order(mode, false, false);
    }

    /// Forwards to another server from now on, like an address that fails over, in [`Mode::Pass`]. Existing connections
    /// are reset.
    ///
    /// # Panics
    /// As [`Proxy::set`].
    #[track_caller]
    pub fn redirect_to(&self, upstream: SocketAddr) {
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner) = upstream;
        self.order(Mode::Pass, false, true);
    }

    /// Delivers all held bytes in order, and sets [`Mode::Pass`].
    ///
    /// # Panics
    /// As [`Proxy::set`].
    #[track_caller]
    pub fn release(&self) {
        self.order(Mode::Pass, true, false);
    }

    #[track_caller]
    fn order(&self, mode: Mode, release: bool, moved: bool) {
        let (done, answer) = blocking::channel();
        let orders = self.orders.as_ref().expect("orders are taken until the drop");
        let order = ModeChange {
            mode,
            release,
            moved,
            done,
        };
        assert!(orders.send(order).is_ok(), "the proxy's thread has panicked");
        must(answer.recv().context("the proxy's thread has panicked").flatten());
    }

    /// The traffic so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// Blocks until the counts match: `proxy.wait("a request is held", |counts| counts.held > 0)`.
    ///
    /// # Panics
    /// After half a minute.
    #[track_caller]
    pub fn wait(&self, what: &str, wanted: impl Fn(&Counts) -> bool) {
        crate::wait::until(what, PATIENCE, || wanted(&self.counts()));
    }

    /// Like [`Proxy::wait`] for async tests.
    ///
    /// After half a minute.
    /// When half a minute passes first.
    pub async fn wait_async(&self, what: &str, wanted: impl Fn(&Counts) -> bool) {
        let (deadline, mut pace) = (Instant::now() + PATIENCE, Pace::new());
        while !wanted(&self.counts()) {
            assert!(
                Instant::now() < deadline,
                "waited {PATIENCE:?} in vain until {what}: {:?}",
                self.counts()
            );
            tokio::time::sleep(pace.next()).await;
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Accepts connections and applies changes until the handle is dropped. The end of the runtime closes the connections.
async fn serve(
    listener: TcpListener,
    addr: SocketAddr,
    mut orders: mpsc::UnboundedReceiver<ModeChange>,
    state: watch::Sender<ModeState>,
    shared: Arc<ProxyState>,
) {
    let mut listener = Some(listener);
    loop {
        tokio::select! {
            biased;
            order = orders.recv() => {
                let Some(order) = order else { return };
                let opened = apply(&order, &mut listener, addr, &state).await;
                let _ = order.done.send(opened);
            }
            Ok(client) = accept(listener.as_ref()) => {
                shared.count(|counts| counts.accepted += 1);
                let born = *shared.state.borrow();
                tokio::spawn(connection::run(client, born, Arc::clone(&shared)));
            }
        }
    }
}

async fn apply(
    order: &ModeChange,
    listener: &mut Option<TcpListener>,
    addr: SocketAddr,
    state: &watch::Sender<ModeState>,
) -> Result<()> {
    if order.mode == Mode::Refuse {
        *listener = None;
    } else if listener.is_none() {
        *listener = Some(TcpListener::bind(addr).await.context("listen again")?);
    }
    state.send_modify(|state| state.apply(order));
    Ok(())
}

async fn accept(listener: Option<&TcpListener>) -> Result<TcpStream> {
    match listener {
        Some(listener) => Ok(listener.accept().await?.0),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
