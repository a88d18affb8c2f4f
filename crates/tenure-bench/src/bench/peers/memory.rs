//! What 10,000 members that beat every 10 s cost a server: resident memory and processor time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;

use super::CONNECTIONS;
use super::peer::{Kind, Peer, cpu, resident_mib};
use crate::load;
use crate::report::{Figure, Grid, Report};
use crate::stats::Samples;
use crate::suite::Size;

const TTL: Duration = Duration::from_secs(30);

/// One server after the other, each alone.
pub(super) async fn run(kinds: &[Kind], size: Size, report: &Report, grid: &mut Grid) -> Result<()> {
    let members = size.pick(10_000, 320);
    let mut failed = Vec::new();
    for kind in kinds {
        let Some(peer) = kind.start(TTL).await? else { continue };
        // The other servers are still measured.
        let used = match once(peer.as_ref(), members, size).await {
            Ok(used) => used,
            Err(error) => {
                failed.push(format!("{kind}: memory: {error:#}"));
                continue;
            }
        };
        let [idle, idle_cpu, with, cpu] = used;
        grid.set(kind.name(), "memory idle", Figure::new(idle, "MiB").to_string());
        let text = format!("{:+.1} MiB", with - idle);
        grid.set(kind.name(), &format!("… of {members} members"), text);
        grid.set(kind.name(), "CPU idle", Figure::new(idle_cpu, "%").to_string());
        let text = Figure::new(cpu, "%").to_string();
        grid.set(kind.name(), "… with them, a heartbeat every 10 s", text);
        let name = format!("{kind}: MiB and % of a core idle, MiB and % with {members} members");
        report.keep(name, &Samples::from_iter(used));
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

/// Memory and share of a core: idle, and with the members.
async fn once(peer: &dyn Peer, members: usize, size: Size) -> Result<[f64; 4]> {
    let settle = size.pick(Duration::from_secs(5), Duration::from_millis(200));
    sleep(settle).await;
    let idle_cpu = share_of_a_core(peer, sleep(settle)).await?;
    let idle = resident_mib(peer)?;
    peer.join(members).await.context("join")?;
    let mut lanes = peer.lanes(0..members, CONNECTIONS).await?;
    let every = TTL / 3 * u32::try_from(CONNECTIONS)? / u32::try_from(members)?;
    // Once around, then the measured time.
    let around = size.pick(TTL / 3, Duration::from_millis(500));
    load::run(&mut lanes, around, Some(every)).await?;
    let (start, before) = (Instant::now(), cpu(peer)?);
    load::run(&mut lanes, around * size.pick(3, 1), Some(every)).await?;
    let busy = (cpu(peer)? - before) / start.elapsed().as_secs_f64() * 100.0;
    Ok([idle, idle_cpu, resident_mib(peer)?, busy])
}

/// The share of a core that a server uses in this time, in percent.
async fn share_of_a_core(peer: &dyn Peer, time: impl Future<Output = ()>) -> Result<f64> {
    let (start, before) = (Instant::now(), cpu(peer)?);
    time.await;
    Ok((cpu(peer)? - before) / start.elapsed().as_secs_f64() * 100.0)
}
