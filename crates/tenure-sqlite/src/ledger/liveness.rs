//! Following the hot store: ended tenures, tenures of members that joined again, heartbeats.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use tenure_core::ledger::{EndedBatch, EndedTenure, Follow, Provider, Reason};
use tenure_core::{ProviderId, StoreTime, TenureId};

use super::rows::{is, one};
use super::settings;
use super::step::Step;
use crate::error::Cause;
use crate::sql::{instant, read_instant, statements};
use crate::writer::Answer;

statements! { "ledger/liveness.sql":
    IS_UNDER = "is_under",
    END = "end",
    FOLLOW = "follow",
    HEAR = "hear",
    HEARD = "heard",
}

pub(super) fn last_heartbeats(
    sql: &Connection,
    roster: &str,
    providers: &[ProviderId],
) -> Result<BTreeMap<ProviderId, StoreTime>, Cause> {
    let mut heard = BTreeMap::new();
    for provider in providers {
        let at = self::heard(sql, roster, provider)?;
        heard.extend(at.map(|at| (provider.clone(), at)));
    }
    Ok(heard)
}

fn heard(sql: &Connection, roster: &str, provider: &ProviderId) -> Result<Option<StoreTime>, Cause> {
    one(sql, HEARD, [roster, provider.as_str()], |row| Ok(read_instant(row, 0)?))
}

impl Step<'_> {
    /// Whether its provider is online under exactly this tenure.
    fn is_under(&self, tenure: &TenureId) -> Result<bool, Cause> {
        let (provider, tenure) = (tenure.member().as_str(), tenure.to_string());
        is(self.sql, IS_UNDER, params![self.roster, provider, tenure])
    }

    pub(super) fn offline_ended(&mut self, mut all: Vec<EndedTenure>) -> Answer<EndedBatch> {
        all.sort_by(|a, b| a.tenure.member().cmp(b.tenure.member()));
        let settings = settings::get(self.sql, self.roster)?.unwrap_or_default();
        let mut batch = EndedBatch::default();
        for ended in all {
            if !self.is_under(&ended.tenure)? {
                continue;
            }
            let provider = ProviderId::from(ended.tenure.member());
            let recorded = heard(self.sql, self.roster, &provider)?;
            if ended.is_refuted_by(recorded, settings.stale_after, self.now) {
                batch.spared.push(self.written(&provider)?);
                continue;
            }
            self.because(Reason::Ended(ended.reason))?;
            self.sql.prepare_cached(END)?.execute(params![
                self.roster,
                provider.as_str(),
                ended.tenure.to_string(),
                instant(ended.at.min(self.now)),
            ])?;
            batch.offline.push(self.written(&provider)?);
        }
        Ok(Ok(batch))
    }

    pub(super) fn follow_tenures(&mut self, mut follows: Vec<Follow>) -> Answer<Vec<Provider>> {
        follows.sort_by(|a, b| a.from.member().cmp(b.from.member()));
        let mut changed = Vec::new();
        for Follow { from, to } in follows {
            if from == to || !self.is_under(&from)? {
                continue;
            }
            self.because(Reason::Asked)?;
            self.sql.prepare_cached(FOLLOW)?.execute(params![
                self.roster,
                from.member().as_str(),
                from.to_string(),
                to.to_string(),
            ])?;
            changed.push(self.written(&ProviderId::from(from.member()))?);
        }
        Ok(Ok(changed))
    }

    pub(super) fn record_heartbeats(&mut self, heartbeats: &[(ProviderId, StoreTime)]) -> Answer<u64> {
        let mut latest: BTreeMap<&ProviderId, StoreTime> = BTreeMap::new();
        for (provider, at) in heartbeats {
            let at = (*at).min(self.now);
            let kept = latest.entry(provider).or_insert(at);
            *kept = (*kept).max(at);
        }
        let mut hear = self.sql.prepare_cached(HEAR)?;
        let mut news = 0;
        for (provider, at) in latest {
            news += hear.execute(params![self.roster, provider.as_str(), instant(at)])? as u64;
        }
        Ok(Ok(news))
    }
}
