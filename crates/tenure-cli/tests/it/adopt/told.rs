//! Every removal is reported, also when a run or a daemon ends by a signal or loses the store.

use serde_json::Value;
use tenure_testkit::server::Signal;
use tenure_testkit::valkey::{DURABLE, Flavour, Server};
use tenure_testkit::{Process, wait};

use super::{PATIENCE, beat, claim, len, tenure};

/// Entries of one dead owner, more than a pass removes during a short stall of the test.
const MANY: i64 = 200_000;

/// How many were removed, by what the hash still has.
fn removed(server: &Server) -> i64 {
    MANY + 1 - len(server)
}

/// Runs the command over many entries of a dead owner until it has removed some, but not all.
fn removing(server: &Server, args: &[&str]) -> Process {
    beat(server, "alive");
    claim(server, "kept", "alive");
    let fill = "for i = 1, tonumber(ARGV[1]) do redis.call('HSET', KEYS[1], 'device-' .. i, 'ghost') end";
    let count = MANY.to_string();
    server
        .cli(&["EVAL", fill, "1", "connections:registry", &count])
        .unwrap();
    let args = [&["--settle", "0s", "--json"], args].concat();
    let process = Process::spawn("adopt", |_| tenure(server, &args)).unwrap();
    wait::until("some are removed", PATIENCE, || removed(server) > 1_000);
    process
}

/// The documents that were printed, in lines or as one.
fn documents(process: &Process) -> Vec<Value> {
    let log = process.log();
    let document = |text: &str| serde_json::from_str::<Value>(text).ok();
    let lines: Vec<Value> = log.lines().filter_map(document).collect();
    let whole = || document(log.get(log.find("{\n")?..=log.rfind("\n}")? + 1)?);
    if lines.is_empty() {
        whole().into_iter().collect()
    } else {
        lines
    }
}

/// The counted and the unsure removals of all documents.
fn told(process: &Process) -> (i64, i64) {
    let documents = documents(process);
    let sum = |name: &str| documents.iter().filter_map(|each| each[name].as_i64()).sum();
    (sum("evicted_total"), sum("unsure"))
}

fn is_told_early(process: &Process, why: &str) -> bool {
    documents(process).iter().any(|each| each["ended_early"] == why)
}

#[test]
fn signalled_daemon_reports_removals() {
    for signal in [Signal::TERM, Signal::INT] {
        let Some(server) = Server::start(Flavour::Valkey) else {
            return;
        };
        let daemon = removing(&server, &["--interval", "1s"]);
        daemon.signal(signal).unwrap();
        assert_eq!(daemon.wait(PATIENCE).unwrap().code(), Some(0), "{}", daemon.log());
        let removed = removed(&server);
        assert!(removed < MANY, "the pass was over before it was stopped");
        assert_eq!(told(&daemon), (removed, 0), "{}", daemon.log());
        assert!(is_told_early(&daemon, "interrupted"), "{}", daemon.log());
        let log = daemon.log();
        assert!(log.contains(&format!("evicted={removed}")), "{log}");
        assert!(log.contains(&format!("owner=\"ghost\" entries={removed}")), "{log}");
    }
}

#[test]
fn signalled_run_reports_removals() {
    for signal in [Signal::TERM, Signal::INT] {
        let Some(server) = Server::start(Flavour::Redis) else {
            return;
        };
        let run = removing(&server, &[]);
        run.signal(signal).unwrap();
        assert_eq!(run.wait(PATIENCE).unwrap().code(), Some(1), "{}", run.log());
        let removed = removed(&server);
        assert!(removed < MANY, "the pass was over before it was interrupted");
        assert_eq!(told(&run), (removed, 0), "{}", run.log());
        assert!(is_told_early(&run, "interrupted"), "{}", run.log());
    }
}

/// Asserts that what was removed is what was told: all but a page whose reply was lost with the store.
#[track_caller]
fn tells_all(process: &Process, removed: i64) {
    let (counted, unsure) = told(process);
    let log = process.log();
    assert!(counted > 0, "{log}");
    assert!(
        (counted..=counted + unsure).contains(&removed),
        "{removed} removed: {log}"
    );
}

#[test]
fn run_that_loses_the_store_reports_removals() {
    let Some(server) = Server::with(Flavour::Valkey, DURABLE) else {
        return;
    };
    let run = removing(&server, &[]);
    server.kill();
    assert_eq!(run.wait(PATIENCE * 2).unwrap().code(), Some(1), "{}", run.log());
    assert!(is_told_early(&run, "failed"), "{}", run.log());
    assert!(run.log().contains("error: "), "{}", run.log());
    server.restart_with_data();
    tells_all(&run, removed(&server));
}

#[test]
fn daemon_that_loses_the_store_reports_removals() {
    let Some(server) = Server::with(Flavour::Valkey, DURABLE) else {
        return;
    };
    let daemon = removing(&server, &["--interval", "1s"]);
    server.kill();
    wait::until("the pass failed", PATIENCE * 2, || is_told_early(&daemon, "failed"));
    // It is stopped before the store is back: what it could not read back by then is unsure.
    assert_eq!(daemon.terminate(PATIENCE).unwrap().code(), Some(0), "{}", daemon.log());
    server.restart_with_data();
    tells_all(&daemon, removed(&server));
}
