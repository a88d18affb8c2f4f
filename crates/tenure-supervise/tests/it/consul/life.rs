//! From the first registration to the last removal, with nothing in the way.

use serde_json::json;
use tenure_supervise::catalog::{Flushed, Phase};
use tenure_testkit::consul::Agent;

use super::{PATIENCE, Way, health, listed, phase, put, service, until_health};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_registered_while_it_is_wanted_and_gone_when_it_is_not() {
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
async fn any_text_may_be_an_id() {
    let Some(agent) = Agent::start() else { return };
    let catalog = Way::to(agent.url()).catalog(service("a/b c?d#ü%2F"));
    catalog.want(true);
    phase(&catalog, Phase::Passing).await;
    assert_eq!(health(&agent, "a%2Fb%20c%3Fd%23%C3%BC%252F"), "passing");
    assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_beats_it_is_critical_after_its_ttl() {
    let Some(agent) = Agent::start() else { return };
    let catalog = Way::to(agent.addr()).catalog(service("web-1"));
    catalog.want(true);
    phase(&catalog, Phase::Passing).await;
    // As a kill does.
    drop(catalog);
    until_health(&agent, "web-1", "critical");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_changed_by_hand_is_put_right_without_a_critical_moment() {
    let Some(agent) = Agent::start() else { return };
    let catalog = Way::to(agent.addr()).catalog(service("web-1"));
    catalog.want(true);
    phase(&catalog, Phase::Passing).await;
    put(&agent, &json!({"ID": "web-1", "Name": "web", "Port": 1}));
    tenure_testkit::wait::until("it is as it was", PATIENCE, || {
        assert_ne!(health(&agent, "web-1"), "critical");
        listed(&agent, "web-1")["Port"] == 4533
    });
    assert_eq!(catalog.flush(PATIENCE).await, Flushed::Gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_life_is_left_alone_and_succeeded_when_it_is_gone() {
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
