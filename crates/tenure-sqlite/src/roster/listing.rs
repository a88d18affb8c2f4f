//! What is asked about a roster: order and counts from memory, rows from a snapshot of the file, and who is alive from
//! the live table.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};
use tenure_core::call::Serve;
use tenure_core::ledger::{Candidate, Provider, RosterSettings, RosterStats, Version};
use tenure_core::roster::{
    Availability, CountAvailable, CountRoster, ListAvailable, ListRows, LookUp, Looked, MAX_OVERDUE, Ranked,
    ReadSettings, ReadStamp, Rows, SNAPSHOT_AT_MOST_EVERY, Seen, Stamp, Standing, Stats,
};
use tenure_core::store::{Call, bad_cursor};
use tenure_core::{Group, MemberId, ProviderId, Result, StoreTime, TenureId};

use super::row::read_row;
use super::table::{Snapshot, named};
use crate::error::Cause;
use crate::group::Meta;
use crate::live::{Live, Table};
use crate::page::{Listing, cursor, cut, place};
use crate::sql::statements;
use crate::step::Step;
use crate::store::SqliteStore;

statements! { "roster.sql":
    ONE = "one",
    PAGE = "page",
}

/// How often rows are read again when their tenures ended or began in between.
const LOOKS: u32 = 8;

/// A row, and whether the file knows that its tenure has ended.
struct RowRead {
    row: Provider,
    ended: bool,
}

/// What was read.
#[derive(Default)]
struct Found {
    rows: Vec<Option<RowRead>>,
    next: Option<String>,
}

fn stamp(meta: &Meta, resumed_at: StoreTime, as_of: StoreTime) -> Stamp {
    let settings = meta.roster.settings;
    Stamp {
        seeded: meta.roster.seeded,
        high: meta.roster.high,
        settings: settings.map_or(Version::NONE, |settings| settings.version),
        resumed_at,
        as_of,
    }
}

impl Step<'_> {
    /// About the mirror, within this step.
    pub(super) fn stamp(&self) -> Stamp {
        stamp(self.meta, self.meta.resumed_at, self.now)
    }
}

impl Table {
    /// About the mirror, as committed.
    pub(super) fn stamp(&self, now: StoreTime) -> Stamp {
        stamp(&self.meta, self.resumed_for_reading(now), now)
    }

    /// Counts without touching everyone: those whose ttl may be over are looked at, [`MAX_OVERDUE`] of them at most, and
    /// the others of them are taken off. Answers whether there were no others.
    fn count_roster(&self, now: StoreTime) -> (RosterStats, bool) {
        let resumed_at = self.resumed_for_reading(now);
        let mut overdue = self.due.iter().take_while(|(at, _)| *at <= now);
        let is_past = |member: &MemberId| {
            let entry = self.members.get(member);
            entry.is_some_and(|entry| now >= entry.end(resumed_at, now))
        };
        let looked_at: Vec<_> = overdue.by_ref().take(MAX_OVERDUE).collect();
        let unseen = overdue.count() as u64;
        let lapsed = looked_at.into_iter().filter(|(_, member)| is_past(member));
        let lapsed = lapsed.map(|(_, member)| ProviderId::from(member));
        (self.roster.count(lapsed, unseen), unseen == 0)
    }

    /// The snapshot of the available, made anew when it is too old.
    fn snapshot(&mut self, at_most: Duration, now: StoreTime) -> Snapshot {
        let overdue = self.due.first().is_some_and(|(at, _)| *at <= now);
        let kept = self.roster.snapshot.filter(|kept| {
            let fresh_for = match kept.changed || overdue {
                true => at_most.min(SNAPSHOT_AT_MOST_EVERY),
                false => at_most,
            };
            now < kept.as_of + fresh_for && kept.as_of <= now
        });
        if let Some(kept) = kept {
            return kept;
        }
        let (stats, complete) = self.count_roster(now);
        let made = Snapshot {
            as_of: now,
            count: stats.available,
            complete,
            changed: false,
        };
        self.roster.snapshot = Some(made);
        made
    }

