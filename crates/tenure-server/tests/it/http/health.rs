//! Probes, status and metrics; panics, outages and overload.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tenure::loops::Loops;
use tenure_core::ErrorKind;
use tenure_core::call::Verb;
use tenure_core::clock::SystemClock;
use tenure_core::memory::MemoryStore;
use tenure_core::store::{Store, StoreOptions};
use tenure_server::{Parts, Settings};
use tokio::runtime::Handle;

use crate::common::faulty::{Faulty, Mood};
use crate::common::{Answer, Daemon, PATIENCE, promised};
use crate::dashboard::fixture::{group, join_at, parts};

async fn moody(settings: Settings) -> (Daemon, Arc<Faulty>) {
    let clock = SystemClock::shared();
    let store = Faulty::new(clock.clone());
    (Daemon::over(store.clone(), clock, settings).await, store)
}

#[tokio::test]
async fn a_store_that_hangs_is_a_503_within_the_request_timeout() {
    let (daemon, store) = moody(Settings::default()).await;
    let tenure = daemon.join("g", "a").await;
    store.be(Mood::Hangs);
    let (join, beat, claim) = (json!({"member": "b"}), json!({}), json!({ "tenure": tenure }));
    let path = |rest: &str| format!("/v1/groups/g/{rest}");
    let beat_path = path(&format!("tenures/{tenure}/beat"));
    for (method, path, body, outcome) in [
        ("POST", path("members"), Some(join), "unknown"),
        ("GET", path("members"), None, "unchanged"),
        ("PUT", beat_path, Some(beat), "unknown"),
        ("PUT", path("registries/r/claims/k"), Some(claim), "unknown"),
        ("GET", path("registries/r/claims/k"), None, "unchanged"),
        ("GET", path("events"), None, "unchanged"),
        ("POST", path("sweep"), None, "unchanged"),
        ("GET", "/v1/groups".to_owned(), None, "unchanged"),
        ("GET", "/v1/now".to_owned(), None, "unchanged"),
    ] {
        let mut request = daemon.request(method, &path);
        if let Some(body) = &body {
            request = request.json(body);
        }
        let answer = async { Answer::read(request.send().await.unwrap()).await };
        let answer = promised(&format!("{method} {path}"), Duration::from_secs(2), answer).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (503, "store_unavailable".to_owned()),
            "{method} {path}"
        );
        let problem = answer.json();
        assert!(problem["retry_after_ms"].is_u64(), "{problem}");
        assert_eq!(problem["outcome"], outcome, "{method} {path}");
    }
}

#[tokio::test]
async fn one_time_out_counts_and_it_is_the_stores_own() {
    let own = Settings::default().request_timeout;
    let clock = SystemClock::shared();
    let store = Faulty::with_time_out(clock.clone(), own);
    let daemon = Daemon::over(store.clone(), clock, Settings::default()).await;
    let tenure = daemon.join("g", "a").await;
    store.be(Mood::Hangs);
    let path = |rest: &str| format!("/v1/groups/g/{rest}");
    for (method, path, body) in [
        ("PUT", path(&format!("tenures/{tenure}/beat")), Some(json!({}))),
        ("POST", path("beats"), Some(json!({"beats": [{ "tenure": tenure }]}))),
        ("PUT", path("registries/r/claims/k"), Some(json!({ "tenure": tenure }))),
        ("POST", path("leases/l/acquire"), Some(json!({ "tenure": tenure }))),
        ("DELETE", path(&format!("tenures/{tenure}")), None),
    ] {
        let mut request = daemon.request(method, &path);
        if let Some(body) = &body {
            request = request.json(body);
        }
        let answer = async { Answer::read(request.send().await.unwrap()).await };
        let answer = promised(&format!("{method} {path}"), own + Duration::from_secs(2), answer).await;
        let problem = answer.json();
        assert_eq!(problem["outcome"], "unknown", "{method} {path}: {problem}");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(
            detail.contains("the server did not answer"),
            "{method} {path}: {problem}"
        );
    }
}

#[tokio::test]
async fn liveness_never_asks_the_store_and_readiness_says_why_not() {
    let (daemon, store) = moody(Settings::default()).await;
    assert_eq!(
        daemon.get("/readyz").await.json(),
        json!({"ready": true, "reasons": []})
    );
    store.be(Mood::Hangs);
    // The promise is 50 ms; a busy test machine gets more. Calls of the store wait longer.
    let alive = promised("livez", Duration::from_millis(250), daemon.get("/livez")).await;
    assert_eq!(alive.status, 200);
    // It asks once a second at most, and says what it was told then.
    let says = |status: u16, what: &'static str| {
        let daemon = &daemon;
        tenure_testkit::wait::until_async(what, PATIENCE, move || async move {
            let ready = daemon.get("/readyz").await;
            let is_ready = ready.status == 200;
            assert_eq!(ready.json()["ready"], is_ready, "{}", ready.text);
            ready.status == status && (is_ready || ready.json()["reasons"][0].as_str().unwrap().contains(what))
        })
    };
    says(503, "did not answer").await;
    store.be(Mood::Fails(ErrorKind::Denied));
    says(503, "made to fail").await;
    store.be(Mood::Good);
    says(200, "ready").await;
}

