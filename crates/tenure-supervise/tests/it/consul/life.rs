//! A registration from start to end, without failures.

use serde_json::json;
use tenure_supervise::catalog::{Flushed, Phase};
use tenure_testkit::consul::Agent;

use super::{PATIENCE, Way, health, listed, phase, put, service, until_health};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_is_registered_only_while_wanted() {
    let Some(agent) = Agent::start() else { return };
    let catalog = Way::to(agent.addr()).catalog(service("web-1"));
    catalog.absent().await;
    assert_eq!(health(&agent, "web-1"), "unknown");
    for _ in 0..3 {
        catalog.want(true);
        phase(&catalog, Phase::Passing).await;
        assert_eq!(health(&agent, "web-1"), "passing");
        let found = listed(&agent, "web-1");
        assert_eq!((&found["Service"], &found["Port"]), (&json!("web"), &json!(4533)));
        assert_eq!(
            (&found["Address"], &found["Tags"]),
            (&json!("10.1.2.3"), &json!(["primary"]))
        );
        assert_eq!(found["Meta"]["role"], "music");
        assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
        assert_eq!(health(&agent, "web-1"), "unknown");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn id_may_contain_any_text() {
    let Some(agent) = Agent::start() else { return };
    let catalog = Way::to(agent.url()).catalog(service("a/b c?d#ü%2F"));
    catalog.want(true);
    phase(&catalog, Phase::Passing).await;
    assert_eq!(health(&agent, "a%2Fb%20c%3Fd%23%C3%BC%252F"), "passing");
    assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_is_critical_a_ttl_after_its_last_beat() {
    let Some(agent) = Agent::start() else { return };
    let catalog = Way::to(agent.addr()).catalog(service("web-1"));
    catalog.want(true);
    phase(&catalog, Phase::Passing).await;
    // Like a kill.
    drop(catalog);
    until_health(&agent, "web-1", "critical");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manual_change_is_reverted_without_turning_critical() {
    let Some(agent) = Agent::start() else { return };
    let catalog = Way::to(agent.addr()).catalog(service("web-1"));
    catalog.want(true);
    phase(&catalog, Phase::Passing).await;
    put(&agent, &json!({"ID": "web-1", "Name": "web", "Port": 1}));
    tenure_testkit::wait::until("the change is reverted", PATIENCE, || {
        assert_ne!(health(&agent, "web-1"), "critical");
        listed(&agent, "web-1")["Port"] == 4533
    });
    assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_life_is_left_alone_until_it_is_gone() {
    let Some(agent) = Agent::start() else { return };
    let way = Way::to(agent.addr());
    let (old, new) = (way.catalog(service("web-1")), way.catalog(service("web-1")));
    old.want(true);
    phase(&old, Phase::Passing).await;
    new.want(true);
    phase(&old, Phase::Taken).await;
    phase(&new, Phase::Passing).await;
    assert_eq!(old.flush(PATIENCE).await, Flushed::Gone);
    assert_eq!(health(&agent, "web-1"), "passing");
    old.want(true);
    phase(&new, Phase::Taken).await;
    assert_eq!(old.flush(PATIENCE).await, Flushed::Gone);
    phase(&new, Phase::Passing).await;
    assert_eq!(health(&agent, "web-1"), "passing");
}
