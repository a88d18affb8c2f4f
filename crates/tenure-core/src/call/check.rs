//! What is refused before anything is sent, for every call of every store.

use std::time::Duration;

use super::Op;
use crate::error::Result;
use crate::lease::check_leases;
use crate::membership::check_beats;
use crate::registry::check_keys;
use crate::roster::put::check_versions;
use crate::roster::{check_holder, check_items, check_puts, check_stale_after};
use crate::session::{check_attaches, check_count, check_data};
use crate::store::check_limit;
use crate::timing::check_ttl;

impl Op {
    /// Refuses a call that breaks a limit.
    ///
    /// # Errors
    /// `Invalid`, with the value and the limit.
    pub fn check(&self, max_ttl: Duration) -> Result<()> {
        match self {
            Self::Join(ask) => check_ttl(ask.ttl, max_ttl).map(drop),
            Self::Beat(ask) => check_beats(&ask.beats, max_ttl),
            Self::Members(ask) => limit(ask.page.limit),

            Self::Claim(ask) => check_keys(&ask.keys),
            Self::Claims(ask) => limit(ask.page.limit),

            Self::Acquire(ask) => check_leases(ask.leases.len()),
            Self::ReleaseLeases(ask) => check_leases(ask.leases.len()),
            Self::Leases(ask) => limit(ask.page.limit),
            Self::HeldLeases(ask) => limit(ask.page.limit),

            Self::PutTarget(ask) => ask.spec.check().map(drop),
            Self::Targets(ask) => limit(ask.page.limit),

            Self::Attach(ask) => check_attaches(&ask.attaches),
            Self::Detach(ask) => check_count(ask.detaches.len(), "detaches"),
            Self::PatchSession(ask) => check_data(&ask.data),
            Self::Sessions(ask) => limit(ask.page.limit),
            Self::Orphans(ask) => limit(ask.limit),

            Self::Events(query) => query.check(),
            Self::Reconcile(ask) => limit(ask.0.limit),

            Self::PutProviders(ask) => check_puts(&ask.puts),
            Self::Seat(ask) => {
                check_items(ask.providers.len())?;
                check_stale_after(ask.stale_after)
            }
            Self::Heartbeat(ask) => check_items(ask.heartbeats.len()),
            Self::Available(ask) => limit(ask.page.limit),
            Self::Look(ask) => check_items(ask.providers.len()),
            Self::Rows(ask) => limit(ask.page.limit),
            Self::PendingOffline(ask) => limit(ask.limit),
            Self::OfflineDone(ask) => check_items(ask.tenures.len()),
            Self::PutRosterSettings(ask) => check_versions(ask.settings.version, ask.over),
            Self::Retime(ask) => limit(ask.limit),
            Self::TakeTurn(ask) => check_holder(&ask.holder),
            Self::EndTurn(ask) => check_holder(&ask.holder),
            Self::VerifyRoster(ask) => limit(ask.0.limit),
            _ => Ok(()),
        }
    }
}

fn limit(limit: u32) -> Result<()> {
    check_limit(limit).map(drop)
}
