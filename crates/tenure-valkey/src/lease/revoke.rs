//! The release of a lease by an operator.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::{Group, LeaseName, TenureId};
use tenure_core::lease::{FreeWhen, RevokeLease, RevokeOf, Revoked};
use tenure_core::store::Call;

use super::row::read_token;
use crate::reply::{Malformed, Read, Reader, parse};
use crate::store::ValkeyStore;

#[async_trait]
impl Serve<RevokeLease> for ValkeyStore {
    async fn serve(&self, group: &Group, RevokeLease { lease, of }: RevokeLease, call: Call) -> Result<Revoked> {
        let (by, named) = match of {
            RevokeOf::Holder(member) => ("holder", member.to_string()),
            RevokeOf::Token(token) => ("token", token.to_string()),
            RevokeOf::Any => ("any", String::new()),
        };
        let invocation = self.timely_call(group, call).args([lease.as_str(), by, &named]);
        let answer = self
            .connection
            .call(&self.scripts.revoke, invocation, |reader, _| {
                read_answer(reader, &lease)
            })
            .await?;
        answer.map_err(|refusal| refusal.into_error(&lease))
    }
}

/// Why nothing was released.
enum Refusal {
    Free,
    Many(u64),
    NotHolder(TenureId),
}

impl Refusal {
    fn into_error(self, lease: &LeaseName) -> Error {
        match self {
            Self::Free => Error::new(ErrorKind::NotFound, format!("the lease {lease} has no holder")),
            Self::Many(holders) => Error::invalid(format!(
                "the lease {lease} has {holders} holders; name one by its member or token"
            )),
            Self::NotHolder(holder) => {
                let message = format!("the lease {lease} is not held by the named member or token");
                Error::new(ErrorKind::NotOwner, message).with_holder(holder)
            }
        }
    }
}

fn read_answer(reader: &mut Reader, lease: &LeaseName) -> Read<Result<Revoked, Refusal>> {
    match reader.text()?.as_str() {
        "free" => Ok(Err(Refusal::Free)),
        "many" => Ok(Err(Refusal::Many(reader.number()?))),
        "other" => Ok(Err(Refusal::NotHolder(parse("a tenure", &reader.text()?)?))),
        "ok" => {
            let tenure: TenureId = parse("a tenure", &reader.text()?)?;
            Ok(Ok(Revoked {
                lease: lease.clone(),
                holder: tenure.member().clone(),
                token: read_token(&reader.text()?)?,
                free_when: match reader.number()? {
                    0 => FreeWhen::TenureEnds,
                    _ => FreeWhen::Noticed,
                },
                free_in: Duration::from_micros(reader.number()?),
                tenure,
            }))
        }
        other => Err(Malformed(format!(
            "{:?} in place of an answer",
            other.chars().take(20).collect::<String>()
        ))),
    }
}
