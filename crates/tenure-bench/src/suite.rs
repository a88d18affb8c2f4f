//! The benchmarks by name. A run is bounded in time, and a failure affects only its own benchmark.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::bench;
use crate::report::{Figures, Report};

/// The size of a run.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// A smoke run: smaller, shorter, and its figures mean little.
    pub quick: bool,
}

impl Size {
    /// Picks one of two values.
    #[must_use]
    pub fn pick<T>(self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// The number of interleaved rounds.
    #[must_use]
    pub fn rounds(self) -> usize {
        self.pick(5, 2)
    }
}

type Run = fn(Size, Report) -> Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// A benchmark.
#[derive(Clone, Copy)]
pub struct Benchmark {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    run: Run,
}

/// The result of a benchmark.
#[derive(Debug, Serialize)]
pub struct BenchmarkResult {
    /// The benchmark's name.
    pub name: &'static str,
    /// The duration.
    pub seconds: f64,
    /// The reason for missing figures.
    pub failed: Option<String>,
    /// The figures, up to a failure.
    #[serde(flatten)]
    pub found: Figures,
}

macro_rules! benchmarks {
    ($($name:literal = $module:ident: $about:literal,)*) => {
        /// All benchmarks, in the order of a run.
        pub const ALL: &[Benchmark] = &[$(Benchmark {
            name: $name,
            about: $about,
            run: |size, report| Box::pin(bench::$module::run(size, report)),
        },)*];
    };
}

benchmarks! {
    "beats-valkey" = beats_valkey: "beats into Valkey beside SET … EX; memory per member",
    "beats-http" = beats_http: "one beat per request beside Consul and etcd",
    "beats-batch" = beats_batch: "batched beats over HTTP per core of the daemon",
    "detection" = detection: "lag after the deadline, one in a hundred and all",
    "evict" = evict: "the claims of a dead owner beside HGETALL + HDEL",
    "adopt" = adopt: "a pass over a large hash of another program",
    "sweepers" = sweepers: "the cost of eight sweepers while no member dies",
    "peers" = peers: "Tenure beside Consul, etcd, ZooKeeper and Redis by hand",
    "leases" = leases: "what keeping and getting leases costs, beside PEXPIRE and etcd keepalives",
    "takeover" = takeover: "10,000 leases on three nodes, one of them killed",
    "waiters" = waiters: "waiters for a lease: killed ones, and 10,000 on 100 leases",
    "orphans" = orphans: "orphaned sessions found and reaped beside SCAN",
    "roster" = roster: "who is available beside SDIFF + GETs and a join; heartbeats beside beats",
    "memory" = memory: "resident memory of the daemon",
}

impl Benchmark {
    /// Runs the benchmark. A failure, a panic and a time-out are results.
    pub async fn run(self, size: Size) -> BenchmarkResult {
        let bound = Duration::from_secs(size.pick(1_200, 90));
        let start = Instant::now();
        let report = Report::default();
        // On its own task, so that a panic of a server handle fails only this benchmark.
        let mut task = tokio::spawn((self.run)(size, report.clone()));
        let result = match tokio::time::timeout(bound, &mut task).await {
            Ok(joined) => joined.context("it panicked").flatten(),
            Err(_) => {
                task.abort();
                Err(anyhow::anyhow!("it took more than {bound:?}"))
            }
        };
        BenchmarkResult {
            name: self.name,
            seconds: start.elapsed().as_secs_f64(),
            failed: result.err().map(|error| format!("{error:#}")),
            found: report.found(),
        }
    }
}

/// The named benchmarks; all if none is named.
///
/// # Errors
/// If a name is unknown.
pub fn chosen(names: &[String]) -> Result<Vec<Benchmark>> {
    let known: BTreeMap<&str, Benchmark> = ALL.iter().map(|bench| (bench.name, *bench)).collect();
    if names.is_empty() {
        return Ok(ALL.to_vec());
    }
    let find = |name: &String| {
        let names: Vec<&str> = known.keys().copied().collect();
        let missing = || format!("there is no benchmark {name:?}; there are {}", names.join(", "));
        known.get(name.as_str()).copied().with_context(missing)
    };
    names.iter().map(find).collect()
}
