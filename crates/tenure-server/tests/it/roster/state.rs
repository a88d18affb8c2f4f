//! The status of rosters, and a daemon without rosters.

use serde_json::json;
use tenure_testkit::wait;

use crate::common::{Daemon, PATIENCE};
use crate::roster::server::RosterServer;

#[tokio::test]
async fn without_a_ledger_only_rosters_fail() {
    let daemon = Daemon::start().await;
    for (method, path) in [
        ("GET", "/v1/rosters"),
        ("GET", "/v1/rosters/r/available"),
        ("PUT", "/v1/rosters/r/providers/a"),
        ("POST", "/v1/rosters/r/providers/a/heartbeat"),
        ("POST", "/v1/rosters/r/reserve"),
    ] {
        let answer = daemon.request(method, path).send().await.unwrap();
        let answer = crate::common::Answer::read(answer).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (501, "unsupported"),
            "{method} {path}"
        );
        assert!(answer.text.contains("--ledger"), "{answer:?}");
    }
    assert!(daemon.get("/v1/status").await.json().get("rosters").is_none());
    assert_eq!(daemon.get("/readyz").await.status, 200);
    daemon.join("g", "m").await;
}

/// Until then the daemon is not ready: the schema may be missing.
async fn until_listed(server: &RosterServer) {
    wait::until_async("the ledger has listed its rosters", PATIENCE, || async {
        let ready = server.daemon.get("/readyz").await;
        assert!(
            ready.status == 200 || ready.text.contains("ledger: its schema"),
            "{ready:?}"
        );
        ready.status == 200
    })
    .await;
}

#[tokio::test]
async fn status_and_doctor_tell_of_the_ledger() {
    let server = RosterServer::open().await;
    server.seat("ana", 1).await;
    let rosters = server.daemon.get("/v1/status").await.json()["rosters"].clone();
    assert_eq!(rosters["ledger"]["up"], true, "{rosters}");
    assert_eq!(rosters["breaker"], "closed");
    assert_eq!(rosters.get("tokens"), None);
    let findings = server.daemon.get("/v1/doctor").await.json();
    assert!(findings["findings"].is_array(), "{findings}");
    until_listed(&server).await;
    assert_eq!(server.daemon.get("/readyz").await.status, 200, "seeding fails nothing");
}

#[tokio::test]
async fn readiness_notes_a_roster_until_it_is_seeded() {
    let server = RosterServer::open().await;
    server.seat("ana", 1).await;
    until_listed(&server).await;
    wait::until_async("the mirror is believed", PATIENCE, || async {
        let ready = server.daemon.get("/readyz").await;
        assert_eq!(ready.status, 200, "{ready:?}");
        let ready = ready.json();
        let notes = ready["notes"].as_array().cloned().unwrap_or_default();
        let of_rosters = |note: &serde_json::Value| note.as_str().is_some_and(|note| note.contains("ledger"));
        assert!(notes.iter().all(of_rosters), "{ready}");
        notes.is_empty()
    })
    .await;
    wait::until_async("the roster answers from its mirror", PATIENCE, || async {
        server.get("/available").await.json()["source"] == "mirror"
    })
    .await;
    assert_eq!(
        server.post("/providers/ana/heartbeat").await.json()["recorded"],
        "mirror"
    );
    assert_eq!(
        server.daemon.get("/v1/rosters").await.json(),
        json!({"rosters": ["support"]})
    );
    let status = server.daemon.get("/v1/status").await.json();
    let roster = &status["rosters"]["rosters"][0];
    let told = (&roster["roster"], &roster["answers_from"]);
    assert_eq!(told, (&json!("support"), &json!("mirror")), "{status}");
}
