//! `tenure join --progress-within`: a stuck command loses its tenure, a busy one does not.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tenure_testkit::{Process, wait};

use crate::support::{Daemon, SOON, exists, said};

/// Programs that touch the file of TENURE_PROGRESS_FILE `rounds` times, do some work in between, and then do nothing, in
/// three languages. `rounds` is the first argument; the second is what comes then: `stick` or `exit`.
const WORKERS: [(&str, &[&str]); 3] = [
    (
        "shell",
        &[
            "sh",
            "-c",
            r#"n=0; echo ready
               while [ $n -lt $0 ]; do n=$((n+1)); touch "$TENURE_PROGRESS_FILE"; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.2; done
               echo done; [ $1 = exit ] && exit 0; exec sleep 1000"#,
        ],
    ),
    (
        "Python",
        &[
            "python3",
            "-u",
            "-c",
            r#"
import os, pathlib, sys, time
print("ready")
for _ in range(int(sys.argv[1])):
    pathlib.Path(os.environ["TENURE_PROGRESS_FILE"]).touch()
    sum(range(200000)); time.sleep(0.2)
print("done")
if sys.argv[2] != "exit": time.sleep(1000)"#,
        ],
    ),
    (
        "Node",
        &[
            "node",
            "-e",
            r#"
const fs = require("fs"); const [rounds, then] = process.argv.slice(1);
let n = 0; console.log("ready");
const timer = setInterval(() => {
  if (n++ >= +rounds) { clearInterval(timer); console.log("done"); if (then !== "exit") setTimeout(() => {}, 1e6); return; }
  fs.writeFileSync(process.env.TENURE_PROGRESS_FILE, String(n)); for (let i = 0; i < 1e6; i++);
}, 200);"#,
        ],
    ),
];

