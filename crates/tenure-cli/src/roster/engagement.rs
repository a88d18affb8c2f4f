//! Engagements: made, reserved, moved and ended.

use std::time::Duration;

use clap::Args;
use tenure::roster::{EngagementAnswer, Reservation, Written};
use tenure_core::error::Result;
use tenure_core::id::{EngagementId, ProviderId};
use tenure_core::ledger::{Engagement, EngagementChange, Expiry, Move, NewEngagement, Reassign, Status};
use tenure_core::time::parse_duration;

use super::RosterArgs;
use super::reach::RosterClient;
use crate::exit::{DONE, FAILED, Usage, say};
use crate::output::{json, or_dash, table, yes_no};

#[derive(Debug, Clone, Args)]
pub(super) struct Reserve {
    /// What it is for: a new name, by which asking again is known, or that of an open engagement without a provider. Made up
    /// when not given.
    engagement: Option<EngagementId>,
    /// Reserve this provider or none. Default: the least occupied one.
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<ProviderId>,
    /// Do not reserve this provider. May be repeated.
    #[arg(long, value_name = "PROVIDER")]
    except: Vec<ProviderId>,
    #[command(flatten)]
    how: EngagementArgs,
    #[command(flatten)]
    place: RosterArgs,
}

/// The state in which a new engagement begins.
#[derive(Debug, Clone, Copy, Args)]
struct EngagementArgs {
    /// It is going on already, and not pending.
    #[arg(long)]
    active: bool,
    /// Expire it after this time, unless its status changes first.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    expires_in: Option<Duration>,
    /// When it becomes active, expire it after this time.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    active_for: Option<Duration>,
}

impl EngagementArgs {
    /// The engagement that is asked for, under a name that is made up when none is given.
    fn engagement(
        self,
        roster: &RosterClient,
        name: Option<&EngagementId>,
        of: Option<&ProviderId>,
    ) -> Result<NewEngagement> {
        Ok(NewEngagement {
            engagement: name.cloned().map_or_else(|| roster.name_engagement(), Ok)?,
            provider: of.cloned(),
            status: if self.active { Status::Active } else { Status::Pending },
            expires_in: self.expires_in,
            active_for: self.active_for,
        })
    }
}

