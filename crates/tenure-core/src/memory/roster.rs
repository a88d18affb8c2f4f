//! The mirror of a roster, on one group: what arrives, who is seated, who is heard of.

use std::collections::BTreeMap;
use std::time::Duration;

use super::decide::Decide;
use super::group::{GroupModel, Live};
use crate::error::Result;
use crate::event::EventKind;
use crate::id::{MemberId, ProviderId, TenureId};
use crate::ledger::settings::MAX_STALE_AFTER;
use crate::ledger::{Provider, RosterSettings, Version};
use crate::membership::{EndReason, Labels};
use crate::roster::{
    BeatProviders, EndTurn, Entry, Heartbeat, HeartbeatReply, Heartbeats, ListPending, MarkSeeded, OfflineDone,
    Offlined, Pending, Put, PutOutcome, PutProviders, PutRosterSettings, Retime, Seat, Seated, Standing, Task, Turn,
    TurnRequest,
};
use crate::store::Call;
use crate::sweep::BURST;
use crate::time::StoreTime;

/// What a group keeps of its roster.
#[derive(Debug, Default)]
pub(super) struct RosterModel {
    pub(super) rows: BTreeMap<ProviderId, Provider>,
    /// What was removed, in which version and when.
    pub(super) gone: BTreeMap<ProviderId, (Version, StoreTime)>,
    /// Whom the ledger has to follow, and when the tenure ended.
    pub(super) offlined: BTreeMap<TenureId, (StoreTime, Offlined)>,
    pub(super) high: Version,
    pub(super) seeded: bool,
    pub(super) settings: Option<RosterSettings>,
    /// While ttls are being changed: up to whom they are.
    retiming: Option<Option<MemberId>>,
    /// When the available were counted, how many there were, and whether something has changed since.
    pub(super) snapshot: Option<(StoreTime, u64, bool)>,
    turns: BTreeMap<Task, TurnState>,
}

#[derive(Debug, Default, Clone)]
struct TurnState {
    holder: Option<(String, StoreTime)>,
    done_at: Option<StoreTime>,
}

impl RosterModel {
    /// Whether a ledger has told anything of the roster.
    pub(super) fn is_known(&self) -> bool {
        let settings = self.settings.as_ref().map(|settings| settings.version);
        self.seeded || self.high.max(settings.unwrap_or_default()) != Version::default()
    }

    /// Whether anything is kept of the roster.
    pub(super) fn is_there(&self) -> bool {
        let empty = self.rows.is_empty() && self.gone.is_empty() && self.offlined.is_empty() && self.turns.is_empty();
        !empty || self.seeded || self.settings.is_some() || self.snapshot.is_some()
    }

    fn version_of(&self, provider: &ProviderId) -> Version {
        let row = self.rows.get(provider).map(|row| row.version);
        row.or_else(|| self.gone.get(provider).map(|(version, _)| *version))
            .unwrap_or_default()
    }

    pub(super) fn note_change(&mut self) {
        if let Some((_, _, changed)) = &mut self.snapshot {
            *changed = true;
        }
    }
}

impl Decide<PutProviders> for GroupModel {
    /// Takes rows and removals over.
    fn step(&mut self, PutProviders { puts }: &PutProviders, call: Call, now: StoreTime) -> Result<Vec<PutOutcome>> {
        self.open(now, call)?;
        let outcomes = puts.iter().map(|put| self.put_provider(put, now)).collect();
        self.engage_brake(now);
        Ok(outcomes)
    }
}

impl GroupModel {
    fn put_provider(&mut self, put: &Put, now: StoreTime) -> PutOutcome {
        let provider = put.entry.provider().clone();
        let there = self.roster.version_of(&provider);
        let applied = put.over.allows(Some(there), put.entry.version());
        if applied {
            self.take_over(&put.entry, now);
        }
        let tenure = self.roster.rows.get(&provider).and_then(|row| row.online.clone());
        let standing = tenure.map_or(Standing::Offline, |tenure| self.stand(&tenure, now));
        PutOutcome {
            applied,
            version: self.roster.version_of(&provider),
            standing,
        }
    }

