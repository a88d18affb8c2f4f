//! Logs and counts the effects of the sweeps, each exactly once.
//!
//! All sweepers see the same events. Each reports only the effects of its own steps, so that several daemons do not
//! report one effect several times. A reply contains the effects of its step. Events are read for the rest:
//!
//! - The counts of a release or reap whose reply was lost. Each holding is released by one sweeper, and a repeated step
//!   does not find what the lost one removed, so only the events with the name of its pass have the counts. They are
//!   read after the step's not-after, when it has taken effect or never will.
//! - The end of a brake, and the start and end of a grace period. A status shows the change but not whose tick caused
//!   it; the event has the time of that tick.

use std::collections::BTreeMap;

use tenure_core::brake::Brake;
use tenure_core::error::Result;
use tenure_core::event::{Event, EventId, EventKind, EventQuery};
use tenure_core::id::{Group, SessionId, TenureId};
use tenure_core::session::Epoch;
use tenure_core::store::MAX_PAGE;
use tenure_core::sweep::{Eviction, GroupStatus};
use tenure_core::time::StoreTime;

use super::context::{PendingSteps, VisitContext};
use super::visit::Visit;
use crate::meters;

/// The most event pages per read.
const MAX_PAGES: usize = 100;

/// Counts and logs one eviction.
pub(super) fn log_eviction(group: &Group, eviction: &Eviction, pass: &str) {
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
    crate::burst_line!(has_any, %group, %tenure, owner = tenure.member().host(), evicted, ?claims, leases, connections, pass, "evicted");
}

/// The evictions of one pass, from its events: one event with counts for the claims of a tenure, and one per lease.
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

/// Reads the counts of unanswered releases that can no longer take effect.
pub(super) async fn read_back(visit: &mut Visit<'_>, status: &GroupStatus) -> Result<()> {
    for pending in visit.work.pending_steps.over(status.as_of) {
        let kinds = vec![EventKind::Evicted, EventKind::LeaseReleased];
        let (events, whole) = read(&visit.context, pending.since, kinds).await?;
        for eviction in evictions_of(&pending.pass, events) {
            log_eviction(visit.context.group, &eviction, &pending.pass);
        }
        log_if_incomplete(visit.context.group, &pending.pass, whole);
        // Only after a successful read: a failed one is retried.
        visit.work.pending_steps.settle(&pending);
    }
    Ok(())
}

/// Counts and logs one deleted orphan.
pub(super) fn log_reaped(group: &Group, session: &SessionId, epoch: Epoch, pass: &str) {
    meters::orphans_deleted(group, 1);
    tracing::info!(%group, %session, epoch = epoch.get(), pass, "reaped");
}

/// Reads the counts of unanswered reaps that can no longer take effect.
pub(super) async fn read_back_reaps(
    context: &VisitContext<'_>,
    pending_steps: &mut PendingSteps,
    status: &GroupStatus,
) -> Result<()> {
    for pending in pending_steps.over(status.as_of) {
        let (events, whole) = read(context, pending.since, vec![EventKind::SessionReaped]).await?;
        let ours = events
            .iter()
            .filter(|event| event.pass.as_deref() == Some(&pending.pass));
        for (session, epoch) in ours.filter_map(|event| event.session.as_ref().zip(event.epoch)) {
            log_reaped(context.group, session, epoch, &pending.pass);
        }
        log_if_incomplete(context.group, &pending.pass, whole);
        pending_steps.settle(&pending);
    }
    Ok(())
}

fn log_if_incomplete(group: &Group, pass: &str, whole: bool) {
    if !whole {
        tracing::warn!(%group, pass, "the events of an unanswered pass were trimmed; its counts may be low");
    }
}

/// Logs changes of the brake and the grace period made by this visit's own steps. `ended_at`: the times of steps that
/// ended tenures since the previous status.
pub(super) async fn log_changes(
    context: &VisitContext<'_>,
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
        ) = (context.group, brake);
        tracing::warn!(%group, lapsed, present, %until, "braked: too many lapsed at once; their holdings are kept");
    }
    let unbraked = braked_before.is_some() && braked_before != braked(now);
    if unbraked || grace_before != grace(now) {
        // Without a previous status only the events of this tick matter; their numbers are not below its time.
        let tick = EventId(now.as_of.micros().saturating_sub(1)).min(now.last_event);
        log_ticked(context, now, before.map_or(tick, |status| status.last_event)).await;
    }
}

/// Logs the changes of our tick, from the events after `since`.
async fn log_ticked(context: &VisitContext<'_>, now: &GroupStatus, since: EventId) {
    let kinds = vec![
        EventKind::SweepUnbraked,
        EventKind::GroupUnsettled,
        EventKind::GroupSettled,
    ];
    match read(context, since, kinds).await {
        Ok((events, _)) => {
            // A tick writes its events with its own time.
            let ours = events.iter().filter(|event| event.at == now.as_of);
            ours.for_each(|event| log(context.group, event, now));
        }
        // The gauges show the change; a missing log line does not fail a pass.
        Err(error) => {
            tracing::debug!(group = %context.group, error = %error.chain(), "the events of a change could not be read");
        }
    }
}

fn log(group: &Group, event: &Event, status: &GroupStatus) {
    let (reason, counts) = (event.reason.as_deref().unwrap_or("none"), &event.counts);
    match event.kind {
        EventKind::SweepUnbraked => tracing::warn!(%group, reason, "unbraked: removal resumes"),
        EventKind::GroupUnsettled => {
            let until = status.unsettled.map(|grace| grace.until.to_string());
            tracing::warn!(%group, reason, ?counts, until, "unsettled: every ttl restarts");
        }
        EventKind::GroupSettled => tracing::info!(%group, reason, "settled"),
        _ => {}
    }
}

/// All events of the given types after `since`, and whether none was missed.
async fn read(context: &VisitContext<'_>, since: EventId, kinds: Vec<EventKind>) -> Result<(Vec<Event>, bool)> {
    let (mut events, mut whole) = (Vec::new(), true);
    let mut query = EventQuery {
        after: Some(since),
        limit: MAX_PAGE,
        kinds,
        ..EventQuery::default()
    };
    for _ in 0..MAX_PAGES {
        let page = context
            .in_time(context.inner.store.events(context.group, &query))
            .await?;
        whole &= !page.missed;
        events.extend(page.events);
        if Some(page.last) == query.after {
            return Ok((events, whole));
        }
        query.after = Some(page.last);
    }
    Ok((events, false))
}
