//! What `join`, `lock` and `run` have in common: how a command's processes end, whatever starts the wrapper. `cargo xtask
//! wrappers` varies all of it.

use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tenure_testkit::{Process, wait};

use crate::support::{Daemon, SOON, exists, said, spawn};

const WRAPPERS: [&[&str]; 3] = [&["join"], &["lock", "q"], &["run", "--leader", "lease:q"]];

/// `unshare` for a new pid namespace. `None`, with a message, where there can be none.
fn unshare() -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        command
    };
    if unshare().arg("true").status().is_ok_and(|status| status.success()) {
        return Some(unshare());
    }
    eprintln!("SKIPPED: no pid namespace can be made here (needs root and `unshare`)");
    None
}

/// The binary as process 1 of a namespace, and its process id outside.
fn process_1(daemon: &Daemon, args: &[&str]) -> Option<(Process, Pid)> {
    let mut command = unshare()?;
    command.arg(env!("CARGO_BIN_EXE_tenure")).args(args);
    command.env("TENURE_STORE", daemon.url()).env("TENURE_LOG", "off");
    let process = Process::spawn("tenure as process 1", |_| command).unwrap();
    let mut first = None;
    wait::until("unshare has a child", SOON, || {
        first = children_of(&process).first().copied();
        first.is_some()
    });
    Some((process, first.unwrap()))
}

fn children_of(process: &Process) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1));
        parent.and_then(|parent| parent.parse().ok()) == process.pid()
    };
    pids.filter(is_one).filter_map(Pid::from_raw).collect()
}

fn is_held(daemon: &Daemon) -> bool {
    daemon.http("GET", "/v1/groups/default/leases/q", "").1["alive"] == Value::Bool(true)
}

/// The line of `/proc/PID/status` with this name, as a mask of signals.
fn mask(pid: Pid, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_default();
    u64::from_str_radix(line.trim(), 16).unwrap_or_default()
}

const TERM: u64 = 1 << 14;

#[test]
fn process_1_ends_with_its_command_and_its_orphans() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let orphans = "i=0; while [ $i -lt 30 ]; do (setsid sleep 1000 &); i=$((i + 1)); done;";
    for wrapper in WRAPPERS {
        for before in ["sleep 300 &", orphans] {
            let script = format!("{before} exit 5");
            let args = [wrapper, &["--", "sh", "-c", script.as_str()]].concat();
            let Some((process, _)) = process_1(&daemon, &args) else {
                return;
            };
            assert_eq!(
                process.wait(SOON).unwrap().code(),
                Some(5),
                "{wrapper:?}: {}",
                process.log()
            );
            assert!(!is_held(&daemon), "{wrapper:?}");
        }
    }
}

#[test]
fn term_to_process_1_is_not_lost_before_its_handlers() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let serve: &[&str] = &["serve", "--store", "memory:", "--listen", "127.0.0.1:0"];
    let command: &[&str] = &["--", "sleep", "1000"];
    for args in WRAPPERS
        .map(|wrapper| [wrapper, command].concat())
        .into_iter()
        .chain([serve.to_vec()])
    {
        let Some((process, pid)) = process_1(&daemon, &args) else {
            return;
        };
        wait::until("it blocks or handles TERM", SOON, || {
            (mask(pid, "SigBlk:") | mask(pid, "SigCgt:")) & TERM != 0
        });
        kill_process(pid, Signal::TERM).unwrap();
        let code = process.wait(SOON).unwrap().code();
        let fine = if args == serve { Some(0) } else { Some(143) };
        assert_eq!(code, fine, "{args:?}: {}", process.log());
        assert!(!is_held(&daemon), "{args:?}");
    }
}

/// A daemon in its own session, which ignores TERM, and is not the child of anything that is asked to end.
const DAEMON: &str = r#"(setsid sh -c 'trap "" TERM; echo "daemon $$"; while :; do sleep 1; done' &); sleep 0.2;"#;

fn daemon_of(process: &Process) -> String {
    said(process, "daemon ");
    let log = process.log();
    log.lines()
        .find_map(|line| line.strip_prefix("daemon "))
        .unwrap()
        .to_owned()
}

