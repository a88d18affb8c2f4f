//! `tenure settle`: the word of an operator that nothing was held.

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

/// Says that no lease was held when a store began to wait, so that it grants leases at once.
///
/// A store that is new, or was emptied, grants no lease for as long as a holder may still trust one that it has forgotten. If
/// you know that no holder does, because the store really is new or everything that used it is stopped, this ends the wait.
/// Groups that wait for another cause keep waiting, unless it is named.
#[derive(Debug, Clone, Args)]
pub(crate) struct Settle {
    /// Only this group. All when not given, and those that are made later in the same wait.
    #[arg(long, value_name = "GROUP")]
    group: Option<Group>,
    /// The cause of the waits to end: silent, clock_back, data_loss or tail_loss. Those of a new store when not given.
    #[arg(long, value_name = "CAUSE", value_parser = cause)]
    cause: Option<GapCause>,
    /// Do not ask.
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
            say(format_args!("{settled} {noun} settled: leases are granted at once"));
            for Left { group, cause } in &report.left {
                let cause = cause.as_str();
                say(format_args!(
                    "{group} keeps waiting: {cause}; if nothing was held in it, name that with --cause {cause}"
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
            .map_or_else(|| "any group".to_owned(), |group| format!("the group {group}"));
        let question = format!("Is no lease of {what} at {place} held any more? If one is, two may hold it.");
        confirm(
            &question,
            "there is no terminal to ask on; say --yes if no lease was held",
        )
    }
}
