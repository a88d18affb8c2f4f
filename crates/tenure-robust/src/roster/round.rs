//! A round in a roster: its clients, the faults, and what is there in the end.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::check::{RosterRecord, judge};
use super::{CAPACITY, Deeds, Dispatcher, Ledger, Operator, PROVIDERS, Provider, Reply, RosterApi, STALE, provider};
use crate::check::Violation;
use crate::fault;
use crate::history::RunClock;
use crate::member::Stage;
use crate::random::Random;
use crate::round::{Order, Verdict};
use crate::world::World;

const DISPATCHERS: usize = 4;
/// How long mirror and ledger may take to agree, and providers that stopped to go offline.
const CLEAN_UP: Duration = Duration::from_secs(30);

/// Runs a round and judges it.
///
/// # Errors
/// If the world does not come back after a fault.
pub async fn run(world: &World, order: Order<'_>) -> Result<Verdict> {
    let record = play(world, order).await?;
    let violations = judge(&record);
    if !violations.is_empty() {
        keep(&record, &violations, order.folder)?;
    }
    let unknown = record.deeds.iter().filter(|deed| deed.reply == Reply::Unknown);
    Ok(Verdict {
        calls: record.deeds.len(),
        unknown: unknown.count(),
        faults: fault::counts(&record.windows),
        violations,
    })
}

async fn play(world: &World, order: Order<'_>) -> Result<RosterRecord> {
    let (clock, deeds) = (RunClock::start(), Deeds::default());
    let stage = Arc::new(Stage::open(clock));
    let straight = world.daemon(0).addr();
    let mut api = RosterApi::new(straight, clock, &deeds);
    let settings = json!({
        "stale_after_ms": u64::try_from(STALE.as_millis())?,
        "default_capacity": CAPACITY,
    });
    api.ask("PATCH", "", &settings).await.context("set the settings")?;
    for number in 0..PROVIDERS {
        let path = format!("providers/{}", provider(number));
        api.ask("PUT", &path, &json!({})).await.context("put a provider")?;
    }
    let call = |number: usize| RosterApi::new(world.daemon(number).clients.addr(), clock, &deeds);
    let mut tasks = Vec::new();
    for number in 0..PROVIDERS {
        let provider = Provider {
            name: provider(number),
            api: call(number),
            stage: Arc::clone(&stage),
            random: Random::new(order.seed, 400 + number as u64),
        };
        tasks.push(tokio::spawn(provider.run()));
    }
    for number in 0..DISPATCHERS {
        let dispatcher = Dispatcher {
            number,
            api: call(number),
            stage: Arc::clone(&stage),
            random: Random::new(order.seed, 500 + number as u64),
        };
        tasks.push(tokio::spawn(dispatcher.run()));
    }
    let operator = Operator {
        api: call(0),
        stage: Arc::clone(&stage),
        random: Random::new(order.seed, 600),
    };
    tasks.push(tokio::spawn(operator.run()));
    let plan = fault::plan(order.kind, order.length, order.seed);
    let windows = fault::run(world, &plan, clock, &stage).await?;
    tokio::task::block_in_place(|| world.daemons.iter().try_for_each(crate::world::Daemon::wait_ready))?;
    stage.quiet();
    let mut left = Vec::new();
    for daemon in &world.daemons {
        let mut api = RosterApi::new(daemon.addr(), clock, &deeds);
        left.extend(until_equal(world, &mut api, &clock).await?);
    }
    stage.over();
    for task in tasks {
        task.await.context("a client ended by a panic")?;
    }
    left.extend(until_offline(world, &clock).await?);
    Ok(RosterRecord {
        deeds: deeds.all(),
        ledger: read(world, &clock)?,
        windows,
        left,
    })
}

fn read(world: &World, clock: &RunClock) -> Result<Ledger> {
    tokio::task::block_in_place(|| Ledger::read(world.ledger()?, clock))
}

/// Waits until a daemon answers from the mirror what the ledger says; what differs if it takes too long.
async fn until_equal(world: &World, api: &mut RosterApi, clock: &RunClock) -> Result<Vec<String>> {
    let begin = Instant::now();
    loop {
        let before = read(world, clock)?.providers;
        let page = api.ask("GET", "providers?limit=100", &Value::Null).await;
        let after = read(world, clock)?.providers;
        let mut left = Vec::new();
        if page.as_ref().is_none_or(|page| page["source"] != "mirror") {
            left.push(format!("the providers are not read from the mirror: {page:?}"));
        }
        let shown = page.as_ref().and_then(|page| page["providers"].as_array());
        for (name, row) in &after {
            let shown = shown
                .into_iter()
                .flatten()
                .find(|shown| shown["provider"] == name.as_str());
            let is_equal = shown.is_some_and(|shown| {
                shown["active"] == row.is_active
                    && shown["online"] == row.is_online
                    && shown["occupancy"] == row.occupancy
                    && shown["version"] == row.version
            });
            if !is_equal || before != after {
                left.push(format!("the mirror shows {shown:?} for {name}, the ledger has {row:?}"));
            }
        }
        if left.is_empty() || begin.elapsed() > CLEAN_UP {
            return Ok(left);
        }
        sleep(Duration::from_millis(200)).await; // tidy: waits on the next look being due
    }
}

/// Waits until all providers are offline in the ledger; those that are not if it takes too long.
async fn until_offline(world: &World, clock: &RunClock) -> Result<Vec<String>> {
    let begin = Instant::now();
    loop {
        let providers = read(world, clock)?.providers;
        let online = providers.iter().filter(|(_, row)| row.is_online);
        let left: Vec<_> = online
            .map(|(name, _)| format!("{name} is online, and sends no heartbeats"))
            .collect();
        if left.is_empty() || begin.elapsed() > CLEAN_UP {
            return Ok(left);
        }
        sleep(Duration::from_millis(200)).await; // tidy: waits on the next look being due
    }
}

fn keep(record: &RosterRecord, violations: &[Violation], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let lines = |items: Vec<String>| items.join("\n") + "\n";
    let deeds = record.deeds.iter().map(|deed| format!("{deed:?}")).collect();
    fs::write(folder.join("history"), lines(deeds))?;
    fs::write(folder.join("ledger"), format!("{:#?}", record.ledger))?;
    let windows = record.windows.iter().map(|window| format!("{window:?}")).collect();
    fs::write(folder.join("faults"), lines(windows))?;
    let shown = violations
        .iter()
        .map(|found| format!("{}: {}", found.check, found.text))
        .collect();
    fs::write(folder.join("violations"), lines(shown))?;
    Ok(())
}
