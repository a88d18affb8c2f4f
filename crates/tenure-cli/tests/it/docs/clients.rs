//! The clients in other languages (`examples/http`), against a real daemon: what they hold, how they leave, and that they
//! stop in time when no daemon answers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tenure_testkit::{Mode, Process, Proxy, have, wait};

use crate::docs::root;
use crate::support::{Daemon, run};

/// What a client may take until it works: interpreters start slowly on a busy machine.
const SLOW: Duration = Duration::from_secs(60);

/// How a client is started, without its arguments.
type Client = Box<dyn Fn() -> Command>;

fn script(interpreter: &Path, file: &str) -> Client {
    let (interpreter, file) = (interpreter.to_owned(), root().join("examples/http").join(file));
    Box::new(move || {
        let mut command = Command::new(&interpreter);
        command.arg(&file);
        command
    })
}

/// A client that talks to the daemon through a proxy.
#[track_caller]
fn start(client: &Client, proxy: &Proxy, member: &str, ttl: u32) -> Process {
    Process::spawn(member, |dir| {
        let mut command = client();
        command.args(["g", member]).current_dir(dir);
        command
            .env("TENURE_STORE", proxy.url("http"))
            .env("TENURE_TTL", format!("{ttl}s"));
        command.env_remove("TENURE_TOKEN");
        command
    })
    .expect("it can be started")
}

fn rounds(process: &Process) -> usize {
    process.log().lines().filter(|line| line.starts_with("work ")).count()
}

#[track_caller]
fn works(process: &Process) {
    wait::until("it works", SLOW, || {
        assert!(process.is_running(), "it ended: {}", process.log());
        rounds(process) > 2
    });
}

fn is_alive(daemon: &Daemon, member: &str) -> bool {
    let path = format!("/v1/groups/g/registries/devices/claims/device-of-{member}");
    let (_, claim) = daemon.http("GET", &path, "");
    claim["alive"] == true && claim["owner"] == member
}

/// It holds what it should, and gives it back when it is asked to end.
fn holds_and_leaves(client: &Client) {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let proxy = Proxy::start(daemon.addr);
    let process = start(client, &proxy, "worker", 20);
    works(&process);
    assert!(is_alive(&daemon, "worker"));
    let (_, lease) = daemon.http("GET", "/v1/groups/g/leases/report", "");
    assert_eq!(
        (&lease["holder"], &lease["alive"]),
        (&"worker".into(), &true.into()),
        "{lease}"
    );
    let token = lease["token"].to_string();
    assert!(process.log().contains(&format!("work {token}\n")), "{}", process.log());

    let status = process.terminate(SLOW).expect("it ends when it is asked to");
    assert_eq!(status.code(), Some(0), "{}", process.log());
    assert!(process.log().contains("left\n"), "{}", process.log());
    assert!(!is_alive(&daemon, "worker"));
    let next = daemon.join("g", "next", 20_000);
    let free = daemon.granted("g", "report", &[&next], 20_000);
    assert_eq!(free["outcome"], "granted", "the lease is free at once: {free}");
}

/// When cut off, it stops before another client can start, and exits.
fn fails_closed(client: &Client) {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let proxy = Proxy::start(daemon.addr);
    // Long enough for a short stall of the machine.
    let process = start(client, &proxy, "worker", 8);
    works(&process);
    proxy.set(Mode::BlackHole);
    let next = daemon.join("g", "next", 20_000);
    wait::until("the other client has the lease", SLOW, || {
        daemon.beat("g", &[&next], 20_000);
        daemon.acquire("g", "report", &next).0 == 200
    });
    let before = rounds(&process);
    let status = process.wait(SLOW).expect("it ends by itself");
    assert_eq!(status.code(), Some(3), "{}", process.log());
    assert!(process.log().contains("lost "), "{}", process.log());
    assert_eq!(rounds(&process), before, "two worked at once: {}", process.log());
}

macro_rules! client {
    ($language:ident, $client:expr) => {
        mod $language {
            use super::*;

            #[test]
            fn holds_and_leaves() {
                let Some(client) = $client else { return };
                super::holds_and_leaves(&client);
            }

            #[test]
            fn fails_closed() {
                let Some(client) = $client else { return };
                super::fails_closed(&client);
            }
        }
    };
}

client!(
    curl,
    have("curl")
        .or_skip()
        .and(have("bash").or_skip())
        .map(|bash| script(&bash, "client.sh"))
);
client!(
    python,
    have("python3").or_skip().map(|python| script(&python, "client.py"))
);
client!(
    javascript,
    have("node").or_skip().map(|node| script(&node, "client.mjs"))
);
client!(go, have("go").or_skip().map(|go| built(&go)));

/// The client in Go, built once for all tests by go's own cache.
fn built(go: &Path) -> Client {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("go");
    std::fs::create_dir_all(&place).expect("the folder of the tests is ours");
    // Both tests build, and each has a file of its own to build into.
    let binary = place.join(format!("client-{}", std::process::id()));
    let mut command = Command::new(go);
    command
        .args(["build", "-o"])
        .arg(&binary)
        .arg("client.go")
        .current_dir(root().join("examples/http"))
        .env("GOCACHE", place.join("cache"))
        .env("GOFLAGS", "-mod=mod")
        .env("GOTOOLCHAIN", "local");
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    Box::new(move || Command::new(&binary))
}
