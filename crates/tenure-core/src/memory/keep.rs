//! The model of rows that an engine stores: steps have numbers, changed rows are handed out, and lost steps are
//! reverted.

use std::hash::Hash;

use super::group::{GroupModel, Head};
use super::lives::Live;
use super::log::Log;
use super::rows::{GroupRow, MemberRow, Row, RowKey, Taken};
use super::table::{Noted, Table};
use crate::id::{MemberId, TenureId};
use crate::ledger::settings::MAX_STALE_AFTER;
use crate::membership::{Beat, BeatReply, Revision};
use crate::settling::end_of;
use crate::store::StoreOptions;
use crate::time::StoreTime;

/// The approximate size of a row in bytes, without session data.
const ROW_BYTES: usize = 160;

/// The value of a row of one kind.
macro_rules! value {
    ($row:expr, $kind:ident) => {
        match $row {
            Some(Row::$kind(value)) => Some(value),
            _ => None,
        }
    };
}

impl GroupModel {
    /// Loads a stored group. Deadlines are not stored, so every ttl restarts at the first step. Earlier grants are in
    /// the rows, so new ones need not be withheld.
    #[must_use]
    pub fn load(
        options: StoreOptions,
        group: GroupRow,
        rows: impl IntoIterator<Item = (RowKey, Row)>,
        now: StoreTime,
    ) -> Self {
        let mut model = Self::load_group(options, group, now);
        let mut claims = Vec::new();
        for (key, row) in rows {
            match (key, row) {
                (RowKey::Claim(registry, key), Row::Claim(tenure)) => claims.push(((registry, key), tenure)),
                (key, row) => model.load_row(key, row, now),
            }
        }
        model.fill_claims(claims);
        model
    }

    /// [`Self::load`] without rows.
    pub(crate) fn load_group(options: StoreOptions, group: GroupRow, now: StoreTime) -> Self {
        let mut model = Self::new(options, now).kept();
        model.born_at = group.born_at;
        model.seq = group.seq;
        model.log = Log::beginning_at(group.last_event);
        model.set_head(group);
        model
    }

    /// Loads one row. Claims are loaded together, with [`Self::fill_claims`].
    pub(crate) fn load_row(&mut self, key: RowKey, row: Row, now: StoreTime) {
        self.set_row(key, Some(row), &|_, row| Live {
            due: now + row.ttl,
            ..Live::from(row)
        });
    }

    /// Makes this the model of stored rows: it keeps only events that are not durable, and leaves the detection of data
    /// loss to the engine.
    #[must_use]
    pub fn kept(mut self) -> Self {
        self.kept = true;
        self
    }

    /// Begins a step: its changes carry this number. Numbers rise and are above zero; the number of a step without
    /// changes may be reused.
    pub fn begin_step(&mut self, number: u64) {
        for table in self.tables_mut() {
            table.begin(number);
        }
    }

    /// The number of the newest step with changes; zero for none.
    #[must_use]
    pub fn touched(&self) -> u64 {
        self.tables().iter().map(|table| table.touched()).max().unwrap_or(0)
    }

