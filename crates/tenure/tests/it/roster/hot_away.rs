//! The hot store is killed under load and restarts empty; and the sweeps of many processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tenure::roster::{EngagementAnswer, Source, SweepIntervals};
use tenure::{Roster, SystemClock};
use tenure_core::ledger::{Change, Move, NewEngagement, Reason, Status};
use tenure_core::membership::EndReason;
use tenure_testkit::wait::until_async;
use tenure_testkit::{postgres, valkey};
use tokio::task::{JoinHandle, JoinSet};

use crate::roster::reconcile_meters;
use crate::roster::world::*;

const INSTANCES: usize = 5;
const PROVIDERS: usize = 100;
/// Providers whose engagements change all the time; the rows of the others stay.
const BUSY: usize = 40;
const WRITERS: usize = 10;
const READS: usize = 5_000;

/// A URL that names the process in its connections.
fn named(url: &str, n: usize) -> String {
    format!("{url}?application_name=process-{n}")
}

async fn instances(roster: &str, store: &str, database: &str, sweeps: SweepIntervals) -> Vec<Process> {
    let mut processes = Vec::new();
    for n in 0..INSTANCES {
        let settings = tenure::RostersSettings { sweeps, ..patient() };
        processes.push(Process::start(roster, store, &named(database, n), settings).await);
    }
    all_believe(&processes).await;
    processes
}

async fn arrive(processes: &[Process], count: usize) {
    let mut arriving = JoinSet::new();
    for (n, process) in processes.iter().enumerate() {
        let roster = process.roster.clone();
        arriving.spawn(async move {
            for who in (n..count).step_by(INSTANCES).map(numbered) {
                let spec = tenure_core::ledger::ProviderSpec::default();
                roster.put_provider(&who, &spec).await.unwrap();
                roster.online(&who).await.unwrap();
            }
        });
    }
    while let Some(arrived) = arriving.join_next().await {
        arrived.unwrap();
    }
}

/// The progress of the writers.
#[derive(Default)]
struct Load {
    over: AtomicBool,
    mirrored: AtomicU64,
    missed: AtomicU64,
}

impl Load {
    fn count(&self, mirrored: bool) {
        let counter = if mirrored { &self.mirrored } else { &self.missed };
        counter.fetch_add(1, Ordering::SeqCst);
    }

    async fn until(&self, what: &str, count: impl Fn(&Load) -> u64, more: u64) {
        let goal = count(self) + more;
        until_async(what, PATIENCE, async || count(self) >= goal).await;
    }

    fn mirrored(&self) -> u64 {
        self.mirrored.load(Ordering::SeqCst)
    }

    fn missed(&self) -> u64 {
        self.missed.load(Ordering::SeqCst)
    }
}

/// Creates and ends engagements one after the other. Returns the names of the acknowledged ones.
fn write(roster: Roster, writer: usize, load: Arc<Load>) -> JoinHandle<Vec<String>> {
    tokio::spawn(async move {
        let mut names = Vec::new();
        while !load.over.load(Ordering::SeqCst) {
            let provider = numbered((writer + names.len() * WRITERS) % BUSY);
            let id = format!("w{writer}-{}", names.len());
            let new: NewEngagement = active(&id, &provider);
            let end = Move {
                status: Some(Status::Ended),
                ..Move::default()
            };
            for step in 0..2 {
                let answer = match step {
                    0 => roster.create_engagement(&new).await,
                    _ => roster.move_engagement(&new.engagement, &end).await,
                };
                match answer.unwrap() {
                    EngagementAnswer::Done(written) => load.count(written.mirrored),
                    EngagementAnswer::Conflict(there) => panic!("{there:?} is in the way"),
                }
            }
            names.push(id);
        }
        names
    })
}

/// Starts this many concurrent reads of every kind.
fn read(processes: &[Process], count: usize) -> JoinSet<tenure::Result<Source>> {
    let mut reads = JoinSet::new();
    for n in 0..count {
        let roster = processes[n % INSTANCES].roster.clone();
        reads.spawn(async move {
            Ok(match n / INSTANCES % 4 {
                0 => roster.available(50).await?.source,
                1 => roster.availability().await?.source,
                2 => roster.stats().await?.source,
                _ => roster.is_reachable(&numbered(n % PROVIDERS)).await?.source,
            })
        });
    }
    reads
}

