//! Processes with a roster, each with its own access to a hot store and a ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::loops::Loops;
use tenure::pulse::Pulser;
use tenure::roster::{Belief, HeartbeatOutcome, Online, Reservation, Source, SweepIntervals, Written};
use tenure::sweeper::{Sweeper, SweeperSettings};
use tenure::{
    EngagementId, OpenOptions, PageRequest, ProviderId, Roster, RosterName, Rosters, RostersSettings, Store,
    SystemClock, open_store,
};
use tenure_core::ledger::{Ledger, LogEntry, NewEngagement, Provider, ProviderSpec, SettingsPatch, Status};
use tenure_core::roster::group_of;
use tenure_core::store::MAX_PAGE;
use tenure_postgres::{PostgresLedger, PostgresOptions};
use tenure_testkit::wait::until_async;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// For events that come on their own, also on a busy machine.
pub(crate) const PATIENCE: Duration = secs(40);
/// The most connections of a process to a database.
pub(crate) const POOL: usize = 6;

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn name(name: &str) -> ProviderId {
    ProviderId::new(name).unwrap()
}

pub(crate) fn numbered(n: usize) -> ProviderId {
    name(&format!("p{n:03}"))
}

pub(crate) fn engagement(name: &str) -> EngagementId {
    EngagementId::new(name).unwrap()
}

pub(crate) fn active(id: &str, provider: &ProviderId) -> NewEngagement {
    NewEngagement {
        engagement: engagement(id),
        provider: Some(provider.clone()),
        status: Status::Active,
        expires_in: None,
        active_for: None,
    }
}

pub(crate) fn stale_after(stale_after: Duration) -> SettingsPatch {
    SettingsPatch {
        stale_after: Some(stale_after),
        ..SettingsPatch::default()
    }
}

/// Settings with which a busy machine does not look like an outage.
pub(crate) fn patient() -> RostersSettings {
    RostersSettings {
        mirror_timeout: secs(5),
        ledger_timeout: secs(5),
        ledger_concurrency: POOL / 2,
        ..RostersSettings::default()
    }
}

/// Settings without background work.
pub(crate) fn still() -> RostersSettings {
    let hour = secs(3_600);
    RostersSettings {
        look: hour,
        drain: hour,
        idle: hour,
        note: hour,
        sweeps: SweepIntervals {
            offline: hour,
            heartbeats: hour,
            reconcile: hour,
            expiry: hour,
        },
        ..patient()
    }
}

/// Opens a ledger with long time-outs.
pub(crate) async fn open_ledger(url: &str) -> Arc<dyn Ledger> {
    let clock = SystemClock::shared();
    if !url.starts_with("postgres:") {
        return tenure::ledger::open(url, clock).await.unwrap();
    }
    let mut options = PostgresOptions::new(url).unwrap();
    options.pool_size = POOL;
    options.call_timeout = secs(10);
    options.batch_timeout = secs(20);
    PostgresLedger::new(options, clock)
}

/// One process.
pub(crate) struct Process {
    pub(crate) name: RosterName,
    pub(crate) roster: Roster,
    pub(crate) rosters: Rosters,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ledger: Arc<dyn Ledger>,
    _sweeper: Sweeper,
    _loops: Loops,
}

impl Process {
    pub(crate) async fn start(roster: &str, store: &str, ledger: &str, settings: RostersSettings) -> Self {
        let clock = SystemClock::shared();
        let options = OpenOptions {
            request_timeout: Some(settings.mirror_timeout),
            ..OpenOptions::default()
        };
        let store = open_store(store, &options).await.unwrap();
        let ledger = open_ledger(ledger).await;
        let loops = Loops::new(Arc::clone(&clock), Handle::current());
        let pulser = Pulser::new(store, Arc::clone(&clock));
        pulser.start(&loops).unwrap();
        let (store, sweeps) = (pulser.watched(), SweeperSettings::default());
        let sweeper = Sweeper::start(Arc::clone(&store), Arc::clone(&clock), sweeps, &loops).unwrap();
        let rosters = Rosters::start(Arc::clone(&store), Arc::clone(&ledger), clock, settings, &loops).unwrap();
        rosters.follow(&sweeper);
        let name = RosterName::new(roster).unwrap();
        Self {
            roster: rosters.roster(&name).unwrap(),
            name,
            rosters,
            store,
            ledger,
            _sweeper: sweeper,
            _loops: loops,
        }
    }

