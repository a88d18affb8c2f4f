//! Sixty of a hundred members stop their heartbeats together: they read as dead immediately, and their holdings stay until
//! the brake releases.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_testkit::wait;

use crate::outage::fleet::{GROUP, REGISTRY};
use crate::outage::witness::{ALLOWANCE, Seen, between, claims, events, members, metric, tenures};
use crate::support::{Daemon, Lateness, SOON, said};

const MEMBERS: usize = 100;
const SILENCED: usize = 60;
/// How many keys each member holds.
const KEYS: usize = 3;
const TTL_MS: u64 = 2_000;
/// What the others may be silent for, however busy the machine is.
const LONG_MS: u64 = 20_000;
const HOLD: Duration = Duration::from_secs(4);

#[test]
fn mass_lapse_is_braked_and_released_within_the_bound() {
    let daemon = Daemon::start(&["--brake-hold", "4s"]);
    let joined = join_all(&daemon);
    let (silenced, living) = joined.split_at(SILENCED);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        daemon.beat(GROUP, silenced, TTL_MS);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                daemon.beat(GROUP, living, LONG_MS);
                thread::sleep(Duration::from_millis(TTL_MS / 8)); // tidy: waits on the next beat being due
            }
        });
        let _stop = Stop(&over);
        let lateness = Lateness::watch();
        is_braked(&daemon);
        nothing_is_removed(&daemon, silenced);
        is_released_in_time(&daemon, silenced, &lateness);
        let members = members(&daemon);
        let here: Vec<_> = members.into_values().map(|seen| (seen.tenure, seen.alive)).collect();
        let mut expected: Vec<_> = living.iter().map(|tenure| (tenure.clone(), true)).collect();
        expected.sort();
        assert_eq!(here, expected);
    });
}

/// Ends the thread also when an assertion fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Everyone joins and claims; the ttl is long until all are there.
fn join_all(daemon: &Daemon) -> Vec<String> {
    let path = |path: &str| format!("/v1/groups/{GROUP}/{path}");
    let send = |to: &str, body: Value| daemon.answered("POST", &path(to), &body.to_string());
    let join = |n| {
        let name = format!("m-{n:03}");
        let (status, joined) = send("members", json!({"member": name, "ttl_ms": LONG_MS}));
        assert_eq!(status, 201, "{joined}");
        let keys: Vec<_> = (0..KEYS).map(|key| format!("{name}-{key}")).collect();
        let claim = json!({"tenure": joined["tenure"], "keys": keys});
        let (status, answer) = send(&format!("registries/{REGISTRY}/claims"), claim);
        assert_eq!(status, 200, "{answer}");
        joined["tenure"].as_str().expect("a tenure").to_owned()
    };
    (0..MEMBERS).map(join).collect()
}

/// The group as the daemon's status shows it.
fn status(daemon: &Daemon) -> Value {
    let (_, status) = daemon.http("GET", "/v1/status", "");
    let groups = status["groups"].as_array().expect("groups");
    let group = groups.iter().find(|group| group["group"] == GROUP);
    group.unwrap_or_else(|| panic!("the group is not in {status}")).clone()
}

/// Status, metrics and log show the brake.
fn is_braked(daemon: &Daemon) {
    wait::until("the brake is engaged", SOON, || {
        metric(daemon, "tenure_brake_engaged", &[("group", GROUP)]) > 0.0
    });
    let braked = events(daemon, "sweep_braked");
    assert_eq!(braked.len(), 1, "{braked:?}");
    let count = |name: &str| braked[0]["counts"][name].as_u64().expect("a count");
    assert!(count("lapsed") > count("present"), "{braked:?}");
    wait::until("the status shows the brake", SOON, || {
        status(daemon)["brake"].is_object()
    });
    let shown = &status(daemon)["brake"];
    assert_eq!(
        (&shown["lapsed"], &shown["present"]),
        (&json!(60), &json!(40)),
        "{shown}"
    );
    said(&daemon.process, "braked: too many lapsed at once");
}

/// What the silenced held reads as dead and stays where it is for as long as the brake is engaged.
fn nothing_is_removed(daemon: &Daemon, silenced: &[String]) {
    let mut looks = 0;
    wait::until("the brake lets go", HOLD + SOON, || {
        let claims = claims(daemon);
        if !events(daemon, "sweep_unbraked").is_empty() {
            return true;
        }
        assert_eq!(claims.len(), MEMBERS * KEYS);
        let dead = |seen: &&Seen| !seen.alive;
        assert!(claims.values().filter(dead).all(|seen| silenced.contains(&seen.tenure)));
        assert_eq!(claims.values().filter(dead).count(), SILENCED * KEYS);
        looks += 1;
        false
    });
    eprintln!("MEASURED brake: {looks} looks at all claims while it was engaged");
    assert!(looks > 0);
}

fn is_released_in_time(daemon: &Daemon, silenced: &[String], lateness: &Lateness) {
    wait::until("what the silenced held is gone", SOON, || {
        claims(daemon).len() == (MEMBERS - SILENCED) * KEYS
    });
    let (braked, unbraked) = (events(daemon, "sweep_braked"), events(daemon, "sweep_unbraked"));
    assert_eq!((braked.len(), unbraked.len()), (1, 1), "{braked:?} {unbraked:?}");
    assert_eq!(unbraked[0]["reason"], "time");
    let (held, late) = (between(&braked[0], &unbraked[0]), lateness.so_far());
    eprintln!("MEASURED brake: held for {held:?} (--brake-hold {HOLD:?})");
    assert!(
        held >= HOLD && held < HOLD + ALLOWANCE + late,
        "{held:?}, {late:?} late"
    );

    let (mut lapsed, mut expected) = (tenures(&events(daemon, "lapsed")), silenced.to_vec());
    lapsed.sort();
    expected.sort();
    assert_eq!(lapsed, expected);
    let evicted = events(daemon, "evicted");
    let id = |event: &Value| event["id"].as_u64().expect("an id");
    assert!(evicted.iter().all(|event| id(event) > id(&unbraked[0])), "{evicted:?}");
    let removed = || metric(daemon, "tenure_registry_evicted_total", &[("registry", REGISTRY)]);
    wait::until("all are counted", SOON, || removed() >= (SILENCED * KEYS) as f64);
    assert_eq!(removed(), (SILENCED * KEYS) as f64);
    wait::until("the metric shows it", SOON, || {
        metric(daemon, "tenure_brake_engaged", &[]) == 0.0
    });
}
