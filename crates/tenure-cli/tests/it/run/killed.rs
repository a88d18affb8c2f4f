//! Where there is a store, the service of a supervisor that was killed is cleared away by others, not by Consul.

use std::time::{Duration, Instant};

use tenure_testkit::consul::Agent;
use tenure_testkit::{Mode, Process, Proxy, wait};

use crate::run::PATIENCE;
use crate::run::beats::{Beats, dies};
use crate::run::found::{passing, registered};
use crate::run::node::{is, node};
use crate::support::{Daemon, exists, said};

/// Consul's own reaper takes a minute at least.
const BEFORE_CONSUL: Duration = Duration::from_secs(45);

fn holding(who: &str, port: &str, agent: &Agent, store: &str, more: &[&str], beats: &Beats) -> Process {
    let catalog = format!("consul://{}", agent.addr());
    let service = [
        "--leader",
        "always",
        "--service",
        "music",
        "--id",
        who,
        "--port",
        port,
        "--catalog",
        &catalog,
    ];
    let group = ["--ttl", "3s", "--store", store, "--group", "players", "--member", who];
    let own = agent.addr().to_string();
    let listed = ["--registrations-agents", own.as_str()];
    let agents = if more.is_empty() { &listed[..] } else { more };
    let supervisor = node(who, &[&service[..], &group, agents].concat(), beats);
    is(&supervisor, "catalog", "passing");
    supervisor
}

/// So many registrations are holdings by now.
#[track_caller]
fn are_held(daemon: &Daemon, many: usize) {
    wait::until("the registrations are held", PATIENCE, || {
        let (_, sessions) = daemon.http("GET", "/v1/groups/players/sessions", "");
        sessions.to_string().matches("\"consul:").count() == many
    });
}

#[track_caller]
fn cleared(agent: &Agent, left: &[&str], since: Instant) {
    let what = "the registration is cleared away, and the others are not";
    wait::until(what, BEFORE_CONSUL, || registered(agent) == left);
    eprintln!("cleared away after {:?}", since.elapsed());
}

#[test]
fn another_supervisor_of_the_group_clears_the_registration_away() {
    let Some(agent) = Agent::start() else { return };
    let (daemon, beats) = (Daemon::start(&["--store", "memory:"]), Beats::new());
    let first = holding("m-1", "4001", &agent, &daemon.url(), &[], &beats);
    let second = holding("m-2", "4002", &agent, &daemon.url(), &[], &beats);
    are_held(&daemon, 2);
    assert_eq!(registered(&agent), ["m-1", "m-2"]);
    let child = beats.begins("m-1", 1);
    first.kill();
    cleared(&agent, &["m-2"], Instant::now());
    dies(&child);
    assert_eq!(passing(agent.addr()), Some(vec![4002]));
    // A graceful end deregisters the service and leaves no cleanup order.
    assert_eq!(second.terminate(PATIENCE).unwrap().code(), Some(143));
    assert_eq!(registered(&agent), [""; 0]);
}

/// The store is there a moment after the command: what is registered then is held all the same.
#[test]
fn supervisor_killed_before_its_first_beat_is_cleared_away() {
    let Some(agent) = Agent::start() else { return };
    let own = agent.addr().to_string();
    let groups = ["--registrations-groups", "players", "--registrations-agents", &own];
    let (daemon, beats) = (
        Daemon::start(&[&groups[..], &["--store", "memory:"]].concat()),
        Beats::new(),
    );
    let way = Proxy::start(daemon.addr);
    way.set(Mode::Refuse);
    let (catalog, store) = (format!("consul://{own}"), way.url("http"));
    let service = [
        "--service",
        "music",
        "--id",
        "m-1",
        "--port",
        "4001",
        "--catalog",
        &catalog,
    ];
    let group = ["--leader", "always", "--store", &store, "--group", "players"];
    let supervisor = node("m-1", &[&service[..], &group].concat(), &beats);
    said(&supervisor, "the store is unreachable");
    way.set(Mode::Pass);
    wait::until("it is registered", PATIENCE, || registered(&agent) == ["m-1"]);
    supervisor.kill();
    cleared(&agent, &[], Instant::now());
}

#[test]
fn a_daemon_clears_the_registration_away() {
    let Some(agent) = Agent::start() else { return };
    let groups = ["--registrations-groups", "players", "--store", "memory:"];
    let agents = format!("loopback:{}", agent.addr().port());
    let args = [&groups[..], &["--registrations-agents", &agents]].concat();
    let (daemon, beats) = (Daemon::start(&args), Beats::new());
    let only = holding("m-1", "4001", &agent, &daemon.url(), &[], &beats);
    are_held(&daemon, 1);
    only.kill();
    cleared(&agent, &[], Instant::now());
}

#[test]
fn unlisted_agent_is_not_called_and_logged() {
    let Some(agent) = Agent::start() else { return };
    let (daemon, beats) = (Daemon::start(&["--store", "memory:"]), Beats::new());
    let first = holding("m-1", "4001", &agent, &daemon.url(), &[], &beats);
    let others = ["--registrations-agents", "10.0.0.0/8"];
    let second = holding("m-2", "4002", &agent, &daemon.url(), &others, &beats);
    are_held(&daemon, 2);
    first.kill();
    said(&second, "not on the list");
    assert!(registered(&agent).contains(&"m-1".to_owned()));
}

/// The store only makes the end of a killed one known sooner.
#[test]
fn store_outage_does_not_stop_service_or_registration() {
    let Some(agent) = Agent::start() else { return };
    let (daemon, beats) = (Daemon::start(&["--store", "memory:"]), Beats::new());
    let way = Proxy::start(daemon.addr);
    way.set(Mode::Refuse);
    let supervisor = holding("m-1", "4001", &agent, &way.url("http"), &[], &beats);
    let child = beats.begins("m-1", 1);
    way.set(Mode::Pass);
    are_held(&daemon, 1);
    // It lapses there and is not killed: a service with current heartbeats stays registered, and its command keeps running.
    way.set(Mode::BlackHole);
    wait::until("the tenure has ended", PATIENCE, || {
        let (_, members) = daemon.http("GET", "/v1/groups/players/members", "");
        !members.to_string().contains("m-1")
    });
    beats.goes_on(&child);
    assert!(exists(&child.pid));
    assert_eq!(passing(agent.addr()), Some(vec![4001]));
    way.set(Mode::Pass);
    assert_eq!(supervisor.terminate(PATIENCE).unwrap().code(), Some(143));
    assert_eq!(registered(&agent), [""; 0]);
}
