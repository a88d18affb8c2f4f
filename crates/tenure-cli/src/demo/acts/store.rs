//! The daemon is frozen, with its store.

use rustix::process::Signal;
use tenure::EventKind;

use crate::demo::fleet::{Fleet, TTL};
use crate::demo::part::{CHAT, INGEST, POLLERS};
use crate::demo::story::Story;
use crate::demo::watch::Watch;
use crate::output::brief;

pub(super) async fn pauses(fleet: &mut Fleet, story: &mut Story) -> anyhow::Result<()> {
    let pause = TTL * 2;
    story.act(
        "The store stands still for twice as long as anybody may be silent",
        &format!("SIGSTOP to the daemon (process {}), SIGCONT after {}", fleet.daemon.pid(), brief(pause)),
        "no heartbeat arrives, and no member is declared dead: every ttl restarts afterwards; no node polls without a valid lease",
    )?;
    let mut watches = Vec::new();
    for group in [INGEST, POLLERS, CHAT] {
        watches.push((group, Watch::begin(&fleet.tenure, group).await?));
    }
    fleet.endpoints.reset();
    fleet.daemon.signal(Signal::STOP);
    fleet.clock.sleep(pause).await;
    let still = fleet.endpoints.polls().longest_pause;
    fleet.daemon.signal(Signal::CONT);
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
    let polls = fleet.endpoints.polls();
    let what = format!(
        "{} polls; {moved} leases changed hands; {} came with an old token",
        polls.count, polls.stale
    );
    story.saw(moved == 0 && polls.stale == 0, &what, None)
}
