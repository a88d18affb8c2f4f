//! Wrong usage: exit code 2, and a sentence that says what would be right.

use std::fs;

use crate::support::{Ran, run, tenure};

type Args<'a> = &'a [&'a str];
type Variables<'a> = &'a [(&'a str, &'a str)];

#[track_caller]
fn refused(args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = tenure();
    command.args(args).envs(variables.iter().copied());
    let ran = run(command);
    assert_eq!(ran.code, Some(2), "{args:?}: {}{}", ran.out, ran.err);
    assert_eq!(ran.out, "", "{args:?}");
    ran
}

#[test]
fn wrong_settings_are_refused_before_anything_is_started() {
    let duration = "write a number with its unit, like 500ms, 10s, 5m or 1m30s";
    let table: &[(Args, Variables, &str)] = &[
        (
            &["--max-ttl", "10"],
            &[],
            &format!("--max-ttl: \"10\" is not a duration; {duration}"),
        ),
        (&["--max-ttl=1ms"], &[], "max_ttl is 1ms; it has to be from 1s to 24h"),
        (
            &[],
            &[("TENURE_MAX_TTL", "1 s")],
            &format!("TENURE_MAX_TTL: \"1 s\" is not a duration; {duration}"),
        ),
        (
            &["--janitor-interval", "2h"],
            &[],
            "janitor.interval is 2h; it has to be from 100ms to 1h",
        ),
        (
            &["--listen", "7717"],
            &[],
            "--listen: \"7717\" is not an address to listen on; write host:port, like 127.0.0.1:7717",
        ),
        (
            &[],
            &[("TENURE_BRAKE_SHARE", "2")],
            "TENURE_BRAKE_SHARE: \"2\" is not a share; write a number above 0 and up to 1, like 0.5",
        ),
        (
            &["--insecure-listen=perhaps"],
            &[],
            "--insecure-listen: \"perhaps\" is neither true nor false",
        ),
        (
            &["--log-format", "xml"],
            &[],
            "--log-format: \"xml\" is not a log format; there are text and json",
        ),
        (
            &["--store", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"],
            &[],
            "store: a daemon cannot serve another daemon; name the store itself",
        ),
        (
            &["--config", "/no/such/file"],
            &[],
            "the configuration file /no/such/file cannot be read: No such file or directory (os error 2)",
        ),
        (
            &[],
            &[("TENURE_CONFIG", "/no/such/file")],
            "the configuration file /no/such/file cannot be read: No such file or directory (os error 2)",
        ),
    ];
    for (args, variables, message) in table {
        let ran = refused(&[&["serve"], *args].concat(), variables);
        assert_eq!(ran.err, format!("tenure: error: {message}\n"), "{args:?}");
    }
    let ran = refused(&["serve", "--listen", "0.0.0.0:0"], &[]);
    assert!(
        ran.err.contains("listen is 0.0.0.0:0") && ran.err.contains("--insecure-listen"),
        "{}",
        ran.err
    );
    let ran = refused(&["serve", "--log", "tenure=loud"], &[]);
    assert!(
        ran.err.contains("the log filter \"tenure=loud\" cannot be read"),
        "{}",
        ran.err
    );
}

#[test]
fn unknown_key_is_refused_with_the_nearest_known_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tenure.toml");
    fs::write(&file, "[janitor]\nintervall = \"10s\"\n").unwrap();
    let path = file.to_str().unwrap();
    let message =
        format!("tenure: error: {path}: unknown key \"janitor.intervall\"; did you mean \"janitor.interval\"?\n");
    for command in [&["serve"][..], &["adopt", "registry"], &["adopt", "leases"]] {
        assert_eq!(refused(&[command, &["--config", path]].concat(), &[]).err, message);
        assert_eq!(refused(command, &[("TENURE_CONFIG", path)]).err, message);
    }
}

#[test]
fn wrong_arguments_are_refused_with_what_would_be_right() {
    let table: &[(&[&str], &str)] = &[
        (&[], "Usage: tenure [OPTIONS] <COMMAND>"),
        (&["bogus"], "unrecognized subcommand 'bogus'"),
        (&["members", "--bogus"], "unexpected argument '--bogus'"),
        (
            &["members", "--group", "a b"],
            "the group \"a b\" has ' ' at position 2; use 1 to 200 characters",
        ),
        (&["members", "--limit", "0"], "0 is not in 1.."),
        (&["claims"], "--registry <REGISTRY>"),
        (&["leases", "a/b"], "the lease \"a/b\" has '/' at position 2"),
        (&["leases", "l", "--holder", "a"], "cannot be used with"),
        (
            &["leases", "--holder", "a@1"],
            "the member \"a@1\" has '@' at position 2",
        ),
        (&["leases", "release"], "<LEASE>"),
        (&["leases", "release", "l", "--token", "0"], "outside 1..=2^53-1"),
        (&["targets", "a b"], "the lease \"a b\" has ' ' at position 2"),
        (&["targets", "add"], "<TARGET>..."),
        (&["targets", "pause"], "<TARGET>..."),
        (&["targets", "add", "t", "--weight", "0"], "0 is not in 1..=1000"),
        (&["targets", "add", "t", "--weight", "1001"], "1001 is not in 1..=1000"),
        (&["targets", "rm", "t", "--paused"], "unexpected argument '--paused'"),
        (&["targets", "--limit", "5", "remove", "t"], "cannot be used with"),
        (
            &["events", "--type", "died"],
            "\"died\" is not an event type; use one of joined, left, lapsed",
        ),
        (&["events", "--last", "5", "--after", "7"], "cannot be used with"),
        (&["sweep", "--force", "--dry-run"], "cannot be used with"),
        (&["join", "--member", "a"], "<CMD>"),
        (
            &["join", "--member", "a/b", "--", "true"],
            "the member \"a/b\" has '/' at position 2",
        ),
        (&["join", "--ttl", "10", "--", "true"], "\"10\" is not a duration"),
        (&["join", "--label", "zone", "--", "true"], "write NAME=VALUE"),
        (
            &["join", "--on-lapse", "panic", "--", "true"],
            "[possible values: keep, stop]",
        ),
    ];
    for (args, must_say) in table {
        let ran = refused(args, &[]);
        assert!(ran.err.contains(must_say), "{args:?}: {}", ran.err);
    }
}

#[test]
fn a_timing_that_cannot_work_is_refused_with_the_numbers() {
    let exact: &[(&[&str], &str)] = &[
        (
            &["--ttl", "500ms"],
            "--ttl, --interval: the ttl 500ms is outside 1s to 24h (max_ttl)",
        ),
        (
            &["--ttl", "12s", "--interval", "6s"],
            "--ttl, --interval: two missed beats (2 x 6s) + request timeout (500ms) + margin (1s) = 13500ms must fit into the ttl of 12s: raise the ttl or shorten the beat interval",
        ),
        (
            &["--label", "a=1", "--label", "a=2"],
            "a label is given twice; give each name once",
        ),
    ];
    for (args, message) in exact {
        let ran = refused(&[&["join"], *args, &["--", "true"]].concat(), &[]);
        assert_eq!(ran.err, format!("tenure: error: {message}\n"));
    }
}

#[test]
fn a_url_that_names_no_store_is_wrong_usage() {
    for (url, must_say) in [
        ("nonsense", "the store URL has no scheme"),
        ("foo://bar", "\"foo\" is not a scheme of a store"),
        ("memory:", "lives in one process"),
        ("http://127.0.0.1:1/?a=b", "has an unknown query parameter"),
    ] {
        let ran = refused(&["members", "--store", url], &[]);
        assert!(ran.err.contains(must_say), "{url}: {}", ran.err);
    }
    // What is given may be a secret.
    let ran = refused(&["members"], &[("TENURE_STORE", "foo://user:hunter2@bar")]);
    assert!(!ran.err.contains("hunter2"), "{}", ran.err);
    let mut help = tenure();
    help.args(["members", "--help"])
        .env("TENURE_STORE", "foo://user:hunter2@bar");
    let ran = run(help);
    assert_eq!(ran.code, Some(0));
    assert!(
        ran.out.contains("TENURE_STORE") && !ran.out.contains("hunter2"),
        "{}",
        ran.out
    );
}

#[test]
fn help_of_serve_has_every_name_of_a_setting() {
    let mut help = tenure();
    help.args(["serve", "--help"]);
    let ran = run(help);
    assert_eq!(ran.code, Some(0));
    let text = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for must_say in [
        "--janitor-interval <DURATION>",
        "[default: 60s]",
        "[env: TENURE_JANITOR_INTERVAL]",
        "[file: janitor.interval]",
    ] {
        assert!(text.contains(must_say), "{must_say}: {text}");
    }
}
