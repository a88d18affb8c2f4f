//! The catalog of a real Consul agent, and its failures.

mod access;
mod journal;
mod life;
mod outage;
mod remote;
mod shapes;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tenure_core::clock::SystemClock;
use tenure_supervise::catalog::consul::{ConsulSettings, Token, catalog};
use tenure_supervise::catalog::{Catalog, Phase, Service};
use tenure_testkit::consul::Agent;
use tenure_testkit::wait;

/// The timeout for events that are fast on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The service of the tests: a ttl of nine seconds instead of fifteen. Not less: a beat every third of it must survive
/// a stall of two seconds.
fn service(id: &str) -> Service {
    let mut service = Service::new(id, "web", 4533);
    service.address = Some("10.1.2.3".to_owned());
    service.tags = vec!["primary".to_owned()];
    service.meta.insert("role".to_owned(), "music".to_owned());
    service.ttl = Duration::from_secs(9);
    service
}

/// How a test reaches its agent.
struct Way {
    address: String,
    token: Token,
    journal: Option<PathBuf>,
}

impl Way {
    fn to(address: impl ToString) -> Self {
        Self {
            address: address.to_string(),
            token: Token::none(),
            journal: None,
        }
    }

    fn catalog(&self, service: Service) -> Catalog {
        let settings = ConsulSettings {
            token: self.token.clone(),
            journal: self.journal.clone(),
            ..ConsulSettings::new(self.address.clone())
        };
        catalog(settings, service, &SystemClock::shared()).unwrap()
    }
}

/// Waits for a phase of the registration.
async fn phase(catalog: &Catalog, wanted: Phase) {
    let mut status = catalog.watch();
    let wait = status.wait_for(|status| status.phase == wanted);
    let came = tokio::time::timeout(PATIENCE, wait).await.is_ok();
    assert!(came, "timed out waiting for {wanted:?}: {}", catalog.status());
}

/// The health of a service at the agent: `passing`, `critical` or unknown.
fn health(agent: &Agent, id: &str) -> &'static str {
    match agent
        .http("GET", &format!("/v1/agent/health/service/id/{id}"), "")
        .unwrap()
        .0
    {
        200 => "passing",
        503 => "critical",
        404 => "unknown",
        status => panic!("{status} about {id}"),
    }
}

#[track_caller]
fn until_health(agent: &Agent, id: &str, wanted: &str) {
    wait::until(&format!("{id} is {wanted}"), PATIENCE, || health(agent, id) == wanted);
}

/// A service as the agent lists it.
fn listed(agent: &Agent, id: &str) -> Value {
    let (status, body) = agent.http("GET", &format!("/v1/agent/service/{id}"), "").unwrap();
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// Registers a service by hand.
fn put(agent: &Agent, definition: &Value) {
    let answer = agent
        .http("PUT", "/v1/agent/service/register", &definition.to_string())
        .unwrap();
    assert_eq!(answer.0, 200, "{}", answer.1);
}
