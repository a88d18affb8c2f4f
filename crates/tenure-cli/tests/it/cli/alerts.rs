//! The alert rules and the dashboard in `deploy`: what they say when (promtool), that every metric they look at exists, and
//! that every alert has a section in the runbook.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tenure_testkit::{have, wait};

use crate::docs::text;
use crate::support::{Daemon, SOON, run};

fn rules() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/alerts")
}

#[test]
fn the_rules_say_what_their_tests_say() {
    let Some(promtool) = have("promtool").or_skip() else {
        return;
    };
    let names = names_of_rules();
    assert!(names.len() >= 7, "{names:?}");
    for name in names {
        for (verb, file) in [("check", format!("{name}.yml")), ("test", format!("{name}.test.yml"))] {
            let mut command = Command::new(&promtool);
            command.args([verb, "rules", &file]).current_dir(rules());
            let ran = run(command);
            assert_eq!(ran.code, Some(0), "{file}: {}{}", ran.out, ran.err);
        }
    }
}

/// The files of rules, without their ending and without their tests.
fn names_of_rules() -> Vec<String> {
    let files = fs::read_dir(rules()).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let names = names.filter_map(|name| name.strip_suffix(".yml").map(str::to_owned));
    let mut names = Vec::from_iter(names.filter(|name| !name.ends_with(".test")));
    names.sort_unstable();
    names
}

/// Every metric that the source code names.
fn in_code() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    gather(&crates, &mut names);
    assert!(names.len() > 50, "{names:?}");
    names
}

fn gather(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, names);
        } else if path.file_name().is_some_and(|name| name == "meters.rs") {
            let text = fs::read_to_string(&path).unwrap();
            let literals = text.split('"').skip(1).step_by(2);
            names.extend(literals.filter(|text| text.starts_with("tenure_")).map(str::to_owned));
        }
    }
}

/// A name without what a histogram adds to it.
fn base(name: &str) -> &str {
    let endings = ["_bucket", "_sum", "_count"];
    endings
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(name)
}

#[test]
fn every_metric_of_a_rule_or_a_panel_exists_and_is_explained() {
    let (known, page) = (in_code(), text("docs/operations/metrics.md"));
    let mut texts = vec![("the dashboard".to_owned(), expressions().join("\n"))];
    for name in names_of_rules() {
        let text = fs::read_to_string(rules().join(format!("{name}.yml"))).unwrap();
        texts.push((name, text));
    }
    for (what, text) in texts {
        for name in named(&text) {
            assert!(
                known.contains(base(&name)),
                "{what} looks at {name}, which nothing records"
            );
        }
    }
    for name in known {
        let is_told = name.starts_with("tenure_adopt_") || page.contains(&format!("`{name}`"));
        assert!(is_told, "docs/operations/metrics.md lacks {name}");
    }
}

#[test]
fn every_alert_links_to_its_section_of_the_runbook() {
    let path = "docs/operations/runbook.md";
    let page = text(path);
    let sections = page.lines().filter_map(|line| line.strip_prefix("### "));
    let mut unused = BTreeSet::from_iter(sections.filter(|section| section.starts_with("Tenure")));
    for name in names_of_rules() {
        let file = format!("deploy/alerts/{name}.yml");
        assert!(page.contains(&file), "{path} lacks {file}");
        for rule in text(&file).split("- alert: ").skip(1) {
            let alert = rule.lines().next().unwrap();
            assert!(unused.remove(alert), "{path} has no section {alert}");
            let wanted = format!("runbook_url: {path}#{}", alert.to_lowercase());
            let has_link = rule.lines().any(|line| line.trim() == wanted);
            assert!(has_link, "{file}: {alert} lacks {wanted}");
        }
    }
    assert!(unused.is_empty(), "sections without an alert: {unused:?}");
}

