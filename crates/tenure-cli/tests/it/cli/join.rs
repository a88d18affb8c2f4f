//! `tenure join`: the command's life and the tenure's life are one.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tenure_testkit::port::Port;
use tenure_testkit::wait;

use crate::support::{Daemon, SOON, exists, run, said, spawn, tenure};

/// The types of the events about members of a group, in order. (A machine that stalls the daemon makes others.)
fn events(daemon: &Daemon, group: &str) -> Vec<String> {
    let page = daemon.http("GET", &format!("/v1/groups/{group}/events"), "").1;
    let events = page["events"].as_array().expect("a page of events");
    let kinds = events
        .iter()
        .map(|event| event["type"].as_str().expect("a type").to_owned());
    kinds.filter(|kind| !kind.starts_with("group_")).collect()
}

#[test]
fn the_exit_code_is_that_of_the_command_and_the_member_has_left() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        let group = format!("g{code}");
        let ran = daemon.run(&["join", "--group", &group, "--member", "a", "--", "sh", "-c", script]);
        assert_eq!(ran.code, Some(code), "{script}: {}", ran.err);
        assert_eq!(events(&daemon, &group), ["joined", "left"], "{script}");
    }
}

#[test]
fn a_generated_name_is_new_at_every_start() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let start = || {
        let ran = daemon.run(&["join", "--group", "g", "--", "sh", "-c", "echo $TENURE_MEMBER"]);
        let name = ran.out.trim().to_owned();
        let mut parts = name.rsplitn(3, '-');
        let (random, started) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        assert!(random.len() == 8 && parts.next().is_some(), "{name}");
        started.parse::<u64>().unwrap_or_else(|_| panic!("{name}"))
    };
    let (first, second) = (start(), start());
    assert!(first < second, "{first} and {second} are starts of two processes");
}

#[test]
fn command_that_cannot_start_exits_126_or_127_and_leaves() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let ran = daemon.run(&["join", "--group", "g", "--", "no-such-command-here"]);
    assert_eq!(ran.code, Some(127));
    assert_eq!(
        ran.err,
        "tenure: no-such-command-here cannot be started: No such file or directory (os error 2)\n"
    );
    let ran = daemon.run(&["join", "--group", "g", "--", "/"]);
    assert_eq!(ran.code, Some(126), "{}", ran.err);
    assert_eq!(events(&daemon, "g"), ["joined", "left", "joined", "left"]);
}

#[test]
fn command_gets_its_tenure() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let script = r#"echo "$TENURE_ID|$TENURE_MEMBER|$TENURE_GROUP|$TENURE_STORE"; cat "$TENURE_FILE"; echo "$TENURE_FILE"; exit 0"#;
    let args = [
        "join", "--group", "g", "--member", "a", "--ttl", "7s", "--label", "zone=eu", "--", "sh", "-c", script,
    ];
    let ran = daemon.run(&args);
    let lines: Vec<_> = ran.out.lines().collect();
    let content: Value =
        serde_json::from_str(lines[1]).unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err));
    let tenure = content["tenure"].as_str().unwrap();
    assert_eq!(lines[0], format!("{tenure}|a|g|{}", daemon.url()));
    let (member, term) = tenure.split_once('@').unwrap();
    assert_eq!(member, "a");
    let expected = serde_json::json!({
        "group": "g", "member": "a", "tenure": tenure, "term": term.parse::<u64>().unwrap(), "ttl_ms": 7000
    });
    assert_eq!(content, expected);
    assert!(!fs::exists(lines[2]).unwrap(), "the file is gone");
    assert_eq!(ran.err, "", "join itself is quiet");
}

