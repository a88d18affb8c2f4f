//! Providers: written down, changed, removed, taken online and offline, listed and counted.

use rusqlite::{Connection, Row, params};
use tenure_core::ledger::{
    Capacity, OnlineOutcome, Provider, ProviderChange, ProviderSpec, ProviderState, Reason, RemoveOutcome, RosterStats,
    Version,
};
use tenure_core::store::Page;
use tenure_core::{Error, ErrorKind, ProviderId, StoreTime, TenureId};

use super::outbox;
use super::rows::{is, many, one, page};
use super::step::Step;
use crate::error::Cause;
use crate::sql::{instant, read_instant_or_none, read_name, read_name_or_none, read_number, statements};
use crate::writer::Answer;

statements! { "ledger/provider.sql":
    GET = "get",
    ALL = "all",
    ONLINE = "online",
    WITH_ROOM = "with_room",
    BUSY = "busy",
    OFFLINE = "offline",
    DEACTIVATED = "deactivated",
    INSERT = "insert",
    UPDATE = "update",
    USES_DEFAULT = "uses_default",
    REMOVE = "remove",
    SET_ACTIVE = "set_active",
    TAKE_ONLINE = "take_online",
    TAKE_OFFLINE = "take_offline",
    STATS = "stats",
}

fn read_provider(row: &Row<'_>) -> Result<Provider, Cause> {
    Ok(Provider {
        provider: read_name(row, 0)?,
        display_name: row.get(1)?,
        active: row.get(2)?,
        online: read_name_or_none(row, 3)?,
        capacity: row.get(4)?,
        occupancy: row.get(5)?,
        last_online_at: read_instant_or_none(row, 6)?,
        last_offline_at: read_instant_or_none(row, 7)?,
        last_heartbeat_at: read_instant_or_none(row, 8)?,
        revoked_before: read_instant_or_none(row, 9)?,
        version: Version(read_number(row, 10)?),
    })
}

pub(super) fn get(sql: &Connection, roster: &str, provider: &str) -> Result<Option<Provider>, Cause> {
    one(sql, GET, [roster, provider], read_provider)
}

pub(super) fn list(
    sql: &Connection,
    roster: &str,
    state: Option<ProviderState>,
    after: &str,
    limit: u32,
) -> Result<Page<Provider>, Cause> {
    let statement = match state {
        None => ALL,
        Some(ProviderState::Online) => ONLINE,
        Some(ProviderState::Available) => WITH_ROOM,
        Some(ProviderState::Busy) => BUSY,
        Some(ProviderState::Offline) => OFFLINE,
        Some(ProviderState::Deactivated) => DEACTIVATED,
    };
    let rows = many(sql, statement, params![roster, after, limit + 1], read_provider)?;
    Ok(page(rows, limit, |row| row.provider.to_string()))
}

pub(super) fn stats(sql: &Connection, roster: &str, fresh_since: Option<StoreTime>) -> Result<RosterStats, Cause> {
    let read = |row: &Row<'_>| {
        Ok(RosterStats {
            online: read_number(row, 0)?,
            available: read_number(row, 1)?,
            busy: read_number(row, 2)?,
            offline: read_number(row, 3)?,
            deactivated: read_number(row, 4)?,
            dirty: read_number(row, 5)?,
        })
    };
    let stats = one(sql, STATS, params![roster, fresh_since.map(instant)], read)?;
    Ok(stats.unwrap_or_default())
}

pub(super) fn no_provider(provider: &ProviderId) -> Error {
    Error::new(ErrorKind::NotFound, format!("the roster has no provider {provider}"))
}

/// What was refused, as the answer of a step that changed nothing.
macro_rules! known {
    ($step:expr, $provider:expr) => {
        match $step.provider($provider)? {
            Some(row) => row,
            None => return Ok(Err(no_provider($provider))),
        }
    };
}

