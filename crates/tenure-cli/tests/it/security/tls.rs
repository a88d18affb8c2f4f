//! HTTPS, by the built binary on both sides.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;
use tenure_testkit::certs::Certs;
use tenure_testkit::port::Port;
use tenure_testkit::{Process, wait};

use crate::security::tokens::Tokens;
use crate::support::{Ran, SOON, run, spawn, tenure};

struct Secure {
    process: Process,
    url: String,
}

fn serve(certs: &Certs, more: &[&str]) -> Secure {
    let process = spawn("tenure serve", |command, _| {
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        command
            .arg("--tls-cert")
            .arg(certs.server_cert())
            .arg("--tls-key")
            .arg(certs.server_key())
            .args(more);
    });
    let printed = || {
        let log = process.log();
        let line = log
            .lines()
            .find_map(|line| line.strip_prefix("https://")?.parse::<SocketAddr>().ok());
        line.map(|addr| format!("https://{addr}"))
    };
    wait::until("the daemon prints its address", SOON, || {
        assert!(process.is_running(), "{}", process.log_tail());
        printed().is_some()
    });
    let url = printed().unwrap();
    Secure { process, url }
}

fn ask(url: &str, args: &[&str]) -> Ran {
    let mut command = tenure();
    command.args(args).env("TENURE_STORE", url);
    run(command)
}

#[test]
fn commands_trust_only_the_given_authority() {
    let (certs, tokens) = (Certs::new(), Tokens::none());
    let token = tokens.new_token("one", &["--scope", "read,beat"]);
    let daemon = serve(&certs, &["--tokens", tokens.file().to_str().unwrap()]);
    let url = format!("{}?tls_ca={}", daemon.url, certs.ca().display());
    let mut status = tenure();
    status
        .args(["status", "--json", "--store", &url, "--token-file"])
        .arg(&token);
    let status = run(status).json();
    assert_eq!(
        (&status["access"]["tls"], &status["access"]["tokens"]),
        (&true.into(), &1.into())
    );
    let mut join = tenure();
    join.args(["join", "--member", "m", "--store", &url, "--token-file"])
        .arg(&token);
    join.args(["--", "sh", "-c", "test -n \"$TENURE_ID\""]);
    let joined = run(join);
    assert_eq!(joined.code, Some(0), "{}", joined.err);
    let stranger = format!("{}?tls_ca={}", daemon.url, certs.other_ca().display());
    let refused = ask(&stranger, &["members"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("unknown authority") && refused.err.contains("tls_ca"),
        "{}",
        refused.err
    );
    let plain = ask(&daemon.url.replace("https", "http"), &["members"]);
    assert_eq!(plain.code, Some(1), "{}", plain.out);
    assert!(daemon.process.is_running());
}

#[test]
fn missing_client_certificate_is_named() {
    let certs = Certs::new();
    let daemon = serve(&certs, &["--tls-client-ca", certs.ca().to_str().unwrap()]);
    let ca = format!("{}?tls_ca={}", daemon.url, certs.ca().display());
    let refused = ask(&ca, &["members"]);
    assert!(refused.err.contains("tls_cert"), "{}", refused.err);
    let cert = certs.client_cert().display().to_string();
    let own = format!("{ca}&tls_cert={cert}&tls_key={}", certs.client_key().display());
    let listed = ask(&own, &["groups"]);
    assert_eq!(listed.code, Some(0), "{}", listed.err);
}

#[test]
fn files_that_cannot_be_used_stop_the_start_by_name() {
    let certs = Certs::new();
    let key = certs.server_key().display().to_string();
    let cert = certs.server_cert().display().to_string();
    for (args, must_say) in [
        (vec!["--tls-cert", &cert], "tls.cert is given without tls.key"),
        (vec!["--tls-cert", "/nowhere.pem", "--tls-key", &key], "/nowhere.pem"),
        (vec!["--tls-cert", &key, "--tls-key", &key], "certificate"),
        (vec!["--tls-client-ca", &cert], "tls.client_ca is given without"),
        (
            vec!["--listen", "0.0.0.0:0", "--tls-cert", &cert, "--tls-key", &key],
            "would not be authenticated",
        ),
    ] {
        let mut command = tenure();
        command.args(["serve", "--store", "memory:"]);
        if args[0] != "--listen" {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let ran = run({
            command.args(&args);
            command
        });
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(must_say), "{}", ran.err);
    }
}

/// Puts certificates where a daemon and its clients look for theirs.
fn install(certs: &Certs, dir: &Path) {
    for (from, name) in [
        (certs.ca(), "ca.pem"),
        (certs.server_cert(), "server.pem"),
        (certs.server_key(), "server.key"),
        (certs.client_cert(), "client.pem"),
        (certs.client_key(), "client.key"),
    ] {
        fs::copy(from, dir.join(name)).unwrap();
    }
}

/// The member, as a command that has just read the files sees it.
fn member(url: &str) -> Option<Value> {
    let ran = ask(url, &["members", "m", "--json"]);
    (ran.code == Some(0)).then(|| serde_json::from_str(&ran.out).unwrap())
}

#[test]
fn member_beats_on_after_all_certificates_are_replaced() {
    let (old, new, place) = (Certs::new(), Certs::new(), tempfile::tempdir().unwrap());
    let (dir, port) = (place.path(), Port::reserve());
    install(&old, dir);
    let file = |name: &str| dir.join(name).display().to_string();
    let daemon = spawn("tenure serve", |command, _| {
        command.args([
            "serve",
            "--listen",
            &port.addr().to_string(),
            "--store",
            "sqlite:tenure.db",
        ]);
        command.args(["--tls-cert", &file("server.pem"), "--tls-key", &file("server.key")]);
        command.args(["--tls-client-ca", &file("ca.pem")]);
    });
    let url = format!(
        "https://{}?tls_ca={}&tls_cert={}&tls_key={}",
        port.addr(),
        file("ca.pem"),
        file("client.pem"),
        file("client.key")
    );
    wait::until("the daemon answers", SOON, || ask(&url, &["status"]).code == Some(0));
    let _joined = spawn("tenure join", |command, _| {
        command.args(["join", "--member", "m", "--ttl", "9s", "--", "sleep", "600"]);
        command.env("TENURE_STORE", &url);
    });
    wait::until("the member is there", SOON, || member(&url).is_some());
    let before = member(&url).unwrap();
    install(&new, dir);
    daemon.restart().unwrap();
    wait::until("the daemon is back", SOON, || member(&url).is_some());
    let back = member(&url).unwrap();
    wait::until("it has beaten since", SOON, || {
        let now = member(&url).unwrap();
        assert_eq!((&now["tenure"], &now["alive"]), (&before["tenure"], &true.into()));
        now["last_beat_at"].as_str() > back["last_beat_at"].as_str()
    });
}
