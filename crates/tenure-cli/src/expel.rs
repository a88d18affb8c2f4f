//! `tenure expel`: ends the tenure of a member from outside.

use clap::Args;
use serde::Serialize;
use tenure_core::Store;
use tenure_core::id::TenureId;
use tenure_core::membership::{EndBy, EndReason, Member};
use tenure_core::store::Call;
use tenure_core::time::StoreTime;

use crate::acting::{Actor, current};
use crate::cli::{FormatArgs, GroupArgs, StoreArgs};
use crate::confirm::confirm;
use crate::exit::{DONE, FAILED, say};
use crate::groups;
use crate::output::{brief, json};

/// Ends the tenure of a member.
///
/// Its claims and connections are removed immediately. Its leases stay until the last deadline of the tenure, because its
/// process may still run and trust them. A client of Tenure stops at its next heartbeat and does not rejoin.
#[derive(Debug, Clone, Args)]
pub(crate) struct Expel {
    /// The member, or its exact tenure (MEMBER@TERM).
    member: Actor,
    #[command(flatten)]
    group: GroupArgs,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Serialize)]
struct Expelled {
    tenure: TenureId,
    /// Why the tenure ended: `expelled`, or the reason for which it had ended before.
    reason: EndReason,
}

impl Expel {
    pub(crate) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let group = &self.group.name;
        let (tenure, member) = self.find(store).await?;
        if let Some(member) = &member {
            for line in consequences(member, store.now().await?) {
                say(line);
            }
        }
        if !self.yes {
            let question = format!("Expel {tenure} from group \"{group}\" at {}?", store.place());
            if !confirm(&question, "no terminal to ask on; confirm with --yes")? {
                say("nothing was changed");
                return Ok(FAILED);
            }
        }
        let reason = store.end(group, &tenure, EndBy::Expel, Call::default()).await?;
        if self.format.json {
            json(&Expelled {
                tenure: tenure.clone(),
                reason,
            })?;
        }
        say(match reason {
            EndReason::Expelled => format!("expelled {tenure}"),
            EndReason::Unknown => format!("the store has no record of {tenure}"),
            reason => format!("{tenure} had ended before: {}", reason.as_str()),
        });
        Ok(if reason == EndReason::Unknown { FAILED } else { DONE })
    }

    /// The tenure to end, and its member while that tenure is the current one.
    async fn find(&self, store: &dyn Store) -> anyhow::Result<(TenureId, Option<Member>)> {
        let group = &self.group.name;
        match &self.member {
            Actor::Member(name) => {
                let member = current(store, group, name).await?;
                Ok((member.tenure.clone(), Some(member)))
            }
            Actor::Tenure(tenure) => {
                groups::must_exist(store, group).await?;
                let member = store.member(group, tenure.member()).await?;
                Ok((tenure.clone(), member.filter(|member| member.tenure == *tenure)))
            }
        }
    }
}

/// The consequences of an expulsion, as sentences.
fn consequences(member: &Member, now: StoreTime) -> Vec<String> {
    let holdings = member.holdings;
    let count = |count: u64, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let mut lines = vec![format!("{} ends now and never comes back", member.tenure)];
    let removed = [(holdings.claims, "claim"), (holdings.connections, "connection")];
    let removed: Vec<_> = removed
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, noun)| count(*n, noun))
        .collect();
    if !removed.is_empty() {
        lines.push(format!("{} removed within about a second", removed.join(" and ")));
    }
    if holdings.leases > 0 {
        lines.push(format!(
            "{} held until {} (in {}), the last deadline of the tenure",
            count(holdings.leases, "lease"),
            now + member.expires_in,
            brief(member.expires_in)
        ));
    }
    if holdings.total() == 0 {
        lines.push("it holds nothing".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::membership::{Holdings, Labels};

    use super::*;

    fn member(holdings: Holdings) -> Member {
        let tenure: TenureId = "gw-1@1000".parse().unwrap();
        Member {
            member: tenure.member().clone(),
            tenure,
            alive: true,
            ttl: Duration::from_secs(30),
            expires_in: Duration::from_secs(20),
            joined_at: StoreTime::from_micros(0),
            last_beat_at: StoreTime::from_micros(0),
            labels: Labels::default(),
            holdings,
        }
    }

    #[test]
    fn consequences_name_what_is_removed_and_when_leases_are_free() {
        let holdings = Holdings {
            claims: 2,
            leases: 1,
            connections: 1,
        };
        assert_eq!(
            consequences(&member(holdings), StoreTime::from_micros(0)),
            [
                "gw-1@1000 ends now and never comes back",
                "2 claims and 1 connection removed within about a second",
                "1 lease held until 1970-01-01T00:00:20.000000Z (in 20s), the last deadline of the tenure",
            ]
        );
        let nothing = consequences(&member(Holdings::default()), StoreTime::from_micros(0));
        assert_eq!(nothing[1], "it holds nothing");
    }
}
