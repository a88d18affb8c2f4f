//! What eight sweepers cost a store that holds a large group in which nobody dies.
//!
//! Two states: at rest, where sweepers only keep the cadence, and with every member beating, where the lazy index has to
//! follow: its share is what the store uses with sweepers minus what it uses for the same beats without them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tenure::loops::Loops;
use tenure::sweeper::{Sweeper, SweeperSettings};
use tenure_core::clock::SystemClock;
use tenure_core::id::Group;
use tenure_core::store::Store;
use tokio::runtime::Handle;

use crate::hot::Hot;
use crate::report::{Goal, Report, Row};
use crate::stats::Samples;
use crate::subject::{self, Beating};
use crate::suite::Size;

const SWEEPERS: usize = 8;
/// At first.
const LONG: Duration = Duration::from_secs(120);
/// While they beat.
const TTL: Duration = Duration::from_secs(30);
const GOAL: f64 = 2.0;

/// Runs it.
///
/// # Errors
/// When something fails.
pub async fn run(size: Size, report: Report) -> Result<()> {
    let members = size.pick(100_000, 20_000);
    let hot = Hot::start()?;
    let store = subject::open(&hot.url()).await?;
    let group = subject::group("bench")?;
    let tenures = subject::fill(&store, &group, members, LONG).await?;
    let crowd = Crowd::start(&hot, &group).await?;
    // Nothing comes due before their long ttl is over.
    let rest = share(&hot, size.pick(Duration::from_secs(8), Duration::from_secs(1))).await?;
    let beating = Beating::start(&store, &group, &tenures, TTL / 3, Some(TTL));
    // Once round, so that all have the shorter ttl and no beat changes one any more.
    tokio::time::sleep(TTL / 3).await;
    drop(beating);
    let beating = Beating::start(&store, &group, &tenures, TTL / 3, None);
    // A whole ttl: the place of every member in the index is renewed in it.
    let crowded = share(&hot, size.pick(TTL, Duration::from_secs(4))).await?;
    crowd.stop().await;
    let alone = share(&hot, size.pick(TTL / 3, Duration::from_secs(2))).await?;
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
    report.keep(
        "% of a core: at rest, beats alone, beats and sweepers",
        &Samples::from_iter([rest, alone, crowded]),
    );
    Ok(())
}

/// Sweepers, each with a connection of its own like a process of its own.
struct Crowd {
    loops: Vec<Loops>,
    stores: Vec<Arc<dyn Store>>,
    _sweepers: Vec<Sweeper>,
}

impl Crowd {
    async fn start(hot: &Hot, group: &Group) -> Result<Self> {
        let (mut loops, mut stores, mut sweepers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..SWEEPERS {
            let (store, clock) = (subject::open(&hot.url()).await?, SystemClock::shared());
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

/// The share of a core that the server uses for a while, in percent.
async fn share(hot: &Hot, time: Duration) -> Result<f64> {
    let (before, start) = (hot.used()?.cpu, Instant::now());
    tokio::time::sleep(time).await;
    Ok((hot.used()?.cpu - before) / start.elapsed().as_secs_f64() * 100.0)
}
