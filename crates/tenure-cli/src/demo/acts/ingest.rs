//! Gateways, and who owns the devices.

use tenure::{Claim, EventKind, Key, RegistryName};
use tenure_core::id::Group;

use crate::demo::fleet::Fleet;
use crate::demo::part::{DEVICES, INGEST, Role};
use crate::demo::story::Story;
use crate::demo::watch::Watch;

/// How many devices of the dead gateway connect to another gateway immediately.
const QUICK: usize = 2;

pub(super) async fn dies(fleet: &mut Fleet, story: &mut Story) -> anyhow::Result<()> {
    let victim = fleet.take("gw-2")?;
    story.act(
        "A gateway dies without leaving",
        &format!(
            "SIGKILL to gw-2 (process {}), which owns 4 devices; 2 of them connect to gw-1 at once, 2 stay dark",
            victim.pid()
        ),
        "from 3s after its last heartbeat on gw-2 reads as dead; the 2 dark devices are evicted, once; the others are gw-1's",
    )?;
    let mut watch = Watch::begin(&fleet.tenure, INGEST).await?;
    victim.kill().await?;
    let devices = fleet.unplug("gw-2");
    for device in devices.iter().take(QUICK) {
        fleet.plug(device, "gw-1").await?;
    }
    match watch.first(EventKind::Lapsed, "gw-2").await {
        Some(lapsed) => story.saw(true, "gw-2 has lapsed", Some(watch.took(&lapsed)))?,
        None => story.missed("the end of gw-2")?,
    }
    let dark = devices.len().saturating_sub(QUICK) as u64;
    let evicted = watch.until(|events| {
        let of = |event: &&tenure::Event| event.kind == EventKind::Evicted;
        let count: u64 = events
            .iter()
            .filter(of)
            .filter_map(|event| event.counts.get(DEVICES))
            .sum();
        let last = events.iter().rfind(of)?;
        (count >= dark).then(|| (count, last.clone()))
    });
    match evicted.await {
        Some((count, last)) => story.saw(
            count == dark,
            &format!(
                "{count} devices were evicted, with the reason {}",
                last.reason.as_deref().unwrap_or("-")
            ),
            Some(watch.took(&last)),
        )?,
        None => story.missed("the eviction of the dark devices")?,
    }
    let mut kept = 0;
    for device in devices.iter().take(QUICK) {
        let claim = claim_of(fleet, device).await?;
        kept += usize::from(claim.is_some_and(|claim| claim.alive && claim.owner.as_str() == "gw-1"));
    }
    story.saw(
        kept == QUICK,
        &format!("{kept} devices belong to gw-1, untouched by the cleanup"),
        None,
    )?;
    fleet.start(Role::Gateway, "gw-2").await?;
    for device in &devices {
        fleet.plug(device, "gw-2").await?;
    }
    Ok(())
}

pub(super) async fn is_replaced(fleet: &mut Fleet, story: &mut Story) -> anyhow::Result<()> {
    let mut old = fleet.take("gw-3")?;
    story.act(
        "A gateway is started twice under one name",
        &format!(
            "another gw-3 is started while the first (process {}) still runs",
            old.pid()
        ),
        "the new gateway supersedes the old one immediately, without waiting for a ttl; the old one notices and stops",
    )?;
    let mut watch = Watch::begin(&fleet.tenure, INGEST).await?;
    let new = fleet.another(Role::Gateway, "gw-3").await?;
    fleet.put("gw-3", new);
    for device in fleet.unplug("gw-3") {
        fleet.plug(&device, "gw-3").await?;
    }
    match watch.first(EventKind::Superseded, "gw-3").await {
        Some(over) => story.saw(true, "the old gw-3 is superseded", Some(watch.took(&over)))?,
        None => story.missed("the end of the old gw-3")?,
    }
    let code = old.ended(&*fleet.clock).await;
    story.saw(code == Some(0), "the old process has ended by itself", None)
}

async fn claim_of(fleet: &Fleet, device: &str) -> anyhow::Result<Option<Claim>> {
    let (group, registry) = (Group::new(INGEST)?, RegistryName::new(DEVICES)?);
    let claim = fleet
        .tenure
        .store()
        .claim_of(&group, &registry, &Key::new(device)?)
        .await?;
    Ok(claim)
}
