//! The few calls of the agent's HTTP API. <https://developer.hashicorp.com/consul/api-docs/agent/service>

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Method, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_core::clock::{Clock, within};
use tenure_tls::ClientTls;

use super::LIFE;
use super::address::Address;
use super::token::{Reader, Token};
use crate::catalog::agent::{Agent, By, Listed};
use crate::catalog::{Failure, Service};
use crate::http;

/// No answer that concerns us is longer.
const LONGEST: usize = 1024 * 1024;
/// How much of an answer people get to see.
const SHOWN: usize = 200;

/// A client of one agent.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    connector: Arc<http::Connector>,
    address: Address,
    /// For agents of other addresses.
    tls: ClientTls,
    token: Reader,
    bound: Duration,
    clock: Arc<dyn Clock>,
}

/// What the agent has answered.
struct Answer {
    status: u16,
    body: String,
}

/// A service as the agent lists it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Found {
    service: String,
    #[serde(default)]
    tags: Option<Vec<String>>,
    #[serde(default)]
    meta: Option<BTreeMap<String, String>>,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    address: String,
}

impl Api {
    /// `tls`: the files for an agent behind TLS whose address names none. They are read here, and again when they change.
    pub(crate) fn new(
        address: &str,
        tls: &ClientTls,
        token: Token,
        bound: Duration,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        Self::with(Address::read(address)?, tls, Reader::new(token), bound, clock)
    }

    /// One of many that share a token.
    pub(super) fn with(
        address: Address,
        tls: &ClientTls,
        token: Reader,
        bound: Duration,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let tls = if address.files == ClientTls::default() {
            tls.clone()
        } else {
            address.files.clone()
        };
        let connector = http::Connector::new(address.is_secure().then_some(&tls), address.socket.clone())?;
        Ok(Self {
            connector: Arc::new(connector),
            address,
            tls,
            token,
            bound,
            clock,
        })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// One call, all of it within the bound. A connection that broke is replaced once, at once: all these calls may be
    /// made twice.
    async fn call(&self, method: Method, path: &[&str], body: Option<&Value>) -> Result<Answer, Failure> {
        let calls = async {
            match self.once(method.clone(), path, body).await {
                Err(Failure::Unreachable(_)) => self.once(method, path, body).await,
                done => done,
            }
        };
        let answer = within(&*self.clock, self.bound, calls)
            .await
            .unwrap_or(Err(Failure::Late))?;
        let refused = |body: &str| body.contains("Permission denied") || body.contains("ACL not found");
        if matches!(answer.status, 401 | 403) || (answer.status >= 400 && refused(&answer.body)) {
            return Err(Failure::Forbidden(shown(&answer)));
        }
        Ok(answer)
    }

    async fn once(&self, method: Method, path: &[&str], body: Option<&Value>) -> Result<Answer, Failure> {
        let broken = |error: reqwest::Error| Failure::Unreachable(http::chain(&error.without_url()));
        // A disk that hangs must leave time for the agent: a quarter of the bound for each of the two.
        let client = self.connector.client(&*self.clock, self.bound / 4).await;
        let mut request = client.request(method, self.url(path));
        if let Some(token) = self.token.now(&*self.clock, self.bound / 4).await {
            request = request.header("X-Consul-Token", token);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let mut answer = request.send().await.map_err(broken)?;
        let (status, mut body) = (answer.status().as_u16(), Vec::new());
        while let Some(chunk) = answer.chunk().await.map_err(broken)? {
            body.extend_from_slice(&chunk);
            if body.len() > LONGEST {
                return Err(Failure::Odd("the agent's answer is too long".to_owned()));
            }
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        Ok(Answer { status, body })
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.address.base.clone();
        // `http://` and `https://` always have a path to append to.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["v1", "agent"]).extend(path);
        }
        if path.contains(&"register") {
            url.set_query(Some("replace-existing-checks=true"));
        }
        url
    }
}

#[async_trait]
impl Agent for Api {
    fn place(&self) -> &str {
        &self.address.text
    }

    fn at(&self, place: &str) -> Option<Arc<dyn Agent>> {
        let address = Address::read(place).ok()?;
        let (token, clock) = (self.token.clone(), Arc::clone(&self.clock));
        let api = Self::with(address, &self.tls, token, self.bound, clock).ok()?;
        Some(Arc::new(api))
    }

    async fn register(&self, service: &Service, life: &str, passing: bool) -> Result<(), Failure> {
        let body = definition(service, life, passing);
        fine(&self.call(Method::PUT, &["service", "register"], Some(&body)).await?)?;
        self.token.registers();
        Ok(())
    }

    async fn pass(&self, service: &Service) -> Result<bool, Failure> {
        let check = check_of(&service.id);
        let answer = self.call(Method::PUT, &["check", "pass", &check], None).await?;
        // Consul says 404 today; it has said 500 for longer.
        let unknown = answer.body.contains("does not have associated TTL") || answer.body.contains("Unknown check");
        if answer.status == 404 || (answer.status == 500 && unknown) {
            return Ok(false);
        }
        fine(&answer).map(|()| true)
    }

    async fn look(&self, id: &str, service: Option<&Service>) -> Result<Option<Listed>, Failure> {
        let answer = self.call(Method::GET, &["service", id], None).await?;
        if answer.status == 404 {
            return Ok(None);
        }
        fine(&answer)?;
        let found: Found = serde_json::from_str(&answer.body)
            .map_err(|error| Failure::Odd(format!("the agent's answer about {id} cannot be read: {error}")))?;
        let mut listed = found.listed(service);
        listed.same &= service.is_none() || !self.token.is_rotated();
        Ok(Some(listed))
    }

    async fn deregister(&self, id: &str) -> Result<(), Failure> {
        let answer = self.call(Method::PUT, &["service", "deregister", id], None).await?;
        if answer.status == 404 {
            return Ok(());
        }
        fine(&answer)
    }
}

/// A service's health at its agent.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Health {
    service: Found,
    #[serde(default)]
    checks: Option<Vec<Check>>,
}

#[derive(Deserialize)]
struct Check {
    #[serde(rename = "CheckID")]
    id: String,
    #[serde(rename = "Status")]
    status: String,
}

/// Whose a registration is, and whether somebody keeps it alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pulse {
    pub(super) by: By,
    /// A beat has come within its ttl.
    pub(super) beats: bool,
}