async fn answered(mut reads: JoinSet<tenure::Result<Source>>) -> BTreeMap<String, usize> {
    let mut answers = BTreeMap::new();
    while let Some(answer) = reads.join_next().await {
        *answers.entry(format!("{:?}", answer.unwrap())).or_default() += 1;
    }
    answers
}

/// Polls the most connections that each process has at a time.
fn watch_connections(database: String, over: Arc<Load>) -> JoinHandle<BTreeMap<String, usize>> {
    tokio::spawn(async move {
        let sql = Sql::connect(&database).await;
        let mut most = BTreeMap::new();
        while !over.over.load(Ordering::SeqCst) {
            let query = "SELECT application_name, count(*) FROM pg_stat_activity \
                         WHERE application_name LIKE 'process-%' GROUP BY 1";
            for row in sql.rows(query).await {
                let (name, count) = row.split_once('|').unwrap();
                let count: usize = count.parse().unwrap();
                let there: &mut usize = most.entry(name.to_owned()).or_default();
                *there = count.max(*there);
            }
            breathe().await;
        }
        most
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valkey_dies_under_load_and_comes_back_empty() {
    const STALE: Duration = secs(5);
    let Some(valkey) = valkey::Server::start(valkey::Flavour::Valkey) else {
        return;
    };
    let Some(postgres) = postgres::Server::start() else {
        return;
    };
    let (roster, database) = ("outage", postgres.database());
    reconcile_meters::listen();
    prepare(roster, &database, &stale_after(STALE)).await;
    let processes = instances(roster, &valkey.url(), &database, SweepIntervals::default()).await;
    arrive(&processes, PROVIDERS).await;
    let beats = Beats::of(&processes, (0..PROVIDERS).map(numbered), STALE / 10);
    let load = Arc::new(Load::default());
    let connections = watch_connections(database.clone(), Arc::clone(&load));
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| write(processes[n % INSTANCES].roster.clone(), n, Arc::clone(&load)))
        .collect();
    load.until("writes are under way", Load::mirrored, 200).await;
    beats.take();

    // It hangs first, so that no read has an answer from it when it dies.
    let clock = SystemClock::shared();
    let began = clock.mono();
    valkey.pause();
    let reads = read(&processes, READS);
    breathe().await;
    valkey.kill();
    let expected = BTreeMap::from([("Ok(Ledger)".to_owned(), READS)]);
    assert_eq!(answered(reads).await, expected);
    load.until("writes go on", Load::missed, 300).await;
    let answers = answered(read(&processes, 1_000)).await;
    // On a slow machine providers may be stale by now, and who is fresh is not known yet.
    let stale = clock.mono().since(began) >= STALE;
    let unknown = |answer: &str| stale && answer.contains("does not know yet");
    let is_right = |answer: &String| answer == "Ok(Ledger)" || unknown(answer);
    assert!(answers.keys().all(is_right), "{answers:?}");
    processes[0].pass(STALE + STALE / 2).await;
    let heard = beats.take();
    let known = ["Recorded(Mirror)", "Recorded(Ledger)"];
    assert!(heard.keys().all(|answer| known.contains(&answer.as_str())), "{heard:?}");
    assert!(heard["Recorded(Ledger)"] > 100, "{heard:?}");

    reconcile_meters::found(roster);
    valkey.restart_empty();
    all_believe(&processes).await;
    load.until("writes reach the mirror again", Load::mirrored, 100).await;
    load.over.store(true, Ordering::SeqCst);
    let mut names = Vec::new();
    for writer in writers {
        names.extend(writer.await.unwrap());
    }
    processes[0].until_they_agree().await;
    processes[0].pass(STALE + secs(1)).await;
    let heard = beats.take();
    assert!(heard.keys().all(|answer| known.contains(&answer.as_str())), "{heard:?}");

    let sql = Sql::connect(&database).await;
    let ended = "SELECT engagement FROM tenure.engagements WHERE status = 'ended' ORDER BY 1";
    names.sort();
    assert_eq!(sql.rows(ended).await, names, "exactly the acknowledged writes");
    let offline = processes[0].log().await.into_iter();
    let offline: Vec<_> = offline.filter(|entry| entry.change == Change::Offline).collect();
    assert_eq!(offline, [], "an outage takes no provider offline");
    assert!(processes[0].free().await.0.len() == PROVIDERS);
    let found = reconcile_meters::found(roster);
    let untouched = (PROVIDERS - BUSY) as f64;
    let seeds = found.iter().filter(|differences| **differences >= untouched).count();
    assert_eq!(seeds, 1, "one of five fills it: {found:?}");
    let connections = connections.await.unwrap();
    assert_eq!(connections.len(), INSTANCES);
    assert!(connections.values().all(|most| *most <= POOL), "{connections:?}");
    println!(
        "{} writes mirrored, {} not, {connections:?}",
        load.mirrored(),
        load.missed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_sweeping_processes_do_everything_once() {
    const STALE: Duration = secs(6);
    const SILENT: usize = 20;
    let Some(valkey) = valkey::Server::start(valkey::Flavour::Valkey) else {
        return;
    };
    let Some(postgres) = postgres::Server::with(&["deadlock_timeout=50ms"]) else {
        return;
    };
    let (roster, database) = ("sweeps", postgres.database());
    prepare(roster, &database, &stale_after(STALE)).await;
    let often = SweepIntervals {
        offline: ms(200),
        heartbeats: ms(300),
        reconcile: ms(500),
        expiry: ms(200),
    };
    let processes = instances(roster, &valkey.url(), &database, often).await;
    let loud: Vec<_> = (SILENT..60).map(numbered).collect();
    // Heartbeats begin before the arrivals: on a slow machine the first provider must not lapse before the last
    // arrives.
    let _beats = Beats::of(&processes, loud.iter().cloned(), STALE / 20);
    arrive(&processes, 60).await;
    let first = &processes[0];
    let heard_before = first.row(&loud[0]).await.last_heartbeat_at;
    for n in 0..SILENT {
        let new = NewEngagement {
            expires_in: Some(ms(500)),
            ..active(&format!("e{n}"), &loud[n])
        };
        let process = &processes[n % INSTANCES];
        process.roster.create_engagement(&new).await.unwrap();
    }
    let sql = Sql::connect(&database).await;
    let offline = "SELECT count(*) FROM tenure.provider_log WHERE change = 'offline'";
    let open = "SELECT count(*) FROM tenure.engagements WHERE status <> 'expired'";
    until_async(
        "all silent providers are offline and all engagements have ended",
        PATIENCE,
        async || {
            breathe().await;
            sql.number(offline).await >= SILENT as u64 && sql.number(open).await == 0
        },
    )
    .await;
    // Every sweep runs a few more times.
    first.pass(secs(2)).await;
    let lapsed = Reason::Ended(EndReason::Lapsed);
    let log = first.log().await.into_iter();
    let mut gone: Vec<_> = log
        .filter(|entry| entry.change == Change::Offline)
        .map(|entry| (entry.provider, entry.reason))
        .collect();
    gone.sort_by(|a, b| a.0.cmp(&b.0));
    let expected: Vec<_> = (0..SILENT).map(|n| (numbered(n), lapsed)).collect();
    assert_eq!(gone, expected, "each once");
    assert!(first.row(&loud[0]).await.last_heartbeat_at > heard_before);
    first.until_they_agree().await;
    assert_eq!(
        first.free().await,
        (loud.iter().map(ToString::to_string).collect(), Source::Mirror)
    );
    // A connection reports its statistics when it closes.
    let database = database.rsplit('/').next().unwrap();
    postgres
        .sql(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
        ))
        .unwrap();
    let deadlocks = format!("SELECT deadlocks FROM pg_stat_database WHERE datname = '{database}'");
    assert_eq!(postgres.sql(&deadlocks).unwrap(), "0");
}
