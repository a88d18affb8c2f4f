//! Join, beat, end and look up, on one group.

use std::time::Duration;

use super::decide::Decide;
use super::group::{GroupModel, Live};
use crate::error::Result;
use crate::event::EventKind;
use crate::id::{MemberId, TenureId, Term};
use crate::ledger::settings::MAX_STALE_AFTER;
use crate::membership::{
    Beat, BeatReply, Beaten, Beats, End, EndBy, EndReason, Holdings, Join, Joined, Labels, Member, MemberOf, Revision,
};
use crate::store::Call;
use crate::time::StoreTime;

/// How far the sequence may run ahead of the clock: each act takes a number, and a number lasts a microsecond.
const AHEAD_MICROS: u64 = 1_000_000;

impl Decide<Join> for GroupModel {
    /// Begins a tenure.
    fn step(&mut self, join: &Join, call: Call, now: StoreTime) -> Result<Joined> {
        self.open(now, call)?;
        let alone = self.is_alone(&join.member);
        let before = self
            .members
            .get(&join.member)
            .map(|live| TenureId::new(join.member.clone(), live.term));
        let mut superseded = None;
        if let Some(before) = before
            && !self.end_if_past(&before, now)
        {
            self.end_tenure(&before, EndReason::Superseded, now);
            superseded = Some(before);
        }
        let tenure = self.begin_tenure(&join.member, join.ttl, &join.labels, alone, now)?;
        self.engage_brake(now);
        Ok(Joined {
            tenure,
            ttl: join.ttl,
            expires_in: join.ttl,
            superseded,
            as_of: now,
        })
    }
}

impl GroupModel {
    /// Whether nobody else is there, and nobody has lapsed of late: then the ttls of others are history.
    pub(super) fn is_alone(&self, member: &MemberId) -> bool {
        self.lapses.is_empty() && self.members.keys().all(|other| other == member)
    }

    /// Begins a tenure of a member that has none; `alone` as it was when the step began.
    pub(super) fn begin_tenure(
        &mut self,
        member: &MemberId,
        ttl: Duration,
        labels: &Labels,
        alone: bool,
        now: StoreTime,
    ) -> Result<TenureId> {
        let term = Term::new(self.next_number(now))?;
        let tenure = TenureId::new(member.clone(), term);
        let deadline = now + ttl;
        if alone {
            self.ttls = None;
        }
        self.note_ttl(ttl);
        let live = Live {
            term,
            deadline,
            ttl,
            revision: Revision::NONE,
            labels: labels.clone(),
            due: deadline,
        };
        self.members.insert(member.clone(), live);
        self.due.insert((deadline, member.clone()));
        self.lapses.remove(member);
        self.emit(now, EventKind::Joined).tenure = Some(tenure.clone());
        Ok(tenure)
    }

    /// One who is never stale needs no grace, and must not make that of others last for ever.
    pub(super) fn note_ttl(&mut self, ttl: Duration) {
        if ttl > MAX_STALE_AFTER {
            return;
        }
        let (shortest, longest) = self.ttls.unwrap_or((ttl, ttl));
        self.ttls = Some((shortest.min(ttl), longest.max(ttl)));
    }
}

impl Decide<Beats> for GroupModel {
    /// Extends tenures.
    fn step(&mut self, Beats { beats }: &Beats, _: Call, now: StoreTime) -> Result<Beaten> {
        self.open(now, Call::default())?;
        let replies = beats.iter().map(|beat| self.beat_one(beat, now)).collect();
        self.engage_brake(now);
        Ok(Beaten { replies, as_of: now })
    }
}

impl GroupModel {
    fn beat_one(&mut self, beat: &Beat, now: StoreTime) -> BeatReply {
        if self.end_if_past(&beat.tenure, now) {
            return BeatReply::Ended(EndReason::Lapsed);
        }
        if self.current(&beat.tenure).is_none() {
            return match self.reason_of(&beat.tenure) {
                EndReason::Unknown => self.unknown_beat(beat.tenure.term(), now),
                reason => BeatReply::Ended(reason),
            };
        }
        let Some(live) = self.members.get_mut(beat.tenure.member()) else {
            return BeatReply::Unknown;
        };
        let (before, ttl) = (live.ttl, beat.ttl.unwrap_or(live.ttl));
        live.ttl = ttl;
        live.deadline = now + ttl;
        if ttl < before && live.deadline < live.due {
            self.due.remove(&(live.due, beat.tenure.member().clone()));
            live.due = live.deadline;
            self.due.insert((live.due, beat.tenure.member().clone()));
        }
        let revision = live.revision;
        self.note_ttl(ttl);
        self.compare_revisions(beat.revision, revision, now);
        BeatReply::Renewed {
            expires_in: ttl,
            revision,
        }
    }

    /// A revision that the store does not know was given out by an end of the data that is lost, unless a gap has been
    /// noticed since. One from the future was given out by nobody.
    fn compare_revisions(&mut self, told: Revision, known: Revision, now: StoreTime) {
        let possible = told.0 <= now.micros() + AHEAD_MICROS;
        if told > known && told.0 > self.resumed_at.micros() && possible {
            self.note_lost_tail(told.0, now);
        }
    }

    /// A term that the sequence has not reached, but this life of the store should know: its tail was lost.
    fn unknown_beat(&mut self, term: Term, now: StoreTime) -> BeatReply {
        if self.seq < term.get() && term.get() <= now.micros() && term.get() > self.born_at.micros() {
            self.note_lost_tail(term.get(), now);
        }
        self.note_loss_of_data(term, now);
        BeatReply::Unknown
    }
}

impl Decide<End> for GroupModel {
    /// Ends a tenure on purpose.
    fn step(&mut self, End { tenure, by }: &End, call: Call, now: StoreTime) -> Result<EndReason> {
        self.open(now, call)?;
        if !self.end_if_past(tenure, now) && self.current(tenure).is_some() {
            let reason = match by {
                EndBy::Leave => EndReason::Left,
                EndBy::Expel => EndReason::Expelled,
            };
            self.end_tenure(tenure, reason, now);
        }
        self.engage_brake(now);
        Ok(self.reason_of(tenure))
    }
}

impl GroupModel {
    /// Looks one member up.
    pub(super) fn member(&self, member: &MemberId, now: StoreTime) -> Option<Member> {
        let live = self.members.get(member)?;
        let tenure = TenureId::new(member.clone(), live.term);
        let end = self.end_time(live, self.resumed_for_reading(now), now);
        Some(Member {
            member: member.clone(),
            holdings: self.holdings(&tenure),
            joined_at: tenure.began_at(),
            tenure,
            alive: now < end,
            ttl: live.ttl,
            expires_in: end.since(now),
            last_beat_at: live.deadline.minus(live.ttl),
            labels: live.labels.clone(),
        })
    }
}

impl Decide<MemberOf> for GroupModel {
    fn read(&self, ask: &MemberOf, now: StoreTime) -> Result<Option<Member>> {
        Ok(self.member(&ask.member, now))
    }
}

impl GroupModel {
    /// Counts what a tenure holds.
    pub(super) fn holdings(&self, tenure: &TenureId) -> Holdings {
        Holdings {
            claims: self.held.get(tenure).map_or(0, |held| held.len() as u64),
            leases: self.leased.get(tenure).map_or(0, |leased| leased.len() as u64),
            connections: self.connected.get(tenure).map_or(0, |connected| connected.len() as u64),
        }
    }
}