    /// A page of those who can take work. Many that have lapsed and were not ended yet make it short.
    fn ranked(&self, after: Option<&(u32, ProviderId)>, limit: u32, now: StoreTime) -> Ranked {
        let resumed_at = self.resumed_for_reading(now);
        let is_alive = |provider: &ProviderId| {
            let entry = self.members.get(&provider.member());
            entry.is_some_and(|entry| now < entry.end(resumed_at, now))
        };
        let (mut candidates, mut last, mut next) = (Vec::new(), None, None);
        for (n, (provider, head)) in self.roster.free_after(after).enumerate() {
            if candidates.len() >= limit as usize || n >= limit as usize + MAX_OVERDUE {
                next = last.map(|(occupancy, provider)| Candidate::cursor(occupancy, provider));
                break;
            }
            last = Some((head.occupancy, provider));
            if is_alive(provider) {
                candidates.push(Candidate {
                    provider: provider.clone(),
                    occupancy: head.occupancy,
                    capacity: head.capacity,
                });
            }
        }
        Ranked {
            candidates,
            next,
            stamp: self.stamp(now),
        }
    }
}

impl SqliteStore {
    /// About the mirror of a group that does not exist.
    pub(super) fn stamp_of_none(&self) -> Stamp {
        let now = self.clock().now();
        Stamp {
            seeded: false,
            high: Version::NONE,
            settings: Version::NONE,
            resumed_at: now,
            as_of: now,
        }
    }

    /// Reads rows and joins them with the live table. A tenure of which neither knows may have ended in between, so the
    /// rows are read again, until nothing is new among those that nobody knows.
    async fn rows_seen(
        &self,
        live: &Live,
        read: impl Fn(&Connection) -> Result<Found, Cause> + Clone + Send + 'static,
    ) -> Result<(Vec<Option<Seen>>, Option<String>, Stamp)> {
        let mut before = HashSet::new();
        for look in 1.. {
            let found = self.read(read.clone()).await?;
            let done = live.look(self.clock(), |table, now| {
                let unknown = table.unknown_among(&found.rows);
                if look < LOOKS && !unknown.is_subset(&before) {
                    before = unknown;
                    return Err(found);
                }
                let seen = |read: Option<RowRead>| read.map(|read| table.seen_row(read, now));
                Ok((found.rows.into_iter().map(seen).collect(), found.next, table.stamp(now)))
            });
            if let Ok(done) = done {
                return Ok(done);
            }
        }
        Ok((Vec::new(), None, self.stamp_of_none()))
    }
}

#[async_trait]
impl Serve<ListAvailable> for SqliteStore {
    async fn serve(&self, group: &Group, ask: ListAvailable, _: Call) -> Result<Ranked> {
        let after = Candidate::after(&ask.page)?;
        let Some(live) = self.live(group)? else {
            return Ok(Ranked {
                candidates: Vec::new(),
                next: None,
                stamp: self.stamp_of_none(),
            });
        };
        Ok(live.look(self.clock(), |table, now| {
            table.ranked(after.as_ref(), ask.page.limit, now)
        }))
    }
}

#[async_trait]
impl Serve<CountAvailable> for SqliteStore {
    async fn serve(&self, group: &Group, ask: CountAvailable, _: Call) -> Result<Availability> {
        let Some(live) = self.live(group)? else {
            let stamp = self.stamp_of_none();
            return Ok(Availability {
                count: 0,
                as_of: stamp.as_of,
                complete: true,
                stamp,
            });
        };
        let mut table = live.lock();
        let now = self.clock().now();
        let snapshot = table.snapshot(ask.snapshot, now);
        Ok(Availability {
            count: snapshot.count,
            as_of: snapshot.as_of,
            complete: snapshot.complete,
            stamp: table.stamp(now),
        })
    }
}

#[async_trait]
impl Serve<CountRoster> for SqliteStore {
    async fn serve(&self, group: &Group, _: CountRoster, _: Call) -> Result<Stats> {
        let Some(live) = self.live(group)? else {
            return Ok(Stats {
                stats: RosterStats::default(),
                pending: 0,
                complete: true,
                stamp: self.stamp_of_none(),
            });
        };
        Ok(live.look(self.clock(), |table, now| {
            let (stats, complete) = table.count_roster(now);
            Stats {
                stats,
                pending: table.meta.roster.pending_offline(),
                complete,
                stamp: table.stamp(now),
            }
        }))
    }
}

#[async_trait]
impl Serve<LookUp> for SqliteStore {
    async fn serve(&self, group: &Group, ask: LookUp, _: Call) -> Result<Looked> {
        let Some(live) = self.live(group)? else {
            return Ok(Looked {
                seen: vec![None; ask.providers.len()],
                stamp: self.stamp_of_none(),
            });
        };
        let id = live.id;
        let read = move |sql: &Connection| found_by_name(sql, id, &ask.providers);
        let (seen, _, stamp) = self.rows_seen(&live, read).await?;
        Ok(Looked { seen, stamp })
    }
}

