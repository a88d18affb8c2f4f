//! Rejected, rotated and revoked tokens.

use serde_json::{Value, json};
use tenure_supervise::catalog::consul::Token;
use tenure_supervise::catalog::{Flushed, Phase};
use tenure_testkit::consul::Agent;

use super::{PATIENCE, Way, phase, service};

const MASTER: &str = "5f0c1b0e-2f0e-4a35-8d8b-3f1f2b6c7d11";

/// An agent that denies all requests without a token.
fn locked() -> Option<Agent> {
    let acl = format!(r#"acl {{ enabled = true  default_policy = "deny"  tokens {{ master = "{MASTER}" }} }}"#);
    let agent = Agent::with(&["-hcl", &acl])?;
    let ready = || {
        agent
            .http_as(MASTER, "GET", "/v1/acl/tokens", "")
            .is_ok_and(|(status, _)| status == 200)
    };
    tenure_testkit::wait::until("the access control is ready", PATIENCE, ready);
    let rules = r#"service_prefix "web" { policy = "write" }"#;
    let policy = json!({"Name": "web", "Rules": rules}).to_string();
    let answer = agent.http_as(MASTER, "PUT", "/v1/acl/policy", &policy).unwrap();
    assert_eq!(answer.0, 200, "{}", answer.1);
    Some(agent)
}

/// A token and its accessor id, for revoking it.
fn token(agent: &Agent) -> (String, String) {
    let wanted = json!({"Policies": [{"Name": "web"}]}).to_string();
    let (status, made) = agent.http_as(MASTER, "PUT", "/v1/acl/token", &wanted).unwrap();
    assert_eq!(status, 200, "{made}");
    let made: Value = serde_json::from_str(&made).unwrap();
    let text = |key: &str| made[key].as_str().unwrap().to_owned();
    (text("SecretID"), text("AccessorID"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_token_is_reported_and_a_rotated_one_is_used() {
    let Some(agent) = locked() else { return };
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("token");
    std::fs::write(&file, "not-a-token").unwrap();
    let mut way = Way::to(agent.addr());
    way.token = Token::file(&file);
    let catalog = way.catalog(service("web-1"));
    catalog.want(true);
    phase(&catalog, Phase::Forbidden).await;
    for _ in 0..2 {
        let (secret, accessor) = token(&agent);
        std::fs::write(&file, format!("{secret}\n")).unwrap();
        phase(&catalog, Phase::Passing).await;
        let revoked = agent
            .http_as(MASTER, "DELETE", &format!("/v1/acl/token/{accessor}"), "")
            .unwrap();
        assert_eq!(revoked.0, 200, "{}", revoked.1);
        phase(&catalog, Phase::Forbidden).await;
    }
    let (secret, _) = token(&agent);
    catalog.want(false);
    phase(&catalog, Phase::Forbidden).await;
    std::fs::write(&file, secret).unwrap();
    assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
    let found = agent.http_as(MASTER, "GET", "/v1/agent/service/web-1", "").unwrap();
    assert_eq!(found.0, 404, "{}", found.1);
}