    fn take_over(&mut self, entry: &Entry, now: StoreTime) {
        let (provider, version) = (entry.provider().clone(), entry.version());
        let before = self.roster.rows.remove(&provider);
        self.roster.gone.remove(&provider);
        match entry {
            Entry::Row(row) => {
                let row = Provider {
                    last_heartbeat_at: None,
                    ..row.clone()
                };
                self.roster.rows.insert(provider.clone(), row);
            }
            Entry::Gone { .. } => {
                self.roster.gone.insert(provider.clone(), (version, now));
            }
        }
        let is_active = self.roster.rows.get(&provider).map(|row| row.active);
        if let (Some(before), Some(is_active)) = (&before, is_active)
            && before.active != is_active
        {
            self.emit(now, EventKind::of_activation(is_active)).to = Some(provider.member());
        }
        let named = self.roster.rows.get(&provider).and_then(|row| row.online.clone());
        // The ledger has followed, or has another one.
        if let Some(before) = before
            .and_then(|row| row.online)
            .filter(|before| named.as_ref() != Some(before))
        {
            self.roster.offlined.remove(&before);
        }
        self.roster.high = self.roster.high.max(version);
        self.roster.note_change();
    }

    /// How the tenure of a row stands. One that is past its end time ends; one that had ended before the row arrived joins
    /// the pending ones.
    fn stand(&mut self, tenure: &TenureId, now: StoreTime) -> Standing {
        if self.end_if_past(tenure, now) {
            return Standing::Ended;
        }
        if self.current(tenure).is_some() {
            return Standing::Alive;
        }
        if self.roster.offlined.contains_key(tenure) {
            return Standing::Ended;
        }
        let Some(ended) = self.ended.get(tenure).copied() else {
            return Standing::Unknown;
        };
        let offlined = Offlined {
            tenure: tenure.clone(),
            at: ended.end.min(ended.at),
            reason: ended.reason,
            heard_at: None,
        };
        self.roster.offlined.insert(tenure.clone(), (ended.at, offlined));
        Standing::Ended
    }

    /// A tenure ends: if a row names it, the ledger has to follow.
    pub(super) fn note_offline(
        &mut self,
        tenure: &TenureId,
        live: &Live,
        reason: EndReason,
        end: StoreTime,
        now: StoreTime,
    ) {
        let row = self.roster.rows.get(&ProviderId::from(tenure.member()));
        if row.is_none_or(|row| row.online.as_ref() != Some(tenure)) {
            return;
        }
        let offlined = Offlined {
            tenure: tenure.clone(),
            at: end.min(now),
            reason,
            heard_at: Some(live.deadline.minus(live.ttl)),
        };
        self.roster.offlined.insert(tenure.clone(), (now, offlined));
        self.roster.note_change();
    }
}

impl Decide<Seat> for GroupModel {
    /// Gives tenures to those who have none.
    fn step(&mut self, ask: &Seat, call: Call, now: StoreTime) -> Result<Vec<Seated>> {
        self.open(now, call)?;
        let providers = &ask.providers;
        let ttl = self.roster.settings.map_or(ask.stale_after, |settings| settings.ttl());
        let mut seated = Vec::with_capacity(providers.len());
        for provider in providers {
            let member = provider.member();
            let alone = self.is_alone(&member);
            let before = self.members.get(&member);
            let before = before.map(|live| TenureId::new(member.clone(), live.term));
            let alive = before.filter(|tenure| !self.end_if_past(tenure, now));
            seated.push(match alive {
                Some(tenure) => {
                    if ask.beat {
                        self.extend(&member, now);
                    }
                    Seated { tenure, new: false }
                }
                None => Seated {
                    tenure: self.begin_tenure(&member, ttl, &Labels::default(), alone, now)?,
                    new: true,
                },
            });
        }
        self.engage_brake(now);
        Ok(seated)
    }
}

