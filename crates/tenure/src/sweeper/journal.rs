//! What the janitor did, told once: in the log and in the metrics.
//!
//! Every sweeper sees the same events; each tells only what its own steps did, so that with three daemons nothing is
//! told three times. What a step did is in its reply. The events are read for the rest:
//!
//! - The counts of a release or a reap whose reply was lost. Each holding is released by one sweeper and counted once, also
//!   then, and a step that is repeated does not find what the lost one removed. Only the event with its pass tells. It is
//!   read after the not-after of the step, when the step has taken effect or never will.
//! - The end of a brake, and the begin and end of a grace period. A status shows that it happened, and not in whose tick;
//!   the event has the time of the tick.

use std::collections::BTreeMap;

use tenure_core::brake::Brake;
use tenure_core::error::Result;
use tenure_core::event::{Event, EventId, EventKind, EventQuery};
use tenure_core::id::{Group, SessionId, TenureId};
use tenure_core::session::Epoch;
use tenure_core::store::MAX_PAGE;
use tenure_core::sweep::{Eviction, GroupStatus};
use tenure_core::time::StoreTime;

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

/// Tells changes of the brake and of the grace period that this visit's own steps made. `ended_at`: the times of its steps
/// that ended tenures since the status before.
pub(super) async fn tell_changes(
    reach: &Reach<'_>,
    before: Option<&GroupStatus>,
    now: &GroupStatus,
    ended_at: &[StoreTime],
) {
    let grace = |status: &GroupStatus| status.unsettled.map(|grace| grace.until);
    let braked = |status: &GroupStatus| status.brake.map(|brake| brake.since);
    let (grace_before, braked_before) = (before.and_then(grace), before.and_then(braked));
    if let Some(brake) = now.brake
        && ended_at.contains(&brake.since)
    {
        let (
            group,
            Brake {
                until, lapsed, present, ..
            },
        ) = (reach.group, brake);
        tracing::warn!(%group, lapsed, present, %until, "braked: too many lapsed at once; nothing of theirs is removed");
    }
    let unbraked = braked_before.is_some() && braked_before != braked(now);
    if unbraked || grace_before != grace(now) {
        // Without an earlier status only the events of this tick are of interest; their numbers are not below its time.
        let tick = EventId(now.as_of.micros().saturating_sub(1)).min(now.last_event);
        tell_ticked(reach, now, before.map_or(tick, |status| status.last_event)).await;
    }
}

/// Tells what our tick changed, by its events after one of them.
async fn tell_ticked(reach: &Reach<'_>, now: &GroupStatus, since: EventId) {
    let kinds = vec![
        EventKind::SweepUnbraked,
        EventKind::GroupUnsettled,
        EventKind::GroupSettled,
    ];
    match read(reach, since, kinds).await {
        Ok((events, _)) => {
            // What a tick changes, it writes with its own time.
            let ours = events.iter().filter(|event| event.at == now.as_of);
            ours.for_each(|event| tell(reach.group, event, now));
        }
        // The gauges show it, and telling is not worth failing a pass.
        Err(error) => {
            tracing::debug!(group = %reach.group, error = %error.chain(), "changes cannot be told");
        }
    }
}

fn tell(group: &Group, event: &Event, status: &GroupStatus) {
    let (reason, counts) = (event.reason.as_deref().unwrap_or("none"), &event.counts);
    match event.kind {
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
