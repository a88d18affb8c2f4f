//! Evicting the claims of one dead owner, compared with the hand-written way: read the whole hash, find the owner's
//! entries, delete them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tenure_core::id::{Group, Key, RegistryName, TenureId};
use tenure_core::membership::{Beat, EndBy};
use tenure_core::registry::ClaimMode;
use tenure_core::store::{Call, Store};
use tenure_core::sweep::{BURST, SweepRequest};

use crate::probe::{Probe, idle};
use crate::report::{Goal, Report, Row};
use crate::stats::{Samples, ms};
use crate::subject;
use crate::suite::Size;
use crate::valkey::ValkeyServer;

const TTL: Duration = Duration::from_secs(120);
const PLAIN: &str = "connections:registry";
/// How many claims a step removes.
const STEP: f64 = 200.0;
/// Keeps the server busy for some time and does nothing else.
const LOOP: &str = include_str!("empty_loop.lua");

pub async fn run(size: Size, report: Report) -> Result<()> {
    let each = size.pick(10_000, 1_000);
    let sizes = size.pick([100_000, 1_000_000], [20_000, 100_000]);
    let (small, large) = (
        measure(size, sizes[0], each).await?,
        measure(size, sizes[1], each).await?,
    );
    for (entries, sides) in sizes.iter().zip([&small, &large]) {
        let what = format!("{each} claims out of {entries}");
        let row = Row::costs(what.clone(), "ms", &sides.ours, "HGETALL + HDEL", &sides.theirs);
        report.row(if *entries == sizes[1] {
            row.goal(Goal::Times(50.0))
        } else {
            row
        });
        let (p99, idle) = (sides.our_pings.percentile(99.0), sides.idle.percentile(99.0));
        report.row(
            Row::new(format!("{what}: PING p99"), p99, "ms")
                .against("idle", idle, None)
                .goal(Goal::AtMostAbove(1.0)),
        );
        let (step, p99) = (sides.steps.median(), sides.loop_pings.percentile(99.0));
        let row = Row::new(
            format!("{what}: PING p99 beside an empty loop of {step:.2} ms"),
            p99,
            "ms",
        );
        report.row(row.against("idle", idle, None));
        let (longest, theirs) = (sides.our_pings.max(), sides.their_pings.max());
        report.row(Row::new(format!("{what}: longest PING"), longest, "ms").against("HGETALL + HDEL", theirs, None));
        report.row(Row::new(
            format!("{what}: longest command in the server"),
            sides.slowest.0,
            "ms",
        ));
        report.note(format!("{what}: the longest command was {}", sides.slowest.1));
        report.keep(format!("{what}: ms"), &sides.ours);
        report.keep(format!("{what}: HGETALL + HDEL ms"), &sides.theirs);
        report.keep(format!("{what}: PING ms"), &sides.our_pings.percentiles());
        report.keep(format!("{what}: PING ms, idle"), &sides.idle.percentiles());
    }
    let what = format!("from {} to {} entries", sizes[0], sizes[1]);
    let (few, many) = (small.ours.median(), large.ours.median());
    let row = Row::new(what, many, "ms").against("the smaller", few, Some(many / few));
    report.row(row.goal(Goal::Within(0.2)));
    Ok(())
}

#[derive(Default)]
struct Sides {
    ours: Samples,
    theirs: Samples,
    idle: Samples,
    our_pings: Samples,
    their_pings: Samples,
    /// The CPU time of the server for one step, in ms.
    steps: Samples,
    loop_pings: Samples,
    slowest: (f64, String),
}

#[expect(clippy::cast_precision_loss, reason = "few claims")]
async fn measure(size: Size, entries: usize, each: usize) -> Result<Sides> {
    let steps = (each as f64 / STEP).ceil();
    let fixture = Fixture::build(entries, each).await?;
    let mut sides = Sides::default();
    for (round, victim) in fixture.owners.iter().take(size.rounds()).enumerate() {
        fixture.keep_alive().await?;
        sides.idle.extend(
            idle(fixture.valkey.addr(), Duration::from_millis(300))
                .await?
                .values()
                .iter()
                .copied(),
        );
        for ours in [round % 2 == 0, round % 2 != 0] {
            let (took, pings) = if ours {
                let used = fixture.valkey.used()?.cpu;
                let done = fixture.ours(victim, each, round).await?;
                sides.steps.push((fixture.valkey.used()?.cpu - used) * 1e3 / steps);
                done
            } else {
                fixture.theirs(round, each).await?
            };
            let (times, all) = match ours {
                true => (&mut sides.ours, &mut sides.our_pings),
                false => (&mut sides.theirs, &mut sides.their_pings),
            };
            times.push(ms(took));
            all.extend(pings.values().iter().copied());
            if ours {
                let slowest = fixture.valkey.slowest()?;
                if slowest.0 > sides.slowest.0 {
                    sides.slowest = slowest;
                }
            }
        }
        let pings = fixture.empty_loops(sides.steps.median(), steps).await?;
        sides.loop_pings.extend(pings.values().iter().copied());
    }
    fixture.store.close().await;
    Ok(sides)
}

