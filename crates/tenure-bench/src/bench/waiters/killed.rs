//! Five processes wait, the first four are killed (SIGKILL), and the lease is released at the same moment.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tenure::connect::OpenOptions;
use tenure::{ClientSettings, JoinOptions, Membership, Tenure};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::World;
use crate::report::{Goal, Report, Row};
use crate::stats::{Samples, ms};
use crate::suite::Size;
use crate::waiter;

const WAITERS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn run(world: &World, size: Size, report: &Report) -> Result<()> {
    let (options, settings) = (OpenOptions::default(), ClientSettings::default());
    let tenure = Tenure::connect_with(&world.daemons[0].url(), options, settings).await?;
    let join = JoinOptions::named("holder")?;
    let holder = tenure.group(waiter::GROUP)?.join(join).await?;
    let mut times = Samples::default();
    for number in 0..size.pick(50, 3) {
        let lease = format!("lease-{number}");
        times.push(ms(once(world, &holder, &lease).await?));
    }
    let what = format!(
        "{}: four of five waiters killed, the fifth holds the lease after",
        world.name
    );
    report.row(Row::new(what.clone(), times.median(), "ms").goal(Goal::AtMost(100.0)));
    report.row(Row::new(format!("… the longest of {}", times.len()), times.max(), "ms"));
    report.keep(what, &times);
    Ok(())
}

/// The time from the release, sent when the killed processes were gone, until the fifth says that it holds the lease.
async fn once(world: &World, holder: &Membership, lease: &str) -> Result<Duration> {
    let leases = holder.leases();
    let guard = leases.acquire(lease).await?.granted().context("a free lease")?;
    let mut waiters = Vec::new();
    for number in 0..WAITERS {
        let daemon = &world.daemons[number % world.daemons.len()];
        waiters.push(start(&format!("{lease}-{number}"), &daemon.url(), lease)?);
        let waiting = async {
            while leases.look_up(lease).await?.map_or(0, |lease| lease.waiting) as usize <= number {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, waiting).await.context("a process does not wait")??;
    }
    let mut fifth = waiters.pop().context("five processes")?;
    let mut said = BufReader::new(fifth.stdout.take().context("its output")?).lines();
    for killed in &mut waiters {
        killed.kill().await.context("kill a waiter")?;
    }
    let released = Instant::now();
    let (done, line) = tokio::join!(guard.release(), timeout(PATIENCE, said.next_line()));
    let took = released.elapsed();
    done?;
    ensure!(line.context("the fifth was not served")??.is_some(), "the fifth ended");
    fifth.kill().await?;
    Ok(took)
}

fn start(name: &str, url: &str, lease: &str) -> Result<Child> {
    let program = std::env::current_exe().context("this program's file")?;
    Command::new(program)
        .args(["--waiter", name, "--store", url, "--lease", lease])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("start a waiter")
}