impl Api {
    /// What is there under an id, and whether anybody beats for it. `None`: nothing is there.
    pub(super) async fn pulse(&self, id: &str) -> Result<Option<Pulse>, Failure> {
        let path = ["health", "service", "id", id];
        let answer = self.call(Method::GET, &path, None).await?;
        match answer.status {
            404 => return Ok(None),
            // The status tells the health; the body is the same.
            200 | 429 | 503 => {}
            _ => return Err(Failure::Odd(shown(&answer))),
        }
        let health: Health = serde_json::from_str(&answer.body)
            .map_err(|error| Failure::Odd(format!("the agent's answer about {id} cannot be read: {error}")))?;
        let ours = check_of(id);
        let beats = health.checks.iter().flatten();
        Ok(Some(Pulse {
            beats: beats
                .into_iter()
                .any(|check| check.id == ours && check.status == "passing"),
            by: health.service.listed(None).by,
        }))
    }
}

impl Found {
    fn listed(self, service: Option<&Service>) -> Listed {
        let mut meta = self.meta.unwrap_or_default();
        let by = meta.remove(LIFE).map_or(By::Unknown, By::Life);
        let same = service.is_none_or(|service| {
            self.service == service.name
                && self.port == service.port
                && self.address == service.address.as_deref().unwrap_or_default()
                && self.tags.as_deref().unwrap_or_default() == service.tags
                && meta == service.meta
        });
        Listed { by, same }
    }
}

fn check_of(id: &str) -> String {
    format!("service:{id}")
}

fn definition(service: &Service, life: &str, passing: bool) -> Value {
    let mut meta = service.meta.clone();
    meta.insert(LIFE.to_owned(), life.to_owned());
    // Whole milliseconds, as Go writes a duration.
    let millis = |duration: Duration| format!("{}ms", duration.as_millis());
    json!({
        "ID": service.id,
        "Name": service.name,
        "Address": service.address.as_deref().unwrap_or_default(),
        "Port": service.port,
        "Tags": service.tags,
        "Meta": meta,
        "Check": {
            "CheckID": check_of(&service.id),
            "Name": "supervised by Tenure",
            "TTL": millis(service.ttl),
            "Status": if passing { "passing" } else { "critical" },
            "DeregisterCriticalServiceAfter": millis(service.deregister_after),
        },
    })
}

fn fine(answer: &Answer) -> Result<(), Failure> {
    match answer.status {
        200..300 => Ok(()),
        // It could not; it may at another time, and who knows how far it came.
        500.. => Err(Failure::Odd(shown(answer))),
        _ => Err(Failure::Refused(shown(answer))),
    }
}

fn shown(answer: &Answer) -> String {
    let body: String = answer.body.trim().chars().take(SHOWN).collect();
    format!("{} {body}", answer.status)
}
