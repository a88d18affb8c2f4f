//! Measures the embedded store on this machine: joins, claims, beats, reads, memory.
//!
//! `cargo run --release -p tenure-sqlite --example figures [DIRECTORY]`. The file lies in the directory given, which
//! should be on the disk that matters, or in the system's temporary one.

#![expect(clippy::print_stdout, reason = "it is a program that prints")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::clock::SystemClock;
use tenure_core::membership::{Beat, Join, Labels, MembershipStore};
use tenure_core::registry::{ClaimMode, RegistryStore};
use tenure_core::store::{Backend, Call, StoreOptions};
use tenure_core::{Clock, Group, Key, MemberId, RegistryName, Result, TenureId};
use tenure_sqlite::SqliteStore;

const MEMBERS: usize = 100_000;
const RUN: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<()> {
    let dir = match std::env::args_os().nth(1) {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    let dir = dir.expect("a directory to write to");
    let path = dir.path().join("tenure.db");
    let clock = SystemClock::shared();
    let store = SqliteStore::open(&path, StoreOptions::default(), Arc::clone(&clock))?;
    println!("rss at start: {} MiB", rss());
    for tasks in [1, 64, 512] {
        let group = Group::new(format!("joins-{tasks}"))?;
        rate(
            &store,
            &clock,
            &format!("joins, {tasks} at once"),
            tasks,
            move |store, n| {
                let (group, join) = (group.clone(), joining(n));
                async move { store.join(&group, &join, Call::default()).await.map(drop) }
            },
        )
        .await?;
    }
    let group = Group::new("ingest")?;
    let tenures = fill(&store, &clock, &group).await?;
    println!("rss with {MEMBERS} members and {MEMBERS} claims: {} MiB", rss());
    let devices = RegistryName::new("devices")?;
    for tasks in [1, 64, 512] {
        let (group, devices, tenures) = (group.clone(), devices.clone(), Arc::clone(&tenures));
        rate(
            &store,
            &clock,
            &format!("claims of one key, {tasks} at once"),
            tasks,
            move |store, n| {
                let (group, devices, tenure) = (group.clone(), devices.clone(), tenures[n % MEMBERS].clone());
                async move {
                    let keys = [Key::new(format!("dev-{}", n % 50_000))?];
                    let mode = ClaimMode::Take;
                    store
                        .claim(&group, &devices, &tenure, &keys, mode, Call::default())
                        .await
                        .map(drop)
                }
            },
        )
        .await?;
    }
    beats(&store, &clock, &group, &tenures).await?;
    let reads = (group.clone(), devices.clone());
    rate(&store, &clock, "look-ups of a key, 64 at once", 64, move |store, n| {
        let (group, devices) = reads.clone();
        async move {
            let key = Key::new(format!("dev-{}", n % 50_000))?;
            store.claim_of(&group, &devices, &key).await.map(drop)
        }
    })
    .await?;
    println!("rss at the end: {} MiB", rss());
    let started = clock.mono();
    store.close().await;
    println!("close: {:?}", clock.mono().since(started));
    let started = clock.mono();
    let store = SqliteStore::open(&path, StoreOptions::default(), Arc::clone(&clock))?;
    println!("open: {:?}", clock.mono().since(started));
    store.close().await;
    Ok(())
}

fn joining(n: usize) -> Join {
    Join {
        member: MemberId::new(format!("host-{n:06}-1763676800000000000-0a1b2c3d")).expect("a name"),
        ttl: Duration::from_secs(120),
        labels: Labels::default(),
    }
}

/// Joins all members with one claim each.
async fn fill(store: &Arc<SqliteStore>, clock: &Arc<dyn Clock>, group: &Group) -> Result<Arc<Vec<TenureId>>> {
    let started = clock.mono();
    let devices = RegistryName::new("devices")?;
    let tasks: Vec<_> = (0..512)
        .map(|task| {
            let (store, group, devices) = (Arc::clone(store), group.clone(), devices.clone());
            tokio::spawn(async move {
                let mut tenures = Vec::new();
                for n in (task..MEMBERS).step_by(512) {
                    let tenure = store.join(&group, &joining(n), Call::default()).await?.tenure;
                    let keys = [Key::new(format!("dev-{n}"))?];
                    let mode = ClaimMode::Take;
                    store
                        .claim(&group, &devices, &tenure, &keys, mode, Call::default())
                        .await?;
                    tenures.push(tenure);
                }
                Ok::<_, tenure_core::Error>(tenures)
            })
        })
        .collect();
    let mut tenures = Vec::new();
    for task in tasks {
        tenures.extend(task.await.expect("a task")?);
    }
    println!(
        "{MEMBERS} joins and {MEMBERS} claims, 512 at once: {:?}",
        clock.mono().since(started)
    );
    Ok(Arc::new(tenures))
}

/// Runs calls for a while and prints how many a second there were.
async fn rate<F: Future<Output = Result<()>> + Send>(
    store: &Arc<SqliteStore>,
    clock: &Arc<dyn Clock>,
    what: &str,
    tasks: usize,
    call: impl Fn(Arc<SqliteStore>, usize) -> F + Clone + Send + 'static,
) -> Result<()> {
    let (started, next) = (clock.mono(), Arc::new(AtomicU64::new(0)));
    let running: Vec<_> = (0..tasks)
        .map(|_| {
            let (store, clock, next, call) = (Arc::clone(store), Arc::clone(clock), Arc::clone(&next), call.clone());
            tokio::spawn(async move {
                let mut slowest = Duration::ZERO;
                while clock.mono().since(started) < RUN {
                    let n = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
                    let before = clock.mono();
                    call(Arc::clone(&store), n).await?;
                    slowest = slowest.max(clock.mono().since(before));
                }
                Ok::<_, tenure_core::Error>(slowest)
            })
        })
        .collect();
    let mut slowest = Duration::ZERO;
    for task in running {
        slowest = slowest.max(task.await.expect("a task")?);
    }
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    let per_second = next.load(Ordering::Relaxed) as f64 / clock.mono().since(started).as_secs_f64();
    println!("{what}: {per_second:.0}/s, slowest {slowest:?}");
    Ok(())
}

/// Beats in batches of one and of 200, from one task.
async fn beats(store: &Arc<SqliteStore>, clock: &Arc<dyn Clock>, group: &Group, tenures: &[TenureId]) -> Result<()> {
    let all: Vec<Beat> = tenures
        .iter()
        .map(|tenure| Beat {
            tenure: tenure.clone(),
            ttl: None,
            revision: tenure_core::membership::Revision::NONE,
            seen: tenure_core::membership::Revision::NONE,
        })
        .collect();
    for size in [1, 200] {
        let (started, mut beaten) = (clock.mono(), 0usize);
        while clock.mono().since(started) < RUN {
            for batch in all.chunks(size).skip(beaten % 97).take(100) {
                store.beat(group, batch).await?;
                beaten += batch.len();
            }
        }
        let took = clock.mono().since(started);
        #[expect(clippy::cast_precision_loss, reason = "for people to read")]
        let each = took.as_nanos() as f64 / beaten as f64;
        println!("beats, {size} a call: {each:.0} ns each");
    }
    Ok(())
}

fn rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
