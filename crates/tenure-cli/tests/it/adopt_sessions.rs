//! `tenure adopt sessions` as people and programs use it: the built binary, real servers, a client in another language
//! that goes on writing, exit codes.

mod names;
mod repair;
mod told;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tenure_testkit::program::have;
use tenure_testkit::valkey::{DURABLE, Flavour, Server};
use tenure_testkit::{Process, http, wait};

const PATIENCE: Duration = Duration::from_secs(60);

fn tenure(server: &Server, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(["adopt", "sessions", "--pattern", "session:*"]);
    command.args(["--disconnected-field", "last_disconnect", "--store", &server.url()]);
    command.args(args);
    command
}

fn output(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn run(server: &Server, args: &[&str]) -> (i32, String, String) {
    output(&mut tenure(server, args))
}

fn json(server: &Server, args: &[&str]) -> (i32, Value) {
    let (code, stdout, stderr) = run(server, &[args, &["--json"]].concat());
    let parsed = serde_json::from_str(&stdout);
    (code, parsed.unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}")))
}

#[expect(clippy::disallowed_methods, reason = "a program of others has a clock of its own")]
fn ago(seconds: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    (now - seconds).to_string()
}

/// The disconnect time of a session that becomes no orphan during the test: by a clock in the future.
#[expect(clippy::disallowed_methods, reason = "a program of others has a clock of its own")]
fn fresh() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    (now + 1_800).to_string()
}

fn session(server: &Server, id: &str, since: &str) {
    let key = format!("session:{id}");
    server.cli(&["HSET", &key, "last_disconnect", since]).unwrap();
}

fn fill(server: &Server, sessions: u32) {
    let fill = "for i = 1, tonumber(ARGV[2]) do redis.call('HSET', 'session:' .. i, 'last_disconnect', ARGV[1]) end";
    server
        .cli(&["EVAL", fill, "0", &ago(3_600), &sessions.to_string()])
        .unwrap();
}

fn keys(server: &Server, pattern: &str) -> usize {
    server.cli(&["KEYS", pattern]).unwrap().items().len()
}

fn all(server: &Server) -> Vec<String> {
    let mut keys = server.cli(&["KEYS", "*"]).unwrap().texts();
    keys.sort();
    keys.iter()
        .map(|key| format!("{key} {:?}", server.cli(&["DUMP", key]).unwrap()))
        .collect()
}

/// A restart of the store holds the reaper back for the age of an orphan.
fn has_run_for_a_while(server: &Server) {
    wait::until("the server has run for longer than an orphan's age", PATIENCE, || {
        let info = server.cli(&["INFO", "server"]).unwrap().text();
        let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        uptime.unwrap().parse::<u64>().unwrap() > 1
    });
}

#[test]
fn a_run_indexes_and_verifies_until_nothing_new_is_found_twice() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        session(&server, "a", &ago(3_600));
        session(&server, "b", &ago(10));
        session(&server, "c", "0");
        server.cli(&["SET", "session:a:refs", "0"]).unwrap();
        let before = all(&server);
        let (code, stdout, stderr) = run(&server, &["--dry-run", "--verbose"]);
        assert_eq!(code, 0, "{stderr}");
        assert_eq!(
            stdout,
            "KEYS  DISCONNECTED  ADDED  UPDATED  REMOVED  ENTRIES\n4     2             2      0        0        0\n"
        );
        assert!(
            stderr.contains("a disconnected ") && stderr.contains("nothing was written"),
            "{stderr}"
        );
        assert!(stderr.contains("1 keys of the pattern are not hashes"), "{stderr}");
        assert!(!stderr.contains('\r'), "no progress without a terminal: {stderr}");
        assert_eq!(all(&server), before);

        let (code, first) = json(&server, &[]);
        assert_eq!(
            (code, &first["added"], &first["verified"]),
            (0, &2.into(), &true.into())
        );
        assert_eq!((&first["quiet_passes"], &first["migrated"]), (&0.into(), &false.into()));
        let (code, _, stderr) = run(&server, &[]);
        assert!(code == 0 && stderr.contains("1 of 2 passes in a row"), "{stderr}");
        // An old writer is still about.
        session(&server, "d", &ago(5));
        let quiet: Vec<_> = (0..3).map(|_| json(&server, &[]).1["quiet_passes"].clone()).collect();
        assert_eq!(quiet, [0, 1, 2]);
        let (code, _, stderr) = run(&server, &[]);
        assert!(code == 0 && stderr.contains("migrated: 3 passes in a row"), "{stderr}");
    }
}

