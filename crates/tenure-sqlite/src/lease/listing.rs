//! Looking leases up: rows from a snapshot, liveness from the live table.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use tenure_core::call::Serve;
use tenure_core::lease::{HeldLeases, Lease, LeaseOf, Leases, LeasesOf, Token};
use tenure_core::membership::Revision;
use tenure_core::store::{Call, Page, PageRequest, bad_cursor};
use tenure_core::{Group, LeaseName, MemberId, Result, StoreTime, TenureId};

use crate::ended::Ended;
use crate::error::Cause;
use crate::live::{Live, Table};
use crate::page::{Listing, cursor, cut, name_after, place_of, walk};
use crate::sql::{number, read_name, read_number, read_token, statements};
use crate::store::SqliteStore;

statements! { "lease.sql":
    ONE = "one",
    PAGE = "page",
    NEXT_TENURE = "next_tenure",
    HELD_PAGE = "held_page",
}
statements! { "membership.sql":
    REVISION = "revision",
}

/// How often a read is repeated when a holder has ended before the live table could be looked at.
const LOOKS: u32 = 8;

/// A lease as its row tells.
pub(super) struct LeaseRow {
    lease: LeaseName,
    tenure: TenureId,
    token: Token,
    /// How the holder ended, when it has.
    ended: Option<Ended>,
}

impl LeaseRow {
    fn read(row: &Row<'_>) -> Result<Self, Cause> {
        Ok(Self {
            lease: read_name(row, 0)?,
            tenure: read_name(row, 1)?,
            token: read_token(row, 2)?,
            ended: Ended::read_or_none(row, 3)?,
        })
    }

    /// The holder has ended since the row was read, so that its record is missing.
    fn is_behind(&self, table: &Table) -> bool {
        self.ended.is_none() && table.seen(&self.tenure).is_none()
    }

    fn with(self, table: &Table, resumed_at: StoreTime, now: StoreTime) -> Lease {
        let (alive, expires_in) = match (table.seen(&self.tenure), self.ended) {
            (Some(entry), _) => {
                let end = entry.end(resumed_at, now);
                (now < end, end.since(now))
            }
            (None, Some(ended)) => (false, ended.free_in(resumed_at, now)),
            (None, None) => (false, Duration::ZERO),
        };
        Lease {
            lease: self.lease,
            holder: self.tenure.member().clone(),
            tenure: self.tenure,
            token: self.token,
            alive,
            expires_in,
        }
    }
}

pub(super) fn rows_of(
    sql: &Connection,
    select: &str,
    parameters: impl rusqlite::Params,
) -> Result<Vec<LeaseRow>, Cause> {
    let mut select = sql.prepare_cached(select)?;
    let mut rows = select.query(parameters)?;
    let mut leases = Vec::new();
    while let Some(row) = rows.next()? {
        leases.push(LeaseRow::read(row)?);
    }
    Ok(leases)
}

impl SqliteStore {
    /// Reads rows, and what was read with them, and joins them with the live table. When a holder has ended in between,
    /// they are read again, so that it is told how long the lease is still kept.
    pub(super) async fn lease_rows<T: Send + 'static>(
        &self,
        live: &Live,
        read: impl Fn(&Connection) -> Result<(Vec<LeaseRow>, T), Cause> + Clone + Send + 'static,
    ) -> Result<(Vec<Lease>, T)> {
        let mut look = 1;
        loop {
            let (rows, besides) = self.read(read.clone()).await?;
            let joined = live.look(self.clock(), |table, now| {
                if look < LOOKS && rows.iter().any(|row| row.is_behind(table)) {
                    return None;
                }
                let resumed_at = table.resumed_for_reading(now);
                Some(rows.into_iter().map(|row| row.with(table, resumed_at, now)).collect())
            });
            match joined {
                Some(leases) => return Ok((leases, besides)),
                None => look += 1,
            }
        }
    }

    /// Leases by name.
    async fn list_leases(&self, group: &Group, page: &PageRequest) -> Result<Page<Lease>> {
        let (after, limit) = (name_after(Listing::Leases, page)?, page.limit);
        let Some(live) = self.live(group)? else {
            return Ok(Page::default());
        };
        let id = live.id;
        let read = move |sql: &Connection| Ok((rows_of(sql, PAGE, params![id, after, limit + 1])?, ()));
        let (leases, ()) = self.lease_rows(&live, read).await?;
        Ok(cut(leases, limit, |lease| {
            cursor(Listing::Leases, lease.lease.as_str())
        }))
    }

    /// Leases of one holder by tenure and name.
    async fn list_leases_of(&self, group: &Group, holder: MemberId, page: &PageRequest) -> Result<Page<Lease>> {
        let after = match &page.after {
            None => None,
            Some(text) => Some(leased_place(text, &holder).ok_or_else(|| bad_cursor(text))?),
        };
        let Some(live) = self.live(group)? else {
            return Ok(Page::default());
        };
        let (id, limit) = (live.id, page.limit);
        let read = move |sql: &Connection| Ok((leased_after(sql, id, &holder, after.clone(), limit + 1)?, ()));
        let (leases, ()) = self.lease_rows(&live, read).await?;
        Ok(cut(leases, limit, |lease| {
            cursor(Listing::Leased, &format!("{}/{}", lease.tenure, lease.lease))
        }))
    }
}

