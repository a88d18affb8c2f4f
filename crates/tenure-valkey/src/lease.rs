//! Leases: who holds a target, and with which fencing token.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::error::{Error, Result};
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::{
    Acquire, AcquireOutcome, Acquired, HeldLeases, Lease, LeaseOf, Leases, LeasesOf, ReleaseLeases, ReleaseOutcome,
    ReleasedLeases, Token,
};
use tenure_core::membership::Revision;
use tenure_core::settling::GapCause;
use tenure_core::store::{Call, Page};

use crate::registry::{read_outcomes, read_refusal};
use crate::reply::{Malformed, Read, Reader, parse};
use crate::store::ValkeyStore;
use crate::view::{Liveness, PackedTenure, foreign};

#[async_trait]
impl Serve<Acquire> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Acquire, call: Call) -> Result<Acquired> {
        let Acquire { tenure, leases } = &ask;
        let invocation = self
            .timely_call(group, call)
            .confirmed()
            .arg(tenure.member().as_str())
            .number(tenure.term().get())
            .args(leases.iter().map(LeaseName::as_str));
        let answer = self
            .connection
            .call(&self.scripts.acquire, invocation, |reader, now| {
                Ok(match read_refusal(reader)? {
                    Some(reason) => Err(reason),
                    None => Ok(Acquired {
                        outcomes: read_outcomes(reader, leases.len(), read_acquired)?,
                        revision: Revision(reader.number()?),
                        expires_in: Duration::from_micros(reader.number()?),
                        before: Revision(reader.number()?),
                        as_of: now,
                    }),
                })
            })
            .await?;
        answer.map_err(|reason| Error::ended(tenure, reason))
    }
}

#[async_trait]
impl Serve<ReleaseLeases> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: ReleaseLeases, call: Call) -> Result<ReleasedLeases> {
        let ReleaseLeases { tenure, leases, to } = &ask;
        let invocation = self
            .timely_call(group, call)
            .confirmed()
            .arg(tenure.member().as_str())
            .number(tenure.term().get())
            .arg(to.as_ref().map_or("", MemberId::as_str))
            .args(
                leases
                    .iter()
                    .flat_map(|(lease, token)| [lease.to_string(), token.to_string()]),
            );
        let answer = self
            .connection
            .call(&self.scripts.release_leases, invocation, |reader, now| {
                Ok(match read_refusal(reader)? {
                    Some(reason) => Err(reason),
                    None => Ok(ReleasedLeases {
                        outcomes: read_outcomes(reader, leases.len(), read_released)?,
                        revision: Revision(reader.number()?),
                        before: Revision(reader.number()?),
                        as_of: now,
                    }),
                })
            })
            .await?;
        answer.map_err(|reason| Error::ended(tenure, reason))
    }
}

#[async_trait]
impl Serve<LeaseOf> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: LeaseOf, _: Call) -> Result<Option<Lease>> {
        Ok(self.leases_by_name(group, &[ask.lease.to_string()]).await?.pop())
    }
}

#[async_trait]
impl Serve<Leases> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Leases, _: Call) -> Result<Page<Lease>> {
        let Some(holder) = &ask.holder else {
            let (names, next) = self.page_of_names(group, ("HSCAN", "leases"), &ask.page).await?;
            let items = self.leases_by_name(group, &names).await?;
            return Ok(Page { items, next });
        };
        let (held, next) = self.page_of_holdings(group, holder, "leased", &Some, &ask.page).await?;
        let names: Vec<String> = held.iter().map(|(_, lease)| lease.clone()).collect();
        // A lease that was taken over in the meantime no longer belongs to this tenure.
        let held: HashSet<(String, String)> = held.into_iter().collect();
        let mut items = self.leases_by_name(group, &names).await?;
        items.retain(|lease| held.contains(&(lease.tenure.to_string(), lease.lease.to_string())));
        Ok(Page { items, next })
    }
}

#[async_trait]
impl Serve<LeasesOf> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: LeasesOf, _: Call) -> Result<HeldLeases> {
        let LeasesOf { tenure, page } = &ask;
        // Read before the listing: a change in between then shows as an older number.
        let (_, rows) = self.members_of(group, [tenure.member().as_str()]).await?;
        let current = rows.first().map(|row| PackedTenure::read(&row.packed)).transpose()?;
        let revision = current
            .filter(|current| current.term == tenure.term())
            .map_or(Revision::NONE, |current| current.revision);
        let set = format!("leased:{tenure}");
        let (names, next) = self.page_of_names(group, ("SSCAN", &set), page).await?;
        let mut items = self.leases_by_name(group, &names).await?;
        items.retain(|lease| lease.tenure == *tenure);
        Ok(HeldLeases {
            page: Page { items, next },
            revision,
        })
    }
}