#[test]
fn daemons_of_the_command_end_before_anything_is_given_up() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    for wrapper in WRAPPERS {
        for (end, code) in [("exit 4", 4), ("exec sleep 1000", 143)] {
            let script = format!("{DAEMON} {end}");
            let args = [wrapper, &["--grace", "300ms", "--", "sh", "-c", script.as_str()]].concat();
            let process = daemon.spawn(&args);
            let left = daemon_of(&process);
            if code == 143 {
                process.signal(Signal::TERM).unwrap();
            }
            wait::until("the wrapper has ended", SOON, || {
                let has_ended = !process.is_running();
                let has_lease = wrapper == WRAPPERS[0] || is_held(&daemon);
                assert!(
                    has_lease || !exists(&left),
                    "{wrapper:?}: the lease is free beside {left}"
                );
                has_ended
            });
            assert!(!exists(&left), "{wrapper:?}, {end}");
            assert_eq!(
                process.wait(SOON).unwrap().code(),
                Some(code),
                "{wrapper:?}: {}",
                process.log()
            );
        }
    }
}

/// The watchdogs of a wrapper: children of it that run `keep`.
fn watchdogs(process: &Process) -> Vec<Pid> {
    let is_one = |pid: &Pid| {
        let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"keep")
    };
    children_of(process).into_iter().filter(is_one).collect()
}

#[test]
fn watchdog_survives_a_service_manager_and_is_replaced() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    for hit in [Signal::TERM, Signal::HUP, Signal::USR1, Signal::KILL, Signal::STOP] {
        let script = r#"trap "" TERM HUP USR1; echo "pid $$"; while :; do sleep 1; done"#;
        let process = daemon.spawn(&["lock", "q", "--ttl", "2s", "--", "sh", "-c", script]);
        said(&process, "pid ");
        let pid = process
            .log()
            .lines()
            .find_map(|line| line.strip_prefix("pid ").map(str::to_owned))
            .unwrap();
        let first = watchdogs(&process)[0];
        wait::until("it blocks signals", SOON, || mask(first, "SigBlk:") & TERM != 0);
        kill_process(first, hit).unwrap();
        if matches!(hit, Signal::KILL | Signal::STOP) {
            wait::until("another one watches", SOON, || {
                watchdogs(&process)
                    .iter()
                    .any(|pid| *pid != first && mask(*pid, "SigBlk:") & TERM != 0)
            });
        }
        // A frozen wrapper cannot stop its command in time.
        process.pause().unwrap();
        wait::until("the command is killed", SOON, || !exists(&pid));
        assert!(is_held(&daemon) || hit != Signal::TERM, "killed after its lease");
        process.resume().unwrap();
        process.wait(SOON).unwrap();
    }
}

#[test]
fn ignored_hup_stays_ignored() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    for wrapper in WRAPPERS {
        let process = spawn("nohup", |command, _| {
            let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
            assert!(args.is_empty());
            let mut nohup = Command::new("nohup");
            nohup
                .arg(env!("CARGO_BIN_EXE_tenure"))
                .args(wrapper)
                .env("TENURE_STORE", daemon.url());
            nohup.args([
                "--",
                "sh",
                "-c",
                "echo \"ready $$\"; while [ ! -e go ]; do sleep 0.02; done; exit 6",
            ]);
            nohup.current_dir(command.get_current_dir().unwrap());
            *command = nohup;
        });
        said(&process, "ready");
        process.signal(Signal::HUP).unwrap();
        process.signal(Signal::WINCH).unwrap();
        fs::write(process.dir().join("go"), "").unwrap();
        assert_eq!(
            process.wait(SOON).unwrap().code(),
            Some(6),
            "{wrapper:?}: {}",
            process.log()
        );
    }
}

#[test]
fn stopped_command_is_ended_by_term() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    for wrapper in WRAPPERS {
        let process = daemon.spawn(&[wrapper, &["--", "sh", "-c", "echo ready; kill -STOP $$; sleep 1000"]].concat());
        said(&process, "ready");
        assert_eq!(
            process.terminate(SOON).unwrap().code(),
            Some(143),
            "{wrapper:?}: {}",
            process.log()
        );
        assert!(!is_held(&daemon));
    }
}

