//! Available providers, compared with the hand-written way (two sets, their difference, and a heartbeat key per
//! provider) and with the join of an application without a hot store. Then the cost of heartbeats.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tenure::loops::Loops;
use tenure::roster::Source;
use tenure::{Roster, Rosters, RostersSettings, SystemClock, ledger};
use tenure_core::clock::Clock;
use tenure_core::id::{Group, ProviderId, RosterName, TenureId};
use tenure_core::ledger::{Ledger, Provider, ProviderSpec, Version};
use tenure_core::membership::Beat;
use tenure_core::roster::{Heartbeat, HeartbeatReply, MirrorEntry, Put, RosterMirror, group_of};
use tenure_core::store::{Call, PageRequest, Store};
use tenure_core::time::StoreTime;
use tenure_testkit::postgres::Server as Postgres;
use tenure_testkit::proxy::Mode;
use tenure_testkit::{Proxy, resp};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use crate::report::{Goal, Report, Row};
use crate::stats::{Samples, ms, rate};
use crate::subject;
use crate::suite::Size;
use crate::valkey::ValkeyServer;

/// Rows, seats and beats per call.
const PART: usize = 10_000;
/// One provider in this many is occupied.
const BUSY: usize = 3;
/// The page limit of a listing.
const FIRST: u32 = 50;
/// Heartbeats per script, as the service batches them.
const BATCH: usize = 200;

pub async fn run(size: Size, report: Report) -> Result<()> {
    let steps: &[usize] = size.pick(&[300, 10_000, 100_000], &[300, 3_000]);
    let mut fixture = Fixture::build().await?;
    let mut first = None;
    for total in steps.iter().copied() {
        fixture.grow(total).await?;
        let took = available(&fixture, size, &report, total).await?;
        let small = *first.get_or_insert(took);
        if total == steps[steps.len() - 1] {
            let what = format!("available, first {FIRST}: {total} online beside {}", steps[0]);
            let row = Row::new(what, took, "ms");
            report.row(row.against(&format!("{} online", steps[0]), small, Some(small / took)));
        }
    }
    heartbeats(&fixture, size, &report).await?;
    mirrored(&fixture, size, &report).await?;
    fallback(&fixture, size, &report).await?;
    fixture.store.close().await;
    fixture.ledger.close().await;
    Ok(())
}

/// Interleaved rounds of the three ways. Returns the time of Tenure's.
async fn available(fixture: &Fixture, size: Size, report: &Report, total: usize) -> Result<f64> {
    let mirror = fixture.mirror()?;
    let (mut ours, mut count, mut by_hand, mut join) = (
        Samples::default(),
        Samples::default(),
        Samples::default(),
        Samples::default(),
    );
    let page = PageRequest {
        after: None,
        limit: FIRST,
    };
    for _ in 0..size.rounds() * 4 {
        for _ in 0..10 {
            let start = Instant::now();
            let ranked = mirror.available(&fixture.group, &page).await?;
            ours.push(ms(start.elapsed()));
            ensure!(
                ranked.candidates.len() == FIRST as usize,
                "{} available",
                ranked.candidates.len()
            );
            let start = Instant::now();
            let kept = mirror.availability(&fixture.group, Duration::ZERO).await?;
            count.push(ms(start.elapsed()));
            ensure!(kept.count as usize == free_of(total), "{} counted", kept.count);
        }
        let start = Instant::now();
        let found = fixture.by_hand()?;
        by_hand.push(ms(start.elapsed()));
        ensure!(found == free_of(total), "{found} available by hand");
        let start = Instant::now();
        let found = fixture.join().await?;
        join.push(ms(start.elapsed()));
        ensure!(found == FIRST as usize, "{found} available by the join");
    }
    let what = format!("available, first {FIRST} of {total} online");
    let row = Row::new(what.clone(), ours.median(), "ms");
    let ratio = by_hand.median() / ours.median();
    let row = row.against("SDIFF + GETs", by_hand.median(), Some(ratio));
    report.row(if total == 300 { row.goal(Goal::Times(5.0)) } else { row });
    let row = Row::new(format!("{what}, beside SQL"), ours.median(), "ms");
    report.row(row.against("join in Postgres", join.median(), Some(join.median() / ours.median())));
    let row = Row::new(
        format!("availability, counted again, {total} online"),
        count.median(),
        "ms",
    );
    report.row(row.against(
        "SDIFF + GETs",
        by_hand.median(),
        Some(by_hand.median() / count.median()),
    ));
    report.keep(format!("{what} ms"), &ours);
    report.keep(format!("{what}: by hand ms"), &by_hand);
    report.keep(format!("{what}: join ms"), &join);
    Ok(ours.median())
}

