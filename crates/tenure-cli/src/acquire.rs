//! `tenure acquire`: gets leases for a living member, without waiting.

use clap::Args;
use serde::Serialize;
use tenure::wire::AcquireLeasesAnswer;
use tenure_core::Store;
use tenure_core::id::{LeaseName, TenureId};
use tenure_core::lease::{AcquireOutcome, Acquired};
use tenure_core::store::Call;

use crate::acting::ActingArgs;
use crate::cli::{FormatArgs, GroupArgs, StoreArgs};
use crate::exit::{DONE, FAILED, say};
use crate::output::{brief, json, or_dash, table};

/// Acquires leases for a living member, and prints their fencing tokens.
///
/// A lease lasts until it is released or its holder's tenure ends: UNTIL moves on with every heartbeat. A lease that
/// another member holds is not waited for, and the exit code is 1. Acquiring a lease again shows the same token. The member
/// must work under the leases that it is given: `tenure join` leaves that to its command, while a member of the Rust library
/// releases leases that it did not acquire (unless it joined with `others_act`).
#[derive(Debug, Clone, Args)]
pub(crate) struct Acquire {
    /// The leases.
    #[arg(required = true, value_name = "LEASE")]
    leases: Vec<LeaseName>,
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
    pub(crate) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let group = &self.group.name;
        let tenure = self.acting.tenure(store, group).await?;
        let acquired = store.acquire(group, &tenure, &self.leases, Call::default()).await?;
        let has_all = acquired.outcomes.iter().all(|outcome| outcome.token().is_some());
        if self.format.json {
            let answer = AcquireLeasesAnswer::new(self.leases.clone(), acquired);
            json(&Answer { tenure, answer })?;
        } else {
            self.show(&tenure, &acquired)?;
        }
        Ok(if has_all { DONE } else { FAILED })
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
    })
}
