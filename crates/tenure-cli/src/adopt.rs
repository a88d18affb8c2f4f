//! `tenure adopt`: looking after what programs in other languages write by hand.

mod daemon;
mod leases;
mod progress;
mod sessions;
mod show;

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use tenure_adopt::{
    AdoptSettings, Connection, ConnectionOptions, DaemonEnd, EarlyEnd, Janitor, LAST_REGISTRY_PAGE, Notice, OwnerAt,
    PassEnd, PassListener, RegistryDaemon, Tally,
};
use tenure_core::brake::BrakeSettings;
use tenure_core::clock::SystemClock;
use tenure_core::error::{Error, Outcome};
use tenure_core::store::Health;

use crate::cli::FormatArgs;
use crate::connect;
use crate::exit::{DONE, FAILED, Usage, say};
use crate::settings::{FlagsOf, adopt as settings};
use daemon::{metrics_listener, on_runtime, printed, signals};
use progress::PassProgress;

/// Cleans up keys that other programs write, without changing those programs.
#[derive(Debug, Clone, Args)]
pub(crate) struct Adopt {
    #[command(subcommand)]
    what: Keyspace,
}

#[derive(Debug, Clone, Subcommand)]
enum Keyspace {
    #[command(after_help = "Examples:\n  \
        tenure adopt registry --store valkey://db --hash connections --heartbeat 'instance:{id}' --dry-run\n  \
        tenure adopt registry --store valkey://db --hash connections --heartbeat 'instance:{id}' --interval 60s")]
    Registry(RegistryArgs),
    #[command(after_help = "Examples:\n  tenure adopt leases --store valkey://db --pattern 'poll:lease:*'")]
    Leases(leases::LeasesArgs),
    #[command(after_help = "Examples:\n  \
        tenure adopt sessions --store valkey://db --pattern 's:*' --disconnected-field left --dry-run\n  \
        tenure adopt sessions --store valkey://db --pattern 's:*' --disconnected-field left --reap --interval")]
    Sessions(Box<sessions::SessionsArgs>),
}

impl Adopt {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        match self.what {
            Keyspace::Registry(registry) => registry.run(),
            Keyspace::Leases(leases) => leases.run(),
            Keyspace::Sessions(sessions) => sessions.run(),
        }
    }
}

/// Removes entries of dead owners from a hash of key -> owner's id.
///
/// An owner is dead when its heartbeat key is absent twice, --settle apart, while the store served without interruption. An
/// entry is removed only if, in the same atomic step, the heartbeat is still absent and the entry has not changed. Without
/// --interval it runs once; exit code 1 if the brake or the store's health held something back.
#[derive(Debug, Clone, Args)]
struct RegistryArgs {
    #[command(flatten)]
    flags: FlagsOf<settings::Registry>,
    /// Only list what would be removed now: one look, no wait, no writes.
    #[arg(long, conflicts_with_all = [settings::INTERVAL, "force"])]
    dry_run: bool,
    /// Lift the brake first. Both looks and the store's health still count.
    #[arg(long, conflicts_with = settings::INTERVAL)]
    force: bool,
    /// Do not fail, and with --interval do not warn, if the hash is empty or missing.
    #[arg(long)]
    allow_empty: bool,
    #[command(flatten)]
    format: FormatArgs,
}

/// A run over a hash.
struct Registry {
    given: settings::Registry,
    dry_run: bool,
    force: bool,
    allow_empty: bool,
    format: FormatArgs,
}

impl RegistryArgs {
    fn run(self) -> anyhow::Result<u8> {
        let once = self.dry_run || self.force;
        let given = settings::Registry::load(&self.flags, once, &|name| std::env::var(name).ok())?;
        let registry = Registry {
            given,
            dry_run: self.dry_run,
            force: self.force,
            allow_empty: self.allow_empty,
            format: self.format,
        };
        let settings = registry.settings()?;
        match registry.given.interval {
            Some(interval) => on_runtime(registry.serve(settings, interval)),
            None => {
                crate::logging::start_quiet("error")?;
                connect::block_on(registry.once(settings))
            }
        }
    }
}

impl Registry {
    fn settings(&self) -> anyhow::Result<AdoptSettings> {
        let given = &self.given;
        let mut settings = AdoptSettings::new(&given.hash, &given.heartbeat)?;
        if let Some(pointer) = &given.owner_pointer {
            settings.owner_at = OwnerAt::pointer(pointer)?;
        }
        settings.settle = given.settle;
        settings.brake = BrakeSettings {
            share: given.brake_share,
            floor: given.brake_floor,
            hold: given.brake_hold,
        };
        Ok(settings)
    }

