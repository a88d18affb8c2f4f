//! One roster: providers, their log and their outbox.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, ErrorKind, Result};
use crate::id::{EngagementId, ProviderId, TenureId, Term};
use crate::ledger::{
    Capacity, Change, Dirty, EndedBatch, EndedTenure, Engagement, Follow, LogEntry, OnlineOutcome, Provider,
    ProviderChange, ProviderSpec, Reason, RemoveOutcome, RosterSettings, RosterStats, RosterView, SettingsPatch,
    Version,
};
use crate::time::StoreTime;

/// The time of a step, and the source of versions.
#[derive(Debug)]
pub(super) struct Moment<'a> {
    pub(super) now: StoreTime,
    pub(super) last_version: &'a mut u64,
}

impl Moment<'_> {
    pub(super) fn next_version(&mut self) -> Version {
        *self.last_version += 1;
        Version(*self.last_version)
    }
}

/// A roster.
#[derive(Debug, Default)]
pub(super) struct RosterModel {
    pub(super) settings: RosterSettings,
    pub(super) providers: BTreeMap<ProviderId, Provider>,
    /// The providers without their own capacity.
    by_default: BTreeSet<ProviderId>,
    /// When the occupancy of each provider last changed, or it last came online.
    pub(super) idle_since: BTreeMap<ProviderId, StoreTime>,
    /// The times before which tokens of removed providers are void.
    revoked: BTreeMap<ProviderId, StoreTime>,
    pub(super) engagements: BTreeMap<EngagementId, Engagement>,
    pub(super) log: Vec<LogEntry>,
    pub(super) outbox: BTreeMap<ProviderId, (Version, StoreTime)>,
}

pub(super) fn no_provider(provider: &ProviderId) -> Error {
    Error::new(ErrorKind::NotFound, format!("the roster has no provider {provider}"))
}

impl RosterModel {
    pub(super) fn view(&self) -> RosterView {
        RosterView {
            settings: self.settings,
            is_dirty: !self.outbox.is_empty(),
            next_expiry: self.next_expiry(),
        }
    }

    pub(super) fn set_settings(&mut self, patch: &SettingsPatch, moment: &mut Moment<'_>) -> RosterSettings {
        let wanted = patch.applied_to(self.settings);
        if wanted != self.settings {
            self.settings = RosterSettings {
                version: moment.next_version(),
                ..wanted
            };
            self.spread_default(moment);
        }
        self.settings
    }

    /// Writes the default capacity into the rows of providers without their own.
    fn spread_default(&mut self, moment: &mut Moment<'_>) {
        for provider in self.by_default.clone() {
            if let Some(row) = self.providers.get(&provider) {
                let capacity = self.settings.default_capacity;
                let row = Provider {
                    capacity,
                    ..row.clone()
                };
                self.write(row, Reason::Operator, moment);
            }
        }
    }

    pub(super) fn get(&self, provider: &ProviderId) -> Result<&Provider> {
        self.providers.get(provider).ok_or_else(|| no_provider(provider))
    }

    /// Writes a changed row with a new version, an outbox entry and a log entry.
    fn write(&mut self, mut row: Provider, reason: Reason, moment: &mut Moment<'_>) -> ProviderChange {
        let before = self.providers.get(&row.provider).cloned();
        let was_online = before.as_ref().and_then(|before| before.online.clone());
        if before.as_ref() == Some(&row) {
            return ProviderChange {
                provider: row,
                changed: false,
                was_online,
            };
        }
        row.version = moment.next_version();
        let was_active = before.as_ref().is_none_or(|before| before.active);
        for (change, happened) in [
            (Change::Activated, row.active && !was_active),
            (Change::Deactivated, !row.active && was_active),
            (Change::Online, row.online.is_some() && was_online.is_none()),
            (Change::Offline, row.online.is_none() && was_online.is_some()),
        ] {
            let reason = match change {
                Change::Offline if !row.active => Reason::Deactivated,
                _ => reason,
            };
            if happened {
                self.log.push(LogEntry {
                    id: self.log.len() as u64 + 1,
                    provider: row.provider.clone(),
                    change,
                    reason,
                    at: moment.now,
                    version: row.version,
                });
            }
        }
        self.soil(&row.provider, row.version, moment.now);
        if before.is_none() || row.online.is_some() && was_online.is_none() {
            self.idle_since.insert(row.provider.clone(), moment.now);
        }
        self.providers.insert(row.provider.clone(), row.clone());
        ProviderChange {
            provider: row,
            changed: true,
            was_online,
        }
    }

    fn soil(&mut self, provider: &ProviderId, version: Version, now: StoreTime) {
        self.outbox.entry(provider.clone()).or_insert((version, now)).0 = version;
    }

