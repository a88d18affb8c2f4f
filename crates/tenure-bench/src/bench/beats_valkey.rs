//! Beats into Valkey compared with the naive heartbeat, `SET key v EX 60`, on the same server.
//!
//! Both sides pick members in random order and run at their best: redis-benchmark with 50 connections and 64 commands
//! per pipeline, the library with concurrent batches of beats on its one connection.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tenure::batch::{BatchSettings, BeatBatcher};
use tenure_core::clock::SystemClock;
use tenure_core::id::{Group, TenureId};
use tenure_core::membership::{Beat, BeatReply};
use tenure_core::store::Store;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::report::{Goal, Report, Row};
use crate::stats::{Samples, Shuffler, rate};
use crate::subject;
use crate::suite::Size;
use crate::valkey::{RedisBenchmark, ValkeyServer};

/// Beats in one call of the store, which may split them.
const BATCH: usize = 1_000;
/// Concurrent calls.
const CALLS: usize = 8;
/// Tasks that send single beats through the batcher.
const BEATERS: usize = 2_000;

/// # Errors
/// If a server is not installed, or the run fails.
pub async fn run(size: Size, report: Report) -> Result<()> {
    let benchmark = RedisBenchmark::find()?;
    for members in size.pick(&[100_000, 1_000_000][..], &[20_000][..]) {
        one(size, *members, &benchmark, &report).await?;
    }
    report.note("per member: names of 12 bytes, no labels; the event log (bounded per group) is not counted in");
    Ok(())
}

async fn one(size: Size, wanted: usize, benchmark: &RedisBenchmark, report: &Report) -> Result<()> {
    let valkey = ValkeyServer::start()?;
    let store = subject::open_patient(&valkey.url()).await?;
    let group = subject::group("bench")?;
    let (before, start) = (valkey.used()?, Instant::now());
    let tenures = subject::fill(&store, &group, wanted, subject::HOUR).await?;
    let (joins, after) = (rate(tenures.len(), start), valkey.used()?);
    // Whole batches only, and fewer than wanted on a machine on which joining them all takes too long.
    let members = tenures.len() / BATCH * BATCH;
    if members < wanted {
        report.note(format!("only {members} of {wanted} members could be joined in time"));
    }
    memory(&valkey, tenures.len(), after.memory - before.memory, report)?;
    report.row(Row::new(
        format!("{members} members: joins, one call each"),
        joins,
        "joins/s",
    ));
    let cost = per_op(after.cpu - before.cpu, tenures.len());
    report.row(Row::new(format!("{members} members: server CPU of a join"), cost, "µs"));

    let beats = Arc::new(shuffled(tenures, members));
    // A first, uncounted round measures how much each side can do in a round's time.
    let time = size.pick(1.5, 0.5);
    let first = size.pick(200_000, 50_000);
    let ours = in_time(batches(&store, &group, &beats, first).await?, time);
    let theirs = in_time(benchmark.set_ex(valkey.addr(), first, members).await?, time);
    let mut sides = Sides::default();
    for round in 0..size.rounds() {
        // The sides alternate in going first, so that neither always finds the caches of the other.
        for our_turn in [round % 2 == 0, round % 2 != 0] {
            let cpu = valkey.used()?.cpu;
            if our_turn {
                sides.ours.push(batches(&store, &group, &beats, ours).await?);
                sides.our_cpu.push(per_op(valkey.used()?.cpu - cpu, ours));
            } else {
                sides
                    .theirs
                    .push(benchmark.set_ex(valkey.addr(), theirs, members).await?);
                sides.their_cpu.push(per_op(valkey.used()?.cpu - cpu, theirs));
            }
        }
        sides.singles.push(singles(&store, &group, &beats, ours / 4).await?);
    }
    sides.write_rows(members, report);
    store.close().await;
    Ok(())
}

#[derive(Default)]
struct Sides {
    ours: Samples,
    our_cpu: Samples,
    theirs: Samples,
    their_cpu: Samples,
    singles: Samples,
}

