//! Compares the record with the store's data, read directly.

use std::collections::{BTreeMap, BTreeSet};

use tenure::{Group, PageRequest, Store, TenureId};

use super::{Checked, Shadow, must};
use crate::server::poll_once;

/// Checks that the store and the record have the same contents.
///
/// # Errors
/// If they differ.
pub fn compare(shadow: &Shadow, store: &dyn Store, group: &Group) -> Checked {
    let page = PageRequest {
        after: None,
        limit: 1_000,
    };
    let members: Vec<TenureId> = poll_once(store.members(group, &page))
        .map(|page| page.items.into_iter().map(|member| member.tenure).collect())
        .unwrap_or_default();
    let known: Vec<TenureId> = shadow.current.values().map(|current| current.tenure.clone()).collect();
    must(
        members == known,
        "the members are those of the join and end events",
        || format!("{members:?}, not {known:?}"),
    )?;
    let registries: BTreeSet<_> = shadow.claims.keys().map(|(registry, _)| registry.clone()).collect();
    let mut claims = BTreeMap::new();
    for registry in registries {
        let page = poll_once(store.claims(group, &registry, None, &page));
        let items = page.map(|page| page.items).unwrap_or_default().into_iter();
        claims.extend(items.map(|claim| ((registry.clone(), claim.key), claim.tenure)));
    }
    must(
        claims == shadow.claims,
        "every missing claim was released once, with one event",
        || format!("{claims:?}, not {:?}", shadow.claims),
    )?;
    let sessions: BTreeMap<_, _> = poll_once(store.sessions(group, None, &page))
        .map(|page| {
            page.items
                .into_iter()
                .map(|seen| (seen.session, (seen.epoch, seen.alias)))
                .collect()
        })
        .unwrap_or_default();
    let recorded = shadow.sessions.iter();
    let recorded = recorded.map(|(session, record)| (session.clone(), (record.epoch, record.alias.clone())));
    let recorded: BTreeMap<_, _> = recorded.collect();
    must(
        sessions == recorded,
        "every missing session was reaped or deleted once, with one event",
        || format!("{sessions:?}, not {recorded:?}"),
    )?;
    let leases: BTreeMap<_, _> = poll_once(store.leases(group, None, &page))
        .map(|page| {
            page.items
                .into_iter()
                .flat_map(|lease| {
                    let name = lease.lease;
                    let holders = lease.holders.into_iter();
                    holders.map(move |one| ((name.clone(), one.place), (one.tenure, one.token)))
                })
                .collect()
        })
        .unwrap_or_default();
    must(
        leases == shadow.leases,
        "every missing lease was released once, with one event",
        || format!("{leases:?}, not {:?}", shadow.leases),
    )
}
