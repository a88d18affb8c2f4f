//! A pairing service. Customers ask repeatedly whether a provider is free and reserve one. Providers come online and
//! send heartbeats; some of them fail silently.
//!
//! ```text
//! tenure serve &
//! cargo run --example pairing -- --url http://127.0.0.1:7717 --providers 20 --customers 100 --for 20s
//! ```
//!
//! Half way, one provider in four falls silent. After `--stale` they are offline and receive no more customers. At the
//! end it prints what customers were answered, and whether one of them got a provider that had been silent for longer.

#![expect(clippy::print_stdout, reason = "the lines are what the example is for")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::http::{HttpSettings, RemoteRoster, RemoteRosters};
use tenure::roster::Reservation;
use tenure::{
    Clock, EngagementId, Error, ErrorKind, Mono, Move, NewEngagement, ProviderId, ProviderSpec, Result, RosterName,
    SettingsPatch, Status, SystemClock, parse_duration,
};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

const USAGE: &str = "usage: pairing --url http://HOST:PORT [--roster NAME] [--providers 20] [--customers 100] \
                     [--stale 3s] [--for 20s]";
/// Tolerance between the last heartbeat of a provider and the service learning of its silence: a heartbeat in flight,
/// and the age of the availability snapshot.
const SLACK: Duration = Duration::from_secs(1);
/// Attempts per request, and the pause between them.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

struct Options {
    url: String,
    roster: String,
    providers: usize,
    customers: usize,
    stale: Duration,
    lasts: Duration,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            url: String::new(),
            roster: "pairing".to_owned(),
            providers: 20,
            customers: 100,
            stale: Duration::from_secs(3),
            lasts: Duration::from_secs(20),
        };
        let number = |text: &str| {
            text.parse()
                .map_err(|_| Error::invalid(format!("{text:?} is no number")))
        };
        while let Some(flag) = args.next() {
            let value = args
                .next()
                .ok_or_else(|| Error::invalid(format!("{flag} needs a value")))?;
            match flag.as_str() {
                "--url" => options.url = value,
                "--roster" => options.roster = value,
                "--providers" => options.providers = number(&value)?,
                "--customers" => options.customers = number(&value)?,
                "--stale" => options.stale = parse_duration(&value)?,
                "--for" => options.lasts = parse_duration(&value)?,
                _ => return Err(Error::invalid(format!("there is no {flag}"))),
            }
        }
        if options.url.is_empty() {
            return Err(Error::invalid("--url is needed"));
        }
        Ok(options)
    }
}

