//! Finding and reaping orphaned sessions, compared with the hand-written way: SCAN for the sessions and read each. Both
//! servers also hold a million unrelated keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tenure_core::id::{ConnectionId, Group, SessionId, TenureId};
use tenure_core::membership::{Beat, Join, Labels};
use tenure_core::session::{Attach, Detach};
use tenure_core::store::{Call, Store};
use tenure_core::sweep::SweepRequest;
use tenure_testkit::resp::Client;

use crate::probe::{Probe, idle};
use crate::report::{Goal, Report, Row};
use crate::stats::{Samples, ms, rate};
use crate::subject;
use crate::suite::Size;
use crate::valkey::ValkeyServer;

/// One session in this many is an orphan.
const ONE_IN: usize = 100;
/// The page limit of a listing.
const LISTED: u32 = 1_000;
/// Attaches per call.
const PART: usize = 1_000;
/// The grace of sessions that must not be reaped.
const LONG: Duration = Duration::from_secs(24 * 3600);
/// The grace of the others: the minimum.
const SHORT: Duration = Duration::from_secs(1);

pub async fn run(size: Size, report: Report) -> Result<()> {
    let unrelated = size.pick(1_000_000, 100_000);
    let steps: &[(usize, f64)] = size.pick(
        &[(1_000, 0.1), (10_000, 0.3), (100_000, 2.0), (1_000_000, 3.0)],
        &[(1_000, 0.1), (10_000, 0.3)],
    );
    let fixture = Fixture::build(unrelated).await?;
    let mut sessions = 0;
    for (total, goal) in steps.iter().copied() {
        fixture.grow(sessions..total).await?;
        sessions = total;
        measure(&fixture, size, &report, total, goal).await?;
    }
    large_reap(&fixture, &report, sessions).await?;
    fixture.store.close().await;
    Ok(())
}

/// Rounds of a listing and a reap of one in a hundred, on both sides.
async fn measure(fixture: &Fixture, size: Size, report: &Report, total: usize, goal: f64) -> Result<()> {
    let few = total / ONE_IN;
    let (mut list, mut reap, mut scan) = (Samples::default(), Samples::default(), Samples::default());
    for round in 0..size.rounds() {
        fixture.leave(0..few, SHORT).await?;
        fixture.overdue(few).await?;
        for _ in 0..5 {
            let start = Instant::now();
            let orphans = fixture.store.orphans(&fixture.group, Duration::ZERO, LISTED).await?;
            list.push(ms(start.elapsed()));
            let listed = few.min(LISTED as usize);
            ensure!(
                orphans.orphans.len() == listed,
                "{} orphans listed",
                orphans.orphans.len()
            );
        }
        let start = Instant::now();
        fixture.reap(&format!("bench-{total}-{round}"), few).await?;
        reap.push(ms(start.elapsed()));
        // The search by hand takes seconds at the largest size; two rounds suffice.
        if round < 2 {
            let start = Instant::now();
            let found = fixture.scan()?;
            scan.push(ms(start.elapsed()));
            ensure!(found == few, "{found} orphans found by hand");
        }
    }
    let what = format!("{few} orphans of {total} sessions");
    let row = Row::new(format!("{what}: list"), list.median(), "ms");
    let ratio = scan.median() / list.median();
    report.row(
        row.against("SCAN + HGET", scan.median(), Some(ratio))
            .goal(Goal::AtMost(goal)),
    );
    if total >= 1_000_000 {
        let row = Row::new(format!("{what}: list beside SCAN"), list.median(), "ms");
        let row = row.against("SCAN + HGET", scan.median(), Some(ratio));
        report.row(row.goal(Goal::Times(1_000.0)));
    }
    let row = Row::new(format!("{what}: find and delete them"), reap.median(), "ms");
    report.row(row.against(
        "SCAN + HGET, nothing deleted",
        scan.median(),
        Some(scan.median() / reap.median()),
    ));
    report.keep(format!("{what}: list ms"), &list);
    report.keep(format!("{what}: reap ms"), &reap);
    report.keep(format!("{what}: SCAN + HGET ms"), &scan);
    Ok(())
}

/// Reaps one in ten in one go, and measures the latency of other clients.
async fn large_reap(fixture: &Fixture, report: &Report, total: usize) -> Result<()> {
    let many = total / 10;
    let quiet = idle(fixture.valkey.addr(), Duration::from_secs(1)).await?;
    fixture.leave(0..many, SHORT).await?;
    fixture.overdue(many).await?;
    fixture.valkey.forget_slow()?;
    let probe = Probe::start(fixture.valkey.addr())?;
    let start = Instant::now();
    fixture.reap("bench-large", many).await?;
    let what = format!("{many} orphans of {total} sessions reaped at once");
    report.row(Row::new(what.clone(), rate(many, start), "sessions/s").goal(Goal::AtLeast(60_000.0)));
    let pings = probe.finish()?;
    let row = Row::new(format!("{what}: PING p99"), pings.percentile(99.0), "ms");
    report.row(
        row.against("idle", quiet.percentile(99.0), None)
            .goal(Goal::AtMostAbove(2.0)),
    );
    let (longest, command) = fixture.valkey.slowest()?;
    report.row(Row::new(
        format!("{what}: longest command in the server"),
        longest,
        "ms",
    ));
    report.note(format!("{what}: the longest command was {command}"));
    report.keep(format!("{what}: PING ms"), &pings.percentiles());
    report.keep(format!("{what}: PING ms, idle"), &quiet.percentiles());
    Ok(())
}

