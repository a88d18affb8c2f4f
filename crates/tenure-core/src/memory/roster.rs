//! The mirror of a roster, for one group: rows, tenures and heartbeats.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use super::decide::Decide;
use super::group::GroupModel;
use super::lives::Live;
use super::offlined::OfflinedModel;
use super::pages::behind;
use super::rows::{OfflinedRow, ProviderRow, RemovedRow, RosterRow, TurnRow};
use super::seats::Seats;
use super::table::{Table, Tracked};
use crate::error::Result;
use crate::event::EventKind;
use crate::id::{MemberId, ProviderId, TenureId};
use crate::ledger::settings::MAX_STALE_AFTER;
use crate::ledger::{Provider, Version};
use crate::membership::{EndReason, Labels};
use crate::roster::{
    BeatProviders, EndTurn, EnsureTenures, EnsuredTenure, Heartbeat, HeartbeatReply, Heartbeats, ListPending,
    MarkSeeded, MirrorEntry, OfflineDone, Offlined, Pending, Put, PutOutcome, PutProviders, PutRosterSettings, Retime,
    Standing, Task, Turn, TurnRequest,
};
use crate::store::Call;
use crate::sweep::BURST;
use crate::time::StoreTime;

/// The roster state of a group.
#[derive(Debug, Default)]
pub(super) struct RosterModel {
    pub(super) seats: Seats,
    /// The removals, with version and time.
    pub(super) gone: Table<ProviderId, RemovedRow>,
    gone_by_time: BTreeSet<(StoreTime, ProviderId)>,
    /// Ended tenures that the ledger must apply.
    pub(super) offlined: OfflinedModel,
    pub(super) marks: Tracked<RosterRow>,
    /// During a change of ttls, the last member with the new one.
    pub(super) retiming: Tracked<Option<MemberId>>,
    pub(super) turns: Table<Task, TurnRow>,
    pub(super) snapshot: Option<Snapshot>,
}

/// The number of available providers. Not stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Snapshot {
    pub(super) as_of: StoreTime,
    pub(super) count: u64,
    pub(super) complete: bool,
    /// Whether something has changed since.
    pub(super) changed: bool,
    /// The newest step it depends on, if that was not durable.
    pub(super) step: u64,
}

impl RosterModel {
    pub(super) fn marks(&self) -> RosterRow {
        self.marks.get().copied().unwrap_or_default()
    }

    fn mark(&mut self, change: impl FnOnce(&mut RosterRow)) {
        let before = self.marks();
        let mut marks = before;
        change(&mut marks);
        if marks != before {
            self.marks.set(Some(marks));
        }
    }

    /// A provider's row.
    pub(super) fn row(&self, provider: &ProviderId) -> Option<&Provider> {
        self.seats.rows.get(provider).map(|row| &row.provider)
    }

    /// Whether a ledger has written anything of the roster.
    pub(super) fn is_known(&self) -> bool {
        let marks = self.marks();
        let settings = marks.settings.as_ref().map(|settings| settings.version);
        marks.seeded || marks.high.max(settings.unwrap_or_default()) != Version::default()
    }

    /// Whether the group has any roster state.
    pub(super) fn is_there(&self) -> bool {
        let rows = self.seats.rows.len() + self.gone.len() + self.offlined.table.len() + self.turns.len();
        let marks = self.marks();
        rows > 0 || marks.seeded || marks.settings.is_some() || self.snapshot.is_some()
    }

    fn version_of(&self, provider: &ProviderId) -> Version {
        let row = self.row(provider).map(|row| row.version);
        row.or_else(|| self.gone.get(provider).map(|gone| gone.version))
            .unwrap_or_default()
    }

    pub(super) fn note_change(&mut self) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.changed = true;
        }
    }

    /// Updates the indexes after the current tenure of a member has begun or ended.
    pub(super) fn reseat(&mut self, tenure: &TenureId, current: bool) {
        let provider = ProviderId::from(tenure.member());
        self.seats.reseat(&provider, current.then_some(tenure));
    }

    /// Records or reverts a removal.
    pub(super) fn set_gone(&mut self, provider: &ProviderId, row: Option<RemovedRow>) {
        if let Some(before) = self.gone.set(provider.clone(), row) {
            self.gone_by_time.remove(&(before.at, provider.clone()));
        }
        if let Some(row) = row {
            self.gone_by_time.insert((row.at, provider.clone()));
        }
    }

    /// Forgets at most `most` removals older than `kept`.
    pub(super) fn forget_gone(&mut self, kept: Duration, most: usize, now: StoreTime) {
        let old = self.gone_by_time.iter().take_while(|(at, _)| *at + kept <= now);
        let old: Vec<_> = old.take(most).map(|(_, provider)| provider.clone()).collect();
        for provider in old {
            self.set_gone(&provider, None);
        }
    }
}