/// State shared by all customers and providers.
struct World {
    roster: RemoteRoster,
    clock: SystemClock,
    stale: Duration,
    over: AtomicBool,
    silent: Mutex<BTreeMap<ProviderId, Mono>>,
    polls: AtomicU64,
    told_yes: AtomicU64,
    served: AtomicU64,
    refused: AtomicU64,
    from_ledger: AtomicU64,
    late: AtomicU64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => run(options).await,
        Err(error) => {
            println!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("{}", error.chain());
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<bool> {
    let rosters = RemoteRosters::new(
        &options.url,
        Arc::new(SystemClock::new()),
        Handle::current(),
        HttpSettings::default(),
    )?;
    let world = Arc::new(World {
        roster: rosters.roster(&RosterName::new(options.roster)?),
        clock: SystemClock::new(),
        stale: options.stale,
        over: AtomicBool::new(false),
        silent: Mutex::default(),
        polls: AtomicU64::new(0),
        told_yes: AtomicU64::new(0),
        served: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        from_ledger: AtomicU64::new(0),
        late: AtomicU64::new(0),
    });
    let settings = SettingsPatch {
        stale_after: Some(options.stale),
        snapshot: Some(Duration::from_secs(1)),
        ..SettingsPatch::default()
    };
    world.again(|| world.roster.set_settings(&settings)).await?;
    let providers: Result<Vec<ProviderId>> = (0..options.providers)
        .map(|n| ProviderId::new(format!("p{n:03}")))
        .collect();
    let providers = providers?;
    for provider in &providers {
        let spec = ProviderSpec::default();
        world.again(|| world.roster.put_provider(provider, &spec)).await?;
        world.again(|| world.roster.online(provider)).await?;
    }
    println!("{} providers are online", providers.len());

    let mut tasks = JoinSet::new();
    for provider in providers.clone() {
        tasks.spawn(Arc::clone(&world).provide(provider));
    }
    for customer in 0..options.customers {
        tasks.spawn(Arc::clone(&world).ask(customer));
    }
    world.clock.sleep(options.lasts / 2).await;
    let now = world.clock.mono();
    let silent: BTreeMap<ProviderId, Mono> = providers
        .into_iter()
        .step_by(4)
        .map(|provider| (provider, now))
        .collect();
    println!("{} providers fall silent", silent.len());
    *world.silent.lock().unwrap_or_else(PoisonError::into_inner) = silent;
    world.clock.sleep(options.lasts / 2).await;
    world.over.store(true, Ordering::Relaxed);
    while let Some(done) = tasks.join_next().await {
        done.map_err(|error| Error::invalid("a task ended badly").because(error))??;
    }
    world.tell().await
}

impl World {
    /// Retries a call; all calls here are safe to repeat.
    async fn again<T, A: Future<Output = Result<T>>>(&self, ask: impl Fn() -> A) -> Result<T> {
        for _ in 0..TRIES {
            match ask().await {
                Err(error) if error.kind() == ErrorKind::Unavailable => self.clock.sleep(PAUSE).await,
                done => return done,
            }
        }
        ask().await
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn silent_since(&self, provider: &ProviderId) -> Option<Mono> {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.get(provider).copied()
    }

    /// A provider: sends heartbeats until it falls silent.
    async fn provide(self: Arc<Self>, provider: ProviderId) -> Result<()> {
        while !self.is_over() && self.silent_since(&provider).is_none() {
            self.again(|| self.roster.heartbeat(&provider)).await?;
            self.clock.sleep(self.stale / 4).await;
        }
        Ok(())
    }

    /// A customer: asks whether a provider is free, reserves one, is served for a while, and repeats.
    async fn ask(self: Arc<Self>, customer: usize) -> Result<()> {
        for visit in 0u64.. {
            if self.is_over() {
                break;
            }
            self.polls.fetch_add(1, Ordering::Relaxed);
            let available = self.again(|| self.roster.availability()).await?;
            if available.source.as_str() == "ledger" {
                self.from_ledger.fetch_add(1, Ordering::Relaxed);
            }
            if available.value.is_any() {
                self.told_yes.fetch_add(1, Ordering::Relaxed);
                let chance = self.clock.entropy();
                let name = EngagementId::new(format!("c{customer}-{visit}-{chance:016x}"))?;
                self.be_served(name).await?;
            }
            self.clock
                .sleep(Duration::from_millis(200 + self.clock.entropy() % 200))
                .await;
        }
        Ok(())
    }

    async fn be_served(&self, name: EngagementId) -> Result<()> {
        let asked_at = self.clock.mono();
        let wanted = NewEngagement {
            status: Status::Active,
            expires_in: Some(Duration::from_secs(60)),
            ..NewEngagement::new(name.clone())
        };
        let Reservation::Reserved(written) = self.again(|| self.roster.reserve(&wanted)).await? else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        self.served.fetch_add(1, Ordering::Relaxed);
        let provider = written.value.engagement.provider;
        let silent_since = provider.as_ref().and_then(|provider| self.silent_since(provider));
        if silent_since.is_some_and(|since| asked_at.since(since) > self.stale + SLACK) {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        self.clock.sleep(Duration::from_millis(50)).await;
        let over = Move {
            status: Some(Status::Ended),
            ..Move::default()
        };
        self.again(|| self.roster.move_engagement(&name, &over)).await?;
        Ok(())
    }

    /// Prints the result. Returns whether all checks passed.
    async fn tell(&self) -> Result<bool> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        println!(
            "customers asked {} times ({} answers from the ledger), were told yes {} times, served {} times, and came too \
             late for a place {} times",
            count(&self.polls),
            count(&self.from_ledger),
            count(&self.told_yes),
            count(&self.served),
            count(&self.refused)
        );
        let stats = self.again(|| self.roster.stats()).await?.value;
        println!(
            "{} providers are online, {} available, {} offline",
            stats.online, stats.available, stats.offline
        );
        let late = count(&self.late);
        println!(
            "{late} customers were sent to a provider that had been silent for longer than {:?}",
            self.stale
        );
        Ok(late == 0 && count(&self.served) > 0)
    }
}