#[async_trait]
impl Serve<ListRows> for SqliteStore {
    async fn serve(&self, group: &Group, ask: ListRows, _: Call) -> Result<Rows> {
        let page = ask.page;
        let text = page.after.as_deref();
        let after = text.map_or(Some(""), |text| place(Listing::Providers, text));
        let after = after.ok_or_else(|| bad_cursor(text.unwrap_or_default()))?.to_owned();
        let Some(live) = self.live(group)? else {
            return Ok(Rows {
                rows: Vec::new(),
                next: None,
                stamp: self.stamp_of_none(),
            });
        };
        let (id, limit) = (live.id, page.limit);
        let read = move |sql: &Connection| found_after(sql, id, &after, limit);
        let (rows, next, stamp) = self.rows_seen(&live, read).await?;
        Ok(Rows {
            rows: rows.into_iter().flatten().collect(),
            next,
            stamp,
        })
    }
}

#[async_trait]
impl Serve<ReadStamp> for SqliteStore {
    async fn serve(&self, group: &Group, _: ReadStamp, _: Call) -> Result<Stamp> {
        Ok(match self.live(group)? {
            Some(live) => live.look(self.clock(), |table, now| table.stamp(now)),
            None => self.stamp_of_none(),
        })
    }
}

#[async_trait]
impl Serve<ReadSettings> for SqliteStore {
    async fn serve(&self, group: &Group, _: ReadSettings, _: Call) -> Result<Option<RosterSettings>> {
        let live = self.live(group)?;
        Ok(live.and_then(|live| live.lock().meta.roster.settings))
    }
}

impl Table {
    /// The tenures that rows name and of which neither the file knew nor this table knows.
    fn unknown_among(&self, rows: &[Option<RowRead>]) -> HashSet<TenureId> {
        let undecided = rows.iter().flatten().filter(|read| !read.ended);
        let tenures = undecided.filter_map(|read| named(&read.row));
        tenures.filter(|tenure| self.seen(tenure).is_none()).cloned().collect()
    }

    /// A row as it stands now.
    fn seen_row(&self, read: RowRead, now: StoreTime) -> Seen {
        let RowRead { mut row, ended } = read;
        let resumed_at = self.resumed_for_reading(now);
        let tenure = named(&row);
        let entry = tenure.and_then(|tenure| self.seen(tenure));
        let standing = match (tenure, entry) {
            (None, _) => Standing::Offline,
            (_, Some(entry)) if now < entry.end(resumed_at, now) => Standing::Alive,
            (_, Some(_)) => Standing::Ended,
            _ if ended => Standing::Ended,
            _ => Standing::Unknown,
        };
        let entry = entry.filter(|_| standing == Standing::Alive);
        row.last_heartbeat_at = entry.map(|entry| entry.deadline.minus(entry.ttl));
        Seen { row, standing }
    }
}

fn found_by_name(sql: &Connection, id: i64, providers: &[ProviderId]) -> Result<Found, Cause> {
    let snapshot = sql.unchecked_transaction()?;
    let mut select = snapshot.prepare_cached(ONE)?;
    let mut found = Found::default();
    for provider in providers {
        let mut rows = select.query(params![id, provider.as_str()])?;
        found.rows.push(rows.next()?.and_then(read_or_warn));
    }
    Ok(found)
}

fn found_after(sql: &Connection, id: i64, after: &str, limit: u32) -> Result<Found, Cause> {
    let mut select = sql.prepare_cached(PAGE)?;
    let mut rows = select.query(params![id, after, limit + 1])?;
    let mut listed: Vec<(String, Option<RowRead>)> = Vec::new();
    while let Some(row) = rows.next()? {
        listed.push((row.get(0)?, read_or_warn(row)));
    }
    let page = cut(listed, limit, |(name, _)| cursor(Listing::Providers, name));
    Ok(Found {
        rows: page.items.into_iter().map(|(_, read)| read).collect(),
        next: page.next,
    })
}

/// A row that a foreign hand has spoilt reads as missing.
fn read_or_warn(row: &Row<'_>) -> Option<RowRead> {
    let read = read_row(row).and_then(|read| Ok((read, row.get(10)?)));
    match read {
        Ok((row, ended)) => Some(RowRead { row, ended }),
        Err(cause) => {
            tracing::warn!(%cause, "the row of a provider cannot be read; verify removes it");
            None
        }
    }
}