impl Decide<PutProviders> for GroupModel {
    /// Applies rows and removals.
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
        let tenure = self.roster.row(&provider).and_then(|row| row.online.clone());
        let standing = tenure.map_or(Standing::Offline, |tenure| self.stand(&tenure, now));
        PutOutcome {
            applied,
            version: self.roster.version_of(&provider),
            standing,
        }
    }

    fn take_over(&mut self, entry: &MirrorEntry, now: StoreTime) {
        let (provider, version) = (entry.provider().clone(), entry.version());
        let row = match entry {
            MirrorEntry::Row(row) => Some(Provider {
                last_heartbeat_at: None,
                ..row.clone()
            }),
            MirrorEntry::Gone { .. } => None,
        };
        let gone = row.is_none().then_some(RemovedRow { version, at: now });
        self.roster.set_gone(&provider, gone);
        let row = row.map(|provider| ProviderRow {
            provider,
            followed: false,
        });
        let before = self.set_provider(&provider, row).map(|before| before.provider);
        let is_active = self.roster.row(&provider).map(|row| row.active);
        if let (Some(before), Some(is_active)) = (&before, is_active)
            && before.active != is_active
        {
            self.emit(now, EventKind::of_activation(is_active)).to = Some(provider.member());
        }
        let named = self.roster.row(&provider).and_then(|row| row.online.clone());
        // The ledger has applied it, or names another tenure.
        if let Some(before) = before
            .and_then(|row| row.online)
            .filter(|before| named.as_ref() != Some(before))
        {
            self.roster.offlined.set(&before, None);
        }
        self.roster.mark(|marks| marks.high = marks.high.max(version));
        self.roster.note_change();
    }

    /// Sets or removes the row of a provider. Returns the previous one.
    pub(super) fn set_provider(&mut self, provider: &ProviderId, row: Option<ProviderRow>) -> Option<ProviderRow> {
        let member = provider.member();
        let current = self.lives.get(&member).map(|live| live.term);
        let current = current.map(|term| TenureId::new(member, term));
        self.roster.seats.set(provider, row, current.as_ref())
    }

    /// Records in the row of a tenure whether the ledger knows of its end.
    fn set_followed(&mut self, tenure: &TenureId, followed: bool) {
        let rows = &mut self.roster.seats.rows;
        let provider = ProviderId::from(tenure.member());
        let named = rows.get(&provider).is_some_and(|row| {
            let online = row.provider.online.as_ref();
            online == Some(tenure) && row.followed != followed
        });
        if named && let Some(row) = rows.change(&provider) {
            row.followed = followed;
        }
    }

    /// The state of a row's tenure. Ends one past its end time; one that ended before the row arrived becomes pending.
    fn stand(&mut self, tenure: &TenureId, now: StoreTime) -> Standing {
        if self.end_if_past(tenure, now) {
            return Standing::Ended;
        }
        if self.current(tenure).is_some() {
            return Standing::Alive;
        }
        if self.roster.offlined.table.contains(tenure) {
            return Standing::Ended;
        }
        let Some(ended) = self.ended.get(tenure).copied() else {
            return Standing::Unknown;
        };
        let row = OfflinedRow {
            ended_at: ended.at,
            at: ended.end.min(ended.at),
            reason: ended.reason,
            heard_at: None,
        };
        self.roster.offlined.set(tenure, Some(row));
        self.set_followed(tenure, false);
        Standing::Ended
    }

    /// Handles the end of a tenure: if a row names it, the ledger must apply it.
    pub(super) fn note_offline(
        &mut self,
        tenure: &TenureId,
        live: &Live,
        reason: EndReason,
        end: StoreTime,
        now: StoreTime,
    ) {
        let row = self.roster.row(&ProviderId::from(tenure.member()));
        if row.is_none_or(|row| row.online.as_ref() != Some(tenure)) {
            return;
        }
        let row = OfflinedRow {
            ended_at: now,
            at: end.min(now),
            reason,
            heard_at: Some(live.deadline.minus(live.ttl)),
        };
        self.roster.offlined.set(tenure, Some(row));
        self.roster.note_change();
    }
}

