//! `--as`: the tenure under which a command acts.
//!
//! A command never joins for its user: a tenure begins where its heartbeats are sent (`tenure join`, a client library). It
//! acts under a tenure that is alive, and under exactly that one: a member that joins again in between is not affected.

use std::str::FromStr;

use clap::Args;
use tenure_core::Store;
use tenure_core::error::{Error, ErrorKind};
use tenure_core::id::{Group, MemberId, TenureId};
use tenure_core::membership::{EndReason, Member};
use tenure_core::store::PageRequest;

use crate::groups;
use crate::nearest::nearest;

/// The tenure to act under.
#[derive(Debug, Clone, Args)]
pub(crate) struct ActingArgs {
    /// The member to act as, or its exact tenure (MEMBER@TERM). It must be alive: keep it so with `tenure join`, which
    /// passes its tenure to its command in TENURE_ID.
    #[arg(long = "as", value_name = "MEMBER", env = "TENURE_ID")]
    actor: Actor,
}

impl ActingArgs {
    /// The tenure to act under.
    ///
    /// # Errors
    /// `NotFound` for an unknown group or member, `Ended` for a member that is not alive. Nothing changed.
    pub(crate) async fn tenure(&self, store: &dyn Store, group: &Group) -> anyhow::Result<TenureId> {
        match &self.actor {
            Actor::Tenure(tenure) => {
                groups::must_exist(store, group).await?;
                Ok(tenure.clone())
            }
            Actor::Member(name) => {
                let member = current(store, group, name).await?;
                if !member.alive {
                    return Err(Error::ended(&member.tenure, EndReason::Lapsed).into());
                }
                Ok(member.tenure)
            }
        }
    }
}

/// A member by its name, or one of its tenures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Actor {
    Member(MemberId),
    Tenure(TenureId),
}

impl FromStr for Actor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.contains('@') {
            text.parse().map(Self::Tenure)
        } else {
            MemberId::new(text).map(Self::Member)
        }
    }
}

/// The member with its current tenure.
///
/// # Errors
/// `NotFound` when the group does not exist or the member has no tenure in it; the message has the nearest name.
pub(crate) async fn current(store: &dyn Store, group: &Group, name: &MemberId) -> anyhow::Result<Member> {
    if let Some(member) = store.member(group, name).await? {
        return Ok(member);
    }
    groups::must_exist(store, group).await?;
    let page = store.members(group, &PageRequest::default()).await;
    let members = page.map(|page| page.items).unwrap_or_default();
    let names = members.iter().map(|member| member.member.as_str());
    let near = nearest(name.as_str(), names);
    let near = near.map_or_else(String::new, |near| format!("did you mean \"{near}\"? "));
    let message = format!(
        "member \"{name}\" has no tenure in group \"{group}\"; {near}begin one with \
         `tenure join --group {group} --member {name} -- CMD`"
    );
    Err(Error::new(ErrorKind::NotFound, message).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_is_a_member_or_one_of_its_tenures() {
        let actor = |text: &str| text.parse::<Actor>().unwrap();
        assert_eq!(actor("gw-1"), Actor::Member(MemberId::new("gw-1").unwrap()));
        assert_eq!(actor("gw-1@7"), Actor::Tenure("gw-1@7".parse().unwrap()));
        let refused = "gw-1@x".parse::<Actor>().unwrap_err();
        assert!(refused.to_string().contains("is not a tenure id"), "{refused}");
    }
}
