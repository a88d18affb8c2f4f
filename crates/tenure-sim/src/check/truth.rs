//! The account against the store itself, read as nobody in the world can.

use std::collections::{BTreeMap, BTreeSet};

use tenure::{Group, PageRequest, Store, TenureId};

use super::{Checked, Shadow, must};
use crate::server::at_once;

/// Everything that the store has is in the account, and the other way round.
///
/// # Errors
/// When it is not.
pub fn compare(shadow: &Shadow, store: &dyn Store, group: &Group) -> Checked {
    let page = PageRequest {
        after: None,
        limit: 1_000,
    };
    let members: Vec<TenureId> = at_once(store.members(group, &page))
        .map(|page| page.items.into_iter().map(|member| member.tenure).collect())
        .unwrap_or_default();
    let known: Vec<TenureId> = shadow.current.values().map(|current| current.tenure.clone()).collect();
    must(
        members == known,
        "the members are those whose joins and ends were told",
        || format!("{members:?}, not {known:?}"),
    )?;
    let registries: BTreeSet<_> = shadow.claims.keys().map(|(registry, _)| registry.clone()).collect();
    let mut claims = BTreeMap::new();
    for registry in registries {
        let page = at_once(store.claims(group, &registry, None, &page));
        let items = page.map(|page| page.items).unwrap_or_default().into_iter();
        claims.extend(items.map(|claim| ((registry.clone(), claim.key), claim.tenure)));
    }
    must(
        claims == shadow.claims,
        "every entry that is gone was released and told once",
        || format!("{claims:?}, not {:?}", shadow.claims),
    )?;
    let leases: BTreeMap<_, _> = at_once(store.leases(group, None, &page))
        .map(|page| {
            page.items
                .into_iter()
                .map(|lease| (lease.lease, (lease.tenure, lease.token)))
                .collect()
        })
        .unwrap_or_default();
    must(
        leases == shadow.leases,
        "every lease that is gone was released and told once",
        || format!("{leases:?}, not {:?}", shadow.leases),
    )
}
