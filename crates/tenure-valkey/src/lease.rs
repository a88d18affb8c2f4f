//! Leases: who holds a target, and with which fencing token.

mod outcome;
mod revoke;
mod row;
mod wait;

pub(crate) use wait::Turns;

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::error::{Error, Result};
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::{
    Acquire, Acquired, HeldLeases, Lease, LeaseOf, Leases, LeasesOf, ReleaseLeases, ReleasedLeases,
};
use tenure_core::membership::Revision;
use tenure_core::store::{Call, Page};

use self::outcome::{read_acquire_refusal, read_acquired, read_released};
use self::row::LeaseRow;
use self::wait::wait_args;
use crate::registry::{read_outcomes, read_refusal};
use crate::store::ValkeyStore;
use crate::view::{Liveness, PackedTenure, foreign};

#[async_trait]
impl Serve<Acquire> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Acquire, call: Call) -> Result<Acquired> {
        let Acquire {
            tenure,
            leases,
            holders,
            seen,
            queue,
        } = &ask;
        if let Some(queue) = queue {
            // Before the request joins, so that its turn is not lost.
            self.turns.of(&queue.node, &self.connection).await;
        }
        let invocation = self
            .timely_call(group, call)
            .confirmed()
            .arg(tenure.member().as_str())
            .number(tenure.term().get())
            .number(u64::from(holders.get()))
            .args(wait_args(queue.as_ref()))
            .number(seen.0)
            .args(leases.iter().map(LeaseName::as_str));
        let answer = self
            .connection
            .call(&self.scripts.acquire, invocation, |reader, now| {
                Ok(match read_acquire_refusal(reader)? {
                    Some(reason) => Err(reason),
                    None => Ok(Acquired {
                        outcomes: read_outcomes(reader, leases.len(), read_acquired)?,
                        revision: Revision(reader.number()?),
                        expires_in: Duration::from_micros(reader.number()?),
                        before: Revision(reader.number()?),
                        ttl: Some(Duration::from_micros(reader.number()?)),
                        as_of: now,
                    }),
                })
            })
            .await?;
        answer.map_err(|refusal| refusal.into_error(tenure, leases))
    }
}

#[async_trait]
impl Serve<ReleaseLeases> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: ReleaseLeases, call: Call) -> Result<ReleasedLeases> {
        let ReleaseLeases {
            tenure,
            leases,
            to,
            seen,
        } = &ask;
        let invocation = self
            .timely_call(group, call)
            .confirmed()
            .arg(tenure.member().as_str())
            .number(tenure.term().get())
            .arg(to.as_ref().map_or("", MemberId::as_str))
            .number(seen.0)
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
        Ok(self.leases_by_name(group, &[ask.lease.to_string()], None).await?.pop())
    }
}

#[async_trait]
impl Serve<Leases> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: Leases, _: Call) -> Result<Page<Lease>> {
        let Some(holder) = &ask.holder else {
            let (names, next) = self.page_of_names(group, ("HSCAN", "leases"), &ask.page).await?;
            let items = self.leases_by_name(group, &names, None).await?;
            return Ok(Page { items, next });
        };
        let (held, next) = self.page_of_holdings(group, holder, "leased", &Some, &ask.page).await?;
        let mut names: Vec<String> = held.iter().map(|(_, lease)| lease.clone()).collect();
        names.sort();
        names.dedup();
        let (liveness, rows) = self.lease_rows(group, &names).await?;
        let rows: HashMap<&str, &LeaseRow> = rows.iter().map(|row| (row.name(), row)).collect();
        let mut items = Vec::with_capacity(held.len());
        for (tenure, lease) in &held {
            let tenure: TenureId = tenure.parse().map_err(foreign)?;
            let row = rows.get(lease.as_str());
            let lease = row.map(|row| row.lease(&liveness, Some(&tenure))).transpose()?;
            // A lease that was taken over in the meantime no longer belongs to this tenure.
            items.extend(lease.flatten().filter(|lease| lease.tenure == tenure));
        }
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
        let mut items = self.leases_by_name(group, &names, Some(tenure)).await?;
        // A lease that an operator released is not among those that the tenure may act under.
        items.retain(|lease| {
            let own = lease.holders.iter().find(|holder| holder.tenure == *tenure);
            own.is_some_and(|own| !own.revoked)
        });
        Ok(HeldLeases {
            page: Page { items, next },
            revision,
        })
    }
}

impl ValkeyStore {
    /// The held leases among these names, in the order asked. `of` chooses the holder of their single fields.
    async fn leases_by_name(&self, group: &Group, names: &[String], of: Option<&TenureId>) -> Result<Vec<Lease>> {
        let (liveness, rows) = self.lease_rows(group, names).await?;
        let leases = rows.iter().map(|row| row.lease(&liveness, of).transpose());
        leases.flatten().collect()
    }

    async fn lease_rows(&self, group: &Group, names: &[String]) -> Result<(Liveness, Vec<LeaseRow>)> {
        let invocation = Self::read_call(group).args(names);
        self.connection
            .call(&self.scripts.leases_by_name, invocation, |reader, now| {
                Ok((Liveness::read(reader, now)?, LeaseRow::read_all(reader)?))
            })
            .await
    }
}