    /// Updates the occupancy and version of the providers of a changed engagement.
    pub(super) fn touch(&mut self, mut providers: Vec<ProviderId>, moment: &mut Moment<'_>) -> Vec<Provider> {
        providers.sort();
        providers.dedup();
        let mut rows = Vec::new();
        for provider in providers {
            let occupancy = self.open_engagements(&provider);
            let Some(row) = self.providers.get_mut(&provider) else {
                continue;
            };
            if row.occupancy != occupancy {
                self.idle_since.insert(provider.clone(), moment.now);
            }
            row.occupancy = occupancy;
            row.version = moment.next_version();
            let row = row.clone();
            self.soil(&provider, row.version, moment.now);
            rows.push(row);
        }
        rows
    }

    pub(super) fn put(
        &mut self,
        provider: &ProviderId,
        spec: &ProviderSpec,
        moment: &mut Moment<'_>,
    ) -> ProviderChange {
        match spec.capacity {
            Capacity::Own(_) => {
                self.by_default.remove(provider);
            }
            Capacity::Keep if self.providers.contains_key(provider) => {}
            Capacity::Keep | Capacity::Default => {
                self.by_default.insert(provider.clone());
            }
        }
        let default = Some(self.settings.default_capacity).filter(|_| self.by_default.contains(provider));
        let capacity = spec.capacity.own().or(default);
        let row = match self.providers.get(provider) {
            Some(row) => Provider {
                display_name: spec.display_name.clone().or_else(|| row.display_name.clone()),
                capacity: capacity.unwrap_or(row.capacity),
                ..row.clone()
            },
            None => Provider {
                provider: provider.clone(),
                display_name: spec.display_name.clone(),
                active: true,
                online: None,
                capacity: capacity.unwrap_or(self.settings.default_capacity),
                occupancy: 0,
                last_online_at: None,
                last_offline_at: None,
                last_heartbeat_at: None,
                revoked_before: self.revoked.get(provider).copied(),
                version: Version::NONE,
            },
        };
        self.write(row, Reason::Operator, moment)
    }

    pub(super) fn remove(&mut self, provider: &ProviderId, moment: &mut Moment<'_>) -> RemoveOutcome {
        match self.providers.get(provider) {
            None => RemoveOutcome::Absent,
            Some(row) if row.online.is_some() || row.occupancy > 0 => RemoveOutcome::Busy(row.clone()),
            Some(row) => {
                if let Some(before) = row.revoked_before {
                    self.revoked.insert(provider.clone(), before);
                }
                self.providers.remove(provider);
                self.by_default.remove(provider);
                let version = moment.next_version();
                self.soil(provider, version, moment.now);
                RemoveOutcome::Removed(version)
            }
        }
    }

    pub(super) fn set_active(
        &mut self,
        provider: &ProviderId,
        active: bool,
        moment: &mut Moment<'_>,
    ) -> Result<ProviderChange> {
        let mut row = self.get(provider)?.clone();
        if row.active && !active {
            row.revoked_before = row.revoked_before.max(Some(moment.now));
            if row.online.take().is_some() {
                row.last_offline_at = Some(moment.now);
            }
        }
        row.active = active;
        Ok(self.write(row, Reason::Operator, moment))
    }

    pub(super) fn go_online(
        &mut self,
        provider: &ProviderId,
        tenure: Option<&TenureId>,
        moment: &mut Moment<'_>,
    ) -> Result<OnlineOutcome> {
        let mut row = self.get(provider)?.clone();
        if !row.active {
            return Ok(OnlineOutcome::Deactivated(row));
        }
        match (&row.online, tenure) {
            (Some(_), None) => {}
            (Some(old), Some(new)) if old == new => {}
            (Some(old), Some(new)) if old.term() >= new.term() => return Ok(OnlineOutcome::Stale(row)),
            (Some(_), Some(new)) => row.online = Some(new.clone()),
            (None, asked) => {
                let placeholder = || Term::new(moment.now.micros()).map(|term| TenureId::new(provider.member(), term));
                row.online = Some(asked.cloned().map_or_else(placeholder, Ok)?);
                row.last_online_at = Some(moment.now);
            }
        }
        Ok(OnlineOutcome::Online(self.write(row, Reason::Asked, moment)))
    }

    pub(super) fn go_offline(
        &mut self,
        provider: &ProviderId,
        tenure: Option<&TenureId>,
        moment: &mut Moment<'_>,
    ) -> Result<ProviderChange> {
        let mut row = self.get(provider)?.clone();
        if row.online.is_some() && tenure.is_none_or(|tenure| row.online.as_ref() == Some(tenure)) {
            row.online = None;
            row.last_offline_at = Some(moment.now);
        }
        Ok(self.write(row, Reason::Asked, moment))
    }

