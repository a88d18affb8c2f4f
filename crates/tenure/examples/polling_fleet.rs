//! A fleet that polls HTTP endpoints, each from exactly one process. Start it three times, kill one process, drain one
//! with SIGTERM, add one, and watch which process polls which endpoint:
//!
//! ```text
//! valkey-server --port 6379 &
//! python3 -m http.server 8000 &
//! for n in 1 2 3; do
//!     cargo run --example polling_fleet -- --store valkey://127.0.0.1:6379 --node node-$n \
//!         --url 'http://127.0.0.1:8000/?endpoint={}' --targets 30 --every 1s --ttl 3s --max-ttl 6s > node-$n.log &
//! done
//! ```
//!
//! With `--sessions chat` it polls for the live sessions of the group `chat` instead of a list.
//!
//! Each poll prints one line: the node, the endpoint, the fencing token and the result. The token is sent in the header
//! `Fencing-Token`, so that an endpoint that remembers the highest token can reject an older one.
//!
//! A new Valkey cannot be distinguished from one that lost its data, so it grants no lease for its first two minutes
//! (the longest ttl that a holder may have had). With `--max-ttl 6s` on all processes that is six seconds.
//!
//! The first SIGTERM or Ctrl-C drains: no new polls start, those in flight end, the leases are handed to other
//! processes, and this one leaves. The second ends it immediately.

#![expect(clippy::print_stdout, reason = "the lines are what the example is for")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tenure::fleet::{Assignment, Fleet, FleetSettings, LiveSessions, TargetList};
use tenure::{
    ClientSettings, Clock, Error, JoinOptions, Membership, OpenOptions, Result, SystemClock, Tenure, parse_duration,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

const USAGE: &str = "usage: polling_fleet --store URL --url URL_WITH_{} [--group pollers] [--node NAME] [--targets 30] \
                     [--sessions GROUP] [--every 1s] [--ttl 30s] [--max-ttl 2m] [--weight 1]";

/// How long to wait for an unavailable store at the start.
const STORE_WAIT: Duration = Duration::from_secs(60);

/// The command line options.
struct Options {
    store: String,
    url: String,
    group: String,
    node: Option<String>,
    targets: usize,
    sessions: Option<String>,
    every: Duration,
    ttl: Duration,
    max_ttl: Duration,
    weight: String,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            store: String::new(),
            url: String::new(),
            group: "pollers".to_owned(),
            node: None,
            targets: 30,
            sessions: None,
            every: Duration::from_secs(1),
            ttl: Duration::from_secs(30),
            max_ttl: Duration::from_secs(120),
            weight: "1".to_owned(),
        };
        while let Some(flag) = args.next() {
            let value = args
                .next()
                .ok_or_else(|| Error::invalid(format!("{flag} needs a value")))?;
            match flag.as_str() {
                "--store" => options.store = value,
                "--url" => options.url = value,
                "--group" => options.group = value,
                "--node" => options.node = Some(value),
                "--targets" => options.targets = value.parse().map_err(|_| Error::invalid("--targets is a number"))?,
                "--sessions" => options.sessions = Some(value),
                "--every" => options.every = parse_duration(&value)?,
                "--ttl" => options.ttl = parse_duration(&value)?,
                "--max-ttl" => options.max_ttl = parse_duration(&value)?,
                "--weight" => options.weight = value,
                _ => return Err(Error::invalid(format!("there is no {flag}"))),
            }
        }
        if options.store.is_empty() || !options.url.contains("{}") {
            return Err(Error::invalid(
                "--store and --url are needed, and the url with {} in it",
            ));
        }
        Ok(options)
    }
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
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{}", error.chain());
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<()> {
    let mut open = OpenOptions::default();
    open.store.max_ttl = options.max_ttl;
    let tenure = Tenure::connect_with(&options.store, open, ClientSettings::default()).await?;
    let membership = join(&tenure, &options).await?;
    let names = (1..=options.targets).map(|n| format!("endpoint-{n:05}"));
    let poller = Arc::new(Poller {
        node: membership.member().to_string(),
        url: options.url,
        every: options.every,
        client: plain_http()?,
        clock: SystemClock::new(),
    });
    let fleet = Fleet::builder(&membership);
    let fleet = match &options.sessions {
        Some(group) => fleet.targets(LiveSessions::of(&tenure.group(group)?)),
        None => fleet.targets(TargetList::new(names)?),
    };
    let fleet = fleet
        .settings(FleetSettings::default())
        .start(move |target| Arc::clone(&poller).work(target))?;

    let refused = |error| Error::invalid("the system refuses to tell of signals").because(error);
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    let mut told = async || either(&mut terminate, &mut interrupt).await;
    told().await;
    println!("{} drains", membership.member());
    tokio::select! {
        ended = fleet.shut_down() => {
            if ended.stubborn.is_empty() {
                membership.leave().await?;
                println!("{} left", membership.member());
            }
            // Remaining work keeps its lease until this process ends; the tenure then lapses.
            std::mem::forget(membership);
        }
        () = told() => std::mem::forget(membership),
    }
    Ok(())
}

/// The endpoints in this example use plain HTTP.
fn plain_http() -> Result<reqwest::Client> {
    let unusable = |error| Error::invalid("no HTTP client can be made").because(error);
    let tls = tenure_tls::without_roots().map_err(|error| Error::invalid(error.to_string()))?;
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .build()
        .map_err(unusable)
}

async fn join(tenure: &Tenure, options: &Options) -> Result<Membership> {
    let named = match &options.node {
        Some(name) => JoinOptions::named(name)?,
        None => JoinOptions::default(),
    };
    let labels = [(tenure::nodes::WEIGHT_LABEL.to_owned(), options.weight.clone())];
    let join = JoinOptions {
        ttl: options.ttl,
        labels: tenure::Labels::new(labels.into())?,
        ..named
    };
    // Waits for a store that starts after this program, or restarts.
    tenure.group(&options.group)?.join_within(join, STORE_WAIT).await
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}

/// State shared by all tasks of this process.
struct Poller {
    node: String,
    url: String,
    every: Duration,
    client: reqwest::Client,
    clock: SystemClock,
}

impl Poller {
    async fn work(self: Arc<Self>, target: Assignment) {
        let (name, token) = (target.target().clone(), target.token());
        let url = self.url.replace("{}", name.as_str());
        println!("{} {name} token={token} is ours", self.node);
        while target.next_cycle().await {
            let begun = self.clock.mono();
            let request = self.client.get(&url).header("Fencing-Token", token.to_string());
            let answer = request.timeout(self.every.max(Duration::from_secs(1))).send().await;
            let took = self.clock.mono().since(begun).as_millis();
            let at = self.clock.wall_micros();
            match answer {
                Ok(answer) => println!(
                    "{} {name} token={token} at={at} status={} {took}ms",
                    self.node,
                    answer.status().as_u16()
                ),
                Err(error) => println!("{} {name} token={token} at={at} failed: {error}", self.node),
            }
            target.rest(self.every).await;
        }
        println!("{} {name} token={token} is given back", self.node);
    }
}
