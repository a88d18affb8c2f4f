//! The current tenures, their deadlines, and their durable state.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::rows::MemberRow;
use super::table::{Noted, Table};
use crate::id::{MemberId, TenureId, Term};
use crate::membership::{Labels, Revision};
use crate::time::StoreTime;

/// One member's current tenure.
#[derive(Debug, Clone)]
pub(super) struct Live {
    pub(super) term: Term,
    pub(super) deadline: StoreTime,
    pub(super) ttl: Duration,
    /// The revision of its holdings.
    pub(super) revision: Revision,
    /// Whether its last beat named a revision: then its client notices changes. Not stored.
    pub(super) told: bool,
    /// Most tenures have none.
    pub(super) labels: Option<Box<Labels>>,
    /// Its time in the lazy index: the earliest time at which it may have lapsed.
    pub(super) due: StoreTime,
}

impl From<MemberRow> for Live {
    fn from(row: MemberRow) -> Self {
        Self {
            term: row.term,
            deadline: row.deadline,
            ttl: row.ttl,
            revision: row.revision,
            told: false,
            labels: boxed(row.labels),
            due: row.deadline,
        }
    }
}

fn boxed(labels: Labels) -> Option<Box<Labels>> {
    (!labels.is_empty()).then(|| Box::new(labels))
}

impl From<&Live> for MemberRow {
    fn from(live: &Live) -> Self {
        Self {
            term: live.term,
            ttl: live.ttl,
            deadline: live.deadline,
            labels: live.labels(),
            revision: live.revision,
        }
    }
}

impl Live {
    pub(super) fn labels(&self) -> Labels {
        self.labels.as_deref().cloned().unwrap_or_default()
    }

    /// The tenure with the values of a row. Its last beat stays, with the ttl of the row.
    pub(super) fn with(&self, row: MemberRow) -> Self {
        let deadline = match self.ttl == row.ttl {
            true => self.deadline,
            false => self.deadline.minus(self.ttl) + row.ttl,
        };
        Self {
            deadline,
            due: deadline.min(self.due),
            told: self.told,
            ..Self::from(row)
        }
    }
}

/// The durable state of a tenure that a beat may report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Durable {
    pub(super) term: Term,
    pub(super) ttl: Duration,
    pub(super) revision: Revision,
}

impl From<&Live> for Durable {
    fn from(live: &Live) -> Self {
        Self {
            term: live.term,
            ttl: live.ttl,
            revision: live.revision,
        }
    }
}

/// All current tenures.
#[derive(Debug, Default)]
pub(super) struct Lives {
    pub(super) table: Table<MemberId, Live>,
    due: BTreeSet<(StoreTime, MemberId)>,
    /// The durable state of members with undurable changes; `None`: no durable tenure.
    behind: HashMap<MemberId, Option<Durable>>,
    /// The state that becomes durable with the current commit.
    taken: Vec<(MemberId, Option<Durable>)>,
    /// Tenures ended by undurable steps, as they were, with the step numbers.
    ended: HashMap<TenureId, (u64, Live)>,
}

impl Lives {
    pub(super) fn get(&self, member: &MemberId) -> Option<&Live> {
        self.table.get(member)
    }

    /// Sets or removes a tenure. Returns the previous one.
    pub(super) fn set(&mut self, member: MemberId, live: Option<Live>) -> Option<Live> {
        self.note(&member);
        if let Some(live) = &live {
            self.due.insert((live.due, member.clone()));
        }
        let due = live.as_ref().map(|live| live.due);
        let before = self.table.set(member.clone(), live);
        if let Some(before) = before.as_ref().filter(|before| Some(before.due) != due) {
            self.due.remove(&(before.due, member));
        }
        before
    }

    /// Ends a tenure. Its deadline is kept until the end is durable.
    pub(super) fn end(&mut self, member: &MemberId) -> Option<(MemberId, Live)> {
        let member = self.table.own_key(member)?.clone();
        let live = self.set(member.clone(), None)?;
        let step = self.table.step();
        if step > 0 {
            let tenure = TenureId::new(member.clone(), live.term);
            self.ended.insert(tenure, (step, live.clone()));
        }
        Some((member, live))
    }

    /// Changes the ttl and deadline of a tenure; with `sooner`, an earlier deadline also moves its index entry.
    pub(super) fn retime(&mut self, member: &MemberId, ttl: Duration, deadline: StoreTime, sooner: bool) {
        self.note(member);
        let Some(live) = self.table.change(member) else { return };
        (live.ttl, live.deadline) = (ttl, deadline);
        if sooner && deadline < live.due {
            self.put_off(member, deadline);
        }
    }

    /// Records a new revision of a living tenure's holdings.
    pub(super) fn revise(&mut self, tenure: &TenureId, revision: Revision) {
        if self.current(tenure).is_none_or(|live| live.revision == revision) {
            return;
        }
        self.note(tenure.member());
        if let Some(live) = self.table.change(tenure.member()) {
            live.revision = revision;
        }
    }

