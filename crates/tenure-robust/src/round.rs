//! One round: a world, its clients and faults, and the verdict.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::check::{Record, Violation, judge};
use crate::client::{Api, REGISTRY};
use crate::events;
use crate::fault::{self, Window};
use crate::history::{Outcome, Recorder, RunClock, Verb};
use crate::member::{Library, Operator, Raw, Stage};
use crate::roster;
use crate::world::{Kind, World};

/// Members that speak HTTP, and of the library.
const RAW: usize = 8;
const LIBRARIES: usize = 2;
/// The number of a caller that is none of them.
const OUTSIDE: usize = 99;
/// The ttls of members, in turn.
const TTLS: [Duration; 2] = [Duration::from_millis(2_000), Duration::from_millis(2_800)];
/// How long the end of all tenures and of what they hold may take: a ttl after the last gap, and the sweeps of groups.
const CLEAN_UP: Duration = Duration::from_secs(30);

/// The round to run.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// The world.
    pub kind: Kind,
    /// How long faults happen.
    pub length: Duration,
    /// What its plan is drawn from.
    pub seed: u64,
    /// The program.
    pub tenure: &'a Path,
    /// A defect for the daemons to have.
    pub planted: Option<&'a str>,
    /// Where what shows a violation is kept.
    pub folder: &'a Path,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Verdict {
    /// How many calls were made.
    pub calls: usize,
    /// How many of them have an unknown outcome.
    pub unknown: usize,
    /// The faults by kind.
    pub faults: BTreeMap<&'static str, usize>,
    /// What must not happen and did.
    pub violations: Vec<Violation>,
}

/// Runs a round and judges it.
///
/// # Errors
/// If the world does not start, or does not come back after a fault.
pub async fn run(order: Order<'_>) -> Result<Verdict> {
    let world = tokio::task::block_in_place(|| World::start(order.kind, order.tenure, order.planted))?;
    let verdict = match order.kind {
        Kind::Ledger => roster::round::run(&world, order).await,
        _ => run_groups(&world, order).await,
    };
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(error) => {
            world.keep_logs(order.folder)?;
            return Err(error.context(format!("the logs are in {}", order.folder.display())));
        }
    };
    if !verdict.violations.is_empty() {
        world.keep_logs(order.folder)?;
    }
    Ok(verdict)
}

async fn run_groups(world: &World, order: Order<'_>) -> Result<Verdict> {
    let records = play(world, order).await?;
    let mut verdict = Verdict::default();
    for (n, record) in records.iter().enumerate() {
        let violations = tokio::task::block_in_place(|| judge(record));
        if !violations.is_empty() {
            keep(record, &violations, &order.folder.join(format!("group-{n}")))?;
        }
        let unknown = record.calls.iter().filter(|call| call.outcome == Outcome::Unknown);
        verdict.calls += record.calls.len();
        verdict.unknown += unknown.count();
        for (name, count) in fault::counts(&record.windows) {
            let most = verdict.faults.entry(name).or_default();
            *most = count.max(*most);
        }
        verdict.violations.extend(violations);
    }
    Ok(verdict)
}

/// The clients of one group.
fn clients(
    world: &World,
    order: Order<'_>,
    recorder: &Recorder,
    stage: &Arc<Stage>,
    counts: [usize; 2],
) -> Vec<JoinHandle<()>> {
    let mut tasks = Vec::new();
    let [raw, libraries] = counts;
    for number in 0..raw + libraries {
        let proxy = &world.daemon(number).clients;
        let ttl = TTLS[number % TTLS.len()];
        if number < raw {
            let raw = Raw::new(number, proxy.addr(), ttl, recorder, stage, order.seed);
            tasks.push(tokio::spawn(raw.run(proxy.addr())));
        } else {
            let (url, recorder, stage) = (proxy.url("http"), recorder.clone(), Arc::clone(stage));
            tasks.push(tokio::spawn(Library::run(
                number, url, ttl, recorder, stage, order.seed,
            )));
        }
    }
    let operator = raw + libraries;
    let way = world.daemon(operator).clients.addr();
    let operator = Operator::new(operator, way, recorder, stage, order.seed);
    tasks.push(tokio::spawn(operator.run()));
    tasks
}

