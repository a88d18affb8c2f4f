//! `tenure targets`: the targets of a fleet, their preferred nodes and holders.

mod change;

use clap::Args;
use tenure::nodes::{self, PlacedTarget};
use tenure::wire::{self, TargetsPage};
use tenure_core::Store;
use tenure_core::id::{Group, LeaseName};
use tenure_core::store::Page;

use crate::cli::{FormatArgs, GroupArgs, PageArgs, StoreArgs};
use crate::listing;
use crate::output::{or_dash, table, yes_no};
use change::Change;

/// Lists the targets of a group, looks one up, or changes them.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Targets {
    #[command(subcommand)]
    change: Option<Change>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, Clone, Args)]
struct List {
    /// Show only this target (exit 1 if it does not exist).
    target: Option<LeaseName>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    place: AccessArgs,
}

/// Group, store and output format.
#[derive(Debug, Clone, Args)]
struct AccessArgs {
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Targets {
    pub(crate) fn run(&self) -> anyhow::Result<u8> {
        match &self.change {
            Some(change) => change.run(),
            None => self.list.place.store.with(async |store| self.list.run(store).await),
        }
    }
}

impl List {
    async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let group = &self.place.group.name;
        if let Some(target) = &self.target {
            let found = listing::found_in_group((store, group), store.target(group, target).await?).await?;
            let found = Vec::from_iter(found);
            let placed = nodes::placed(store, group, found).await?.pop();
            return listing::print_one::<wire::Target, _>(&self.place.format, placed, show, missing(target, group));
        }
        let read = async |request| store.targets(group, &request).await;
        let listed = listing::read_group((store, group), &self.page, read).await?;
        let page = Page {
            items: nodes::placed(store, group, listed.items).await?,
            next: listed.next,
        };
        listing::print_page::<TargetsPage, _>(&self.place.format, page, show)
    }
}

fn missing(target: &LeaseName, group: &Group) -> String {
    format!("target \"{target}\" not found in group \"{group}\"")
}

fn show(targets: &[PlacedTarget]) -> anyhow::Result<()> {
    let rows = targets.iter().map(|placed| {
        let lease = placed.lease.as_ref();
        [
            placed.target.target.to_string(),
            yes_no(placed.target.spec.paused),
            placed.target.spec.weight.to_string(),
            or_dash(placed.preferred.as_ref()),
            or_dash(lease.map(|lease| &lease.holder)),
            or_dash(lease.map(|lease| yes_no(lease.alive))),
            or_dash(lease.map(|lease| lease.token)),
        ]
    });
    table(
        ["target", "paused", "weight", "preferred", "holder", "alive", "token"],
        rows.collect(),
    )
}
