//! Opens a store as a user's program does, and fills it with members.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tenure::connect::{OpenOptions, open_store};
use tenure_core::id::{Group, MemberId, TenureId};
use tenure_core::membership::{Beat, Join, Labels};
use tenure_core::store::{Call, Store};
use tokio::task::JoinSet;

/// Concurrent joins while a group is filled.
const JOINERS: usize = 128;
/// The time-out of a call: a short stall of the machine must show in the figures, not end the run.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time limit for filling a group.
const FILLING: Duration = Duration::from_secs(240);
/// The ttl of members that must not lapse during a measurement.
pub const HOUR: Duration = Duration::from_secs(3600);
/// Background beats per call.
const BATCH: usize = 200;

/// Opens a store through the library.
///
/// # Errors
/// If it cannot be reached.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    open_with(url, OpenOptions::default()).await
}

/// Opens a store with a maximum ttl of an hour, so that members of a large group need no beats while it is filled.
///
/// # Errors
/// If it cannot be reached.
pub async fn open_patient(url: &str) -> Result<Arc<dyn Store>> {
    let mut options = OpenOptions::default();
    options.store.max_ttl = HOUR;
    open_with(url, options).await
}

async fn open_with(url: &str, mut options: OpenOptions) -> Result<Arc<dyn Store>> {
    options.request_timeout = Some(PATIENCE);
    open_store(url, &options).await.with_context(|| format!("open {url}"))
}

/// A group with this name.
///
/// # Errors
/// If the name is invalid.
pub fn group(name: &str) -> Result<Group> {
    Group::new(name).context("the name of a group")
}

/// A member name with the length of a short host name: `node-0000042`.
#[must_use]
pub fn member(number: usize) -> String {
    format!("node-{number:07}")
}

/// Joins `count` members without labels and returns their tenures in order, fewer if it takes more than four minutes.
///
/// # Errors
/// If a join fails.
pub async fn fill(store: &Arc<dyn Store>, group: &Group, count: usize, ttl: Duration) -> Result<Vec<TenureId>> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for first in 0..JOINERS {
        let (store, group) = (Arc::clone(store), group.clone());
        tasks.spawn(async move {
            let mut joined = Vec::new();
            for number in (first..count).step_by(JOINERS) {
                if start.elapsed() > FILLING {
                    break;
                }
                let join = Join {
                    member: MemberId::new(member(number))?,
                    ttl,
                    labels: Labels::default(),
                };
                joined.push(store.join(&group, &join, Call::default()).await?.tenure);
            }
            Ok::<_, tenure_core::Error>(joined)
        });
    }
    let mut tenures = Vec::with_capacity(count);
    while let Some(joined) = tasks.join_next().await {
        tenures.extend(joined.context("a joining task")?.context("join")?);
    }
    tenures.sort();
    Ok(tenures)
}

/// Background beats: each member once per `interval`, in batches of 200 spread over it, until dropped.
pub struct Beating(tokio::task::JoinHandle<()>);

impl Beating {
    /// Starts beating, optionally with a new ttl.
    #[must_use]
    pub fn start(
        store: &Arc<dyn Store>,
        group: &Group,
        tenures: &[TenureId],
        interval: Duration,
        ttl: Option<Duration>,
    ) -> Self {
        let (store, group) = (Arc::clone(store), group.clone());
        let beats: Vec<Beat> = tenures
            .iter()
            .cloned()
            .map(|tenure| Beat {
                tenure,
                ttl,
                revision: tenure_core::membership::Revision::NONE,
                seen: tenure_core::membership::Revision::NONE,
            })
            .collect();
        Self(tokio::spawn(async move {
            let batches = beats.len().div_ceil(BATCH).max(1);
            let mut ticks = tokio::time::interval(interval / u32::try_from(batches).unwrap_or(u32::MAX));
            for batch in beats.chunks(BATCH).cycle() {
                ticks.tick().await;
                // The next batch makes up for a failed one, as in production.
                if let Err(error) = store.beat(&group, batch).await {
                    eprintln!("a batch of beats failed: {}", error.chain());
                }
            }
        }))
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.0.abort();
    }
}