#[test]
fn mistyped_pattern_or_field_is_neither_verified_nor_migrated() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    session(&server, "a", &ago(3_600));
    let mistyped = ["--pattern", "sesion:*"];
    for _ in 0..4 {
        let (code, _, stderr) = run_mistyped(&server, &mistyped);
        assert!(code == 1 && stderr.contains("is --pattern right?"), "{stderr}");
        assert!(!stderr.contains("verified") && !stderr.contains("migrated"), "{stderr}");
    }
    let (code, stdout, _) = run_mistyped(&server, &[&mistyped[..], &["--json"]].concat());
    let told: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (code, &told["verified"], &told["migrated"]),
        (1, &false.into(), &false.into())
    );
    session(&server, "b", "yesterday");
    let (_, _, stderr) = run(&server, &[]);
    assert!(stderr.contains("session b: \"yesterday\""), "{stderr}");
}

/// Runs it with another pattern than that of the other tests.
fn run_mistyped(server: &Server, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(["adopt", "sessions", "--store", &server.url()]);
    output(command.args(["--disconnected-field", "last_disconnect"]).args(args))
}

#[test]
fn undo_of_a_shared_index_asks_first() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    session(&server, "a", &ago(3_600));
    let shared: &[&str] = &["--index", "disconnected"];
    assert_eq!(run(&server, shared).0, 0);
    let (code, _, stderr) = run(&server, &[shared, &["--undo"]].concat());
    assert!(
        code == 2 && stderr.contains("--yes") && stderr.contains("disconnected"),
        "{stderr}"
    );
    assert_eq!(server.cli(&["ZCARD", "disconnected"]).unwrap().int(), Some(1));
    let (code, _, stderr) = run(&server, &[shared, &["--undo", "--yes"]].concat());
    assert_eq!((code, keys(&server, "disconnected")), (0, 0), "{stderr}");
}

#[test]
fn compare_fails_on_differences_and_undo_removes_all() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::start(flavour) else { return };
        session(&server, "a", &ago(3_600));
        let before = all(&server);
        let shared: &[&str] = &["--index", "disconnected"];
        assert_eq!(
            run(&server, &[shared, &["--compare"]].concat()).0,
            1,
            "nothing is indexed yet"
        );
        assert_eq!(run(&server, shared).0, 0);
        let (code, equal) = json(&server, &[shared, &["--compare"]].concat());
        assert_eq!((code, &equal["equal"]), (0, &true.into()), "{equal}");
        server.cli(&["ZADD", "disconnected", "7", "nobody"]).unwrap();
        let (code, stdout, stderr) = run(&server, &[shared, &["--compare"]].concat());
        assert_eq!(
            (code, stdout.as_str()),
            (
                1,
                "SESSION  ENTRY  DISCONNECTED  INDEX  OURS\nnobody   extra  -             7      no\n"
            ),
            "{stderr}"
        );
        assert!(stderr.contains("0 missing, 1 extra, 0 differing"), "{stderr}");
        let (code, told) = json(&server, &[shared, &["--undo", "--dry-run"]].concat());
        assert_eq!((code, &told["removed"]), (0, &1.into()));
        let (code, stdout, _) = run(&server, &[shared, &["--undo", "--yes"]].concat());
        assert_eq!((code, stdout.as_str()), (0, "REMOVED  NOT OURS\n1        0\n"));
        server.cli(&["ZREM", "disconnected", "nobody"]).unwrap();
        assert_eq!(all(&server), before);
    }
}

