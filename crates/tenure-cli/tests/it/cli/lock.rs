//! `tenure lock`: the command runs only while the lock is certainly held.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;
use tenure_testkit::{Mode, Process, Proxy, wait};

use crate::support::{Daemon, SOON, exists, said};

const TTL: &str = "3s";

fn lock(daemon: &Daemon, more: &[&str], script: &str) -> Process {
    let fixed = ["lock", "job", "--group", "g", "--ttl", TTL];
    daemon.spawn(&[&fixed[..], more, &["--", "sh", "-c", script]].concat())
}

/// A script with a child of its own that ignores TERM.
const STUBBORN: &str = r#"trap "" TERM; sleep 1000 & echo "pids $$ $!"; while :; do sleep 1; done"#;

fn pids(process: &Process) -> Vec<String> {
    said(process, "pids ");
    let log = process.log();
    let line = log.lines().find_map(|line| line.strip_prefix("pids ")).unwrap();
    line.split(' ').map(str::to_owned).collect()
}

fn are_gone(pids: &[String]) -> bool {
    !pids.iter().any(|pid| exists(pid))
}

fn tenure_of(daemon: &Daemon) -> Option<String> {
    let (status, lease) = daemon.http("GET", "/v1/groups/g/leases/job", "");
    // The row of a tenure that has ended stays until the janitor removes it.
    (status == 200 && lease["alive"] == true).then(|| lease["tenure"].as_str().unwrap().to_owned())
}

/// Waits until another process gets the lock. At that moment no process of the first command may be left.
#[track_caller]
fn taken_over_after(daemon: &Daemon, pids: &[String]) {
    let next = lock(
        daemon,
        &["--wait", "60s"],
        "echo \"got $TENURE_FENCING_TOKEN\"; exec sleep 1000",
    );
    said(&next, "got ");
    assert!(are_gone(pids), "two commands at a time: {pids:?}");
    assert_eq!(next.terminate(SOON).unwrap().code(), Some(143), "{}", next.log());
}

#[test]
fn one_command_at_a_time_and_its_exit_code() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137)] {
        let ran = daemon.run(&["lock", "job", "--group", "g", "--", "sh", "-c", script]);
        assert_eq!(ran.code, Some(code), "{script}: {}", ran.err);
    }
    let ran = daemon.run(&["lock", "job", "--group", "g", "--", "no-such-command-here"]);
    assert_eq!(ran.code, Some(127), "{}", ran.err);
    let first = lock(&daemon, &[], "echo \"pids $$ $$\"; exec sleep 1000");
    pids(&first);
    let holder = tenure_of(&daemon).unwrap();
    let ran = daemon.run(&["lock", "job", "--group", "g", "--", "echo", "started"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(75), ""), "{}", ran.err);
    assert_eq!(
        ran.err,
        format!("tenure: not acquired: lock \"job\" is held by {holder}\n")
    );
    let waited = daemon.run(&[
        "lock", "job", "--wait", "300ms", "--group", "g", "--", "echo", "started",
    ]);
    assert_eq!((waited.code, waited.out.as_str()), (Some(75), ""), "{}", waited.err);
    let next = lock(&daemon, &["--wait", "60s"], "echo \"got it\"");
    assert_eq!(first.terminate(SOON).unwrap().code(), Some(143));
    assert_eq!(next.wait(SOON).unwrap().code(), Some(0), "{}", next.log());
    assert_eq!(tenure_of(&daemon), None, "it is free again");
}

