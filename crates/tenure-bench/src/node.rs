//! A node of a fleet, as a separate process that can be killed. Its work is to wait.

use std::time::Duration;

use anyhow::Result;
use tenure::connect::OpenOptions;
use tenure::fleet::{Assignment, Fleet, TargetList};
use tenure::{ClientSettings, JoinOptions, Tenure};
use tenure_core::store::PageRequest;

/// The group that the nodes join.
pub const GROUP: &str = "fleet";
/// The number of nodes that must have joined before any of them starts.
const NODES: usize = 3;
const TTL: Duration = Duration::from_secs(5);

/// Runs until the process is killed.
///
/// # Errors
/// If it cannot join.
pub async fn run(name: &str, store: &str, targets: usize) -> Result<()> {
    let options = OpenOptions {
        request_timeout: Some(Duration::from_secs(2)),
        ..OpenOptions::default()
    };
    let tenure = Tenure::connect_with(store, options, ClientSettings::default()).await?;
    let group = tenure.group(GROUP)?;
    let join = JoinOptions {
        ttl: TTL,
        ..JoinOptions::named(name)?
    };
    let membership = group.join(join).await?;
    while group.members(&PageRequest::default()).await?.items.len() < NODES {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let names = (0..targets).map(|number| format!("endpoint-{number:05}"));
    let _fleet = Fleet::builder(&membership)
        .targets(TargetList::new(names)?)
        .start(|target: Assignment| async move { target.stopping().cancelled().await })?;
    std::future::pending().await
}