/// The expressions of the dashboard's panels and annotations.
fn expressions() -> Vec<String> {
    let text = fs::read_to_string(rules().join("../grafana/tenure.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut found = Vec::new();
    every_expression(&dashboard, &mut found);
    assert!(found.len() > 30, "{found:?}");
    found
}

fn every_expression(part: &Value, found: &mut Vec<String>) {
    match part {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|field| every_expression(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| every_expression(item, found)),
        _ => {}
    }
}

#[test]
fn every_expression_of_the_dashboard_can_be_asked() {
    let Some(promtool) = have("promtool").or_skip() else {
        return;
    };
    // promtool reads rules, so each becomes one; what Grafana puts in for the time between two points is any duration.
    let rules = expressions().into_iter().enumerate().map(|(nth, expression)| {
        let expression = expression.replace("$__rate_interval", "5m");
        json!({"record": format!("panel:{nth}"), "expr": expression})
    });
    let groups = json!({"groups": [{"name": "dashboard", "rules": Vec::from_iter(rules)}]});
    let dir = tempfile::tempdir().unwrap();
    // JSON is YAML.
    fs::write(dir.path().join("dashboard.yml"), groups.to_string()).unwrap();
    let mut command = Command::new(&promtool);
    command
        .args(["check", "rules", "dashboard.yml"])
        .current_dir(dir.path());
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
}

/// The counters and histograms whose increase a rule looks at.
fn counted() -> BTreeSet<String> {
    let mut counted = BTreeSet::new();
    for name in names_of_rules() {
        let text = fs::read_to_string(rules().join(format!("{name}.yml"))).unwrap();
        let calls = text.split("increase(").skip(1).chain(text.split("rate(").skip(1));
        counted.extend(
            calls
                .filter_map(|rest| rest.split(['{', '[']).next())
                .map(str::to_owned),
        );
    }
    counted
}

#[test]
fn counters_of_rules_begin_before_their_first_event() {
    let mut wanted = counted();
    assert!(wanted.len() > 10, "{wanted:?}");
    // What panics is named by a label; their rules see a new series.
    for panics in ["tenure_http_panics_total", "tenure_sweep_panics_total"] {
        assert!(wanted.remove(panics), "{wanted:?}");
    }
    wanted.retain(|name| !is_of_adopt(name));
    let daemon = Daemon::start(&["--store", "memory:"]);
    let tenure = daemon.join("g", "gw", 60_000);
    let attach = json!({"tenure": tenure, "connection": "c"}).to_string();
    assert_eq!(daemon.http("PUT", "/v1/groups/g/sessions/s", &attach).0, 201);
    let detach = format!("/v1/groups/g/sessions/s/connections/c?tenure={tenure}");
    assert_eq!(daemon.http("DELETE", &detach, "").0, 204);
    let mut missing = BTreeSet::new();
    wait::until("all of them are served", SOON, || {
        missing = wanted.difference(&served(&daemon)).cloned().collect();
        if !missing.is_empty() {
            eprintln!("not served yet: {missing:?}");
        }
        missing.is_empty()
    });
    let metrics = daemon.text("GET", "/metrics", "").1;
    for series in [
        "tenure_evicted_entries_total{group=\"g\"} 0\n",
        "tenure_ended_total{group=\"g\",reason=\"lapsed\"} 0\n",
        "tenure_ended_total{group=\"g\",reason=\"superseded\"} 0\n",
        "tenure_lease_transitions_total{group=\"g\",transition=\"taken_over\"} 0\n",
        "tenure_lease_transitions_total{group=\"g\",transition=\"lost\"} 0\n",
        "tenure_beats_total{outcome=\"failed\"} 0\n",
        "tenure_sweep_runs_total{sweep=\"janitor\",outcome=\"failed\"} 0\n",
        "tenure_http_requests_total{route=\"/v1/groups/{g}/members\",method=\"POST\",status=\"503\"} 0\n",
    ] {
        assert!(metrics.contains(series), "{series}: {metrics}");
    }
}

/// The names of metrics in expressions, or in a file of rules.
fn named(rules: &str) -> BTreeSet<String> {
    let code = rules.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words = code.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let metrics = words.filter(|word| word.starts_with("tenure_"));
    metrics.map(str::to_owned).collect()
}

/// Whether the rules look at a metric of `tenure adopt` and not of the daemon. It serves its counters from its start.
fn is_of_adopt(name: &str) -> bool {
    name.starts_with("tenure_adopt_") || name == "tenure_orphan_sessions_deleted_total"
}

/// The metrics that the daemon serves.
fn served(daemon: &Daemon) -> BTreeSet<String> {
    let (_, metrics) = daemon.text("GET", "/metrics", "");
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| line.split(['{', ' ']).next());
    names.map(str::to_owned).collect()
}

#[test]
fn every_metric_of_the_roster_alerts_exists() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    assert!(daemon.http("PUT", "/v1/rosters/care/providers/ann", "{}").0 < 300);
    let wanted = named(&fs::read_to_string(rules().join("roster.yml")).unwrap());
    assert_eq!(wanted.len(), 6, "{wanted:?}");
    wait::until("all is served", SOON, || served(&daemon).is_superset(&wanted));
}

#[test]
fn every_metric_of_the_session_alerts_exists() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let tenure = daemon.join("g", "gw", 20_000);
    let attach = json!({"tenure": tenure, "connection": "c", "grace_ms": 1000}).to_string();
    assert_eq!(daemon.http("PUT", "/v1/groups/g/sessions/s", &attach).0, 201);
    let detach = format!("/v1/groups/g/sessions/s/connections/c?tenure={tenure}");
    assert_eq!(daemon.http("DELETE", &detach, "").0, 204);
    let mut wanted = named(&fs::read_to_string(rules().join("sessions.yml")).unwrap());
    wanted.retain(|name| !is_of_adopt(name));
    assert_eq!(wanted.len(), 4, "{wanted:?}");
    // This metric appears with the first repair, and a store without foreign writes needs none.
    assert!(wanted.remove(tenure::meters::SESSIONS_DRIFT), "{wanted:?}");
    let mut missing = BTreeSet::new();
    wait::until("the session is reaped and all is served", SOON, || {
        missing = wanted.difference(&served(&daemon)).cloned().collect();
        if !missing.is_empty() {
            eprintln!("not served yet: {missing:?}");
        }
        missing.is_empty()
    });
    let mut metrics = String::new();
    // What is counted by looking is that of the last look.
    wait::until("the metrics tell of the session, and that it is gone", SOON, || {
        metrics = daemon.text("GET", "/metrics", "").1;
        metrics.contains("tenure_orphan_sessions_deleted_total{group=\"g\"} 1\n")
            && metrics.contains("tenure_sessions_disconnected{group=\"g\"} 0\n")
    });
    let bucket = "tenure_orphan_cleanup_duration_seconds_bucket{le=\"0.1\"}";
    assert!(
        metrics.contains(bucket),
        "the rule's limit is a bucket of its own: {metrics}"
    );
}
