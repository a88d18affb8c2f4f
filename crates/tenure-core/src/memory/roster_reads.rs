//! What the mirror of a roster answers, on one group.

use std::collections::BTreeMap;

use super::decide::Decide;
use super::group::GroupModel;
use super::pages::cut;
use crate::error::Result;
use crate::id::ProviderId;
use crate::ledger::{Candidate, Provider, RosterSettings, RosterStats, Version};
use crate::roster::{
    Availability, CountAvailable, CountRoster, Entry, ListAvailable, ListRows, LookUp, Looked, Ranked, ReadSettings,
    ReadStamp, Rows, SNAPSHOT_AT_MOST_EVERY, Seen, Stamp, Standing, Stats, TOMBSTONES_KEPT, Verified, VerifyRoster,
};
use crate::store::{Call, bad_cursor};
use crate::time::StoreTime;

impl GroupModel {
    /// About the mirror.
    pub(super) fn stamp(&self, now: StoreTime) -> Stamp {
        Stamp {
            seeded: self.roster.seeded,
            high: self.roster.high,
            settings: self.roster.settings.map_or(Version::NONE, |settings| settings.version),
            resumed_at: self.resumed_for_reading(now),
            as_of: now,
        }
    }
}

impl Decide<ReadStamp> for GroupModel {
    fn read(&self, _: &ReadStamp, now: StoreTime) -> Result<Stamp> {
        Ok(self.stamp(now))
    }
}

impl Decide<ReadSettings> for GroupModel {
    fn read(&self, _: &ReadSettings, _: StoreTime) -> Result<Option<RosterSettings>> {
        Ok(self.roster.settings)
    }
}

impl GroupModel {
    fn seen(&self, row: &Provider, now: StoreTime) -> Seen {
        let resumed_at = self.resumed_for_reading(now);
        let standing = match &row.online {
            None => Standing::Offline,
            Some(tenure) if self.is_alive(tenure, resumed_at, now) => Standing::Alive,
            Some(tenure) if self.is_known(tenure) => Standing::Ended,
            Some(_) => Standing::Unknown,
        };
        let live = row.online.as_ref().and_then(|tenure| self.current(tenure));
        let live = live.filter(|_| standing == Standing::Alive);
        let row = Provider {
            last_heartbeat_at: live.map(|live| live.deadline.minus(live.ttl)),
            ..row.clone()
        };
        Seen { row, standing }
    }

    fn is_known(&self, tenure: &crate::id::TenureId) -> bool {
        self.current(tenure).is_some() || self.ended.contains_key(tenure) || self.roster.offlined.contains_key(tenure)
    }

    fn everyone(&self, now: StoreTime) -> impl Iterator<Item = Seen> {
        self.roster.rows.values().map(move |row| self.seen(row, now))
    }
}

impl Decide<ListAvailable> for GroupModel {
    /// Who can take work.
    fn read(&self, ListAvailable { page }: &ListAvailable, now: StoreTime) -> Result<Ranked> {
        let after = Candidate::after(page)?;
        let free = self.everyone(now).filter(Seen::is_available).map(|seen| seen.row);
        let mut free: Vec<Provider> = free.collect();
        free.sort_by(|a, b| (a.occupancy, &a.provider).cmp(&(b.occupancy, &b.provider)));
        let rest = free.iter().filter(|row| {
            let place = (row.occupancy, &row.provider);
            after
                .as_ref()
                .is_none_or(|(occupancy, provider)| place > (*occupancy, provider))
        });
        let page = cut(
            rest,
            page.limit,
            |row| Candidate::cursor(row.occupancy, &row.provider),
            |row| {
                Some(Candidate {
                    provider: row.provider.clone(),
                    occupancy: row.occupancy,
                    capacity: row.capacity,
                })
            },
        );
        Ok(Ranked {
            candidates: page.items,
            next: page.next,
            stamp: self.stamp(now),
        })
    }
}