#[test]
fn lock_run_again_is_acquired_and_not_taken_over() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    for _ in 0..2 {
        let ran = daemon.run(&["lock", "q", "--", "sh", "-c", "echo $TENURE_MEMBER"]);
        assert!(ran.code == Some(0) && ran.out.starts_with("q-"), "{ran:?}");
    }
    let page = daemon.http("GET", "/v1/groups/default/events", "").1;
    let types: Vec<_> = page["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["type"].clone())
        .collect();
    let leases: Vec<_> = types
        .iter()
        .filter(|kind| kind.as_str().unwrap().starts_with("lease_"))
        .collect();
    assert_eq!(
        leases,
        ["lease_granted", "lease_released", "lease_granted", "lease_released"],
        "{page}"
    );
}

#[test]
fn without_a_writable_place_the_command_still_runs() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let script = "echo \"<${TENURE_FILE}${TENURE_DEADLINE_FILE}>\"; exit 0";
    for wrapper in [WRAPPERS[0], WRAPPERS[2]] {
        let run = |unwritable: &str| {
            let line = format!("{unwritable} exec \"$0\" {} -- sh -c '{script}'", wrapper.join(" "));
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &line, env!("CARGO_BIN_EXE_tenure")]);
            command.env("TENURE_STORE", daemon.url()).env_remove("TMPDIR");
            crate::support::run(command)
        };
        let read_only = |dirs: &str| {
            format!("for d in {dirs}; do mount -t tmpfs -o ro none $d || {{ echo SKIPPED; exit 9; }}; done;")
        };
        let ran = run(&read_only("/tmp"));
        if ran.code == Some(9) || ran.code == Some(1) && ran.err.contains("unshare") {
            eprintln!("SKIPPED: no mount namespace can be made here");
            return;
        }
        assert!(
            ran.code == Some(0) && ran.out.starts_with("</dev/shm/tenure-"),
            "{ran:?}"
        );
        let ran = run(&read_only("/tmp /dev/shm /run"));
        assert_eq!((ran.code, ran.out.as_str()), (Some(0), "<>\n"), "{ran:?}");
        let flag = if wrapper == WRAPPERS[0] {
            "--file"
        } else {
            "--status-file"
        };
        assert!(ran.err.contains(flag), "{ran:?}");
    }
}

/// A file system whose server does not run: who looks at it waits.
#[derive(Debug)]
struct Hangs;

impl fuser::Filesystem for Hangs {}

#[test]
fn file_system_that_hangs_stops_no_wrapper() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let dir = tempfile::tempdir().unwrap();
    let Ok(_mounted) = fuser::Session::new(Hangs, dir.path(), &fuser::Config::default()) else {
        eprintln!("SKIPPED: nothing can be mounted here (needs root and /dev/fuse)");
        return;
    };
    let file = dir.path().join("progress").display().to_string();
    let join = |within: &str| {
        let progress = ["join", "--progress-file", &file, "--progress-within", within];
        daemon.spawn(&[&progress[..], &["--", "sh", "-c", "echo ready; exec sleep 1000"]].concat())
    };
    let stalled = join("300ms");
    assert_eq!(stalled.wait(SOON).unwrap().code(), Some(1), "{}", stalled.log());
    assert!(stalled.log().contains("no progress within 300ms"), "{}", stalled.log());
    let patient = join("60s");
    said(&patient, "ready");
    assert_eq!(patient.terminate(SOON).unwrap().code(), Some(143), "{}", patient.log());
    let status = dir.path().join("status.json").display().to_string();
    let run = ["run", "--leader", "always", "--status-file", &status];
    let supervised = daemon.spawn(&[&run[..], &["--", "sh", "-c", "echo ready; exec sleep 1000"]].concat());
    said(&supervised, "ready");
    assert_eq!(
        supervised.terminate(SOON).unwrap().code(),
        Some(143),
        "{}",
        supervised.log()
    );
}
