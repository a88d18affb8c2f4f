//! What a group knows about itself: the small part of its state that every step looks at, with its row.

use std::time::Duration;

use rusqlite::{Connection, Row, params};
use tenure_core::brake::{Brake, BrakeSettings};
use tenure_core::event::EventId;
use tenure_core::ledger::settings::MAX_STALE_AFTER;
use tenure_core::settling::{self, GapCause};
use tenure_core::sweep::{GroupStatus, Unsettled};
use tenure_core::{Group, StoreTime};

use crate::error::Cause;
use crate::event;
use crate::roster::Marks;
use crate::sql::{instant, number, read_instant, read_instant_or_none, read_name, read_number, span, statements};

statements! { "group.sql":
    INSERT = "insert",
    UPDATE = "update",
    ALL = "all",
}
statements! { "sweep.sql":
    WORK = "work",
    NEXT_VISIT = "next_visit",
    COUNT_LAPSES = "count_lapses",
    COUNT_LEASES = "count_leases",
}
statements! { "session.sql":
    COUNT_SESSIONS = "count",
    COUNT_AWAY = "count_away",
    NEXT_AWAY = "next_due",
}

/// Ended tenures with holdings left: how many, and when to look at the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Work {
    pub(crate) tenures: u64,
    pub(crate) next: Option<StoreTime>,
}

/// The state of a group without its members. Small and `Copy`, so that undoing a step is an assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) born_at: StoreTime,
    pub(crate) resumed_at: StoreTime,
    pub(crate) seq: u64,
    pub(crate) last_event: u64,
    /// No event below this number is kept: one above the newest that was deleted.
    pub(crate) oldest_event: u64,
    /// The smallest and the largest ttl of the group since it was last empty.
    pub(crate) ttls: Option<(Duration, Duration)>,
    pub(crate) unsettled: Option<Unsettled>,
    /// An operator has ended the waits up to this end.
    pub(crate) settled: StoreTime,
    /// Since when and until when at most.
    pub(crate) brake: Option<(StoreTime, StoreTime)>,
    /// What is known of the roster as a whole, when the group is one.
    pub(crate) roster: Marks,
    // The rest is the size of sets in other tables, counted anew at every open.
    pub(crate) events: event::Size,
    pub(crate) members: u64,
    pub(crate) lapses: u64,
    pub(crate) leases: u64,
    pub(crate) sessions: u64,
    /// Sessions without connections, and the earliest time at which one of them may be an orphan.
    pub(crate) disconnected: u64,
    pub(crate) next_away: Option<StoreTime>,
    pub(crate) releasing: Work,
    pub(crate) releasing_lapsed: Work,
}

impl Meta {
    /// Writes the row of a group that begins now.
    pub(crate) fn insert(sql: &Connection, group: &Group, now: StoreTime) -> Result<(i64, Self), Cause> {
        sql.prepare_cached(INSERT)?
            .execute(params![group.as_str(), instant(now)])?;
        let meta = Self {
            born_at: now,
            resumed_at: now,
            seq: 0,
            last_event: now.micros(),
            oldest_event: now.micros() + 1,
            ttls: None,
            unsettled: None,
            settled: StoreTime::ZERO,
            brake: None,
            roster: Marks::default(),
            events: event::Size::default(),
            members: 0,
            lapses: 0,
            leases: 0,
            sessions: 0,
            disconnected: 0,
            next_away: None,
            releasing: Work::default(),
            releasing_lapsed: Work::default(),
        };
        Ok((sql.last_insert_rowid(), meta))
    }

    /// Writes the row anew.
    pub(crate) fn update(&self, sql: &Connection, id: i64, tick: StoreTime) -> Result<(), Cause> {
        sql.prepare_cached(UPDATE)?.execute(params![
            id,
            instant(tick),
            instant(self.resumed_at),
            number(self.seq),
            number(self.last_event),
            number(self.oldest_event),
            self.ttls.map(|(shortest, _)| span(shortest)),
            self.ttls.map(|(_, longest)| span(longest)),
            self.unsettled.map(|unsettled| unsettled.cause.as_str()),
            self.unsettled.map(|unsettled| instant(unsettled.until)),
            self.brake.map(|(since, _)| instant(since)),
            self.brake.map(|(_, until)| instant(until)),
            instant(self.settled),
        ])?;
        Ok(())
    }

