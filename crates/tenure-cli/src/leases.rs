//! `tenure leases`: leases, their holders and fencing tokens.
//!
//! It only reads. A lease is released by its holder. If the holder hangs, expel the member: its lease is then free after the
//! last deadline of its tenure, since its process may still run until then.

use clap::Args;
use tenure::wire::LeasesPage;
use tenure_core::Store;
use tenure_core::id::{LeaseName, MemberId};
use tenure_core::lease::Lease;

use crate::cli::{FormatArgs, GroupArgs, PageArgs, StoreArgs};
use crate::listing;
use crate::output::{brief, table, yes_no};

/// Lists the leases of a group, or looks one up.
#[derive(Debug, Clone, Args)]
pub(crate) struct Leases {
    /// Show only this lease (exit 1 if it is not held).
    lease: Option<LeaseName>,
    /// Show only the leases of this member.
    #[arg(long, value_name = "MEMBER", conflicts_with = "lease")]
    holder: Option<MemberId>,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Leases {
    pub(crate) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let group = &self.group.name;
        if let Some(lease) = &self.lease {
            let found = listing::found_in_group((store, group), store.lease_of(group, lease).await?).await?;
            let missing = format_args!("lease \"{lease}\" is not held in group \"{group}\"");
            return listing::print_one::<Lease, _>(&self.format, found, show, missing);
        }
        let holder = self.holder.as_ref();
        let read = async |request| store.leases(group, holder, &request).await;
        let page = listing::read_group((store, group), &self.page, read).await?;
        listing::print_page::<LeasesPage, _>(&self.format, page, show)
    }
}

fn show(leases: &[Lease]) -> anyhow::Result<()> {
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
