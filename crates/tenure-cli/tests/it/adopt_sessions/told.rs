//! Every change is reported, also when a run or a daemon ends by a signal or loses the store.

use serde_json::Value;
use tenure_testkit::server::Signal;
use tenure_testkit::valkey::{DURABLE, Flavour, Server};
use tenure_testkit::{Process, wait};

use super::{PATIENCE, fill, has_run_for_a_while, keys, run, tenure};

const MANY: i64 = 5_000;
/// So slow that it is interrupted in the midst of it.
const SLOW: [&str; 5] = ["--index", "away", "--rate", "1000", "--json"];
const REAP: [&str; 3] = ["--reap", "--max-age", "1s"];

fn entries(server: &Server) -> i64 {
    server.cli(&["ZCARD", "away"]).unwrap().int().unwrap()
}

fn sessions(server: &Server) -> i64 {
    i64::try_from(keys(server, "session:*")).unwrap()
}

fn indexed(server: &Server) {
    fill(server, u32::try_from(MANY).unwrap());
    assert_eq!(run(server, &["--index", "away", "--rate", "1000000"]).0, 0);
    has_run_for_a_while(server);
}

fn slowly(server: &Server, args: &[&str]) -> Process {
    Process::spawn("adopt-sessions", |_| tenure(server, &[&SLOW, args].concat())).unwrap()
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

fn sum(process: &Process, name: &str) -> i64 {
    documents(process).iter().filter_map(|each| each[name].as_i64()).sum()
}

fn is_told_early(process: &Process, why: &str) -> bool {
    documents(process).iter().any(|each| each["ended_early"] == why)
}

/// Interrupts it once it has changed some, and checks that it told how many.
fn told_at_a_signal(signal: Signal, process: &Process, field: &str, changed: impl Fn() -> i64, code: i32) {
    wait::until("some are changed", PATIENCE, || changed() > 0);
    process.signal(signal).unwrap();
    assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(code), "{}", process.log());
    let changed = changed();
    assert!(changed < MANY, "it was over before it was interrupted");
    let log = process.log();
    assert_eq!((sum(process, field), sum(process, "unsure")), (changed, 0), "{log}");
    assert!(is_told_early(process, "interrupted"), "{log}");
}

/// Stops the store after some changes, and checks the reported count. `tells` waits for the report.
fn told_at_a_loss(
    server: &Server,
    process: &Process,
    field: &str,
    changed: impl Fn() -> i64,
    tells: impl FnOnce(&Process),
) {
    wait::until("some are changed", PATIENCE, || changed() > 0);
    server.kill();
    tells(process);
    server.restart_with_data();
    let (changed, counted, unsure) = (changed(), sum(process, field), sum(process, "unsure"));
    let log = process.log();
    assert!(counted > 0 && changed < MANY, "{changed}: {log}");
    assert!(
        (counted..=counted + unsure).contains(&changed),
        "{changed} changed: {log}"
    );
}

fn fails(process: &Process) {
    assert_eq!(process.wait(PATIENCE * 2).unwrap().code(), Some(1), "{}", process.log());
    // If a page took longer than its time-out before the store was lost, its outcome was read back, and the pass ended there.
    let is_quarantined = || {
        let mut each = documents(process).into_iter();
        each.any(|each| each["quarantined"]["reason"] == "unreachable")
    };
    assert!(
        is_told_early(process, "failed") || is_quarantined(),
        "{}",
        process.log()
    );
}

/// A daemon that has failed, and is stopped before the store is back.
fn is_stopped_after_its_failure(process: &Process) {
    wait::until("the pass failed", PATIENCE * 2, || is_told_early(process, "failed"));
    assert_eq!(
        process.terminate(PATIENCE).unwrap().code(),
        Some(0),
        "{}",
        process.log()
    );
}

#[test]
fn signalled_index_run_reports_changes() {
    for signal in [Signal::INT, Signal::TERM] {
        let Some(server) = Server::start(Flavour::Valkey) else {
            return;
        };
        fill(&server, u32::try_from(MANY).unwrap());
        let adding = slowly(&server, &[]);
        told_at_a_signal(signal, &adding, "added", || entries(&server), 1);
        assert_eq!(run(&server, &["--index", "away", "--rate", "1000000"]).0, 0);
        // All are active again, so the next run takes their entries out.
        let back = "for i = 1, tonumber(ARGV[1]) do redis.call('HSET', 'session:' .. i, 'last_disconnect', 0) end";
        server.cli(&["EVAL", back, "0", &MANY.to_string()]).unwrap();
        let removing = slowly(&server, &[]);
        told_at_a_signal(signal, &removing, "removed", || MANY - entries(&server), 1);
    }
}

