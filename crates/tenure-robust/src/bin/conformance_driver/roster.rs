//! Operations on rosters.

use serde_json::{Value, json};
use tenure::core::ledger::Capacity;
use tenure::http::RemoteRoster;
use tenure::roster::{EngagementAnswer, HeartbeatOutcome, Online, Reservation};
use tenure::wire::Code;
use tenure::wire::roster::Provider;
use tenure::{EngagementId, Move, NewEngagement, PageRequest, ProviderId, ProviderSpec, RosterName, Status};

use crate::Driver;
use crate::answer::{Answered, Command, Refusal};

impl Driver {
    pub(crate) async fn roster(&self, command: &Command) -> Answered {
        let roster = self.rosters.roster(&RosterName::new(command.text("roster")?)?);
        match command.text("op")? {
            "available" => available(&roster).await,
            "reserve" => reserve(&roster, command.optional("engagement")).await,
            "release_engagement" => release(&roster, command.text("engagement")?).await,
            op => provider(&roster, op, command).await,
        }
    }
}

async fn provider(roster: &RemoteRoster, op: &str, command: &Command) -> Answered {
    let name = ProviderId::new(command.text("provider")?)?;
    match op {
        "provider_put" => {
            let capacity = command
                .number("capacity")
                .and_then(|capacity| u32::try_from(capacity).ok());
            let spec = ProviderSpec {
                display_name: command.optional("display_name").map(str::to_owned),
                capacity: capacity.map_or(Capacity::Keep, Capacity::Own),
            };
            roster.put_provider(&name, &spec).await?;
        }
        "online" => {
            if let Online::Deactivated(_) = roster.online(&name).await? {
                return Err(Refusal::of(Code::ProviderDeactivated, None));
            }
        }
        "offline" => {
            roster.offline(&name).await?;
        }
        "heartbeat" => {
            return match roster.heartbeat(&name).await? {
                HeartbeatOutcome::Recorded(_) => Ok(json!({})),
                HeartbeatOutcome::Offline => Err(Refusal::of(Code::ProviderOffline, None)),
                HeartbeatOutcome::Deactivated => Err(Refusal::of(Code::ProviderDeactivated, None)),
                HeartbeatOutcome::Revoked => Err(Refusal::of(Code::TokenRevoked, None)),
                HeartbeatOutcome::Unknown => Err(Refusal::of(Code::NotFound, None)),
            };
        }
        "provider" => {}
        op => return Err(Refusal::bad_command(&format!("unknown operation {op:?}"))),
    }
    let view = roster.provider(&name).await?.value;
    Ok(view.map_or(Value::Null, |view| json!(Provider::from(view))))
}

async fn available(roster: &RemoteRoster) -> Answered {
    let (mut page, mut names) = (PageRequest::default(), Vec::new());
    loop {
        let candidates = roster.available_page(&page).await?.value;
        names.extend(candidates.items.into_iter().map(|candidate| candidate.provider));
        page.after = candidates.next;
        if page.after.is_none() {
            return Ok(json!({ "providers": names }));
        }
    }
}

async fn reserve(roster: &RemoteRoster, engagement: Option<&str>) -> Answered {
    let engagement = match engagement {
        Some(engagement) => EngagementId::new(engagement)?,
        None => roster.name_engagement()?,
    };
    match roster.reserve(&NewEngagement::new(engagement)).await? {
        Reservation::Reserved(written) => {
            let engagement = written.value.engagement;
            Ok(json!({ "engagement": engagement.engagement, "provider": engagement.provider }))
        }
        Reservation::NoneAvailable => Err(Refusal::of(Code::NoneAvailable, None)),
        Reservation::Conflict(_) => Err(Refusal::of(Code::EngagementConflict, None)),
    }
}

async fn release(roster: &RemoteRoster, engagement: &str) -> Answered {
    let ended = Move {
        status: Some(Status::Ended),
        ..Move::default()
    };
    match roster.move_engagement(&EngagementId::new(engagement)?, &ended).await? {
        EngagementAnswer::Done(_) => Ok(json!({})),
        EngagementAnswer::Conflict(_) => Err(Refusal::of(Code::EngagementConflict, None)),
    }
}
