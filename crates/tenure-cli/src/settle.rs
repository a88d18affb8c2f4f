//! `tenure settle`: an operator confirms that no lease is held.

use clap::Args;
use tenure_core::Store;
use tenure_core::id::Group;
use tenure_core::settling::GapCause;
use tenure_core::store::Call;
use tenure_core::sweep::Left;

use crate::cli::{FormatArgs, StoreArgs};
use crate::confirm::confirm;
use crate::exit::{DONE, FAILED, say};
use crate::output::json;

/// Ends the wait of a new store, so that it grants leases immediately.
///
/// A new or emptied store grants no lease for as long as a holder may still trust a lease that the store has forgotten. If you
/// know that no lease is held, because the store really is new or all its clients are stopped, this ends the wait. Groups
/// that wait for another cause keep waiting, unless you name that cause.
#[derive(Debug, Clone, Args)]
pub(crate) struct Settle {
    /// Settle only this group. Default: all groups, and those that begin during the same wait.
    #[arg(long, value_name = "GROUP")]
    group: Option<Group>,
    /// End waits of this cause: silent, clock_back, data_loss or tail_loss. Default: those of a new store.
    #[arg(long, value_name = "CAUSE", value_parser = cause)]
    cause: Option<GapCause>,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

fn cause(text: &str) -> Result<GapCause, String> {
    GapCause::parse(text).ok_or_else(|| {
        let all: Vec<_> = GapCause::ALL.iter().map(|cause| cause.as_str()).collect();
        format!("one of {}", all.join(", "))
    })
}

impl Settle {
    pub(crate) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        if !self.yes && !self.is_confirmed(&store.place())? {
            say("nothing was changed");
            return Ok(FAILED);
        }
        let report = store.settle(self.group.as_ref(), self.cause, Call::default()).await?;
        if self.format.json {
            json(&report)?;
        } else {
            let settled = report.settled;
            let noun = if settled == 1 { "group" } else { "groups" };
            match (settled, &self.group) {
                (0, None) if report.left.is_empty() => say(
                    "no group waits; if the store itself is new, groups that begin during its wait grant leases immediately",
                ),
                (0, Some(group)) if report.left.is_empty() => say(format_args!("group \"{group}\" does not wait")),
                _ => say(format_args!("{settled} {noun} settled: leases are granted immediately")),
            }
            for Left { group, cause } in &report.left {
                let cause = cause.as_str();
                say(format_args!(
                    "{group} keeps waiting: {cause}; if no lease was held in it, settle it with --cause {cause}"
                ));
            }
        }
        Ok(if report.left.is_empty() { DONE } else { FAILED })
    }

    /// Asks on a terminal.
    fn is_confirmed(&self, place: &str) -> anyhow::Result<bool> {
        let what = self
            .group
            .as_ref()
            .map_or_else(|| "all groups".to_owned(), |group| format!("group \"{group}\""));
        let question = format!("Settle {what} at {place}? If a lease of it is still held, it can have two holders.");
        confirm(
            &question,
            "no terminal to ask on; confirm with --yes that no lease is held",
        )
    }
}
