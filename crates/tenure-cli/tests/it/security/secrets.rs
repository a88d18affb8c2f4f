//! Secrets are in no log, no error, no answer and no list of processes.

use std::process::Command;

use crate::security::tokens::Tokens;
use crate::support::{Daemon, run, said, tenure};

/// What is looked for.
const PASSWORD: &str = "hunter2-of-the-database";
const KEY: &str = "a key for the tokens of providers, long enough";

#[track_caller]
fn is_clean(what: &str, text: &str, secrets: &[&str]) {
    for secret in secrets {
        let at = text.find(secret);
        assert!(at.is_none(), "a secret is in {what}, at {at:?}: {text}");
    }
}

#[test]
fn secrets_appear_in_no_output() {
    let tokens = Tokens::none();
    let reader = tokens.new_token("reader", &["--scope", "read,write,operate,beat"]);
    let token = std::fs::read_to_string(&reader).unwrap().trim().to_owned();
    let ledger = format!("postgres://tenure:{PASSWORD}@127.0.0.1:1/tenure?password={PASSWORD}");
    let daemon = Daemon::with(|command| {
        command
            .args(["--store", "memory:", "--log", "trace", "--tokens"])
            .arg(tokens.file());
        command.env("TENURE_LEDGER", ledger).env("TENURE_JWT_SECRET", KEY);
    });
    let secrets = [PASSWORD, KEY, &token[4..]];
    said(&daemon.process, "serving");
    let shown = format!("Bearer {token}");
    let headers = [("authorization", shown.as_str()), ("content-type", "application/json")];
    let ask = |method: &str, path: &str, body: &str| {
        tenure_testkit::http::request_with(daemon.addr, method, path, &headers, body).unwrap()
    };
    for (method, path, body) in [
        ("GET", "/v1/status", ""),
        ("GET", "/metrics", ""),
        ("GET", "/v1/doctor", ""),
        ("GET", "/readyz", ""),
        ("GET", "/v1/rosters", ""),
        ("GET", "/v1/rosters/r/providers", ""),
        ("PUT", "/v1/rosters/r/providers/p", "{}"),
        ("POST", "/v1/rosters/r/providers/p/online", "{}"),
        ("POST", "/v1/rosters/r/providers/p/deactivate", "{}"),
        ("POST", "/v1/groups/g/members", "{\"member\": 7}"),
        ("POST", "/v1/groups/g/sweep", "{\"force\": true}"),
    ] {
        let (status, answer) = ask(method, path, body);
        is_clean(&format!("the answer {status} of {method} {path}"), &answer, &secrets);
    }
    for path in ["/v1/status", "/readyz"] {
        let (_, answer) = tenure_testkit::http::get(daemon.addr, path).unwrap();
        is_clean(&format!("what strangers see of {path}"), &answer, &secrets);
    }
    let list = Command::new("ps").args(["-eww", "-o", "args"]).output().unwrap();
    is_clean(
        "the list of processes",
        &String::from_utf8_lossy(&list.stdout),
        &secrets,
    );
    daemon.process.terminate(crate::support::SOON).unwrap();
    is_clean("the log", &daemon.process.log(), &secrets);
}

#[test]
fn connection_errors_hide_passwords() {
    let urls = [
        format!("valkey://tenure:{PASSWORD}@127.0.0.1:1/0"),
        format!("redis://:{PASSWORD}@127.0.0.1:1"),
        format!("http://tenure:{PASSWORD}@127.0.0.1:1"),
        format!("https://tenure:{PASSWORD}@127.0.0.1:1?tls_ca=/nowhere"),
        format!("mysql://tenure:{PASSWORD}@h"),
        format!("valkey://tenure:{PASSWORD}@127.0.0.1:1/notanumber"),
        format!("valkey://tenure:{PASSWORD}@[::"),
    ];
    for url in &urls {
        for args in [
            &["status"][..],
            &["doctor"],
            &["members"],
            &["bench", "--for", "100ms"],
            &["serve", "--listen", "127.0.0.1:0"],
            &["join", "--patience", "0s", "--", "true"],
            &["config", "explain"],
        ] {
            let mut command = tenure();
            command.args(args).env("TENURE_STORE", url).env("TENURE_LOG", "trace");
            // A daemon whose store is away waits for it.
            let mut command = if args[0] == "serve" {
                let mut timed = Command::new("timeout");
                timed.args(["2"]).arg(command.get_program()).args(args);
                timed.env("TENURE_STORE", url).env("TENURE_LOG", "trace");
                timed
            } else {
                command
            };
            command.current_dir(std::env::temp_dir());
            let ran = run(command);
            let said = format!("{}{}", ran.out, ran.err);
            is_clean(&format!("what {args:?} says"), &said, &[PASSWORD]);
        }
    }
    for url in [
        format!("postgres://u:{PASSWORD}@127.0.0.1:1/d"),
        format!("nonsense://u:{PASSWORD}@h"),
    ] {
        let mut command = tenure();
        command
            .args(["doctor", "--store", "memory:"])
            .env("TENURE_LEDGER", &url);
        let ran = run(command);
        is_clean(
            "what a doctor says of a ledger",
            &format!("{}{}", ran.out, ran.err),
            &[PASSWORD],
        );
    }
}

/// Variables with secrets that a wrapper may find in its environment.
const SECRETS: [&str; 5] = [
    "TENURE_TOKEN",
    "TENURE_LEDGER",
    "TENURE_JWT_SECRET",
    "TENURE_REGISTRATIONS_TOKEN",
    "TENURE_ADOPT_LEASES_TENURE_STORE",
];

#[test]
fn supervised_command_and_its_probe_get_no_secrets() {
    let mut command = tenure();
    let dir = tempfile::tempdir().unwrap();
    command.current_dir(dir.path());
    command.args(["run", "--leader", "always", "--ready", "exec:env > probe"]);
    command.args([
        "--",
        "sh",
        "-c",
        "until test -s probe; do sleep 0.02; done; env; cat probe",
    ]);
    for name in SECRETS {
        command.env(name, PASSWORD);
    }
    command
        .env("CONSUL_HTTP_TOKEN", PASSWORD)
        .env("CONSUL_HTTP_TOKEN_FILE", "/run/token");
    command.env("TENURE_STORE", format!("valkey://user:{PASSWORD}@127.0.0.1:1/0"));
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    is_clean("the environment of a command", &ran.out, &[PASSWORD]);
    for kept in [
        "TENURE_STORE=valkey://user@127.0.0.1:1/0",
        "CONSUL_HTTP_TOKEN_FILE=/run/token",
    ] {
        assert_eq!(ran.out.matches(kept).count(), 2, "{kept}: {}", ran.out);
    }
}

#[test]
fn joined_command_gets_no_secrets() {
    let daemon = Daemon::start(&["--store", "memory:"]);
    let mut command = daemon.command(&["join", "--", "env"]);
    for name in SECRETS {
        command.env(name, "not_a_word_to_anyone");
    }
    let ran = run(command);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    is_clean("the environment of a command", &ran.out, &["not_a_word_to_anyone"]);
    assert!(
        ran.out.contains(&format!("TENURE_STORE={}", daemon.url())),
        "{}",
        ran.out
    );
}