#[test]
fn signals_reach_the_command() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let script = r#"
        for s in HUP INT QUIT USR1 USR2; do trap "echo got-$s" $s; done
        trap 'echo got-TERM; exit 7' TERM
        echo ready
        while :; do sleep 0.01; done"#;
    let joined = daemon.spawn(&["join", "--group", "g", "--", "sh", "-c", script]);
    said(&joined, "ready");
    let signals = [
        (Signal::HUP, "got-HUP"),
        (Signal::INT, "got-INT"),
        (Signal::QUIT, "got-QUIT"),
        (Signal::USR1, "got-USR1"),
        (Signal::USR2, "got-USR2"),
    ];
    for (signal, answer) in signals {
        joined.signal(signal).unwrap();
        said(&joined, answer);
    }
    assert_eq!(joined.terminate(SOON).unwrap().code(), Some(7), "{}", joined.log());
    assert_eq!(events(&daemon, "g"), ["joined", "left"]);
}

#[test]
fn a_newer_join_of_the_same_member_stops_the_older_command() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let args = |script| {
        [
            "join", "--group", "g", "--member", "a", "--ttl", "9s", "--", "sh", "-c", script,
        ]
    };
    let old = daemon.spawn(&args(
        "trap 'echo stopped-by-TERM; exit 0' TERM; echo ready; while :; do sleep 0.01; done",
    ));
    said(&old, "ready");
    let new = daemon.spawn(&args("echo ready; exec sleep 1000"));
    said(&new, "ready");
    assert_eq!(old.wait(SOON).unwrap().code(), Some(1), "{}", old.log());
    assert!(old.log().contains("stopped-by-TERM"), "{}", old.log());
    assert!(old.log().contains("tenure: stopped sh: a@"), "{}", old.log());
    assert!(
        old.log().contains("was superseded by a newer join of the same member"),
        "{}",
        old.log()
    );
    assert!(new.is_running());
    assert_eq!(events(&daemon, "g"), ["joined", "superseded", "joined"]);
}

#[test]
fn expelled_command_that_ignores_term_is_killed() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let script = r#"trap "" TERM; sleep 1000 & echo "pids $$ $!"; while :; do sleep 1; done"#;
    let args = [
        "join", "--group", "g", "--member", "a", "--ttl", "6s", "--grace", "200ms", "--", "sh", "-c", script,
    ];
    let joined = daemon.spawn(&args);
    said(&joined, "pids ");
    let log = joined.log();
    let pids: Vec<_> = log
        .lines()
        .find_map(|line| line.strip_prefix("pids "))
        .unwrap()
        .split(' ')
        .collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| exists(pid)), "{log}");
    let members = daemon.http("GET", "/v1/groups/g/members", "").1;
    let tenure = members["members"][0]["tenure"].as_str().unwrap();
    assert_eq!(
        daemon
            .http("DELETE", &format!("/v1/groups/g/tenures/{tenure}?expel=true"), "")
            .0,
        204
    );
    assert_eq!(joined.wait(SOON).unwrap().code(), Some(1), "{}", joined.log());
    assert!(joined.log().contains("was expelled by an operator"), "{}", joined.log());
    wait::until("both processes are gone", SOON, || !pids.iter().any(|pid| exists(pid)));
}

#[test]
fn leftover_processes_are_stopped_before_leave() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let script = "sleep 1000 >/dev/null 2>&1 & echo $!; exit 4";
    let ran = daemon.run(&["join", "--group", "g", "--", "sh", "-c", script]);
    assert_eq!(ran.code, Some(4), "{}", ran.err);
    wait::until("the sleeper is gone", SOON, || !exists(ran.out.trim()));
}

#[test]
fn a_command_dies_with_a_killed_join_and_the_tenure_lapses() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let joined = daemon.spawn(&[
        "join",
        "--group",
        "g",
        "--ttl",
        "4s",
        "--",
        "sh",
        "-c",
        "echo \"pid $$\"; exec sleep 1000",
    ]);
    said(&joined, "pid ");
    let log = joined.log();
    let pid = log.lines().find_map(|line| line.strip_prefix("pid ")).unwrap();
    joined.signal(Signal::KILL).unwrap();
    wait::until("the command is gone", SOON, || !exists(pid));
    wait::until("the tenure has lapsed", SOON, || {
        events(&daemon, "g") == ["joined", "lapsed"]
    });
}

