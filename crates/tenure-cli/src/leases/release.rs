//! `tenure leases release`: an operator releases a lease in place of its holder.

use clap::Args;
use tenure_core::Store;
use tenure_core::error::{Error, ErrorKind};
use tenure_core::id::{LeaseName, MemberId};
use tenure_core::lease::{FreeWhen, Lease, RevokeOf, Revoked, Token};
use tenure_core::store::Call;

use super::AccessArgs;
use crate::exit::{DONE, say};
use crate::groups;
use crate::output::{brief, json};
use crate::release::token;

/// Releases a lease in place of its holder.
///
/// For operators; a holder releases its own lease with `tenure release lease`. The lease stays taken until the holder has
/// noticed, which a client of Tenure does at its next heartbeat. A holder that cannot notice keeps it until its tenure ends:
/// `tenure expel` is the quick way then.
#[derive(Debug, Clone, Args)]
pub(super) struct Release {
    /// The lease.
    lease: LeaseName,
    /// Release the grant of this member. Needed for a lease with several holders, unless --token names the grant.
    #[arg(long, value_name = "MEMBER", conflicts_with = "token")]
    holder: Option<MemberId>,
    /// Release only the grant with this fencing token.
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    token: Option<Token>,
    #[command(flatten)]
    pub(super) place: AccessArgs,
}

impl Release {
    pub(super) async fn run(&self, store: &dyn Store) -> anyhow::Result<u8> {
        let group = &self.place.group.name;
        groups::must_exist(store, group).await?;
        let token = match self.token {
            Some(token) => token,
            None => self.grant(store.lease_of(group, &self.lease).await?)?,
        };
        // By its token: a successor that was granted since is not affected.
        let revoked = store.revoke_lease(group, &self.lease, RevokeOf::Token(token), Call::default());
        let revoked = revoked.await?;
        if self.place.format.json {
            json(&revoked)?;
        }
        consequences(&revoked).into_iter().for_each(say);
        Ok(DONE)
    }

    /// The token of the grant to release.
    fn grant(&self, lease: Option<Lease>) -> anyhow::Result<Token> {
        let (name, group) = (&self.lease, &self.place.group.name);
        let refuse = |kind, message: String| Err(Error::new(kind, message).into());
        let Some(lease) = lease else {
            return refuse(
                ErrorKind::NotFound,
                format!("lease \"{name}\" is not held in group \"{group}\""),
            );
        };
        let grants = lease.holders.iter().filter(|grant| {
            let asked = self.holder.as_ref();
            asked.is_none_or(|holder| grant.holder == *holder)
        });
        let grants: Vec<_> = grants.collect();
        match (&grants[..], &self.holder) {
            ([grant], _) => Ok(grant.token),
            ([], Some(holder)) => refuse(
                ErrorKind::NotOwner,
                format!(
                    "member \"{holder}\" does not hold lease \"{name}\"; {} holds it",
                    lease.tenure
                ),
            ),
            _ => {
                let several: Vec<_> = lease
                    .holders
                    .iter()
                    .map(|grant| format!("{} (token {})", grant.tenure, grant.token))
                    .collect();
                let message = format!(
                    "lease \"{name}\" has several holders: {}; name one with --holder or --token",
                    several.join(", ")
                );
                refuse(ErrorKind::Invalid, message)
            }
        }
    }
}

/// What happens next, as sentences.
fn consequences(revoked: &Revoked) -> [String; 2] {
    let Revoked {
        lease,
        tenure,
        token,
        free_when,
        free_in,
        ..
    } = revoked;
    let left = brief(*free_in);
    let free = match free_when {
        FreeWhen::Noticed => format!("it is free when its holder has noticed, in {left} at the latest"),
        FreeWhen::TenureEnds => format!(
            "its holder cannot notice (its heartbeats name no revision): it is free when the tenure ends, in {left} without \
             another heartbeat; `tenure expel` ends it now"
        ),
    };
    [format!("released lease \"{lease}\" of {tenure} (token {token})"), free]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn consequences_say_when_the_lease_is_free() {
        let revoked = |free_when| Revoked {
            lease: LeaseName::new("report").unwrap(),
            holder: MemberId::new("a").unwrap(),
            tenure: "a@7".parse().unwrap(),
            token: Token::new(9).unwrap(),
            free_when,
            free_in: Duration::from_secs(20),
        };
        assert_eq!(
            consequences(&revoked(FreeWhen::Noticed)),
            [
                "released lease \"report\" of a@7 (token 9)",
                "it is free when its holder has noticed, in 20s at the latest"
            ]
        );
        assert!(consequences(&revoked(FreeWhen::TenureEnds))[1].contains("`tenure expel`"));
    }
}
