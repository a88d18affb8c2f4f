//! The reads of a roster mirror.

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::error::Result;
use tenure_core::id::{Group, ProviderId};
use tenure_core::ledger::{Candidate, Provider, RosterStats};
use tenure_core::roster::{
    Availability, CountAvailable, CountRoster, FoundProviders, ListAvailable, ListRows, LookUp, MirrorStatus,
    MirroredProvider, Ranked, ReadMirrorStatus, RosterMirror, Rows, Standing, Stats,
};
use tenure_core::store::Call;
use tenure_core::time::{StoreTime, micros};

use super::row;
use super::step::{each, read_stamp, read_standing};
use crate::reply::{Malformed, Read, Reader};
use crate::store::ValkeyStore;

#[async_trait]
impl Serve<ListAvailable> for ValkeyStore {
    async fn serve(&self, group: &Group, ListAvailable { page }: ListAvailable, _: Call) -> Result<Ranked> {
        let after = Candidate::after(&page)?.map(|(occupancy, provider)| (occupancy.to_string(), provider.into()));
        let (occupancy, provider): (String, String) = after.unwrap_or_default();
        let invocation = Self::read_call(group)
            .arg(occupancy)
            .arg(provider)
            .number(u64::from(page.limit));
        self.connection
            .call(&self.scripts.available, invocation, |reader, now| {
                let stamp = read_stamp(reader, now)?;
                let (names, places) = (reader.array()?, reader.maybe_bytes()?.unwrap_or_default());
                let candidates = read_candidates(names, &places)?;
                let (more, occupancy, provider) = (reader.number()? != 0, reader.text()?, reader.text()?);
                Ok(Ranked {
                    candidates,
                    next: more.then(|| format!("{occupancy}/{provider}")),
                    mirror: stamp,
                })
            })
            .await
    }
}

#[async_trait]
impl Serve<CountAvailable> for ValkeyStore {
    async fn serve(&self, group: &Group, ask: CountAvailable, _: Call) -> Result<Availability> {
        let invocation = Self::read_call(group).number(micros(ask.snapshot));
        self.connection
            .call(&self.scripts.availability, invocation, |reader, now| {
                let stamp = read_stamp(reader, now)?;
                Ok(Availability {
                    count: reader.number()?,
                    as_of: reader.time()?,
                    complete: reader.number()? == 0,
                    mirror: stamp,
                })
            })
            .await
    }
}

#[async_trait]
impl Serve<LookUp> for ValkeyStore {
    async fn serve(&self, group: &Group, LookUp { providers }: LookUp, _: Call) -> Result<FoundProviders> {
        let invocation = Self::read_call(group).args(providers.iter().map(ProviderId::as_str));
        self.connection
            .call(&self.scripts.look, invocation, |reader, now| {
                let stamp = read_stamp(reader, now)?;
                let found = each(&mut reader.array()?, providers.len(), read_found)?;
                let with_names = providers.iter().zip(found);
                let seen = with_names
                    .map(|(provider, found)| found.and_then(|found| found.seen(provider)))
                    .collect();
                Ok(FoundProviders {
                    providers: seen,
                    mirror: stamp,
                })
            })
            .await
    }
}

#[async_trait]
impl Serve<ListRows> for ValkeyStore {
    async fn serve(&self, group: &Group, ListRows { page }: ListRows, _: Call) -> Result<Rows> {
        let (names, next) = self.page_of_names(group, ("HSCAN", "providers"), &page).await?;
        let providers: Vec<ProviderId> = names.iter().filter_map(|name| ProviderId::new(name).ok()).collect();
        let looked = self.look(group, &providers).await?;
        Ok(Rows {
            rows: looked.providers.into_iter().flatten().collect(),
            next,
            mirror: looked.mirror,
        })
    }
}

#[async_trait]
impl Serve<CountRoster> for ValkeyStore {
    async fn serve(&self, group: &Group, _: CountRoster, _: Call) -> Result<Stats> {
        self.connection
            .call(&self.scripts.roster_stats, Self::read_call(group), read_stats)
            .await
    }
}

#[async_trait]
impl Serve<ReadMirrorStatus> for ValkeyStore {
    async fn serve(&self, group: &Group, _: ReadMirrorStatus, _: Call) -> Result<MirrorStatus> {
        self.connection
            .call(&self.scripts.stamp, Self::read_call(group), read_stamp)
            .await
    }
}

/// A row as returned by `look.lua`.
struct ProviderRow {
    packed: Vec<u8>,
    standing: Standing,
    heard_at: StoreTime,
}

fn read_found(rows: &mut Reader) -> Read<Option<ProviderRow>> {
    let value = rows.value()?;
    if value == redis::Value::Int(0) {
        return Ok(None);
    }
    let mut row = Reader::new(value)?;
    Ok(Some(ProviderRow {
        packed: row.maybe_bytes()?.unwrap_or_default(),
        standing: read_standing(row.number()?)?,
        heard_at: row.time()?,
    }))
}

impl ProviderRow {
    /// `None` for a damaged row.
    fn seen(self, provider: &ProviderId) -> Option<MirroredProvider> {
        let row = row::unpack(provider, &self.packed)?;
        let alive = self.standing == Standing::Alive;
        let row = Provider {
            last_heartbeat_at: alive.then_some(self.heard_at),
            ..row
        };
        let standing = self.standing;
        Some(MirroredProvider { row, standing })
    }
}

/// Converts the counters of `roster_stats.lua`. Overdue members that were not checked have an unknown state: they count
/// as neither online nor available.
fn read_stats(reader: &mut Reader, now: StoreTime) -> Read<Stats> {
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
        mirror: stamp,
    })
}

fn provider_of(name: &str) -> Read<ProviderId> {
    ProviderId::new(name).map_err(|_| Malformed(format!("{name:?} in place of a provider")))
}

/// Available providers: their names, and for each its occupancy and capacity.
fn read_candidates(mut names: Reader, places: &[u8]) -> Read<Vec<Candidate>> {
    let (pairs, rest) = places.as_chunks::<8>();
    if pairs.len() != names.left() || !rest.is_empty() {
        return Err(Malformed(format!(
            "{} bytes for {} providers",
            places.len(),
            names.left()
        )));
    }
    let mut candidates = Vec::with_capacity(pairs.len());
    for [a, b, c, d, e, f, g, h] in pairs.iter().copied() {
        candidates.push(Candidate {
            provider: provider_of(&names.text()?)?,
            occupancy: u32::from_le_bytes([a, b, c, d]),
            capacity: u32::from_le_bytes([e, f, g, h]),
        });
    }
    Ok(candidates)
}
