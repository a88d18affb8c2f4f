//! `tenure adopt leases`: how far a fleet has moved from its plain keys to Tenure's leases. It only looks.

mod show;
mod side;

use std::time::Duration;

use clap::Args;
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_core::store::Health;
use tenure_core::time::parse_duration;
use tenure_core::{Store, error};
use tenure_valkey::adopt::{KeyPattern, MIN_OLD_TTL, OldKeys};
use tenure_valkey::{Connection, ConnectionOptions};

use crate::cli::{FormatArgs, GroupArgs, StoreArgs};
use crate::connect;
use crate::exit::{DONE, FAILED, Usage, say};
use side::Beside;

/// How often it looks while it waits.
const LOOK: Duration = Duration::from_secs(1);

/// Shows the keys of a fleet that moves to Tenure beside Tenure's leases, target by target. Changes nothing.
///
/// Exit code 0 when no old instance holds anything any more, else 1: the next deployment may then leave the old keys
/// alone. An old instance that runs and holds nothing is not seen.
#[derive(Debug, Clone, Args)]
pub(crate) struct Leases {
    /// How the old keys are called, with {target} or one * where the target's name goes: 'poll:lease:*'
    #[arg(long, value_name = "PATTERN", env = "TENURE_ADOPT_PATTERN")]
    pattern: String,
    /// Where the old keys are: valkey://… or redis://….
    #[arg(long = "store", value_name = "URL", env = "TENURE_STORE", hide_env_values = true)]
    url: String,
    /// Where Tenure's leases are, when that is elsewhere: a daemon (http://HOST:PORT), or a store itself.
    #[arg(
        long = "tenure-store",
        value_name = "URL",
        env = "TENURE_ADOPT_TENURE_STORE",
        hide_env_values = true
    )]
    tenure_url: Option<String>,
    #[command(flatten)]
    group: GroupArgs,
    /// Wait until no old instance holds anything any more, at most this long.
    #[arg(long, value_name = "DURATION", env = "TENURE_ADOPT_WAIT", value_parser = parse_duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    format: FormatArgs,
}

impl Leases {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        let pattern = KeyPattern::parse(&self.pattern)?;
        if self.url.is_empty() {
            return Err(Usage::new("--store is empty; name where the old keys are, like valkey://host:6379").into());
        }
        crate::logging::start_quiet("error")?;
        connect::block_on(self.look(pattern))
    }

    async fn look(&self, pattern: KeyPattern) -> anyhow::Result<u8> {
        let clock = SystemClock::shared();
        let connection = Connection::open(
            &self.url,
            ConnectionOptions::default(),
            Vec::new(),
            std::sync::Arc::clone(&clock),
        )
        .map_err(|error| Usage::new(format!("--store: {}", error.chain())))?;
        connection.first_try().await;
        if let Health::Down { reason } = connection.health() {
            let message = format!("the store at {} is out of reach: {reason}", connection.place());
            return Err(Error::unavailable(message, Outcome::Unchanged).into());
        }
        // It takes nothing, so any ttl will do.
        let keys = OldKeys::new(connection, pattern, MIN_OLD_TTL)?;
        let tenure_store = StoreArgs {
            url: self.tenure_url.clone().unwrap_or_else(|| self.url.clone()),
        };
        let connected = tenure_store.connect().await?;
        let done = self.until_done(&keys, &**connected.tenure.store(), &*clock).await;
        connected.tenure.close().await;
        let beside = done?;
        if self.format.json {
            show::json(&beside)?;
        } else {
            show::table(&beside)?;
        }
        Ok(if beside.is_done() { DONE } else { FAILED })
    }

    /// Looks once, or again and again until nothing is left to wait for.
    async fn until_done(&self, keys: &OldKeys, store: &dyn Store, clock: &dyn Clock) -> error::Result<Beside> {
        let Some(wait) = self.wait else {
            return Beside::look(keys, store, &self.group.name).await;
        };
        let end = clock.mono() + wait;
        let mut told = None;
        loop {
            let looked = Beside::look(keys, store, &self.group.name).await;
            let is_last = clock.mono() >= end;
            match looked {
                Ok(beside) if beside.is_done() || is_last => return Ok(beside),
                Ok(beside) => {
                    let counts = Some(beside.counts());
                    if told != counts {
                        say(format_args!("waiting: {}", beside.counts()));
                        told = counts;
                    }
                }
                // A store that is away for a while is waited for as well.
                Err(error) if error.kind() == ErrorKind::Unavailable && !is_last => {}
                Err(error) => return Err(error),
            }
            clock.sleep(LOOK.min(end.since(clock.mono()))).await;
        }
    }
}
