//! A fleet that polls endpoints, each by exactly one node.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{Event, EventKind, LeaseName, PageRequest, Token};
use tenure_core::id::{Group, MemberId};

use crate::demo::fleet::Fleet;
use crate::demo::part::{POLLERS, Role};
use crate::demo::story::Story;
use crate::demo::watch::Watch;
use crate::output::brief;

pub(super) async fn dies(fleet: &mut Fleet, story: &mut Story) -> anyhow::Result<()> {
    let held = leases_of(fleet, "node-2").await?;
    let victim = fleet.take("node-2")?;
    story.act(
        "A node of the polling fleet dies",
        &format!("SIGKILL to node-2 (process {}), which polls {} endpoints", victim.pid(), held.len()),
        "the others take its leases over when its time is up, 3s after its last heartbeat, under higher tokens; no endpoint is polled by two",
    )?;
    let mut watch = Watch::begin(&fleet.tenure, POLLERS).await?;
    fleet.endpoints.reset();
    victim.kill().await?;
    match watch.first(EventKind::Lapsed, "node-2").await {
        Some(lapsed) => story.saw(true, "node-2 has lapsed", Some(watch.took(&lapsed)))?,
        None => story.missed("the end of node-2")?,
    }
    tell_of_takeover(&mut watch, story, "node-2", &held).await?;
    tell_of_polls(fleet, story).await?;
    fleet.start(Role::Poller, "node-2").await?;
    Ok(())
}

pub(super) async fn drains(fleet: &mut Fleet, story: &mut Story) -> anyhow::Result<()> {
    let held = leases_of(fleet, "node-1").await?;
    let mut leaving = fleet.take("node-1")?;
    story.act(
        "A node of the polling fleet is shut down in peace",
        &format!(
            "SIGTERM to node-1 (process {}), which polls {} endpoints",
            leaving.pid(),
            held.len()
        ),
        "it ends its work, hands each lease to the next node and leaves; no endpoint waits for longer than a second",
    )?;
    let mut watch = Watch::begin(&fleet.tenure, POLLERS).await?;
    fleet.endpoints.reset();
    leaving.signal(Signal::TERM);
    tell_of_takeover(&mut watch, story, "node-1", &held).await?;
    match watch.first(EventKind::Left, "node-1").await {
        Some(left) => story.saw(true, "node-1 has left", Some(watch.took(&left)))?,
        None => story.missed("the farewell of node-1")?,
    }
    let code = leaving.ended(&*fleet.clock).await;
    story.saw(code == Some(0), "its process has ended", None)?;
    tell_of_polls(fleet, story).await?;
    fleet.start(Role::Poller, "node-1").await?;
    Ok(())
}

/// The leases of a node with their tokens.
async fn leases_of(fleet: &Fleet, node: &str) -> anyhow::Result<BTreeMap<LeaseName, Token>> {
    let (group, node) = (Group::new(POLLERS)?, MemberId::new(node)?);
    let page = fleet
        .tenure
        .store()
        .leases(&group, Some(&node), &PageRequest::default())
        .await?;
    Ok(page.items.into_iter().map(|lease| (lease.lease, lease.token)).collect())
}

/// Waits until others hold what a node held.
async fn tell_of_takeover(
    watch: &mut Watch,
    story: &mut Story,
    node: &str,
    held: &BTreeMap<LeaseName, Token>,
) -> anyhow::Result<()> {
    let granted = |event: &&Event| {
        let is_grant = matches!(event.kind, EventKind::LeaseGranted | EventKind::LeaseTakenOver);
        is_grant && event.member().is_some_and(|member| member.as_str() != node)
    };
    let found = watch.until(|events| {
        let grants: Vec<_> = events.iter().filter(granted).collect();
        let of = |lease: &LeaseName| grants.iter().find(|event| event.lease.as_ref() == Some(lease));
        held.keys()
            .map(|lease| of(lease).map(|event| (*event).clone()))
            .collect::<Option<Vec<Event>>>()
    });
    let Some(grants) = found.await else {
        return story.missed("another holder for every lease");
    };
    let rose = |event: &&Event| event.lease.as_ref().and_then(|lease| held.get(lease)) < event.token.as_ref();
    let higher = grants.iter().filter(rose).count();
    let last = grants.iter().map(|event| watch.took(event)).max();
    let what = format!(
        "{} leases have another holder, {higher} of them with a higher token",
        grants.len()
    );
    story.saw(higher == grants.len(), &what, last)
}

/// The polls after each endpoint was polled again.
async fn tell_of_polls(fleet: &Fleet, story: &mut Story) -> anyhow::Result<()> {
    // Two polling rounds of every node: each holder of a lease has polled by then.
    fleet.clock.sleep(Duration::from_millis(500)).await;
    let polls = fleet.endpoints.polls();
    let what = format!(
        "{} polls; the longest that an endpoint waited is {}; {} came with an old token",
        polls.count,
        brief(polls.longest_pause),
        polls.stale
    );
    story.saw(polls.stale == 0 && polls.count > 0, &what, None)
}
