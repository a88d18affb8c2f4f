//! `tenure adopt leases`: how far a fleet has moved from its plain keys to Tenure's leases. It only looks.

mod show;

use clap::Args;
use tenure_adopt::{ForeignReader, HolderCounts, KeyPattern, LeaseComparison, MIN_OLD_TTL, MovingKeys, StoredKeys};
use tenure_core::clock::SystemClock;

use crate::cli::{FormatArgs, StoreArgs};
use crate::connect;
use crate::exit::{DONE, FAILED, say};
use crate::settings::{FlagsOf, adopt as settings};

/// Compares the lock keys of a fleet that moves to Tenure with Tenure's leases.
///
/// It changes nothing. Exit code 0 if no old instance holds a key, so that the next deployment may ignore the old keys (with
/// --until both: if new nodes also hold every target); else 1. An old instance that holds no key is not detected.
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

/// A comparison of old keys and leases.
struct Leases {
    given: settings::Leases,
    format: FormatArgs,
}

impl Leases {
    async fn look(&self, pattern: KeyPattern, targets: Option<KeyPattern>) -> anyhow::Result<u8> {
        let connection = super::reach(&self.given.store).await?;
        // It takes nothing, so any ttl will do.
        let given = &self.given;
        let keys = MovingKeys {
            targets: targets.map(|targets| ForeignReader::new(connection.clone(), targets, given.paused_field.clone())),
            old: StoredKeys::new(connection, pattern, MIN_OLD_TTL)?,
        };
        let tenure_store = StoreArgs {
            url: given.tenure_store.clone().unwrap_or_else(|| given.store.clone()),
        };
        let connected = tenure_store.connect().await?;
        let (store, clock) = (&**connected.tenure.store(), SystemClock::new());
        let waiting = |counts: HolderCounts| say(format_args!("waiting: {counts}"));
        let done = match given.wait {
            Some(wait) => {
                LeaseComparison::wait_until_done(&keys, store, &given.group, (given.until, wait, &clock), waiting).await
            }
            None => LeaseComparison::look(&keys, store, &given.group).await,
        };
        connected.tenure.close().await;
        let beside = done?;
        let is_done = beside.is_done(given.until);
        if self.format.json {
            show::json(&beside, is_done)?;
        } else {
            show::table(&beside)?;
            self.warn(&beside);
        }
        Ok(if is_done { DONE } else { FAILED })
    }

    /// Names what cannot be used: mostly it is mistyped.
    fn warn(&self, beside: &LeaseComparison) {
        let targets = self.given.targets.as_deref();
        if let Some(pattern) = targets.filter(|_| beside.named == Some(0)) {
            say(format_args!("no key matches {pattern}: check --targets"));
        }
        let field = self.given.paused_field.as_deref();
        let has_none = beside.with_field == 0 && beside.named.is_some_and(|named| named > 0);
        if let Some(field) = field.filter(|_| has_none) {
            say(format_args!("not one key has the field {field}: check --paused-field"));
        }
        show::without_use("--targets", &beside.nameless);
        show::without_use("--pattern", &beside.old_nameless);
    }
}
