//! `tenure serve`: the daemon.

mod descriptors;

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tenure::connect::{OpenOptions, open_store};
use tenure::ledger;
use tenure::loops::{LoopSettings, Loops};
use tenure::roster::{Rosters, RostersSettings, SweepIntervals};
use tenure::sweeper::{Sweeper, SweeperSettings};
use tenure_core::brake::BrakeSettings;
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::error::{Error, ErrorKind};
use tenure_core::session::SessionSettings;
use tenure_core::store::{Store, StoreOptions};
use tenure_server::jwt::{JwtSettings, KeyWatch, Verifier};
use tenure_server::{Parts, RosterParts, Server};
use tenure_supervise::catalog::consul::Janitor;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::connect::{is_daemon, refused, refused_ledger};
use crate::exit::{DONE, FAILED, Usage};
use crate::output::line;
use crate::settings::{Flags, Settings};

/// How long the loops may take to end what they are doing.
const LOOPS_WAIT: Duration = Duration::from_secs(2);
/// How long the runtime waits for threads that hang in a call, at the end.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// Runs the daemon: a store, served over HTTP, with the janitor beside it.
///
/// It prints the address it listens on as one line on stdout, and logs to stderr. The first TERM or INT lets requests
/// end, a second one does not. HUP makes it look at its files of tokens and certificates at once. Every setting is a flag, an environment variable and a key of the file; a flag beats the
/// environment, the environment beats the file.
#[derive(Debug, Clone, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    flags: Flags,
}

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        let settings = Settings::load(&self.flags, &|name| std::env::var(name).ok())?;
        crate::logging::start(&settings.log, settings.log_format)?;
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start")?;
        let tokens = settings.jwt(&|name| std::env::var(name).ok())?;
        let done = runtime.block_on(serve(&settings, tokens));
        runtime.shutdown_timeout(LAST_WAIT);
        done
    }
}

/// Listens with a queue that takes a burst of connections: a client that finds it full retries a second later.
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

async fn serve(settings: &Settings, tokens: Option<JwtSettings>) -> anyhow::Result<u8> {
    let mut stops = Stops::listen()?;
    let mut limits = settings.server()?;
    limits.max_connections = descriptors::connections(limits.max_connections);
    let clock = SystemClock::shared();
    let listener = listen(settings.listen)
        .with_context(|| format!("cannot listen on {}; is another daemon running?", settings.listen))?;
    let address = listener.local_addr().context("the listener has no address")?;
    let store = open(settings, &clock, address).await?;
    let loops = Loops::new(Arc::clone(&clock), Handle::current());
    let rosters = rosters(settings, tokens, &store, &clock, &loops).await?;
    let ledger = rosters.as_ref().map(|parts| Arc::clone(&parts.ledger));
    let sweeper = SweeperSettings {
        interval: settings.janitor_interval,
        reap_interval: settings.reaper_interval,
        reconcile_interval: settings.sessions_reconcile_interval,
        forget_after: settings.groups_forget_after,
        ..SweeperSettings::default()
    };
    let sweeper = Sweeper::start(Arc::clone(&store), Arc::clone(&clock), sweeper, &loops)?;
    sweeper.find_groups();
    registrations(settings, &store, &clock, &loops)?;
    if let Some(parts) = &rosters {
        parts.rosters.follow(&sweeper);
    }
    let parts = Parts {
        store: Arc::clone(&store),
        clock,
        loops: loops.clone(),
        sweeper: Some(sweeper),
        rosters,
    };
    let stop = CancellationToken::new();
    let server = Server::start(listener, parts, limits, stop.clone().cancelled_owned());
    let server = server.map_err(unusable)?;
    announce(settings, address, &*store);
    let code = run(server, &loops, &mut stops, &stop).await;
    loops.shut_down(LOOPS_WAIT).await;
    if let Some(ledger) = ledger {
        ledger.close().await;
    }
    store.close().await;
    tracing::info!("stopped");
    Ok(code)
}

/// A file of tokens or a certificate that cannot be used is wrong usage, as every other setting is.
fn unusable(error: Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::Misconfigured => Usage::new(error.chain()).into(),
        _ => error.into(),
    }
}