impl Decide<EnsureTenures> for GroupModel {
    /// Gives tenures to providers without one.
    fn step(&mut self, ask: &EnsureTenures, call: Call, now: StoreTime) -> Result<Vec<EnsuredTenure>> {
        self.open(now, call)?;
        let providers = &ask.providers;
        let settings = self.roster.marks().settings;
        let ttl = settings.map_or(ask.stale_after, |settings| settings.ttl());
        let mut seated = Vec::with_capacity(providers.len());
        for provider in providers {
            let member = provider.member();
            let alone = self.is_alone(&member);
            let before = self.lives.get(&member);
            let before = before.map(|live| TenureId::new(member.clone(), live.term));
            let alive = before.filter(|tenure| !self.end_if_past(tenure, now));
            seated.push(match alive {
                Some(tenure) => {
                    if ask.beat {
                        self.lives.extend(&member, now);
                    }
                    EnsuredTenure { tenure, new: false }
                }
                None => EnsuredTenure {
                    tenure: self.begin_tenure(&member, ttl, &Labels::default(), alone, now)?,
                    new: true,
                },
            });
        }
        self.engage_brake(now);
        Ok(seated)
    }
}

impl Decide<BeatProviders> for GroupModel {
    fn step(&mut self, BeatProviders { heartbeats }: &BeatProviders, _: Call, now: StoreTime) -> Result<Heartbeats> {
        // The stamp tells when the store resumed, so a heartbeat looks, unlike a beat.
        self.open(now, Call::default())?;
        let replies = heartbeats
            .iter()
            .map(|heartbeat| self.heartbeat_of(heartbeat, now))
            .collect();
        self.engage_brake(now);
        Ok(Heartbeats {
            replies,
            mirror: self.mirror_status(now),
        })
    }
}

impl GroupModel {
    /// The part of a heartbeat that the row decides: the tenure to check, or the reply.
    pub(super) fn named_by_row(&self, heartbeat: &Heartbeat) -> Result<TenureId, HeartbeatReply> {
        let row = self.roster.row(&heartbeat.provider).ok_or(HeartbeatReply::Absent)?;
        if !row.active {
            return Err(HeartbeatReply::Deactivated);
        }
        if let (Some(issued), Some(revoked)) = (heartbeat.issued_at, row.revoked_before)
            && issued < revoked
        {
            return Err(HeartbeatReply::Revoked);
        }
        row.online.clone().ok_or(HeartbeatReply::Offline)
    }

    fn heartbeat_of(&mut self, heartbeat: &Heartbeat, now: StoreTime) -> HeartbeatReply {
        let tenure = match self.named_by_row(heartbeat) {
            Ok(tenure) => tenure,
            Err(reply) => return reply,
        };
        match self.stand(&tenure, now) {
            Standing::Alive => {
                self.lives.extend(tenure.member(), now);
                HeartbeatReply::Recorded
            }
            Standing::Unknown => HeartbeatReply::Unknown,
            Standing::Offline | Standing::Ended => HeartbeatReply::Offline,
        }
    }
}

impl Decide<ListPending> for GroupModel {
    /// Lists the ended tenures that the ledger must apply now.
    fn step(&mut self, &ListPending { limit, force }: &ListPending, call: Call, now: StoreTime) -> Result<Pending> {
        self.open(now, call)?;
        self.lift_brake(now, force);
        let brake = self.brake_in_force(now);
        let mut pending = Pending::default();
        let mut ready = self.first_offlined(false, limit);
        match brake {
            None => ready.extend(self.first_offlined(true, limit)),
            Some(brake) if self.roster.offlined.first(true).is_some() => {
                pending.next = Some(brake.until);
                pending.braked = Some(brake);
            }
            Some(_) => {}
        }
        ready.sort_by(|(one_at, one), (two_at, two)| (one_at, &one.tenure).cmp(&(two_at, &two.tenure)));
        for (ended_at, offlined) in ready {
            let next = ended_at + BURST;
            if next > now || pending.items.len() >= limit as usize {
                pending.next = Some(pending.next.map_or(next, |other| other.min(next)));
                break;
            }
            pending.items.push(offlined);
        }
        Ok(pending)
    }
}

impl GroupModel {
    /// The first tenures of one list, one more than the limit.
    fn first_offlined(&self, lapsed: bool, limit: u32) -> Vec<(StoreTime, Offlined)> {
        let list = self.roster.offlined.list(lapsed).iter().take(limit as usize + 1);
        let offlined = |(at, tenure): &(StoreTime, TenureId)| {
            let row = self.roster.offlined.table.get(tenure)?;
            let offlined = Offlined {
                tenure: tenure.clone(),
                at: row.at,
                reason: row.reason,
                heard_at: row.heard_at,
            };
            Some((*at, offlined))
        };
        list.filter_map(offlined).collect()
    }