/// Stops the beats of a `join` (and nothing else) for so long that its tenure lapses.
fn make_it_lapse(daemon: &Daemon, joined: &tenure_testkit::Process) {
    joined.pause().unwrap();
    wait::until("the tenure has lapsed", SOON, || {
        events(daemon, "g").contains(&"lapsed".to_owned())
    });
    joined.resume().unwrap();
}

#[test]
fn rejoin_after_lapse_updates_the_tenure_file() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let script = r#"
        echo "ready $TENURE_ID"
        until ! grep -q "\"$TENURE_ID\"" "$TENURE_FILE"; do sleep 0.01; done
        echo "now $(cat "$TENURE_FILE")"
        exit 5"#;
    let joined = daemon.spawn(&[
        "join", "--group", "g", "--member", "a", "--ttl", "4s", "--", "sh", "-c", script,
    ]);
    said(&joined, "ready a@");
    make_it_lapse(&daemon, &joined);
    assert_eq!(joined.wait(SOON).unwrap().code(), Some(5), "{}", joined.log());
    assert!(
        joined.log().contains("has ended; joined again as a@"),
        "{}",
        joined.log()
    );
    assert_eq!(events(&daemon, "g"), ["joined", "lapsed", "joined", "left"]);
}

#[test]
fn with_on_lapse_stop_a_lapse_stops_the_command() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let args = [
        "join",
        "--group",
        "g",
        "--ttl",
        "4s",
        "--on-lapse",
        "stop",
        "--",
        "sh",
        "-c",
        "echo ready; exec sleep 1000",
    ];
    let joined = daemon.spawn(&args);
    said(&joined, "ready");
    make_it_lapse(&daemon, &joined);
    assert_eq!(joined.wait(SOON).unwrap().code(), Some(1), "{}", joined.log());
    assert!(joined.log().contains("has ended (--on-lapse stop)"), "{}", joined.log());
}

#[test]
fn an_outage_of_the_daemon_stops_no_command_that_is_kept() {
    let daemon = Daemon::start(&[]);
    let joined = daemon.spawn(&[
        "join",
        "--group",
        "g",
        "--member",
        "a",
        "--ttl",
        "1s",
        "--",
        "sh",
        "-c",
        "echo ready; exec sleep 1000",
    ]);
    said(&joined, "ready");
    daemon.process.pause().unwrap();
    said(&joined, "lost");
    daemon.process.resume().unwrap();
    wait::until("it is alive again", SOON, || {
        daemon.http("GET", "/v1/groups/g/members/a", "").1["alive"] == Value::Bool(true)
    });
    assert!(joined.is_running());
    assert_eq!(joined.terminate(SOON).unwrap().code(), Some(143));
}

#[test]
fn a_daemon_that_starts_later_is_joined() {
    for wrapper in [&["join"][..], &["lock", "l", "--wait", "1m"]] {
        let port = Port::reserve();
        let url = format!("http://{}", port.addr());
        let waiting = spawn("tenure", |command, _| {
            command.args(wrapper).args(["--ttl", "6s", "--store", &url]);
            command.args(["--", "sh", "-c", "echo started; exec sleep 1000"]);
        });
        said(&waiting, &format!("{url}/ cannot be reached"));
        assert!(!waiting.log().contains("started"), "{}", waiting.log());
        let _daemon = spawn("tenure serve", |command, _| {
            command.args(["serve", "--store", "memory:", "--max-ttl", "6s", "--listen"]);
            command.arg(port.addr().to_string());
        });
        wait::until("the command runs", SOON + Duration::from_secs(20), || {
            waiting.log().contains("started")
        });
        let log = waiting.log();
        assert_eq!(log.matches("trying again").count(), 1, "{log}");
        assert_eq!(waiting.terminate(SOON).unwrap().code(), Some(143));
    }
}