impl ValkeyStore {
    /// The held leases among these names, in the order asked.
    async fn leases_by_name(&self, group: &Group, names: &[String]) -> Result<Vec<Lease>> {
        let (liveness, rows) = self
            .connection
            .call(
                &self.scripts.leases_by_name,
                Self::read_call(group).args(names),
                |reader, now| Ok((Liveness::read(reader, now)?, read_leases(reader)?)),
            )
            .await?;
        rows.into_iter().map(|row| row.lease(&liveness)).collect()
    }
}

/// A lease as returned by the reading script.
struct LeaseRow {
    lease: String,
    holder: String,
    current: Vec<u8>,
    ended: String,
}

impl LeaseRow {
    fn lease(self, liveness: &Liveness) -> Result<Lease> {
        let (tenure, token) = self
            .holder
            .split_once(' ')
            .ok_or_else(|| foreign("a lease without a token"))?;
        let tenure: TenureId = tenure.parse().map_err(foreign)?;
        let current = match self.current.is_empty() {
            true => None,
            false => Some(PackedTenure::read(&self.current)?),
        };
        Ok(Lease {
            lease: LeaseName::new(&self.lease).map_err(foreign)?,
            holder: tenure.member().clone(),
            token: Token::new(token.parse().map_err(foreign)?).map_err(foreign)?,
            alive: liveness.is_alive(&tenure, current.as_ref()),
            expires_in: liveness.free_in(&tenure, current.as_ref(), &self.ended),
            tenure,
        })
    }
}

fn read_leases(reader: &mut Reader) -> Read<Vec<LeaseRow>> {
    let mut rows = reader.array()?;
    let mut found = Vec::with_capacity(rows.left());
    while rows.left() > 0 {
        let mut row = rows.array()?;
        found.push(LeaseRow {
            lease: row.text()?,
            holder: row.text()?,
            current: row.maybe_bytes()?.unwrap_or_default(),
            ended: row.text()?,
        });
    }
    Ok(found)
}

fn read_token(text: &str) -> Read<Token> {
    let number = parse("a token", text)?;
    Token::new(number).map_err(|_| Malformed(format!("the token {number}")))
}

/// Parses the result of `acquire.lua` for one lease.
fn read_acquired(text: &str) -> Read<AcquireOutcome> {
    let wrong = || Malformed("not an acquire outcome".to_owned());
    let kind = text.get(..1).ok_or_else(wrong)?;
    let (number, name) = text[1..].split_once(' ').unwrap_or((&text[1..], ""));
    let wait = || Ok::<_, Malformed>(Duration::from_micros(parse("a time", number)?));
    Ok(match (kind, name) {
        ("g", "") => AcquireOutcome::Granted {
            token: read_token(number)?,
            from: None,
        },
        ("g", from) => AcquireOutcome::Granted {
            token: read_token(number)?,
            from: Some(parse("a tenure", from)?),
        },
        ("k", "") => AcquireOutcome::Kept {
            token: read_token(number)?,
        },
        ("h", by) => AcquireOutcome::Held {
            by: parse("a tenure", by)?,
            free_in: wait()?,
        },
        ("r", to) => AcquireOutcome::Reserved {
            to: MemberId::new(to).map_err(|_| wrong())?,
            free_in: wait()?,
        },
        ("u", cause) => AcquireOutcome::Unsettled {
            retry_in: wait()?,
            cause: GapCause::parse(cause).ok_or_else(wrong)?,
        },
        _ => return Err(wrong()),
    })
}

/// Parses the result of `release_leases.lua` for one lease.
fn read_released(text: &str) -> Read<ReleaseOutcome> {
    match (text.get(..1), text.get(1..)) {
        (Some("f"), Some("")) => Ok(ReleaseOutcome::Released),
        (Some("r"), Some("")) => Ok(ReleaseOutcome::Reserved),
        (Some("n"), Some(by)) => Ok(ReleaseOutcome::NotHolder {
            by: parse("a tenure", by)?,
        }),
        _ => Err(Malformed("not a release outcome".to_owned())),
    }
}