impl GroupModel {
    fn extend(&mut self, member: &MemberId, now: StoreTime) {
        if let Some(live) = self.members.get_mut(member) {
            live.deadline = now + live.ttl;
        }
    }
}

impl Decide<BeatProviders> for GroupModel {
    /// Records heartbeats.
    fn step(&mut self, BeatProviders { heartbeats }: &BeatProviders, _: Call, now: StoreTime) -> Result<Heartbeats> {
        self.open(now, Call::default())?;
        let replies = heartbeats
            .iter()
            .map(|heartbeat| self.heartbeat_of(heartbeat, now))
            .collect();
        self.engage_brake(now);
        Ok(Heartbeats {
            replies,
            stamp: self.stamp(now),
        })
    }
}

impl GroupModel {
    fn heartbeat_of(&mut self, heartbeat: &Heartbeat, now: StoreTime) -> HeartbeatReply {
        let Some(row) = self.roster.rows.get(&heartbeat.provider) else {
            return HeartbeatReply::Absent;
        };
        if !row.active {
            return HeartbeatReply::Deactivated;
        }
        if let (Some(issued), Some(revoked)) = (heartbeat.issued_at, row.revoked_before)
            && issued < revoked
        {
            return HeartbeatReply::Revoked;
        }
        let Some(tenure) = row.online.clone() else {
            return HeartbeatReply::Offline;
        };
        match self.stand(&tenure, now) {
            Standing::Alive => {
                self.extend(tenure.member(), now);
                HeartbeatReply::Recorded
            }
            Standing::Unknown => HeartbeatReply::Unknown,
            Standing::Offline | Standing::Ended => HeartbeatReply::Offline,
        }
    }
}

impl Decide<ListPending> for GroupModel {
    /// Whom the ledger has to follow now.
    fn step(&mut self, &ListPending { limit, force }: &ListPending, call: Call, now: StoreTime) -> Result<Pending> {
        self.open(now, call)?;
        self.lift_brake(now, force);
        let brake = self.brake_in_force(now);
        let held_back = |offlined: &Offlined| brake.filter(|_| offlined.reason == EndReason::Lapsed);
        let mut all: Vec<_> = self.roster.offlined.values().collect();
        all.sort_by_cached_key(|(ended_at, offlined)| (*ended_at, offlined.tenure.to_string()));
        let mut pending = Pending::default();
        for (ended_at, offlined) in all {
            let next = match held_back(offlined) {
                Some(brake) => {
                    pending.braked = Some(brake);
                    brake.until
                }
                None => *ended_at + BURST,
            };
            if next <= now && pending.items.len() < limit as usize {
                pending.items.push(offlined.clone());
            } else {
                pending.next = Some(pending.next.map_or(next, |other| other.min(next)));
            }
        }
        Ok(pending)
    }
}

impl GroupModel {
    /// The earliest time at which the ledger may follow somebody.
    pub(super) fn next_offline(&self, now: StoreTime) -> Option<StoreTime> {
        let brake = self.brake_in_force(now);
        let times = self.roster.offlined.values().map(|(ended_at, offlined)| {
            let held_back = brake.filter(|_| offlined.reason == EndReason::Lapsed);
            held_back.map_or(*ended_at + BURST, |brake| brake.until)
        });
        times.min()
    }
}

impl Decide<OfflineDone> for GroupModel {
    /// The ledger has followed.
    fn step(&mut self, OfflineDone { tenures }: &OfflineDone, call: Call, now: StoreTime) -> Result<u64> {
        self.open(now, call)?;
        let done = tenures
            .iter()
            .filter(|tenure| self.roster.offlined.remove(*tenure).is_some());
        Ok(done.count() as u64)
    }
}

