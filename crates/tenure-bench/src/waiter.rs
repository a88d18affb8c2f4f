//! A process that waits for a lease, and can be killed.

use std::future::pending;
use std::time::Duration;

use anyhow::{Context, Result};
use tenure::connect::OpenOptions;
use tenure::{ClientSettings, JoinOptions, Tenure};

/// The group that the waiters join.
pub const GROUP: &str = "waiters";
/// Long enough that no waiter lapses within a run.
const TTL: Duration = Duration::from_secs(60);

/// Waits for the lease, says so when it holds it, and keeps it until the process is killed.
///
/// # Errors
/// If it cannot join, or is not granted the lease within a minute.
pub async fn run(name: &str, store: &str, lease: &str) -> Result<()> {
    let tenure = Tenure::connect_with(store, OpenOptions::default(), ClientSettings::default()).await?;
    let join = JoinOptions {
        ttl: TTL,
        ..JoinOptions::named(name)?
    };
    let membership = tenure.group(GROUP)?.join(join).await?;
    let answer = membership.leases().acquire_within(lease, TTL).await?;
    let guard = answer.granted().context("another process holds the lease")?;
    println!("{}", guard.token());
    pending().await
}
