//! Failovers, wanted or not: which primary there was, and when its replicas last had everything.

use std::time::Duration;

use anyhow::{Context, Result};
use tenure_testkit::valkey::Server;
use tenure_testkit::valkey::sentinel::{NAME, Sentinels};

use super::Failover;
use crate::history::{Micros, RunClock};
use crate::world::World;

/// About how long a failover takes with all that follows.
pub(super) const TAKES: Duration = Duration::from_secs(6);
/// The sentinels wait for a primary for three seconds; the last sign of it may be a second old.
pub(super) const AT_LEAST: Micros = 1_900_000;

/// The state of replication.
#[derive(Debug, Default)]
pub(super) struct Watch {
    primary: Option<u16>,
    /// What had ended by then is on all replicas.
    replicated: Micros,
}

fn replicas<'a>(all: &'a Sentinels, primary: &Server) -> impl Iterator<Item = &'a Server> {
    let port = primary.port();
    all.servers().iter().filter(move |server| server.port() != port)
}

impl Watch {
    /// Before a fault: notes how far the replicas are, if nothing has changed on its own.
    pub(super) fn look(&mut self, world: &World, clock: &RunClock) {
        let Ok(all) = world.sentinels() else { return };
        let primary = all.primary();
        if self.primary.is_none_or(|port| port == primary.port()) {
            let now = clock.now();
            replicas(all, primary).for_each(|replica| replica.catch_up_with(primary));
            self.primary = Some(primary.port());
            self.replicated = now;
        }
    }

    pub(super) fn begin(&self, world: &World, is_cut: bool) -> Result<()> {
        let all = world.sentinels()?;
        if is_cut {
            all.cut_replicas(all.primary());
        }
        Ok(())
    }

    /// Replaces the primary, and brings everything back.
    pub(super) fn end(&self, world: &World, how: Failover) -> Result<()> {
        let all = world.sentinels()?;
        let before = all.primary();
        match how {
            Failover::Kill => before.kill(),
            Failover::Freeze => before.pause(),
            Failover::Force => {
                let told = all.sentinels()[0].cli(&["SENTINEL", "FAILOVER", NAME]);
                told.context("force a failover")?;
            }
        }
        all.until_not(before);
        all.join_replicas();
        match how {
            Failover::Kill => before.restart_with_data(),
            Failover::Freeze => before.resume(),
            Failover::Force => {}
        }
        all.join_replicas();
        Ok(())
    }

    /// After a fault: waits until everything is replicated again. Answers from when on calls may be lost, if another server
    /// is the primary now.
    pub(super) fn settle(&mut self, world: &World, clock: &RunClock) -> Result<Option<Micros>> {
        let Ok(all) = world.sentinels() else { return Ok(None) };
        all.until_whole();
        let primary = all.primary();
        let lost = (self.primary != Some(primary.port())).then_some(self.replicated);
        let now = clock.now();
        replicas(all, primary).for_each(|replica| replica.catch_up_with(primary));
        self.primary = Some(primary.port());
        self.replicated = now;
        Ok(lost)
    }
}
