//! `tenure demo`: a whole round, and an end that leaves nothing behind, however it comes.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tenure_testkit::{Process, wait};

use crate::support::{exists, spawn};

/// A round takes half a minute; a longer time-out is harmless.
const A_WHILE: Duration = Duration::from_secs(240);

fn start(args: &[&str]) -> Process {
    spawn("tenure demo", |command, dir| {
        command.args(["demo", "--fast", "--json"]).args(args).env("TMPDIR", dir);
    })
}

/// What it said so far; a line that is being written does not count.
fn told(demo: &Process) -> Vec<Value> {
    let log = demo.log();
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn of_type(demo: &Process, kind: &str) -> Vec<Value> {
    told(demo).into_iter().filter(|one| one["type"] == kind).collect()
}

#[track_caller]
fn wait_for(demo: &Process, kind: &str) -> Value {
    wait::until(&format!("the demo says {kind}"), A_WHILE, || {
        assert!(demo.is_running() || !of_type(demo, kind).is_empty(), "{}", demo.log());
        !of_type(demo, kind).is_empty()
    });
    of_type(demo, kind).remove(0)
}

fn processes(up: &Value) -> Vec<String> {
    up["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(Value::to_string)
        .collect()
}

#[track_caller]
fn all_gone(processes: &[String]) {
    wait::until("its processes are gone", A_WHILE, || {
        !processes.iter().any(|pid| exists(pid))
    });
}

#[test]
fn demo_round_meets_every_expectation() {
    let demo = start(&["--once"]);
    let directory = wait_for(&demo, "opened")["directory"].as_str().unwrap().to_owned();
    let up = wait_for(&demo, "up");
    assert!(Path::new(&directory).exists() && processes(&up).len() > 10, "{up}");
    let code = demo.wait(A_WHILE).unwrap().code();
    let seen = of_type(&demo, "seen");
    let missing: Vec<_> = seen.iter().filter(|one| one["ok"] != true).collect();
    assert!(missing.is_empty() && code == Some(0), "{missing:?}\n{}", demo.log());
    assert_eq!(of_type(&demo, "act").len(), 8);
    assert_eq!(of_type(&demo, "closed")[0]["missing"], 0);
    assert!(!Path::new(&directory).exists());
    all_gone(&processes(&up));
}

#[test]
fn demo_ends_its_processes_on_signal_and_on_kill() {
    let demo = start(&[]);
    let up = wait_for(&demo, "up");
    let directory = of_type(&demo, "opened")[0]["directory"].as_str().unwrap().to_owned();
    wait_for(&demo, "act");
    demo.signal(Signal::INT).unwrap();
    assert_eq!(demo.wait(A_WHILE).unwrap().code(), Some(0), "{}", demo.log());
    assert!(!Path::new(&directory).exists());
    all_gone(&processes(&up));

    let demo = start(&[]);
    let up = wait_for(&demo, "up");
    demo.kill();
    all_gone(&processes(&up));
}

#[test]
fn it_listens_for_this_machine_alone() {
    let mut command = crate::support::tenure();
    command.args(["demo", "--listen", "0.0.0.0:0"]);
    let ran = crate::support::run(command);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(
        ran.err.contains("--listen: 0.0.0.0:0 is reachable from other machines"),
        "{}",
        ran.err
    );
}
