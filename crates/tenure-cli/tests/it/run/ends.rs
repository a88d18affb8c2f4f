//! Every way out: the exit code is the command's, and nothing of the service is left in Consul.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use tenure_testkit::consul::Agent;
use tenure_testkit::port::Port;
use tenure_testkit::{Process, wait};

use crate::run::PATIENCE;
use crate::run::beats::shell;
use crate::run::found::registered;
use crate::run::mount::Mount;
use crate::run::node::{is, looking_at, running};
use crate::support::{Daemon, Lateness, run, said, tenure};

#[test]
fn the_exit_code_is_that_of_the_command() {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
        ("exec no-such-command-here", 127),
    ] {
        let mut command = tenure();
        command.args(["run", "--leader", "always", "--", "sh", "-c", script]);
        assert_eq!(run(command).code, Some(code), "{script}");
    }
    let mut command = tenure();
    command.args(["run", "--leader", "always", "--", "no-such-command-here"]);
    assert_eq!(run(command).code, Some(127));
    let mut command = tenure();
    command.args(["run", "--leader", "always", "--", "/"]);
    assert_eq!(run(command).code, Some(126));
}

/// A node that is found, and ends in the way that `end` makes it end, with this exit code.
fn leaves(agent: &Agent, args: &[&str], script: &str, code: i32, end: impl FnOnce(&Process)) {
    assert_eq!(left(agent, args, script, end).0, Some(code), "{script}");
}

/// The same with any exit code, and the delay of the machine in between.
fn left(agent: &Agent, args: &[&str], script: &str, end: impl FnOnce(&Process)) -> (Option<i32>, Duration) {
    let catalog = format!("consul://{}", agent.addr());
    let service = ["--service", "music", "--port", "4533", "--catalog", &catalog];
    let supervisor = running("a", &[args, &service].concat(), &shell(script), |_| ());
    is(&supervisor, "catalog", "passing");
    wait::until("the command is up", PATIENCE, || supervisor.dir().join("up").exists());
    assert_eq!(registered(agent).len(), 1);
    let lateness = Lateness::watch();
    end(&supervisor);
    let ended = supervisor.wait(PATIENCE).unwrap().code();
    assert_eq!(registered(agent), [""; 0], "{script}: {}", supervisor.log());
    eprintln!("{script} ended with {ended:?}: {}", supervisor.log_tail());
    (ended, lateness.so_far())
}

const WAITS: &str = "echo > up; while [ ! -e go ]; do sleep 0.02; done";
const WORKS: &str = "echo > up; while :; do sleep 0.02; done";

fn go(supervisor: &Process) {
    fs::write(supervisor.dir().join("go"), "").unwrap();
}

#[test]
fn stop_does_not_wait_for_an_agent_that_never_was() {
    let port = Port::reserve();
    let catalog = format!("consul://{}", port.addr());
    let args = ["--leader", "always", "--stop-budget", "100s", "--catalog", &catalog];
    let service = ["--service", "music", "--port", "4533"];
    let supervisor = running("a", &[&args[..], &service].concat(), &shell(WORKS), |_| ());
    wait::until("the command is up", PATIENCE, || supervisor.dir().join("up").exists());
    said(&supervisor, "the catalog request failed");
    supervisor.signal(Signal::TERM).unwrap();
    let ended = supervisor.wait(Duration::from_secs(50));
    assert_eq!(ended.unwrap().code(), Some(143), "{}", supervisor.log());
}

#[test]
fn whatever_ends_it_the_service_is_gone_before_the_process_is() {
    let Some(agent) = Agent::start() else { return };
    let always = ["--leader", "always", "--drain", "50ms"];
    for (last, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -9 $$", 137),
        ("kill -ABRT $$", 134),
    ] {
        leaves(&agent, &always, &format!("{WAITS}; {last}"), code, go);
    }
    let traps = format!("trap 'exit 9' TERM; {WORKS}");
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        leaves(&agent, &always, &traps, 9, |it| it.signal(signal).unwrap());
    }
    let deaf = format!("trap '' TERM; {WORKS}");
    leaves(&agent, &["--leader", "always", "--grace", "200ms"], &deaf, 137, |it| {
        it.signal(Signal::TERM).unwrap();
    });
    let (ended, late) = left(&agent, &["--leader", "always", "--drain", "2s"], &deaf, |it| {
        it.signal(Signal::TERM).unwrap();
        said(it, "to=\"draining\"");
        it.signal(Signal::TERM).unwrap();
    });
    // After two requests it has half a second. If the machine stalls that long, it exits as requested before it notices the
    // death of the command.
    let is_late = late > Duration::from_millis(250);
    assert!(
        ended == Some(137) || ended == Some(143) && is_late,
        "{ended:?}, {late:?} late"
    );
    // A command that ends its work succeeds, and one that fails is restarted.
    let twice = format!("[ -e up ] && {{ rm -f go; {WAITS}; exit 0; }}; {WAITS}; exit 5");
    leaves(
        &agent,
        &["--leader", "always", "--restart", "on-failure"],
        &twice,
        0,
        |it| {
            go(it);
            wait::until("it was started again", PATIENCE, || {
                crate::run::node::status(it)["runs"] == 2
            });
            is(it, "catalog", "passing");
            wait::until("the second takes its time", PATIENCE, || !it.dir().join("go").exists());
            go(it);
        },
    );
}

#[test]
fn demoted_node_deregisters_and_stops_immediately() {
    let (Some(agent), Some(mount)) = (Agent::start(), Mount::start()) else {
        return;
    };
    let leader = format!("litefs:{}", mount.dir().display());
    leaves(&agent, &looking_at(&leader, &[]), WORKS, 143, |it| {
        mount.follow();
        is(it, "state", "waiting");
        is(it, "catalog", "absent");
        assert_eq!(registered(&agent), [""; 0]);
        it.signal(Signal::TERM).unwrap();
    });
}

/// Its membership is over for good, and the command takes the end that comes of it well.
#[test]
fn superseded_member_exits_1() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let url = daemon.url();
    let args = [
        "--leader",
        "lease:music",
        "--group",
        "players",
        "--member",
        "a",
        "--store",
        &url,
    ];
    let supervisor = running("a", &args, &shell(&format!("trap 'exit 0' TERM; {WORKS}")), |_| ());
    wait::until("the command is up", PATIENCE, || supervisor.dir().join("up").exists());
    daemon.join("players", "a", 60_000);
    let ended = supervisor.wait(PATIENCE).unwrap().code();
    assert_eq!(ended, Some(1), "{}", supervisor.log());
}

#[test]
fn crashed_command_leaves_no_cleanup_order() {
    let Some(agent) = Agent::start() else { return };
    let daemon = Daemon::start(&["--store", "memory:"]);
    let url = daemon.url();
    let orders = || {
        let (status, sessions) = daemon.http("GET", "/v1/groups/players/sessions", "");
        assert_eq!(status, 200, "{sessions}");
        sessions.to_string().matches("\"consul:").count()
    };
    let args = ["--leader", "always", "--group", "players", "--store", &url];
    leaves(&agent, &args, &format!("{WAITS}; exit 3"), 3, |it| {
        wait::until("the registration is held", PATIENCE, || orders() == 1);
        go(it);
    });
    assert_eq!(orders(), 0);
}
