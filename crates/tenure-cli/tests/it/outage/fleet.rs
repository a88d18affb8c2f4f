//! A fleet of gateways that lives through an outage: members of the library on the store itself and through a daemon,
//! each holding keys, and wrapped processes on both.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use tenure::Tenure;
use tenure::membership::{JoinOptions, Membership, Phase};
use tenure::registry::Registry;
use tenure_core::registry::ClaimMode;
use tenure_core::verdict::Verdict;
use tenure_testkit::{Process, wait};
use tokio::runtime::{Builder, Runtime};

use crate::outage::witness::{self, ALLOWANCE};
use crate::support::{Daemon, Lateness, SOON, said, spawn};

pub(crate) const GROUP: &str = "ingest";
pub(crate) const REGISTRY: &str = "devices";
/// Long enough that no tenure lapses on two busy cores.
pub(crate) const TTL: Duration = Duration::from_secs(6);
/// A beat: what is promised as the time of a recovery.
pub(crate) const BEAT: Duration = Duration::from_secs(2);
/// A connection that was away for long is tried again after this long at the latest, and a member behind a daemon waits
/// for the daemon's first.
const RECONNECT: Duration = Duration::from_secs(1);
/// How many keys each gateway holds.
const KEYS: usize = 100;

/// A member of the library, with a client, a thread and (on the store itself) a janitor of its own.
pub(crate) struct Gateway {
    pub(crate) membership: Membership,
    pub(crate) registry: Registry,
    keys: RefCell<Vec<String>>,
    _client: Tenure,
}

impl Gateway {
    pub(crate) async fn join(store: &str, name: &str) -> Self {
        let client = Tenure::connect(store).await.expect("the store can be opened");
        let mut options = JoinOptions::named(name).expect("a name");
        options.ttl = TTL;
        let group = client.group(GROUP).expect("a name");
        let membership = group.join(options).await.expect("the store answers");
        let registry = membership.registry(REGISTRY).expect("a name");
        Self {
            membership,
            registry,
            keys: RefCell::default(),
            _client: client,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.membership.member().as_str()
    }

    pub(crate) fn tenure(&self) -> String {
        self.membership.tenure().to_string()
    }

    /// Claims as many more keys.
    pub(crate) async fn claim(&self, count: usize) {
        let first = self.keys.borrow().len();
        let keys: Vec<_> = (first..first + count).map(|n| format!("{}-{n}", self.name())).collect();
        // A stall of the machine can lose an answer; claiming again is harmless.
        wait::until_async("the store answers", SOON, async || {
            self.registry.claim_many(&keys, ClaimMode::Take).await.is_ok()
        })
        .await;
        self.keys.borrow_mut().extend(keys);
    }

    /// What it is not (yet): at work under its tenure.
    fn trouble(&self) -> Option<String> {
        let status = self.membership.status();
        let well = status.verdict == Verdict::Held && status.phase == Phase::Beating;
        (!well).then(|| format!("{status:?}"))
    }
}

/// `tenure join` around a process that does nothing.
pub(crate) struct Wrapped {
    pub(crate) name: String,
    pub(crate) process: Process,
}

impl Wrapped {
    pub(crate) fn start(store: &str, name: &str) -> Self {
        let process = spawn("tenure join", |command, _| {
            let script = "echo \"tenure $TENURE_ID\"; exec sleep 1000";
            command.args(["join", "--group", GROUP, "--member", name, "--ttl", "6s"]);
            command.args(["--", "sh", "-c", script]).env("TENURE_STORE", store);
        });
        said(&process, "tenure ");
        Self {
            name: name.to_owned(),
            process,
        }
    }

    /// The tenure it began with.
    pub(crate) fn tenure(&self) -> String {
        let log = self.process.log();
        let first = log.lines().find_map(|line| line.strip_prefix("tenure "));
        first.expect("it said so").to_owned()
    }
}

pub(crate) struct Fleet {
    runtime: Runtime,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) wrapped: Vec<Wrapped>,
    /// The tenures that they began with.
    first: Vec<String>,
}

