//! `tenure adopt leases`: how far a fleet has moved from its plain keys to Tenure's leases. It only looks.

mod show;
mod side;

use std::time::Duration;

use clap::Args;
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_core::store::Health;
use tenure_core::{Store, error};
use tenure_valkey::adopt::{KeyPattern, MIN_OLD_TTL, OldKeys};
use tenure_valkey::foreign::ForeignReader;
use tenure_valkey::{Connection, ConnectionOptions};

use crate::cli::{FormatArgs, StoreArgs};
use crate::connect;
use crate::exit::{DONE, FAILED, Usage, say};
use crate::settings::{FlagsOf, adopt as settings};
use side::{Beside, Keys};

/// How often it looks while it waits.
const LOOK: Duration = Duration::from_secs(1);

/// Shows the keys of a fleet that moves to Tenure beside Tenure's leases, target by target. Changes nothing.
///
/// Exit code 0 when no old instance holds anything any more, else 1: the next deployment may then leave the old keys
/// alone. An old instance that runs and holds nothing is not seen.
#[derive(Debug, Clone, Args)]
pub(super) struct LeasesArgs {
    #[command(flatten)]
    flags: FlagsOf<settings::Leases>,
    #[command(flatten)]
    format: FormatArgs,
}

impl LeasesArgs {
    pub(super) fn run(self) -> anyhow::Result<u8> {
        let given = settings::Leases::load(&self.flags, &|name| std::env::var(name).ok())?;
        let pattern = KeyPattern::parse(&given.pattern)?;
        let targets = given.targets.as_deref().map(KeyPattern::parse).transpose()?;
        crate::logging::start_quiet("error")?;
        let leases = Leases {
            given,
            format: self.format,
        };
        connect::block_on(leases.look(pattern, targets))
    }
}

/// What is to be looked at.
struct Leases {
    given: settings::Leases,
    format: FormatArgs,
}

impl Leases {
    async fn look(&self, pattern: KeyPattern, targets: Option<KeyPattern>) -> anyhow::Result<u8> {
        let clock = SystemClock::shared();
        let connection = Connection::open(
            &self.given.store,
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
        let given = &self.given;
        let keys = Keys {
            targets: targets.map(|targets| ForeignReader::new(connection.clone(), targets, given.paused_field.clone())),
            old: OldKeys::new(connection, pattern, MIN_OLD_TTL)?,
        };
        let tenure_store = StoreArgs {
            url: given.tenure_store.clone().unwrap_or_else(|| given.store.clone()),
        };
        let connected = tenure_store.connect().await?;
        let done = self.until_done(&keys, &**connected.tenure.store(), &*clock).await;
        connected.tenure.close().await;
        let beside = done?;
        if self.format.json {
            show::json(&beside)?;
        } else {
            show::table(&beside)?;
            if let Some(pattern) = given.targets.as_deref().filter(|_| beside.named == Some(0)) {
                say(format_args!("no key is called like {pattern}: is --targets right?"));
            }
        }
        Ok(if beside.is_done() { DONE } else { FAILED })
    }

    /// Looks once, or again and again until nothing is left to wait for.
    async fn until_done(&self, keys: &Keys, store: &dyn Store, clock: &dyn Clock) -> error::Result<Beside> {
        let Some(wait) = self.given.wait else {
            return Beside::look(keys, store, &self.given.group).await;
        };
        let end = clock.mono() + wait;
        let mut told = None;
        loop {
            let looked = Beside::look(keys, store, &self.given.group).await;
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
