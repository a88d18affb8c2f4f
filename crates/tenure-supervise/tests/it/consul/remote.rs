//! Removing a registration at the agent of another node.

use std::time::Duration;

use tenure_core::clock::SystemClock;
use tenure_supervise::catalog::consul::{DeregisterError, LIFE, RemoteAgents, Token};
use tenure_supervise::catalog::{Phase, Removed};
use tenure_testkit::consul::Agent;
use tenure_testkit::port::Port;

use super::{Way, health, listed, phase, put, service};

fn agents(allowed: &str) -> RemoteAgents {
    let allowed = allowed.parse().unwrap();
    RemoteAgents::new(allowed, Token::none(), Duration::from_secs(10), SystemClock::shared())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn janitor_removes_only_the_ended_life() {
    let Some(agent) = Agent::start() else { return };
    let catalog = Way::to(agent.addr()).catalog(service("web-1"));
    catalog.want(true);
    phase(&catalog, Phase::Passing).await;
    let life = listed(&agent, "web-1")["Meta"][LIFE].as_str().unwrap().to_owned();
    drop(catalog);
    let remote = agents(&agent.addr().to_string());
    let remove = async |life: Option<&str>| remote.deregister_at(&agent.url(), "web-1", life).await;
    assert_eq!(remove(Some("another")).await, Ok(Removed::Another));
    assert_ne!(health(&agent, "web-1"), "unknown");
    assert_eq!(remove(Some(&life)).await, Ok(Removed::Gone));
    assert_eq!(health(&agent, "web-1"), "unknown");
    assert_eq!(remove(Some(&life)).await, Ok(Removed::WasNotThere));
    assert_eq!(remove(None).await, Ok(Removed::WasNotThere));
    // A service without a life was not registered by Tenure.
    put(&agent, &serde_json::json!({"ID": "web-1", "Name": "web"}));
    assert_eq!(remove(Some(&life)).await, Ok(Removed::Another));
    assert_eq!(remove(None).await, Ok(Removed::Gone));
}

#[tokio::test]
async fn errors_name_forbidden_and_unreachable_agents() {
    let stopped = Port::reserve();
    let foreign = agents("10.0.0.0/8");
    let refused = foreign.deregister_at(&stopped.addr().to_string(), "web-1", None).await;
    assert_eq!(
        refused,
        Err(DeregisterError::NotAllowed(format!("http://{}", stopped.addr())))
    );
    let own = agents(&format!("loopback:{}", stopped.number()));
    let failed = own
        .deregister_at(&stopped.addr().to_string(), "web-1", None)
        .await
        .unwrap_err();
    assert!(failed.to_string().contains(&stopped.addr().to_string()), "{failed}");
    assert!(matches!(failed, DeregisterError::Failed { .. }));
    assert!(matches!(
        own.deregister_at("nowhere", "web-1", None).await,
        Err(DeregisterError::NoAgent(_))
    ));
}
