//! Grants of a daemon on an embedded store after a start: immediately from a whole file, and only after one max_ttl from a
//! file that may have forgotten a holder.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use tenure_testkit::wait;

use crate::support::{Daemon, Lateness, SOON, address_in};

/// A start and the first grant after it.
const PROMPT: Duration = Duration::from_millis(500);

fn store_of(daemon: &Daemon) -> PathBuf {
    daemon.process.dir().join("tenure-data/tenure.db")
}

/// Starts it again after its process ended; `nth` counts its starts.
fn again(daemon: &mut Daemon, nth: usize) {
    daemon.process.restart().expect("the binary can be started");
    daemon.addr = address_in(&daemon.process, nth);
}

/// How long after its address is known a free lease is granted to a new member.
fn first_grant(daemon: &Daemon, member: &str) -> Duration {
    let since = Instant::now();
    let tenure = daemon.join("g", member, 20_000);
    daemon.granted("g", &format!("free-{member}"), &[&tenure], 20_000);
    since.elapsed()
}

#[test]
fn whole_file_grants_free_leases_immediately() {
    let mut daemon = Daemon::start(&[]);
    let holder = daemon.join("g", "holder", 60_000);
    daemon.granted("g", "held", &[&holder], 60_000);
    for (nth, ended_by) in ["KILL", "TERM", "KILL"].into_iter().enumerate() {
        let late = Lateness::watch();
        if ended_by == "KILL" {
            daemon.process.kill();
        } else {
            daemon.process.terminate(SOON).expect("it stops");
        }
        let since = Instant::now();
        again(&mut daemon, nth + 1);
        let took = first_grant(&daemon, &format!("new-{nth}"));
        println!(
            "first grant after {ended_by}: {took:?}, {:?} after the start",
            since.elapsed()
        );
        assert!(took <= PROMPT + late.so_far(), "after {ended_by}: {took:?}");
        // Who holds a lease keeps it for one full ttl.
        let new = daemon.join("g", "new", 20_000);
        let (status, answer) = daemon.acquire("g", "held", &new);
        assert_eq!((status, &answer["code"]), (409, &Value::from("lease_held")), "{answer}");
    }
}

/// What happens to the files while the daemon is killed.
type Loss = fn(&Path, &Path);

fn losses() -> Vec<(&'static str, Loss)> {
    fn beside(path: &Path, suffix: &str) -> PathBuf {
        PathBuf::from(format!("{}{suffix}", path.display()))
    }
    fn remove(path: &Path, suffixes: &[&str]) {
        suffixes
            .iter()
            .for_each(|suffix| drop(fs::remove_file(beside(path, suffix))));
    }
    vec![
        ("all files are gone", |path, _| {
            remove(path, &["", "-wal", "-shm", ".mark"])
        }),
        ("the file and its log are moved away", |path, _| {
            remove(path, &["", "-wal", "-shm"])
        }),
        ("the file is emptied", |path, _| fs::write(path, "").unwrap()),
        ("an older copy is moved in place", |path, old| {
            remove(path, &["-wal", "-shm"]);
            fs::rename(old, path).unwrap();
        }),
        ("an older copy is written over it", |path, old| {
            remove(path, &["-wal", "-shm"]);
            fs::copy(old, path).unwrap();
        }),
        ("the log is gone", |path, _| remove(path, &["-wal", "-shm"])),
    ]
}

/// Two members that both believe to hold one lease: the first was granted it before the loss, and trusts its last beat.
#[test]
fn no_lease_has_two_holders_after_data_loss() {
    for (what, lose) in losses() {
        let mut daemon = Daemon::start(&["--max-ttl", "6s"]);
        // A copy from before the grant.
        daemon.process.terminate(SOON).expect("it stops");
        let old = daemon.process.dir().join("old.db");
        fs::copy(store_of(&daemon), &old).unwrap();
        again(&mut daemon, 1);
        let first = daemon.join("g", "first", 6_000);
        daemon.granted("g", "job", &[&first], 6_000);
        daemon.beat("g", &[&first], 6_000);
        let trusted_from = Instant::now();
        daemon.process.kill();
        lose(&store_of(&daemon), &old);
        again(&mut daemon, 2);
        let granted = || {
            let second = daemon.join("g", "second", 6_000);
            let (status, answer) = daemon.acquire("g", "job", &second);
            assert!(status == 200 || answer["code"] == "unsettled", "{what}: {answer}");
            status == 200
        };
        assert!(!granted(), "{what}: granted while the first holder trusts its beat");
        wait::until("the lease is granted", SOON, granted);
        let after = trusted_from.elapsed();
        assert!(
            after >= Duration::from_secs(6),
            "{what}: granted {after:?} after the first holder's beat"
        );
    }
}

#[test]
fn a_file_moved_away_makes_the_daemon_unready() {
    let daemon = Daemon::start(&[]);
    let path = store_of(&daemon);
    let tenure = daemon.join("g", "a", 60_000);
    let aside = path.with_extension("aside");
    fs::rename(&path, &aside).unwrap();
    let (status, answer) = daemon.http("PUT", &format!("/v1/groups/g/tenures/{tenure}/beat"), "");
    wait::until("beats are refused", SOON, || {
        daemon.http("PUT", &format!("/v1/groups/g/tenures/{tenure}/beat"), "").0 == 503
    });
    assert!(status == 200 || status == 503, "{answer}");
    wait::until("the daemon is not ready, and says why", SOON, || {
        let (status, answer) = daemon.http("GET", "/readyz", "");
        status == 503 && answer.to_string().contains("was deleted or moved away")
    });
    fs::rename(&aside, &path).unwrap();
    wait::until("the daemon is ready again", SOON, || {
        daemon.http("GET", "/readyz", "").0 == 200
    });
    daemon.beat("g", &[&tenure], 60_000);
}

#[test]
fn a_new_store_says_until_when_it_waits() {
    let daemon = Daemon::new(&["--max-ttl", "60s"]);
    let tenure = daemon.join("g", "a", 30_000);
    let (status, answer) = daemon.acquire("g", "job", &tenure);
    assert_eq!((status, &answer["code"]), (409, &Value::from("unsettled")), "{answer}");
    let wait = answer["retry_after_ms"].as_u64().expect("a time");
    assert!((30_000..=60_000).contains(&wait), "{answer}");
    let log = daemon.process.log();
    assert!(
        log.contains("new or emptied store; no lease is granted for 1m"),
        "{log}"
    );
}
