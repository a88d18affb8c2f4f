//! One in ten of 1,000 members is killed: the time after their deadline until a reader sees none of them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use super::peer::{Kind, Peer};
use super::{CONNECTIONS, after, median_and_longest, ttl};
use crate::load;
use crate::report::{Grid, Report};
use crate::stats::Samples;
use crate::suite::Size;

/// Between two reads.
const POLL: Duration = Duration::from_millis(10);
/// How long before the deadline a reader begins.
const BEFORE: Duration = Duration::from_millis(500);
/// The time limit after the deadline.
const PATIENCE: Duration = Duration::from_secs(40);
/// The time limit until all members are listed.
const LISTED: Duration = Duration::from_secs(10);

/// For each kind the time of each round, in ms; below zero before the deadline.
pub(super) struct Gone {
    found: Vec<(Kind, Samples)>,
    /// The errors of rounds that could not be measured.
    failed: Vec<String>,
}

pub(super) async fn measure(kinds: &[Kind], size: Size) -> Result<Gone> {
    let members = size.pick(1_000, 200);
    // Between the deadlines of two servers, so that their readers do not disturb each other.
    let apart = size.pick(Duration::from_millis(1_500), Duration::from_millis(200));
    let mut gone: Vec<(Kind, Samples)> = kinds.iter().map(|kind| (*kind, Samples::default())).collect();
    let mut failed = Vec::new();
    for _ in 0..size.pick(3, 1) {
        let mut tasks = JoinSet::new();
        for (number, (kind, peer)) in (0..).zip(super::start(kinds, ttl(size)).await?) {
            tasks.spawn(async move {
                let late = once(peer.as_ref(), members, ttl(size), apart * number).await;
                (
                    kind,
                    late.with_context(|| format!("{kind}: until the dead are not listed")),
                )
            });
        }
        while let Some(done) = tasks.join_next().await {
            let (kind, late) = done.context("a round")?;
            match late {
                Ok(late) => gone
                    .iter_mut()
                    .filter(|(other, _)| *other == kind)
                    .for_each(|(_, samples)| samples.push(late)),
                Err(error) => failed.push(format!("{error:#}")),
            }
        }
    }
    Ok(Gone { found: gone, failed })
}

impl Gone {
    pub(super) fn write(&self, report: &Report, grid: &mut Grid) {
        self.failed.iter().for_each(|failed| report.note(failed.clone()));
        for (kind, late) in &self.found {
            let column = "dead not listed after the deadline, median / longest";
            grid.set(kind.name(), column, median_and_longest(late));
            report.keep(format!("{kind}: dead not listed, ms after the deadline"), late);
        }
    }
}

async fn once(peer: &dyn Peer, members: usize, ttl: Duration, delay: Duration) -> Result<f64> {
    peer.join(members).await.context("join")?;
    let dead = members / 10;
    let mut living = peer.lanes(dead..members, CONNECTIONS).await?;
    let mut dying = peer.lanes(0..dead, 1).await?;
    let pace = ttl / 3 * u32::try_from(CONNECTIONS)? / u32::try_from(members - dead)?;
    let beating = tokio::spawn(async move { load::run(&mut living, ttl + PATIENCE * 3, Some(pace)).await });
    let pace = ttl / 3 / u32::try_from(dead)?;
    load::run(&mut dying, delay.max(ttl / 3), Some(pace)).await?;
    until_listed(peer, members).await?;
    // Their last heartbeats, one after the other.
    for lane in &mut dying {
        lane.send(dead).await?;
    }
    let deadline = Instant::now() + ttl;
    drop(dying);
    sleep_until((deadline - BEFORE).into()).await;
    loop {
        let asked = Instant::now();
        let alive = peer.alive().await?;
        ensure!(
            alive >= members - dead,
            "{alive} of {} living members are listed",
            members - dead
        );
        if alive == members - dead {
            ensure!(!beating.is_finished(), "the heartbeats of the living ended");
            beating.abort();
            return Ok(after(deadline, asked));
        }
        ensure!(deadline.elapsed() < PATIENCE, "{alive} of {members} members are listed");
        sleep(POLL).await;
    }
}

/// A server may list a new member later than it answers.
async fn until_listed(peer: &dyn Peer, members: usize) -> Result<()> {
    let start = Instant::now();
    loop {
        let alive = peer.alive().await?;
        if alive == members {
            return Ok(());
        }
        ensure!(start.elapsed() < LISTED, "{alive} of {members} members are listed");
        sleep(POLL).await;
    }
}
