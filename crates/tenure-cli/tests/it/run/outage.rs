//! All that can befall an agent of Consul: the command never notices, and what is found is right again afterwards.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tenure_testkit::consul::Agent;
use tenure_testkit::{Mode, Process, Proxy, wait};

use crate::run::PATIENCE;
use crate::run::beats::{self, Beats, dies};
use crate::run::found::{Watch, found_at, passing, registered};
use crate::run::node::{always, in_order, is, node, running, status, until};
use crate::support::{exists, said};

fn of(proxy: &Proxy) -> String {
    proxy.url("consul")
}

/// The catalog is in trouble.
#[track_caller]
fn troubled(supervisor: &Process) {
    until(supervisor, "the catalog is in trouble", |status| {
        status["catalog"]
            .as_str()
            .is_some_and(|catalog| catalog.contains("unconfirmed"))
    });
}

#[test]
fn the_command_never_notices_what_befalls_consul() {
    let Some(agent) = Agent::start() else { return };
    let proxy = Proxy::start(agent.addr());
    proxy.set(Mode::Refuse);
    let (beats, catalog) = (Beats::new(), of(&proxy));
    let supervisor = node("a", &always(&catalog, &["--ttl", "3s"]), &beats);
    // Consul is not needed for a start.
    let child = beats.begins("a", 1);
    is(&supervisor, "state", "running");
    until(&supervisor, "it wants to register", |status| {
        status["catalog"]
            .as_str()
            .is_some_and(|catalog| catalog.contains("registering"))
    });
    let recovers = |fault: &str| {
        let since = Instant::now();
        found_at(&agent, 4533);
        eprintln!(
            "after {fault}: found again after {:?}, with a beat of 1 s",
            since.elapsed()
        );
    };
    proxy.set(Mode::Pass);
    recovers("a start without it");
    let slow = Mode::Delay {
        requests: Duration::from_secs(3),
        replies: Duration::ZERO,
    };
    for mode in [Mode::BlackHole, Mode::Reset, Mode::DropReplies, slow, Mode::Refuse] {
        is(&supervisor, "catalog", "passing");
        proxy.set(mode);
        troubled(&supervisor);
        proxy.set(Mode::Pass);
        recovers(&format!("{mode:?}"));
    }
    is(&supervisor, "catalog", "passing");
    agent.process().pause().unwrap();
    troubled(&supervisor);
    agent.process().resume().unwrap();
    recovers("a pause");
    is(&supervisor, "catalog", "passing");
    agent.restart_empty();
    recovers("a restart without its data");
    beats.goes_on(&child);
    assert_eq!(beats.lives("a").len(), 1);
    assert_eq!(status(&supervisor)["runs"], 1);
    assert_eq!(supervisor.terminate(PATIENCE).unwrap().code(), Some(143));
    assert_eq!(registered(&agent), [""; 0]);
}

/// A good part of a minute, in which every fifth request takes longer than a beat and as long as a ttl has beats.
#[test]
fn status_is_served_while_the_agent_is_slow() {
    let Some(agent) = Agent::start() else { return };
    let proxy = Proxy::start(agent.addr());
    let (beats, catalog) = (Beats::new(), of(&proxy));
    let supervisor = node("a", &always(&catalog, &["--ttl", "6s"]), &beats);
    let child = beats.begins("a", 1);
    found_at(&agent, 4533);
    is(&supervisor, "catalog", "passing");
    let watch = Watch::over(agent.addr());
    let soak = wait::soak(Duration::from_secs(30));
    let (end, mut slow) = (Instant::now() + soak, 0);
    wait::until("the soak is over", soak * 2, || {
        let turn = proxy.counts().accepted;
        let mode = if turn % 5 == 4 {
            slow = turn;
            Mode::Delay {
                requests: Duration::from_millis(2_500),
                replies: Duration::ZERO,
            }
        } else {
            Mode::Pass
        };
        proxy.set(mode);
        Instant::now() > end
    });
    let [none, one, more] = watch.ends();
    eprintln!("looked {one} times, {slow} requests");
    assert!(
        slow > 0 && none == 0 && more == 0,
        "{none} times there was none, {more} times more than one"
    );
    beats.goes_on(&child);
}

const MASTER: &str = "5f0c1b0e-2f0e-4a35-8d8b-3f1f2b6c7d11";