    /// The earliest time at which the ledger may apply an ended tenure.
    pub(super) fn next_offline(&self, now: StoreTime) -> Option<StoreTime> {
        let ready = |lapsed| self.roster.offlined.first(lapsed).map(|ended_at| ended_at + BURST);
        let lapsed = match self.brake_in_force(now) {
            Some(brake) => self.roster.offlined.first(true).map(|_| brake.until),
            None => ready(true),
        };
        ready(false).into_iter().chain(lapsed).min()
    }
}

impl Decide<OfflineDone> for GroupModel {
    /// Records that the ledger has applied ended tenures.
    fn step(&mut self, OfflineDone { tenures }: &OfflineDone, call: Call, now: StoreTime) -> Result<u64> {
        self.open(now, call)?;
        let mut done = 0;
        for tenure in tenures {
            if self.roster.offlined.set(tenure, None) {
                self.set_followed(tenure, true);
                done += 1;
            }
        }
        Ok(done)
    }
}

impl Decide<PutRosterSettings> for GroupModel {
    /// Applies settings.
    fn step(&mut self, ask: &PutRosterSettings, call: Call, now: StoreTime) -> Result<bool> {
        let PutRosterSettings { settings, over } = ask;
        self.open(now, call)?;
        let there = self.roster.marks().settings.map(|there| there.version);
        if !over.allows(there, settings.version) {
            return Ok(false);
        }
        self.roster.mark(|marks| marks.settings = Some(*settings));
        self.roster.retiming.set(Some(None));
        self.roster.note_change();
        Ok(true)
    }
}

impl Decide<Retime> for GroupModel {
    /// Applies the ttl of the settings to a part of the members.
    fn step(&mut self, &Retime { limit }: &Retime, call: Call, now: StoreTime) -> Result<bool> {
        self.open(now, call)?;
        let (Some(after), Some(settings)) = (self.roster.retiming.get().cloned(), self.roster.marks().settings) else {
            return Ok(false);
        };
        let ttl = settings.ttl();
        let mut names = self.lives.table.range((behind(after), Bound::Unbounded));
        let part = names.by_ref().take(limit as usize);
        let part: Vec<_> = part.map(|(name, _)| name.clone()).collect();
        let more = names.next().is_some();
        drop(names);
        for member in &part {
            self.retime_one(member, ttl, now);
        }
        let so_far = part.last().filter(|_| more).map(|last| Some(last.clone()));
        self.roster.retiming.set(so_far);
        if !more {
            self.change_head(|head| head.ttls = (ttl <= MAX_STALE_AFTER).then_some((ttl, ttl)));
        }
        self.roster.note_change();
        self.engage_brake(now);
        Ok(more)
    }
}

impl GroupModel {
    fn retime_one(&mut self, member: &MemberId, ttl: Duration, now: StoreTime) {
        let Some(live) = self.lives.get(member) else { return };
        let tenure = TenureId::new(member.clone(), live.term);
        if live.ttl == ttl || self.end_if_past(&tenure, now) {
            return;
        }
        self.note_ttl(ttl);
        let Some(live) = self.lives.get(member) else { return };
        let from = match live.ttl > MAX_STALE_AFTER {
            true => now,
            false => live.deadline.minus(live.ttl),
        };
        self.lives.retime(member, ttl, from + ttl, true);
    }
}

impl Decide<TurnRequest> for GroupModel {
    fn step(&mut self, request: &TurnRequest, call: Call, now: StoreTime) -> Result<Turn> {
        self.open(now, call)?;
        let mut state = self.roster.turns.get(&request.task).cloned().unwrap_or_default();
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
        self.roster.turns.insert(request.task, state);
        Ok(Turn::Mine(until))
    }
}

impl Decide<EndTurn> for GroupModel {
    fn step(&mut self, ask: &EndTurn, call: Call, now: StoreTime) -> Result<()> {
        self.open(now, call)?;
        let state = self.roster.turns.get(&ask.task);
        let mine = state
            .and_then(|state| state.holder.as_ref())
            .is_some_and(|(theirs, _)| *theirs == ask.holder);
        if mine && let Some(state) = self.roster.turns.change(&ask.task) {
            state.holder = None;
            if ask.done {
                state.done_at = Some(now);
            }
        }
        Ok(())
    }
}

impl Decide<MarkSeeded> for GroupModel {
    /// Marks the mirror as filled.
    fn step(&mut self, &MarkSeeded { since }: &MarkSeeded, call: Call, now: StoreTime) -> Result<bool> {
        self.open(now, call)?;
        let same = self.head().resumed_at == since;
        self.roster.mark(|marks| marks.seeded |= same);
        Ok(same)
    }
}
