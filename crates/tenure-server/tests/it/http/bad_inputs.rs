//! Whatever is wrong with a request: a stable code, a sentence that names what is wrong, and nothing changed.

mod case;
mod daemon;
mod leases;
mod members;
mod registries;
mod sessions;
mod targets;

use serde_json::json;
use tenure_server::Settings;

use case::Case;

use crate::common::{Answer, Daemon};

#[tokio::test]
async fn a_bad_request_is_refused_by_name_and_changes_nothing() {
    let daemon = Daemon::start().await;
    let (tenure, other) = (daemon.join("g", "keeper").await, daemon.join("g", "other").await);
    daemon
        .send(
            "PUT",
            "/v1/groups/g/registries/r/claims/kept",
            json!({ "tenure": tenure }),
        )
        .await;
    let held = json!({ "tenure": tenure });
    daemon.send("POST", "/v1/groups/g/leases/kept/acquire", held).await;
    daemon
        .send("PUT", "/v1/groups/g/targets/kept", json!({"weight": 7}))
        .await;
    let attached = json!({"tenure": tenure, "connection": "c", "data": {"x": 1}});
    daemon.send("PUT", "/v1/groups/g/sessions/kept", attached).await;
    let sight = async || {
        let events = daemon.get("/v1/groups/g/events?limit=1000").await.json();
        let claims = daemon.get("/v1/groups/g/registries/r/claims").await.json();
        let targets = daemon.get("/v1/groups/g/targets").await.json();
        let held = daemon.get("/v1/groups/g/leases/kept").await.json()["token"].clone();
        let sessions = daemon.get("/v1/groups/g/sessions").await.json();
        let groups = daemon.get("/v1/groups").await.json();
        (events, claims, targets, held, sessions, groups)
    };
    let before = sight().await;
    let cases = [
        daemon::cases(),
        members::cases(),
        registries::cases(),
        leases::cases(),
        targets::cases(),
        sessions::cases(),
    ];
    let mut wrong = Vec::new();
    for Case {
        method,
        path,
        kind,
        body,
        status,
        code,
        must_say,
    } in cases.into_iter().flatten()
    {
        let mut request = daemon.request(method, &path);
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let shown = format!(
            "{method} {path} {:?} {}",
            kind,
            String::from_utf8_lossy(&body[..body.len().min(120)])
        );
        let answer = Answer::read(request.body(body).send().await.expect(&shown)).await;
        if (answer.status.as_u16(), answer.code().as_str()) != (status, code) || !answer.text.contains(must_say) {
            wrong.push(format!(
                "{shown}\n  wanted {status} {code} {must_say:?}\n  got {answer:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{} wrong answers:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(sight().await, before);
    assert_eq!(
        daemon.get("/v1/groups/g/members/other").await.json()["tenure"],
        json!(other)
    );
}

#[tokio::test]
async fn a_bad_not_after_and_a_bad_last_event_id_are_refused_by_name() {
    let daemon = Daemon::start().await;
    for bad in ["yesterday", "", "1767225600", "1960-01-01T00:00:00Z"] {
        let request = daemon
            .request("POST", "/v1/groups/g/members")
            .header("Tenure-Not-After", bad);
        let answer = Answer::read(request.json(&json!({"member": "m"})).send().await.unwrap()).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (422, "invalid".to_owned()),
            "{bad}"
        );
        assert!(answer.text.contains("Tenure-Not-After"), "{}", answer.text);
    }
    let request = daemon
        .request("GET", "/v1/groups/g/events")
        .header("accept", "text/event-stream");
    let answer = Answer::read(request.header("last-event-id", "x").send().await.unwrap()).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (422, "invalid".to_owned()));
    let request = daemon
        .request("GET", "/v1/groups/g/events?limit=5")
        .header("accept", "text/event-stream");
    assert_eq!(Answer::read(request.send().await.unwrap()).await.code(), "invalid");
    assert_eq!(daemon.get("/v1/groups").await.json(), json!({"groups": []}));
}

#[tokio::test]
async fn wrong_method_lists_allowed_methods() {
    let daemon = Daemon::start().await;
    let answer = Answer::read(daemon.request("DELETE", "/v1/groups/g/members").send().await.unwrap()).await;
    let mut allowed: Vec<_> = answer.header("allow").split(',').map(str::trim).collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
}

#[tokio::test]
async fn a_body_of_unknown_length_is_cut_off_at_the_limit() {
    let daemon = Daemon::with(Settings {
        body_limit: 1000,
        ..Settings::default()
    })
    .await;
    let pieces = futures_util::stream::iter((0..20).map(|_| Ok::<_, std::io::Error>(vec![b' '; 100])));
    let request = daemon
        .request("POST", "/v1/groups/g/members")
        .header("content-type", "application/json");
    let answer = Answer::read(request.body(reqwest::Body::wrap_stream(pieces)).send().await.unwrap()).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code()),
        (413, "body_too_large".to_owned())
    );
    let fits = futures_util::stream::iter([&b"{\"member\""[..], b":\"m\"", b"}"].map(Ok::<_, std::io::Error>));
    let request = daemon
        .request("POST", "/v1/groups/g/members")
        .header("content-type", "application/json; charset=utf-8");
    assert_eq!(
        request
            .body(reqwest::Body::wrap_stream(fits))
            .send()
            .await
            .unwrap()
            .status(),
        201
    );
}
