//! Clients that come back, and one who does not.

use std::time::Duration;

use tenure::{Event, EventKind};

use crate::demo::fleet::Fleet;
use crate::demo::part::{CHAT, Role};
use crate::demo::story::Story;
use crate::demo::watch::Watch;

/// The time that ben is away: less than the grace.
const AWAY: Duration = Duration::from_secs(1);

pub(super) async fn dies(fleet: &mut Fleet, story: &mut Story) -> anyhow::Result<()> {
    let victim = fleet.take("front-2")?;
    story.act(
        "A front-end of a chat dies under its clients",
        &format!(
            "SIGKILL to front-2 (process {}); ann connects to front-1 at once, ben 1s after his session is disconnected, cleo never",
            victim.pid()
        ),
        "ann was never gone; ben is resumed in his room; cleo's session is reaped when its grace of 3s is over",
    )?;
    let mut watch = Watch::begin(&fleet.tenure, CHAT).await?;
    victim.kill().await?;
    for session in ["ann", "ben", "cleo"] {
        fleet.clients.remove(session);
    }
    fleet.enter("ann", "", "front-1").await?;
    match watch
        .until(|events| about(events, EventKind::SessionDisconnected, "ben"))
        .await
    {
        Some(away) => story.saw(true, "ben's session is disconnected", Some(watch.took(&away)))?,
        None => story.missed("that ben's session is disconnected")?,
    }
    fleet.clock.sleep(AWAY).await;
    fleet.enter("ben", "", "front-1").await?;
    for (session, how) in [("ann", "attached"), ("ben", "resumed")] {
        let client = fleet.clients.get(session);
        let seen = client.map_or(("-", "-"), |client| (client.how.as_str(), client.room.as_str()));
        let what = format!("front-1 says that {session} is {} in the room {}", seen.0, seen.1);
        story.saw(seen == (how, "lobby"), &what, None)?;
    }
    match watch
        .until(|events| about(events, EventKind::SessionReaped, "cleo"))
        .await
    {
        Some(reaped) => story.saw(true, "cleo's session is reaped", Some(watch.took(&reaped)))?,
        None => story.missed("the end of cleo's session")?,
    }
    let others = watch.count(EventKind::SessionReaped);
    story.saw(others == 1, "no other session is", None)?;
    fleet.start(Role::Front, "front-2").await?;
    for session in ["ann", "ben", "cleo"] {
        fleet.enter(session, "lobby", "front-2").await?;
    }
    Ok(())
}

fn about(events: &[Event], kind: EventKind, session: &str) -> Option<Event> {
    let is = |event: &&Event| event.kind == kind && event.session.as_ref().is_some_and(|one| one.as_str() == session);
    events.iter().find(is).cloned()
}
