//! Most members of a group die together and come back.

use tenure::{Claim, EventKind, PageRequest, RegistryName};
use tenure_core::id::Group;

use crate::demo::fleet::Fleet;
use crate::demo::part::{NESTS, Role, SWARM};
use crate::demo::story::Story;
use crate::demo::watch::Watch;

pub(super) async fn dies(fleet: &mut Fleet, story: &mut Story) -> anyhow::Result<()> {
    let victim = fleet.take("host-a")?;
    story.act(
        "A host dies with 8 of the 12 members of a group, and comes back",
        &format!("SIGKILL to host-a (process {}); it is started again when all have lapsed", victim.pid()),
        "all 8 read as dead in time; but once more than half are, it looks like an outage: the brake keeps what they own until most are back",
    )?;
    let mut watch = Watch::begin(&fleet.tenure, SWARM).await?;
    victim.kill().await?;
    match watch.first_of(EventKind::SweepBraked).await {
        Some(braked) => story.saw(true, "the brake holds removals back", Some(watch.took(&braked)))?,
        None => story.missed("the brake")?,
    }
    let lapsed = watch.until(|events| {
        let lapsed = events.iter().filter(|event| event.kind == EventKind::Lapsed);
        (lapsed.count() == 8).then_some(())
    });
    if lapsed.await.is_none() {
        story.missed("the end of all 8")?;
    }
    let dead = claims(fleet).await?.into_iter().filter(|claim| !claim.alive).count();
    let before = watch.sum(EventKind::Evicted, NESTS);
    let what = format!(
        "{dead} keys are kept, and read as owned by the dead; {before} had gone before more than half were dead"
    );
    story.saw(dead > 0 && dead as u64 + before == 8, &what, None)?;
    fleet.start(Role::Swarm, "host-a").await?;
    match watch.first_of(EventKind::SweepUnbraked).await {
        Some(lifted) => story.saw(
            true,
            "they are back, and the brake has lifted by itself",
            Some(watch.took(&lifted)),
        )?,
        None => story.missed("the end of the brake")?,
    }
    let alive = claims(fleet).await?.into_iter().filter(|claim| claim.alive).count();
    let evicted = watch.sum(EventKind::Evicted, NESTS);
    let late = evicted.saturating_sub(before);
    let what =
        format!("all {alive} keys have a living owner; {late} had gone for a moment, before their owners were back");
    story.saw(alive == 12, &what, None)
}

async fn claims(fleet: &Fleet) -> anyhow::Result<Vec<Claim>> {
    let (group, registry) = (Group::new(SWARM)?, RegistryName::new(NESTS)?);
    let page = fleet
        .tenure
        .store()
        .claims(&group, &registry, None, &PageRequest::default())
        .await?;
    Ok(page.items)
}