impl Sides {
    fn write_rows(&self, members: usize, report: &Report) {
        let set = "SET … EX, -P 64";
        let what = format!("{members} members: batched beats");
        report.row(Row::rates(what, "beats/s", &self.ours, set, &self.theirs).goal(Goal::Times(1.0)));
        let what = format!("{members} members: server CPU of a beat");
        report.row(Row::costs(what, "µs", &self.our_cpu, set, &self.their_cpu));
        let what = format!("{members} members: single beats of {BEATERS} tasks, coalesced");
        report.row(Row::rates(what, "beats/s", &self.singles, set, &self.theirs));
        report.keep(format!("{members} beats/s"), &self.ours);
        report.keep(format!("{members} beats, server µs"), &self.our_cpu);
        report.keep(format!("{members} SET/s"), &self.theirs);
        report.keep(format!("{members} SET, server µs"), &self.their_cpu);
        report.keep(format!("{members} coalesced beats/s"), &self.singles);
    }
}

/// Memory per member, without the event log, which does not grow with the group.
#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 bytes")]
fn memory(valkey: &ValkeyServer, members: usize, grown: f64, report: &Report) -> Result<()> {
    let sizes = valkey.key_sizes("{tenure:")?;
    for (key, bytes) in &sizes {
        report.keep(
            format!("{members} members: bytes of {key}"),
            &Samples::from_iter([*bytes as f64]),
        );
    }
    let log: i64 = sizes
        .iter()
        .filter(|(key, _)| key.contains("event"))
        .map(|(_, bytes)| bytes)
        .sum();
    let each = (grown - log as f64) / members as f64;
    report.row(Row::new(format!("{members} members: memory each"), each, "B").goal(Goal::AtMost(280.0)));
    report.keep(
        format!("{members} members: used_memory grown"),
        &Samples::from_iter([grown]),
    );
    Ok(())
}

fn shuffled(tenures: Vec<TenureId>, members: usize) -> Vec<Beat> {
    let mut beats: Vec<Beat> = tenures
        .into_iter()
        .map(|tenure| Beat {
            tenure,
            ttl: None,
            revision: tenure_core::membership::Revision::NONE,
            seen: tenure_core::membership::Revision::NONE,
        })
        .collect();
    Shuffler::new(42).shuffle(&mut beats);
    beats.truncate(members);
    beats
}

/// Beats through the store in batches. Returns the renewed beats per second.
async fn batches(store: &Arc<dyn Store>, group: &Group, beats: &Arc<Vec<Beat>>, count: usize) -> Result<f64> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for first in 0..CALLS {
        let (store, group, beats) = (Arc::clone(store), group.clone(), Arc::clone(beats));
        tasks.spawn(async move {
            for batch in (first..count / BATCH).step_by(CALLS) {
                let at = batch * BATCH % beats.len();
                let answer = store.beat(&group, &beats[at..at + BATCH]).await?;
                let renewed = |reply: &BeatReply| matches!(reply, BeatReply::Renewed { .. });
                ensure!(answer.replies.iter().all(renewed), "a beat was not renewed");
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a beating task")??;
    }
    Ok(rate(count, start))
}

/// Single beats from many tasks, batched by the library. Returns the renewed beats per second.
async fn singles(store: &Arc<dyn Store>, group: &Group, beats: &Arc<Vec<Beat>>, count: usize) -> Result<f64> {
    let clock = SystemClock::shared();
    let batcher = BeatBatcher::new(Arc::clone(store), clock, Handle::current(), BatchSettings::default());
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for first in 0..BEATERS {
        let (batcher, group, beats) = (batcher.clone(), group.clone(), Arc::clone(beats));
        tasks.spawn(async move {
            for number in (first..count).step_by(BEATERS) {
                let beated = batcher.beat(&group, beats[number % beats.len()].clone()).await?;
                ensure!(
                    matches!(beated.reply, BeatReply::Renewed { .. }),
                    "a beat was not renewed"
                );
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a beating task")??;
    }
    Ok(rate(count, start))
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 operations")]
fn per_op(cpu_seconds: f64, count: usize) -> f64 {
    cpu_seconds * 1e6 / count as f64
}

/// How many whole batches fit into that many seconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive rate")]
fn in_time(rate: f64, seconds: f64) -> usize {
    ((rate * seconds) as usize / BATCH).max(1) * BATCH
}
