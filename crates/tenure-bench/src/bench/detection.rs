//! The time from a member's deadline to its `lapsed` event, with a real sweeper on Valkey.
//!
//! Deadlines and event times both come from the store, so the lag has no clock error. First one in a hundred members
//! falls silent while the others keep beating, several times; then all do.

use std::collections::BTreeMap;
use std::ops::Range;
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

use crate::probe::{Probe, idle};
use crate::report::{Goal, Report, Row};
use crate::stats::{Samples, Shuffler, ms};
use crate::subject::{self, Beating};
use crate::suite::Size;
use crate::valkey::ValkeyServer;

/// Long enough that no member lapses while the group is being filled, on any machine.
const TTL: Duration = Duration::from_secs(120);
const INTERVAL: Duration = Duration::from_secs(10);
/// The ttls of the members that beat. They differ, so that the lazy index has entries to renew all the
/// time once the shortest is over.
const SPREAD: Range<Duration> = Duration::from_secs(20)..Duration::from_secs(40);
/// The ttl in a member's last beat.
const LAST_TTL: Duration = Duration::from_secs(3);
/// Last beats in one call.
const BATCH: usize = 1_000;

/// # Errors
/// If the run fails, or a lapse is not seen within half a minute.
pub async fn run(size: Size, report: Report) -> Result<()> {
    let valkey = ValkeyServer::start()?;
    let store = subject::open(&valkey.url()).await?;
    let group = subject::group("bench")?;
    let mut tenures = subject::fill(&store, &group, size.pick(100_000, 20_000), TTL).await?;
    Shuffler::new(42).shuffle(&mut tenures);
    let fixture = Fixture { valkey, store, group };
    let quiet = idle(fixture.valkey.addr(), Duration::from_secs(1)).await?;

    let clock = SystemClock::shared();
    let loops = Loops::new(Arc::clone(&clock), Handle::current());
    let sweeper = Sweeper::start(Arc::clone(&fixture.store), clock, SweeperSettings::default(), &loops)?;
    sweeper.touch(&fixture.group);

    // A round has twenty moments of death, so a single hiccup of the machine is more than one in a hundred: hence the rounds.
    let share = tenures.len() / 100;
    let (few, all) = tenures.split_at(share * size.rounds());
    fixture.spread(all).await?;
    let beating = Beating::start(&fixture.store, &fixture.group, all, INTERVAL, None);
    tokio::time::sleep(SPREAD.start).await;
    // Their beats are spread over the beat interval, as in any fleet.
    let pause = LAST_TTL / 3 / 20;
    let mut rounds = Vec::new();
    for few in few.chunks(share) {
        let round = fixture.die(few, few.len().div_ceil(20), pause).await;
        rounds.push(round.context("one in a hundred")?);
    }
    drop(beating);
    let what = format!("{share} of {} die", tenures.len());
    write_rows(&report, &what, &rounds, &quiet, Part::Few);
    let everyone = fixture.die(all, BATCH, Duration::ZERO).await.context("everybody")?;
    let what = format!("all {} die", all.len());
    write_rows(&report, &what, &[everyone], &quiet, Part::All);
    loops.shut_down(Duration::from_secs(2)).await;
    fixture.store.close().await;
    Ok(())
}

struct Fixture {
    valkey: ValkeyServer,
    store: Arc<dyn Store>,
    group: Group,
}

/// The measurements of one round.
struct Detection {
    /// From each deadline to its event, in ms.
    lag: Samples,
    pings: Samples,
    /// The longest command in that time, in ms.
    slowest: (f64, String),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Few,
    All,
}

fn write_rows(report: &Report, what: &str, rounds: &[Detection], quiet: &Samples, part: Part) {
    let of = |measure: fn(&Detection) -> f64| {
        let mut each = Samples::default();
        each.extend(rounds.iter().map(measure));
        each
    };
    let (p99, last) = (of(|round| round.lag.percentile(99.0)), of(|round| round.lag.max()));
    report.row(match part {
        Part::Few => Row::new(format!("{what}: lag p99"), p99.median(), "ms").goal(Goal::AtMost(5.0)),
        Part::All => Row::new(format!("{what}: lag of the last"), last.median(), "ms").goal(Goal::AtMost(1_000.0)),
    });
    let median = of(|round| round.lag.median()).median();
    report.row(Row::new(format!("{what}: lag median"), median, "ms"));
    let ping = of(|round| round.pings.max()).median();
    let ping = Row::new(format!("{what}: longest PING"), ping, "ms").against("idle", quiet.max(), None);
    report.row(if part == Part::All {
        ping.goal(Goal::AtMost(5.0))
    } else {
        ping
    });
    let slowest = rounds.iter().map(|round| &round.slowest);
    if let Some((took, command)) = slowest.max_by(|one, other| one.0.total_cmp(&other.0)) {
        report.row(Row::new(format!("{what}: longest command in the server"), *took, "ms"));
        report.note(format!("{what}: the longest command was {command}"));
    }
    report.keep(format!("{what}: lag p99 ms of each round"), &p99);
    for (n, round) in rounds.iter().enumerate() {
        report.keep(format!("{what}, round {n}: lag ms"), &round.lag.percentiles());
        report.keep(format!("{what}, round {n}: PING ms"), &round.pings.percentiles());
    }
}

impl Fixture {
    /// Gives the members different ttls.
    async fn spread(&self, tenures: &[TenureId]) -> Result<()> {
        let step = (SPREAD.end - SPREAD.start) / u32::try_from(tenures.len())?;
        let mut ttl = SPREAD.start;
        for batch in tenures.chunks(BATCH) {
            let beats = batch.iter().map(|tenure| {
                ttl += step;
                Beat {
                    tenure: tenure.clone(),
                    ttl: Some(ttl),
                    revision: tenure_core::membership::Revision::NONE,
                    seen: tenure_core::membership::Revision::NONE,
                }
            });
            self.store.beat(&self.group, &beats.collect::<Vec<_>>()).await?;
        }
        Ok(())
    }

    /// Sends the last beats in batches, and waits until the members have lapsed.
    async fn die(&self, tenures: &[TenureId], batch: usize, pause: Duration) -> Result<Detection> {
        let from = self.store.status(&self.group).await?.last_event;
        self.valkey.forget_slow()?;
        let probe = Probe::start(self.valkey.addr())?;
        let mut deadlines = BTreeMap::new();
        for batch in tenures.chunks(batch) {
            let last = |tenure: &TenureId| Beat {
                tenure: tenure.clone(),
                ttl: Some(LAST_TTL),
                revision: tenure_core::membership::Revision::NONE,
                seen: tenure_core::membership::Revision::NONE,
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
        let (pings, slowest) = (probe.finish()?, self.valkey.slowest()?);
        let lag = self.lags(from, &deadlines).await?;
        ensure!(
            lag.len() == tenures.len(),
            "{} of {} deaths are in the events",
            lag.len(),
            tenures.len()
        );
        Ok(Detection { lag, pings, slowest })
    }

    /// Waits until that many members have lapsed, polling rarely so as not to disturb.
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
