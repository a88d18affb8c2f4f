//! `tenure config`: what counts, who said so, and what cannot be.

use std::io::Write;

use crate::support::{Ran, run, tenure};

fn explain(args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = tenure();
    command
        .args(["config", "explain"])
        .args(args)
        .envs(variables.iter().copied());
    run(command)
}

fn file(content: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file
}

#[test]
fn every_value_is_shown_with_who_gave_it() {
    let config = file("max_ttl = \"40s\"\ndrain = \"2s\"\n[sessions]\ngrace = \"5s\"\n");
    let path = config.path().to_str().unwrap();
    let ran = explain(
        &[
            "--config",
            path,
            "--drain",
            "3s",
            "--store",
            "valkey://me:s3cret@db",
            "--ttl",
            "10s",
        ],
        &[("TENURE_JANITOR_INTERVAL", "20s")],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let row = |key: &str| {
        let mut rows = ran
            .out
            .lines()
            .filter(|line| line.split_whitespace().next() == Some(key));
        rows.next().unwrap().split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(row("drain"), ["drain", "3s", "--drain"]);
    assert_eq!(row("max_ttl"), ["max_ttl", "40s", "file", path]);
    assert_eq!(
        row("janitor.interval"),
        ["janitor.interval", "20s", "TENURE_JANITOR_INTERVAL"]
    );
    assert_eq!(row("reaper.interval"), ["reaper.interval", "30s", "default"]);
    assert!(
        ran.out.contains("valkey://me:***@db") && !ran.out.contains("s3cret"),
        "{}",
        ran.out
    );
    assert!(
        ran.out.contains("15250ms") && ran.out.contains("ttl + 250ms until its connections are gone"),
        "{}",
        ran.out
    );

    let told = explain(&["--config", path, "--json", "--all"], &[]).json();
    let settings = told["settings"].as_array().unwrap();
    assert!(settings.iter().any(|one| one["key"] == "adopt.leases.wait"), "{told}");
    assert_eq!(told["times"][0]["at_most_ms"], 30_000);
}

#[test]
fn explain_refuses_what_serve_refuses() {
    let config = file("max_tll = \"40s\"\n");
    let path = config.path().to_str().unwrap();
    for (args, must_say) in [
        (
            &["--config", path][..],
            "unknown key \"max_tll\"; did you mean \"max_ttl\"?",
        ),
        (&["--max-ttl", "500ms"], "max_ttl is 500ms; it has to be from 1s to 24h"),
        (&["--ttl", "10s", "--interval", "5s"], "must fit into the ttl of 10s"),
        (&["--ttl", "5m"], "the ttl 5m is outside 1s to 2m (max_ttl)"),
    ] {
        let ran = explain(args, &[]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{args:?}");
        assert!(ran.err.contains(must_say), "{args:?}: {}", ran.err);
    }
}

#[test]
fn the_printed_example_is_a_file_that_can_be_read() {
    let mut command = tenure();
    command.args(["config", "example"]);
    let config = file(&run(command).out);
    let ran = explain(&["--config", config.path().to_str().unwrap(), "--json"], &[]);
    let told = ran.json();
    assert!(
        told["settings"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["source"] == "default"),
        "{told}"
    );
}