    async fn serve(&self, settings: AdoptSettings, interval: Duration) -> anyhow::Result<DaemonEnd> {
        let mut signals = signals()?;
        let connection = connection(&self.given.store)?;
        let listen = self.given.metrics_listen;
        let listen = listen.map(|address| (address, "adopt.registry.metrics_listen"));
        let hash = self.given.hash.clone();
        let print: PassListener = Arc::new(move |end: PassEnd<'_>| {
            printed(match end {
                PassEnd::Done(report) => show::pass_line(&hash, report),
                PassEnd::Early(removed, why) => show::part_line(&hash, removed, why),
            });
        });
        let daemon = RegistryDaemon {
            connection,
            settings,
            interval,
            allow_empty: self.allow_empty,
            metrics: metrics_listener(listen, self.format.json).await?,
            listener: self.format.json.then_some(print),
        };
        Ok(daemon.run(async { _ = signals.asked_to_end().await }).await?)
    }

    async fn once(&self, settings: AdoptSettings) -> anyhow::Result<u8> {
        let connection = reach(&self.given.store).await?;
        let (tally, clock) = (Tally::default(), Arc::clone(connection.clock()));
        let (noted, progress) = (tally.clone(), Arc::new(PassProgress::new()));
        let shown = Arc::clone(&progress);
        let listener = move |notice: &Notice<'_>| {
            noted.note(notice);
            shown.note(notice);
        };
        let mut janitor = Janitor::new(connection, settings).with_listener(Box::new(listener));
        if self.dry_run {
            let preview = progress.during(janitor.preview()).await?;
            show::preview(self, &preview)?;
            return Ok(self.code(preview.scanned > 0));
        }
        let mut signals = signals()?;
        let stopped = async {
            signals.asked_to_end().await;
            tally.page_finished(&clock, LAST_REGISTRY_PAGE).await;
        };
        let pass = async {
            tokio::select! {
                biased;
                done = janitor.pass(self.force) => Some(done),
                () = stopped => None,
            }
        };
        let done = progress.during(pass).await;
        let pending = janitor.close().await;
        match done {
            Some(Ok(report)) => {
                show::pass(self, &report)?;
                if pending > 0 {
                    show::unsure(pending);
                }
                let held_back = report.braked.is_some() || report.quarantined.is_some();
                let code = self.code(report.scanned > 0);
                Ok(if held_back { FAILED } else { code })
            }
            Some(Err(error)) => {
                let removed = tally.removed(EarlyEnd::Failed, pending);
                if !removed.is_nothing() {
                    show::ended_early(self, &removed, EarlyEnd::Failed)?;
                }
                Err(error.into())
            }
            None => {
                show::ended_early(
                    self,
                    &tally.removed(EarlyEnd::Interrupted, pending),
                    EarlyEnd::Interrupted,
                )?;
                Ok(FAILED)
            }
        }
    }
}

impl Registry {
    /// The exit code of a run that went well, but for a hash that is not there: mostly its name is mistyped.
    fn code(&self, is_there: bool) -> u8 {
        if is_there || self.allow_empty {
            return DONE;
        }
        say(format_args!(
            "hash {:?} is missing or empty: check --hash, or accept this with --allow-empty",
            self.given.hash
        ));
        FAILED
    }
}

/// The schemes that name one server, and that of a cluster, whose error says more.
const SCHEMES: [&str; 8] = [
    "valkey",
    "valkeys",
    "redis",
    "rediss",
    "valkey-sentinel",
    "redis-sentinel",
    "valkey-cluster",
    "redis-cluster",
];

/// Opens a connection to the store of other programs, without waiting for it.
fn connection(store: &str) -> anyhow::Result<Connection> {
    let scheme = store.split_once(':').map_or("", |(scheme, _)| scheme);
    if !SCHEMES.contains(&scheme) {
        let usage = format!(
            "--store: its scheme {scheme:?} is not one of a Valkey or Redis; write valkey:// or redis://HOST[:PORT], with \
             TLS valkeys:// or rediss://, or valkey-sentinel://HOST,…/NAME"
        );
        return Err(Usage::new(usage).into());
    }
    Connection::open(store, ConnectionOptions::default(), SystemClock::shared())
        .map_err(|error| Usage::new(format!("--store: {}", error.chain())).into())
}

/// Opens a connection and fails if the store is unreachable.
async fn reach(store: &str) -> anyhow::Result<Connection> {
    let connection = connection(store)?;
    connection.first_try().await;
    if let Health::Down { reason } = connection.health() {
        let message = format!("the store at {} is out of reach: {reason}", connection.place());
        return Err(Error::unavailable(message, Outcome::Unchanged).into());
    }
    Ok(connection)
}
