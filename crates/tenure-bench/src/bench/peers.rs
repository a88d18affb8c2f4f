//! Tenure beside the servers that it is compared with: heartbeats, takeover after a kill, how long the dead are listed,
//! and the memory and processor time of many members. All through one load generator, in alternating rounds.
//!
//! A killed holder or member is one that sends nothing any more. For Tenure, Consul, etcd and Redis that is what a
//! SIGKILL looks like: none of them watches the connection. ZooKeeper sees its socket close, without an end of the
//! session.

mod consul;
mod etcd;
mod gone;
mod grpc;
mod heartbeats;
mod jute;
mod memory;
mod peer;
mod redis;
mod takeover;
mod tenure;
mod zookeeper;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::load::Load;
use crate::report::{Figure, Grid, Report};
use crate::stats::{Samples, ms};
use crate::suite::Size;
use peer::{Kind, Peer};

/// Connections of the load generator.
const CONNECTIONS: usize = 32;

/// What a reader of the table needs to know.
const NOTES: &[&str] = &[
    "ratios are to Tenure on its embedded file, one beat per request",
    "every server is a single one, without replication; etcd and ZooKeeper sync their log to disk, as Tenure does its \
     file; Consul's agent in development mode and Valkey keep everything in memory",
    "Consul: a session lives for up to twice its TTL, at least 10 s, and the lock-delay begins after that",
    "Consul: a check turns critical at its deadline, which is measured; the agent removes its service at the earliest a \
     minute later (`deregister_critical_service_after`), and looks for it every 30 s",
    "ZooKeeper rounds time-outs up to its tick, 2 s by default",
    "Redis by hand: a waiter tries every 100 ms, and a reader gets each key that SCAN finds",
];

/// # Errors
/// If a server fails. One that is not installed is left out with a note.
pub async fn run(size: Size, report: Report) -> Result<()> {
    let servers = heartbeats::Servers::start(&Kind::ALL).await?;
    let kinds = servers.kinds();
    for kind in Kind::ALL.iter().filter(|kind| !kinds.contains(kind)) {
        report.note(format!("{kind} is not installed; its row is left out"));
    }
    let mut grid = Grid::new("one row for each server, a second one for each other way to send heartbeats");
    heartbeats::run(servers, size, &report, &mut grid).await?;
    report.grid(&grid);
    // Their servers are idle but for timers. A smoke test need not keep them apart.
    let (taken, gone) = if size.quick {
        tokio::try_join!(takeover::measure(&kinds, size), gone::measure(&kinds, size))?
    } else {
        (
            takeover::measure(&kinds, size).await?,
            gone::measure(&kinds, size).await?,
        )
    };
    taken.write(&report, &mut grid);
    gone.write(&report, &mut grid);
    report.grid(&grid);
    NOTES.iter().for_each(|note| report.note(*note));
    let measured = memory::run(&kinds, size, &report, &mut grid).await;
    report.grid(&grid);
    measured
}

/// The TTL in figures with a deadline, the same for all where they permit it.
fn ttl(size: Size) -> Duration {
    size.pick(Duration::from_secs(10), Duration::from_secs(4))
}

/// Starts the servers of these kinds that are installed.
async fn start(kinds: &[Kind], ttl: Duration) -> Result<Vec<(Kind, Box<dyn Peer>)>> {
    let mut peers = Vec::new();
    for kind in kinds {
        peers.extend(kind.start(ttl).await?.map(|peer| (*kind, peer)));
    }
    Ok(peers)
}

/// From the deadline to `then`, in ms; below zero before it.
fn after(deadline: Instant, then: Instant) -> f64 {
    ms(then.saturating_duration_since(deadline)) - ms(deadline.saturating_duration_since(then))
}

/// The median and the longest of times in ms; seconds if they are long.
fn median_and_longest(times: &Samples) -> String {
    let show = |ms: f64| match ms {
        ms if ms.abs() < 1e3 => Figure::new(ms, "ms"),
        ms => Figure::new(ms / 1e3, "s"),
    };
    format!("{} / {}", show(times.median()), show(times.max()))
}

/// Sends every HTTP request once. All must be answered with status 2xx.
async fn send_all(addr: SocketAddr, connections: usize, requests: impl Iterator<Item = Vec<u8>>) -> Result<()> {
    let requests: Arc<[Vec<u8>]> = requests.collect();
    let load = Load {
        addr,
        connections,
        count: requests.len(),
        requests,
        time: Duration::from_secs(60),
        good: |_| true,
    };
    let tally = load.run().await?;
    ensure!(tally.good == load.count, "{} of {} requests", tally.good, load.count);
    Ok(())
}
