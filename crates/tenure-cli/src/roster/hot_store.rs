//! The hot store of the ledger.

use clap::Args;
use tenure::wire::roster::HotStoreState;

use super::AccessArgs;
use crate::confirm::confirm;
use crate::exit::{DONE, FAILED, say};
use crate::output::{json, or_dash, table, yes_no};

#[derive(Debug, Clone, Args)]
pub(super) struct HotStore {
    /// Make the hot store of the daemon (or of --store) that of the ledger.
    #[arg(long)]
    replace: bool,
    /// Do not ask for confirmation.
    #[arg(long, requires = "replace")]
    yes: bool,
    #[command(flatten)]
    way: AccessArgs,
}

impl HotStore {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        self.way.with(async |reach| {
            let mut state = reach.hot_store().await?;
            if self.replace {
                if !self.yes && !is_confirmed(&state)? {
                    say("nothing was changed");
                    return Ok(FAILED);
                }
                state = reach.replace_hot_store().await?;
            }
            self.tell(&state)?;
            Ok(if state.admitted { DONE } else { FAILED })
        })
    }

    fn tell(&self, state: &HotStoreState) -> anyhow::Result<()> {
        if self.way.format.json {
            return json(state);
        }
        let recorded = state.recorded.as_ref();
        let row = [
            state.place.clone(),
            state.id.clone(),
            yes_no(state.admitted),
            or_dash(recorded.map(|recorded| recorded.place.as_str())),
            or_dash(recorded.map(|recorded| recorded.id.as_str())),
            or_dash(recorded.map(|recorded| recorded.confirmed_ms_ago / 1_000)),
        ];
        let header = [
            "hot store",
            "data",
            "in use",
            "of the ledger",
            "its data",
            "confirmed s ago",
        ];
        table(header, vec![row])
    }
}

fn is_confirmed(state: &HotStoreState) -> anyhow::Result<bool> {
    let now = state.recorded.as_ref().map_or("none", |recorded| &recorded.place);
    let question = format!(
        "Replace the hot store of the ledger ({now}) by {}? Daemons with the previous one serve rosters from the ledger until \
         they use the new one.",
        state.place
    );
    confirm(&question, "--replace: there is no terminal to ask on; add --yes")
}
