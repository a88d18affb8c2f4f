//! `tenure run`: the command runs where this node is the primary, and nowhere else.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tenure_testkit::consul::Agent;
use tenure_testkit::port::Port;
use tenure_testkit::{Process, http, wait};

use crate::support::{Daemon, SOON, exists, run, said, tenure};

/// Runs to its end with `--leader always`.
fn always(args: &[&str], script: &str) -> crate::support::Ran {
    let mut command = tenure();
    command.args(["run", "--leader", "always"]).args(args);
    run({
        command.args(["--", "sh", "-c", script]);
        command
    })
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
    ] {
        assert_eq!(always(&[], script).code, Some(code), "{script}");
    }
    let mut command = tenure();
    command.args(["run", "--leader", "always", "--", "no-such-command-here"]);
    assert_eq!(run(command).code, Some(127));
}

#[test]
fn wrong_usage_says_what_is_missing() {
    let ran = always(&["--service", "music"], "exit 0");
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err.contains("--port") && ran.err.contains("NOMAD_PORT_http"),
        "{}",
        ran.err
    );
    for args in [
        &["--catalog", "consul://127.0.0.1:1"][..],
        &["--drain", "9s"],
        &["--ready", "tcp"],
        &["--catalog", "dns"],
    ] {
        assert_eq!(always(args, "exit 0").code, Some(2), "{args:?}");
    }
}

#[test]
fn the_command_is_told_its_role_and_where_its_deadline_is() {
    let script = r#"echo "$TENURE_ROLE"; until grep -q running "$TENURE_DEADLINE_FILE"; do sleep 0.02; done; cat "$TENURE_DEADLINE_FILE""#;
    let ran = always(&[], script);
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines[0], "primary", "{}", ran.err);
    let status: Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!(status["leadership"], "primary");
    assert_eq!(status["deadline"], Value::Null, "always has none");
}

#[test]
fn the_status_is_a_health_check() {
    let port = Port::reserve();
    let address = port.addr().to_string();
    let supervisor = Process::spawn("tenure run", |dir| {
        let mut command = tenure();
        command.current_dir(dir);
        command.args(["run", "--leader", "always", "--status-listen", &address]);
        command.args(["--ready", "exec:test -e ready", "--", "sleep", "1000"]);
        command
    });
    let supervisor = supervisor.unwrap();
    let status = || http::get(port.addr(), "/").ok();
    wait::until("it answers 503", SOON, || status().is_some_and(|(code, _)| code == 503));
    fs::write(supervisor.dir().join("ready"), "").unwrap();
    wait::until("it answers 200", SOON, || status().is_some_and(|(code, _)| code == 200));
    let (_, body) = status().unwrap();
    let status: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&status["state"], &status["runs"]), (&"running".into(), &1.into()));
}

/// Two nodes that want one lease, and a place where their commands meet.
struct Pair {
    daemon: Daemon,
    place: TempDir,
}

impl Pair {
    fn new() -> Self {
        Self {
            daemon: Daemon::start(&["--store", "memory:"]),
            place: TempDir::new().unwrap(),
        }
    }

