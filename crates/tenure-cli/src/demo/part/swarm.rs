//! Many members in one process, each with one key: what a host with many small services looks like.

use std::time::Duration;

use tenure::{JoinOptions, Tenure};
use tokio::signal::unix::Signal;

use super::{NESTS, SWARM};
use crate::output::line;

pub(super) async fn run(
    tenure: &Tenure,
    name: &str,
    members: usize,
    ttl: Duration,
    mut term: Signal,
) -> anyhow::Result<()> {
    let group = tenure.group(SWARM)?;
    let mut joined = Vec::new();
    for nth in 1..=members {
        let options = JoinOptions {
            ttl,
            ..JoinOptions::named(&format!("{name}-{nth}"))?
        };
        let membership = group.join(options).await?;
        membership.registry(NESTS)?.claim(membership.member().as_str()).await?;
        joined.push(membership);
    }
    line("settled")?;
    term.recv().await;
    for membership in joined {
        membership.leave().await?;
    }
    Ok(())
}
