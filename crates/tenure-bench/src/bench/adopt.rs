//! A pass over a large hash of another program: its duration, and the latency of other clients of the server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tenure_adopt::{AdoptSettings, Connection, ConnectionOptions, Janitor};
use tenure_core::clock::SystemClock;

use crate::probe::{Probe, idle};
use crate::report::{Goal, Report, Row};
use crate::stats::{Samples, ms};
use crate::subject;
use crate::suite::Size;
use crate::valkey::ValkeyServer;

const HASH: &str = "connections:registry";
const OWNERS: usize = 1_000;

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 entries")]
pub async fn run(size: Size, report: Report) -> Result<()> {
    let entries = size.pick(1_000_000, 100_000);
    let valkey = ValkeyServer::start()?;
    let (mut took, mut quiet, mut pings) = (Samples::default(), Samples::default(), Samples::default());
    let dead = OWNERS / 10;
    fill(&valkey, 0..OWNERS, entries / OWNERS)?;
    let mut slowest = (0.0, String::new());
    for _ in 0..size.pick(3, 1) {
        quiet.extend(
            idle(valkey.addr(), Duration::from_secs(1))
                .await?
                .values()
                .iter()
                .copied(),
        );
        beat(&valkey, dead..OWNERS)?;
        valkey.forget_slow()?;
        let probe = Probe::start(valkey.addr())?;
        let start = Instant::now();
        let evicted = pass(&valkey).await?;
        took.push(ms(start.elapsed()));
        pings.extend(probe.finish()?.values().iter().copied());
        let slow = valkey.slowest()?;
        if slow.0 > slowest.0 {
            slowest = slow;
        }
        ensure!(evicted == dead * entries / OWNERS, "{evicted} entries were removed");
        fill(&valkey, 0..dead, entries / OWNERS)?;
    }

    let what = format!("{entries} entries, {} of the dead", dead * entries / OWNERS);
    report.row(Row::new(format!("{what}: a pass"), took.median(), "ms").goal(Goal::AtMost(15_000.0)));
    report.row(Row::new(
        format!("{what}: scanned"),
        entries as f64 / took.median() * 1e3,
        "entries/s",
    ));
    let row = Row::new(format!("{what}: PING p99"), pings.percentile(99.0), "ms");
    let row = row.against("idle", quiet.percentile(99.0), None);
    report.row(row.goal(Goal::AtMostAbove(1.0)));
    let row = Row::new(format!("{what}: longest PING"), pings.max(), "ms");
    report.row(row.against("idle", quiet.max(), None));
    report.row(Row::new(
        format!("{what}: longest command in the server"),
        slowest.0,
        "ms",
    ));
    report.note(format!("the longest command was {}", slowest.1));
    report.keep("pass ms", &took);
    report.keep("PING ms", &pings.percentiles());
    report.keep("PING ms, idle", &quiet.percentiles());
    Ok(())
}

/// A pass that decides after one read, like `tenure adopt registry --settle 0s`.
async fn pass(valkey: &ValkeyServer) -> Result<usize> {
    let settings = AdoptSettings::new(HASH, "instance:heartbeat:{id}")?.with_settle("0s")?;
    let connection = Connection::open(&valkey.url(), ConnectionOptions::default(), SystemClock::shared())?;
    connection.first_try().await;
    let mut janitor = Janitor::new(connection, settings);
    let report = janitor.pass(false).await.context("a pass")?;
    ensure!(
        report.quarantined.is_none() && report.braked.is_none(),
        "the pass held back: {report:?}"
    );
    janitor.close().await;
    Ok(usize::try_from(report.evicted_total())?)
}

/// Writes entries of several owners, as a program in another language would.
fn fill(valkey: &ValkeyServer, owners: std::ops::Range<usize>, each: usize) -> Result<()> {
    let mut client = valkey.client()?;
    for owner in owners {
        let name = subject::member(owner);
        let pairs = (0..each).flat_map(|number| [format!("device-{owner:04}-{number:07}"), name.clone()]);
        let command: Vec<String> = ["HSET".to_owned(), HASH.to_owned()].into_iter().chain(pairs).collect();
        ValkeyServer::pipeline(&mut client, &[command])?;
    }
    Ok(())
}

/// Writes heartbeats of the living owners.
fn beat(valkey: &ValkeyServer, owners: std::ops::Range<usize>) -> Result<()> {
    let mut client = valkey.client()?;
    for owner in owners {
        let key = format!("instance:heartbeat:{}", subject::member(owner));
        ValkeyServer::pipeline(
            &mut client,
            &[["SET", &key, "1", "EX", "120"].map(str::to_owned).to_vec()],
        )?;
    }
    Ok(())
}
