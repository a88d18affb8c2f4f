//! The page about the way from adopted to native: its scripts are run while two programs move, one in Python and one in
//! Node.js.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tenure_testkit::valkey::{Flavour, Server};
use tenure_testkit::{Process, have, wait};

use crate::docs::text;
use crate::support::{self, Daemon};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server with the old keys, a daemon on it, and what the page's scripts need.
struct World {
    server: Server,
    daemon: Daemon,
    kind: &'static str,
    python: PathBuf,
    node: PathBuf,
    bash: PathBuf,
}

impl World {
    fn start(kind: &'static str) -> Option<Self> {
        let (python, node) = (have("python3").or_skip()?, have("node").or_skip()?);
        let bash = have("bash").or_skip()?;
        have("redis-cli").or_skip()?;
        let server = Server::start(Flavour::Valkey)?;
        let daemon = Daemon::start(&["--store", &server.url()]);
        // A new store: no lease was held in it.
        assert_eq!(daemon.http("POST", "/v1/settle", "").0, 200);
        Some(Self {
            server,
            daemon,
            kind,
            python,
            node,
            bash,
        })
    }

    /// A program in a mode, after its first round.
    fn program(&self, name: &str, mode: &str) -> Process {
        let (interpreter, file) = match name {
            "python" => (&self.python, "program.py"),
            _ => (&self.node, "program.mjs"),
        };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/native").join(file);
        let (port, url) = (self.server.port().to_string(), self.daemon.url());
        let process = Process::spawn(name, |_| {
            let mut command = Command::new(interpreter);
            command.arg(path).args([self.kind, mode, name, &port, &url]);
            command
        });
        let process = process.unwrap();
        wait::until("its first round is done", PATIENCE, || {
            assert!(process.is_running(), "{}", process.log());
            process.log().contains("round")
        });
        process
    }

    /// What the page's script says now.
    fn counts(&self) -> String {
        let page = text("docs/guides/from-adopted-to-native.md");
        let from = page.split(&format!("```sh {}\n", self.kind)).nth(1).unwrap();
        let script = from.split("```").next().unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("compare"), format!("set -eu\n{script}")).unwrap();
        let mut shell = Command::new(&self.bash);
        for (name, value) in support::tenure().get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_tenure"));
        let path = format!(
            "{}:{}",
            binary.parent().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        shell.arg("compare").current_dir(dir.path()).env("PATH", path);
        // The scripts read the old place directly, and Tenure through its daemon.
        let old = self.server.url().replace("valkey://", "redis://");
        shell.env("OLD", old).env("TENURE_STORE", self.daemon.url());
        let ran = support::run(shell);
        assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
        ran.out.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn shows(&self, step: &str, wanted: &str) {
        let mut last = String::new();
        wait::until(step, PATIENCE, || {
            last = self.counts();
            if last != wanted {
                eprintln!("{step}: {last}");
            }
            last == wanted
        });
    }

    /// Stops a program and starts it in the next mode, as a deployment does.
    fn deploy(&self, old: Process, name: &str, mode: &str) -> Process {
        old.terminate(PATIENCE).unwrap();
        self.program(name, mode)
    }

    /// Runs one pass of an adopting command.
    fn adopt(&self, args: &[&str]) {
        let url = self.server.url();
        let mut command = support::tenure();
        command.arg("adopt").args(args).args(["--store", &url]);
        let ran = support::run(command);
        assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.err);
    }
}

