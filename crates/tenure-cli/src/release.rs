//! `tenure release`: gives up claims or leases.

use clap::{Args, Subcommand};
use serde::Serialize;
use tenure::wire::{ReleaseLeaseResult, ReleaseWord};
use tenure_core::Store;
use tenure_core::error::ErrorKind;
use tenure_core::id::{Key, LeaseName, MemberId, RegistryName, TenureId};
use tenure_core::lease::{ReleaseOutcome, Token};
use tenure_core::store::Call;

use crate::acting::ActingArgs;
use crate::cli::{FormatArgs, GroupArgs, StoreArgs};
use crate::exit::{DONE, FAILED, say};
use crate::output::{json, table};

/// Releases claims or leases that a living member holds.
///
/// Releasing what is free already is done; what another tenure holds is left, and the exit code is 1.
#[derive(Debug, Clone, Args)]
pub(crate) struct Release {
    #[command(subcommand)]
    holding: Holding,
}

#[derive(Debug, Clone, Subcommand)]
enum Holding {
    #[command(after_help = "Examples:\n  tenure release claim devices cam-17 --group ingest --as gw-1")]
    Claim(ReleaseClaims),
    #[command(
        after_help = "Examples:\n  tenure release lease report --group workers --as worker-1\n  \
                            tenure release lease report --group workers --as worker-1 --to worker-2"
    )]
    Lease(ReleaseLeases),
}

impl Release {
    pub(crate) fn run(&self) -> anyhow::Result<u8> {
        match &self.holding {
            Holding::Claim(claims) => claims.store.with(async |store| claims.run(store).await),
            Holding::Lease(leases) => leases.store.with(async |store| leases.run(store).await),
        }
    }
}

/// Releases keys of a registry.
#[derive(Debug, Clone, Args)]
struct ReleaseClaims {
    /// The registry.
    registry: RegistryName,
    /// The keys.
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<Key>,
    #[command(flatten)]
    acting: ActingArgs,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Serialize)]
struct Released<T> {
    tenure: TenureId,
    results: Vec<T>,
}

/// A key that was to be released.
#[derive(Serialize)]
struct ReleasedKey {
    key: Key,
    /// `released` or `not_owner`.
    outcome: &'static str,
}

impl ReleaseClaims {
    async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let group = &self.group.name;
        let tenure = self.acting.tenure(store, group).await?;
        let mut results = Vec::new();
        for key in &self.keys {
            let done = store
                .release_claim(group, &self.registry, key, &tenure, Call::default())
                .await;
            let outcome = match done {
                Ok(()) => "released",
                Err(error) if error.kind() == ErrorKind::NotOwner => {
                    say(format_args!("not released: {}", error.chain()));
                    "not_owner"
                }
                Err(error) => return Err(error.into()),
            };
            let key = key.clone();
            results.push(ReleasedKey { key, outcome });
        }
        let has_all = results.iter().all(|one| one.outcome == "released");
        if self.format.json {
            json(&Released { tenure, results })?;
        } else {
            let rows = results
                .iter()
                .map(|one| [one.key.to_string(), one.outcome.replace('_', " ")]);
            table(["key", "outcome"], rows.collect())?;
        }
        Ok(if has_all { DONE } else { FAILED })
    }
}

/// Releases leases, or hands them off.
///
/// For the holder: nothing else knows that its work has stopped. An operator uses `tenure leases release`.
#[derive(Debug, Clone, Args)]
struct ReleaseLeases {
    /// The leases.
    #[arg(required = true, value_name = "LEASE")]
    leases: Vec<LeaseName>,
    #[command(flatten)]
    acting: ActingArgs,
    /// Release only the grant with this fencing token; otherwise the one that the tenure holds now.
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    token: Option<Token>,
    /// Hand off: keep the lease for this living member for five seconds.
    #[arg(long, value_name = "MEMBER")]
    to: Option<MemberId>,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn token(text: &str) -> Result<Token, String> {
    let number = text
        .parse()
        .map_err(|_| "not a fencing token: write the number that `tenure acquire` printed")?;
    Token::new(number).map_err(|error| error.to_string())
}

impl ReleaseLeases {
    async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let tenure = self.acting.tenure(store, &self.group.name).await?;
        let mut results = Vec::new();
        for lease in &self.leases {
            let outcome = self.release(store, &tenure, lease).await?;
            results.push(ReleaseLeaseResult::new(lease.clone(), outcome));
        }
        let is_refused = |one: &ReleaseLeaseResult| one.outcome == ReleaseWord::NotHolder;
        let has_all = !results.iter().any(is_refused);
        if self.format.json {
            json(&Released { tenure, results })?;
        } else {
            self.show(&results)?;
        }
        Ok(if has_all { DONE } else { FAILED })
    }

    async fn release(&self, store: &dyn Store, tenure: &TenureId, lease: &LeaseName) -> anyhow::Result<ReleaseOutcome> {
        let group = &self.group.name;
        let token = match self.token {
            Some(token) => token,
            None => match store.lease_of(group, lease).await? {
                Some(held) if held.tenure == *tenure => held.token,
                Some(held) => return Ok(ReleaseOutcome::NotHolder { by: held.tenure }),
                None => return Ok(ReleaseOutcome::Released),
            },
        };
        let asked = [(lease.clone(), token)];
        let given = store
            .release_leases(group, tenure, &asked, self.to.as_ref(), Call::default())
            .await?;
        let outcome = given.outcomes.into_iter().next();
        outcome.ok_or_else(|| anyhow::anyhow!("the store did not answer for lease \"{lease}\""))
    }

    fn show(&self, results: &[ReleaseLeaseResult]) -> anyhow::Result<()> {
        let rows = results.iter().map(|one| {
            let outcome = match (one.outcome, &one.tenure, &self.to) {
                (ReleaseWord::NotHolder, Some(by), _) => format!("held by {by}"),
                (ReleaseWord::NotHolder, None, _) => "held by another tenure".to_owned(),
                (ReleaseWord::Reserved, _, Some(to)) => format!("reserved for {to}"),
                (ReleaseWord::Reserved, _, None) => "reserved".to_owned(),
                (ReleaseWord::Released, ..) => "released".to_owned(),
            };
            [one.lease.to_string(), outcome]
        });
        table(["lease", "outcome"], rows.collect())
    }
}
