//! One round: a world, its clients and faults, and the verdict.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::time::sleep;

use crate::check::{Record, Violation, judge};
use crate::client::{Api, REGISTRY};
use crate::events;
use crate::fault::{self, Window};
use crate::history::{Recorder, Verb};
use crate::member::{Library, Raw, Stage, all_keys};
use crate::world::{Kind, World};

/// Members that speak HTTP, and of the library.
const RAW: usize = 8;
const LIBRARIES: usize = 2;
/// The ttls of members, in turn.
const TTLS: [Duration; 2] = [Duration::from_millis(2_000), Duration::from_millis(2_800)];
/// How long the end of all tenures and of what they hold may take: a ttl after the last gap, and the sweeps of groups.
const CLEAN_UP: Duration = Duration::from_secs(30);

/// What a round is to be.
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
    let played = play(&world, order).await;
    let record = match played {
        Ok(record) => record,
        Err(error) => {
            world.keep_logs(order.folder)?;
            return Err(error.context(format!("the logs are in {}", order.folder.display())));
        }
    };
    let violations = tokio::task::block_in_place(|| judge(&record));
    if !violations.is_empty() {
        world.keep_logs(order.folder)?;
        keep(&record, &violations, order.folder)?;
    }
    Ok(Verdict {
        calls: record.calls.len(),
        unknown: record
            .calls
            .iter()
            .filter(|call| call.outcome == crate::history::Outcome::Unknown)
            .count(),
        faults: fault::counts(&record.windows),
        violations,
    })
}

async fn play(world: &World, order: Order<'_>) -> Result<Record> {
    let (recorder, stage) = (Recorder::start(), Arc::new(Stage::default()));
    let mut tasks = Vec::new();
    for number in 0..RAW + LIBRARIES {
        let proxy = &world.daemons[number % world.daemons.len()].clients;
        let ttl = TTLS[number % TTLS.len()];
        if number < RAW {
            let raw = Raw::new(number, proxy.addr(), ttl, &recorder, &stage, order.seed);
            tasks.push(tokio::spawn(raw.run(proxy.addr())));
        } else {
            let (url, recorder, stage) = (proxy.url("http"), recorder.clone(), Arc::clone(&stage));
            tasks.push(tokio::spawn(Library::run(
                number, url, ttl, recorder, stage, order.seed,
            )));
        }
    }
    let plan = fault::plan(order.kind, order.length, order.seed);
    let windows = fault::run(world, &plan, &recorder).await?;
    tokio::task::block_in_place(|| world.daemons.iter().try_for_each(crate::world::Daemon::wait_ready))?;
    // Members beat and no longer act: what was acknowledged is read back while its owners live.
    stage.quiet();
    let mut api = Api::new(RAW + LIBRARIES, world.daemons[0].addr(), &recorder);
    for key in all_keys(&recorder) {
        api.call("", Verb::ReadClaim(key)).await;
    }
    stage.over();
    for task in tasks {
        task.await.context("a client ended by a panic")?;
    }
    let left = left_behind(&mut api).await?;
    let events = events::read_all(&mut api, &recorder.clock).await;
    Ok(Record {
        kind: order.kind,
        calls: recorder.calls(),
        events: events.context("the events cannot be read")?,
        windows,
        left,
    })
}

/// What is still there when nobody has been beating for long enough.
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
