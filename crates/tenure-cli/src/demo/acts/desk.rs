//! Providers: one is shut out by an operator, one falls silent, and customers are sent to who is left.

use std::time::Duration;

use tenure::roster::{HeartbeatOutcome, Reservation};
use tenure::{EngagementId, Mono, PageRequest, ProviderId};
use tenure_core::ledger::{Change, LogEntry, Move, NewEngagement, Status};

use crate::demo::fleet::Fleet;
use crate::demo::part::Role;
use crate::demo::story::Story;
use crate::demo::watch::PATIENCE;

/// The interval at which the log is polled; it sends no notifications.
const LOOK: Duration = Duration::from_millis(50);

pub(super) async fn go(fleet: &mut Fleet, story: &mut Story) -> anyhow::Result<()> {
    let [petra, quinn] = [ProviderId::new("petra")?, ProviderId::new("quinn")?];
    let victim = fleet.take("quinn")?;
    story.act(
        "Of three providers one is deactivated, and one falls silent",
        &format!("an operator deactivates petra; SIGKILL to quinn's phone (process {})", victim.pid()),
        "petra's next heartbeat is refused; quinn is offline after 3s, in the ledger as well; customers get rosa, then no one",
    )?;
    let last = newest(fleet, &quinn).await?.map(|entry| entry.id);
    let began = fleet.clock.mono();
    fleet.roster.deactivate(&petra).await?;
    let heard = fleet.roster.heartbeat(&petra).await?;
    let took = fleet.clock.mono().since(began);
    story.saw(
        heard == HeartbeatOutcome::Deactivated,
        "petra's heartbeat is refused",
        Some(took),
    )?;
    victim.kill().await?;
    match offline(fleet, &quinn, last, began + PATIENCE).await? {
        Some(entry) => {
            let what = format!(
                "the ledger has quinn offline, with the reason {}",
                entry.reason.as_str()
            );
            story.saw(true, &what, Some(fleet.clock.mono().since(began)))?;
        }
        None => story.missed("that quinn goes offline")?,
    }
    customers(fleet, story).await?;
    fleet.roster.activate(&petra).await?;
    fleet.start(Role::Phone, "quinn").await?;
    Ok(())
}

/// The newest entry of a provider in the log.
async fn newest(fleet: &Fleet, provider: &ProviderId) -> anyhow::Result<Option<LogEntry>> {
    let mut page = PageRequest::default();
    let mut newest = None;
    loop {
        let read = fleet.roster.log(Some(provider), &page).await?;
        newest = read.items.into_iter().chain(newest).max_by_key(|entry| entry.id);
        match read.next {
            Some(next) => page.after = Some(next),
            None => return Ok(newest),
        }
    }
}

/// Waits until the ledger says that a provider went offline, after what it said before.
async fn offline(
    fleet: &Fleet,
    provider: &ProviderId,
    last: Option<u64>,
    give_up: Mono,
) -> anyhow::Result<Option<LogEntry>> {
    while fleet.clock.mono() < give_up {
        let entry = newest(fleet, provider).await?;
        let is_new = entry.filter(|entry| Some(entry.id) > last && entry.change == Change::Offline);
        if is_new.is_some() {
            return Ok(is_new);
        }
        fleet.clock.sleep(LOOK).await;
    }
    Ok(None)
}

/// Two customers come; there is room for one.
async fn customers(fleet: &Fleet, story: &mut Story) -> anyhow::Result<()> {
    let mut booked = Vec::new();
    let mut got = Vec::new();
    for _ in 0..2 {
        let wanted = NewEngagement {
            status: Status::Active,
            expires_in: Some(Duration::from_secs(60)),
            ..NewEngagement::new(fleet.roster.name_engagement()?)
        };
        got.push(match fleet.roster.reserve(&wanted).await? {
            Reservation::Reserved(written) => {
                booked.push(wanted.engagement);
                let provider = written.value.engagement.provider;
                provider.map_or_else(|| "-".to_owned(), |provider| provider.to_string())
            }
            Reservation::NoneAvailable => "no one".to_owned(),
            Reservation::Conflict(_) => "a conflict".to_owned(),
        });
    }
    let what = format!("two customers ask for a provider and get: {}", got.join(", "));
    story.saw(got == ["rosa", "no one"], &what, None)?;
    for engagement in booked {
        end(fleet, &engagement).await?;
    }
    Ok(())
}

async fn end(fleet: &Fleet, engagement: &EngagementId) -> anyhow::Result<()> {
    let over = Move {
        status: Some(Status::Ended),
        ..Move::default()
    };
    fleet.roster.move_engagement(engagement, &over).await?;
    Ok(())
}
