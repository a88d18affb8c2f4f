//! What the page for operators says about a backup that is restored: nobody is dead by it, what came since is unknown, no
//! lease is given out too early, and tokens go on rising.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tenure_testkit::{have, wait};

use crate::support::{Daemon, SOON, address_in, run, tenure};

/// Long enough that no member lapses during the test.
const TTL_MS: u64 = 6_000;

/// Copies a database while its owner writes to it, by SQLite's own means: what `sqlite3 FILE ".backup COPY"` does.
fn back_up(python: &Path, file: &Path, copy: &Path) {
    let program = "import sqlite3, sys\n\
                   source, target = sqlite3.connect(sys.argv[1]), sqlite3.connect(sys.argv[2])\n\
                   source.backup(target)\n\
                   target.close()\n";
    let mut command = Command::new(python);
    command.args(["-c", program]).args([file, copy]);
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
}

/// The ledger is a file like any other; the store has a command.
fn put_back(file: &Path, copy: &Path) {
    for ending in ["-wal", "-shm"] {
        let mut beside = file.as_os_str().to_owned();
        beside.push(ending);
        let _ = fs::remove_file(beside);
    }
    fs::copy(copy, file).unwrap();
}

#[test]
fn a_restored_backup_settles() {
    let Some(python) = have("python3").or_skip() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str| dir.path().join(name);
    let mut daemon = Daemon::start(&["--data-dir", dir.path().to_str().unwrap(), "--max-ttl", "10s"]);
    let before = daemon.join("g", "before", TTL_MS);
    let granted = daemon.granted("g", "job", &[&before], TTL_MS);
    assert_eq!(daemon.answered("PUT", "/v1/rosters/care/providers/ann", "{}").0, 200);

    for name in ["tenure.db", "ledger.db"] {
        back_up(&python, &of(name), &of(&format!("{name}.copy")));
    }
    let since = daemon.join("g", "since", TTL_MS);
    assert_eq!(
        daemon.http("DELETE", &format!("/v1/groups/g/tenures/{before}"), "").0,
        204
    );
    let later = daemon.granted("g", "job", &[&since], TTL_MS);
    assert!(later["token"].as_u64() > granted["token"].as_u64(), "{later}");
    assert_eq!(daemon.answered("PUT", "/v1/rosters/care/providers/bob", "{}").0, 200);

    let restore = || {
        let mut command = tenure();
        command
            .args(["restore", "--data-dir"])
            .arg(dir.path())
            .arg(of("tenure.db.copy"));
        run(command)
    };
    let refused = restore();
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert!(refused.err.contains("is in use by process"), "{}", refused.err);
    daemon.process.terminate(SOON).expect("it stops");
    let restored = restore();
    assert_eq!(restored.code, Some(0), "{}", restored.err);
    assert!(restored.err.contains("no lease for one max ttl"), "{}", restored.err);
    assert!(of("tenure.db.before-restore").exists());
    put_back(&of("ledger.db"), &of("ledger.db.copy"));
    daemon.process.restart().expect("it starts again");
    daemon.addr = address_in(&daemon.process, 1);

    // Members of the backup get one full ttl, later members are unknown, and the lease is not granted to another member.
    let (status, member) = daemon.answered("GET", "/v1/groups/g/members/before", "");
    assert_eq!((status, &member["alive"]), (200, &json!(true)), "{member}");
    let (status, answer) = daemon.answered("PUT", &format!("/v1/groups/g/tenures/{since}/beat"), "");
    assert_eq!((status, &answer["reason"]), (410, &json!("unknown")), "{answer}");
    let again = daemon.join("g", "since", 8_000);
    assert_eq!(daemon.acquire("g", "job", &again).0, 409);
    let (status, free) = daemon.acquire("g", "another", &again);
    assert_eq!((status, &free["code"]), (409, &json!("unsettled")), "{free}");

    let mut token = None;
    wait::until("who had left is dead again, and its lease can be had", SOON * 2, || {
        daemon.beat("g", &[&again], 8_000);
        let (status, granted) = daemon.acquire("g", "job", &again);
        token = granted["token"].as_u64().filter(|_| status == 200);
        token.is_some()
    });
    assert!(
        token > later["token"].as_u64(),
        "tokens rise above what was given out since the backup"
    );

    // The roster is as it was, and the mirror follows the ledger.
    assert_eq!(daemon.answered("GET", "/v1/rosters/care/providers/ann", "").0, 200);
    // A roster of a store that may have forgotten is compared once more before its mirror is believed.
    wait::until("the mirror has followed", SOON * 2, || {
        let (_, page) = daemon.http("GET", "/v1/rosters/care/providers", "");
        let providers = page["providers"].as_array().map(Vec::len);
        providers == Some(1) && page["source"] == "mirror"
    });
    assert_eq!(daemon.answered("GET", "/v1/rosters/care/providers/bob", "").0, 404);
}