struct Fixture {
    valkey: ValkeyServer,
    store: Arc<dyn Store>,
    group: Group,
    front: TenureId,
    plain: ValkeyServer,
}

impl Fixture {
    async fn build(unrelated: usize) -> Result<Self> {
        let (valkey, plain) = (ValkeyServer::start()?, ValkeyServer::start()?);
        for server in [&valkey, &plain] {
            let mut client = server.client()?;
            for some in (0..unrelated).collect::<Vec<_>>().chunks(10_000) {
                let set = |n: &usize| vec!["SET".to_owned(), format!("unrelated:{n}"), "v".to_owned()];
                ValkeyServer::pipeline(&mut client, &some.iter().map(set).collect::<Vec<_>>())?;
            }
        }
        let (store, group) = (subject::open_patient(&valkey.url()).await?, subject::group("bench")?);
        let join = Join {
            member: subject::member(0).parse()?,
            ttl: subject::HOUR,
            labels: Labels::default(),
        };
        let front = store.join(&group, &join, Call::default()).await?.tenure;
        Ok(Self {
            valkey,
            store,
            group,
            front,
            plain,
        })
    }

    /// Adds sessions on both sides: all disconnected, none of them for too long.
    async fn grow(&self, numbers: std::ops::Range<usize>) -> Result<()> {
        let mut client = self.plain.client()?;
        self.leave(numbers.clone(), LONG).await?;
        for some in numbers.collect::<Vec<_>>().chunks(10_000) {
            ValkeyServer::pipeline(
                &mut client,
                &some.iter().map(|n| plain(*n, "9999999999")).collect::<Vec<_>>(),
            )?;
        }
        Ok(())
    }

    /// Attaches and detaches these sessions. By hand, writes the time of the disconnect.
    async fn leave(&self, numbers: std::ops::Range<usize>, grace: Duration) -> Result<()> {
        let (names, connection): (Vec<_>, _) = (numbers.map(name).collect(), ConnectionId::new("c")?);
        self.store.beat(&self.group, &[Beat::of(self.front.clone())]).await?;
        for some in names.chunks(PART) {
            let attaches: Result<Vec<_>> = some
                .iter()
                .map(|name| {
                    let data = [
                        ("user".to_owned(), name.clone().into()),
                        ("room".to_owned(), "lobby".into()),
                    ];
                    Ok(Attach {
                        data: data.into(),
                        grace: Some(grace),
                        ..Attach::new(SessionId::new(name)?, connection.clone())
                    })
                })
                .collect();
            let attaches = attaches?;
            let detach = |attach: &Attach| Detach {
                session: attach.session.clone(),
                connection: attach.connection.clone(),
                epoch: None,
            };
            let detaches: Vec<_> = attaches.iter().map(detach).collect();
            self.store
                .attach(&self.group, &self.front, &attaches, Call::default())
                .await?;
            self.store
                .detach(&self.group, &self.front, &detaches, Call::default())
                .await?;
        }
        if grace == SHORT {
            let mut client = self.plain.client()?;
            let left: Vec<_> = (0..names.len()).map(|n| plain(n, "1")).collect();
            ValkeyServer::pipeline(&mut client, &left)?;
        }
        Ok(())
    }

    /// Waits until this many sessions are orphans. The beats keep the group ticking: a silence would be an outage of the
    /// store, after which every session has its whole grace again, and nothing would be reaped.
    async fn overdue(&self, count: usize) -> Result<()> {
        let start = Instant::now();
        while self.store.session_stats(&self.group).await?.orphans < count as u64 {
            ensure!(start.elapsed() < Duration::from_secs(30), "they do not become orphans");
            self.store.beat(&self.group, &[Beat::of(self.front.clone())]).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn reap(&self, pass: &str, count: usize) -> Result<()> {
        let report = self
            .store
            .sweep(&self.group, &SweepRequest::default(), pass, Call::default())
            .await?;
        ensure!(report.reaped == count as u64, "{} sessions reaped", report.reaped);
        Ok(())
    }

    /// By hand: reads every session of the keyspace and its disconnect time, a thousand keys per page in one pipeline.
    fn scan(&self) -> Result<usize> {
        let mut client = self.plain.client()?;
        let (mut cursor, mut found) = ("0".to_owned(), 0);
        loop {
            let page = client.call(&["SCAN", &cursor, "MATCH", "session:*", "COUNT", "1000"])?;
            let [next, keys] = page.items() else {
                anyhow::bail!("SCAN was answered with {page:?}")
            };
            let keys = keys.texts();
            found += left_long_ago(&mut client, &keys)?;
            cursor = next.text();
            if cursor == "0" {
                return Ok(found);
            }
        }
    }
}

fn left_long_ago(client: &mut Client, keys: &[String]) -> Result<usize> {
    for key in keys {
        client.send(&["HGET", key, "last_disconnect"])?;
    }
    let mut found = 0;
    for _ in keys {
        let left: u64 = client.receive()?.text().parse().context("a time of disconnecting")?;
        found += usize::from(left < 1_000_000);
    }
    Ok(found)
}

fn name(number: usize) -> String {
    format!("session-{number:08}")
}

/// The same session as a program would store it by hand.
fn plain(number: usize, last_disconnect: &str) -> Vec<String> {
    let name = name(number);
    let fields = ["user", &name, "room", "lobby", "last_disconnect", last_disconnect];
    let key = ["HSET".to_owned(), format!("session:{number:08}")];
    key.into_iter().chain(fields.map(str::to_owned)).collect()
}