async fn play(world: &World, order: Order<'_>) -> Result<Vec<Record>> {
    let clock = RunClock::start();
    let names = tokio::task::block_in_place(|| world.groups());
    let counts = if names.len() > 1 { [5, 1] } else { [RAW, LIBRARIES] };
    let groups: Vec<_> = names.iter().map(|name| Recorder::new(clock, name)).collect();
    let stage = Arc::new(Stage::open(clock));
    let tasks: Vec<_> = groups
        .iter()
        .flat_map(|group| clients(world, order, group, &stage, counts))
        .collect();
    let straight = |group: &Recorder| Api::new(OUTSIDE, world.daemons[0].addr(), group);
    if world.kind == Kind::Cluster {
        // A new group of a cluster waits, whatever an operator said before.
        for group in &groups {
            let mut api = straight(group);
            while !api.settle().await {
                sleep(Duration::from_millis(50)).await; // tidy: waits on the next look being due
            }
        }
    }
    let plan = fault::plan(order.kind, order.length, order.seed);
    let windows = fault::run(world, &plan, clock, &stage).await?;
    tokio::task::block_in_place(|| world.daemons.iter().try_for_each(crate::world::Daemon::wait_ready))?;
    // Members beat and no longer act: what was acknowledged is read back while its owners live.
    stage.quiet();
    for group in &groups {
        let mut api = straight(group);
        for key in stage.all_keys() {
            api.call("", Verb::ReadClaim(key)).await;
        }
    }
    stage.over();
    for task in tasks {
        task.await.context("a client ended by a panic")?;
    }
    let mut records = Vec::new();
    for (n, group) in groups.iter().enumerate() {
        let mut api = straight(group);
        let left = left_behind(&mut api).await?;
        let events = events::read_all(&mut api, &clock).await;
        records.push(Record {
            kind: order.kind,
            calls: group.calls(),
            events: events.context("the events cannot be read")?,
            windows: windows.iter().filter(|window| window.is_about(n)).copied().collect(),
            left,
        });
    }
    Ok(records)
}

/// What is still there when no member has been beating for long enough.
async fn left_behind(api: &mut Api) -> Result<Vec<String>> {
    let begin = std::time::Instant::now();
    loop {
        let mut left = Vec::new();
        for (path, list) in [
            ("members?limit=1000".to_owned(), "members"),
            (format!("registries/{REGISTRY}/claims?limit=1000"), "claims"),
            ("leases?limit=1000".to_owned(), "leases"),
        ] {
            let page = api.get(&path).await;
            let items = page.as_ref().and_then(|page| page[list].as_array());
            match items {
                Some(items) => left.extend(items.iter().map(Value::to_string)),
                None => left.push(format!("an answer to {path}")),
            }
        }
        if left.is_empty() || begin.elapsed() > CLEAN_UP {
            return Ok(left);
        }
        sleep(Duration::from_millis(200)).await; // tidy: waits on the next look being due
    }
}

fn keep(record: &Record, violations: &[Violation], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let lines = |items: Vec<String>| items.join("\n") + "\n";
    fs::write(
        folder.join("history"),
        lines(record.calls.iter().map(ToString::to_string).collect()),
    )?;
    fs::write(
        folder.join("events"),
        lines(record.events.iter().map(|event| format!("{event:?}")).collect()),
    )?;
    let window = |window: &Window| format!("{:>10} to {:>10} µs {:?}", window.begin, window.end, window.fault);
    fs::write(
        folder.join("faults"),
        lines(record.windows.iter().map(window).collect()),
    )?;
    let shown = |violation: &Violation| {
        let calls: String = violation.calls.iter().map(|call| format!("\n    {call}")).collect();
        format!("{}: {}{calls}", violation.check, violation.text)
    };
    fs::write(folder.join("violations"), lines(violations.iter().map(shown).collect()))?;
    Ok(())
}