    pub(crate) fn believes(&self) -> bool {
        let status = self.rosters.status();
        let mut here = status.rosters.iter().filter(|roster| roster.roster == self.name);
        here.any(|roster| roster.belief == Belief::Mirror)
    }

    pub(crate) async fn put(&self, who: &ProviderId, capacity: Option<u32>) -> Written<Provider> {
        let spec = ProviderSpec {
            display_name: None,
            capacity: capacity.into(),
        };
        self.roster.put_provider(who, &spec).await.unwrap()
    }

    pub(crate) async fn go_online(&self, who: &ProviderId) -> Written<Provider> {
        match self.roster.online(who).await.unwrap() {
            Online::Done(written) => written,
            Online::Deactivated(row) => panic!("{row:?} is deactivated"),
        }
    }

    /// Creates a provider and takes it online.
    pub(crate) async fn arrive(&self, who: &ProviderId, capacity: Option<u32>) {
        self.put(who, capacity).await;
        self.go_online(who).await;
    }

    pub(crate) async fn hear(&self, who: &ProviderId) -> HeartbeatOutcome {
        self.roster.heartbeat(who, None).await.unwrap()
    }

    pub(crate) async fn free(&self) -> (Vec<String>, Source) {
        let free = self.roster.available(MAX_PAGE).await.unwrap();
        let names = free.value.iter().map(|candidate| candidate.provider.to_string());
        (names.collect(), free.source)
    }

    pub(crate) async fn reserve(&self, id: &str) -> tenure::Result<Reservation> {
        let wanted = NewEngagement {
            status: Status::Active,
            ..NewEngagement::new(engagement(id))
        };
        self.roster.reserve(&wanted).await
    }

    /// The row in the ledger.
    pub(crate) async fn row(&self, who: &ProviderId) -> Provider {
        let row = self.ledger.provider(&self.name, who).await.unwrap();
        row.expect("the ledger has it")
    }

    pub(crate) async fn log(&self) -> Vec<LogEntry> {
        let (mut log, mut page) = (Vec::new(), all());
        loop {
            let part = self.roster.log(None, &page).await.unwrap();
            log.extend(part.items);
            page.after = part.next;
            if page.after.is_none() {
                return log;
            }
        }
    }

    /// The mirror's rows without heartbeats, for comparison with the ledger's.
    pub(crate) async fn mirrored(&self) -> tenure::Result<Vec<Provider>> {
        let (mut rows, mut page) = (Vec::new(), all());
        let (group, mirror) = (group_of(&self.name).unwrap(), self.store.mirror().unwrap());
        loop {
            let part = mirror.rows(&group, &page).await?;
            rows.extend(part.rows.into_iter().map(|seen| bare(seen.row)));
            page.after = part.next;
            if page.after.is_none() {
                rows.sort_by(|a, b| a.provider.cmp(&b.provider));
                rows.dedup();
                return Ok(rows);
            }
        }
    }

    /// The ledger's rows.
    pub(crate) async fn written(&self) -> tenure::Result<Vec<Provider>> {
        let (mut rows, mut page) = (Vec::new(), all());
        loop {
            let part = self.ledger.providers(&self.name, None, &page).await?;
            rows.extend(part.items.into_iter().map(bare));
            page.after = part.next;
            if page.after.is_none() {
                return Ok(rows);
            }
        }
    }

    pub(crate) async fn until_they_agree(&self) {
        until_async("the mirror has what the ledger has", PATIENCE, async || {
            let (mirrored, written) = (self.mirrored().await, self.written().await);
            matches!((mirrored, written), (Ok(mirrored), Ok(written)) if mirrored == written)
        })
        .await;
    }

