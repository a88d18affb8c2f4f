//! Batched beats over HTTP into a daemon on its embedded store: members per second for one core of the daemon.
//!
//! The load generator shares the machine, so elapsed time says little. The CPU time of the daemon does not depend on
//! other processes.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use tenure_core::id::TenureId;

use crate::daemon::Daemon;
use crate::load::{Load, request};
use crate::process::cpu_seconds;
use crate::report::{Goal, Report, Row};
use crate::stats::{Samples, Shuffler};
use crate::subject;
use crate::suite::Size;

const CONNECTIONS: usize = 4;
const TTL: Duration = Duration::from_secs(120);
/// Beats in one request: the limit, and what a busy gateway collects in a moment.
const BATCHES: [usize; 2] = [10_000, 1_000];

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 beats")]
pub async fn run(size: Size, report: Report) -> Result<()> {
    let daemon = Daemon::start(None).await?;
    let store = subject::open(&daemon.url()).await?;
    let group = subject::group("bench")?;
    let mut tenures = subject::fill(&store, &group, size.pick(20_000, 10_000), TTL).await?;
    store.close().await;
    Shuffler::new(42).shuffle(&mut tenures);
    let time = size.pick(Duration::from_secs(2), Duration::from_millis(500));
    let (mut per_core, mut on_wall) = ([Samples::default(), Samples::default()], Samples::default());
    for _ in 0..size.rounds() {
        for (batch, per_core) in BATCHES.into_iter().zip(&mut per_core) {
            let load = load(daemon.addr(), &tenures, batch, time);
            let before = cpu_seconds(daemon.pid()?)?;
            let tally = load.run().await?;
            let used = cpu_seconds(daemon.pid()?)? - before;
            ensure!(used > 0.0, "too short to see what the daemon used");
            per_core.push((tally.good * batch) as f64 / used);
            if batch == BATCHES[0] {
                on_wall.push(tally.rate() * batch as f64);
            }
        }
    }
    for (batch, per_core) in BATCHES.into_iter().zip(&per_core) {
        let what = format!("{batch} beats a request: members per core-second");
        report.row(Row::new(what, per_core.median(), "members/s").goal(Goal::AtLeast(4e6)));
        report.keep(format!("{batch} a request: members/s per core"), per_core);
    }
    report.row(Row::new(
        "the same on the wall, client included",
        on_wall.median(),
        "members/s",
    ));
    report.keep("members/s on the wall", &on_wall);
    Ok(())
}

fn load(addr: SocketAddr, tenures: &[TenureId], batch: usize, time: Duration) -> Load {
    let requests: Arc<[Vec<u8>]> = tenures
        .chunks_exact(batch)
        .map(|batch| beats(addr, "bench", batch))
        .collect();
    Load {
        addr,
        connections: CONNECTIONS,
        requests,
        count: usize::MAX,
        time,
        good: all_renewed,
    }
}

/// A request with one beat for each tenure.
pub fn beats(addr: SocketAddr, group: &str, tenures: &[TenureId]) -> Vec<u8> {
    let mut body = String::from("{\"beats\":[");
    for (number, tenure) in tenures.iter().enumerate() {
        let comma = if number > 0 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(body, "{comma}{{\"tenure\":\"{tenure}\"}}");
    }
    request(addr, "POST", &format!("/v1/groups/{group}/beats"), &(body + "]}"))
}

/// Checks every reply: a request counts as good only if all its beats were renewed.
pub fn all_renewed(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    text.contains("\"renewed\"") && !text.contains("\"ended\"") && !text.contains("\"unknown\"")
}