    pub(super) fn offline_ended(&mut self, ended: &[EndedTenure], moment: &mut Moment<'_>) -> EndedBatch {
        let mut sorted: Vec<&EndedTenure> = ended.iter().collect();
        sorted.sort_by(|a, b| a.tenure.member().cmp(b.tenure.member()));
        let mut batch = EndedBatch::default();
        for ended in sorted {
            let row = self.providers.get(&ProviderId::from(ended.tenure.member()));
            let Some(row) = row.filter(|row| row.online.as_ref() == Some(&ended.tenure)) else {
                continue;
            };
            if ended.is_refuted_by(row.last_heartbeat_at, self.settings.stale_after, moment.now) {
                batch.spared.push(row.clone());
                continue;
            }
            let row = Provider {
                online: None,
                last_offline_at: Some(ended.at.min(moment.now)),
                ..row.clone()
            };
            batch
                .offline
                .push(self.write(row, Reason::Ended(ended.reason), moment).provider);
        }
        batch
    }

    /// Corrects occupancies that differ from the number of open engagements.
    pub(super) fn recount(&mut self, moment: &mut Moment<'_>) -> u64 {
        let wrong = |row: &&Provider| row.occupancy != self.open_engagements(&row.provider);
        let wrong = self
            .providers
            .values()
            .filter(wrong)
            .map(|row| row.provider.clone())
            .collect();
        self.touch(wrong, moment).len() as u64
    }

    fn open_engagements(&self, provider: &ProviderId) -> u32 {
        let open = |e: &&Engagement| e.provider.as_ref() == Some(provider) && e.status.is_open();
        u32::try_from(self.engagements.values().filter(open).count()).unwrap_or(u32::MAX)
    }

    pub(super) fn follow_tenures(&mut self, follows: &[Follow], moment: &mut Moment<'_>) -> Vec<Provider> {
        let mut sorted: Vec<&Follow> = follows.iter().collect();
        sorted.sort_by(|a, b| a.from.member().cmp(b.from.member()));
        let mut changed = Vec::new();
        for Follow { from, to } in sorted {
            let Some(row) = self.providers.get(&ProviderId::from(from.member())) else {
                continue;
            };
            if row.online.as_ref() == Some(from) && from != to {
                let row = Provider {
                    online: Some(to.clone()),
                    ..row.clone()
                };
                changed.push(self.write(row, Reason::Asked, moment).provider);
            }
        }
        changed
    }

    pub(super) fn record_heartbeats(&mut self, heartbeats: &[(ProviderId, StoreTime)], now: StoreTime) -> u64 {
        let mut latest: BTreeMap<&ProviderId, StoreTime> = BTreeMap::new();
        for (provider, at) in heartbeats {
            let at = (*at).min(now);
            let kept = latest.entry(provider).or_insert(at);
            *kept = (*kept).max(at);
        }
        let mut news = 0;
        for (provider, at) in latest {
            if let Some(row) = self.providers.get_mut(provider)
                && row.last_heartbeat_at < Some(at)
            {
                row.last_heartbeat_at = Some(at);
                news += 1;
            }
        }
        news
    }

    pub(super) fn stats(&self, fresh_since: Option<StoreTime>) -> RosterStats {
        let count = |which: &dyn Fn(&&Provider) -> bool| self.providers.values().filter(which).count() as u64;
        RosterStats {
            online: count(&|row| row.online.is_some()),
            available: count(&|row| row.has_room() && row.is_fresh(fresh_since)),
            busy: count(&|row| row.online.is_some() && !row.has_room()),
            offline: count(&|row| row.active && row.online.is_none()),
            deactivated: count(&|row| !row.active),
            dirty: self.outbox.len() as u64,
        }
    }

    pub(super) fn dirty(&self, limit: u32) -> Vec<Dirty> {
        let entry = |(provider, (version, since)): (&ProviderId, &(Version, StoreTime))| Dirty {
            provider: provider.clone(),
            version: *version,
            since: *since,
            row: self.providers.get(provider).cloned(),
        };
        let mut all: Vec<Dirty> = self.outbox.iter().map(entry).collect();
        all.sort_by_key(|dirty| dirty.version);
        all.truncate(limit as usize);
        all
    }

    pub(super) fn clean(&mut self, rows: &[(ProviderId, Version)]) -> u64 {
        let mut cleaned = 0;
        for (provider, version) in rows {
            if self.outbox.get(provider).is_some_and(|(dirty, _)| dirty <= version) {
                self.outbox.remove(provider);
                cleaned += 1;
            }
        }
        cleaned
    }
}