impl Fleet {
    /// Two gateways and a wrapped process on the store at `direct`, and as many through the daemon.
    pub(crate) fn gather(direct: &str, daemon: &Daemon) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut fleet = Self {
            runtime,
            gateways: Vec::new(),
            wrapped: Vec::new(),
            first: Vec::new(),
        };
        for (store, way) in [(direct, "direct"), (&*daemon.url(), "http")] {
            for n in 1..=2 {
                fleet.add_gateway(store, &format!("{way}-{n}"));
            }
            fleet.wrap(store, &format!("{way}-wrapped"));
        }
        fleet.recover(daemon, "the fleet is complete", SOON);
        fleet
    }

    /// Only gateways, only through this address.
    pub(crate) fn behind(url: &str, gateways: usize) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut fleet = Self {
            runtime,
            gateways: Vec::new(),
            wrapped: Vec::new(),
            first: Vec::new(),
        };
        for n in 1..=gateways {
            fleet.add_gateway(url, &format!("gw-{n}"));
        }
        fleet
    }

    pub(crate) fn add_gateway(&mut self, store: &str, name: &str) {
        let gateway = self.runtime.block_on(async {
            let gateway = Gateway::join(store, name).await;
            gateway.claim(KEYS).await;
            gateway
        });
        self.first.push(gateway.tenure());
        self.gateways.push(gateway);
    }

    pub(crate) fn wrap(&mut self, store: &str, name: &str) {
        let wrapped = Wrapped::start(store, name);
        self.first.push(wrapped.tenure());
        self.wrapped.push(wrapped);
    }

    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// The tenure of every gateway.
    pub(crate) fn tenures(&self) -> Vec<String> {
        self.gateways.iter().map(Gateway::tenure).collect()
    }

    /// Tenures that no process used. A join whose answer is lost in a stall is repeated, and then supersedes the first one.
    pub(crate) fn ghosts(&self, daemon: &Daemon) -> Vec<String> {
        let mut ghosts = witness::tenures(&witness::events(daemon, "superseded"));
        ghosts.retain(|tenure| !self.first.contains(tenure) && !self.tenures().contains(tenure));
        ghosts
    }

    /// Whose lives have ended in these ways.
    pub(crate) fn ended(&self, daemon: &Daemon, types: &str) -> Vec<String> {
        let ghosts = self.ghosts(daemon);
        let mut ended = witness::tenures(&witness::events(daemon, types));
        ended.retain(|tenure| !ghosts.contains(tenure));
        ended
    }

    /// How often each gateway joined again.
    pub(crate) fn rejoins(&self) -> Vec<u64> {
        let rejoins = |gateway: &Gateway| gateway.membership.status().rejoins;
        self.gateways.iter().map(rejoins).collect()
    }

    pub(crate) fn keys(&self) -> usize {
        self.gateways.iter().map(|gateway| gateway.keys.borrow().len()).sum()
    }

    /// Waits until every member is well and every key is where it belongs; answers how long that took.
    #[track_caller]
    pub(crate) fn recover(&self, daemon: &Daemon, what: &str, within: Duration) -> Duration {
        let began = Instant::now();
        let mut last = None;
        wait::until(what, within, || {
            let trouble = self.trouble(daemon);
            if trouble != last {
                eprintln!("{:?}: {}", began.elapsed(), trouble.as_deref().unwrap_or("all is well"));
                last.clone_from(&trouble);
            }
            trouble.is_none()
        });
        began.elapsed()
    }

    /// Waits for the recovery after an outage, and holds it to about one beat.
    #[track_caller]
    pub(crate) fn recover_in_a_beat(&self, daemon: &Daemon, outage: &str) {
        let lateness = Lateness::watch();
        let took = self.recover(daemon, "the fleet has recovered", SOON);
        eprintln!(
            "MEASURED {outage}: {} keys and all members back after {took:?} (a beat is {BEAT:?})",
            self.keys()
        );
        let bound = BEAT + RECONNECT + ALLOWANCE + lateness.so_far();
        assert!(took < bound, "{took:?} is not within {bound:?}");
    }

    /// What is not as it should be, in a sentence.
    fn trouble(&self, daemon: &Daemon) -> Option<String> {
        if let Some(trouble) = self.gateways.iter().find_map(Gateway::trouble) {
            return Some(trouble);
        }
        let (members, claims) = match (witness::try_members(daemon), witness::try_claims(daemon)) {
            (Ok(members), Ok(claims)) => (members, claims),
            (Err(error), _) | (_, Err(error)) => return Some(error),
        };
        for name in self.wrapped.iter().map(|wrapped| &wrapped.name) {
            if !members.get(name).is_some_and(|seen| seen.alive) {
                return Some(format!("{name} is not alive"));
            }
        }
        for gateway in &self.gateways {
            let tenure = gateway.tenure();
            let is_its = |seen: Option<&witness::Seen>| seen.is_some_and(|seen| seen.alive && seen.tenure == tenure);
            if !is_its(members.get(gateway.name())) {
                return Some(format!("{} is not alive under {tenure}", gateway.name()));
            }
            let keys = gateway.keys.borrow();
            let missing = keys.iter().filter(|key| !is_its(claims.get(*key))).count();
            if missing > 0 {
                return Some(format!("{missing} keys of {tenure} are not its own"));
            }
        }
        None
    }

    /// Waits until every gateway has noticed that the store does not answer.
    #[track_caller]
    pub(crate) fn notice_the_outage(&self) {
        wait::until("everyone has noticed the outage", SOON, || {
            let failing = |gateway: &Gateway| gateway.membership.status().failed_in_a_row > 0;
            self.gateways.iter().all(failing)
        });
    }

    /// Waits until no member acts as an owner.
    #[track_caller]
    pub(crate) fn pause_by_themselves(&self) {
        wait::until("nobody believes to hold anything", SOON, || {
            let verdict = |gateway: &Gateway| gateway.membership.verdict();
            self.gateways
                .iter()
                .map(verdict)
                .all(|verdict| verdict == Verdict::Lost)
        });
    }
}
