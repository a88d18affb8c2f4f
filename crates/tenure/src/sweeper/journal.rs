//! What the janitor did, told once: in the log and in the metrics.
//!
//! Every sweeper sees the same events; each tells only what its own steps did, so that with three daemons nothing is
//! told three times. What it did is in its replies, except for two things: the count of a release whose reply was lost,
//! and changes of the brake and of the grace period. Both are found in the events.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::error::Result;
use tenure_core::event::{Event, EventId, EventKind, EventQuery};
use tenure_core::id::{Group, SessionId, TenureId};
use tenure_core::session::Epoch;
use tenure_core::store::MAX_PAGE;
use tenure_core::sweep::{Eviction, GroupStatus};

use super::reach::{Reach, Unanswered};
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
    let has_any = evicted + leases + connections > 0;
    crate::crowd_line!(has_any, %group, %tenure, owner = tenure.member().host(), evicted, ?claims, leases, connections, pass, "evicted");
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
    for pending in visit.work.unanswered.over(status.as_of) {
        let kinds = vec![EventKind::Evicted, EventKind::LeaseReleased];
        let (events, whole) = read(&visit.reach, pending.since, kinds).await?;
        for eviction in evictions_of(&pending.pass, events) {
            tell_eviction(visit.reach.group, &eviction, &pending.pass);
        }
        tell_whole(visit.reach.group, &pending.pass, whole);
        // Only now: a question that failed is asked again.
        visit.work.unanswered.settle(&pending);
    }
    Ok(())
}

/// Counts and tells one orphan that was deleted.
pub(super) fn tell_reaped(group: &Group, session: &SessionId, epoch: Epoch, pass: &str) {
    meters::orphans_deleted(group, 1);
    tracing::info!(%group, %session, epoch = epoch.get(), pass, "reaped");
}

/// Looks up what became of reaps whose reply was lost, once they can no longer take effect.
pub(super) async fn read_back_reaps(
    reach: &Reach<'_>,
    unanswered: &mut Unanswered,
    status: &GroupStatus,
) -> Result<()> {
    for pending in unanswered.over(status.as_of) {
        let (events, whole) = read(reach, pending.since, vec![EventKind::SessionReaped]).await?;
        let ours = events
            .iter()
            .filter(|event| event.pass.as_deref() == Some(&pending.pass));
        for (session, epoch) in ours.filter_map(|event| event.session.as_ref().zip(event.epoch)) {
            tell_reaped(reach.group, session, epoch, &pending.pass);
        }
        tell_whole(reach.group, &pending.pass, whole);
        unanswered.settle(&pending);
    }
    Ok(())
}

fn tell_whole(group: &Group, pass: &str, whole: bool) {
    if !whole {
        tracing::warn!(%group, pass, "the events of a pass without an answer are gone; its count may be short");
    }
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
    // Without an earlier status only the events of this tick are of interest; their numbers are not below its time.
    let tick = EventId(now.as_of.micros().saturating_sub(1)).min(now.last_event);
    let since = before.map_or(tick, |status| status.last_event);
    let kinds = vec![
        EventKind::Lapsed,
        EventKind::SweepBraked,
        EventKind::SweepUnbraked,
        EventKind::GroupUnsettled,
        EventKind::GroupSettled,
    ];
    let events = match read(&visit.reach, since, kinds).await {
        Ok((events, _)) => events,
        // The gauges show it, and telling is not worth failing a pass.
        Err(error) => {
            return tracing::debug!(group = %visit.reach.group, error = %error.chain(), "changes cannot be told");
        }
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
            tell(visit.reach.group, event, now);
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
async fn read(reach: &Reach<'_>, since: EventId, kinds: Vec<EventKind>) -> Result<(Vec<Event>, bool)> {
    let (mut events, mut whole) = (Vec::new(), true);
    let mut query = EventQuery {
        after: Some(since),
        limit: MAX_PAGE,
        kinds,
        ..EventQuery::default()
    };
    for _ in 0..MAX_PAGES {
        let page = reach.in_time(reach.inner.store.events(reach.group, &query)).await?;
        whole &= !page.missed;
        events.extend(page.events);
        if Some(page.last) == query.after {
            return Ok((events, whole));
        }
        query.after = Some(page.last);
    }
    Ok((events, false))
}
