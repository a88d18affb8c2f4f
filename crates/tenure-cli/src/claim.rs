//! `tenure claim`: makes a living member the owner of keys.

use clap::Args;
use serde::Serialize;
use tenure::wire::{ClaimResult, ClaimWord};
use tenure_core::Store;
use tenure_core::id::{Key, RegistryName, TenureId};
use tenure_core::registry::ClaimMode;
use tenure_core::store::Call;

use crate::acting::ActingArgs;
use crate::cli::{FormatArgs, GroupArgs, StoreArgs};
use crate::exit::{DONE, FAILED, say};
use crate::output::{json, table};

/// Claims keys of a registry for a living member.
///
/// A claim lasts until it is released, moved or its owner's tenure ends. It takes a key from another owner, as a device that
/// connects elsewhere is elsewhere; with --if-absent a key of a living owner stays there, and the exit code is 1. All keys
/// are claimed under the one tenure that is current when the command starts.
#[derive(Debug, Clone, Args)]
pub(crate) struct Claim {
    /// The registry.
    registry: RegistryName,
    /// The keys.
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<Key>,
    #[command(flatten)]
    acting: ActingArgs,
    #[command(flatten)]
    group: GroupArgs,
    /// Leave keys that another living member owns.
    #[arg(long)]
    if_absent: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Serialize)]
struct Claimed {
    tenure: TenureId,
    results: Vec<ClaimResult>,
}

impl Claim {
    pub(crate) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let group = &self.group.name;
        let tenure = self.acting.tenure(store, group).await?;
        let mode = if self.if_absent {
            ClaimMode::IfAbsent
        } else {
            ClaimMode::Take
        };
        let claimed = store
            .claim(group, &self.registry, &tenure, &self.keys, mode, Call::default())
            .await?;
        let results = self.keys.iter().cloned().zip(claimed.outcomes);
        let results: Vec<_> = results.map(|(key, outcome)| ClaimResult::new(key, outcome)).collect();
        let held = results.iter().filter(|one| one.outcome == ClaimWord::Held).count();
        let claimed = Claimed { tenure, results };
        if self.format.json {
            json(&claimed)?;
        } else {
            show(&claimed)?;
        }
        if held > 0 {
            say(format_args!(
                "not claimed: {held} of {} keys have a living owner",
                self.keys.len()
            ));
        }
        Ok(if held == 0 { DONE } else { FAILED })
    }
}

fn show(claimed: &Claimed) -> anyhow::Result<()> {
    let rows = claimed.results.iter().map(|one| {
        let owner = one.tenure.as_ref().unwrap_or(&claimed.tenure);
        let outcome = match (one.outcome, &one.from) {
            (ClaimWord::New, _) => "new".to_owned(),
            (ClaimWord::Kept, _) => "kept".to_owned(),
            (ClaimWord::Moved, Some(from)) => format!("moved from {from}"),
            (ClaimWord::Moved, None) => "moved".to_owned(),
            (ClaimWord::Held, _) => "held".to_owned(),
        };
        [
            one.key.to_string(),
            outcome,
            owner.member().to_string(),
            owner.to_string(),
        ]
    });
    table(["key", "outcome", "owner", "tenure"], rows.collect())
}