    /// Waits until this time has passed on the ledger's clock.
    pub(crate) async fn pass(&self, time: Duration) {
        let end = self.ledger.now().await.unwrap() + time;
        until_async("time has passed", PATIENCE, async || {
            breathe().await;
            self.ledger.now().await.unwrap() >= end
        })
        .await;
    }
}

/// The pause between two polls of a condition.
pub(crate) async fn breathe() {
    SystemClock::shared().sleep(ms(20)).await;
}

pub(crate) async fn all_believe(processes: &[Process]) {
    until_async("every process believes the mirror", PATIENCE, async || {
        processes.iter().all(Process::believes)
    })
    .await;
}

fn all() -> PageRequest {
    PageRequest {
        after: None,
        limit: MAX_PAGE,
    }
}

fn bare(row: Provider) -> Provider {
    Provider {
        last_heartbeat_at: None,
        ..row
    }
}

/// Writes settings before any process starts.
pub(crate) async fn prepare(roster: &str, ledger: &str, patch: &SettingsPatch) {
    let ledger = open_ledger(ledger).await;
    let roster = RosterName::new(roster).unwrap();
    ledger.set_settings(&roster, patch).await.unwrap();
    ledger.close().await;
}

/// Heartbeats in the background, alternating between the processes.
pub(crate) struct Beats {
    names: Arc<Mutex<BTreeSet<ProviderId>>>,
    heard: Arc<Mutex<BTreeMap<String, u64>>>,
    task: JoinHandle<()>,
}

impl Beats {
    pub(crate) fn of(processes: &[Process], names: impl IntoIterator<Item = ProviderId>, every: Duration) -> Self {
        let names: Arc<Mutex<BTreeSet<_>>> = Arc::new(Mutex::new(names.into_iter().collect()));
        let heard: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
        let rosters: Vec<Roster> = processes.iter().map(|process| process.roster.clone()).collect();
        let (told, whose) = (Arc::clone(&heard), Arc::clone(&names));
        let task = tokio::spawn(async move {
            for round in 0.. {
                let mut beats = tokio::task::JoinSet::new();
                for (n, who) in whose.lock().unwrap().iter().cloned().enumerate() {
                    let roster = rosters[(n + round) % rosters.len()].clone();
                    beats.spawn(async move { roster.heartbeat(&who, None).await });
                }
                while let Some(heard) = beats.join_next().await {
                    *told.lock().unwrap().entry(describe(&heard.unwrap())).or_default() += 1;
                }
                SystemClock::shared().sleep(every).await;
            }
        });
        Self { names, heard, task }
    }

    pub(crate) fn stop(&self, who: &ProviderId) {
        self.names.lock().unwrap().remove(who);
    }

    pub(crate) fn add(&self, who: &ProviderId) {
        self.names.lock().unwrap().insert(who.clone());
    }

    /// The answers since the last call, with their counts.
    pub(crate) fn take(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut *self.heard.lock().unwrap())
    }
}

impl Drop for Beats {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn describe(heard: &tenure::Result<HeartbeatOutcome>) -> String {
    match heard {
        Ok(heard) => format!("{heard:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// A connection to a test's own database.
pub(crate) struct Sql(tokio_postgres::Client);

impl Sql {
    pub(crate) async fn connect(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        Self(client)
    }

    /// The rows of a result, with values separated by bars.
    pub(crate) async fn rows(&self, query: &str) -> Vec<String> {
        let answer = self.0.simple_query(query).await.unwrap();
        let rows = answer.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let line = |row: tokio_postgres::SimpleQueryRow| {
            let values: Vec<&str> = (0..row.len()).map(|n| row.get(n).unwrap_or_default()).collect();
            values.join("|")
        };
        rows.map(line).collect()
    }

    pub(crate) async fn number(&self, query: &str) -> u64 {
        self.rows(query).await.remove(0).parse().unwrap()
    }
}