struct Fixture {
    valkey: ValkeyServer,
    store: Arc<dyn Store>,
    group: Group,
    owners: Vec<TenureId>,
    plain: MultiplexedConnection,
}

impl Fixture {
    /// Creates a registry and a plain hash with the same entries.
    async fn build(entries: usize, each: usize) -> Result<Self> {
        let valkey = ValkeyServer::start()?;
        let (store, group) = (subject::open(&valkey.url()).await?, subject::group("bench")?);
        let owners = subject::fill(&store, &group, entries / each, TTL).await?;
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
        let client = redis::Client::open(format!("redis://{}", valkey.addr()))?;
        let plain = client.get_multiplexed_async_connection_with_config(&config).await?;
        let fixture = Self {
            valkey,
            store,
            group,
            owners,
            plain,
        };
        let registry = RegistryName::new("devices")?;
        for (number, owner) in fixture.owners.iter().enumerate() {
            let keys: Vec<Key> = devices(number, each).map(Key::new).collect::<Result<_, _>>()?;
            let mode = ClaimMode::Take;
            fixture
                .store
                .claim(&fixture.group, &registry, owner, &keys, mode, Call::default())
                .await?;
            fixture.fill_plain(number, each).await?;
        }
        fixture.compile().await?;
        Ok(fixture)
    }

    async fn fill_plain(&self, owner: usize, each: usize) -> Result<()> {
        let name = subject::member(owner);
        let pairs: Vec<(String, &str)> = devices(owner, each).map(|device| (device, name.as_str())).collect();
        for some in pairs.chunks(1_000) {
            redis::cmd("HSET")
                .arg(PLAIN)
                .arg(some)
                .exec_async(&mut self.plain.clone())
                .await?;
        }
        Ok(())
    }

    /// A pass without work, so that the server has compiled the scripts: at the first use after its start, each one
    /// takes it about two milliseconds.
    async fn compile(&self) -> Result<()> {
        let (request, call) = (SweepRequest::default(), Call::default());
        self.store.sweep(&self.group, &request, "bench-first", call).await?;
        Ok(())
    }

    async fn keep_alive(&self) -> Result<()> {
        let beats: Vec<Beat> = self
            .owners
            .iter()
            .cloned()
            .map(|tenure| Beat {
                tenure,
                ttl: None,
                revision: tenure_core::membership::Revision::NONE,
                seen: tenure_core::membership::Revision::NONE,
            })
            .collect();
        self.store.beat(&self.group, &beats).await?;
        Ok(())
    }

    /// One owner leaves. Once its holdings may be released, one pass evicts them.
    async fn ours(&self, victim: &TenureId, each: usize, round: usize) -> Result<(Duration, Samples)> {
        self.store
            .end(&self.group, victim, EndBy::Leave, Call::default())
            .await?;
        tokio::time::sleep(BURST + Duration::from_millis(50)).await;
        self.valkey.forget_slow()?;
        let probe = Probe::start(self.valkey.addr())?;
        let start = Instant::now();
        let pass = format!("bench-{round}");
        let report = self
            .store
            .sweep(&self.group, &SweepRequest::default(), &pass, Call::default())
            .await?;
        let took = start.elapsed();
        ensure!(
            report.evicted_total() == each as u64,
            "{} entries evicted",
            report.evicted_total()
        );
        Ok((took, probe.finish()?))
    }

    /// As many commands as a pass has steps, each as long as one and without any work. Returns the latency of other clients:
    /// what the length of a step costs them, with the delays of the scheduler, whatever it does.
    async fn empty_loops(&self, step_ms: f64, steps: f64) -> Result<Samples> {
        let mut plain = self.plain.clone();
        let probe = Probe::start(self.valkey.addr())?;
        let mut left = steps;
        while left > 0.0 {
            let mut command = redis::cmd("EVAL");
            command.arg(LOOP).arg(0).arg(step_ms / 1e3);
            command.exec_async(&mut plain).await?;
            left -= 1.0;
        }
        probe.finish()
    }

    /// The same by hand, with batched deletes. Then the entries are restored.
    async fn theirs(&self, victim: usize, each: usize) -> Result<(Duration, Samples)> {
        let dead = subject::member(victim);
        let mut plain = self.plain.clone();
        let probe = Probe::start(self.valkey.addr())?;
        let start = Instant::now();
        let all: HashMap<String, String> = redis::cmd("HGETALL").arg(PLAIN).query_async(&mut plain).await?;
        let fields: Vec<String> = all
            .into_iter()
            .filter(|(_, owner)| *owner == dead)
            .map(|(field, _)| field)
            .collect();
        for some in fields.chunks(1_000) {
            redis::cmd("HDEL")
                .arg(PLAIN)
                .arg(some)
                .exec_async(&mut plain)
                .await
                .context("HDEL")?;
        }
        let took = start.elapsed();
        let pings = probe.finish()?;
        ensure!(fields.len() == each, "{} entries deleted by hand", fields.len());
        self.fill_plain(victim, each).await?;
        Ok((took, pings))
    }
}

/// The devices of an owner: `device-0003-0000042`.
fn devices(owner: usize, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |number| format!("device-{owner:04}-{number:07}"))
}