/// Where clients reach it.
fn url_of(settings: &Settings, address: SocketAddr) -> String {
    let scheme = if settings.tls_cert.is_empty() { "http" } else { "https" };
    format!("{scheme}://{address}")
}

async fn open(settings: &Settings, clock: &Arc<dyn Clock>, address: SocketAddr) -> anyhow::Result<Arc<dyn Store>> {
    let (url, is_default) = settings.store_url();
    if is_daemon(&url) {
        return Err(Usage::new("store: a daemon cannot serve another daemon; name the store itself").into());
    }
    if is_default {
        make_directory(&settings.data_dir)?;
    }
    let options = OpenOptions {
        store: StoreOptions {
            max_ttl: settings.max_ttl,
            brake: BrakeSettings {
                share: settings.brake_share,
                floor: settings.brake_floor,
                hold: settings.brake_hold,
            },
            forget_after: settings.groups_forget_after,
            events_max: settings.events_max,
            events_bytes: settings.events_bytes,
            event_keys: settings.events_keys,
            sessions: SessionSettings {
                grace: settings.sessions_grace,
                max_age: settings.sessions_max_age,
            },
        },
        clock: Arc::clone(clock),
        http_address: Some(url_of(settings, address)),
        ..OpenOptions::default()
    };
    let store = open_store(&url, &options).await.map_err(|error| refused(&url, error))?;
    // A file of another daemon is opened as a client of that daemon; two daemons in a row serve nobody.
    if store.steps().is_none() {
        anyhow::bail!("the store is served by the daemon at {} already", store.place());
    }
    Ok(store)
}

/// Opens the ledger and starts the service on it. A ledger on a network need not be there yet.
async fn rosters(
    settings: &Settings,
    tokens: Option<JwtSettings>,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    loops: &Loops,
) -> anyhow::Result<Option<RosterParts>> {
    let Some(url) = settings.ledger_url() else {
        tracing::info!("no rosters: a store on a network needs a ledger for them; name one with --ledger postgres://…");
        return Ok(None);
    };
    if store.mirror().is_none() {
        if settings.ledger.is_empty() {
            tracing::info!(store = %store.place(), "no rosters: this store does not mirror a ledger");
            return Ok(None);
        }
        return Err(Usage::new(format!("ledger: the store {} does not mirror one", store.place())).into());
    }
    let ledger = ledger::open(&url, Arc::clone(clock)).await;
    let ledger = ledger.map_err(|error| refused_ledger(&url, error))?;
    let jwt = tokens.map(Verifier::new).transpose()?;
    if let Some(verifier) = &jwt {
        let (watched, every) = (Arc::clone(verifier), verifier.settings().refresh);
        loops.start(LoopSettings::new("jwt_keys", every), move || {
            KeyWatch(Arc::clone(&watched))
        })?;
    }
    let (store, clock) = (Arc::clone(store), Arc::clone(clock));
    let rosters = RostersSettings {
        sweeps: SweepIntervals {
            offline: settings.roster_auto_offline_interval,
            heartbeats: settings.roster_heartbeat_mirror_interval,
            reconcile: settings.roster_reconcile_interval,
            ..SweepIntervals::default()
        },
        ..RostersSettings::default()
    };
    let rosters = Rosters::start(store, Arc::clone(&ledger), clock, rosters, loops)?;
    tracing::info!(ledger = %ledger.place(), tokens = jwt.is_some(), "serving rosters");
    Ok(Some(RosterParts { rosters, ledger, jwt }))
}

/// Clears away what killed supervisors have left in Consul, where groups were named for it.
fn registrations(
    settings: &Settings,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    loops: &Loops,
) -> anyhow::Result<()> {
    let Some(wanted) = settings.registrations(&|name| std::env::var(name).ok(), clock)? else {
        return Ok(());
    };
    let (store, clock) = (Arc::clone(store), Arc::clone(clock));
    tracing::info!(groups = ?wanted.groups, agents = settings.registrations_agents, "clearing registrations away");
    loops.start(Janitor::settings(), move || {
        let (groups, agents) = (wanted.groups.clone(), wanted.agents.clone());
        Janitor::new(Arc::clone(&store), groups, agents, Arc::clone(&clock))
    })?;
    Ok(())
}