#[test]
fn the_command_gets_its_fencing_token_and_input() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let script = r#"read line; echo "$line|$TENURE_LEASE|$TENURE_GROUP|$TENURE_STORE|${TENURE_ID%@*}|$TENURE_MEMBER|$TENURE_TOKEN"
        echo "token $TENURE_FENCING_TOKEN"; "$0" leases job --json"#;
    let binary = env!("CARGO_BIN_EXE_tenure");
    let args = [
        "lock", "job", "--group", "g", "--member", "a", "--", "sh", "-c", script, binary,
    ];
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("in"), "hello\n").unwrap();
    let mut command = daemon.command(&args);
    command
        .env("TENURE_TOKEN", "secret")
        .stdin(fs::File::open(dir.path().join("in")).unwrap());
    let done = command.output().unwrap();
    let out = String::from_utf8(done.stdout).unwrap();
    let mut lines = out.lines();
    assert_eq!(lines.next().unwrap(), format!("hello|job|g|{}|a|a|", daemon.url()));
    let token: u64 = lines.next().unwrap().strip_prefix("token ").unwrap().parse().unwrap();
    let lease: Value = serde_json::from_str(&lines.collect::<String>()).unwrap();
    assert_eq!((&lease["token"], &lease["alive"]), (&token.into(), &true.into()));
}

#[test]
fn signals_reach_the_locked_command() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let script =
        "trap 'echo got-USR1' USR1; trap 'echo got-TERM; exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    let locked = lock(&daemon, &[], script);
    said(&locked, "ready");
    locked.signal(Signal::USR1).unwrap();
    said(&locked, "got-USR1");
    assert_eq!(locked.terminate(SOON).unwrap().code(), Some(7), "{}", locked.log());
    assert_eq!(tenure_of(&daemon), None);
    // A signal also ends a wait.
    let holder = lock(&daemon, &[], "echo ready; exec sleep 1000");
    said(&holder, "ready");
    let waiting = lock(&daemon, &["--wait", "60s"], "echo started");
    wait::until("it waits", SOON, || {
        let members = daemon.http("GET", "/v1/groups/g/members", "").1;
        members["members"].as_array().unwrap().len() == 2
    });
    assert_eq!(waiting.terminate(SOON).unwrap().code(), Some(143), "{}", waiting.log());
    assert!(!waiting.log().contains("started"));
}

#[test]
fn term_frees_the_lock_when_no_process_is_left() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let script = r#"trap "exit 7" TERM; (trap "" TERM; exec sleep 1000) & echo "pids $$ $!"; wait"#;
    let locked = lock(&daemon, &["--grace", "300ms"], script);
    let pids = pids(&locked);
    locked.signal(Signal::TERM).unwrap();
    taken_over_after(&daemon, &pids);
    assert_eq!(locked.wait(SOON).unwrap().code(), Some(7), "{}", locked.log());
}

#[test]
fn waiting_commands_run_in_order_of_arrival() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let until_waiting = |count: usize| {
        wait::until("the commands wait", SOON, || {
            daemon.http("GET", "/v1/groups/g/leases/job", "").1["waiting"] == count
        });
    };
    let holder = lock(&daemon, &[], "echo ready; exec sleep 1000");
    said(&holder, "ready");
    let waiters = ["first", "second", "third"].map(|name| {
        let before = daemon.http("GET", "/v1/groups/g/leases/job", "").1["waiting"].as_u64();
        let log = "echo $TENURE_FENCING_TOKEN";
        let waiter = lock(&daemon, &["--wait", "60s", "--member", name], log);
        until_waiting(usize::try_from(before.unwrap()).unwrap() + 1);
        waiter
    });
    assert_eq!(holder.terminate(SOON).unwrap().code(), Some(143));
    let tokens = waiters.map(|waiter| {
        assert_eq!(waiter.wait(SOON).unwrap().code(), Some(0), "{}", waiter.log());
        waiter.log().trim().parse::<u64>().unwrap()
    });
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn a_killed_wrapper_takes_the_process_group_along() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let locked = lock(&daemon, &[], STUBBORN);
    let pids = pids(&locked);
    locked.signal(Signal::KILL).unwrap();
    wait::until("both processes are gone", SOON, || are_gone(&pids));
    taken_over_after(&daemon, &pids);
}

