//! The reads of a roster's mirror, for one group.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::decide::Decide;
use super::group::GroupModel;
use super::pages::{behind, cut};
use super::roster::Snapshot;
use crate::error::Result;
use crate::id::{MemberId, ProviderId, TenureId};
use crate::ledger::{Candidate, Provider, RosterSettings, RosterStats, Version};
use crate::roster::{
    Availability, CountAvailable, CountRoster, FoundProviders, ListAvailable, ListRows, LookUp, MAX_OVERDUE,
    MirrorEntry, MirrorStatus, MirroredProvider, Ranked, ReadMirrorStatus, ReadSettings, Rows, SNAPSHOT_AT_MOST_EVERY,
    Standing, Stats, TOMBSTONES_KEPT, Verified, VerifyRoster,
};
use crate::store::{Call, bad_cursor};
use crate::time::StoreTime;

/// The maximum number of old removals that one part forgets.
const FORGET_MOST: usize = 1_000;

impl GroupModel {
    /// The status of the mirror.
    pub(crate) fn mirror_status(&self, now: StoreTime) -> MirrorStatus {
        let marks = self.roster.marks();
        MirrorStatus {
            seeded: marks.seeded,
            high: marks.high,
            settings: marks.settings.map_or(Version::NONE, |settings| settings.version),
            resumed_at: self.resumed_for_reading(now),
            as_of: now,
        }
    }
}

impl Decide<ReadMirrorStatus> for GroupModel {
    fn read(&self, _: &ReadMirrorStatus, now: StoreTime) -> Result<MirrorStatus> {
        Ok(self.mirror_status(now))
    }
}

impl Decide<ReadSettings> for GroupModel {
    fn read(&self, _: &ReadSettings, _: StoreTime) -> Result<Option<RosterSettings>> {
        Ok(self.roster.marks().settings)
    }
}

impl GroupModel {
    fn row_seen(&self, row: &Provider, now: StoreTime) -> MirroredProvider {
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
        MirroredProvider { row, standing }
    }

    fn is_known(&self, tenure: &crate::id::TenureId) -> bool {
        self.current(tenure).is_some()
            || self.ended.get(tenure).is_some()
            || self.roster.offlined.table.contains(tenure)
    }
}

impl Decide<ListAvailable> for GroupModel {
    /// Lists available providers. Many lapsed ones that are not ended make a page short.
    fn read(&self, ListAvailable { page }: &ListAvailable, now: StoreTime) -> Result<Ranked> {
        let after = Candidate::after(page)?;
        let resumed_at = self.resumed_for_reading(now);
        self.see_seats();
        let mut ranked = Ranked {
            candidates: Vec::new(),
            next: None,
            mirror: self.mirror_status(now),
        };
        let (mut looked_at, mut last) = (0, None);
        let most = page.limit as usize + MAX_OVERDUE;
        for (occupancy, provider) in self.roster.seats.free_after(after) {
            if looked_at == most {
                ranked.next = last.map(|(occupancy, provider)| Candidate::cursor(occupancy, provider));
                break;
            }
            looked_at += 1;
            last = Some((*occupancy, provider));
            let row = self.roster.row(provider);
            let alive = |tenure: &TenureId| self.is_alive(tenure, resumed_at, now);
            let Some(row) = row.filter(|row| row.online.as_ref().is_some_and(alive)) else {
                continue;
            };
            if ranked.candidates.len() == page.limit as usize {
                let last = ranked.candidates.last();
                ranked.next = last.map(|last| Candidate::cursor(last.occupancy, &last.provider));
                break;
            }
            ranked.candidates.push(Candidate {
                provider: row.provider.clone(),
                occupancy: row.occupancy,
                capacity: row.capacity,
            });
        }
        Ok(ranked)
    }
}

impl Decide<CountAvailable> for GroupModel {
    /// Counts the available providers. A step of the model, because it keeps the count; it changes nothing else.
    fn step(&mut self, &CountAvailable { snapshot }: &CountAvailable, _: Call, now: StoreTime) -> Result<Availability> {
        let overdue = self.lives.next_due().is_some_and(|at| at <= now);
        let kept = self.roster.snapshot.filter(|kept| {
            let fresh_for = match kept.changed || overdue {
                true => snapshot.min(SNAPSHOT_AT_MOST_EVERY),
                false => snapshot,
            };
            now < kept.as_of + fresh_for && kept.as_of <= now
        });
        let made = kept.unwrap_or_else(|| {
            self.forget_seen();
            let (stats, complete) = self.count_roster(now);
            Snapshot {
                as_of: now,
                count: stats.available,
                complete,
                changed: false,
                step: self.seen(),
            }
        });
        self.roster.snapshot = Some(made);
        self.forget_seen();
        let stamp = self.mirror_status(now);
        self.see_step(made.step);
        Ok(Availability {
            count: made.count,
            as_of: made.as_of,
            complete: made.complete,
            mirror: stamp,
        })
    }
}