impl Step<'_> {
    pub(super) fn provider(&self, provider: &ProviderId) -> Result<Option<Provider>, Cause> {
        get(self.sql, self.roster, provider.as_str())
    }

    /// The row of a provider that this step has written.
    pub(super) fn written(&self, provider: &ProviderId) -> Result<Provider, Cause> {
        self.provider(provider)?
            .ok_or_else(|| Cause::Strange(format!("the provider {provider} was written and is not there")))
    }

    fn changed(&self, before: Option<Provider>, provider: &ProviderId) -> Answer<ProviderChange> {
        let row = self.written(provider)?;
        Ok(Ok(ProviderChange {
            changed: before.as_ref().is_none_or(|before| before.version != row.version),
            was_online: before.and_then(|before| before.online),
            provider: row,
        }))
    }

    pub(super) fn put(&mut self, provider: &ProviderId, spec: &ProviderSpec) -> Answer<ProviderChange> {
        let before = self.provider(provider)?;
        match &before {
            None => {
                self.because(Reason::Operator)?;
                let (name, capacity) = (&spec.display_name, spec.capacity.own());
                self.sql
                    .prepare_cached(INSERT)?
                    .execute(params![self.roster, provider.as_str(), name, capacity])?;
            }
            Some(row) if self.is_news(row, spec)? => {
                self.because(Reason::Operator)?;
                let (name, capacity) = (&spec.display_name, spec.capacity.own());
                let to_default = spec.capacity == Capacity::Default;
                self.sql.prepare_cached(UPDATE)?.execute(params![
                    self.roster,
                    provider.as_str(),
                    name,
                    capacity,
                    to_default
                ])?;
            }
            Some(_) => {}
        }
        self.changed(before, provider)
    }

    fn is_news(&self, row: &Provider, spec: &ProviderSpec) -> Result<bool, Cause> {
        let provider = row.provider.as_str();
        let uses_default = || is(self.sql, USES_DEFAULT, [self.roster, provider]);
        let stands = match spec.capacity {
            Capacity::Keep => true,
            Capacity::Default => uses_default()?,
            Capacity::Own(capacity) => row.capacity == capacity && !uses_default()?,
        };
        Ok(!stands || spec.display_name.is_some() && spec.display_name != row.display_name)
    }

    pub(super) fn remove(&mut self, provider: &ProviderId) -> Answer<RemoveOutcome> {
        match self.provider(provider)? {
            None => return Ok(Ok(RemoveOutcome::Absent)),
            Some(row) if row.online.is_some() || row.occupancy > 0 => return Ok(Ok(RemoveOutcome::Busy(row))),
            Some(_) => {}
        }
        self.because(Reason::Operator)?;
        self.sql
            .prepare_cached(REMOVE)?
            .execute([self.roster, provider.as_str()])?;
        let version = outbox::version(self.sql, self.roster, provider)?;
        Ok(Ok(RemoveOutcome::Removed(version)))
    }

    pub(super) fn set_active(&mut self, provider: &ProviderId, active: bool) -> Answer<ProviderChange> {
        let before = known!(self, provider);
        if before.active != active {
            self.because(Reason::Operator)?;
            self.sql
                .prepare_cached(SET_ACTIVE)?
                .execute(params![self.roster, provider.as_str(), active])?;
        }
        self.changed(Some(before), provider)
    }

    pub(super) fn go_online(&mut self, provider: &ProviderId, tenure: Option<&TenureId>) -> Answer<OnlineOutcome> {
        let before = known!(self, provider);
        if !before.active {
            return Ok(Ok(OnlineOutcome::Deactivated(before)));
        }
        let stays = match (&before.online, tenure) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(old), Some(new)) if old == new => true,
            (Some(old), Some(new)) if old.term() >= new.term() => return Ok(Ok(OnlineOutcome::Stale(before))),
            (Some(_), Some(_)) => false,
        };
        if !stays {
            self.because(Reason::Asked)?;
            // Without a tenure, a trigger makes the placeholder.
            self.sql.prepare_cached(TAKE_ONLINE)?.execute(params![
                self.roster,
                provider.as_str(),
                tenure.map(ToString::to_string)
            ])?;
        }
        let change = self.changed(Some(before), provider)?;
        Ok(change.map(OnlineOutcome::Online))
    }

    pub(super) fn go_offline(&mut self, provider: &ProviderId, tenure: Option<&TenureId>) -> Answer<ProviderChange> {
        let before = known!(self, provider);
        if before.online.is_some() && tenure.is_none_or(|tenure| before.online.as_ref() == Some(tenure)) {
            self.because(Reason::Asked)?;
            self.sql
                .prepare_cached(TAKE_OFFLINE)?
                .execute([self.roster, provider.as_str()])?;
        }
        self.changed(Some(before), provider)
    }
}