/// Only the daemon's user may look into it: labels and keys can tell a lot.
fn make_directory(path: &Path) -> anyhow::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("the data directory {} cannot be made", path.display()))
}

/// One line for programs (where to connect), one for people.
fn announce(settings: &Settings, address: SocketAddr, store: &dyn Store) {
    // A daemon whose output nobody reads is as good as any other.
    let url = url_of(settings, address);
    let _ = line(&url);
    tracing::info!(
        listen = url,
        tokens = !settings.tokens.is_empty(),
        client_certificates = !settings.tls_client_ca.is_empty(),
        store = %store.place(),
        version = env!("CARGO_PKG_VERSION"),
        "serving"
    );
    if let Some(surprise) = settings.surprises() {
        tracing::warn!("{surprise}");
    }
    if !address.ip().is_loopback() && settings.insecure_listen {
        let danger = match (settings.tokens.is_empty(), settings.tls_cert.is_empty()) {
            (true, _) if settings.tls_client_ca.is_empty() => "whoever reaches it may do everything",
            (false, true) => "whoever sees the network pass by sees the tokens",
            _ => return,
        };
        tracing::warn!(%address, "other machines reach this address, and {danger}");
    }
}

/// Serves until a signal, or until a loop has panicked too often to go on quietly.
async fn run(server: Server, loops: &Loops, stops: &mut Stops, stop: &CancellationToken) -> u8 {
    let code = loop {
        tokio::select! {
            asked = stops.next_or_reload() => {
                if let Some(name) = asked {
                    tracing::info!(signal = name, "asked to stop");
                    break DONE;
                }
                tracing::info!(signal = "HUP", "looking at the files of tokens and certificates");
                server.reload();
            }
            name = loops.escalated() => {
                tracing::error!(sweep = name, "a loop panics again and again; stopping, to be started afresh");
                break FAILED;
            }
        }
    };
    stop.cancel();
    let hurry = server.hurrier();
    let down = server.wait();
    tokio::pin!(down);
    tokio::select! {
        drained = &mut down => {
            if drained.cut > 0 {
                tracing::warn!(cut = drained.cut, "some requests did not end in time");
            }
        }
        name = stops.next() => {
            tracing::warn!(signal = name, "asked to stop again; not waiting any longer");
            hurry();
            down.await;
        }
    }
    code
}

/// The signals that ask the daemon to stop, and the one that asks it to look at its files.
struct Stops {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Stops {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            int: listen(SignalKind::interrupt())?,
            hup: listen(SignalKind::hangup())?,
        })
    }

    /// The next one; `None` for the one that asks to look at files.
    async fn next_or_reload(&mut self) -> Option<&'static str> {
        tokio::select! {
            _ = self.term.recv() => Some("TERM"),
            _ = self.int.recv() => Some("INT"),
            _ = self.hup.recv() => None,
        }
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "TERM",
            _ = self.int.recv() => "INT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::memory::MemoryStore;

    #[tokio::test]
    async fn a_loop_that_panics_again_and_again_ends_the_daemon_as_a_failure() {
        let clock = SystemClock::shared();
        let panics: tenure::loops::Probe = Arc::new(|name| assert_ne!(name, tenure::sweeper::JANITOR, "on purpose"));
        let loops = Loops::with_probe(Arc::clone(&clock), Handle::current(), Some(panics));
        let store: Arc<dyn Store> = MemoryStore::new(StoreOptions::default(), Arc::clone(&clock));
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
            store,
            clock,
            loops: loops.clone(),
            sweeper: Some(sweeper),
            rosters: None,
        };
        let limits = tenure_server::Settings::default();
        let server = Server::start(listener, parts, limits, stop.clone().cancelled_owned()).unwrap();
        let code = run(server, &loops, &mut Stops::listen().unwrap(), &stop).await;
        assert_eq!(code, FAILED);
    }
}