/// Heartbeats by name, compared with beats by tenure and heartbeats by hand.
async fn heartbeats(fixture: &Fixture, size: Size, report: &Report) -> Result<()> {
    let mirror = fixture.mirror()?;
    let (mut named, mut plain) = (Samples::default(), Samples::default());
    let heard: Vec<Heartbeat> = fixture.names.iter().cloned().map(Heartbeat::of).collect();
    let beats: Vec<Beat> = fixture.tenures.iter().cloned().map(Beat::of).collect();
    let before = fixture.transactions()?;
    for _ in 0..size.rounds() {
        let (start, used) = (Instant::now(), fixture.valkey.used()?.cpu);
        for part in heard.chunks(BATCH) {
            let replies = mirror.heartbeat(&fixture.group, part).await?.replies;
            ensure!(
                replies.iter().all(|reply| *reply == HeartbeatReply::Recorded),
                "a heartbeat was refused"
            );
        }
        let cpu = fixture.valkey.used()?.cpu - used;
        named.push(cpu * 1e6 / heard.len() as f64);
        report.note(format!("heartbeats: {:.0}/s by one caller", rate(heard.len(), start)));
        let used = fixture.valkey.used()?.cpu;
        for part in beats.chunks(BATCH) {
            fixture.store.beat(&fixture.group, part).await?;
        }
        plain.push((fixture.valkey.used()?.cpu - used) * 1e6 / beats.len() as f64);
    }
    // A backend publishes its statistics at most once a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = fixture.transactions()? - before;
    report.row(Row::new("transactions in Postgres during all heartbeats", asked, "").goal(Goal::AtMost(0.0)));
    let row = Row::costs("heartbeat by name, server CPU", "µs", &named, "beat by tenure", &plain);
    report.row(row.goal(Goal::Times(0.77)));
    Ok(())
}

/// Records heartbeats in the ledger: one statement per batch, first with only new times, then with none.
async fn mirrored(fixture: &Fixture, size: Size, report: &Report) -> Result<()> {
    let (mut news, mut nothing) = (Samples::default(), Samples::default());
    let clock = SystemClock::new();
    for round in 0..size.rounds() {
        let at = StoreTime::from_micros(clock.wall_micros() + round as u64);
        let heard: Vec<(ProviderId, StoreTime)> = fixture.names.iter().map(|name| (name.clone(), at)).collect();
        for (samples, expected) in [(&mut news, heard.len() as u64), (&mut nothing, 0)] {
            let (start, mut written) = (Instant::now(), 0);
            for part in heard.chunks(PART) {
                written += fixture.ledger.record_heartbeats(&fixture.roster, part).await?;
            }
            samples.push(ms(start.elapsed()));
            ensure!(written == expected, "{written} written down");
        }
    }
    let what = format!("heartbeat mirror, {} providers", fixture.names.len());
    let row = Row::new(what.clone(), news.median(), "ms").goal(Goal::AtMost(500.0));
    report.row(row.against("nothing new", nothing.median(), None));
    report.keep(format!("{what} ms"), &news);
    Ok(())
}