#[async_trait]
impl Serve<LeaseOf> for SqliteStore {
    async fn serve(&self, group: &Group, ask: LeaseOf, _: Call) -> Result<Option<Lease>> {
        let Some(live) = self.live(group)? else { return Ok(None) };
        let id = live.id;
        let read = move |sql: &Connection| Ok((rows_of(sql, ONE, params![id, ask.lease.as_str()])?, ()));
        let (mut leases, ()) = self.lease_rows(&live, read).await?;
        Ok(leases.pop())
    }
}

#[async_trait]
impl Serve<Leases> for SqliteStore {
    async fn serve(&self, group: &Group, ask: Leases, _: Call) -> Result<Page<Lease>> {
        match ask.holder {
            None => self.list_leases(group, &ask.page).await,
            Some(holder) => self.list_leases_of(group, holder, &ask.page).await,
        }
    }
}

#[async_trait]
impl Serve<LeasesOf> for SqliteStore {
    /// By name, with the revision from the same snapshot.
    async fn serve(&self, group: &Group, ask: LeasesOf, _: Call) -> Result<HeldLeases> {
        let (after, limit) = (name_after(Listing::Held, &ask.page)?, ask.page.limit);
        let Some(live) = self.live(group)? else {
            return Ok(HeldLeases {
                page: Page::default(),
                revision: Revision::NONE,
            });
        };
        let (id, tenure) = (live.id, ask.tenure);
        let read = move |sql: &Connection| {
            let snapshot = sql.unchecked_transaction()?;
            let rows = rows_of(&snapshot, HELD_PAGE, params![id, tenure.to_string(), after, limit + 1])?;
            let term = number(tenure.term().get());
            let revision = snapshot
                .prepare_cached(REVISION)?
                .query_row(params![id, tenure.member().as_str(), term], |row| read_number(row, 0))
                .optional()?;
            Ok((rows, revision.map_or(Revision::NONE, Revision)))
        };
        let (leases, revision) = self.lease_rows(&live, read).await?;
        let page = cut(leases, limit, |lease| cursor(Listing::Held, lease.lease.as_str()));
        Ok(HeldLeases { page, revision })
    }
}

fn leased_after(
    sql: &Connection,
    id: i64,
    holder: &MemberId,
    after: Option<(TenureId, String)>,
    limit: u32,
) -> Result<Vec<LeaseRow>, Cause> {
    let snapshot = sql.unchecked_transaction()?;
    let next = |from: &str, end: &str| {
        let mut select = snapshot.prepare_cached(NEXT_TENURE)?;
        let mut rows = select.query(params![id, from, end])?;
        rows.next()?.map(|row| read_name(row, 0)).transpose()
    };
    let leases = |tenure: &TenureId, after: &str, limit: u32| {
        rows_of(&snapshot, HELD_PAGE, params![id, tenure.to_string(), after, limit])
    };
    walk(holder, after, limit, next, leases)
}

fn leased_place(text: &str, holder: &MemberId) -> Option<(TenureId, String)> {
    let (tenure, lease) = place_of(Listing::Leased, text, holder)?;
    LeaseName::new(lease).ok()?;
    Some((tenure, lease.to_owned()))
}
