//! `--catalog tenure`: the service is a claim in the registry `services`, under the tenure of its supervisor.

use tenure_testkit::{Process, wait};

use crate::run::PATIENCE;
use crate::run::beats::{Beats, dies};
use crate::run::mount::Mount;
use crate::run::node::{is, looking_at, node};
use crate::support::Daemon;

/// All that there is to know about the service.
const KEY: &str = "music:m:10.1.2.3:4533";

fn claiming(who: &str, leader: &[&str], daemon: &Daemon, beats: &Beats) -> Process {
    let service = [
        "--service",
        "music",
        "--id",
        "m",
        "--address",
        "10.1.2.3",
        "--port",
        "4533",
    ];
    let store = daemon.url();
    let group = ["--store", &store, "--group", "players", "--member", who, "--ttl", "3s"];
    let args = [leader, &service, &["--catalog", "tenure"], &group].concat();
    node(who, &args, beats)
}

/// The living owner of the service's claim.
#[track_caller]
fn owner(daemon: &Daemon) -> Option<String> {
    let ran = daemon.run(&["claims", "--group", "players", "--registry", "services", "--json"]);
    let page = ran.json();
    let claims = page["claims"].as_array().unwrap().iter();
    let mut alive = claims.filter(|claim| claim["alive"] == true);
    let claim = alive.next()?;
    assert_eq!((claim["key"].as_str(), alive.next()), (Some(KEY), None), "{page}");
    Some(claim["owner"].as_str().unwrap().to_owned())
}

#[track_caller]
fn is_owned(daemon: &Daemon, by: Option<&str>) {
    wait::until(&format!("the service is of {by:?}"), PATIENCE, || {
        owner(daemon).as_deref() == by
    });
}

#[test]
fn service_is_registered_only_while_it_serves() {
    let (daemon, beats) = (Daemon::start(&["--store", "memory:"]), Beats::new());
    let only = claiming("a", &["--leader", "always"], &daemon, &beats);
    is(&only, "catalog", "passing");
    assert_eq!(owner(&daemon).as_deref(), Some("a"));
    assert_eq!(only.terminate(PATIENCE).unwrap().code(), Some(143), "{}", only.log());
    assert_eq!(owner(&daemon), None);
}

#[test]
fn killed_supervisors_service_claim_moves_to_the_next() {
    let (daemon, beats) = (Daemon::start(&["--store", "memory:"]), Beats::new());
    let first = claiming("a", &["--leader", "always"], &daemon, &beats);
    is(&first, "catalog", "passing");
    let child = beats.begins("a", 1);
    first.kill();
    dies(&child);
    is_owned(&daemon, None);
    let second = claiming("b", &["--leader", "always"], &daemon, &beats);
    is(&second, "catalog", "passing");
    assert_eq!(owner(&daemon).as_deref(), Some("b"));
}

#[test]
fn it_goes_where_the_primary_goes_and_comes_back() {
    let (Some(one), Some(two)) = (Mount::start(), Mount::start()) else {
        return;
    };
    two.follow();
    let (daemon, beats) = (Daemon::start(&["--store", "memory:"]), Beats::new());
    let of = |mount: &Mount| format!("litefs:{}", mount.dir().display());
    let leaders = [of(&one), of(&two)];
    let nodes = [("a", &leaders[0]), ("b", &leaders[1])]
        .map(|(who, leader)| claiming(who, &looking_at(leader, &[]), &daemon, &beats));
    // Before that, the group may not exist yet.
    is(&nodes[0], "catalog", "passing");
    is_owned(&daemon, Some("a"));
    for (from, to, by) in [(&one, &two, "b"), (&two, &one, "a")] {
        from.follow();
        is_owned(&daemon, None);
        to.unfollow();
        is_owned(&daemon, Some(by));
    }
}
