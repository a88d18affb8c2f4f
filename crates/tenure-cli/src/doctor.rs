//! `tenure doctor`: problems and what to do about them.

mod consul;
mod daemon;
mod finding;
mod ledger;
mod machine;
mod reach;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tenure_core::clock::{SystemClock, within};
use tenure_core::store::{Finding, Severity};
use tenure_core::time::{parse_duration, show_duration};
use tenure_core::timing::Timing;

use crate::cli::{FormatArgs, StoreArgs};
use crate::connect::{self, Connected};
use crate::exit::{DONE, FAILED};
use crate::output::brief;
use crate::progress::Progress;
use crate::settings::LONGEST_TTL;
use finding::Diagnosis;

/// An answer that takes longer is a finding.
const PATIENCE: Duration = Duration::from_secs(5);

/// Checks the store, the connection to it, clocks, timing and this machine.
///
/// It connects as any client does, so it finds what blocks clients: a daemon that is not running, a rejected token or
/// certificate, a server that evicts keys, a command that is not allowed. Each finding has a severity, what was found and what
/// to do; exit code 1 if one is an error. It changes nothing, except that it migrates the schema of a ledger as a daemon would.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  tenure doctor\n  \
                        tenure doctor --store valkey://db:6379 --ledger postgres://db/tenure --ttl 10s\n  \
                        tenure doctor --consul 127.0.0.1:8500 --data-dir /var/lib/tenure --json")]
pub(crate) struct Doctor {
    /// The ttl for which the timing is checked.
    #[arg(long, value_name = "DURATION", env = "TENURE_TTL", default_value = "30s", value_parser = parse_duration)]
    ttl: Duration,
    /// Also check this ledger, if the store is not a daemon: postgres://…, sqlite:PATH. A daemon checks its own ledger.
    #[arg(long, value_name = "URL", env = "TENURE_LEDGER", hide_env_values = true)]
    ledger: Option<String>,
    /// Also check this Consul agent, for `tenure run`: HOST:PORT.
    #[arg(long, value_name = "ADDRESS")]
    consul: Option<String>,
    /// A file with the token for the Consul agent.
    #[arg(long, value_name = "FILE", env = "CONSUL_HTTP_TOKEN_FILE")]
    consul_token_file: Option<PathBuf>,
    /// Also check the data directory of a daemon on this machine.
    #[arg(long, value_name = "DIR", env = "TENURE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Doctor {
    pub(crate) fn run(self) -> anyhow::Result<u8> {
        crate::logging::start_quiet("off")?;
        connect::block_on(async {
            let told = Progress::of("examining", self.look()).await;
            let failed = told.iter().any(|told| told.finding.severity == Severity::Error);
            finding::print(told, &self.format)?;
            Ok(if failed { FAILED } else { DONE })
        })
    }

    async fn look(&self) -> Vec<Diagnosis> {
        let clock = SystemClock::shared();
        let mut told = match self.store.connect().await {
            Ok(connected) => {
                let mut told = self.look_at(&connected).await;
                if let Some(url) = self.own_ledger() {
                    told.extend(ledger::look(url, &**connected.tenure.store(), &clock).await);
                }
                connected.tenure.close().await;
                told
            }
            // Without a connection nothing else about the store can be checked.
            Err(error) => vec![reach::refused(&error)],
        };
        if let Some(address) = &self.consul {
            told.extend(consul::look(address, self.consul_token_file.as_deref(), &*clock).await);
        }
        told.extend(machine::look(self.data_dir.as_deref()));
        told
    }

    async fn look_at(&self, connected: &Connected) -> Vec<Diagnosis> {
        let (store, clock) = (connected.tenure.store(), connected.tenure.clock());
        let (round_trip, mut told) = reach::look(&**store, &**clock).await;
        let Some(round_trip) = round_trip else {
            return told;
        };
        told.push(self.timing(round_trip));
        if is_daemon(&connected.url) {
            told.extend(daemon::look(&**clock, &connected.url).await);
        }
        match within(&**clock, PATIENCE, store.examine()).await {
            Some(found) => told.extend(found.into_iter().map(Diagnosis::from)),
            None => told.push(silent("store")),
        }
        told
    }

    /// The ledger of a store without a daemon.
    fn own_ledger(&self) -> Option<&str> {
        let given = self.ledger.as_deref().filter(|url| !url.is_empty());
        given.filter(|_| !is_daemon(&self.store.url))
    }

    fn timing(&self, round_trip: Duration) -> Diagnosis {
        let check = "timing";
        let timing = Timing::for_ttl(self.ttl);
        if let Err(error) = timing.check(LONGEST_TTL) {
            return Finding::new(check, Severity::Error, error.chain()).into();
        }
        let numbers = format!(
            "ttl {}: a heartbeat every {}, each may take {}, margin {}",
            show_duration(timing.ttl),
            show_duration(timing.interval),
            show_duration(timing.request_timeout),
            show_duration(timing.margin),
        );
        if round_trip * 2 > timing.request_timeout {
            let detail = format!(
                "{numbers}; one round trip took {}, more than half of that",
                brief(round_trip)
            );
            return Diagnosis::new(check, Severity::Warning, detail).advise("raise the ttl");
        }
        Diagnosis::new(check, Severity::Ok, numbers)
    }
}

/// Whether a URL is that of a daemon. The default is one.
fn is_daemon(url: &str) -> bool {
    url.is_empty() || url.starts_with("http:") || url.starts_with("https:")
}

/// The finding for a component that does not answer.
fn silent(check: &str) -> Diagnosis {
    let detail = format!("no answer within {}", show_duration(PATIENCE));
    Diagnosis::new(check, Severity::Error, detail)
}