#[tokio::test]
async fn readiness_asks_the_store_once_a_second_however_many_ask() {
    let (daemon, store) = moody(Settings::default()).await;
    let began = Instant::now();
    for _ in 0..10 {
        let all = (0..20).map(|_| daemon.get("/readyz"));
        for ready in futures_util::future::join_all(all).await {
            assert_eq!(ready.status, 200, "{}", ready.text);
        }
    }
    let most = 2 + usize::try_from(began.elapsed().as_secs()).unwrap();
    assert!(store.ticks() <= most, "{} ticks for 200 questions", store.ticks());
}

#[tokio::test]
async fn probe_completes_after_its_caller_disconnects() {
    let settings = Settings {
        request_timeout: Duration::from_secs(2),
        ..Settings::default()
    };
    let (daemon, store) = moody(settings).await;
    store.be(Mood::WaitsAt(Verb::Tick));
    let first = tokio::spawn(daemon.request("GET", "/readyz").send());
    store.someone_waits().await;
    let behind: Vec<_> = (0..5)
        .map(|_| tokio::spawn(daemon.request("GET", "/readyz").send()))
        .collect();
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    behind.iter().skip(1).for_each(tokio::task::JoinHandle::abort);
    store.be(Mood::Good);
    let opened = Instant::now();
    store.open(1);
    for answered in behind {
        if let Ok(answer) = answered.await {
            assert_eq!(answer.unwrap().status(), 200);
        }
    }
    // One, unless this took so long that another second began.
    let most = 1 + usize::try_from(opened.elapsed().as_secs()).unwrap();
    assert!(
        store.ticks() <= most,
        "a disconnected caller made the next one probe again"
    );
}

#[tokio::test]
async fn status_and_metrics_show_last_state_during_outage() {
    let (daemon, store) = moody(Settings::default()).await;
    daemon.join("g", "a").await;
    tenure_testkit::wait::until_async("the group was seen", PATIENCE, || async {
        daemon.get("/v1/status").await.json()["groups"][0]["members"] == 1
    })
    .await;
    store.be(Mood::Hangs);
    tenure_testkit::wait::until_async("the outage shows", PATIENCE, || async {
        daemon.get("/v1/status").await.json()["store"]["up"] == false
    })
    .await;
    let status = daemon.get("/v1/status").await.json();
    assert_eq!(
        (&status["groups"][0]["group"], &status["groups"][0]["members"]),
        (&json!("g"), &json!(1))
    );
    assert!(status["groups"][0]["age_ms"].as_u64().unwrap() >= 1, "{status}");
    assert!(status["store"]["reason"].is_string());
    let metrics = daemon.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.text.contains("tenure_http_requests_total"));
}

#[tokio::test]
async fn groups_with_most_members_are_named() {
    let store: Arc<dyn Store> = MemoryStore::new(StoreOptions::default(), SystemClock::shared());
    let daemon = Daemon::of(parts(&store), Settings::default()).await;
    for nth in 0..1_050 {
        join_at(&store, &group(&format!("crowd-{nth}")), "one", &[]).await;
    }
    // The last by name.
    for member in ["a", "b", "c"] {
        daemon.join("the-tenant", member).await;
    }
    tenure_testkit::wait::until_async("the largest group is named", PATIENCE, || async {
        let metrics = daemon.get("/metrics").await.text;
        metrics.contains("tenure_members{group=\"the-tenant\"} 3\n") && metrics.contains("tenure_groups 1051\n")
    })
    .await;
    let metrics = daemon.get("/metrics").await.text;
    let named = |name: &str| metrics.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(named("tenure_members{"), 1_001, "a thousand, and the sum of the others");
    assert!(named("tenure_ended_total{group=\"crowd-") <= 3_000);
    assert!(metrics.contains("tenure_members{group=\"(others)\"} "));
    let status = daemon.get("/v1/status").await.json();
    let groups = status["groups"].as_array().expect("groups");
    assert_eq!(groups.len(), 1_000);
    assert!(groups.iter().any(|one| one["group"] == "the-tenant"));
}

#[tokio::test]
async fn a_panic_in_a_handler_is_a_500_counted_and_survived() {
    let (daemon, store) = moody(Settings::default()).await;
    store.be(Mood::Panics);
    let answer = daemon.get("/v1/groups/g/registries/r/claims/panicking").await;
    assert_eq!((answer.status.as_u16(), answer.code()), (500, "internal".to_owned()));
    store.be(Mood::Good);
    assert_eq!(
        daemon.get("/v1/groups/g/registries/r/claims/panicking").await.status,
        404
    );
    let route = r#"route="/v1/groups/{g}/registries/{r}/claims/{key}""#;
    let metrics = daemon.get("/metrics").await.text;
    let counted = metrics
        .lines()
        .any(|line| line.starts_with("tenure_http_panics_total") && line.contains(route));
    assert!(counted, "{metrics}");
    assert_eq!(
        daemon.get("/v1/status").await.json()["requests"],
        0,
        "the place was given back"
    );
}

