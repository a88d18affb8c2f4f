//! `tenure run` as process 1 of a namespace, as it is the entrypoint of a container.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use tenure_testkit::port::Port;
use tenure_testkit::{Process, wait};

use crate::run::PATIENCE;
use crate::run::node::{is, status};

/// The supervisor in its namespace, by the number that it has outside.
struct First {
    unshare: Process,
    pid: Pid,
}

impl First {
    /// `None`, loudly, where there can be no namespace.
    fn start(args: &[&str], script: &str) -> Option<First> {
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
            command
        };
        if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: no namespace of processes can be made here (it takes root, and `unshare`)");
            return None;
        }
        let unshare = Process::spawn("tenure run as process 1", |dir| {
            let mut command = unshare();
            command.current_dir(dir).arg(env!("CARGO_BIN_EXE_tenure"));
            command.args(["run", "--leader", "always", "--status-file", "status.json"]);
            command.args(args).args(["--", "sh", "-c", script]);
            command.env("HOLDER", std::env::current_exe().unwrap());
            command
        });
        let unshare = unshare.unwrap();
        is(&unshare, "state", "running");
        let outer = i32::try_from(unshare.pid().unwrap()).unwrap();
        let pid = children_of(outer)[0].0;
        Some(First {
            unshare,
            pid: Pid::from_raw(pid).unwrap(),
        })
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    #[track_caller]
    fn wrote(&self, name: &str) {
        let file = self.unshare.dir().join(name);
        wait::until(&format!("it has written {name}"), PATIENCE, || file.exists());
    }

    #[track_caller]
    fn ends_with(&self, code: i32) {
        let ended = self.unshare.wait(PATIENCE).unwrap().code();
        assert_eq!(ended, Some(code), "{}", self.unshare.log());
    }
}

/// The children of a process, and the state of each.
fn children_of(parent: i32) -> Vec<(i32, char)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        (fields.next()?.parse() == Ok(parent)).then_some((pid, state))
    })
    .collect()
}

#[test]
fn pid1_forwards_signals_reaps_orphans_and_keeps_exit_code() {
    let script = "i=0; while [ $i -lt 100 ]; do sh -c 'sleep 0.01 & exit 0'; i=$((i + 1)); done; \
        for s in HUP USR1 USR2 WINCH; do trap \"echo > $s\" $s; done; trap 'exit 3' TERM; echo > up; \
        while :; do sleep 0.02; done";
    let Some(first) = First::start(&[], script) else { return };
    assert_eq!(
        fs::read_to_string(format!("/proc/{}/status", first.pid))
            .unwrap()
            .lines()
            .find(|line| line.starts_with("NSpid"))
            .unwrap()
            .split_whitespace()
            .last(),
        Some("1")
    );
    first.wrote("up");
    // Only the command and its keeper are left, alive or dead.
    let pid = first.pid.as_raw_pid();
    wait::until("all orphans are buried", PATIENCE, || children_of(pid).len() == 2);
    assert!(children_of(pid).iter().all(|(_, state)| *state != 'Z'));
    for (signal, name) in [
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
    ] {
        first.signal(signal);
        first.wrote(name);
    }
    first.signal(Signal::TERM);
    first.ends_with(3);
}

#[test]
fn it_passes_every_kind_of_exit_code_on() {
    for (last, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
    ] {
        let script = format!("while [ ! -e go ]; do sleep 0.02; done; {last}");
        let Some(first) = First::start(&[], &script) else {
            return;
        };
        fs::write(first.unshare.dir().join("go"), "").unwrap();
        first.ends_with(code);
    }
}

/// A daemon, twice forked, in a session of its own, deaf for TERM, with a port that the next one needs.
#[test]
fn a_daemon_that_hides_is_gone_and_its_port_is_free() {
    let port = Port::reserve();
    let hold = "\"$HOLDER\" --ignored --exact run::process_1::the_holder_of_a_port --nocapture";
    let script = format!(
        "trap '' TERM; export PORT={}; (setsid sh -c '{hold} & exit 0' &); exec sleep 1000",
        port.number()
    );
    let probe = format!("tcp:{}", port.number());
    let args = ["--ready", &probe, "--grace", "200ms"];
    let Some(first) = First::start(&args, &script) else {
        return;
    };
    assert_eq!(status(&first.unshare)["state"], "running");
    assert!(TcpListener::bind(port.addr()).is_err(), "the port is taken");
    first.signal(Signal::TERM);
    first.ends_with(137);
    assert!(TcpListener::bind(port.addr()).is_ok(), "the port is free");
}

#[test]
#[ignore = "it is the daemon of another test, which starts it"]
fn the_holder_of_a_port() {
    let Ok(port) = std::env::var("PORT") else { return };
    let listener = TcpListener::bind(("127.0.0.1", port.parse().unwrap())).unwrap();
    listener.incoming().for_each(drop);
}
