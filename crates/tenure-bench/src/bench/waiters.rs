//! Waiting for leases: how soon the next living waiter holds a released lease when those before it were killed, and what
//! 10,000 waiters cost.

mod crowd;
mod killed;

use anyhow::{Result, ensure};
use tenure_testkit::http;

use crate::daemon::Daemon;
use crate::report::Report;
use crate::suite::Size;
use crate::valkey::ValkeyServer;

/// # Errors
/// If a daemon does not start, or a waiter is not served in time.
pub async fn run(size: Size, report: Report) -> Result<()> {
    for (name, valkey, daemons) in [
        ("embedded", None, 1),
        ("Valkey", Some(ValkeyServer::start()?), 1),
        ("Valkey, three daemons", Some(ValkeyServer::start()?), 3),
    ] {
        let world = World::start(name, valkey, daemons).await?;
        killed::run(&world, size, &report).await?;
        if daemons == 1 {
            crowd::run(&world, size, &report).await?;
        }
    }
    Ok(())
}

/// Daemons on one store.
struct World {
    name: &'static str,
    daemons: Vec<Daemon>,
    valkey: Option<ValkeyServer>,
}

impl World {
    async fn start(name: &'static str, valkey: Option<ValkeyServer>, count: usize) -> Result<Self> {
        let mut daemons = Vec::new();
        for _ in 0..count {
            let daemon = Daemon::start(valkey.as_ref().map(ValkeyServer::url)).await?;
            // A new store grants no lease for a while.
            let (status, answer) = http::request(daemon.addr(), "POST", "/v1/settle", "")?;
            ensure!(status == 200, "not settled: {status} {answer}");
            daemons.push(daemon);
        }
        Ok(Self { name, daemons, valkey })
    }

    /// The scripts that the store has run so far.
    fn scripts_run(&self) -> Result<Option<u64>> {
        let Some(valkey) = &self.valkey else { return Ok(None) };
        let stats = valkey.client()?.call(&["INFO", "commandstats"])?.text();
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        let calls = line.and_then(|line| line.split(',').next()?.parse().ok());
        Ok(Some(calls.unwrap_or(0)))
    }
}
