//! The benchmarks by name, and running one of them: bounded in time, and failing alone.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::bench;
use crate::report::{Found, Report};

/// How much to do.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// A smoke run: smaller, shorter, and its figures mean little.
    pub quick: bool,
}

impl Size {
    /// One of two.
    #[must_use]
    pub fn pick<T>(self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// How many interleaved rounds.
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

/// What became of one.
#[derive(Debug, Serialize)]
pub struct Done {
    /// Which.
    pub name: &'static str,
    /// How long it took.
    pub seconds: f64,
    /// Why it has no figures.
    pub failed: Option<String>,
    /// What it found, until it failed if it did.
    #[serde(flatten)]
    pub found: Found,
}

macro_rules! benchmarks {
    ($($name:literal = $module:ident: $about:literal,)*) => {
        /// All of them, in the order in which they run.
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
    "sweepers" = sweepers: "what eight sweepers cost a store where nobody dies",
    "leases" = leases: "what keeping and getting leases costs, beside PEXPIRE and etcd keepalives",
    "takeover" = takeover: "10,000 leases on three nodes, one of them killed",
    "orphans" = orphans: "orphaned sessions found and reaped beside SCAN",
    "roster" = roster: "who is available beside SDIFF + GETs and a join; heartbeats beside beats",
    "memory" = memory: "resident memory of the daemon",
}

impl Benchmark {
    /// Runs it. A failure, a panic or too long a time is an outcome like others.
    pub async fn run(self, size: Size) -> Done {
        let bound = Duration::from_secs(size.pick(600, 60));
        let start = Instant::now();
        let report = Report::default();
        // On a task of its own, so that a server that panics its handle fails this benchmark alone.
        let mut task = tokio::spawn((self.run)(size, report.clone()));
        let result = match tokio::time::timeout(bound, &mut task).await {
            Ok(joined) => joined.context("it panicked").flatten(),
            Err(_) => {
                task.abort();
                Err(anyhow::anyhow!("it took more than {bound:?}"))
            }
        };
        Done {
            name: self.name,
            seconds: start.elapsed().as_secs_f64(),
            failed: result.err().map(|error| format!("{error:#}")),
            found: report.found(),
        }
    }
}

/// Those named; all when none is.
///
/// # Errors
/// When a name is not one of them.
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
