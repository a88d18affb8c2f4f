//! `tenure claims`: who owns what, and whether the owner is alive now.

use clap::Args;
use tenure::wire::ClaimsPage;
use tenure_core::Store;
use tenure_core::id::{Key, MemberId, RegistryName};
use tenure_core::registry::Claim;

use crate::cli::{FormatArgs, GroupArgs, PageArgs, StoreArgs};
use crate::listing;
use crate::output::{table, yes_no};

/// Lists the claims of a registry, or looks one key up.
#[derive(Debug, Clone, Args)]
pub(crate) struct Claims {
    /// Show only this key (exit 1 if it has no owner).
    key: Option<Key>,
    /// The registry.
    #[arg(long, value_name = "REGISTRY", env = "TENURE_REGISTRY")]
    registry: RegistryName,
    /// Show only the claims of this member.
    #[arg(long, value_name = "MEMBER", conflicts_with = "key")]
    owner: Option<MemberId>,
    #[command(flatten)]
    group: GroupArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Claims {
    pub(crate) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let (group, registry) = (&self.group.name, &self.registry);
        if let Some(key) = &self.key {
            let found = store.claim_of(group, registry, key).await?;
            let found = listing::found_in_group((store, group), found).await?;
            let missing = format_args!("key \"{key}\" has no owner in registry \"{registry}\" of group \"{group}\"");
            return listing::print_one::<Claim, _>(&self.format, found, show, missing);
        }
        let owner = self.owner.as_ref();
        let read = async |request| store.claims(group, registry, owner, &request).await;
        let page = listing::read_group((store, group), &self.page, read).await?;
        listing::print_page::<ClaimsPage, _>(&self.format, page, show)
    }
}

fn show(claims: &[Claim]) -> anyhow::Result<()> {
    let rows = claims.iter().map(|claim| {
        [
            claim.key.to_string(),
            claim.owner.to_string(),
            yes_no(claim.alive),
            claim.tenure.to_string(),
        ]
    });
    table(["key", "owner", "alive", "tenure"], rows.collect())
}
