//! `tenure acquire`: gets leases for a living member.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::Tenure;
use tenure::lease::Waited;
use tenure::wire::AcquireLeasesAnswer;
use tenure_core::id::{LeaseName, TenureId};
use tenure_core::lease::{self, AcquireOutcome, Acquired, Holders};
use tenure_core::store::Call;
use tenure_core::time::parse_duration;

use crate::acting::ActingArgs;
use crate::cli::{FormatArgs, GroupArgs, StoreArgs};
use crate::exit::{DONE, FAILED, Usage, say};
use crate::output::{brief, json, or_dash, table};

/// Acquires leases for a living member, and prints their fencing tokens.
///
/// A lease lasts until it is released or its holder's tenure ends: UNTIL moves on with every heartbeat. If another member
/// holds it, the exit code is 1, after the time of --wait. Acquiring a lease again shows the same token. The member
/// must work under the leases that it is given: `tenure join` leaves that to its command, while a member of the Rust library
/// releases leases that it did not acquire (unless it joined with `others_act`).
#[derive(Debug, Clone, Args)]
pub(crate) struct Acquire {
    /// The leases.
    #[arg(required = true, value_name = "LEASE")]
    leases: Vec<LeaseName>,
    /// Wait up to this long for the lease, first come, first served; at most a minute. For one lease.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// How many members can hold the lease (a semaphore), the same number for all.
    #[arg(long, value_name = "N", default_value = "1", value_parser = holders)]
    holders: Holders,
    #[command(flatten)]
    acting: ActingArgs,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Serialize)]
struct Answer {
    tenure: TenureId,
    #[serde(flatten)]
    answer: AcquireLeasesAnswer,
}

impl Acquire {
    pub(crate) async fn run(&self, client: &Tenure) -> anyhow::Result<u8> {
        if self.wait.is_some() && self.leases.len() > 1 {
            return Err(
                Usage::new("--wait is for one lease; wait for one after the other, always in the same order").into(),
            );
        }
        let tenure = self.acting.tenure(&**client.store(), &self.group.name).await?;
        let Some(acquired) = self.acquire(client, &tenure).await? else {
            return Ok(FAILED);
        };
        let has_all = acquired.outcomes.iter().all(|outcome| outcome.token().is_some());
        if self.format.json {
            let answer = AcquireLeasesAnswer::new(self.leases.clone(), acquired);
            json(&Answer { tenure, answer })?;
        } else {
            self.show(&tenure, &acquired)?;
        }
        Ok(if has_all { DONE } else { FAILED })
    }

    /// `None` if the wait ended without an answer about the lease; the reason was printed.
    async fn acquire(&self, client: &Tenure, tenure: &TenureId) -> anyhow::Result<Option<Acquired>> {
        let group = &self.group.name;
        let acquire = lease::Acquire {
            holders: self.holders,
            ..lease::Acquire::new(tenure.clone(), self.leases.clone())
        };
        let Some(wait) = self.wait.filter(|wait| !wait.is_zero()) else {
            return Ok(Some(
                client.store().acquire_with(group, acquire, Call::default()).await?,
            ));
        };
        let waited = client.waits().acquire(group, acquire, wait, Call::default()).await?;
        Ok(match waited {
            Waited::Answered(acquired) | Waited::Over(acquired) => Some(acquired),
            Waited::Replaced => {
                say(format_args!(
                    "not acquired: a later request of {tenure} waits for the lease"
                ));
                None
            }
        })
    }

    fn show(&self, tenure: &TenureId, acquired: &Acquired) -> anyhow::Result<()> {
        let answers = self.leases.iter().zip(&acquired.outcomes);
        let rows = answers.clone().map(|(lease, outcome)| {
            let until = acquired.as_of + acquired.expires_in;
            let (word, holder) = match outcome {
                AcquireOutcome::Granted { .. } => ("granted", Some(tenure.member())),
                AcquireOutcome::Kept { .. } => ("kept", Some(tenure.member())),
                AcquireOutcome::Held { by, .. } => ("held", Some(by.member())),
                AcquireOutcome::Reserved { to, .. } => ("reserved", Some(to)),
                AcquireOutcome::Unsettled { .. } => ("unsettled", None),
                AcquireOutcome::Waiting { .. } => ("waiting", None),
                AcquireOutcome::HoldersDiffer { .. } => ("holders_differ", None),
                AcquireOutcome::QueueFull { .. } => ("queue_full", None),
            };
            [
                lease.to_string(),
                word.to_owned(),
                or_dash(holder),
                or_dash(outcome.token()),
                or_dash(outcome.token().map(|_| until)),
            ]
        });
        table(["lease", "outcome", "holder", "token", "until"], rows.collect())?;
        for (lease, outcome) in answers {
            if let Some(why) = refusal(outcome, acquired) {
                say(format_args!("lease \"{lease}\" not acquired: {why}"));
            }
        }
        Ok(())
    }
}

pub(crate) fn holders(text: &str) -> Result<Holders, String> {
    let number = text.parse().map_err(|_| "not a number of holders; use 1 to 1000")?;
    Holders::new(number).map_err(|error| error.to_string())
}

/// Why a lease was not granted, and when it can be.
fn refusal(outcome: &AcquireOutcome, acquired: &Acquired) -> Option<String> {
    Some(match outcome {
        AcquireOutcome::Granted { .. } | AcquireOutcome::Kept { .. } => return None,
        AcquireOutcome::Held { by, free_in } => format!(
            "{by} holds it; without another heartbeat of that tenure it is free in {}",
            brief(*free_in)
        ),
        AcquireOutcome::Reserved { to, free_in } => {
            format!(
                "it was handed off to {to}, and is free in {} at the latest",
                brief(*free_in)
            )
        }
        AcquireOutcome::Unsettled { retry_in, cause } => {
            format!("{} (at {})", cause.why_no_lease(*retry_in), acquired.as_of + *retry_in)
        }
        AcquireOutcome::Waiting { ahead, .. } => format!("{ahead} waiters are ahead"),
        AcquireOutcome::HoldersDiffer { holders } => format!("it has {holders} holders; ask for that number"),
        AcquireOutcome::QueueFull { waiting } => format!("{waiting} waiters; the queue is full"),
    })
}