#[test]
fn a_frozen_wrapper_loses_the_command_before_the_lock() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let locked = lock(&daemon, &[], STUBBORN);
    let pids = pids(&locked);
    locked.pause().unwrap();
    taken_over_after(&daemon, &pids);
    locked.resume().unwrap();
    // Killed by its watchdog, or stopped because of the loss.
    let code = locked.wait(SOON).unwrap().code();
    assert!([Some(1), Some(137)].contains(&code), "{code:?} {}", locked.log());
}

#[test]
fn a_wrapper_that_is_cut_off_stops_its_command_in_time() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let proxy = Proxy::start(daemon.addr);
    let url = format!("http://{}", proxy.addr());
    let locked = lock(&daemon, &["--store", &url], STUBBORN);
    let pids = pids(&locked);
    proxy.set(Mode::BlackHole);
    taken_over_after(&daemon, &pids);
    assert_eq!(locked.wait(SOON).unwrap().code(), Some(1), "{}", locked.log());
    assert!(
        locked
            .log()
            .contains("lock \"job\" was lost, or could not be confirmed"),
        "{}",
        locked.log()
    );
}

#[test]
fn an_expelled_holder_is_stopped_before_the_next_one() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let locked = lock(&daemon, &[], STUBBORN);
    let pids = pids(&locked);
    let tenure = tenure_of(&daemon).unwrap();
    let path = format!("/v1/groups/g/tenures/{tenure}?expel=true");
    assert_eq!(daemon.http("DELETE", &path, "").0, 204);
    taken_over_after(&daemon, &pids);
    assert_eq!(locked.wait(SOON).unwrap().code(), Some(1), "{}", locked.log());
}

#[test]
fn holders_share_a_lock_up_to_their_number() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let share = ["--holders", "2"];
    let script = "echo \"place $TENURE_PLACE\"; exec sleep 1000";
    let first = lock(&daemon, &share, script);
    said(&first, "place 0");
    let second = lock(&daemon, &share, script);
    said(&second, "place 1");
    let ran = daemon.run(&["lock", "job", "--holders", "2", "--group", "g", "--", "true"]);
    assert_eq!(ran.code, Some(75), "{}", ran.err);
    let ran = daemon.run(&["lock", "job", "--holders", "3", "--group", "g", "--", "true"]);
    assert_eq!(ran.code, Some(75), "{}", ran.err);
    assert!(
        ran.err
            .contains("lock \"job\" has 2 holders, not 3: use the same --holders everywhere"),
        "{}",
        ran.err
    );
    assert_eq!(first.terminate(SOON).unwrap().code(), Some(143));
    let third = lock(&daemon, &[&share[..], &["--wait", "60s"]].concat(), script);
    said(&third, "place 0");
    assert!(second.is_running());
}

#[test]
fn a_lock_released_by_an_operator_kills_the_command_first() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let locked = lock(&daemon, &[], STUBBORN);
    let pids = pids(&locked);
    let member = tenure_of(&daemon).unwrap();
    let holder = member.split('@').next().unwrap();
    let (status, answer) = daemon.http("DELETE", &format!("/v1/groups/g/leases/job?holder={holder}"), "");
    assert_eq!(status, 200, "{answer}");
    taken_over_after(&daemon, &pids);
    assert_eq!(locked.wait(SOON).unwrap().code(), Some(1), "{}", locked.log());
}

#[test]
fn leftovers_of_the_command_end_before_the_lock_is_free() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let ran = daemon.run(&[
        "lock",
        "job",
        "--group",
        "g",
        "--",
        "sh",
        "-c",
        "sleep 1000 >/dev/null 2>&1 & echo \"pids $!\"; exit 4",
    ]);
    assert_eq!(ran.code, Some(4), "{}", ran.err);
    assert!(!exists(ran.out.trim().strip_prefix("pids ").unwrap()));
}

#[test]
fn without_a_store_nothing_is_started() {
    let ran = crate::support::run({
        let mut command = crate::support::tenure();
        command.args(["lock", "job", "--store", "http://127.0.0.1:1", "--", "echo", "started"]);
        command
    });
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
}