#[test]
fn orphans_are_reaped_once_and_not_after_a_store_restart() {
    for flavour in Flavour::ALL {
        let Some(server) = Server::with(flavour, DURABLE) else {
            return;
        };
        for id in ["orphan", "counted", "active", "new"] {
            session(&server, id, &ago(3_600));
            let (session, refs, alias) = (
                format!("session:{id}"),
                format!("session:{id}:refs"),
                format!("alias:b-{id}"),
            );
            server
                .cli(&["HSET", &session, "broadcaster_id", &format!("b-{id}")])
                .unwrap();
            server.cli(&["SET", &refs, "0"]).unwrap();
            server.cli(&["SET", &alias, id]).unwrap();
        }
        assert_eq!(run(&server, &[]).0, 0);
        server.cli(&["INCR", "session:counted:refs"]).unwrap();
        session(&server, "active", "0");
        session(&server, "new", &fresh());
        let common = [
            "--reap",
            "--refs",
            "session:{id}:refs",
            "--alias",
            "alias:{field:broadcaster_id}",
        ];
        let args = [&common[..], &["--max-age", "5s"]].concat();
        // This age is certainly not over since the restart.
        let patient = [&common[..], &["--max-age", "30m"]].concat();
        server.restart_with_data();
        let (code, stdout, stderr) = run(&server, &patient);
        assert!(
            code == 1 && stderr.contains("held back for another"),
            "{stdout}{stderr}"
        );
        assert!(
            stderr.contains("server was restarted") && keys(&server, "session:orphan") == 1,
            "{stderr}"
        );
        let before = all(&server);
        let (code, told) = json(&server, &[&patient[..], &["--dry-run"]].concat());
        assert_eq!(
            (code, &told["quarantined"]["reason"]),
            (0, &"restarted".into()),
            "{told}"
        );
        assert_eq!(all(&server), before);
        let reaped = std::cell::Cell::new((0, String::new()));
        wait::until("the store has been steady for the age of an orphan", PATIENCE, || {
            let (code, stdout, stderr) = run(&server, &[&args[..], &["--verbose"]].concat());
            reaped.set((code, stdout + &stderr));
            code == 0
        });
        let (_, told) = reaped.into_inner();
        assert!(told.contains("4          1       0     1       1        1\n"), "{told}");
        assert!(told.contains("tenure: orphan reaped"), "{told}");
        assert_eq!(
            (keys(&server, "session:orphan*"), keys(&server, "alias:b-orphan")),
            (0, 0)
        );
        assert_eq!((keys(&server, "session:*"), keys(&server, "alias:*")), (6, 3));
        assert_eq!(keys(&server, "*:reaper:*"), 0);
    }
}

#[test]
fn a_run_that_was_killed_is_run_again() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    fill(&server, 5_000);
    let entries = || {
        let found = server.cli(&["KEYS", "tenure:*:index"]).unwrap().texts();
        found
            .first()
            .map_or(0, |key| server.cli(&["ZCARD", key]).unwrap().int().unwrap())
    };
    let killed = Process::spawn("adopt-sessions", |_| tenure(&server, &["--rate", "500"])).unwrap();
    wait::until("it has indexed some", PATIENCE, || entries() > 0);
    killed.kill();
    let some = entries();
    assert!(some < 5_000, "{some}");
    let (code, again) = json(&server, &["--rate", "1000000"]);
    assert_eq!((code, &again["added"]), (0, &(5_000 - some).into()), "{again}");
    assert_eq!((entries(), run(&server, &["--compare"]).0), (5_000, 0));
}