    /// Reads all groups, with their ids. The number of members is for the caller to fill in.
    pub(crate) fn all(sql: &Connection) -> Result<Vec<(i64, Group, Self)>, Cause> {
        let mut all = sql.prepare_cached(ALL)?;
        let mut rows = all.query([])?;
        let mut groups = Vec::new();
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            let mut meta = Self::read(row)?;
            meta.lapses = sql
                .prepare_cached(COUNT_LAPSES)?
                .query_row([id], |row| read_number(row, 0))?;
            meta.leases = sql
                .prepare_cached(COUNT_LEASES)?
                .query_row([id], |row| read_number(row, 0))?;
            meta.events = event::Size::of(sql, id, meta.oldest_event)?;
            meta.sessions = sql
                .prepare_cached(COUNT_SESSIONS)?
                .query_row([id], |row| read_number(row, 0))?;
            meta.disconnected = sql
                .prepare_cached(COUNT_AWAY)?
                .query_row([id], |row| read_number(row, 0))?;
            meta.next_away = next_away(sql, id)?;
            meta.releasing = work(sql, id, false)?;
            meta.releasing_lapsed = work(sql, id, true)?;
            meta.roster = Marks::load(sql, id)?;
            groups.push((id, read_name(row, 1)?, meta));
        }
        Ok(groups)
    }

    fn read(row: &Row<'_>) -> Result<Self, Cause> {
        let span =
            |column| Ok::<_, Cause>(read_instant_or_none(row, column)?.map(|at| Duration::from_micros(at.micros())));
        let cause: Option<String> = row.get(10)?;
        let cause = cause
            .map(|cause| GapCause::parse(&cause).ok_or_else(|| Cause::Strange(format!("the cause {cause:?}"))))
            .transpose()?;
        Ok(Self {
            born_at: read_instant(row, 2)?,
            resumed_at: read_instant(row, 4)?,
            seq: read_number(row, 5)?,
            last_event: read_number(row, 6)?,
            oldest_event: read_number(row, 7)?,
            ttls: span(8)?.zip(span(9)?),
            unsettled: cause
                .zip(read_instant_or_none(row, 11)?)
                .map(|(cause, until)| Unsettled { cause, until }),
            settled: read_instant(row, 14)?,
            brake: read_instant_or_none(row, 12)?.zip(read_instant_or_none(row, 13)?),
            roster: Marks::default(),
            events: event::Size::default(),
            members: 0,
            lapses: 0,
            leases: 0,
            sessions: 0,
            disconnected: 0,
            next_away: None,
            releasing: Work::default(),
            releasing_lapsed: Work::default(),
        })
    }

    /// Looks up when the next visit and the next look at a disconnected session are due, after the lists of them changed.
    /// O(log ended + log disconnected).
    pub(crate) fn refresh_visits(&mut self, sql: &Connection, id: i64) -> Result<(), Cause> {
        let next = |lapsed: bool| {
            sql.prepare_cached(NEXT_VISIT)?
                .query_row(params![id, lapsed], |row| read_instant_or_none(row, 0))
        };
        self.releasing.next = next(false)?;
        self.releasing_lapsed.next = next(true)?;
        self.next_away = next_away(sql, id)?;
        self.roster.refresh(sql, id)
    }

    /// The longest silence that is no gap.
    pub(crate) fn gap(&self) -> Duration {
        settling::gap(self.ttls.map(|(shortest, _)| shortest))
    }

    /// The longest ttl; zero when there never was a member.
    pub(crate) fn longest_ttl(&self) -> Duration {
        self.ttls.map_or(Duration::ZERO, |(_, longest)| longest)
    }

    /// Widens the range of ttls. One who is never stale needs no grace, and must not make that of others last for ever.
    pub(crate) fn note_ttl(&mut self, ttl: Duration) {
        if ttl > MAX_STALE_AFTER {
            return;
        }
        let (shortest, longest) = self.ttls.unwrap_or((ttl, ttl));
        self.ttls = Some((shortest.min(ttl), longest.max(ttl)));
    }

    /// The brake, unless its reason is gone by now.
    pub(crate) fn brake_in_force(&self, settings: &BrakeSettings, now: StoreTime) -> Option<Brake> {
        let (since, until) = self.brake?;
        let in_force = now < until && settings.too_many(self.lapses, self.members);
        in_force.then_some(Brake {
            since,
            until,
            lapsed: self.lapses,
            present: self.members,
        })
    }

    /// Whether a tick would change something beyond itself.
    pub(crate) fn wants_tick(&self, settings: &BrakeSettings, now: StoreTime) -> bool {
        self.unsettled.is_some_and(|unsettled| now >= unsettled.until)
            || (self.brake.is_some() && self.brake_in_force(settings, now).is_none())
    }

    /// The state for sweepers and status pages.
    pub(crate) fn status(
        &self,
        settings: &BrakeSettings,
        now: StoreTime,
        resumed_at: StoreTime,
        next_due: Option<StoreTime>,
    ) -> GroupStatus {
        let brake = self.brake_in_force(settings, now);
        let lapsed = match brake {
            Some(brake) => (self.releasing_lapsed.tenures > 0).then_some(brake.until),
            None => self.releasing_lapsed.next,
        };
        GroupStatus {
            as_of: now,
            members: self.members,
            gap: self.gap(),
            resumed_at,
            unsettled: self.unsettled,
            brake,
            next_due,
            next_release: self.releasing.next.into_iter().chain(lapsed).min(),
            releasing: self.releasing.tenures + self.releasing_lapsed.tenures,
            leases: self.leases,
            sessions: self.sessions,
            disconnected: self.disconnected,
            next_reap: self.next_away.map(|at| brake.map_or(at, |brake| brake.until.max(at))),
            pending_offline: self.roster.pending_offline(),
            next_offline: self.roster.next_offline(brake),
            last_event: EventId(self.last_event),
            empty_since: None,
        }
    }
}

fn next_away(sql: &Connection, id: i64) -> Result<Option<StoreTime>, Cause> {
    let mut next = sql.prepare_cached(NEXT_AWAY)?;
    let mut rows = next.query([id])?;
    Ok(rows.next()?.map(|row| read_instant(row, 0)).transpose()?)
}

fn work(sql: &Connection, id: i64, lapsed: bool) -> Result<Work, Cause> {
    Ok(sql.prepare_cached(WORK)?.query_row(params![id, lapsed], |row| {
        Ok(Work {
            tenures: read_number(row, 0)?,
            next: read_instant_or_none(row, 1)?,
        })
    })?)
}
