//! The engagements of one roster.

use super::model::{Moment, RosterModel, no_provider};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{EngagementId, ProviderId};
use crate::ledger::{
    Candidate, Candidates, Engagement, EngagementChange, EngagementOutcome, ExpiredBatch, Move, NewEngagement,
    Provider, ReserveOutcome, Status, Version,
};
use crate::time::StoreTime;

impl RosterModel {
    pub(super) fn create(&mut self, new: &NewEngagement, moment: &mut Moment<'_>) -> Result<EngagementOutcome> {
        if let Some(known) = self.engagements.get(&new.engagement) {
            let is_others = new.provider.is_some() && new.provider != known.provider;
            return Ok(match is_others || !known.status.is_open() {
                true => EngagementOutcome::Conflict(known.clone()),
                false => EngagementOutcome::Done(self.as_it_is(known)),
            });
        }
        if let Some(provider) = &new.provider {
            self.get(provider)?;
        }
        let row = begin(new, moment);
        Ok(EngagementOutcome::Done(self.write_engagement(row, moment)))
    }

    pub(super) fn move_to(
        &mut self,
        engagement: &EngagementId,
        to: &Move,
        moment: &mut Moment<'_>,
    ) -> Result<EngagementOutcome> {
        let known = self.engagements.get(engagement).ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!("the roster has no engagement {engagement}"),
            )
        })?;
        let row = Engagement {
            status: to.status.unwrap_or(known.status),
            provider: to.provider.applied_to(known),
            expires_at: match known.status.is_open() {
                true => to.expires_at(known, moment.now),
                false => known.expires_at,
            },
            ..known.clone()
        };
        if row == *known {
            return Ok(EngagementOutcome::Done(self.as_it_is(known)));
        }
        let same_place = known.status.is_open() || row.provider == known.provider;
        if !known.status.may_become(row.status) || !same_place {
            return Ok(EngagementOutcome::Conflict(known.clone()));
        }
        if let Some(provider) = row.provider.as_ref().filter(|_| row.provider != known.provider)
            && !self.providers.contains_key(provider)
        {
            return Err(no_provider(provider));
        }
        Ok(EngagementOutcome::Done(self.write_engagement(row, moment)))
    }

    pub(super) fn reserve(
        &mut self,
        new: &NewEngagement,
        candidates: &Candidates,
        moment: &mut Moment<'_>,
    ) -> Result<ReserveOutcome> {
        let known = self.engagements.get(&new.engagement);
        match known {
            Some(known) if new.conflicts_with(known) => return Ok(ReserveOutcome::Conflict(known.clone())),
            Some(known) if known.provider.is_some() => return Ok(ReserveOutcome::Reserved(self.as_it_is(known))),
            _ => {}
        }
        if let Some(provider) = &new.provider {
            self.get(provider)?;
        }
        let Some(provider) = self.next_free(new.provider.as_ref(), candidates) else {
            return Ok(ReserveOutcome::NoneAvailable);
        };
        let row = Engagement {
            provider: Some(provider),
            ..known.cloned().unwrap_or_else(|| begin(new, moment))
        };
        Ok(ReserveOutcome::Reserved(self.write_engagement(row, moment)))
    }

    /// The least occupied candidate with room; of several the one that has been idle longest.
    fn next_free(&self, only: Option<&ProviderId>, candidates: &Candidates) -> Option<ProviderId> {
        let may = |row: &&Provider| {
            let is_meant = only.is_none_or(|only| row.provider == *only);
            is_meant && candidates.admit(&row.provider) && row.is_fresh(candidates.fresh_since())
        };
        let free = self.providers.values().filter(|row| row.has_room()).filter(may);
        let order = |row: &&Provider| (row.occupancy, self.idle_since.get(&row.provider).copied());
        // The rows are sorted by name, and the first minimum is taken.
        free.min_by_key(order).map(|row| row.provider.clone())
    }

    pub(super) fn available(&self, fresh_since: Option<StoreTime>) -> Vec<Candidate> {
        let mut able: Vec<Candidate> = self
            .providers
            .values()
            .filter(|row| row.has_room() && row.is_fresh(fresh_since))
            .map(|row| Candidate {
                provider: row.provider.clone(),
                occupancy: row.occupancy,
                capacity: row.capacity,
            })
            .collect();
        // The rows are sorted by name, and the sort is stable.
        able.sort_by_key(|candidate| candidate.occupancy);
        able
    }

    pub(super) fn expire_due(&mut self, limit: u32, moment: &mut Moment<'_>) -> ExpiredBatch {
        let mut waiting: Vec<(StoreTime, EngagementId)> = self
            .engagements
            .values()
            .filter_map(|e| Some((due(e)?, e.engagement.clone())))
            .filter(|(at, _)| *at <= moment.now)
            .collect();
        waiting.sort();
        waiting.truncate(limit as usize);
        let mut names: Vec<EngagementId> = waiting.into_iter().map(|(_, engagement)| engagement).collect();
        names.sort();
        let mut batch = ExpiredBatch::default();
        for name in names {
            let Some(row) = self.engagements.get_mut(&name) else {
                continue;
            };
            row.status = Status::Expired;
            row.changed_at = moment.now;
            row.version = moment.next_version();
            batch.expired.push(row.clone());
        }
        let providers = batch.expired.iter().filter_map(|e| e.provider.clone()).collect();
        batch.providers = self.touch(providers, moment);
        batch.next = self.next_expiry();
        batch
    }

    pub(super) fn remove_closed(&mut self, before: StoreTime, limit: u32) -> u64 {
        let is_old = |e: &&Engagement| !e.status.is_open() && e.changed_at < before;
        let mut old: Vec<(StoreTime, EngagementId)> = self
            .engagements
            .values()
            .filter(is_old)
            .map(|e| (e.changed_at, e.engagement.clone()))
            .collect();
        old.sort();
        old.truncate(limit as usize);
        for (_, name) in &old {
            self.engagements.remove(name);
        }
        old.len() as u64
    }

    /// When the first open engagement expires.
    pub(super) fn next_expiry(&self) -> Option<StoreTime> {
        self.engagements.values().filter_map(due).min()
    }

    fn write_engagement(&mut self, mut row: Engagement, moment: &mut Moment<'_>) -> EngagementChange {
        row.version = moment.next_version();
        row.changed_at = moment.now;
        let before = self.engagements.insert(row.engagement.clone(), row.clone());
        let providers = before.and_then(|before| before.provider).into_iter();
        let providers = providers.chain(row.provider.clone()).collect();
        EngagementChange {
            providers: self.touch(providers, moment),
            engagement: row,
            changed: true,
        }
    }

    fn as_it_is(&self, known: &Engagement) -> EngagementChange {
        let provider = known.provider.as_ref().and_then(|name| self.providers.get(name));
        EngagementChange {
            engagement: known.clone(),
            providers: provider.cloned().into_iter().collect(),
            changed: false,
        }
    }
}

/// The row of a new engagement; its version is drawn at the write.
fn begin(new: &NewEngagement, moment: &Moment<'_>) -> Engagement {
    Engagement {
        engagement: new.engagement.clone(),
        provider: new.provider.clone(),
        status: new.status,
        created_at: moment.now,
        changed_at: moment.now,
        expires_at: new.first_expiry().map(|after| moment.now + after),
        active_for: new.active_for,
        version: Version::NONE,
    }
}

/// When an open engagement expires.
fn due(engagement: &Engagement) -> Option<StoreTime> {
    engagement.expires_at.filter(|_| engagement.status.is_open())
}