#[test]
fn usage_errors_and_failures_have_exit_codes() {
    let Some(server) = Server::start(Flavour::Redis) else {
        return;
    };
    let usage: &[(&[&str], &str)] = &[
        (&["--unit", "m"], "s or ms"),
        (&["--rate", "0"], "at least 1"),
        (&["--max-age", "10ms"], "below 1s"),
        (&["--interval", "10ms"], "below 1s"),
        (&["--metrics-listen", "127.0.0.1:0"], "--interval"),
        (&["--refs", "refs"], "same for every session"),
        (&["--reap", "--refs", "r:{field:x}"], "{id} alone"),
        (&["--alias", "a:{field:}"], "{field:NAME}"),
        (&["--reap", "--undo"], "--undo"),
        (&["--compare", "--dry-run"], "--dry-run"),
        (&["--undo", "--interval", "5s"], "--interval"),
    ];
    for (args, must_say) in usage {
        let (code, _, stderr) = run(&server, args);
        assert!(code == 2 && stderr.contains(must_say), "{args:?}: {code} {stderr}");
    }
    let bare = |args: &[&str]| {
        output(
            Command::new(env!("CARGO_BIN_EXE_tenure"))
                .args(["adopt", "sessions"])
                .args(args),
        )
    };
    let (code, _, stderr) = bare(&[
        "--pattern",
        "s",
        "--disconnected-field",
        "f",
        "--store",
        "valkey://127.0.0.1:1",
    ]);
    assert!(code == 2 && stderr.contains("session:*"), "{stderr}");
    let (code, _, stderr) = bare(&["--pattern", "s:*", "--store", "valkey://127.0.0.1:1"]);
    assert!(code == 2 && stderr.contains("--disconnected-field"), "{stderr}");
    server.cli(&["SET", "taken", "x"]).unwrap();
    let (code, _, stderr) = run(&server, &["--index", "taken"]);
    assert!(code == 1 && stderr.contains("not a sorted set"), "{stderr}");
    // A unit that is the other one finds nothing, and says so.
    session(&server, "a", &ago(3_600));
    let (code, _, stderr) = run(&server, &["--unit", "ms"]);
    assert!(code == 0 && stderr.contains("is the unit right"), "{stderr}");
    server.kill();
    let (code, _, stderr) = run(&server, &[]);
    assert!(code == 1 && stderr.contains("out of reach"), "{stderr}");
}

#[test]
fn a_file_serves_the_daemon_and_a_look_by_hand() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    session(&server, "a", &ago(3_600));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tenure.toml");
    let settings = format!(
        "[adopt.sessions]\npattern = \"session:*\"\ndisconnected_field = \"last_disconnect\"\nstore = \"{}\"\n\
         max_age = \"1s\"\ninterval = \"1s\"\nindex_every = \"1s\"\nmetrics_listen = \"127.0.0.1:0\"\n",
        server.url()
    );
    std::fs::write(&file, settings).unwrap();
    let with_file = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.args(["adopt", "sessions", "--config"]).arg(&file).args(args);
        command
    };
    let (code, stdout, stderr) = output(&mut with_file(&["--dry-run"]));
    assert!(
        code == 0 && stdout.contains("1     1             1"),
        "{stdout}{stderr}"
    );
    // Without --reap the daemon keeps the index, and deletes nothing.
    let daemon = Process::spawn("adopt-sessions-index", |_| with_file(&[])).unwrap();
    wait::until("it is indexed", PATIENCE, || keys(&server, "tenure:*:index") == 1);
    assert_eq!(daemon.terminate(PATIENCE).unwrap().code(), Some(0), "{}", daemon.log());
    assert_eq!(keys(&server, "session:*"), 1);
    let daemon = Process::spawn("adopt-sessions-reap", |_| with_file(&["--reap"])).unwrap();
    wait::until("it is reaped", PATIENCE, || keys(&server, "session:*") == 0);
    assert!(daemon.log().contains("/metrics"), "{}", daemon.log());
}

fn metric(address: SocketAddr, name: &str) -> f64 {
    let body = http::get(address, "/metrics").unwrap().1;
    let wanted = format!("{name}{{sessions=\"session:*\"}} ");
    let found = body
        .lines()
        .find_map(|line| line.strip_prefix(&wanted).map(str::to_owned));
    found.map_or(0.0, |value| value.parse().unwrap())
}