impl Reserve {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        self.place.look(async |roster| {
            let new = self
                .how
                .engagement(roster, self.engagement.as_ref(), self.provider.as_ref())?;
            match roster.reserve_except(&new, &self.except).await? {
                Reservation::Reserved(written) => changed(&self.place, written),
                Reservation::NoneAvailable => {
                    // A roster that does not exist has no available provider either.
                    roster.settings().await?;
                    say(format_args!(
                        "no provider of roster \"{}\" is available",
                        self.place.roster
                    ));
                    Ok(FAILED)
                }
                Reservation::Conflict(row) => Ok(conflict(&row)),
            }
        })
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct Engage {
    /// The provider.
    provider: ProviderId,
    /// The name of the engagement, by which asking again is known. Made up when not given.
    #[arg(long, value_name = "ENGAGEMENT")]
    id: Option<EngagementId>,
    #[command(flatten)]
    how: EngagementArgs,
    #[command(flatten)]
    place: RosterArgs,
}

impl Engage {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        self.place.way.with(async |reach| {
            let roster = reach.roster(&self.place.roster)?;
            let new = self.how.engagement(&roster, self.id.as_ref(), Some(&self.provider))?;
            new.check()?;
            answered(&self.place, roster.create_engagement(&new).await?)
        })
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct End {
    /// The engagement.
    engagement: EngagementId,
    /// It is called off.
    #[arg(long)]
    cancelled: bool,
    #[command(flatten)]
    place: RosterArgs,
}

impl End {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        let status = if self.cancelled {
            Status::Cancelled
        } else {
            Status::Ended
        };
        let to = Move {
            status: Some(status),
            ..Move::default()
        };
        move_to(&self.place, &self.engagement, &to)
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct Change {
    /// The engagement.
    engagement: EngagementId,
    /// To this provider.
    #[arg(long, value_name = "PROVIDER", conflicts_with = "unassign")]
    to: Option<ProviderId>,
    /// To no provider: it waits for a reserve.
    #[arg(long)]
    unassign: bool,
    /// To this status: pending, active, ended, expired or cancelled.
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<Status>,
    /// Expire it after this time from now.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "never_expires")]
    expires_in: Option<Duration>,
    /// Never expire it.
    #[arg(long)]
    never_expires: bool,
    #[command(flatten)]
    place: RosterArgs,
}

impl Change {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        let expiry = match (self.expires_in, self.never_expires) {
            (Some(after), _) => Expiry::In(after),
            (None, true) => Expiry::Never,
            (None, false) => Expiry::Keep,
        };
        let to = Move {
            status: self.status,
            provider: match (&self.to, self.unassign) {
                (Some(to), _) => Reassign::To(to.clone()),
                (None, true) => Reassign::Unassign,
                (None, false) => Reassign::Keep,
            },
            expiry,
        };
        if to == Move::default() {
            let message = "nothing to change: give --to, --unassign, --status, --expires-in or --never-expires";
            return Err(Usage::new(message).into());
        }
        to.check()?;
        move_to(&self.place, &self.engagement, &to)
    }
}

#[derive(Debug, Clone, Args)]
pub(super) struct Show {
    /// The engagement.
    engagement: EngagementId,
    #[command(flatten)]
    place: RosterArgs,
}

impl Show {
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        self.place.look(async |roster| {
            let Some(row) = roster.engagement(&self.engagement).await? else {
                roster.settings().await?;
                let (roster, engagement) = (&self.place.roster, &self.engagement);
                say(format_args!("the roster {roster} has no engagement {engagement}"));
                return Ok(FAILED);
            };
            tell(&self.place, &row, &row, None)?;
            Ok(DONE)
        })
    }
}

fn status(name: &str) -> Result<Status, String> {
    Status::parse(name).ok_or_else(|| {
        let names = Status::ALL.map(Status::as_str).join(", ");
        format!("there are {names}")
    })
}

fn move_to(place: &RosterArgs, engagement: &EngagementId, to: &Move) -> anyhow::Result<u8> {
    place.way.with(async |reach| {
        let roster = reach.roster(&place.roster)?;
        answered(place, roster.move_engagement(engagement, to).await?)
    })
}

fn answered(place: &RosterArgs, answer: EngagementAnswer) -> anyhow::Result<u8> {
    match answer {
        EngagementAnswer::Done(written) => changed(place, written),
        EngagementAnswer::Conflict(row) => Ok(conflict(&row)),
    }
}

fn changed(place: &RosterArgs, written: Written<EngagementChange>) -> anyhow::Result<u8> {
    let written = written.map(|change| change.engagement);
    tell(place, &written, &written.value, Some(written.mirrored))?;
    Ok(DONE)
}

fn conflict(row: &Engagement) -> u8 {
    let with = row
        .provider
        .as_ref()
        .map_or_else(String::new, |provider| format!(" with {provider}"));
    say(format_args!(
        "the engagement {} is {}{with}; it stays",
        row.engagement,
        row.status.as_str()
    ));
    FAILED
}

/// Prints an engagement, and as JSON all that was answered about it.
fn tell(
    place: &RosterArgs,
    answer: &impl serde::Serialize,
    shown: &Engagement,
    mirrored: Option<bool>,
) -> anyhow::Result<()> {
    if place.way.format.json {
        return json(answer);
    }
    let row = [
        shown.engagement.to_string(),
        or_dash(shown.provider.as_ref()),
        shown.status.as_str().to_owned(),
        or_dash(shown.expires_at),
        or_dash(mirrored.map(yes_no)),
    ];
    table(
        ["engagement", "provider", "status", "expires at", "mirrored"],
        vec![row],
    )
}
