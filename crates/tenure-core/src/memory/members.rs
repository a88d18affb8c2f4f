//! Join, beat, end and read, for one group.

use std::time::Duration;

use super::decide::Decide;
use super::group::GroupModel;
use super::rows::MemberRow;
use crate::error::Result;
use crate::event::EventKind;
use crate::id::{MemberId, TenureId, Term};
use crate::ledger::settings::MAX_STALE_AFTER;
use crate::membership::{
    Beat, BeatReplies, BeatReply, Beats, End, EndBy, EndReason, Join, Joined, Labels, Member, MemberOf, Revision,
    SetLabels,
};
use crate::store::Call;
use crate::time::StoreTime;

impl Decide<Join> for GroupModel {
    fn step(&mut self, join: &Join, call: Call, now: StoreTime) -> Result<Joined> {
        self.open(now, call)?;
        let alone = self.is_alone(&join.member);
        let before = self
            .lives
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
        self.serve_waiting(now);
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
    /// Whether there is no other member and none lapsed recently; then the ttls of others no longer matter.
    pub(super) fn is_alone(&self, member: &MemberId) -> bool {
        self.lapses.len() == 0 && self.lives.table.iter().all(|(other, _)| other == member)
    }

    /// Begins a tenure of a member without one; `alone` is the state at the start of the step.
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
            self.change_head(|head| head.ttls = None);
        }
        self.note_ttl(ttl);
        let row = MemberRow {
            term,
            ttl,
            deadline,
            labels: labels.clone(),
            revision: Revision::NONE,
        };
        self.lives.set(member.clone(), Some(row.into()));
        self.roster.reseat(&tenure, true);
        self.lapses.set(member.clone(), None);
        self.emit(now, EventKind::Joined).tenure = Some(tenure.clone());
        Ok(tenure)
    }

    /// Records a ttl. A member that never becomes stale needs no grace, and must not extend that of others forever.
    pub(super) fn note_ttl(&mut self, ttl: Duration) {
        if ttl > MAX_STALE_AFTER {
            return;
        }
        self.change_head(|head| {
            let (shortest, longest) = head.ttls.unwrap_or((ttl, ttl));
            head.ttls = Some((shortest.min(ttl), longest.max(ttl)));
        });
    }
}

impl Decide<Beats> for GroupModel {
    fn step(&mut self, Beats { beats }: &Beats, _: Call, now: StoreTime) -> Result<BeatReplies> {
        let is_past = beats.iter().any(|beat| self.is_past(&beat.tenure, now));
        self.open_to_renew(now, is_past);
        let replies = beats.iter().map(|beat| self.beat_one(beat, now)).collect();
        self.serve_waiting(now);
        self.engage_brake(now);
        Ok(BeatReplies { replies, as_of: now })
    }
}

impl GroupModel {
    fn beat_one(&mut self, beat: &Beat, now: StoreTime) -> BeatReply {
        if self.end_if_past(&beat.tenure, now) {
            return BeatReply::Ended(EndReason::Lapsed);
        }
        let Some(live) = self.current(&beat.tenure) else {
            return match self.reason_of(&beat.tenure) {
                EndReason::Unknown => {
                    self.note_unknown_term(beat.tenure.term(), now);
                    BeatReply::Unknown
                }
                reason => BeatReply::Ended(reason),
            };
        };
        let (before, revision) = (live.ttl, live.revision);
        let ttl = beat.ttl.unwrap_or(before);
        match ttl == before {
            true => self.lives.extend(beat.tenure.member(), now),
            false => self.lives.retime(beat.tenure.member(), ttl, now + ttl, ttl < before),
        }
        if ttl < before {
            self.wake_leases_of(&beat.tenure);
        }
        self.lives.tell(beat.tenure.member(), beat.revision != Revision::NONE);
        self.note_ttl(ttl);
        self.compare_revisions(beat.newest(), revision, now);
        // Another number may be of a history that the store has lost.
        if beat.revision == revision {
            self.note_noticed(&beat.tenure, now);
        }
        BeatReply::Renewed {
            expires_in: ttl,
            revision,
        }
    }
}

impl Decide<End> for GroupModel {
    fn step(&mut self, End { tenure, by, text }: &End, call: Call, now: StoreTime) -> Result<EndReason> {
        self.open(now, call)?;
        if !self.end_if_past(tenure, now) && self.current(tenure).is_some() {
            // Nothing of it runs any more, so nothing has to wait for its deadline.
            let end = (*by == EndBy::NoProgress { stopped: true }).then_some(now);
            if let Some(event) = self.end_tenure_at(tenure, by.reason(), end, now) {
                event.reason.clone_from(text);
            }
        }
        self.serve_waiting(now);
        self.engage_brake(now);
        Ok(self.reason_of(tenure))
    }
}

impl Decide<SetLabels> for GroupModel {
    fn step(&mut self, SetLabels { tenure, labels }: &SetLabels, call: Call, now: StoreTime) -> Result<()> {
        self.open(now, call)?;
        let alive = self.require_alive(tenure, now);
        if alive.is_ok() && self.lives.relabel(tenure, labels) {
            self.emit(now, EventKind::LabelsChanged).tenure = Some(tenure.clone());
        }
        self.engage_brake(now);
        alive
    }
}

impl GroupModel {
    /// Reads a member.
    pub(super) fn member(&self, member: &MemberId, now: StoreTime) -> Option<Member> {
        let live = self.lives.get(member)?;
        let tenure = TenureId::new(member.clone(), live.term);
        let end = self.end_time(live, self.resumed_for_reading(now), now);
        Some(Member {
            member: member.clone(),
            holdings: self.held.of(&tenure),
            joined_at: tenure.began_at(),
            tenure,
            alive: now < end,
            ttl: live.ttl,
            expires_in: end.since(now),
            last_beat_at: live.deadline.minus(live.ttl),
            labels: live.labels(),
        })
    }
}

impl Decide<MemberOf> for GroupModel {
    fn read(&self, ask: &MemberOf, now: StoreTime) -> Result<Option<Member>> {
        Ok(self.member(&ask.member, now))
    }
}