    /// Replaces the labels of a current tenure. Returns whether they differ.
    pub(super) fn relabel(&mut self, tenure: &TenureId, labels: &Labels) -> bool {
        if self.current(tenure).is_none_or(|live| live.labels() == *labels) {
            return false;
        }
        self.note(tenure.member());
        if let Some(live) = self.table.change(tenure.member()) {
            live.labels = boxed(labels.clone());
        }
        true
    }

    /// A current tenure whose deadline, which is not stored, a beat may move; with what of it is durable.
    pub(super) fn beating(&mut self, tenure: &TenureId) -> Option<(&mut Live, Durable)> {
        let behind = self.behind.get(tenure.member()).copied();
        let live = self.table.change_unstored(tenure.member())?;
        let durable = behind.unwrap_or_else(|| Some(Durable::from(&*live)))?;
        (live.term == tenure.term() && durable.term == tenure.term()).then_some((live, durable))
    }

    /// Records whether the last beat of a tenure named a revision.
    pub(super) fn tell(&mut self, member: &MemberId, told: bool) {
        if let Some(live) = self.table.change_unstored(member) {
            live.told = told;
        }
    }

    /// Extends a tenure by its ttl; the deadline is not stored. A heartbeat of a provider names no revision.
    pub(super) fn extend(&mut self, member: &MemberId, now: StoreTime) {
        if let Some(live) = self.table.change_unstored(member) {
            live.deadline = now + live.ttl;
            live.told = false;
        }
    }

    /// Moves a member in the lazy index, which is not stored.
    pub(super) fn put_off(&mut self, member: &MemberId, due: StoreTime) {
        let Some(live) = self.table.change_unstored(member) else {
            return;
        };
        let before = std::mem::replace(&mut live.due, due);
        self.due.remove(&(before, member.clone()));
        self.due.insert((due, member.clone()));
    }

    /// The live entry, if this is its member's current tenure.
    pub(super) fn current(&self, tenure: &TenureId) -> Option<&Live> {
        self.get(tenure.member()).filter(|live| live.term == tenure.term())
    }

    /// The name of a member with the text of the table, so that copies share it.
    pub(super) fn own_name(&self, tenure: &TenureId) -> TenureId {
        let own = self.table.own_key(tenure.member());
        own.map_or_else(|| tenure.clone(), |own| TenureId::new(own.clone(), tenure.term()))
    }

    /// The members that may have lapsed by then, in that order.
    pub(super) fn due_by(&self, now: StoreTime) -> impl Iterator<Item = &MemberId> {
        let due = self.due.iter().take_while(move |(at, _)| *at <= now);
        due.map(|(_, member)| member)
    }

    /// The earliest time at which a member may have lapsed.
    pub(super) fn next_due(&self) -> Option<StoreTime> {
        self.table.see_all();
        self.due.first().map(|(at, _)| *at)
    }

    /// The durable state of a tenure.
    pub(super) fn durable_of(&self, tenure: &TenureId) -> Option<Durable> {
        let durable = match self.behind.get(tenure.member()) {
            Some(behind) => *behind,
            None => self.current(tenure).map(Durable::from),
        };
        durable.filter(|durable| durable.term == tenure.term())
    }

    /// Takes the changed members, with their state once it is durable.
    pub(super) fn take(&mut self) -> Vec<(MemberId, Option<MemberRow>)> {
        let mut rows = Vec::new();
        for (member, live) in self.table.take() {
            self.taken.push((member.clone(), live.map(Durable::from)));
            rows.push((member, live.map(MemberRow::from)));
        }
        rows
    }

    /// Takes the tenures ended by undurable steps, as they were.
    pub(super) fn take_ended(&mut self) -> HashMap<TenureId, Live> {
        let ended = std::mem::take(&mut self.ended).into_iter();
        ended.map(|(tenure, (_, live))| (tenure, live)).collect()
    }

    fn note(&mut self, member: &MemberId) {
        if self.table.step() > 0 && !self.table.is_undurable(member) {
            let durable = self.table.get(member).map(Durable::from);
            self.behind.insert(member.clone(), durable);
        }
    }
}

impl Noted for Lives {
    fn begin(&mut self, step: u64) {
        self.table.begin(step);
    }

    fn touched(&self) -> u64 {
        self.table.touched()
    }

    fn seen(&self) -> u64 {
        self.table.seen()
    }

    fn durable(&mut self, step: u64) {
        self.table.durable(step);
        for (member, durable) in std::mem::take(&mut self.taken) {
            match self.table.is_undurable(&member) {
                true => drop(self.behind.insert(member, durable)),
                false => drop(self.behind.remove(&member)),
            }
        }
        self.ended.retain(|_, (ended, _)| *ended > step);
    }

    fn forget_notes(&mut self) {
        self.table.forget_notes();
        self.behind.clear();
        self.taken.clear();
        self.ended.clear();
    }

    fn backlog(&self) -> usize {
        self.table.backlog()
    }
}
