//! The daemon stands still, with the store in it.

use rustix::process::Signal;
use tenure::EventKind;

use crate::demo::part::{CHAT, INGEST, POLLERS};
use crate::demo::story::Story;
use crate::demo::watch::Watch;
use crate::demo::world::{TTL, World};
use crate::output::brief;

pub(super) async fn pauses(world: &mut World, story: &mut Story) -> anyhow::Result<()> {
    let pause = TTL * 2;
    story.act(
        "The store stands still for twice as long as anybody may be silent",
        &format!("SIGSTOP to the daemon (process {}), SIGCONT after {}", world.daemon.pid(), brief(pause)),
        "nobody can send a heartbeat, and nobody is declared dead: everyone gets a full ttl afterwards; nobody polls in the dark",
    )?;
    let mut watches = Vec::new();
    for group in [INGEST, POLLERS, CHAT] {
        watches.push((group, Watch::begin(&world.tenure, group).await?));
    }
    world.endpoints.reset();
    world.daemon.signal(Signal::STOP);
    world.clock.sleep(pause).await;
    let still = world.endpoints.polls().longest_pause;
    world.daemon.signal(Signal::CONT);
    story.saw(
        still > TTL / 2,
        &format!(
            "without an answer the nodes stopped polling, {} before it came back",
            brief(still)
        ),
        None,
    )?;
    for (group, watch) in &mut watches {
        if watch.first_of(EventKind::GroupUnsettled).await.is_none() {
            story.missed(&format!("that the group {group} noticed its gap"))?;
        }
        match watch.first_of(EventKind::GroupSettled).await {
            Some(settled) => {
                let lapsed = watch.count(EventKind::Lapsed);
                let what = format!("the group {group} is settled again; {lapsed} members have lapsed");
                story.saw(lapsed == 0, &what, Some(watch.took(&settled)))?;
            }
            None => story.missed(&format!("that the group {group} settles"))?,
        }
    }
    let moved = watches
        .iter()
        .map(|(_, watch)| watch.count(EventKind::LeaseTakenOver))
        .sum::<usize>();
    let polls = world.endpoints.polls();
    let what = format!(
        "{} polls; {moved} leases changed hands; {} came with an old token",
        polls.count, polls.stale
    );
    story.saw(moved == 0 && polls.stale == 0, &what, None)
}