impl Decide<PutRosterSettings> for GroupModel {
    /// Takes settings over.
    fn step(&mut self, ask: &PutRosterSettings, call: Call, now: StoreTime) -> Result<bool> {
        let PutRosterSettings { settings, over } = ask;
        self.open(now, call)?;
        let there = self.roster.settings.map(|there| there.version);
        if !over.allows(there, settings.version) {
            return Ok(false);
        }
        self.roster.settings = Some(*settings);
        self.roster.retiming = Some(None);
        self.roster.note_change();
        Ok(true)
    }
}

impl Decide<Retime> for GroupModel {
    /// Gives a part of the members the ttl that the settings say.
    fn step(&mut self, &Retime { limit }: &Retime, call: Call, now: StoreTime) -> Result<bool> {
        self.open(now, call)?;
        let (Some(after), Some(settings)) = (self.roster.retiming.clone(), self.roster.settings) else {
            return Ok(false);
        };
        let ttl = settings.ttl();
        let names = self.members.keys();
        let mut names = names.filter(|name| after.as_ref().is_none_or(|after| *name > after));
        let part: Vec<_> = names.by_ref().take(limit as usize).cloned().collect();
        let more = names.next().is_some();
        for member in &part {
            self.retime_one(member, ttl, now);
        }
        self.roster.retiming = part.last().filter(|_| more).map(|last| Some(last.clone()));
        if !more {
            self.ttls = (ttl <= MAX_STALE_AFTER).then_some((ttl, ttl));
        }
        self.roster.note_change();
        self.engage_brake(now);
        Ok(more)
    }
}

impl GroupModel {
    fn retime_one(&mut self, member: &MemberId, ttl: Duration, now: StoreTime) {
        let Some(live) = self.members.get(member) else { return };
        let tenure = TenureId::new(member.clone(), live.term);
        if live.ttl == ttl || self.end_if_past(&tenure, now) {
            return;
        }
        self.note_ttl(ttl);
        let Some(live) = self.members.get_mut(member) else {
            return;
        };
        let from = match live.ttl > MAX_STALE_AFTER {
            true => now,
            false => live.deadline.minus(live.ttl),
        };
        live.deadline = from + ttl;
        live.ttl = ttl;
        if live.deadline < live.due {
            self.due.remove(&(live.due, member.clone()));
            live.due = live.deadline;
            self.due.insert((live.due, member.clone()));
        }
    }
}

impl Decide<TurnRequest> for GroupModel {
    /// Takes the turn at a task.
    fn step(&mut self, request: &TurnRequest, call: Call, now: StoreTime) -> Result<Turn> {
        self.open(now, call)?;
        let state = self.roster.turns.entry(request.task).or_default();
        let mine = match &state.holder {
            Some((holder, until)) if *until > now && *holder != request.holder => return Ok(Turn::Others(*until)),
            Some((holder, until)) => *until > now && *holder == request.holder,
            None => false,
        };
        if let Some(due) = state.done_at.map(|at| at + request.every)
            && due > now
            && !mine
        {
            return Ok(Turn::DoneUntil(due));
        }
        let until = now + request.lasts;
        state.holder = Some((request.holder.clone(), until));
        Ok(Turn::Mine(until))
    }
}

impl Decide<EndTurn> for GroupModel {
    /// Ends the turn at a task.
    fn step(&mut self, ask: &EndTurn, call: Call, now: StoreTime) -> Result<()> {
        self.open(now, call)?;
        let state = self.roster.turns.entry(ask.task).or_default();
        if state.holder.as_ref().is_some_and(|(theirs, _)| *theirs == ask.holder) {
            state.holder = None;
            if ask.done {
                state.done_at = Some(now);
            }
        }
        Ok(())
    }
}

impl Decide<MarkSeeded> for GroupModel {
    /// Everything has arrived.
    fn step(&mut self, &MarkSeeded { since }: &MarkSeeded, call: Call, now: StoreTime) -> Result<bool> {
        self.open(now, call)?;
        let same = self.resumed_at == since;
        self.roster.seeded |= same;
        Ok(same)
    }
}