    /// The newest undurable step that the last read depends on; zero if all of it is durable.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.tables().iter().map(|table| table.seen()).max().unwrap_or(0)
    }

    pub(super) fn forget_seen(&self) {
        let _ = self.seen();
    }

    /// Records that the current read depends on a step, unless that is durable.
    pub(super) fn see_step(&self, step: u64) {
        self.log.see_step(step);
    }

    /// The changes since the last call, with present values, not encoded. Only one commit is in progress: the next call
    /// comes after [`Self::durable`] or [`Self::put_back`].
    pub fn take(&mut self) -> Taken {
        let (number, group) = (self.touched(), self.group_row());
        let mut rows = Vec::new();
        for (member, row) in self.lives.take() {
            rows.push((RowKey::Member(member), row.map(Row::Member)));
        }
        take_of(&mut rows, &mut self.ended.table, RowKey::Ended, |row| Row::Ended(*row));
        take_of(&mut rows, &mut self.lapses.table, RowKey::Lapse, |at| Row::Lapse(*at));
        let claim = |(registry, key)| RowKey::Claim(registry, key);
        take_of(&mut rows, &mut self.claims, claim, |tenure| Row::Claim(tenure.clone()));
        let place = |(lease, place)| RowKey::Lease(lease, place);
        take_of(&mut rows, &mut self.leases.table, place, |row| Row::Lease(row.clone()));
        let place = |(lease, place)| RowKey::Reserved(lease, place);
        take_of(&mut rows, &mut self.leases.reserved, place, |row| {
            Row::Reserved(row.clone())
        });
        take_of(&mut rows, &mut self.targets, RowKey::Target, |spec| Row::Target(*spec));
        take_of(&mut rows, &mut self.sessions.table, RowKey::Session, |row| {
            Row::Session(row.clone())
        });
        let link = |(session, connection)| RowKey::Connection(session, connection);
        take_of(&mut rows, &mut self.sessions.connections, link, |row| {
            Row::Connection(row.clone())
        });
        let roster = &mut self.roster;
        let marks = roster.marks.take();
        rows.extend(marks.map(|marks| (RowKey::Roster, marks.copied().map(Row::Roster))));
        let retiming = roster.retiming.take();
        rows.extend(retiming.map(|so_far| (RowKey::Retiming, so_far.cloned().map(Row::Retiming))));
        take_of(&mut rows, &mut roster.seats.rows, RowKey::Provider, |row| {
            Row::Provider(row.clone())
        });
        take_of(&mut rows, &mut roster.gone, RowKey::Removed, |row| Row::Removed(*row));
        take_of(&mut rows, &mut roster.offlined.table, RowKey::Offlined, |row| {
            Row::Offlined(*row)
        });
        take_of(&mut rows, &mut roster.turns, RowKey::Turn, |row| Row::Turn(row.clone()));
        Taken {
            number,
            group,
            rows,
            events: self.log.take(),
        }
    }

    /// The current row of the group.
    #[must_use]
    pub fn group_row(&self) -> GroupRow {
        let head = self.head();
        GroupRow {
            born_at: self.born_at,
            tick: self.tick,
            resumed_at: head.resumed_at,
            seq: self.seq,
            last_event: self.log.last,
            ttls: head.ttls,
            unsettled: head.unsettled,
            settled: head.settled,
            brake: head.brake,
        }
    }

    /// All steps up to this number are durable.
    pub fn durable(&mut self, number: u64) {
        for table in self.tables_mut() {
            table.durable(number);
        }
        self.leases.queue.durable(number);
    }

    /// The keys of all undurable rows.
    #[must_use]
    pub fn undurable(&self) -> Vec<RowKey> {
        let (sessions, roster) = (&self.sessions, &self.roster);
        let claim = |(registry, key): &(_, _)| RowKey::Claim(Clone::clone(registry), Clone::clone(key));
        let link = |(session, connection): &(_, _)| RowKey::Connection(Clone::clone(session), Clone::clone(connection));
        let mut keys: Vec<RowKey> = self.lives.table.undurable().cloned().map(RowKey::Member).collect();
        keys.extend(self.ended.table.undurable().cloned().map(RowKey::Ended));
        keys.extend(self.lapses.table.undurable().cloned().map(RowKey::Lapse));
        keys.extend(self.claims.undurable().map(claim));
        let places = self.leases.table.undurable().cloned();
        keys.extend(places.map(|(lease, place)| RowKey::Lease(lease, place)));
        let places = self.leases.reserved.undurable().cloned();
        keys.extend(places.map(|(lease, place)| RowKey::Reserved(lease, place)));
        keys.extend(self.targets.undurable().cloned().map(RowKey::Target));
        keys.extend(sessions.table.undurable().cloned().map(RowKey::Session));
        keys.extend(sessions.connections.undurable().map(link));
        keys.extend(roster.marks.is_undurable().then_some(RowKey::Roster));
        keys.extend(roster.retiming.is_undurable().then_some(RowKey::Retiming));
        keys.extend(roster.seats.rows.undurable().cloned().map(RowKey::Provider));
        keys.extend(roster.gone.undurable().cloned().map(RowKey::Removed));
        keys.extend(roster.offlined.table.undurable().cloned().map(RowKey::Offlined));
        keys.extend(roster.turns.undurable().copied().map(RowKey::Turn));
        keys
    }

    /// The number of undurable rows and events, and their approximate size in bytes.
    #[must_use]
    pub fn backlog(&self) -> (usize, usize) {
        let rows: usize = self.tables().iter().map(|table| table.backlog()).sum();
        let events = usize::try_from(self.log.undurable_bytes()).unwrap_or(usize::MAX);
        (rows, rows * ROW_BYTES + events)
    }

    /// Reverts the undurable steps: `rows` are the durable values of the keys from [`Self::undurable`], and `group` is
    /// the durable row of the group.
    ///
    /// Unstored state stays: the tick, the sequence, the event numbers, and the deadlines of tenures. A tenure ended by
    /// a reverted step returns with its deadline. So no tick or number goes back, no member gets a new ttl, and a
    /// member that read as dead stays dead.
    pub fn put_back(&mut self, rows: Vec<(RowKey, Option<Row>)>, group: GroupRow) {
        let step = self.lives.table.step();
        let lost = self.lives.take_ended();
        for table in self.tables_mut() {
            table.forget_notes();
        }
        let resumed_at = self.head().resumed_at.max(group.resumed_at);
        self.set_head(GroupRow { resumed_at, ..group });
        self.log.put_back(group.last_event);
        self.roster.snapshot = None;
        self.lapses.put_back();
        for (key, row) in rows {
            self.set_row(key, row, &|tenure, row| match lost.get(tenure) {
                Some(known) => known.with(row),
                None => row.into(),
            });
        }
        self.leases.queue.put_back();
        self.begin_step(step);
    }

    /// [`Self::resume_unwritten`], unless a beat would need no look.
    #[cfg(test)]
    pub(crate) fn resume_if_far(&mut self, now: StoreTime) {
        if !crate::settling::is_near(self.tick, now, self.level()) {
            self.resume_unwritten(now);
        }
    }

    /// Restarts every ttl after a gap, in memory alone: for a store that takes no steps, but answers beats and reads.
    pub(crate) fn resume_unwritten(&mut self, now: StoreTime) {
        if let Some(gap) = self.unmet_gap(now) {
            let step = self.lives.table.step();
            self.begin_step(0);
            self.resume(gap.at, now);
            self.pulse = self.service.pulse.map(|pulse| pulse.id);
            self.begin_step(step);
        }
    }

    /// Renews a tenure if only its deadline changes and the reply is durable, with the newest durable revision; or says that
    /// it has ended, once that is durable. `None` if it needs a step.
    pub fn beat_at_once(&mut self, beat: &Beat, now: StoreTime) -> Option<BeatReply> {
        if self.must_look(now) {
            return None;
        }
        let head = self.head();
        let resumed_at = self.refused.or_resumed(head.resumed_at, now);
        let Some((live, durable)) = self.lives.beating(&beat.tenure) else {
            let reason = self.ended.durable(&beat.tenure)?.reason;
            self.tick = now;
            return Some(BeatReply::Ended(reason));
        };
        let ttl = live.ttl;
        let same_ttl = beat.ttl.is_none_or(|asked| asked == ttl) && durable.ttl == ttl;
        let noted = head
            .ttls
            .is_some_and(|(shortest, longest)| (shortest..=longest).contains(&ttl));
        if self
            .leases
            .needs_step(&beat.tenure, beat.revision == live.revision, durable.revision)
        {
            return None;
        }
        let expected = same_ttl && (noted || ttl > MAX_STALE_AFTER) && beat.newest() <= live.revision;
        if !expected || now >= end_of(live.deadline, ttl, resumed_at, now) {
            return None;
        }
        live.deadline = now + ttl;
        live.told = beat.revision != Revision::NONE;
        self.tick = now;
        self.forget_lapses(&head, now);
        Some(BeatReply::Renewed {
            expires_in: ttl,
            revision: durable.revision,
        })
    }

    /// The same while nothing is written. That its holder has noticed an operator's release is recorded by a later beat.
    pub(crate) fn beat_unwritten(&mut self, beat: &Beat, now: StoreTime) -> Option<BeatReply> {
        self.beat_at_once(beat, now).or_else(|| {
            let (live, _) = self.lives.beating(&beat.tenure)?;
            let (ttl, is_known) = (beat.ttl, beat.newest() <= live.revision);
            let tenure = is_known.then(|| beat.tenure.clone())?;
            self.beat_at_once(
                &Beat {
                    ttl,
                    ..Beat::of(tenure)
                },
                now,
            )
        })
    }

    fn set_head(&mut self, group: GroupRow) {
        self.tracked.set(Some(Head {
            resumed_at: group.resumed_at,
            ttls: group.ttls,
            unsettled: group.unsettled,
            settled: group.settled,
            brake: group.brake,
        }));
    }

    /// Sets or removes a row and everything derived from it. `live` makes the entry of a tenure from its row. A value
    /// under a key of another kind counts as none.
    fn set_row(&mut self, key: RowKey, row: Option<Row>, live: &dyn Fn(&TenureId, MemberRow) -> Live) {
        match key {
            RowKey::Member(member) => self.set_member(member, value!(row, Member), live),
            RowKey::Ended(tenure) => self.ended.set(tenure, value!(row, Ended)),
            RowKey::Lapse(member) => self.lapses.set(member, value!(row, Lapse)),
            RowKey::Claim(registry, key) => self.set_claim(&registry, &key, value!(row, Claim).as_ref()),
            RowKey::Lease(lease, place) => self.set_lease(&(lease, place), value!(row, Lease)),
            RowKey::Reserved(lease, place) => self.leases.reserve(&(lease, place), value!(row, Reserved)),
            RowKey::Target(target) => drop(self.targets.set(target, value!(row, Target))),
            RowKey::Session(session) => drop(self.sessions.set(&session, value!(row, Session))),
            RowKey::Connection(session, connection) => {
                self.set_connection(&(session, connection), value!(row, Connection));
            }
            RowKey::Roster => self.roster.marks.set(value!(row, Roster)),
            RowKey::Retiming => self.roster.retiming.set(value!(row, Retiming)),
            RowKey::Provider(provider) => drop(self.set_provider(&provider, value!(row, Provider))),
            RowKey::Removed(provider) => self.roster.set_gone(&provider, value!(row, Removed)),
            RowKey::Offlined(tenure) => drop(self.roster.offlined.set(&tenure, value!(row, Offlined))),
            RowKey::Turn(task) => drop(self.roster.turns.set(task, value!(row, Turn))),
        }
    }

    fn set_member(&mut self, member: MemberId, row: Option<MemberRow>, live: &dyn Fn(&TenureId, MemberRow) -> Live) {
        let Some(row) = row else {
            if let Some(before) = self.lives.set(member.clone(), None) {
                self.roster.reseat(&TenureId::new(member, before.term), false);
            }
            return;
        };
        let tenure = TenureId::new(member.clone(), row.term);
        let known = self.current(&tenure).cloned();
        let live = match known {
            Some(known) => known.with(row),
            None => live(&tenure, row),
        };
        self.lives.set(member, Some(live));
        self.roster.reseat(&tenure, true);
    }

    fn tables(&self) -> [&dyn Noted; 21] {
        [
            &self.tracked,
            &self.lives,
            &self.ended.table,
            &self.lapses.table,
            &self.held.counts,
            &self.claims,
            &self.leases.table,
            &self.leases.reserved,
            &self.leases.counts,
            &self.targets,
            &self.sessions.table,
            &self.sessions.connections,
            &self.sessions.connected,
            &self.sessions.aliases,
            &self.roster.seats.rows,
            &self.roster.gone,
            &self.roster.offlined.table,
            &self.roster.marks,
            &self.roster.retiming,
            &self.roster.turns,
            &self.log,
        ]
    }

    fn tables_mut(&mut self) -> [&mut dyn Noted; 21] {
        [
            &mut self.tracked,
            &mut self.lives,
            &mut self.ended.table,
            &mut self.lapses.table,
            &mut self.held.counts,
            &mut self.claims,
            &mut self.leases.table,
            &mut self.leases.reserved,
            &mut self.leases.counts,
            &mut self.targets,
            &mut self.sessions.table,
            &mut self.sessions.connections,
            &mut self.sessions.connected,
            &mut self.sessions.aliases,
            &mut self.roster.seats.rows,
            &mut self.roster.gone,
            &mut self.roster.offlined.table,
            &mut self.roster.marks,
            &mut self.roster.retiming,
            &mut self.roster.turns,
            &mut self.log,
        ]
    }
}

fn take_of<K: Ord + Hash + Clone, V>(
    rows: &mut Vec<(RowKey, Option<Row>)>,
    table: &mut Table<K, V>,
    key: impl Fn(K) -> RowKey,
    row: impl Fn(&V) -> Row,
) {
    let taken = table.take();
    rows.extend(taken.map(|(of, value)| (key(of), value.map(&row))));
}
