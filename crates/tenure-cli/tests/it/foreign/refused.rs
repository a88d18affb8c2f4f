//! Text of a server that refuses every call, of the command line and of the environment.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use serde_json::json;

use super::{FOREIGN, clean};
use crate::support::{run, tenure};

/// A server that answers every request with the same refusal.
fn refuses() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    let problem = json!({
        "type": "urn:tenure:problem:invalid", "title": FOREIGN, "status": 422, "code": "invalid", "detail": FOREIGN,
    });
    let body = problem.to_string();
    let answer = format!(
        "HTTP/1.1 422 X\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (mut stream, answer) = (stream, answer.clone());
            std::thread::spawn(move || {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head);
                let _ = stream.write_all(answer.as_bytes());
            });
        }
    });
    addr
}

/// Every command that talks to a store, and how.
const CALLS: &[&[&str]] = &[
    &["join", "--", "true"],
    &["lock", "l", "--", "true"],
    &["claim", "r", "k", "--as", "m@1"],
    &["acquire", "l", "--as", "m@1"],
    &["release", "lease", "l", "--as", "m@1"],
    &["labels", "a=b", "--as", "m@1"],
    &["expel", "m@1", "--yes"],
    &["groups"],
    &["members"],
    &["members", "m"],
    &["claims", "--registry", "r"],
    &["leases"],
    &["leases", "release", "l"],
    &["targets"],
    &["targets", "add", "t"],
    &["sessions"],
    &["sessions", "delete", "s"],
    &["roster", "list"],
    &["roster", "names"],
    &["roster", "put", "a"],
    &["roster", "online", "a"],
    &["roster", "reserve"],
    &["roster", "log"],
    &["roster", "settings"],
    &["events"],
    &["why", "m"],
    &["status"],
    &["sweep"],
    &["settle", "--yes"],
    &["doctor"],
    &["bench", "--members", "1", "--for", "1s"],
];

/// Commands that talk to no store, or have tests of their own: the log of a daemon and of a supervisor, foreign keys, and
/// what only prints its own text.
const OTHERS: &[&str] = &[
    "serve",
    "run",
    "adopt",
    "restore",
    "token",
    "config",
    "demo",
    "completions",
    "man",
    "help",
];

#[test]
fn every_command_escapes_the_words_of_a_server() {
    let url = format!("http://{}", refuses());
    for args in CALLS {
        let ran = clean(|| {
            let mut command = tenure();
            command.args(*args).env("TENURE_STORE", &url);
            command
        });
        let all = ran.out + &ran.err;
        assert_ne!(ran.code, Some(0), "{args:?}: {all}");
        assert!(
            all.contains("\\x1b[2J") && all.contains("\\nFORGED"),
            "{args:?}: {all:?}"
        );
    }
}

/// A new command has to be in one of the two lists.
#[test]
fn every_command_is_tried_with_foreign_text() {
    let mut help = tenure();
    help.arg("--help");
    let help = run(help).out;
    let named = help.lines().filter_map(|line| line.strip_prefix("  "));
    let commands =
        named.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()) && !line.starts_with("tenure"));
    let mut count = 0;
    for command in commands.filter_map(|line| line.split_whitespace().next()) {
        let is_tried = CALLS.iter().any(|call| call[0] == command) || OTHERS.contains(&command);
        assert!(is_tried, "{command}");
        count += 1;
    }
    assert!(count > 25, "{count} commands in {help}");
}

#[test]
fn usage_errors_and_help_escape_arguments_and_variables() {
    let foreign = FOREIGN.trim_end_matches('\0');
    for args in [
        &["members", "--group", foreign][..],
        &["members", "--limit", foreign],
        &["members", foreign],
        &["members", "--store", foreign],
        &["members", "--after", foreign],
        &[foreign],
        &["--color", foreign],
        &["members", &format!("--{foreign}")],
        &["events", "--type", foreign],
        &["why", foreign],
        &["doctor", "--store", "memory:", "--ledger", foreign],
        &["serve", "--config", foreign],
        &["serve", "--store", foreign],
        &["serve", "--log", foreign],
        &["restore", foreign],
        &["adopt", "leases", "--pattern", foreign, "--store", foreign],
        &["join", "--store", "memory:", "--", foreign],
    ] {
        let ran = clean(|| {
            let mut command = tenure();
            command.args(args);
            command
        });
        assert_ne!(ran.code, Some(0), "{args:?}");
    }
    for (name, args) in [
        ("TENURE_GROUP", &["members"][..]),
        ("TENURE_GROUP", &["members", "--help"]),
        ("TENURE_TTL", &["join", "--help"]),
        ("TENURE_TTL", &["join", "--", "true"]),
        ("TENURE_STORE", &["members"]),
        ("TENURE_LOG", &["run", "--leader", "always", "--", "true"]),
        ("TENURE_LOG_FORMAT", &["doctor"]),
        ("TENURE_TOKEN_FILE", &["members"]),
        ("TENURE_MAX_TTL", &["serve", "--store", "memory:"]),
        ("TENURE_LISTEN", &["config", "explain"]),
        ("TENURE_DATA_DIR", &["config", "explain"]),
    ] {
        clean(|| {
            let mut command = tenure();
            command.args(args).env(name, foreign);
            command
        });
    }
}
