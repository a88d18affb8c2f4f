//! A program that depends on `tenure` alone, and names what programs name. It is compiled, not run.

use std::sync::Arc;
use std::time::Duration;

use tenure::core::clock::ManualClock;
use tenure::http::RemoteRosters;
use tenure::roster::Reservation;
use tenure::{
    Acquire, Assignment, Claim, ClaimMode, ClaimOutcome, ClientSettings, Clock, EndReason, EngagementId, ErrorKind,
    EventKind, EventQuery, Fleet, Group, GroupHandle, GroupStatus, JoinOptions, Key, Labels, LeaseGuard, LeaseName, Member,
    MemberId, Membership, NewEngagement, Outcome, Page, PageRequest, ProviderSpec, RegistryName, Roster, RosterName,
    RosterSettings, Session, SessionId, SettingsPatch, Status, StoreOptions, StoreTime, SweepReport, SystemClock, Target,
    TargetList, TargetSpec, Tenure, TenureId, Timing, Token, Verdict,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> tenure::Result<()> {
    let tenure = Tenure::connect("memory:").await?;
    let group: GroupHandle = tenure.group("ingest")?;
    let membership: Membership = group.join(JoinOptions::named("gw-1")?).await?;
    membership.registry("devices")?.claim("cam-17").await?;
    if let Acquire::Granted(guard) = membership.leases().acquire("report").await? {
        write_with(&guard);
        guard.release().await?;
    }
    let fleet = Fleet::builder(&membership)
        .targets(TargetList::new(["endpoint-1"])?)
        .start(|target: Assignment| async move { while target.next_cycle().await {} })?;
    fleet.shut_down().await;
    let members: Page<Member> = group.members(&PageRequest::default()).await?;
    println!("{:?}", members.items.iter().map(|member| &member.member).collect::<Vec<&MemberId>>());
    for event in group.events(&EventQuery::default()).await?.events {
        if event.kind == EventKind::Joined {
            println!("{}", event.id);
        }
    }
    let status: GroupStatus = group.status().await?;
    println!("{status:?}");
    membership.leave().await?;
    Ok(())
}

fn write_with(guard: &LeaseGuard) -> Option<Token> {
    (guard.verdict() == Verdict::Held).then(|| guard.token())
}

pub fn advice(error: &tenure::Error) -> &'static str {
    match (error.kind(), error.outcome()) {
        (ErrorKind::Unavailable, Outcome::Unknown) => "read it back",
        (ErrorKind::Unavailable, _) => "try again",
        _ => "give up",
    }
}

pub async fn reserve(rosters: &RemoteRosters, call: &str) -> tenure::Result<bool> {
    let roster = rosters.roster(&RosterName::new("care")?);
    let new = NewEngagement {
        status: Status::Active,
        ..NewEngagement::new(EngagementId::new(call)?)
    };
    Ok(matches!(roster.reserve(&new).await?, Reservation::Reserved(_)))
}

/// Types in the signatures of a program.
pub struct Named {
    pub clock: Arc<dyn Clock>,
    pub virtual_time: Arc<ManualClock>,
    pub system: SystemClock,
    pub settings: (ClientSettings, StoreOptions, Timing, RosterSettings, SettingsPatch),
    pub ids: (Group, Key, LeaseName, RegistryName, SessionId, TenureId),
    pub claims: (Claim, ClaimMode, ClaimOutcome),
    pub targets: (Target, TargetSpec),
    pub rest: (EndReason, Labels, ProviderSpec, Session, SweepReport, StoreTime),
    pub roster: Roster,
    pub every: Duration,
}
