//! How long after its deadline a member is seen to have lapsed, by a real sweeper over Valkey.
//!
//! Deadlines and the times of the `lapsed` events are both the store's own, so the lag has no clock error in it. First
//! one in a hundred falls silent while all others go on beating, then everybody at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tenure::loops::Loops;
use tenure::sweeper::{Sweeper, SweeperSettings};
use tenure_core::clock::SystemClock;
use tenure_core::event::{EventId, EventKind, EventQuery};
use tenure_core::id::{Group, TenureId};
use tenure_core::membership::{Beat, BeatReply};
use tenure_core::store::Store;
use tenure_core::time::StoreTime;
use tokio::runtime::Handle;

use crate::hot::Hot;
use crate::probe::{Probe, idle};
use crate::report::{Goal, Report, Row};
use crate::stats::{Dice, Samples, ms};
use crate::subject::{self, Beating};
use crate::suite::Size;

/// Long enough that nobody lapses while the group is still being filled, on any machine.
const TTL: Duration = Duration::from_secs(120);
const INTERVAL: Duration = Duration::from_secs(10);
/// The ttl with which members send what is to be their last beat.
const LAST_TTL: Duration = Duration::from_secs(3);
/// Last beats in one call.
const BATCH: usize = 1_000;

/// Runs it.
///
/// # Errors
/// When something fails, or the dead are not seen within half a minute.
pub async fn run(size: Size, report: Report) -> Result<()> {
    let hot = Hot::start()?;
    let store = subject::open(&hot.url()).await?;
    let group = subject::group("bench")?;
    let mut tenures = subject::fill(&store, &group, size.pick(100_000, 20_000), TTL).await?;
    Dice::new(42).shuffle(&mut tenures);
    let world = World { hot, store, group };
    let quiet = idle(world.hot.addr(), Duration::from_secs(1)).await?;

    let clock = SystemClock::shared();
    let loops = Loops::new(Arc::clone(&clock), Handle::current());
    let sweeper = Sweeper::start(Arc::clone(&world.store), clock, SweeperSettings::default(), &loops)?;
    sweeper.touch(&world.group);

    let (few, all) = tenures.split_at(tenures.len() / 100);
    let beating = Beating::start(&world.store, &world.group, all, INTERVAL, None);
    // Their beats are spread over the beat interval of their ttl, like those of any fleet.
    let pause = LAST_TTL / 3 / 20;
    let one = world
        .die(few, few.len().div_ceil(20), pause)
        .await
        .context("one in a hundred")?;
    drop(beating);
    tell(
        &report,
        &format!("{} of {} die", few.len(), tenures.len()),
        &one,
        &quiet,
        Part::Few,
    );
    let everyone = world.die(all, BATCH, Duration::ZERO).await.context("everybody")?;
    tell(&report, &format!("all {} die", all.len()), &everyone, &quiet, Part::All);
    loops.shut_down(Duration::from_secs(2)).await;
    world.store.close().await;
    Ok(())
}

struct World {
    hot: Hot,
    store: Arc<dyn Store>,
    group: Group,
}

/// What was seen of a death.
struct Seen {
    /// From each one's deadline to its event, in ms.
    lag: Samples,
    pings: Samples,
    /// The longest command of that time, in ms.
    slowest: (f64, String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Few,
    All,
}

fn tell(report: &Report, what: &str, seen: &Seen, quiet: &Samples, part: Part) {
    let lag = match part {
        Part::Few => Row::new(format!("{what}: lag p99"), seen.lag.percentile(99.0), "ms").goal(Goal::AtMost(50.0)),
        Part::All => Row::new(format!("{what}: lag of the last"), seen.lag.max(), "ms").goal(Goal::AtMost(2_000.0)),
    };
    report.row(lag);
    report.row(Row::new(format!("{what}: lag median"), seen.lag.median(), "ms"));
    let ping = Row::new(format!("{what}: longest PING"), seen.pings.max(), "ms").against("idle", quiet.max(), None);
    report.row(if part == Part::All {
        ping.goal(Goal::AtMost(10.0))
    } else {
        ping
    });
    report.row(Row::new(
        format!("{what}: longest command in the server"),
        seen.slowest.0,
        "ms",
    ));
    report.note(format!("{what}: the longest command was {}", seen.slowest.1));
    report.keep(format!("{what}: lag ms"), &seen.lag.percentiles());
    report.keep(format!("{what}: PING ms"), &seen.pings.percentiles());
}

impl World {
    /// Lets members send their last beats in batches, and watches them lapse.
    async fn die(&self, tenures: &[TenureId], batch: usize, pause: Duration) -> Result<Seen> {
        let from = self.store.status(&self.group).await?.last_event;
        self.hot.forget_slow()?;
        let probe = Probe::start(self.hot.addr())?;
        let mut deadlines = BTreeMap::new();
        for batch in tenures.chunks(batch) {
            let last = |tenure: &TenureId| Beat {
                tenure: tenure.clone(),
                ttl: Some(LAST_TTL),
                revision: tenure_core::membership::Revision::NONE,
            };
            let beats: Vec<Beat> = batch.iter().map(last).collect();
            let beaten = self.store.beat(&self.group, &beats).await?;
            for (beat, reply) in beats.into_iter().zip(beaten.replies) {
                let BeatReply::Renewed { expires_in, .. } = reply else {
                    bail!("a last beat was answered {reply:?}")
                };
                deadlines.insert(beat.tenure, beaten.as_of + expires_in);
            }
            tokio::time::sleep(pause).await;
        }
        self.wait(tenures.len()).await?;
        let (pings, slowest) = (probe.finish()?, self.hot.slowest()?);
        let lag = self.lags(from, &deadlines).await?;
        ensure!(
            lag.len() == tenures.len(),
            "{} of {} deaths are in the events",
            lag.len(),
            tenures.len()
        );
        Ok(Seen { lag, pings, slowest })
    }

    /// Waits until that many members are gone, looking rarely enough not to be in the way.
    async fn wait(&self, gone: usize) -> Result<()> {
        let before = self.store.status(&self.group).await?.members;
        let start = Instant::now();
        loop {
            let status = self.store.status(&self.group).await?;
            if status.members + gone as u64 <= before {
                return Ok(());
            }
            ensure!(
                start.elapsed() < Duration::from_secs(30),
                "{} members are left after 30 s",
                status.members
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn lags(&self, from: EventId, deadlines: &BTreeMap<TenureId, StoreTime>) -> Result<Samples> {
        let mut lag = Samples::default();
        let mut query = EventQuery {
            after: Some(from),
            limit: 1_000,
            kinds: vec![EventKind::Lapsed],
            ..EventQuery::default()
        };
        loop {
            let page = self.store.events(&self.group, &query).await?;
            ensure!(!page.missed, "events were trimmed before they were read");
            for event in &page.events {
                let deadline = event.tenure.as_ref().and_then(|tenure| deadlines.get(tenure));
                lag.extend(deadline.map(|deadline| ms(event.at.since(*deadline))));
            }
            if query.after == Some(page.last) {
                return Ok(lag);
            }
            query.after = Some(page.last);
        }
    }
}
