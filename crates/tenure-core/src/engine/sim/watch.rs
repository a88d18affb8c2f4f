//! What clients may conclude from their answers, whatever the disk does: an account that knows nothing of the engine.

use std::collections::{BTreeMap, BTreeSet};

use super::world::Answer;
use crate::call::{Op, Reply};
use crate::id::{Group, LeaseName, TenureId};
use crate::lease::{Acquire, AcquireOutcome, Place};
use crate::membership::{BeatReply, End, Join};
use crate::time::StoreTime;

type Named<T> = (Group, T);

/// The account.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Until when each holder trusts its tenure: from when it sent what was confirmed.
    trust: BTreeMap<Named<TenureId>, StoreTime>,
    /// Who may be at work under a lease, with the token.
    holders: BTreeMap<Named<LeaseName>, BTreeMap<TenureId, u64>>,
    highest: BTreeMap<Named<(LeaseName, Place)>, u64>,
    tenures: BTreeSet<Named<TenureId>>,
    /// When a tenure was first seen dead, since the last gap.
    dead: BTreeMap<Named<TenureId>, StoreTime>,
    /// Tenures that are known to have ended: that is final.
    ended: BTreeSet<Named<TenureId>>,
}

impl Watch {
    /// A client sends something: it stops before it gives up.
    pub(super) fn sent(&mut self, group: &Group, op: &Op, now: StoreTime) {
        match op {
            // It may be answered or not, so the shorter of the two ttls counts.
            Op::Beat(asked) => {
                for beat in &asked.beats {
                    let trusted = self.trust.get_mut(&(group.clone(), beat.tenure.clone()));
                    if let (Some(until), Some(ttl)) = (trusted, beat.ttl) {
                        *until = (*until).min(now + ttl);
                    }
                }
            }
            Op::End(End { tenure, by, .. }) if by.is_stopped() => {
                self.trust.remove(&(group.clone(), tenure.clone()));
            }
            Op::ReleaseLeases(asked) => {
                for (lease, _) in &asked.leases {
                    if let Some(holders) = self.holders.get_mut(&(group.clone(), lease.clone())) {
                        holders.remove(&asked.tenure);
                    }
                }
            }
            _ => {}
        }
    }

    /// Every member gets a full ttl: those that read as dead and had not ended may read as alive.
    pub(super) fn gap(&mut self) {
        self.dead.clear();
    }

    /// The store is an older copy, and says so: what it forgot it never ended, and it waits before it grants.
    pub(super) fn forget(&mut self) {
        self.dead.clear();
        self.ended.clear();
    }

    pub(super) fn answer(&mut self, answer: &Answer, now: StoreTime) -> Result<(), String> {
        let Ok(reply) = &answer.reply else {
            return Ok(());
        };
        let group = &answer.group;
        match (&answer.op, reply) {
            (Op::Join(Join { ttl, .. }), Reply::Join(joined)) => {
                self.trust
                    .insert((group.clone(), joined.tenure.clone()), answer.asked_at + *ttl);
                let is_new = self.tenures.insert((group.clone(), joined.tenure.clone()));
                must(is_new, || format!("{} was given out before", joined.tenure))
            }
            (Op::Beat(asked), Reply::Beat(beaten)) => {
                for (beat, reply) in asked.beats.iter().zip(&beaten.replies) {
                    self.beat(&(group.clone(), beat.tenure.clone()), *reply, answer.asked_at)?;
                }
                Ok(())
            }
            (Op::Acquire(asked), Reply::Acquire(acquired)) => {
                let outcomes = asked.leases.iter().zip(&acquired.outcomes);
                outcomes
                    .into_iter()
                    .try_for_each(|(lease, outcome)| self.acquired(group, asked, lease, outcome, now))
            }
            (_, Reply::Member(seen)) => seen
                .iter()
                .try_for_each(|seen| self.seen(group, &seen.tenure, seen.alive, answer.at)),
            (_, Reply::Members(page)) => page
                .items
                .iter()
                .try_for_each(|seen| self.seen(group, &seen.tenure, seen.alive, answer.at)),
            (_, Reply::Claims(page)) => page
                .items
                .iter()
                .try_for_each(|seen| self.seen(group, &seen.tenure, seen.alive, answer.at)),
            (_, Reply::Leases(page)) => page
                .items
                .iter()
                .try_for_each(|seen| self.seen(group, &seen.tenure, seen.alive, answer.at)),
            _ => Ok(()),
        }
    }

    fn beat(&mut self, tenure: &Named<TenureId>, reply: BeatReply, sent_at: StoreTime) -> Result<(), String> {
        match reply {
            BeatReply::Renewed { expires_in, .. } => {
                must(!self.ended.contains(tenure), || {
                    format!("{} ended, and was renewed", tenure.1)
                })?;
                if let Some(until) = self.trust.get_mut(tenure) {
                    *until = (*until).max(sent_at + expires_in);
                }
            }
            BeatReply::Ended(reason) if reason.may_still_run() => {
                self.ended.insert(tenure.clone());
            }
            BeatReply::Ended(_) | BeatReply::Unknown => {
                self.ended.insert(tenure.clone());
                self.trust.remove(tenure);
            }
            BeatReply::Refused => {}
        }
        Ok(())
    }

    fn acquired(
        &mut self,
        group: &Group,
        asked: &Acquire,
        lease: &LeaseName,
        outcome: &AcquireOutcome,
        now: StoreTime,
    ) -> Result<(), String> {
        let (tenure, named) = (&asked.tenure, (group.clone(), lease.clone()));
        let AcquireOutcome::Granted { token, place, .. } = outcome else {
            return Ok(());
        };
        // Grants of two places may be answered in any order.
        let highest = self
            .highest
            .entry((group.clone(), (lease.clone(), *place)))
            .or_default();
        must(token.get() > *highest, || format!("{lease}: {token} after {highest}"))?;
        *highest = token.get();
        let holders = self.holders.entry(named).or_default();
        holders.remove(tenure);
        let trust = |holder: &TenureId| self.trust.get(&(group.clone(), holder.clone())).copied();
        let others: Vec<_> = holders
            .keys()
            .filter(|holder| trust(holder).unwrap_or_default() > now)
            .collect();
        must(others.len() < usize::from(asked.holders.get()), || {
            format!("{lease} was granted to {tenure}, and {others:?} trust it at {now}")
        })?;
        holders.insert(tenure.clone(), token.get());
        Ok(())
    }

    fn seen(&mut self, group: &Group, tenure: &TenureId, alive: bool, at: StoreTime) -> Result<(), String> {
        let named = (group.clone(), tenure.clone());
        if !alive {
            self.dead.entry(named).or_insert(at);
            return Ok(());
        }
        must(!self.ended.contains(&named), || {
            format!("{tenure} ended, and reads as alive")
        })?;
        let dead = self.dead.get(&named).copied();
        must(dead.is_none_or(|dead| at < dead), || {
            format!("{tenure} read as dead at {dead:?} and as alive at {at}")
        })
    }
}

fn must(holds: bool, seen: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(seen()) }
}
