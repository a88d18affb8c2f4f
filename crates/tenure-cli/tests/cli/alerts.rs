//! The alert rules in `deploy/alerts`: what they say when (promtool), and that the daemon serves what they look at.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;
use tenure_testkit::{have, wait};

use crate::support::{Daemon, SOON, run};

fn rules() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/alerts")
}

#[test]
fn the_rules_say_what_their_tests_say() {
    let Some(promtool) = have("promtool").or_skip() else {
        return;
    };
    for noun in ["sessions", "roster"] {
        for (verb, file) in [("check", format!("{noun}.yml")), ("test", format!("{noun}.test.yml"))] {
            let mut command = Command::new(&promtool);
            command.args([verb, "rules", &file]).current_dir(rules());
            let ran = run(command);
            assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
        }
    }
}

/// The names of metrics in the expressions of a file of rules.
fn named(rules: &str) -> BTreeSet<String> {
    let code = rules.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words = code.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let metrics = words.filter(|word| word.starts_with("tenure_"));
    metrics.map(str::to_owned).collect()
}

/// The metrics that the daemon serves.
fn served(daemon: &Daemon) -> BTreeSet<String> {
    let (_, metrics) = daemon.text("GET", "/metrics", "");
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| line.split(['{', ' ']).next());
    names.map(str::to_owned).collect()
}

#[test]
fn the_daemon_serves_every_metric_that_a_rule_about_rosters_looks_at() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    assert!(daemon.http("PUT", "/v1/rosters/care/providers/ann", "{}").0 < 300);
    let wanted = named(&fs::read_to_string(rules().join("roster.yml")).unwrap());
    assert_eq!(wanted.len(), 5, "{wanted:?}");
    wait::until("all is served", SOON, || served(&daemon).is_superset(&wanted));
}

#[test]
fn the_daemon_serves_every_metric_that_a_rule_about_sessions_looks_at() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let tenure = daemon.join("g", "gw", 60_000);
    let attach = json!({"tenure": tenure, "connection": "c", "grace_ms": 1000}).to_string();
    assert_eq!(daemon.http("PUT", "/v1/groups/g/sessions/s", &attach).0, 201);
    let detach = format!("/v1/groups/g/sessions/s/connections/c?tenure={tenure}");
    assert_eq!(daemon.http("DELETE", &detach, "").0, 204);
    let mut wanted = named(&fs::read_to_string(rules().join("sessions.yml")).unwrap());
    assert_eq!(wanted.len(), 4, "{wanted:?}");
    // This one is served from the first find on, and in a store that nobody else writes into there is nothing to find.
    assert!(wanted.remove(tenure::meters::SESSIONS_DRIFT), "{wanted:?}");
    let mut missing = BTreeSet::new();
    wait::until("the session is reaped and all is served", SOON, || {
        missing = wanted.difference(&served(&daemon)).cloned().collect();
        if !missing.is_empty() {
            eprintln!("not served yet: {missing:?}");
        }
        missing.is_empty()
    });
    let (_, metrics) = daemon.text("GET", "/metrics", "");
    assert!(
        metrics.contains("tenure_orphan_sessions_deleted_total{group=\"g\"} 1\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("tenure_sessions_disconnected{group=\"g\"} 0\n"),
        "{metrics}"
    );
    let bucket = "tenure_orphan_cleanup_duration_seconds_bucket{group=\"g\",le=\"0.1\"}";
    assert!(
        metrics.contains(bucket),
        "the rule's limit is a bucket of its own: {metrics}"
    );
}
