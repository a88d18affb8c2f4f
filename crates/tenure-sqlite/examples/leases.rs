//! Measures leases in the embedded store on this machine: grants, beats of those that hold many, takeover, release.
//!
//! `cargo run --release -p tenure-sqlite --example leases [DIRECTORY]`. The file lies in the directory given, which
//! should be on the disk that matters, or in the system's temporary one.

#![expect(clippy::print_stdout, reason = "it is a program that prints")]

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::{ManualClock, Mono, SystemClock};
use tenure_core::lease::LeaseStore;
use tenure_core::membership::{Beat, EndBy, Join, Labels, MembershipStore, Revision};
use tenure_core::store::{Backend, Call, StoreOptions};
use tenure_core::sweep::{SweepRequest, SweepSteps, run_pass};
use tenure_core::{Clock, Group, LeaseName, MemberId, Result, TenureId};
use tenure_sqlite::SqliteStore;

const MANY: usize = 10_000;
const RUN: Duration = Duration::from_secs(2);

struct World {
    store: Arc<SqliteStore>,
    clock: Arc<dyn Clock>,
    group: Group,
}

#[tokio::main]
async fn main() -> Result<()> {
    let dir = match std::env::args_os().nth(1) {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    let dir = dir.expect("a directory to write to");
    let clock = SystemClock::shared();
    let (path, options) = (dir.path().join("tenure.db"), StoreOptions::default());
    // A new file grants nothing for one max ttl; this one is an hour old.
    let before = ManualClock::new(clock.wall_micros() - 3_600_000_000, 1);
    SqliteStore::open(&path, options.clone(), Arc::new(before))?
        .close()
        .await;
    let world = World {
        store: SqliteStore::open(path, options, Arc::clone(&clock))?,
        clock,
        group: Group::new("fleet")?,
    };
    world.grants_one_by_one().await?;
    world.beats().await?;
    world.takeover().await?;
    world.store.close().await;
    Ok(())
}

fn names(prefix: &str, count: usize) -> Result<Vec<LeaseName>> {
    (0..count).map(|n| LeaseName::new(format!("{prefix}-{n:05}"))).collect()
}

impl World {
    fn since(&self, started: Mono) -> Duration {
        self.clock.mono().since(started)
    }

    async fn join(&self, name: &str, ttl: Duration) -> Result<TenureId> {
        let join = Join {
            member: MemberId::new(name)?,
            ttl,
            labels: Labels::default(),
        };
        Ok(self.store.join(&self.group, &join, Call::default()).await?.tenure)
    }

    /// Acquires them all in one call, beating before, and answers how many were granted and how long that took.
    async fn acquire(&self, tenure: &TenureId, leases: &[LeaseName]) -> Result<(usize, Revision, Duration)> {
        self.store.beat(&self.group, &[Beat::of(tenure.clone())]).await?;
        let started = self.clock.mono();
        let acquired = self.store.acquire(&self.group, tenure, leases, Call::default()).await?;
        let ours = acquired.outcomes.iter().filter(|outcome| outcome.token().is_some());
        Ok((ours.count(), acquired.revision, self.since(started)))
    }

    /// Single grants, each of them durable before it is answered.
    async fn grants_one_by_one(&self) -> Result<()> {
        for tasks in [1usize, 64, 512] {
            let tenure = self.join(&format!("single-{tasks}"), Duration::from_secs(120)).await?;
            let started = self.clock.mono();
            let running: Vec<_> = (0..tasks)
                .map(|task| {
                    let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
                    let (group, tenure) = (self.group.clone(), tenure.clone());
                    tokio::spawn(async move {
                        let mut times = Vec::new();
                        while clock.mono().since(started) < RUN {
                            let lease = LeaseName::new(format!("one-{tasks}-{task}-{}", times.len()))?;
                            let before = clock.mono();
                            store.acquire(&group, &tenure, &[lease], Call::default()).await?;
                            times.push(clock.mono().since(before));
                        }
                        Ok::<_, tenure_core::Error>(times)
                    })
                })
                .collect();
            let mut times = Vec::new();
            for task in running {
                times.extend(task.await.expect("a task")?);
            }
            times.sort();
            let (half, most) = (times[times.len() / 2], times[times.len() * 99 / 100]);
            #[expect(clippy::cast_precision_loss, reason = "for people to read")]
            let rate = times.len() as f64 / self.since(started).as_secs_f64();
            println!("acquire of one lease, {tasks} at once: {rate:.0}/s, p50 {half:?}, p99 {most:?}");
        }
        Ok(())
    }

    /// What a beat costs one who holds few or many.
    async fn beats(&self) -> Result<()> {
        for count in [1, 100, MANY] {
            let tenure = self.join(&format!("holder-{count}"), Duration::from_secs(120)).await?;
            let (held, revision, took) = self.acquire(&tenure, &names(&format!("of-{count}"), count)?).await?;
            println!("acquire of {held} leases in one call: {took:?}");
            let beat = [Beat {
                revision,
                ..Beat::of(tenure)
            }];
            let (started, mut beats) = (self.clock.mono(), 0u32);
            while self.since(started) < RUN {
                for _ in 0..1_000 {
                    self.store.beat(&self.group, &beat).await?;
                }
                beats += 1_000;
            }
            println!("a beat of one that holds {held}: {:?}", self.since(started) / beats);
        }
        Ok(())
    }

    /// A holder falls silent, another takes everything over; then it leaves, and the janitor comes.
    async fn takeover(&self) -> Result<()> {
        let leases = names("taken", MANY)?;
        let first = self.join("first", Duration::from_secs(5)).await?;
        for part in leases.chunks(1_000) {
            self.acquire(&first, part).await?;
        }
        let second = self.join("second", Duration::from_secs(120)).await?;
        while self
            .store
            .lease_of(&self.group, &leases[0])
            .await?
            .is_some_and(|lease| lease.alive)
        {
            self.store.tick(&self.group).await?;
            self.clock.sleep(Duration::from_millis(20)).await;
        }
        let (held, _, took) = self.acquire(&second, &leases).await?;
        println!("takeover of {held} leases in one call, from one that has lapsed: {took:?}");
        self.store
            .end(&self.group, &second, EndBy::Leave, Call::default())
            .await?;
        let mut released = 0;
        let started = self.clock.mono();
        while released < leases.len() as u64 {
            let whole = SweepRequest::default();
            let report = run_pass(&*self.store, &self.group, &whole, "pass", Call::default()).await?;
            released += report.leases_total();
            self.clock
                .sleep(
                    report
                        .next_release_in
                        .unwrap_or_default()
                        .min(Duration::from_millis(300)),
                )
                .await;
        }
        println!(
            "release of {released} leases of one that has left, the 250 ms for the brake included: {:?}",
            self.since(started)
        );
        Ok(())
    }
}
