//! What a mirror answers to those who only ask.

use tenure_core::error::Result;
use tenure_core::id::{Group, ProviderId};
use tenure_core::ledger::{Candidate, Provider, RosterStats};
use tenure_core::roster::{Looked, Ranked, Rows, Seen, Standing, Stats};
use tenure_core::store::PageRequest;
use tenure_core::time::StoreTime;

use super::row;
use super::step::{each, read_stamp, read_standing};
use crate::reply::{Malformed, Read, Reader};
use crate::store::ValkeyStore;

/// How many rows one script reads at most.
const READS: usize = 200;

impl ValkeyStore {
    /// A page of those who can take work.
    pub(super) async fn available_page(&self, group: &Group, page: &PageRequest) -> Result<Ranked> {
        let after = Candidate::after(page)?.map(|(occupancy, provider)| (occupancy.to_string(), provider.into()));
        let (occupancy, provider): (String, String) = after.unwrap_or_default();
        let invocation = Self::reading(group)
            .arg(occupancy)
            .arg(provider)
            .number(u64::from(page.limit));
        self.connection
            .call(&self.scripts.available, invocation, |reader, now| {
                let stamp = read_stamp(reader, now)?;
                let (mut rows, mut candidates) = (reader.array()?, Vec::new());
                while rows.left() > 2 {
                    candidates.push(Candidate {
                        provider: provider_of(&rows.text()?)?,
                        occupancy: small(rows.number()?)?,
                        capacity: small(rows.number()?)?,
                    });
                }
                let (more, occupancy, provider) = (reader.number()? != 0, reader.text()?, reader.text()?);
                Ok(Ranked {
                    candidates,
                    next: more.then(|| format!("{occupancy}/{provider}")),
                    stamp,
                })
            })
            .await
    }

    /// Rows by name, in the order asked.
    pub(super) async fn look_at(&self, group: &Group, providers: &[ProviderId]) -> Result<Looked> {
        let mut parts = providers.chunks(READS);
        let mut looked = self.look_part(group, parts.next().unwrap_or_default()).await?;
        for part in parts {
            let more = self.look_part(group, part).await?;
            looked.seen.extend(more.seen);
            looked.stamp = more.stamp;
        }
        Ok(looked)
    }

    async fn look_part(&self, group: &Group, part: &[ProviderId]) -> Result<Looked> {
        let invocation = Self::reading(group).args(part.iter().map(ProviderId::as_str));
        self.connection
            .call(&self.scripts.look, invocation, |reader, now| {
                let stamp = read_stamp(reader, now)?;
                let found = each(&mut reader.array()?, part.len(), read_found)?;
                let with_names = part.iter().zip(found);
                let seen = with_names
                    .map(|(provider, found)| found.and_then(|found| found.seen(provider)))
                    .collect();
                Ok(Looked { seen, stamp })
            })
            .await
    }

    /// A page of rows.
    pub(super) async fn page_of_rows(&self, group: &Group, page: &PageRequest) -> Result<Rows> {
        let (names, next) = self.page_of_names(group, ("HSCAN", "providers"), page).await?;
        let providers: Vec<ProviderId> = names.iter().filter_map(|name| ProviderId::new(name).ok()).collect();
        let looked = self.look_at(group, &providers).await?;
        Ok(Rows {
            rows: looked.seen.into_iter().flatten().collect(),
            next,
            stamp: looked.stamp,
        })
    }
}

/// A row as `look.lua` gives it.
struct Found {
    packed: Vec<u8>,
    standing: Standing,
    heard_at: StoreTime,
}

fn read_found(rows: &mut Reader) -> Read<Option<Found>> {
    let value = rows.value()?;
    if value == redis::Value::Int(0) {
        return Ok(None);
    }
    let mut row = Reader::new(value)?;
    Ok(Some(Found {
        packed: row.maybe_bytes()?.unwrap_or_default(),
        standing: read_standing(row.number()?)?,
        heard_at: row.time()?,
    }))
}

impl Found {
    /// `None` for one that is damaged.
    fn seen(self, provider: &ProviderId) -> Option<Seen> {
        let row = row::unpack(provider, &self.packed)?;
        let alive = self.standing == Standing::Alive;
        let row = Provider {
            last_heartbeat_at: alive.then_some(self.heard_at),
            ..row
        };
        let standing = self.standing;
        Some(Seen { row, standing })
    }
}

/// Makes counts of what `roster_stats.lua` gives. Of those that were not looked at nobody knows where they are: they are not
/// counted as online, nor as anything that follows from it.
pub(super) fn read_stats(reader: &mut Reader, now: StoreTime) -> Read<Stats> {
    let stamp = read_stamp(reader, now)?;
    let mut count = || reader.number();
    let (free, busy, barred, left) = (count()?, count()?, count()?, count()?);
    let (rows, deactivated, pending) = (count()?, count()?, count()?);
    Ok(Stats {
        stats: RosterStats {
            online: (free + busy + barred).saturating_sub(left),
            available: free.saturating_sub(left),
            busy: (busy + barred).saturating_sub(left),
            offline: rows.saturating_sub(deactivated + free + busy),
            deactivated,
            dirty: 0,
        },
        pending,
        complete: left == 0,
        stamp,
    })
}

fn provider_of(name: &str) -> Read<ProviderId> {
    ProviderId::new(name).map_err(|_| Malformed(format!("{name:?} in place of a provider")))
}

fn small(number: u64) -> Read<u32> {
    u32::try_from(number).map_err(|_| Malformed(format!("{number} engagements")))
}
