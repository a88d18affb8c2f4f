//! A TCP proxy that does to a connection what networks do.
//!
//! It runs on a thread of its own, so it needs no runtime and goes on while a test blocks. Its address stays the same
//! through all modes, and a change of mode is in force when [`Proxy::set`] returns.
//!
//! One rule keeps its faults honest: TCP never heals a stream with a hole in it. A connection that lost bytes stays
//! silent until the mode changes and is reset then; it never goes on with the next reply in place of the lost one.

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

/// How long a test waits for a count that should come at once.
const PATIENCE: Duration = Duration::from_secs(30);

/// What happens to the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Everything passes.
    #[default]
    Pass,
    /// Everything passes, later.
    Delay {
        /// What requests (client to server) wait.
        requests: Duration,
        /// What replies (server to client) wait.
        replies: Duration,
    },
    /// Connections are accepted, what is sent is swallowed, nobody hears of it: no reply, no end, no reset.
    BlackHole,
    /// Requests pass, replies are swallowed: the server acts, and its client can't know.
    DropReplies,
    /// Requests are kept and delivered by [`Proxy::release`], also when their client has gone away by then.
    HoldRequests,
    /// Both directions are kept until [`Proxy::release`]: a partition that heals, as TCP sees it.
    HoldAll,
    /// Existing connections are reset, new ones right after they are accepted.
    Reset,
    /// Existing connections are reset, new ones refused: nobody listens.
    Refuse,
}

impl Mode {
    fn cuts(self) -> bool {
        matches!(self, Mode::Reset | Mode::Refuse)
    }
}

/// What went through a proxy so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections open now.
    pub open: u64,
    /// Connections ended by a reset of ours.
    pub reset: u64,
    /// Bytes delivered to the server.
    pub requests: u64,
    /// Bytes delivered to clients.
    pub replies: u64,
    /// Bytes swallowed.
    pub swallowed: u64,
    /// Bytes received and not delivered yet: held or delayed.
    pub held: u64,
}

/// The mode and its history, in numbers: who looks late must not miss a mode that has come and gone.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    mode: Mode,
    /// How often the mode has changed.
    changes: u64,
    /// How often connections were to be cut.
    cuts: u64,
    /// How often what was held was let go.
    releases: u64,
}

impl Weather {
    fn turn(&mut self, order: &Order) {
        self.changes += u64::from(order.mode != self.mode || order.moved);
        self.cuts += u64::from(order.mode.cuts() || order.moved);
        self.releases += u64::from(order.release);
        self.mode = order.mode;
    }
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    upstream: Arc<Mutex<SocketAddr>>,
    weather: watch::Receiver<Weather>,
    counts: watch::Sender<Counts>,
}

impl Shared {
    fn upstream(&self) -> SocketAddr {
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }
}

/// A change for the proxy's thread, and where it says that it is in force.
struct Order {
    mode: Mode,
    release: bool,
    /// The upstream is another one now: what is connected to the one before is cut.
    moved: bool,
    done: blocking::Sender<Result<()>>,
}

/// A proxy in front of one server; dropping it closes its connections and frees its port.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    upstream: Arc<Mutex<SocketAddr>>,
    orders: Option<mpsc::UnboundedSender<Order>>,
    counts: watch::Receiver<Counts>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of the server at `upstream`, which need not be there yet.
    ///
    /// # Panics
    /// When its thread or its listener can't be created.
    #[must_use]
    #[track_caller]
    pub fn start(upstream: SocketAddr) -> Proxy {
        must(Proxy::launch(upstream))
    }

    fn launch(upstream: SocketAddr) -> Result<Proxy> {
        let port = Port::reserve();
        // Made here, entered only over there: a test may be on a runtime already.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = std::net::TcpListener::bind(port.addr()).context("listen")?;
        listener.set_nonblocking(true)?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let (orders, inbox) = mpsc::unbounded_channel();
        let (weather, forecast) = watch::channel(Weather::default());
        let (counts, counted) = watch::channel(Counts::default());
        let upstream = Arc::new(Mutex::new(upstream));
        let shared = Arc::new(Shared {
            upstream: Arc::clone(&upstream),
            weather: forecast,
            counts,
        });
        let addr = port.addr();
        let thread = thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            runtime.block_on(serve(listener, addr, inbox, weather, shared));
        })?;
        Ok(Proxy {
            port,
            upstream,
            orders: Some(orders),
            counts: counted,
            thread: Some(thread),
        })
    }

    /// Where clients connect: `127.0.0.1:PORT`.
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

    /// Changes the mode, for existing and for new connections; in force when this returns.
    ///
    /// What [`Mode::HoldRequests`] and [`Mode::HoldAll`] have kept stays kept, and so does what follows it on the same
    /// connection, until [`Proxy::release`]; new connections get the new mode. A delayed request is on its way and
    /// arrives.
    ///
    /// # Panics
    /// When the listener can't be opened again after [`Mode::Refuse`].
    #[track_caller]
    pub fn set(&self, mode: Mode) {
        self.order(mode, false, false);
    }

    /// Leads to another server from now on, as an address that fails over does, and lets everything pass. Existing
    /// connections are reset.
    ///
    /// # Panics
    /// As [`Proxy::set`].
    #[track_caller]
    pub fn lead_to(&self, upstream: SocketAddr) {
        *self.upstream.lock().unwrap_or_else(PoisonError::into_inner) = upstream;
        self.order(Mode::Pass, false, true);
    }

    /// Delivers all that is held, in order, and lets everything pass from now on.
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
        let order = Order {
            mode,
            release,
            moved,
            done,
        };
        assert!(orders.send(order).is_ok(), "the proxy's thread has panicked");
        must(answer.recv().context("the proxy's thread has panicked").flatten());
    }

    /// What went through so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// Blocks until the counts are as wanted: `proxy.wait("a request is held", |counts| counts.held > 0)`.
    ///
    /// # Panics
    /// When half a minute passes first.
    #[track_caller]
    pub fn wait(&self, what: &str, wanted: impl Fn(&Counts) -> bool) {
        crate::wait::until(what, PATIENCE, || wanted(&self.counts()));
    }

    /// Like [`Proxy::wait`] for async tests.
    ///
    /// # Panics
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

/// Accepts connections and takes orders until the handle is dropped; the runtime's end ends the connections.
async fn serve(
    listener: TcpListener,
    addr: SocketAddr,
    mut orders: mpsc::UnboundedReceiver<Order>,
    weather: watch::Sender<Weather>,
    shared: Arc<Shared>,
) {
    let mut listener = Some(listener);
    loop {
        tokio::select! {
            biased;
            order = orders.recv() => {
                let Some(order) = order else { return };
                let opened = apply(&order, &mut listener, addr, &weather).await;
                let _ = order.done.send(opened);
            }
            Ok(client) = accept(listener.as_ref()) => {
                shared.count(|counts| counts.accepted += 1);
                let born = *shared.weather.borrow();
                tokio::spawn(connection::run(client, born, Arc::clone(&shared)));
            }
        }
    }
}

async fn apply(
    order: &Order,
    listener: &mut Option<TcpListener>,
    addr: SocketAddr,
    weather: &watch::Sender<Weather>,
) -> Result<()> {
    if order.mode == Mode::Refuse {
        *listener = None;
    } else if listener.is_none() {
        *listener = Some(TcpListener::bind(addr).await.context("listen again")?);
    }
    weather.send_modify(|weather| weather.turn(order));
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