#[test]
fn foreign_writer_loses_no_active_session() {
    let Some(python) = have("python3").or_skip() else {
        return;
    };
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/adopt_sessions/writer.py");
    for (flavour, unit) in [(Flavour::Valkey, "s"), (Flavour::Redis, "ms")] {
        let Some(server) = Server::start(flavour) else { return };
        has_run_for_a_while(&server);
        let writer = Process::spawn("writer", |_| {
            let mut command = Command::new(&python);
            command
                .arg(&program)
                .arg(server.port().to_string())
                .args(["300", "7", unit]);
            command
        })
        .unwrap();
        let args = [
            "--reap",
            "--interval",
            "1s",
            "--index-every",
            "1s",
            "--max-age",
            "1s",
            "--unit",
            unit,
            "--refs",
            "session:{id}:refs",
            "--alias",
            "alias:{field:broadcaster_id}",
            "--metrics-listen",
            "127.0.0.1:0",
        ];
        let daemons = [(); 2].map(|()| Process::spawn("adopt-sessions", |_| tenure(&server, &args)).unwrap());
        let addresses = daemons.each_ref().map(|daemon| -> SocketAddr {
            wait::until("its address is printed", PATIENCE, || daemon.log().contains("/metrics"));
            let log = daemon.log();
            let url = log.lines().find_map(|line| line.strip_prefix("http://")).unwrap();
            url.trim_end_matches("/metrics").parse().unwrap()
        });
        wait::until(
            "hundreds of sessions came back after they were reaped",
            PATIENCE,
            || {
                let log = writer.log();
                assert!(!log.contains("VIOLATION"), "{log}");
                log.contains("gone 300")
            },
        );
        assert_eq!(writer.terminate(PATIENCE).unwrap().code(), Some(0), "{}", writer.log());
        let log = writer.log();
        let said = |name: &str| -> f64 {
            let words = log.lines().find(|line| line.starts_with("DONE")).unwrap().split(' ');
            words
                .filter_map(|word| word.strip_prefix(name))
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        wait::until("all that is left is reaped", PATIENCE, || {
            keys(&server, "session:*") == 0
        });
        assert_eq!(keys(&server, "alias:*"), 0, "and nothing that went with it is left");
        let wanted = said("gone=") + said("known=");
        let counted = || {
            addresses
                .iter()
                .map(|address| metric(*address, "tenure_orphan_sessions_deleted_total"))
                .sum::<f64>()
        };
        wait::until("each is counted", PATIENCE, || counted() >= wanted);
        assert!(
            (counted() - wanted).abs() < 0.5,
            "each exactly once: {} of {wanted}",
            counted()
        );
        assert!(metric(addresses[0], "tenure_orphan_cleanup_keys_scanned_total") > 0.0);
        assert!(metric(addresses[0], "tenure_orphan_cleanup_duration_seconds_count") > 0.0);
        for daemon in daemons {
            assert_eq!(daemon.terminate(PATIENCE).unwrap().code(), Some(0), "{}", daemon.log());
        }
        assert_eq!(keys(&server, "*:reaper:*"), 0);
        assert_eq!(run(&server, &["--undo", "--unit", unit]).0, 0);
        assert_eq!(keys(&server, "*"), 0, "nothing is left behind");
    }
}

#[test]
fn reap_only_daemon_reports_its_index_without_a_scan() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    has_run_for_a_while(&server);
    fill(&server, 3);
    server.cli(&["SET", "refs:1", "1"]).unwrap();
    assert_eq!(run(&server, &[]).0, 0);
    let args = ["--reap", "--interval", "1s", "--max-age", "1s", "--refs", "refs:{id}"];
    let listen = ["--metrics-listen", "127.0.0.1:0"];
    let daemon = Process::spawn("adopt-sessions", |_| tenure(&server, &[&args[..], &listen].concat())).unwrap();
    wait::until("its address is printed", PATIENCE, || daemon.log().contains("/metrics"));
    let log = daemon.log();
    let url = log.lines().find_map(|line| line.strip_prefix("http://")).unwrap();
    let address: SocketAddr = url.trim_end_matches("/metrics").parse().unwrap();
    let told = |name: &str| http::get(address, "/metrics").unwrap().1.contains(name);
    for begun in ["interval_seconds", "last_success_timestamp_seconds"] {
        let begun = format!("tenure_adopt_sessions_{begun}{{sessions=\"session:*\",pass=\"reap\"}} ");
        wait::until("its passes have begun", PATIENCE, || told(&begun));
    }
    wait::until("one entry is left, whose session is referred to", PATIENCE, || {
        told("tenure_adopt_sessions_index_entries{sessions=\"session:*\"} 1\n")
    });
    // Disconnected an hour ago, and an orphan after a second.
    assert!(metric(address, "tenure_adopt_sessions_oldest_overdue_seconds") > 3_590.0);
    assert!(told(
        "tenure_orphan_cleanup_keys_scanned_total{sessions=\"session:*\"} 0\n"
    ));
    assert_eq!(daemon.terminate(PATIENCE).unwrap().code(), Some(0), "{}", daemon.log());
}