/// Many concurrent readers when the hot store stops answering: how long they wait for the ledger.
async fn fallback(fixture: &Fixture, size: Size, report: &Report) -> Result<()> {
    let proxy = Proxy::start(fixture.valkey.addr());
    let store = subject::open_patient(&proxy.url("valkey")).await?;
    let clock = SystemClock::shared();
    let loops = Loops::new(Arc::clone(&clock), Handle::current());
    let ledger = Arc::clone(&fixture.ledger);
    let rosters = Rosters::start(Arc::clone(&store), ledger, clock, RostersSettings::default(), &loops)?;
    let roster = rosters.roster(&fixture.roster)?;
    let start = Instant::now();
    while roster.availability().await?.source != Source::Mirror {
        ensure!(
            start.elapsed() < Duration::from_secs(120),
            "the mirror is never believed"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let readers = size.pick(5_000, 500);
    let before = (
        read(&roster, readers, true).await?,
        read(&roster, readers, false).await?,
    );
    proxy.set(Mode::BlackHole);
    let (page, page_refused) = read(&roster, readers, true).await?;
    let (count, count_refused) = read(&roster, readers, false).await?;
    let what = format!("{readers} readers at once, the hot store silent");
    for (kind, (took, refused), (usual, _)) in [
        ("available", (&page, page_refused), &before.0),
        ("availability", (&count, count_refused), &before.1),
    ] {
        let row = Row::new(format!("{what}: {kind} p99"), took.percentile(99.0), "ms").goal(Goal::AtMost(1_000.0));
        report.row(row.against("from the mirror", usual.percentile(99.0), None));
        report.note(format!(
            "{what}: {refused} of {kind} were refused with store_unavailable"
        ));
        report.keep(format!("{what}: {kind} ms"), &took.percentiles());
    }
    loops.shut_down(Duration::from_secs(2)).await;
    store.close().await;
    Ok(())
}

/// Reads concurrently. Returns the duration of each read, and the number of refused ones.
async fn read(roster: &Roster, readers: usize, page: bool) -> Result<(Samples, usize)> {
    let mut tasks = JoinSet::new();
    for _ in 0..readers {
        let roster = roster.clone();
        tasks.spawn(async move {
            let start = Instant::now();
            let answer = match page {
                true => roster.available(FIRST).await.map(drop),
                false => roster.availability().await.map(drop),
            };
            (ms(start.elapsed()), answer.is_ok())
        });
    }
    let (mut took, mut refused) = (Samples::default(), 0);
    while let Some(done) = tasks.join_next().await {
        let (time, answered) = done?;
        took.push(time);
        refused += usize::from(!answered);
    }
    Ok((took, refused))
}

fn free_of(total: usize) -> usize {
    total - total.div_ceil(BUSY)
}

struct Fixture {
    valkey: ValkeyServer,
    /// The connection of the hand-written program.
    client: Mutex<resp::Client>,
    store: Arc<dyn Store>,
    ledger: Arc<dyn Ledger>,
    postgres: Postgres,
    ledger_url: String,
    sql: Client,
    roster: RosterName,
    group: Group,
    names: Vec<ProviderId>,
    tenures: Vec<TenureId>,
}

impl Fixture {
    async fn build() -> Result<Self> {
        let valkey = ValkeyServer::start()?;
        let postgres = Postgres::start().context("postgres is not installed")?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let ledger_url = postgres.database();
        let ledger = ledger::open(&ledger_url, clock).await?;
        let roster = RosterName::new("bench")?;
        ledger.rosters().await?;
        let (sql, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await?;
        tokio::spawn(connection);
        sql.batch_execute(include_str!("roster/tables.sql")).await?;
        Ok(Self {
            store: subject::open_patient(&valkey.url()).await?,
            client: Mutex::new(valkey.client()?),
            valkey,
            ledger,
            postgres,
            ledger_url,
            sql,
            group: group_of(&roster)?,
            roster,
            names: Vec::new(),
            tenures: Vec::new(),
        })
    }

    fn mirror(&self) -> Result<&dyn RosterMirror> {
        self.store.mirror().context("the store mirrors rosters")
    }

    /// Adds providers everywhere: in the mirror, in the ledger, as keys by hand and as rows of an application.
    async fn grow(&mut self, total: usize) -> Result<()> {
        let numbers: Vec<usize> = (self.names.len()..total).collect();
        for some in numbers.chunks(PART) {
            let names: Result<Vec<ProviderId>> = some.iter().map(|n| Ok(ProviderId::new(name(*n))?)).collect();
            let names = names?;
            let mirror = self.mirror()?;
            let seated = mirror
                .ensure_tenures(&self.group, &names, subject::HOUR, true, Call::default())
                .await?;
            let rows = names.iter().zip(&seated).zip(some);
            let puts: Vec<Put> = rows
                .map(|((provider, seat), n)| Put::newer(MirrorEntry::Row(row(*n, provider, &seat.tenure))))
                .collect();
            mirror.put_providers(&self.group, &puts, Call::default()).await?;
            self.tenures.extend(seated.into_iter().map(|seat| seat.tenure));
            self.names.extend(names);
        }
        self.by_hand_too(&numbers)?;
        for some in numbers.chunks(PART) {
            let names: Vec<String> = some.iter().map(|n| name(*n)).collect();
            let busy: Vec<String> = some.iter().filter(|n| is_busy(**n)).map(|n| name(*n)).collect();
            self.sql
                .execute(
                    "INSERT INTO drivers SELECT unnest($1::text[]), true, 1, now()",
                    &[&names],
                )
                .await?;
            self.sql
                .execute("INSERT INTO rides (driver) SELECT unnest($1::text[])", &[&busy])
                .await?;
        }
        self.sql.batch_execute("ANALYZE drivers; ANALYZE rides").await?;
        self.in_the_ledger(&numbers).await
    }

    fn by_hand_too(&self, numbers: &[usize]) -> Result<()> {
        let mut client = self.valkey.client()?;
        for some in numbers.chunks(PART) {
            let mut commands = Vec::new();
            for n in some {
                let name = name(*n);
                commands.push(vec!["SADD".to_owned(), "online".to_owned(), name.clone()]);
                let heard = format!("heartbeat:{name}");
                commands.push(vec![
                    "SET".to_owned(),
                    heard,
                    "1".to_owned(),
                    "EX".to_owned(),
                    "3600".to_owned(),
                ]);
                if is_busy(*n) {
                    commands.push(vec!["SADD".to_owned(), "busy".to_owned(), name]);
                }
            }
            ValkeyServer::pipeline(&mut client, &commands)?;
        }
        Ok(())
    }

    /// Writes the ledger's rows by plain SQL; its triggers do the rest.
    async fn in_the_ledger(&self, numbers: &[usize]) -> Result<()> {
        if let Some(first) = numbers.first() {
            // The first by a call, which creates the schema and the roster.
            let provider = ProviderId::new(name(*first))?;
            self.ledger
                .put_provider(&self.roster, &provider, &ProviderSpec::default())
                .await?;
        }
        let (ledger, connection) = tokio_postgres::connect(&self.ledger_url, NoTls).await?;
        tokio::spawn(connection);
        let roster = self.roster.as_str();
        for some in numbers.chunks(PART) {
            let names: Vec<String> = some.iter().map(|n| name(*n)).collect();
            let tenures: Vec<String> = some.iter().map(|n| self.tenures[*n].to_string()).collect();
            let busy: Vec<String> = some.iter().filter(|n| is_busy(**n)).map(|n| name(*n)).collect();
            ledger
                .execute(include_str!("roster/online.sql"), &[&roster, &names, &tenures])
                .await?;
            ledger
                .execute(include_str!("roster/busy.sql"), &[&roster, &busy])
                .await?;
        }
        Ok(())
    }

    /// By hand: the providers that are online and not occupied, and a read of each heartbeat.
    fn by_hand(&self) -> Result<usize> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let free = client.call(&["SDIFF", "online", "busy"])?.texts();
        for name in &free {
            client.send(&["GET", &format!("heartbeat:{name}")])?;
        }
        let mut found = 0;
        for _ in &free {
            found += usize::from(client.receive()?.text() == "1");
        }
        Ok(found)
    }

    /// The database alone: drivers below their limit of rides, least busy first.
    async fn join(&self) -> Result<usize> {
        let rows = self.sql.query(include_str!("roster/available.sql"), &[]).await?;
        Ok(rows.len())
    }

    /// The transactions of the ledger's database so far, read in another database.
    fn transactions(&self) -> Result<f64> {
        let asked = self
            .postgres
            .sql("SELECT sum(xact_commit) FROM pg_stat_database WHERE datname LIKE 'test_%'")?;
        asked.trim().parse().context("a number of transactions")
    }
}

fn is_busy(number: usize) -> bool {
    number.is_multiple_of(BUSY)
}

fn name(number: usize) -> String {
    format!("provider-{number:07}")
}

fn row(number: usize, provider: &ProviderId, tenure: &TenureId) -> Provider {
    Provider {
        provider: provider.clone(),
        display_name: Some(format!("Provider {number}")),
        active: true,
        online: Some(tenure.clone()),
        capacity: 1,
        occupancy: u32::from(is_busy(number)),
        last_online_at: None,
        last_offline_at: None,
        last_heartbeat_at: None,
        revoked_before: None,
        version: Version(number as u64 + 1),
    }
}
