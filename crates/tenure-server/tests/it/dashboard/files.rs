//! The files of the page, as they are served.

use crate::common::{Answer, Daemon};

async fn known(daemon: &Daemon, path: &str, tag: &str) -> Answer {
    let request = daemon.request("GET", path).header("if-none-match", tag);
    Answer::read(request.send().await.expect("an answer")).await
}

#[tokio::test]
async fn files_have_a_strict_content_security_policy() {
    let daemon = Daemon::start().await;
    for path in [
        "/",
        "/dashboard/index.html",
        "/dashboard/main.js",
        "/dashboard/style.css",
        "/dashboard/mark.svg",
    ] {
        let answer = daemon.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        let policy = answer.header("content-security-policy");
        for rule in [
            "default-src 'none'",
            "script-src 'self';",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        assert_eq!(answer.header("cache-control"), "no-cache");
    }
    assert!(
        daemon
            .get("/dashboard/main.js")
            .await
            .header("content-type")
            .starts_with("text/javascript")
    );
}

#[tokio::test]
async fn cached_file_is_sent_again_only_when_changed() {
    let daemon = Daemon::start().await;
    let first = daemon.get("/dashboard/main.js").await;
    let again = known(&daemon, "/dashboard/main.js", first.header("etag")).await;
    assert_eq!((again.status.as_u16(), again.text.as_str()), (304, ""));
    let other = known(&daemon, "/dashboard/main.js", "\"another\"").await;
    assert_eq!((other.status.as_u16(), other.text), (200, first.text));
}

#[tokio::test]
async fn unknown_file_is_404() {
    let daemon = Daemon::start().await;
    for path in [
        "/dashboard/",
        "/dashboard/tests.rs",
        "/dashboard/..%2f..%2fCargo.toml",
        "/dashboard/a/b.js",
    ] {
        let answer = daemon.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (404, "no_such_route"),
            "{path}"
        );
    }
    assert_eq!(
        daemon
            .send("POST", "/dashboard/main.js", serde_json::json!({}))
            .await
            .status,
        405
    );
}
