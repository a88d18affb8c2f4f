//! The cost of eight sweepers, and of a single one, for a store with a large group in which no member dies.
//!
//! Two states: members at rest, where sweepers only tick, and all members beating, where the lazy index must follow.
//! Their share is the store's CPU time with sweepers minus the CPU time of the same beats without them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tenure::loops::Loops;
use tenure::sweeper::{Sweeper, SweeperSettings};
use tenure_core::clock::SystemClock;
use tenure_core::id::Group;
use tenure_core::store::Store;
use tokio::runtime::Handle;

use crate::report::{Goal, Report, Row};
use crate::stats::Samples;
use crate::subject::{self, Beating};
use crate::suite::Size;
use crate::valkey::ValkeyServer;

const SWEEPERS: usize = 8;
/// The ttl at first.
const LONG: Duration = Duration::from_secs(120);
/// The ttl while they beat.
const TTL: Duration = Duration::from_secs(30);
const GOAL: f64 = 2.0;

pub async fn run(size: Size, report: Report) -> Result<()> {
    let members = size.pick(100_000, 20_000);
    let valkey = ValkeyServer::start()?;
    let store = subject::open(&valkey.url()).await?;
    let group = subject::group("bench")?;
    let tenures = subject::fill(&store, &group, members, LONG).await?;
    let sweepers = Sweepers::start(&valkey, &group, SWEEPERS).await?;
    // No member is due before the long ttl is over.
    let rest = share(&valkey, size.pick(Duration::from_secs(8), Duration::from_secs(1))).await?;
    let beating = Beating::start(&store, &group, &tenures, TTL / 3, Some(TTL));
    // Beat once for all, so that all have the shorter ttl and no later beat changes one.
    tokio::time::sleep(TTL / 3).await;
    drop(beating);
    let beating = Beating::start(&store, &group, &tenures, TTL / 3, None);
    // A whole ttl, in which every member's position in the index is renewed.
    let crowded = share(&valkey, size.pick(TTL, Duration::from_secs(4))).await?;
    sweepers.stop().await;
    let sweepers = Sweepers::start(&valkey, &group, 1).await?;
    let single = share(&valkey, size.pick(TTL, Duration::from_secs(4))).await?;
    sweepers.stop().await;
    let alone = share(&valkey, size.pick(TTL / 3, Duration::from_secs(2))).await?;
    drop(beating);
    store.close().await;

    let what = format!("{SWEEPERS} idle sweepers, {members} members at rest");
    report.row(Row::new(what, rest, "% core").goal(Goal::AtMost(GOAL)));
    let what = format!("{SWEEPERS} sweepers over {members} beating members, whole store");
    report.row(
        Row::new(what, crowded, "% core")
            .against("beats alone", alone, None)
            .goal(Goal::AtMostAbove(GOAL)),
    );
    let what = format!("one sweeper over {members} beating members, whole store");
    report.row(Row::new(what, single, "% core").against("beats alone", alone, None));
    report.keep(
        "% of a core: at rest, beats alone, beats and eight sweepers, beats and one sweeper",
        &Samples::from_iter([rest, alone, crowded, single]),
    );
    Ok(())
}

/// Sweepers with a connection each, like separate processes.
struct Sweepers {
    loops: Vec<Loops>,
    stores: Vec<Arc<dyn Store>>,
    _sweepers: Vec<Sweeper>,
}

impl Sweepers {
    async fn start(valkey: &ValkeyServer, group: &Group, count: usize) -> Result<Self> {
        let (mut loops, mut stores, mut sweepers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let (store, clock) = (subject::open(&valkey.url()).await?, SystemClock::shared());
            let own = Loops::new(Arc::clone(&clock), Handle::current());
            let sweeper = Sweeper::start(Arc::clone(&store), clock, SweeperSettings::default(), &own)?;
            sweeper.touch(group);
            loops.push(own);
            stores.push(store);
            sweepers.push(sweeper);
        }
        Ok(Self {
            loops,
            stores,
            _sweepers: sweepers,
        })
    }

    async fn stop(self) {
        for (loops, store) in self.loops.iter().zip(&self.stores) {
            loops.shut_down(Duration::from_secs(2)).await;
            store.close().await;
        }
    }
}

/// The server's CPU share during a time, in percent of a core.
async fn share(valkey: &ValkeyServer, time: Duration) -> Result<f64> {
    let (before, start) = (valkey.used()?.cpu, Instant::now());
    tokio::time::sleep(time).await;
    Ok((valkey.used()?.cpu - before) / start.elapsed().as_secs_f64() * 100.0)
}
