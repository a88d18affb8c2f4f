//! `tenure leases`: leases, their holders and fencing tokens, and the release of one by an operator.

mod release;

use clap::{Args, Subcommand};
use tenure::wire::LeasesPage;
use tenure_core::Store;
use tenure_core::id::{LeaseName, MemberId};
use tenure_core::lease::{Lease, LeaseHolder};

use crate::cli::{FormatArgs, GroupArgs, PageArgs, StoreArgs};
use crate::listing;
use crate::output::{brief, table, yes_no};
use release::Release;

/// Lists the leases of a group, looks one up, or releases one in place of its holder.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Leases {
    #[command(subcommand)]
    change: Option<Change>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, Clone, Subcommand)]
enum Change {
    #[command(after_help = "Examples:\n  tenure leases release report --group workers\n  \
                      tenure leases release slots --group workers --holder worker-2")]
    Release(Release),
}

#[derive(Debug, Clone, Args)]
struct List {
    /// Show only this lease (exit 1 if it is not held).
    lease: Option<LeaseName>,
    /// Show only the leases of this member.
    #[arg(long, value_name = "MEMBER", conflicts_with = "lease")]
    holder: Option<MemberId>,
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

impl Leases {
    pub(crate) fn run(&self) -> anyhow::Result<u8> {
        match &self.change {
            Some(Change::Release(release)) => release.place.store.with(async |store| release.run(store).await),
            None => self.list.place.store.with(async |store| self.list.run(store).await),
        }
    }
}

impl List {
    async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let AccessArgs { group, format, .. } = &self.place;
        let group = &group.name;
        if let Some(lease) = &self.lease {
            let found = listing::found_in_group((store, group), store.lease_of(group, lease).await?).await?;
            let missing = format_args!("lease \"{lease}\" is not held in group \"{group}\"");
            return listing::print_one::<Lease, _>(format, found, show, missing);
        }
        let holder = self.holder.as_ref();
        let read = async |request| store.leases(group, holder, &request).await;
        let page = listing::read_group((store, group), &self.page, read).await?;
        listing::print_page::<LeasesPage, _>(format, page, show)
    }
}

fn show(leases: &[Lease]) -> anyhow::Result<()> {
    let plain = |lease: &Lease| lease.places.is_one() && lease.waiting == 0;
    if !leases.iter().all(plain) {
        return show_places(leases);
    }
    let rows = leases.iter().map(|lease| {
        [
            lease.lease.to_string(),
            lease.holder.to_string(),
            yes_no(lease.alive),
            brief(lease.expires_in),
            lease.token.to_string(),
            lease.tenure.to_string(),
        ]
    });
    table(
        ["lease", "holder", "alive", "expires in", "token", "tenure"],
        rows.collect(),
    )
}

/// A row for each holder, when there are semaphores or waiters.
fn show_places(leases: &[Lease]) -> anyhow::Result<()> {
    let row = |lease: &Lease, grant: &LeaseHolder| {
        [
            lease.lease.to_string(),
            format!("{} of {}", grant.place, lease.places),
            lease.waiting.to_string(),
            grant.holder.to_string(),
            if grant.revoked {
                "released".to_owned()
            } else {
                yes_no(grant.alive)
            },
            brief(grant.expires_in),
            grant.token.to_string(),
            grant.tenure.to_string(),
        ]
    };
    let rows = leases
        .iter()
        .flat_map(|lease| lease.holders.iter().map(move |grant| row(lease, grant)));
    table(
        [
            "lease",
            "place",
            "waiting",
            "holder",
            "alive",
            "expires in",
            "token",
            "tenure",
        ],
        rows.collect(),
    )
}
