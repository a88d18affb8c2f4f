//! `tenure adopt`: looking after what programs in other languages write by hand.

mod daemon;
mod leases;
mod meters;
mod scrape;
mod show;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use tenure_core::brake::BrakeSettings;
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::error::{Error, Outcome};
use tenure_core::store::Health;
use tenure_core::time::parse_duration;
use tenure_valkey::adopt::{AdoptSettings, Janitor, MAX_SETTLE, Notice, OwnerAt};
use tenure_valkey::{Connection, ConnectionOptions};

use crate::cli::FormatArgs;
use crate::connect;
use crate::exit::{DONE, FAILED, Usage, say};
use crate::output::brief;

/// Looks after a keyspace of other programs, which need no change.
#[derive(Debug, Clone, Args)]
pub(crate) struct Adopt {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    Registry(Registry),
    Leases(leases::Leases),
}

impl Adopt {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        match self.what {
            What::Registry(registry) => registry.run(),
            What::Leases(leases) => leases.run(),
        }
    }
}

/// Removes entries of dead owners from a hash of key -> owner's id.
///
/// An owner is dead when its heartbeat key is absent in two looks, --settle apart, at a store that served all along.
/// Each entry is removed only if at that very moment the heartbeat is still absent and the entry still has the same
/// value. Without --interval it runs once; exit code 1 when the brake or the store's health held something back.
#[derive(Debug, Clone, Args)]
pub(crate) struct Registry {
    /// The hash of key -> owner's id.
    #[arg(long, value_name = "KEY", env = "TENURE_ADOPT_HASH")]
    hash: String,
    /// How the heartbeat key of an owner is called, with {id} where its id goes: instance:heartbeat:{id}
    #[arg(long, value_name = "TEMPLATE", env = "TENURE_ADOPT_HEARTBEAT")]
    heartbeat: String,
    /// Where the other programs write: valkey://… or redis://….
    #[arg(long = "store", value_name = "URL", env = "TENURE_STORE", hide_env_values = true)]
    url: String,
    /// How far the two looks are apart; 0s decides by one look.
    #[arg(long, value_name = "DURATION", env = "TENURE_ADOPT_SETTLE", default_value = "30s", value_parser = parse_duration)]
    settle: Duration,
    /// Values are JSON, and the id stands at this place in it, like /instance. Otherwise the value is the id.
    #[arg(long, value_name = "POINTER", env = "TENURE_ADOPT_OWNER_POINTER")]
    owner_pointer: Option<String>,
    /// Go on for ever, with a pass this often (±10 %).
    #[arg(long, value_name = "DURATION", env = "TENURE_ADOPT_INTERVAL", num_args = 0..=1, default_missing_value = "60s", value_parser = parse_duration)]
    interval: Option<Duration>,
    /// Serve metrics for Prometheus on this address (/metrics). Only with --interval.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "TENURE_ADOPT_METRICS_LISTEN",
        requires = "interval"
    )]
    metrics_listen: Option<SocketAddr>,
    /// Only tell what would go now: one look, no wait, nothing is written.
    #[arg(long, conflicts_with_all = ["interval", "force"])]
    dry_run: bool,
    /// Lift the brake first. Never overrides the looks, nor the store's health.
    #[arg(long, conflicts_with = "interval")]
    force: bool,
    #[command(flatten)]
    brake: BrakeArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// When too many owners seem dead at once.
#[derive(Debug, Clone, Args)]
struct BrakeArgs {
    /// Nothing is removed for a while when more than this share of the owners seems dead at once; 1.0 never brakes.
    #[arg(
        long = "brake-share",
        value_name = "SHARE",
        env = "TENURE_BRAKE_SHARE",
        default_value_t = 0.5
    )]
    share: f64,
    /// With fewer owners than this the brake never engages.
    #[arg(
        long = "brake-floor",
        value_name = "OWNERS",
        env = "TENURE_BRAKE_FLOOR",
        default_value_t = 10
    )]
    floor: u64,
    /// The brake lets go after this long at the latest.
    #[arg(long = "brake-hold", value_name = "DURATION", env = "TENURE_BRAKE_HOLD", default_value = "5m", value_parser = parse_duration)]
    hold: Duration,
}

/// The longest that the brake may hold.
const LONGEST_HOLD: Duration = Duration::from_secs(3600);
/// The shortest time between two passes.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

impl Registry {
    fn run(self) -> anyhow::Result<u8> {
        let settings = self.settings()?;
        if self.url.is_empty() {
            return Err(
                Usage::new("--store is empty; name where the other programs write, like valkey://host:6379").into(),
            );
        }
        match self.interval {
            Some(interval) if interval < SHORTEST_INTERVAL => {
                Err(Usage::new(format!("--interval {} is below 1s", brief(interval))).into())
            }
            Some(interval) => daemon::run(&self, settings, interval),
            None => {
                crate::logging::start_quiet("error")?;
                connect::block_on(self.once(settings))
            }
        }
    }

    fn settings(&self) -> anyhow::Result<AdoptSettings> {
        let mut settings = AdoptSettings::new(&self.hash, &self.heartbeat)?;
        if let Some(pointer) = &self.owner_pointer {
            settings.owner_at = OwnerAt::pointer(pointer)?;
        }
        if self.settle > MAX_SETTLE {
            return Err(Usage::new("--settle is above 24h").into());
        }
        let BrakeArgs { share, floor, hold } = self.brake.clone();
        if !(share > 0.0 && share <= 1.0) {
            return Err(Usage::new(format!(
                "--brake-share {share} is not a share; write a number above 0 and up to 1"
            ))
            .into());
        }
        if hold > LONGEST_HOLD {
            return Err(Usage::new("--brake-hold is above 1h; ghosts would stay for longer than anyone looks").into());
        }
        settings.settle = self.settle;
        settings.brake = BrakeSettings { share, floor, hold };
        Ok(settings)
    }

    /// Connects, or tells why it cannot.
    fn connection(&self, clock: Arc<dyn Clock>) -> anyhow::Result<Connection> {
        Connection::open(&self.url, ConnectionOptions::default(), Vec::new(), clock)
            .map_err(|error| Usage::new(format!("--store: {}", error.chain())).into())
    }

    async fn once(&self, settings: AdoptSettings) -> anyhow::Result<u8> {
        let connection = self.connection(SystemClock::shared())?;
        connection.first_try().await;
        if let Health::Down { reason } = connection.health() {
            let message = format!("the store at {} is out of reach: {reason}", connection.place());
            return Err(Error::unavailable(message, Outcome::Unchanged).into());
        }
        let mut janitor = Janitor::new(connection, settings).with_listener(Box::new(tell));
        let done = if self.dry_run {
            janitor.preview().await.map(|preview| show::preview(self, &preview))
        } else {
            janitor.pass(self.force).await.map(|report| {
                show::pass(self, &report)?;
                let held_back = report.braked.is_some() || report.quarantined.is_some();
                Ok(if held_back { FAILED } else { DONE })
            })
        };
        let unsure = if self.dry_run { 0 } else { janitor.close().await };
        if unsure > 0 {
            say(format_args!(
                "a reply was lost: up to {unsure} entries may have been removed without being counted"
            ));
        }
        done?
    }
}

/// What people want to know while they wait.
fn tell(notice: &Notice<'_>) {
    match notice {
        Notice::Settling { absent, wait } => say(format_args!(
            "{} without a heartbeat; looking again in {}",
            show::owners_of(*absent),
            brief(*wait)
        )),
        Notice::Quarantined(broken) => say(format_args!("nothing is removed for now: {broken}")),
        _ => {}
    }
}