#[test]
fn a_signal_ends_the_wait_for_a_daemon() {
    let port = Port::reserve();
    let joined = spawn("tenure join", |command, _| {
        command.args(["join", "--store", &format!("http://{}", port.addr())]);
        command.args(["--", "sh", "-c", "echo started"]);
    });
    said(&joined, "trying again");
    assert_eq!(joined.terminate(SOON).unwrap().code(), Some(143));
    assert!(!joined.log().contains("started"), "{}", joined.log());
}

#[test]
fn what_no_daemon_changes_fails_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.toml");
    fs::write(&tokens, "").unwrap();
    let mut made = tenure();
    made.args(["token", "new", "--name", "reader", "--scope", "read", "--add"]);
    made.arg(&tokens).arg("--out").arg(folder.path().join("token"));
    assert_eq!(run(made).code, Some(0));
    let daemon = Daemon::start(&["--store", "memory:", "--tokens", tokens.to_str().unwrap()]);
    for (args, code) in [
        (&["--store", "nonsense"][..], 2),
        (&["--store", &daemon.url()], 1),
        (&["--store", &daemon.url(), "--member", "a/b"], 2),
    ] {
        let mut command = tenure();
        command.arg("join").args(args).args(["--", "true"]);
        let ran = run(command);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.err);
        assert!(!ran.err.contains("trying again"), "{}", ran.err);
    }
}

#[test]
fn without_a_store_the_command_is_not_started() {
    let mut command = tenure();
    command.args([
        "join",
        "--store",
        "http://127.0.0.1:1",
        "--patience",
        "0s",
        "--",
        "sh",
        "-c",
        "echo started",
    ]);
    let ran = run(command);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
    assert!(
        ran.err.contains("tenure: error: http://127.0.0.1:1/ cannot be reached"),
        "{}",
        ran.err
    );
}

#[test]
fn signal_during_join_leaves_without_starting_the_command() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    daemon.process.pause().unwrap();
    let joined = daemon.spawn(&[
        "join",
        "--group",
        "g",
        "--member",
        "a",
        "--",
        "sh",
        "-c",
        "echo started",
    ]);
    // It listens to signals before it connects; until then a TERM ends it as any process.
    wait::until("it catches TERM", SOON, || {
        let status = fs::read_to_string(format!("/proc/{}/status", joined.pid().unwrap())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << 14) != 0
    });
    joined.signal(Signal::TERM).unwrap();
    daemon.process.resume().unwrap();
    let code = joined.wait(SOON + Duration::from_secs(5)).unwrap().code();
    assert!(code == Some(143) || code == Some(1), "{code:?} {}", joined.log());
    assert!(!joined.log().contains("started"), "{}", joined.log());
}

#[test]
fn nested_join_inherits_the_group() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let inner = format!("{} members --json", env!("CARGO_BIN_EXE_tenure"));
    let ran = daemon.run(&["join", "--group", "outer", "--member", "a", "--", "sh", "-c", &inner]);
    assert_eq!(ran.json()["members"][0]["member"], "a");
}

#[test]
fn the_file_may_be_anywhere() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("me.json");
    let path = path.to_str().unwrap();
    let script = r#"test "$TENURE_FILE" -ef "$1" && grep -q '"member":"a"' "$1""#;
    let ran = daemon.run(&[
        "join", "--member", "a", "--file", path, "--", "sh", "-c", script, "sh", path,
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let ran = daemon.run(&["join", "--member", "a", "--file", "/no/such/dir/me.json", "--", "true"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err
            .contains("the tenure file /no/such/dir/me.json cannot be written"),
        "{}",
        ran.err
    );
    assert_eq!(events(&daemon, "default"), ["joined", "left", "joined", "left"]);
}

#[test]
fn signal_death_exits_128_plus_signal() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let joined = daemon.spawn(&["join", "--", "sh", "-c", "echo \"pid $$\"; exec sleep 1000"]);
    said(&joined, "pid ");
    let log = joined.log();
    let pid: i32 = log
        .lines()
        .find_map(|line| line.strip_prefix("pid "))
        .unwrap()
        .parse()
        .unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
    assert_eq!(joined.wait(SOON).unwrap().code(), Some(130));
}