impl Decide<CountAvailable> for GroupModel {
    /// How many can take work. A step of the model, because it keeps what it counted; it changes nothing else.
    fn step(&mut self, &CountAvailable { snapshot }: &CountAvailable, _: Call, now: StoreTime) -> Result<Availability> {
        let overdue = self.due.first().is_some_and(|(at, _)| *at <= now);
        let kept = self.roster.snapshot.filter(|(as_of, _, changed)| {
            let fresh_for = match *changed || overdue {
                true => snapshot.min(SNAPSHOT_AT_MOST_EVERY),
                false => snapshot,
            };
            now < *as_of + fresh_for && *as_of <= now
        });
        let (as_of, count, _) = kept.unwrap_or_else(|| {
            let count = self.everyone(now).filter(Seen::is_available).count() as u64;
            (now, count, false)
        });
        if kept.is_none() {
            self.roster.snapshot = Some((as_of, count, false));
        }
        Ok(Availability {
            count,
            as_of,
            complete: true,
            stamp: self.stamp(now),
        })
    }
}

impl Decide<LookUp> for GroupModel {
    /// Looks providers up.
    fn read(&self, LookUp { providers }: &LookUp, now: StoreTime) -> Result<Looked> {
        let look = |provider| self.roster.rows.get(provider).map(|row| self.seen(row, now));
        Ok(Looked {
            seen: providers.iter().map(look).collect(),
            stamp: self.stamp(now),
        })
    }
}

impl Decide<ListRows> for GroupModel {
    /// Rows by name.
    fn read(&self, ListRows { page }: &ListRows, now: StoreTime) -> Result<Rows> {
        let after = page.after.as_deref().map(provider_cursor).transpose()?;
        let rows = self.roster.rows.values();
        let rows = rows.filter(|row| after.as_ref().is_none_or(|after| row.provider > *after));
        let page = cut(
            rows,
            page.limit,
            |row| row.provider.to_string(),
            |row| Some(self.seen(row, now)),
        );
        Ok(Rows {
            rows: page.items,
            next: page.next,
            stamp: self.stamp(now),
        })
    }
}

impl Decide<CountRoster> for GroupModel {
    /// Counts.
    fn read(&self, _: &CountRoster, now: StoreTime) -> Result<Stats> {
        let mut stats = RosterStats::default();
        for seen in self.everyone(now) {
            let alive = seen.standing == Standing::Alive;
            stats.online += u64::from(alive);
            stats.available += u64::from(seen.is_available());
            stats.busy += u64::from(alive && !seen.row.has_room());
            stats.offline += u64::from(seen.row.active && !alive);
            stats.deactivated += u64::from(!seen.row.active);
        }
        Ok(Stats {
            stats,
            pending: self.roster.offlined.len() as u64,
            complete: true,
            stamp: self.stamp(now),
        })
    }
}

impl Decide<VerifyRoster> for GroupModel {
    /// Goes through a part: rows, then removals. Nothing can drift here.
    fn step(&mut self, VerifyRoster(request): &VerifyRoster, call: Call, now: StoreTime) -> Result<Verified> {
        let after = match request.after.as_deref() {
            None => None,
            Some(text) => Some(part_cursor(text).ok_or_else(|| bad_cursor(text))?),
        };
        self.open(now, call)?;
        self.roster.gone.retain(|_, (_, at)| now < *at + TOMBSTONES_KEPT);
        let rows = self.roster.rows.values().map(|row| (false, Entry::Row(row.clone())));
        let gone = self.roster.gone.iter().map(|(provider, (version, _))| {
            let gone = Entry::Gone {
                provider: provider.clone(),
                version: *version,
            };
            (true, gone)
        });
        let rest = rows.chain(gone).filter(|(removed, entry)| {
            let place = (*removed, entry.provider());
            after
                .as_ref()
                .is_none_or(|(removed, provider)| place > (*removed, provider))
        });
        let page = cut(
            rest,
            request.limit,
            |(removed, entry)| format!("{}{}", if *removed { 'g' } else { 'r' }, entry.provider()),
            |(_, entry)| Some(entry),
        );
        Ok(Verified {
            entries: page.items,
            repaired: BTreeMap::new(),
            next: page.next,
            stamp: self.stamp(now),
        })
    }
}

fn provider_cursor(text: &str) -> Result<ProviderId> {
    ProviderId::new(text).map_err(|_| bad_cursor(text))
}

fn part_cursor(text: &str) -> Option<(bool, ProviderId)> {
    let removed = match text.as_bytes().first()? {
        b'r' => false,
        b'g' => true,
        _ => return None,
    };
    Some((removed, ProviderId::new(text.get(1..)?).ok()?))
}
