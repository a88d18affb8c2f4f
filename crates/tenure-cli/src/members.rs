//! `tenure members`: members and whether they are alive.

use clap::Args;
use tenure::wire::MembersPage;
use tenure_core::Store;
use tenure_core::id::MemberId;
use tenure_core::membership::Member;

use crate::cli::{FormatArgs, GroupArgs, PageArgs, StoreArgs};
use crate::listing;
use crate::output::{brief, pairs, table, yes_no};

/// Lists the members of a group, or looks one up.
#[derive(Debug, Clone, Args)]
pub(crate) struct Members {
    /// Show only this member (exit 1 if it has no tenure).
    member: Option<MemberId>,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Members {
    pub(crate) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let group = &self.group.name;
        if let Some(member) = &self.member {
            let found = listing::found_in_group((store, group), store.member(group, member).await?).await?;
            let missing = format_args!("member \"{member}\" has no tenure in group \"{group}\"");
            return listing::print_one::<Member, _>(&self.format, found, show, missing);
        }
        let read = async |request| store.members(group, &request).await;
        let page = listing::read_group((store, group), &self.page, read).await?;
        listing::print_page::<MembersPage, _>(&self.format, page, show)
    }
}

fn show(members: &[Member]) -> anyhow::Result<()> {
    let rows = members.iter().map(|member| {
        [
            member.member.to_string(),
            yes_no(member.alive),
            brief(member.expires_in),
            brief(member.ttl),
            member.holdings.claims.to_string(),
            member.holdings.leases.to_string(),
            member.holdings.connections.to_string(),
            member.joined_at.to_string(),
            member.tenure.to_string(),
            pairs(member.labels.as_map()),
        ]
    });
    table(
        [
            "member",
            "alive",
            "expires in",
            "ttl",
            "claims",
            "leases",
            "connections",
            "joined at",
            "tenure",
            "labels",
        ],
        rows.collect(),
    )
}
