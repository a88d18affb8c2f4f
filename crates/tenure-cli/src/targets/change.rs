//! Adding, pausing and removing targets.

use clap::{Args, Subcommand};
use serde::Serialize;
use tenure_core::Store;
use tenure_core::id::{Group, LeaseName};
use tenure_core::store::Call;
use tenure_core::target::{MAX_WEIGHT, Target, TargetSpec};

use super::{AccessArgs, missing};
use crate::exit::{DONE, FAILED, say};
use crate::output::{json, or_dash, table, yes_no};

#[derive(Debug, Clone, Subcommand)]
pub(super) enum Change {
    /// Adds targets, or replaces their settings.
    #[command(
        visible_alias = "set",
        after_help = "Examples:\n  tenure targets add endpoint-1 endpoint-2 --group pollers"
    )]
    Add {
        /// Add them paused: no node works on them.
        #[arg(long)]
        paused: bool,
        /// Their share of a node's load, for bounded load.
        #[arg(long, value_name = "WEIGHT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WEIGHT)))]
        weight: u32,
        #[command(flatten)]
        which: Which,
    },
    /// Pauses targets: the holders release their leases.
    #[command(after_help = "Examples:\n  tenure targets pause endpoint-1 --group pollers")]
    Pause(Which),
    /// Resumes paused targets.
    #[command(after_help = "Examples:\n  tenure targets resume endpoint-1 --group pollers")]
    Resume(Which),
    /// Removes targets: the holders release their leases.
    #[command(
        visible_alias = "rm",
        after_help = "Examples:\n  tenure targets remove endpoint-1 --group pollers"
    )]
    Remove(Which),
}

#[derive(Debug, Clone, Args)]
pub(super) struct Which {
    /// The targets.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<LeaseName>,
    #[command(flatten)]
    place: AccessArgs,
}

/// A changed target.
#[derive(Debug, Serialize)]
struct Changed {
    target: LeaseName,
    outcome: &'static str,
    #[serde(flatten)]
    spec: Option<TargetSpec>,
}

impl Change {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        let which = self.which();
        which.place.store.with(async |store| {
            let mut changed = Vec::new();
            let done = self.change_all(store, which, &mut changed).await;
            // Changes before a failure stay.
            tell(&which.place, &changed)?;
            done
        })
    }

    fn which(&self) -> &Which {
        match self {
            Self::Add { which, .. } | Self::Pause(which) | Self::Resume(which) | Self::Remove(which) => which,
        }
    }

    async fn change_all(&self, store: &dyn Store, which: &Which, changed: &mut Vec<Changed>) -> anyhow::Result<u8> {
        let group = &which.place.group.name;
        let mut code = DONE;
        for target in &which.targets {
            match self.change(store, group, target).await? {
                Some(one) => changed.push(one),
                None => {
                    say(missing(target, group));
                    code = FAILED;
                }
            }
        }
        Ok(code)
    }

    /// `None` if the target does not exist.
    async fn change(&self, store: &dyn Store, group: &Group, target: &LeaseName) -> anyhow::Result<Option<Changed>> {
        let done = |outcome, spec| {
            Some(Changed {
                target: target.clone(),
                outcome,
                spec,
            })
        };
        let paused = match self {
            Self::Add { paused, weight, .. } => {
                let spec = TargetSpec {
                    paused: *paused,
                    weight: *weight,
                };
                let new = store.put_target(group, target, spec, Call::default()).await?;
                return Ok(done(if new { "added" } else { "set" }, Some(spec)));
            }
            Self::Remove(_) => {
                let removed = store.remove_target(group, target, Call::default()).await?;
                return Ok(done("removed", None).filter(|_| removed));
            }
            Self::Pause(_) => true,
            Self::Resume(_) => false,
        };
        let Some(Target { spec, .. }) = store.target(group, target).await? else {
            return Ok(None);
        };
        let spec = TargetSpec { paused, ..spec };
        store.put_target(group, target, spec, Call::default()).await?;
        Ok(done(if paused { "paused" } else { "resumed" }, Some(spec)))
    }
}

fn tell(place: &AccessArgs, changed: &[Changed]) -> anyhow::Result<()> {
    if place.format.json {
        return json(&serde_json::json!({ "targets": changed }));
    }
    if changed.is_empty() {
        return Ok(());
    }
    let rows = changed.iter().map(|one| {
        [
            one.target.to_string(),
            one.outcome.to_owned(),
            or_dash(one.spec.map(|spec| yes_no(spec.paused))),
            or_dash(one.spec.map(|spec| spec.weight)),
        ]
    });
    table(["target", "outcome", "paused", "weight"], rows.collect())
}