impl GroupModel {
    /// Records that the read depends on all provider rows and all tenures.
    fn see_seats(&self) {
        self.roster.seats.rows.see_all();
        self.lives.table.see_all();
    }

    /// Counts providers by state. Checks at most [`MAX_OVERDUE`] of those whose ttl may be over, and subtracts the rest
    /// of them. Returns whether all were checked.
    fn count_roster(&self, now: StoreTime) -> (RosterStats, bool) {
        self.see_seats();
        let resumed_at = self.resumed_for_reading(now);
        let mut overdue = self.lives.due_by(now);
        let looked_at: Vec<_> = overdue.by_ref().take(MAX_OVERDUE).collect();
        let unseen = overdue.count() as u64;
        let is_past = |member: &&&MemberId| {
            let live = self.lives.get(member);
            live.is_some_and(|live| now >= self.end_time(live, resumed_at, now))
        };
        let lapsed = looked_at.iter().filter(is_past).map(|member| ProviderId::from(*member));
        (self.roster.seats.count(lapsed, unseen), unseen == 0)
    }
}

impl Decide<LookUp> for GroupModel {
    fn read(&self, LookUp { providers }: &LookUp, now: StoreTime) -> Result<FoundProviders> {
        let look = |provider| self.roster.row(provider).map(|row| self.row_seen(row, now));
        Ok(FoundProviders {
            providers: providers.iter().map(look).collect(),
            mirror: self.mirror_status(now),
        })
    }
}

impl Decide<ListRows> for GroupModel {
    /// Rows by name.
    fn read(&self, ListRows { page }: &ListRows, now: StoreTime) -> Result<Rows> {
        let after = page.after.as_deref().map(provider_cursor).transpose()?;
        let rows = self.roster.seats.rows.range((behind(after), Bound::Unbounded));
        let rows = rows.map(|(_, row)| &row.provider);
        let page = cut(
            rows,
            page.limit,
            |row| row.provider.to_string(),
            |row| Some(self.row_seen(row, now)),
        );
        Ok(Rows {
            rows: page.items,
            next: page.next,
            mirror: self.mirror_status(now),
        })
    }
}

impl Decide<CountRoster> for GroupModel {
    fn read(&self, _: &CountRoster, now: StoreTime) -> Result<Stats> {
        let (stats, complete) = self.count_roster(now);
        Ok(Stats {
            stats,
            pending: self.roster.offlined.table.len() as u64,
            complete,
            mirror: self.mirror_status(now),
        })
    }
}

impl Decide<VerifyRoster> for GroupModel {
    /// Checks a part: rows, then removals. Nothing can drift here.
    fn step(&mut self, VerifyRoster(request): &VerifyRoster, call: Call, now: StoreTime) -> Result<Verified> {
        let after = match request.after.as_deref() {
            None => None,
            Some(text) => Some(part_cursor(text).ok_or_else(|| bad_cursor(text))?),
        };
        self.open(now, call)?;
        self.roster.forget_gone(TOMBSTONES_KEPT, FORGET_MOST, now);
        let (rows, gone) = match after {
            None => (Some(Bound::Unbounded), Bound::Unbounded),
            Some((false, provider)) => (Some(Bound::Excluded(provider)), Bound::Unbounded),
            Some((true, provider)) => (None, Bound::Excluded(provider)),
        };
        let rows = rows.map(|rows| self.roster.seats.rows.range((rows, Bound::Unbounded)));
        let rows = rows.into_iter().flatten();
        let rows = rows.map(|(_, row)| (false, MirrorEntry::Row(row.provider.clone())));
        let gone = self
            .roster
            .gone
            .range((gone, Bound::Unbounded))
            .map(|(provider, gone)| {
                let gone = MirrorEntry::Gone {
                    provider: provider.clone(),
                    version: gone.version,
                };
                (true, gone)
            });
        let rest = rows.chain(gone);
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
            mirror: self.mirror_status(now),
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