#[tokio::test]
async fn requests_are_counted_by_route_pattern() {
    let daemon = Daemon::start().await;
    daemon.join("secret-group", "m").await;
    daemon.join("told-group", "m").await;
    daemon.join("told-group", "m").await;
    daemon.get("/made/up/path").await;
    Answer::read(daemon.request("MADEUP", "/v1/groups").send().await.unwrap()).await;
    let metrics = daemon.get("/metrics").await.text;
    for wanted in [
        r#"tenure_http_requests_total{route="/v1/groups/{g}/members",method="POST",status="201"}"#,
        r#"tenure_http_requests_total{route="none",method="GET",status="404"}"#,
        r#"tenure_http_requests_total{route="/v1/groups",method="other",status="405"}"#,
        r#"tenure_http_request_duration_seconds_bucket{route="/v1/groups/{g}/members",le="#,
        r#"tenure_ended_total{group="told-group",reason="superseded"} 1"#,
        "tenure_http_connections ",
        "tenure_store_up 1",
    ] {
        assert!(metrics.contains(wanted), "no {wanted} in\n{metrics}");
    }
    assert!(!metrics.contains("made/up") && !metrics.contains("MADEUP"));
    // Groups that the daemon has looked at have series of their own, and may show up there at any time.
    let mut of_requests = metrics.lines().filter(|line| line.starts_with("tenure_http_"));
    assert!(!of_requests.any(|line| line.contains("secret-group")), "{metrics}");
}

#[tokio::test]
async fn slow_groups_do_not_hold_up_the_watch_loop() {
    let (daemon, store) = moody(Settings::default()).await;
    for n in 0..100 {
        daemon.join(&format!("g{n}"), "a").await;
    }
    // One after the other this takes ten seconds.
    store.be(Mood::Slow(Verb::Status, Duration::from_millis(100)));
    store.someone_waits().await;
    let turns = || async {
        let status = daemon.get("/v1/status").await.json();
        let loops = status["loops"].as_array().unwrap().clone();
        let watch = loops.iter().find(|one| one["name"] == "watch").unwrap();
        watch["runs"].as_u64().unwrap()
    };
    let before = turns().await;
    let three_more =
        tenure_testkit::wait::until_async("three turns", PATIENCE, || async { turns().await >= before + 3 });
    promised("three turns of the watch loop", Duration::from_secs(6), three_more).await;
}

#[tokio::test]
async fn overload_refuses_requests_but_answers_probes() {
    let settings = Settings {
        max_requests: 2,
        ..Settings::default()
    };
    let (daemon, store, _) = Daemon::still(settings).await;
    store.be(Mood::WaitsAt(Verb::Members));
    let look = || tokio::spawn(daemon.request("GET", "/v1/groups/g/members").send());
    let (one, two) = (look(), look());
    daemon.until_inside(2).await;
    let third = daemon.get("/v1/groups/g/members").await;
    assert_eq!((third.status.as_u16(), third.code()), (503, "overloaded".to_owned()));
    assert_eq!(third.json()["outcome"], "unchanged");
    assert_eq!(daemon.get("/livez").await.status, 200);
    store.be(Mood::Good);
    store.open(2);
    for looked in [one, two] {
        assert_eq!(looked.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(daemon.get("/v1/groups/g/members").await.status, 200);
}

#[tokio::test]
async fn liveness_fails_when_a_loop_keeps_panicking() {
    let clock = SystemClock::shared();
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let probe = {
        let broken = Arc::clone(&broken);
        Arc::new(move |name: &str| {
            assert!(
                name != "watch" || !broken.load(std::sync::atomic::Ordering::Relaxed),
                "made to panic"
            );
        })
    };
    let loops = Loops::with_probe(clock.clone(), Handle::current(), Some(probe));
    let parts = Parts {
        loops,
        ..Parts::new(Faulty::new(clock.clone()), clock)
    };
    let daemon = Daemon::of(parts, Settings::default()).await;
    tenure_testkit::wait::until_async("the loop has panicked often", PATIENCE, || async {
        daemon.get("/livez").await.status == 503
    })
    .await;
    assert!(daemon.get("/livez").await.text.contains("the loop watch panicked"));
    broken.store(false, std::sync::atomic::Ordering::Relaxed);
    tenure_testkit::wait::until_async("it is well again", PATIENCE, || async {
        daemon.get("/livez").await.status == 200
    })
    .await;
    let status = daemon.get("/v1/status").await.json();
    let watch = status["loops"]
        .as_array()
        .unwrap()
        .iter()
        .find(|l| l["name"] == "watch")
        .unwrap()
        .clone();
    assert!(
        watch["panics"].as_u64().unwrap() >= 5 && watch["last_success"].is_string(),
        "{watch}"
    );
    assert!(watch["last_error"].is_string(), "what was wrong is kept: {watch}");
    assert_eq!(watch["bad_in_a_row"], 0, "and it is well: {watch}");
}