    /// A node whose command looks whether another's is alive (one that a frozen supervisor cannot bury is not), then writes down its token and its process id.
    fn node(&self, name: &str) -> Process {
        let script = "[ -e pid ] && grep State: /proc/$(cat pid)/status 2>/dev/null | grep -qv Z && touch overlap; \
            echo $$ > pid; echo $TENURE_TOKEN >> tokens; echo $$ > $0; exec sleep 1000";
        let mut command = self.daemon.command(&["run", "--leader", "lease:music", "--ttl", "4s"]);
        command.args(["--grace", "200ms", "--member", name, "--", "sh", "-c", script, name]);
        command.current_dir(&self.place);
        Process::spawn(name, move |_| command).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Waits for the command of a node, and tells its process id.
    #[track_caller]
    fn runs(&self, name: &str) -> String {
        line_in(&self.path(name))
    }

    fn tokens(&self) -> Vec<u64> {
        let lines = fs::read_to_string(self.path("tokens")).unwrap();
        lines.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// The first node is stopped in this way; the second one takes over, and never works beside the first.
    fn is_handed_over(&self, stop: impl FnOnce(&Process)) {
        let first = self.node("a");
        let one = self.runs("a");
        let second = self.node("b");
        said(&second, "leadership: replica");
        stop(&first);
        let other = self.runs("b");
        assert!(!exists(&one) && exists(&other), "{}", second.log());
        assert!(!self.path("overlap").exists());
        let tokens = self.tokens();
        assert!(tokens.len() == 2 && tokens[0] < tokens[1], "{tokens:?}");
    }
}

#[track_caller]
fn line_in(path: &Path) -> String {
    let mut content = String::new();
    wait::until(&format!("there is {}", path.display()), SOON, || {
        content = fs::read_to_string(path).unwrap_or_default();
        content.ends_with('\n')
    });
    content.trim_end().to_owned()
}

#[test]
fn a_lease_is_handed_over_by_a_node_that_ends() {
    let pair = Pair::new();
    pair.is_handed_over(|first| {
        let status = first.terminate(SOON).unwrap();
        assert_eq!(status.code(), Some(143));
    });
}

#[test]
fn a_lease_is_taken_over_from_a_node_that_was_killed() {
    Pair::new().is_handed_over(Process::kill);
}

#[test]
fn a_lease_is_taken_over_from_a_node_that_is_frozen_after_its_command_is_dead() {
    let pair = Pair::new();
    pair.is_handed_over(|first| first.pause().unwrap());
}

#[test]
fn a_node_without_its_store_stops_its_command_before_the_lease_is_anothers() {
    let pair = Pair::new();
    let node = pair.node("a");
    let command = pair.runs("a");
    pair.daemon.process.pause().unwrap();
    wait::until("the command has ended", SOON, || !exists(&command));
    assert!(node.is_running(), "it waits for its store");
    // Nobody died while the store was away: it goes on when the store is back.
    fs::remove_file(pair.path("a")).unwrap();
    pair.daemon.process.resume().unwrap();
    pair.runs("a");
    assert!(!pair.path("overlap").exists());
}

#[test]
fn a_node_that_waits_for_its_store_ends_when_it_is_asked_to() {
    let mut command = tenure();
    command.args([
        "run",
        "--leader",
        "lease:a",
        "--store",
        "http://127.0.0.1:1",
        "--",
        "true",
    ]);
    let node = Process::spawn("tenure run", move |_| command).unwrap();
    said(&node, "out of reach");
    assert_eq!(node.terminate(SOON).unwrap().code(), Some(143));
}

#[test]
fn a_service_is_in_consul_while_it_is_ready_and_gone_before_the_process_is() {
    let Some(agent) = Agent::start() else { return };
    let consul = format!("consul://{}", agent.addr());
    let supervisor = Process::spawn("tenure run", |dir| {
        let mut command = tenure();
        command.current_dir(dir);
        command.args([
            "run",
            "--leader",
            "always",
            "--service",
            "music",
            "--port",
            "4533",
            "--catalog",
            &consul,
        ]);
        command.args(["--ready", "exec:test -e ready", "--", "sleep", "1000"]);
        command
    });
    let supervisor = supervisor.unwrap();
    let passing = || {
        let (_, body) = http::get(agent.addr(), "/v1/health/service/music?passing").unwrap();
        let found: Value = serde_json::from_str(&body).unwrap();
        found.as_array().unwrap().len()
    };
    said(&supervisor, "starting");
    assert_eq!(passing(), 0);
    fs::write(supervisor.dir().join("ready"), "").unwrap();
    wait::until("it is passing", SOON, || passing() == 1);
    supervisor.signal(Signal::TERM).unwrap();
    let status = supervisor.wait(Duration::from_secs(10)).unwrap();
    assert_eq!(status.code(), Some(143));
    let (_, body) = http::get(agent.addr(), "/v1/agent/services").unwrap();
    assert_eq!(body.trim(), "{}");
}
