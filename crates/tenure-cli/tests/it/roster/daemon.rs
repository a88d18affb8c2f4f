//! The daemon with its ledger: where that is by default, what happens without one, and who needs a token.

use serde_json::json;
use tenure_testkit::wait;

use crate::support::{Daemon, SOON, run, tenure};

#[test]
fn ledger_file_outlives_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let daemon = Daemon::start(&["--data-dir", data]);
    assert_eq!(daemon.run(&["roster", "put", "ana", "--capacity", "7"]).code, Some(0));
    assert!(dir.path().join("ledger.db").exists());
    drop(daemon);
    let again = Daemon::start(&["--data-dir", data]);
    let seen = again.run(&["roster", "show", "ana", "--json"]).json();
    assert_eq!(seen["capacity"], 7);
    // A file that a daemon owns is reached through it, ledger and all.
    let mut command = tenure();
    command.args(["roster", "names", "--json", "--store"]);
    command.arg(format!("sqlite:{}", dir.path().join("tenure.db").display()));
    wait::until("the roster is known", SOON, || {
        again.run(&["roster", "names", "--json"]).json() == json!({"rosters": ["default"]})
    });
    assert_eq!(run(command).json(), json!({"rosters": ["default"]}));
}

#[test]
fn a_store_without_a_daemon_is_served_by_the_command_itself() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", dir.path().join("x.db").display());
    let roster = |args: &[&str]| {
        let mut command = tenure();
        command.arg("roster").args(args).args(["--json", "--store", &store]);
        run(command)
    };
    assert_eq!(roster(&["put", "ana"]).code, Some(0));
    assert!(dir.path().join("x.ledger.db").exists());
    let online = roster(&["online", "ana"]).json();
    assert_eq!(online["providers"][0]["online"], true, "{online}");
    assert_eq!(roster(&["reserve"]).json()["provider"], "ana");
    assert_eq!(roster(&["names"]).json(), json!({"rosters": ["default"]}));
}

#[test]
fn a_daemon_whose_ledger_is_away_starts_and_serves_the_rest() {
    // Nothing listens there.
    let daemon = Daemon::start(&["--store", "memory:", "--ledger", "postgres://nobody@127.0.0.1:1/none"]);
    daemon.join("g", "m", 30_000);
    assert_eq!(daemon.http("GET", "/livez", "").0, 200);
    let (status, problem) = daemon.http("PUT", "/v1/rosters/r/providers/a", "{}");
    assert_eq!(
        (status, &problem["code"]),
        (503, &json!("store_unavailable")),
        "{problem}"
    );
    assert!(problem["retry_after_ms"].is_u64(), "{problem}");
    let ran = daemon.run(&["roster", "available"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    let status = daemon.run(&["status", "--json"]).json();
    assert!(!status.to_string().contains("nobody@"), "{status}");
}

#[test]
fn a_ledger_that_is_none_is_wrong_usage() {
    for (ledger, must_say) in [
        ("valkey://127.0.0.1", "is a store, not a ledger"),
        ("mongodb://x", "is not a ledger scheme"),
    ] {
        let mut command = tenure();
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--store",
            "memory:",
            "--ledger",
            ledger,
        ]);
        let ran = run(command);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(
            ran.err.contains("--ledger") && ran.err.contains(must_say),
            "{}",
            ran.err
        );
    }
}

#[test]
fn providers_need_a_token_when_a_secret_is_set() {
    const SECRET: &str = "a secret that is long enough for the daemon of this test";
    let daemon = Daemon::with(|command| {
        command.args(["--store", "memory:"]).env("TENURE_JWT_SECRET", SECRET);
    });
    assert_eq!(
        daemon.run(&["roster", "put", "ana"]).code,
        Some(0),
        "an operator needs none"
    );
    let none = daemon.run(&["roster", "online", "ana"]);
    assert_eq!(none.code, Some(1));
    assert!(none.err.contains("a provider's token is needed"), "{}", none.err);
    let mut bad = daemon.command(&["roster", "online", "ana"]);
    bad.env("TENURE_TOKEN", "nonsense");
    let bad = run(bad);
    assert!(bad.code == Some(1) && bad.err.contains("cannot be read"), "{}", bad.err);
    let status = daemon.run(&["status", "--json"]).json();
    assert_eq!(status["rosters"]["tokens"]["keys"], 1, "{status}");
    assert!(!daemon.process.log().contains(SECRET));
}
