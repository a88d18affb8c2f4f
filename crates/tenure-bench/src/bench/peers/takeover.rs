//! Takeover of a lock whose holder is killed: the time until a waiter holds it, after the holder's last possible deadline
//! and after the kill.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::peer::{Kind, Locks};
use super::{median_and_longest, ttl};
use crate::report::{Grid, Report};
use crate::stats::{Samples, ms};
use crate::suite::Size;

/// How long a waiter gets to begin to wait.
const SETTLE: Duration = Duration::from_millis(500);
/// Between the starts of two holders, which meet a server's ticks at different phases.
const APART: Duration = Duration::from_millis(230);

/// The takeovers of one kind of lock.
struct Lock {
    name: String,
    ttl: Duration,
    /// After the holder's deadline, in ms; below zero before it.
    late: Samples,
    /// After the kill, in ms.
    since_kill: Samples,
    /// The errors of takeovers that could not be measured.
    failed: Vec<String>,
}

pub(super) struct Takeovers(Vec<Lock>);

/// All servers concurrently, each with ten locks: they are idle but for ten timers.
pub(super) async fn measure(kinds: &[Kind], size: Size) -> Result<Takeovers> {
    let runs = size.pick(10, 2);
    let servers = super::start(kinds, ttl(size)).await?;
    let (mut locks, mut tasks) = (Vec::new(), JoinSet::new());
    for (kind, peer) in &servers {
        let all = peer.locks();
        // A smoke test does not wait for the slow ones.
        let first = size.pick(0, all.len().saturating_sub(1));
        for (variant, own) in all.into_iter().skip(first) {
            let (place, ttl) = (locks.len(), ttl(size).max(own.shortest()));
            for run in 0..runs {
                let (own, lock) = (Arc::clone(&own), format!("lock-{place}-{run}"));
                tasks.spawn(async move {
                    sleep(APART * run).await;
                    (place, once(own.as_ref(), &lock, ttl, ttl / 3 * run / runs).await)
                });
            }
            let (late, since_kill, failed) = Default::default();
            let separator = if variant.is_empty() { "" } else { ", " };
            let name = format!("{kind}{separator}{variant}");
            locks.push(Lock {
                name,
                ttl,
                late,
                since_kill,
                failed,
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        let (place, taken) = done.context("a takeover")?;
        let lock = &mut locks[place];
        match taken {
            Ok((late, since_kill)) => {
                lock.late.push(late);
                lock.since_kill.push(since_kill);
            }
            Err(error) => lock.failed.push(format!("{error:#}")),
        }
    }
    Ok(Takeovers(locks))
}

impl Takeovers {
    pub(super) fn write(&self, report: &Report, grid: &mut Grid) {
        for Lock {
            name,
            ttl,
            late,
            since_kill,
            failed,
        } in &self.0
        {
            if let Some(first) = failed.first() {
                report.note(format!("{name}: {} takeovers are missing: {first}", failed.len()));
            }
            let text = median_and_longest(late);
            grid.set(name, "takeover after the deadline, median / longest", text);
            let text = format!("{} (ttl {} s)", median_and_longest(since_kill), ttl.as_secs());
            grid.set(name, "takeover after the kill", text);
            report.keep(format!("{name}: takeover, ms after the deadline"), late);
            report.keep(format!("{name}: takeover, ms after the kill"), since_kill);
        }
    }
}

/// A holder that is killed `phase` after its last heartbeat.
async fn once(locks: &dyn Locks, lock: &str, ttl: Duration, phase: Duration) -> Result<(f64, f64)> {
    let mut holder = locks.hold(lock, ttl).await.context("hold")?;
    let dies = async {
        sleep(SETTLE).await;
        holder.renew().await.context("renew")?;
        // The server's clock started before its answer arrived.
        let deadline = Instant::now() + ttl;
        sleep(phase).await;
        drop(holder);
        anyhow::Ok((deadline, Instant::now()))
    };
    let waits = timeout(ttl + locks.patience(), locks.wait(lock));
    let (died, held) = tokio::join!(dies, waits);
    let (deadline, killed) = died?;
    let held = held.context("the lock was not taken over")?.context("wait")?;
    ensure!(held > killed, "two clients held the lock");
    Ok((super::after(deadline, held), ms(held - killed)))
}