/// An agent that allows reads without a token, and nothing else.
fn locked() -> Option<Agent> {
    let acl = format!(r#"acl {{ enabled = true  default_policy = "deny"  tokens {{ master = "{MASTER}" }} }}"#);
    let agent = Agent::with(&["-hcl", &acl])?;
    let asked = |method: &str, path: &str, body: &Value| {
        let answer = agent.http_as(MASTER, method, path, &body.to_string());
        answer.is_ok_and(|(status, _)| status == 200)
    };
    wait::until("the access control is ready", PATIENCE, || {
        asked("GET", "/v1/acl/tokens", &json!(""))
    });
    let write = json!({"Name": "write", "Rules": r#"service_prefix "music" { policy = "write" }"#});
    let read =
        json!({"Name": "read", "Rules": r#"service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }"#});
    assert!(asked("PUT", "/v1/acl/policy", &write) && asked("PUT", "/v1/acl/policy", &read));
    let anonymous = json!({"Policies": [{"Name": "read"}]});
    let path = "/v1/acl/token/00000000-0000-0000-0000-000000000002";
    assert!(asked("PUT", path, &anonymous));
    Some(agent)
}

/// A token, and what it is revoked by.
fn token(agent: &Agent) -> (String, String) {
    let wanted = json!({"Policies": [{"Name": "write"}]}).to_string();
    let (status, made) = agent.http_as(MASTER, "PUT", "/v1/acl/token", &wanted).unwrap();
    assert_eq!(status, 200, "{made}");
    let made: Value = serde_json::from_str(&made).unwrap();
    let text = |key: &str| made[key].as_str().unwrap().to_owned();
    (text("SecretID"), text("AccessorID"))
}

#[test]
fn rejected_token_is_logged_and_rotated_token_is_used() {
    let Some(agent) = locked() else { return };
    let (beats, home) = (Beats::new(), tempfile::tempdir().unwrap());
    let (file, catalog) = (home.path().join("token"), format!("consul://{}", agent.addr()));
    fs::write(&file, "not-a-token").unwrap();
    let token_file = ["--consul-token-file", file.to_str().unwrap(), "--ttl", "3s"];
    let supervisor = node("a", &always(&catalog, &token_file), &beats);
    let child = beats.begins("a", 1);
    let forbidden = || {
        until(&supervisor, "it is forbidden", |status| {
            status["catalog"]
                .as_str()
                .is_some_and(|catalog| catalog.contains("forbidden"))
        });
    };
    forbidden();
    let (secret, accessor) = token(&agent);
    fs::write(&file, secret).unwrap();
    found_at(&agent, 4533);
    let revoked = agent.http_as(MASTER, "DELETE", &format!("/v1/acl/token/{accessor}"), "");
    assert_eq!(revoked.unwrap().0, 200);
    forbidden();
    fs::write(&file, token(&agent).0).unwrap();
    is(&supervisor, "catalog", "passing");
    // The agent takes the service away with the token that it was registered with; the revoked one could not.
    said(&supervisor, "registered again");
    found_at(&agent, 4533);
    beats.goes_on(&child);
    assert_eq!(beats.lives("a").len(), 1);
    assert_eq!(supervisor.terminate(PATIENCE).unwrap().code(), Some(143));
    wait::until("nobody is sent there", PATIENCE, || {
        passing(agent.addr()) == Some(Vec::new())
    });
}

#[test]
fn a_removal_that_failed_is_made_good_at_the_next_start() {
    let Some(agent) = Agent::start() else { return };
    let proxy = Proxy::start(agent.addr());
    let (beats, home, catalog) = (Beats::new(), tempfile::tempdir().unwrap(), of(&proxy));
    let journal = home.path().to_str().unwrap();
    let first = node(
        "a",
        &always(&catalog, &["--id", "music-1", "--journal", journal]),
        &beats,
    );
    is(&first, "catalog", "passing");
    proxy.set(Mode::Refuse);
    assert_eq!(first.terminate(PATIENCE).unwrap().code(), Some(143));
    assert_eq!(registered(&agent), ["music-1"]);
    // The next one is never the primary, and does it all the same.
    proxy.set(Mode::Pass);
    let dir = tempfile::tempdir().unwrap();
    let leader = format!("litefs:{}", dir.path().display());
    let args = [
        "--leader",
        &leader,
        "--service",
        "music",
        "--port",
        "4533",
        "--catalog",
        &catalog,
    ];
    let second = node(
        "b",
        &[&args[..], &["--id", "music-2", "--journal", journal]].concat(),
        &beats,
    );
    wait::until("what was left is removed", PATIENCE, || registered(&agent).is_empty());
    assert_eq!(status(&second)["state"], "waiting");
    assert!(beats.lives("b").is_empty());
}

/// Consul takes nothing in and says nothing, from before the end on.
#[test]
fn hung_consul_does_not_delay_the_stop() {
    let Some(agent) = Agent::start() else { return };
    let proxy = Proxy::start(agent.addr());
    let catalog = of(&proxy);
    let script = "trap 'echo told > told; exit 7' TERM; echo up > up; while :; do sleep 0.02; done";
    let supervisor = running("a", &always(&catalog, &[]), &beats::shell(script), |_| ());
    is(&supervisor, "catalog", "passing");
    wait::until("it is up", PATIENCE, || supervisor.dir().join("up").exists());
    proxy.set(Mode::BlackHole);
    let since = Instant::now();
    supervisor.signal(Signal::TERM).unwrap();
    assert_eq!(supervisor.wait(PATIENCE).unwrap().code(), Some(7));
    eprintln!("it took {:?} of 4.5 s", since.elapsed());
    assert!(supervisor.dir().join("told").exists());
}

/// Clients have left before the command receives TERM.
#[test]
fn service_is_deregistered_before_the_command_stops() {
    let Some(agent) = Agent::start() else { return };
    let (beats, catalog) = (Beats::new(), format!("consul://{}", agent.addr()));
    let supervisor = node(
        "a",
        &always(&catalog, &["--drain", "2s", "--stop-budget", "8s"]),
        &beats,
    );
    is(&supervisor, "catalog", "passing");
    let child = beats.begins("a", 1);
    supervisor.signal(Signal::TERM).unwrap();
    wait::until("the service is gone", PATIENCE, || registered(&agent).is_empty());
    assert!(exists(&child.pid), "it still serves who found it before");
    dies(&child);
    assert_eq!(supervisor.wait(PATIENCE).unwrap().code(), Some(143));
    in_order(&supervisor, &["to=\"draining\"", "to=\"absent\"", "to=\"stopping\""]);
}
