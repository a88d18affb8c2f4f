//! Three daemons sweep one store, and a gateway that holds thousands of devices is killed.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use tenure_core::registry::{ClaimMode, ClaimOutcome};
use tenure_testkit::server::Signal;
use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::wait;

use crate::outage::fleet::{Fleet, GROUP, REGISTRY, TTL, Wrapped};
use crate::outage::on_each_server;
use crate::outage::witness::{ALLOWANCE, claims, events, metric};
use crate::support::{Daemon, Lateness, SOON};

on_each_server!(concurrent_sweepers_evict_and_count_once);

/// Keys of dead members that no member claims again.
const LEFT_BEHIND: usize = 3_000;
/// Keys of the dead that come back elsewhere, before, during and after the pass.
const COMING_BACK: usize = 3_000;
/// How many come back at a time.
const CHUNK: usize = 25;
/// The promise: gone within ttl + 1 s.
const PROMISED: Duration = Duration::from_secs(1);

/// How the keys that came back were found: still the dead one's, or free already.
#[derive(Debug, Default)]
struct Returned {
    keys: usize,
    moved: usize,
    fresh: usize,
    /// The possible owners after a claim whose answer was lost.
    unclear: usize,
    /// Chunks of which the pass had taken some and not all.
    straddling: usize,
}

impl Returned {
    fn count(&mut self, outcomes: &[ClaimOutcome], answer_was_lost: bool) {
        let moved = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, ClaimOutcome::Moved { .. }))
            .count();
        let fresh = outcomes.iter().filter(|outcome| **outcome == ClaimOutcome::New).count();
        let unclear = outcomes.len() - moved - fresh;
        assert!(unclear == 0 || answer_was_lost, "{outcomes:?}");
        self.keys += outcomes.len();
        self.moved += moved;
        self.fresh += fresh;
        self.unclear += unclear;
        self.straddling += usize::from(moved > 0 && fresh > 0);
    }
}

fn concurrent_sweepers_evict_and_count_once(flavour: Flavour) {
    let Some(server) = Server::start(flavour) else { return };
    let daemons: Vec<_> = (0..3).map(|_| Daemon::start(&["--store", &server.url()])).collect();
    let fleet = Fleet::behind(&daemons[0].url(), 1);
    let heir = &fleet.gateways[0];
    let doomed = Wrapped::start(&daemons[1].url(), "doomed");
    let (left_behind, coming_back) = (keys("left", LEFT_BEHIND), keys("back", COMING_BACK));
    for keys in [&left_behind, &coming_back]
        .into_iter()
        .flat_map(|keys| keys.chunks(500))
    {
        let (status, answer) = daemons[1].claim(GROUP, REGISTRY, &doomed.tenure(), keys);
        assert_eq!(status, 200, "{answer}");
    }

    doomed.process.signal(Signal::KILL).expect("it runs");
    let (killed_at, lateness) = (Instant::now(), Lateness::watch());
    let mut chunks = coming_back.chunks(CHUNK);
    let mut returned = Returned::default();
    let mut take_back = || {
        if let Some(chunk) = chunks.next() {
            let (mut tries, mut outcomes) = (0, Vec::new());
            wait::until("the daemon answers", SOON, || {
                tries += 1;
                let answer = fleet.run(heir.registry.claim_many(chunk, ClaimMode::Take));
                answer.map(|answer| outcomes = answer).is_ok()
            });
            returned.count(&outcomes, tries > 1);
        }
    };
    // Before anyone knows, then from its death on until nothing is left of it, and once more.
    take_back();
    let probe = format!("/v1/groups/{GROUP}/registries/{REGISTRY}/claims/{}", left_behind[0]);
    let reads_dead = || {
        let (status, claim) = daemons[2].http("GET", &probe, "");
        status == 404 || claim["alive"] == false
    };
    wait::until("its claims read as dead", SOON, reads_dead);
    let dead_at = killed_at.elapsed();
    let rest = format!("/v1/groups/{GROUP}/registries/{REGISTRY}/claims?owner=doomed&limit=1");
    wait::until("its claims are gone", SOON, || {
        take_back();
        let (status, page) = daemons[2].http("GET", &rest, "");
        status == 200 && page["claims"].as_array().is_some_and(Vec::is_empty) && page["next"].is_null()
    });
    let gone_at = killed_at.elapsed();
    take_back();

    eprintln!(
        "MEASURED {flavour:?}: {} claims of a killed owner: dead after {dead_at:?}, gone after {gone_at:?} (ttl {TTL:?}); {returned:?}",
        LEFT_BEHIND + COMING_BACK
    );
    // A stall of the machine adds its length; if the store noticed it, also another ttl.
    let slack = ALLOWANCE + lateness.so_far() + TTL * daemons[2].silences(GROUP);
    assert!(dead_at < TTL + slack, "{dead_at:?}");
    assert!(gone_at < TTL + PROMISED + slack, "{gone_at:?}");

    everything_that_came_back_is_there(&daemons[0], &fleet, &coming_back[..returned.keys]);
    let most = LEFT_BEHIND + COMING_BACK - returned.moved;
    each_was_counted_once(&daemons, &doomed, most - returned.unclear..=most);
}

/// And nothing else but what was never the dead one's.
fn everything_that_came_back_is_there(daemon: &Daemon, fleet: &Fleet, returned: &[String]) {
    let claims = claims(daemon);
    let tenure = fleet.gateways[0].tenure();
    for key in returned {
        let seen = claims.get(key).unwrap_or_else(|| panic!("{key} is gone"));
        assert!(seen.alive && seen.tenure == tenure, "{key}: {seen:?}");
    }
    assert_eq!(claims.len(), fleet.keys() + returned.len());
    assert_eq!(fleet.rejoins(), [0]);
}

/// Each entry was removed by one of the daemons, counted by that one, and told in one event.
fn each_was_counted_once(daemons: &[Daemon], dead: &Wrapped, removed: RangeInclusive<usize>) {
    let counts = || daemons.iter().map(evicted).collect::<Vec<_>>();
    let told = told(&daemons[0], dead);
    assert!(removed.contains(&told), "{told} of {removed:?}");
    wait::until("all are counted", SOON, || counts().iter().sum::<f64>() >= told as f64);
    eprintln!("MEASURED removed by each of the daemons: {:?}", counts());
    assert_eq!(counts().iter().sum::<f64>(), told as f64, "{:?}", counts());
}

/// How many entries of the dead were removed, by the events.
fn told(daemon: &Daemon, dead: &Wrapped) -> usize {
    let told: u64 = events(daemon, "evicted")
        .iter()
        .inspect(|event| {
            assert_eq!(
                (&event["tenure"], &event["reason"]),
                (&dead.tenure().into(), &"lapsed".into())
            )
        })
        .map(|event| event["counts"][REGISTRY].as_u64().expect("a count"))
        .sum();
    usize::try_from(told).expect("thousands")
}

fn keys(kind: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{kind}-{n}")).collect()
}

fn evicted(daemon: &Daemon) -> f64 {
    let labels = [("group", GROUP), ("registry", REGISTRY), ("owner", "doomed")];
    metric(daemon, "tenure_registry_evicted_total", &labels)
}