/// Whether the machine has the program.
fn has(program: &str) -> bool {
    let mut look = Command::new(program);
    look.arg(if program == "sh" { "-c" } else { "--version" }).arg(":");
    look.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn join(daemon: &Daemon, member: &str, within: &str, file: &Path, more: &[&str], command: &[&str]) -> Process {
    let file = file.to_str().unwrap();
    let join = [
        "join", "--group", "g", "--member", member, "--ttl", "6s", "--grace", "500ms",
    ];
    let progress = ["--progress-within", within, "--progress-file", file];
    daemon.spawn(&[&join[..], &progress, more, &["--"], command].concat())
}

/// The types of a member's events, with their reasons.
fn events(daemon: &Daemon, member: &str) -> Vec<String> {
    let page = daemon.http("GET", "/v1/groups/g/events", "").1;
    let events = page["events"].as_array().expect("a page of events").iter();
    let of = |event: &&Value| {
        event["tenure"]
            .as_str()
            .is_some_and(|t| t.starts_with(&format!("{member}@")))
    };
    events
        .filter(of)
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_stuck_command_is_stopped_with_the_reason() {
    let (daemon, dir) = (Daemon::start(&["--store", "memory:"]), tempfile::tempdir().unwrap());
    let workers = WORKERS.iter().filter(|(_, worker)| has(worker[0]));
    let joined = workers.map(|(language, worker)| {
        let command = [worker, &["3", "stick"][..]].concat();
        // Longer than a program takes to start on a busy machine.
        let joined = join(&daemon, language, "8s", &dir.path().join(language), &[], &command);
        (language, worker, joined)
    });
    for (language, worker, joined) in Vec::from_iter(joined) {
        said(&joined, "done");
        assert_eq!(joined.wait(SOON).unwrap().code(), Some(1), "{}", joined.log());
        let log = joined.log();
        assert!(
            log.contains(&format!("stopping {}: no progress within 8s", worker[0])),
            "{log}"
        );
        assert_eq!(events(&daemon, language), ["joined", "no_progress"], "{log}");
        let why = daemon.run(&["why", language, "--group", "g"]).out;
        assert!(why.contains("it made no progress (no_progress)"), "{why}");
    }
    let (_, metrics) = daemon.text("GET", "/metrics", "");
    assert!(
        metrics.contains(r#"tenure_ended_total{group="g",reason="no_progress"}"#),
        "{metrics}"
    );
}

/// Ends with the test.
struct Burner(Child);

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_busy_command_keeps_its_tenure_with_all_cores_taken() {
    let (daemon, dir) = (Daemon::start(&["--store", "memory:"]), tempfile::tempdir().unwrap());
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let burn = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let burners: Vec<_> = (0..2 * cores).map(|_| Burner(burn())).collect();
    let workers = WORKERS.iter().filter(|(_, worker)| has(worker[0]));
    let joined = workers.map(|(language, worker)| {
        let command = [worker, &["60", "exit"][..]].concat();
        (
            language,
            join(&daemon, language, "8s", &dir.path().join(language), &[], &command),
        )
    });
    for (language, joined) in Vec::from_iter(joined) {
        assert_eq!(
            joined.wait(2 * SOON).unwrap().code(),
            Some(0),
            "{language}: {}",
            joined.log()
        );
        assert!(
            !events(&daemon, language).contains(&"no_progress".to_owned()),
            "{}",
            joined.log()
        );
    }
    drop(burners);
}

#[test]
fn a_stuck_command_may_run_on_without_a_tenure() {
    let (daemon, dir) = (Daemon::start(&["--store", "memory:"]), tempfile::tempdir().unwrap());
    let file = dir.path().join("alive");
    let script = "tenure=$0; $tenure acquire report >&2; echo ready; while ! [ -e go ]; do sleep 0.05; done; \
                  while :; do touch \"$TENURE_PROGRESS_FILE\"; sleep 0.05; done";
    let script = script.replace(" go ", &format!(" {} ", dir.path().join("go").display()));
    let command = ["sh", "-c", &script, env!("CARGO_BIN_EXE_tenure")];
    let joined = join(&daemon, "a", "1s", &file, &["--on-stall", "keep"], &command);
    said(&joined, "ready");
    wait::until("its tenure has ended", SOON, || {
        events(&daemon, "a").contains(&"no_progress".to_owned())
    });
    assert!(joined.is_running());
    // Its process may still run, so its lease waits for the last deadline: one ttl after a heartbeat, which was sent at
    // most a third of the ttl before.
    wait::until("its lease is free", SOON, || {
        events(&daemon, "a").contains(&"lease_released".to_owned())
    });
    let page = daemon.http("GET", "/v1/groups/g/events", "").1;
    let at = |kind: &str| -> jiff::Timestamp {
        let events = page["events"].as_array().unwrap();
        let event = events.iter().find(|event| event["type"] == kind).unwrap();
        event["at"].as_str().unwrap().parse().unwrap()
    };
    let held = at("lease_released").duration_since(at("no_progress"));
    assert!(held.as_secs_f64() > 1.0, "{held:?}");
    std::fs::write(dir.path().join("go"), "").unwrap();
    said(&joined, "joined again as a@");
    assert_eq!(joined.terminate(SOON).unwrap().code(), Some(143), "{}", joined.log());
}

#[test]
fn a_stop_of_the_wrapper_is_no_lack_of_progress() {
    let (daemon, dir) = (Daemon::start(&["--store", "memory:"]), tempfile::tempdir().unwrap());
    let script = "echo \"pid $$\"; while :; do touch \"$TENURE_PROGRESS_FILE\"; sleep 0.05; done";
    let joined = join(
        &daemon,
        "a",
        "3s",
        &dir.path().join("alive"),
        &[],
        &["sh", "-c", script],
    );
    said(&joined, "pid ");
    let log = joined.log();
    let pid = log.lines().find_map(|line| line.strip_prefix("pid ")).unwrap();
    let child = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    // Both are stopped for longer than the time for progress, as by a suspended machine.
    joined.pause().unwrap();
    rustix::process::kill_process(child, Signal::STOP).unwrap();
    wait::until("the tenure has lapsed", SOON, || {
        events(&daemon, "a").contains(&"lapsed".to_owned())
    });
    joined.resume().unwrap();
    rustix::process::kill_process(child, Signal::CONT).unwrap();
    said(&joined, "joined again as a@");
    assert!(exists(pid) && !joined.log().contains("no progress"), "{}", joined.log());
    assert_eq!(joined.terminate(SOON).unwrap().code(), Some(143));
}

#[test]
fn progress_flags_belong_together() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    for wrong in [
        &["--progress-within", "5s"][..],
        &["--progress-file", "/tmp/x"],
        &["--progress-within", "0s", "--progress-file", "/tmp/x"],
        &["--on-stall", "explode"],
    ] {
        let ran = daemon.run(&[&["join"], wrong, &["--", "true"]].concat());
        assert_eq!(ran.code, Some(2), "{wrong:?} {}", ran.err);
    }
}