#[test]
fn registry_moves_to_native_and_back() {
    let Some(world) = World::start("registry") else { return };
    let adopt = [
        "registry",
        "--hash",
        "connections:registry",
        "--heartbeat",
        "instance:heartbeat:{id}",
        "--settle",
        "0s",
    ];
    let (mut a, mut b) = (world.program("python", "old"), world.program("node", "old"));
    world.adopt(&adopt);
    world.shows("both are old", "old 40, native 0, only old 40, only native 0");
    a = world.deploy(a, "python", "dual");
    world.shows("one is dual", "old 40, native 20, only old 20, only native 0");
    b = world.deploy(b, "node", "dual");
    world.adopt(&adopt);
    world.shows("both are dual", "old 40, native 40, only old 0, only native 0");
    a = world.deploy(a, "python", "native");
    wait::until("adopt removes what the native one left", PATIENCE, || {
        world.adopt(&adopt);
        world.counts() == "old 20, native 40, only old 0, only native 20"
    });
    // Back from here: dual again, then old.
    a = world.deploy(a, "python", "dual");
    world.shows("dual again", "old 40, native 40, only old 0, only native 0");
    a = world.deploy(a, "python", "old");
    world.shows("one is old again", "old 40, native 20, only old 20, only native 0");
    a = world.deploy(a, "python", "dual");
    a = world.deploy(a, "python", "native");
    b = world.deploy(b, "node", "native");
    wait::until("nothing is left in the hash", PATIENCE, || {
        world.adopt(&[&adopt[..], &["--allow-empty"]].concat());
        world.counts() == "old 0, native 40, only old 0, only native 40"
    });
    drop((a, b));
}

#[test]
fn sessions_move_to_native_and_back() {
    let Some(world) = World::start("sessions") else { return };
    let (mut a, mut b) = (world.program("python", "old"), world.program("node", "old"));
    world.shows("both are old", "old 20, native 0, only old 20, only native 0");
    a = world.deploy(a, "python", "dual");
    world.shows("one is dual", "old 20, native 10, only old 10, only native 0");
    b = world.deploy(b, "node", "dual");
    world.shows("both are dual", "old 20, native 20, only old 0, only native 0");
    // Both sides agree on who is away.
    let away = |args: &[&str]| {
        let listed = world.daemon.run(&[&["sessions", "--group", "moving"], args].concat());
        listed.out.lines().skip(1).count()
    };
    wait::until("half of them are away", PATIENCE, || {
        away(&["--state", "disconnected"]) == 10
    });
    assert_eq!(away(&["--older-than", "1h"]), 0);
    b = world.deploy(b, "node", "native");
    world.server.cli(&["DEL", "session:node-session-0"]).unwrap();
    world.shows("one is native", "old 19, native 20, only old 0, only native 1");
    // Back: a dual program writes the hash again.
    b = world.deploy(b, "node", "dual");
    world.shows("dual again", "old 20, native 20, only old 0, only native 0");
    a = world.deploy(a, "python", "native");
    b = world.deploy(b, "node", "native");
    for key in world.server.cli(&["KEYS", "session:*"]).unwrap().texts() {
        world.server.cli(&["DEL", &key]).unwrap();
    }
    world.shows("both are native", "old 0, native 20, only old 0, only native 20");
    drop((a, b));
}

#[test]
fn leases_move_to_native_and_back() {
    let Some(world) = World::start("leases") else { return };
    let has = |step: &str, wanted: &[&str]| {
        wait::until(step, PATIENCE, || {
            let counts = world.counts();
            let is_so = wanted.iter().all(|part| counts.contains(part));
            if !is_so {
                eprintln!("{step}: {counts}");
            }
            is_so
        });
    };
    let (mut a, mut b) = (world.program("python", "old"), world.program("node", "old"));
    has("both are old", &["\"old_node\": 6", "\"both\": 0"]);
    a = world.deploy(a, "python", "dual");
    b = world.deploy(b, "node", "dual");
    has("both are dual", &["\"old_node\": 0", "\"both\": 6"]);
    a = world.deploy(a, "python", "native");
    b = world.deploy(b, "node", "native");
    has("both are native", &["\"both\": 0", "\"tenure_only\": 6"]);
    a = world.deploy(a, "python", "dual");
    b = world.deploy(b, "node", "dual");
    has("both are dual again", &["\"both\": 6", "\"tenure_only\": 0"]);
    a = world.deploy(a, "python", "old");
    b = world.deploy(b, "node", "old");
    has("both are old again", &["\"old_node\": 6", "\"both\": 0"]);
    drop((a, b));
    let overlaps = world.server.cli(&["EXISTS", "overlaps"]).unwrap();
    assert_eq!(overlaps.int(), Some(0), "a target was polled twice at the same time");
    let polls = world.server.cli(&["HKEYS", "polls"]).unwrap().texts();
    for mode in ["old", "dual", "native"] {
        assert!(polls.iter().any(|poll| poll.ends_with(mode)), "{polls:?}");
    }
}
