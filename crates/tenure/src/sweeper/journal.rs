//! What the janitor did, told once: in the log and in the metrics.
//!
//! Every sweeper sees the same events; each tells only what its own steps did, so that with three daemons nothing is
//! told three times. What it did is in its replies, except for two things: the count of a release whose reply was lost,
//! and changes of the brake and of the grace period. Both are found in the events.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::error::Result;
use tenure_core::event::{Event, EventId, EventKind, EventQuery};
use tenure_core::id::{Group, TenureId};
use tenure_core::store::MAX_PAGE;
use tenure_core::sweep::{Eviction, GroupStatus};

use super::visit::Visit;
use crate::meters;

/// The most pages of events that one question reads.
const MAX_PAGES: usize = 100;

/// Counts and tells one eviction.
pub(super) fn tell_eviction(group: &Group, eviction: &Eviction, pass: &str) {
    let Eviction {
        tenure,
        claims,
        leases,
        connections,
    } = eviction;
    for (registry, count) in claims {
        meters::evicted(group, registry, tenure.member(), *count);
    }
    if *leases > 0 {
        meters::leases_evicted(group, tenure.member(), *leases);
    }
    let evicted: u64 = claims.values().sum();
    tracing::info!(%group, %tenure, owner = tenure.member().host(), evicted, ?claims, leases, connections, pass, "evicted");
}

/// What one pass did, by its events: one with counts for the claims of a tenure, and one for each lease.
fn evictions_of(pass: &str, events: Vec<Event>) -> Vec<Eviction> {
    let mut evictions: BTreeMap<TenureId, Eviction> = BTreeMap::new();
    for event in events {
        let (true, Some(tenure)) = (event.pass.as_deref() == Some(pass), event.tenure) else {
            continue;
        };
        let eviction = evictions
            .entry(tenure.clone())
            .or_insert_with(|| Eviction::none(tenure));
        if event.kind == EventKind::LeaseReleased {
            eviction.leases += 1;
        }
        eviction.connections += event.connections;
        for (registry, count) in event.counts {
            *eviction.claims.entry(registry).or_default() += count;
        }
    }
    evictions.into_values().collect()
}

/// Looks up what became of releases whose reply was lost, once they can no longer take effect.
pub(super) async fn read_back(visit: &mut Visit<'_>, status: &GroupStatus) -> Result<()> {
    let is_over = |pending: &super::visit::Pending| status.as_of > pending.not_after;
    let over: Vec<_> = visit
        .work
        .pending
        .iter()
        .filter(|pending| is_over(pending))
        .cloned()
        .collect();
    for pending in over {
        let kinds = vec![EventKind::Evicted, EventKind::LeaseReleased];
        let (events, whole) = read(visit, pending.since, kinds).await?;
        for eviction in evictions_of(&pending.pass, events) {
            tell_eviction(visit.group, &eviction, &pending.pass);
        }
        if !whole {
            let (group, pass) = (visit.group, &pending.pass);
            tracing::warn!(%group, pass, "the events of a pass without an answer are gone; its count may be short");
        }
        // Only now: a question that failed is asked again.
        visit.work.pending.retain(|kept| kept != &pending);
    }
    Ok(())
}

/// Tells changes of the brake and of the grace period that this visit's own steps made.
pub(super) async fn tell_changes(
    visit: &Visit<'_>,
    before: Option<&GroupStatus>,
    now: &GroupStatus,
    ended: &BTreeSet<TenureId>,
) {
    let unsettled = |status: &GroupStatus| status.unsettled.map(|grace| grace.until);
    let braked = |status: &GroupStatus| status.brake.map(|brake| brake.since);
    let before_was = before.map_or((None, None), |status| (unsettled(status), braked(status)));
    if before_was == (unsettled(now), braked(now)) {
        return;
    }
    // Without an earlier status only the newest events can be this tick's own.
    let since = before.map_or(EventId(now.last_event.0.saturating_sub(4)), |status| status.last_event);
    let kinds = vec![
        EventKind::Lapsed,
        EventKind::SweepBraked,
        EventKind::SweepUnbraked,
        EventKind::GroupUnsettled,
        EventKind::GroupSettled,
    ];
    let events = match read(visit, since, kinds).await {
        Ok((events, _)) => events,
        // The gauges show it, and telling is not worth failing a pass.
        Err(error) => return tracing::debug!(group = %visit.group, error = %error.chain(), "changes cannot be told"),
    };
    let mut before: Option<&Event> = None;
    for event in &events {
        let ours = match event.kind {
            EventKind::Lapsed => false,
            // A step writes its events in a row, and only one that ended tenures engages the brake: it is ours when it
            // follows the last tenure that our own step ended.
            EventKind::SweepBraked => before.is_some_and(|before| {
                before.id.0 + 1 == event.id.0 && before.tenure.as_ref().is_some_and(|tenure| ended.contains(tenure))
            }),
            // What a tick changes, it writes with its own time.
            _ => event.at == now.as_of,
        };
        if ours {
            tell(visit.group, event, now);
        }
        before = Some(event);
    }
}

fn tell(group: &Group, event: &Event, status: &GroupStatus) {
    let (reason, counts) = (event.reason.as_deref().unwrap_or("none"), &event.counts);
    match event.kind {
        EventKind::SweepBraked => {
            let until = status.brake.map(|brake| brake.until.to_string());
            tracing::warn!(%group, ?counts, until, "braked: too many lapsed at once; nothing of theirs is removed");
        }
        EventKind::SweepUnbraked => tracing::warn!(%group, reason, "unbraked: removal goes on"),
        EventKind::GroupUnsettled => {
            let until = status.unsettled.map(|grace| grace.until.to_string());
            tracing::warn!(%group, reason, ?counts, until, "unsettled: everyone gets one full ttl");
        }
        EventKind::GroupSettled => tracing::info!(%group, reason, "settled"),
        _ => {}
    }
}

/// All events of some kinds after one, and whether none of them was missing.
async fn read(visit: &Visit<'_>, since: EventId, kinds: Vec<EventKind>) -> Result<(Vec<Event>, bool)> {
    let (mut events, mut whole) = (Vec::new(), true);
    let mut query = EventQuery {
        after: Some(since),
        limit: MAX_PAGE,
        kinds,
    };
    for _ in 0..MAX_PAGES {
        let page = visit.in_time(visit.inner.store.events(visit.group, &query)).await?;
        whole &= !page.missed;
        events.extend(page.events);
        if Some(page.last) == query.after {
            return Ok((events, whole));
        }
        query.after = Some(page.last);
    }
    Ok((events, false))
}
