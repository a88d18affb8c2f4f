//! `tenure serve`: the daemon.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use rustix::process::Signal;
use tenure::loops::Loops;
use tenure::roster::SweepIntervals;
use tenure::sweeper::SweeperSettings;
use tenure_core::brake::BrakeSettings;
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::error::ErrorKind;
use tenure_core::session::SessionSettings;
use tenure_core::store::{Store, StoreOptions};
use tenure_server::daemon::{Daemon, DaemonCommand, DaemonExit, DaemonSettings, LedgerSettings, StartError};
use tenure_server::jwt::JwtSettings;
use tenure_supervise::catalog::consul::Janitor;
use tenure_supervise::signals::Signals;
use tokio::runtime::Builder;

use crate::connect::{is_daemon, refused, refused_ledger};
use crate::exit::{DISK_FAILED, DONE, FAILED, Usage};
use crate::output::line;
use crate::settings::{Flags, Registrations, Settings};

/// How long the runtime waits at the end for threads that hang in a call.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// Runs the daemon: it serves a store over HTTP and releases what ended members held.
///
/// It prints its address as one line on stdout and logs to stderr. On the first TERM or INT it finishes open requests and
/// exits; a second signal ends it immediately. HUP reloads the files of tokens and certificates. Every setting is a flag, an
/// environment variable and a key of the file; a flag overrides the environment, the environment overrides the file.
#[derive(Debug, Clone, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    flags: Flags,
}

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        let settings = Settings::load(&self.flags, &|name| std::env::var(name).ok())?;
        crate::logging::start_unhindered(&settings.log, settings.log_format)?;
        keep_pages_small();
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

/// Keeps huge pages from the memory of this process: with them, an idle daemon takes half as much memory again, and
/// serves no faster. A kernel that refuses only costs that memory.
fn keep_pages_small() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

async fn serve(settings: &Settings, tokens: Option<JwtSettings>) -> anyhow::Result<u8> {
    let mut signals = Signals::listen().context("cannot listen to signals")?;
    let clock = SystemClock::shared();
    let registrations = settings.registrations(&|name| std::env::var(name).ok(), &clock)?;
    let (its, agents) = (Arc::clone(&clock), &settings.registrations_agents);
    let beside = move |store: &Arc<dyn Store>, loops: &Loops| match registrations {
        Some(wanted) => clear_away(wanted, agents, store, &its, loops),
        None => Ok(()),
    };
    let daemon = Daemon::start(wanted(settings, tokens)?, clock, beside).await;
    let daemon = daemon.map_err(|error| not_started(settings, error))?;
    announce(settings, &daemon);
    Ok(match daemon.run(async || asked(&mut signals).await).await {
        DaemonExit::Stopped => DONE,
        DaemonExit::Broken => FAILED,
        DaemonExit::StoreBroken => DISK_FAILED,
    })
}

/// The daemon that the settings tell of.
fn wanted(settings: &Settings, tokens: Option<JwtSettings>) -> anyhow::Result<DaemonSettings> {
    let (store, is_default) = settings.store_url();
    if is_daemon(&store) {
        return Err(Usage::new("store: a daemon cannot serve another daemon; name the store itself").into());
    }
    let ledger = settings.ledger_url().map(|url| LedgerSettings {
        url,
        is_required: !settings.ledger.is_empty(),
        tokens,
        keep_engagements: settings.roster_keep_engagements,
        sweeps: SweepIntervals {
            offline: settings.roster_auto_offline_interval,
            heartbeats: settings.roster_heartbeat_mirror_interval,
            reconcile: settings.roster_reconcile_interval,
            ..SweepIntervals::default()
        },
    });
    Ok(DaemonSettings {
        listen: settings.listen,
        server: settings.server()?,
        store,
        make_directory: is_default.then(|| settings.data_dir.clone()),
        options: options(settings),
        sweeper: SweeperSettings {
            interval: settings.janitor_interval,
            reap_interval: settings.reaper_interval,
            reconcile_interval: settings.sessions_reconcile_interval,
            forget_after: settings.groups_forget_after,
            ..SweeperSettings::default()
        },
        ledger,
        traces: settings.traces()?,
    })
}

/// The options that all processes of a store must share.
fn options(settings: &Settings) -> StoreOptions {
    StoreOptions {
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
    }
}

/// Says why a daemon did not start, in the words of the settings. What cannot be used is wrong usage.
fn not_started(settings: &Settings, error: StartError) -> anyhow::Error {
    match error {
        StartError::Listen(error) => anyhow::Error::new(error).context(format!(
            "cannot listen on {}; is another daemon running?",
            settings.listen
        )),
        StartError::Directory(path, error) => {
            anyhow::Error::new(error).context(format!("the data directory {} cannot be made", path.display()))
        }
        StartError::Store(error) => refused(&settings.store_url().0, error),
        StartError::Served(place) => anyhow::anyhow!("the store is served by the daemon at {place} already"),
        StartError::NoMirror(place) => Usage::new(format!("ledger: the store {place} does not mirror one")).into(),
        StartError::Ledger(error) => refused_ledger(&settings.ledger_url().unwrap_or_default(), error),
        StartError::Traces(error) => Usage::new(error.chain()).into(),
        StartError::Server(error) if error.kind() == ErrorKind::Misconfigured => Usage::new(error.chain()).into(),
        StartError::Server(error) | StartError::Beside(error) => error.into(),
    }
}

/// Clears away what killed supervisors have left in Consul.
fn clear_away(
    wanted: Registrations,
    agents: &str,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    loops: &Loops,
) -> tenure_core::Result<()> {
    let (store, clock) = (Arc::clone(store), Arc::clone(clock));
    tracing::info!(groups = ?wanted.groups, agents, "clearing registrations away");
    loops.start(Janitor::settings(), move || {
        let (groups, agents) = (wanted.groups.clone(), wanted.agents.clone());
        Janitor::new(Arc::clone(&store), groups, agents, Arc::clone(&clock))
    })?;
    Ok(())
}

/// One line for programs (where to connect), one for people.
fn announce(settings: &Settings, daemon: &Daemon) {
    // The daemon runs on if its output cannot be written.
    let (url, address) = (daemon.url(), daemon.addr());
    let _ = line(url);
    tracing::info!(
        listen = url,
        tokens = !settings.tokens.is_empty(),
        client_certificates = !settings.tls_client_ca.is_empty(),
        store = %daemon.store().place(),
        version = env!("CARGO_PKG_VERSION"),
        "serving"
    );
    if let Some(surprise) = settings.surprises() {
        tracing::warn!("{surprise}");
    }
    if !address.ip().is_loopback() && settings.insecure_listen {
        let danger = match (settings.tokens.is_empty(), settings.tls_cert.is_empty()) {
            (true, _) if settings.tls_client_ca.is_empty() => "every client that reaches it may do everything",
            (false, true) => "tokens are readable on the network",
            _ => return,
        };
        tracing::warn!(%address, "other machines reach this address, and {danger}");
    }
}

/// What the next signal asks of the daemon. HUP asks it to look at its files.
async fn asked(signals: &mut Signals) -> DaemonCommand {
    loop {
        match signals.next().await {
            Signal::TERM => return DaemonCommand::Stop("TERM"),
            Signal::INT => return DaemonCommand::Stop("INT"),
            Signal::QUIT => return DaemonCommand::Stop("QUIT"),
            Signal::HUP => return DaemonCommand::Reload,
            _ => {}
        }
    }
}
