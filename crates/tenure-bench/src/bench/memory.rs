//! The memory of a daemon on its embedded store: idle, and with a group of members.

use std::time::Duration;

use anyhow::Result;

use crate::daemon::Daemon;
use crate::process::resident_bytes;
use crate::report::{Goal, Report, Row};
use crate::stats::{Samples, rate};
use crate::subject;
use crate::suite::Size;

const TTL: Duration = Duration::from_secs(120);

pub async fn run(size: Size, report: Report) -> Result<()> {
    let daemon = Daemon::start(None).await?;
    // Some seconds of sweeps and ticks, so that their memory is included and that of the start is given back.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let idle = mib(daemon.pid()?)?;
    let members = size.pick(100_000, 20_000);
    let store = subject::open(&daemon.url()).await?;
    let group = subject::group("bench")?;
    let start = std::time::Instant::now();
    let tenures = subject::fill(&store, &group, members, TTL).await?;
    let joins = rate(members, start);
    let filled = mib(daemon.pid()?)?;
    {
        let _beating = subject::Beating::start(&store, &group, &tenures, Duration::from_secs(2), None);
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let beating = mib(daemon.pid()?)?;
    store.close().await;
    report.row(Row::new("idle daemon, resident", idle, "MiB").goal(Goal::AtMost(25.0)));
    report.row(Row::new(format!("{members} members, joined"), filled, "MiB").goal(Goal::AtMost(80.0)));
    report.row(Row::new(format!("{members} members, beating"), beating, "MiB").goal(Goal::AtMost(80.0)));
    report.row(Row::new("joins over HTTP, made durable", joins, "joins/s"));
    report.keep(
        "MiB idle, joined, beating",
        &Samples::from_iter([idle, filled, beating]),
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 bytes")]
fn mib(pid: u32) -> Result<f64> {
    Ok(resident_bytes(pid)? as f64 / f64::from(1 << 20))
}