#[test]
fn signalled_verification_reports_changes_of_the_pass() {
    let Some(server) = Server::start(Flavour::Redis) else {
        return;
    };
    fill(&server, 2_000);
    let indexing = slowly(&server, &[]);
    wait::until("the second look is under way", PATIENCE, || {
        keys(&server, "tenure:*:passes") == 1
    });
    indexing.signal(Signal::INT).unwrap();
    assert_eq!(indexing.wait(PATIENCE).unwrap().code(), Some(1), "{}", indexing.log());
    assert_eq!(sum(&indexing, "added"), 2_000, "{}", indexing.log());
    assert!(is_told_early(&indexing, "interrupted"), "{}", indexing.log());
}

#[test]
fn index_run_that_loses_the_store_reports_changes() {
    let Some(server) = Server::with(Flavour::Valkey, DURABLE) else {
        return;
    };
    fill(&server, u32::try_from(MANY).unwrap());
    let adding = slowly(&server, &[]);
    told_at_a_loss(&server, &adding, "added", || entries(&server), fails);
}

#[test]
fn signalled_undo_reports_removals() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    indexed(&server);
    let undoing = slowly(&server, &["--undo", "--yes"]);
    told_at_a_signal(Signal::INT, &undoing, "removed", || MANY - entries(&server), 1);
}

#[test]
fn undo_that_loses_the_store_reports_removals() {
    let Some(server) = Server::with(Flavour::Valkey, DURABLE) else {
        return;
    };
    indexed(&server);
    let undoing = slowly(&server, &["--undo", "--yes"]);
    told_at_a_loss(&server, &undoing, "removed", || MANY - entries(&server), fails);
}

#[test]
fn signalled_reaper_reports_what_it_reaped() {
    for (signal, daemon) in [
        (Signal::INT, false),
        (Signal::TERM, false),
        (Signal::INT, true),
        (Signal::TERM, true),
    ] {
        let Some(server) = Server::start(Flavour::Valkey) else {
            return;
        };
        indexed(&server);
        let more: &[&str] = if daemon { &["--interval", "1s"] } else { &[] };
        let reaping = slowly(&server, &[&REAP, more].concat());
        told_at_a_signal(
            signal,
            &reaping,
            "reaped",
            || MANY - sessions(&server),
            i32::from(!daemon),
        );
    }
}

#[test]
fn reaper_that_loses_the_store_reports_what_it_reaped() {
    for daemon in [false, true] {
        let Some(server) = Server::with(Flavour::Valkey, DURABLE) else {
            return;
        };
        indexed(&server);
        let more: &[&str] = if daemon { &["--interval", "1s"] } else { &[] };
        let reaping = slowly(&server, &[&REAP, more].concat());
        let tells: fn(&Process) = if daemon { is_stopped_after_its_failure } else { fails };
        told_at_a_loss(&server, &reaping, "reaped", || MANY - sessions(&server), tells);
    }
}

/// A number in the last line of the log about a pass that did not come to its end.
fn logged(process: &Process, field: &str) -> i64 {
    let log = process.log();
    let line = log.lines().rfind(|line| line.contains("ended early"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    let mut words = line.split(' ').filter_map(|word| word.strip_prefix(field));
    words.next().unwrap_or_else(|| panic!("{line}")).parse().unwrap()
}

#[test]
fn stopped_index_daemon_reports_changes() {
    let Some(server) = Server::start(Flavour::Valkey) else {
        return;
    };
    fill(&server, u32::try_from(MANY).unwrap());
    let indexing = slowly(&server, &["--interval", "1s"]);
    wait::until("some are indexed", PATIENCE, || entries(&server) > 0);
    assert_eq!(
        indexing.terminate(PATIENCE).unwrap().code(),
        Some(0),
        "{}",
        indexing.log()
    );
    let added = entries(&server);
    assert!(added < MANY, "it was over before it was stopped");
    assert_eq!((logged(&indexing, "added="), logged(&indexing, "unsure=")), (added, 0));
}

#[test]
fn index_daemon_that_loses_the_store_reports_changes() {
    let Some(server) = Server::with(Flavour::Valkey, DURABLE) else {
        return;
    };
    fill(&server, u32::try_from(MANY).unwrap());
    let indexing = slowly(&server, &["--interval", "1s"]);
    wait::until("some are indexed", PATIENCE, || entries(&server) > 0);
    server.kill();
    wait::until("the pass failed", PATIENCE * 2, || {
        indexing.log().contains("ended early")
    });
    assert_eq!(
        indexing.terminate(PATIENCE).unwrap().code(),
        Some(0),
        "{}",
        indexing.log()
    );
    server.restart_with_data();
    let (counted, unsure) = (logged(&indexing, "added="), logged(&indexing, "unsure="));
    let added = entries(&server);
    assert!(
        (counted..=counted + unsure).contains(&added),
        "{added}: {}",
        indexing.log()
    );
}
