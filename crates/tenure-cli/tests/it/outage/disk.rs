//! A write of the store's file fails for another reason than a full disk.

use std::process::Command;

use serde_json::json;
use tenure_testkit::http;

use crate::support::{Daemon, SOON, address_in};

/// Makes the daemon run with a limit on the size of the files it writes, 1 MiB. A write beyond it fails with `EFBIG`, which
/// SQLite reports as a failed write.
fn limit_files(command: &mut Command) {
    let mut limited = Command::new("sh");
    limited.args(["-c", r#"trap '' XFSZ; ulimit -f 2048; exec "$0" "$@""#]);
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        limited.current_dir(dir);
    }
    *command = limited;
}

fn keys(batch: u32) -> Vec<String> {
    (0..100).map(|n| format!("device-{batch}-{n:060}")).collect()
}

/// Claims a batch of keys. Answers whether that was acknowledged.
fn claims(daemon: &Daemon, tenure: &str, batch: u32) -> bool {
    let body = json!({ "tenure": tenure, "keys": keys(batch) }).to_string();
    let (path, headers) = (
        "/v1/groups/g/registries/r/claims",
        [("Content-Type", "application/json")],
    );
    http::request_with(daemon.addr, "POST", path, &headers, &body).is_ok_and(|(status, _)| status == 200)
}

#[test]
fn daemon_ends_with_74_when_a_write_fails() {
    let mut daemon = Daemon::with(limit_files);
    let tenure = daemon.join("g", "a", 60_000);
    let acknowledged = (0..1_000).find(|batch| !claims(&daemon, &tenure, *batch));
    let acknowledged = acknowledged.expect("a write fails before 100,000 keys are written");
    let ended = daemon.process.wait(SOON).expect("the daemon ends");
    assert_eq!(ended.code(), Some(74), "{}", daemon.process.log_tail());
    let log = daemon.process.log();
    assert!(log.contains("disk I/O error"), "{log}");

    daemon.process.restart().expect("the binary can be started");
    daemon.addr = address_in(&daemon.process, 1);
    for batch in 0..acknowledged {
        for key in keys(batch) {
            let (status, claim) = daemon.answered("GET", &format!("/v1/groups/g/registries/r/claims/{key}"), "");
            assert_eq!(
                (status, &claim["tenure"]),
                (200, &tenure.as_str().into()),
                "{key}: {claim}"
            );
        }
    }
}

/// `: > tenure.db-wal` under a running daemon, as a script that clears logs does.
#[test]
fn daemon_ends_with_74_when_its_log_is_emptied() {
    let mut daemon = Daemon::start(&["--store", "sqlite:tenure.db"]);
    let tenure = daemon.join("g", "a", 60_000);
    assert!(claims(&daemon, &tenure, 0));
    let log = daemon.process.dir().join("tenure.db-wal");
    std::fs::write(log, "").expect("the log is there");
    assert!(!claims(&daemon, &tenure, 1), "SQLite would acknowledge it and lose it");
    let ended = daemon.process.wait(SOON).expect("the daemon ends");
    assert_eq!(ended.code(), Some(74), "{}", daemon.process.log_tail());
    assert!(daemon.process.log().contains("tenure.db-wal was cut short"));

    daemon.process.restart().expect("the binary can be started");
    daemon.addr = address_in(&daemon.process, 1);
    // It may have forgotten who holds a lease.
    assert!(daemon.process.log().contains("no lease is granted for"));
    let tenure = daemon.join("g", "a", 60_000);
    assert_eq!(daemon.acquire("g", "l", &tenure).1["code"], "unsettled");
    assert!(claims(&daemon, &tenure, 1));
}

/// SQLite maps the index of the log into memory, so the process may die of SIGBUS before it notices.
#[test]
fn nothing_is_lost_when_the_index_of_the_log_is_emptied() {
    let mut daemon = Daemon::start(&["--store", "sqlite:tenure.db"]);
    let tenure = daemon.join("g", "a", 60_000);
    assert!(claims(&daemon, &tenure, 0));
    let index = daemon.process.dir().join("tenure.db-shm");
    std::fs::write(index, "").expect("the index is there");
    assert!(!claims(&daemon, &tenure, 1));
    let ended = daemon.process.wait(SOON).expect("the daemon ends");
    eprintln!("MEASURED it ended with {ended}");

    daemon.process.restart().expect("the binary can be started");
    daemon.addr = address_in(&daemon.process, 1);
    assert!(!daemon.process.log().contains("no lease is granted for"));
    let path = format!("/v1/groups/g/registries/r/claims/{}", keys(0)[0]);
    assert_eq!(daemon.answered("GET", &path, "").1["tenure"], tenure.as_str());
    assert_eq!(daemon.acquire("g", "l", &tenure).0, 200);
}
