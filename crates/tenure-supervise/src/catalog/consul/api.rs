//! A client for the agent's HTTP API. <https://developer.hashicorp.com/consul/api-docs/agent/service>

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
use super::token::{Token, TokenReader};
use crate::catalog::agent::{Agent, ListedService, RegisteredBy};
use crate::catalog::{Failure, Service};
use crate::http;

/// The maximum length of a response.
const LONGEST: usize = 1024 * 1024;
/// How much of a response an error shows.
const SHOWN: usize = 200;

/// A client of one agent.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    connector: Arc<http::Connector>,
    address: Address,
    /// For agents at other addresses.
    tls: ClientTls,
    token: TokenReader,
    bound: Duration,
    clock: Arc<dyn Clock>,
}

/// A response of the agent.
struct AgentReply {
    status: u16,
    body: String,
}

/// A service as listed by the agent.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AgentService {
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
    /// `tls`: the files for an agent behind TLS whose address names none. They are read here, and again when they
    /// change.
    pub(crate) fn new(
        address: &str,
        tls: &ClientTls,
        token: Token,
        bound: Duration,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        Self::with(Address::read(address)?, tls, TokenReader::new(token), bound, clock)
    }

    /// A client that shares its token reader with others.
    pub(super) fn with(
        address: Address,
        tls: &ClientTls,
        token: TokenReader,
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

    /// One call within the bound. A broken connection is retried once, immediately: all calls are idempotent.
    async fn call(&self, method: Method, path: &[&str], body: Option<&Value>) -> Result<AgentReply, Failure> {
        let calls = async {
            match self.once(method.clone(), path, body).await {
                Err(Failure::Unreachable(_)) => match self.once(method, path, body).await {
                    // The first attempt was sent, and may take effect.
                    Err(Failure::NotSent(why)) => Err(Failure::Unreachable(why)),
                    done => done,
                },
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

    async fn once(&self, method: Method, path: &[&str], body: Option<&Value>) -> Result<AgentReply, Failure> {
        let broken = |error: reqwest::Error| match error.is_connect() {
            true => Failure::NotSent(http::chain(&error.without_url())),
            false => Failure::Unreachable(http::chain(&error.without_url())),
        };
        // A hung disk must leave time for the agent, so each of the two reads gets a quarter of the bound.
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
                return Err(Failure::Odd("the agent's response is too long".to_owned()));
            }
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        Ok(AgentReply { status, body })
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.address.base.clone();
        // `http` and `https` URLs always have a path.
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
        // Current versions of Consul return 404, older ones 500.
        let unknown = answer.body.contains("does not have associated TTL") || answer.body.contains("Unknown check");
        if answer.status == 404 || (answer.status == 500 && unknown) {
            return Ok(false);
        }
        fine(&answer).map(|()| true)
    }

    async fn look(&self, id: &str, service: Option<&Service>) -> Result<Option<ListedService>, Failure> {
        let answer = self.call(Method::GET, &["service", id], None).await?;
        if answer.status == 404 {
            return Ok(None);
        }
        fine(&answer)?;
        let found: AgentService = serde_json::from_str(&answer.body)
            .map_err(|error| Failure::Odd(format!("cannot parse the agent's response about {id}: {error}")))?;
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

/// The health of a service at its agent.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HealthReply {
    service: AgentService,
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

/// The owner of a registration, and whether its beats arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServiceHealth {
    pub(super) by: RegisteredBy,
    /// A beat arrived within the ttl.
    pub(super) beats: bool,
}

impl Api {
    /// The registration of an id and its health. `None`: not registered.
    pub(super) async fn health(&self, id: &str) -> Result<Option<ServiceHealth>, Failure> {
        let path = ["health", "service", "id", id];
        let answer = self.call(Method::GET, &path, None).await?;
        match answer.status {
            404 => return Ok(None),
            // The status encodes the health; the body has the same format.
            200 | 429 | 503 => {}
            _ => return Err(Failure::Odd(shown(&answer))),
        }
        let health: HealthReply = serde_json::from_str(&answer.body)
            .map_err(|error| Failure::Odd(format!("cannot parse the agent's response about {id}: {error}")))?;
        let ours = check_of(id);
        let beats = health.checks.iter().flatten();
        Ok(Some(ServiceHealth {
            beats: beats
                .into_iter()
                .any(|check| check.id == ours && check.status == "passing"),
            by: health.service.listed(None).by,
        }))
    }
}

impl AgentService {
    fn listed(self, service: Option<&Service>) -> ListedService {
        let mut meta = self.meta.unwrap_or_default();
        let by = meta.remove(LIFE).map_or(RegisteredBy::Unknown, RegisteredBy::Life);
        let same = service.is_none_or(|service| {
            self.service == service.name
                && self.port == service.port
                && self.address == service.address.as_deref().unwrap_or_default()
                && self.tags.as_deref().unwrap_or_default() == service.tags
                && meta == service.meta
        });
        ListedService { by, same }
    }
}

fn check_of(id: &str) -> String {
    format!("service:{id}")
}

fn definition(service: &Service, life: &str, passing: bool) -> Value {
    let mut meta = service.meta.clone();
    meta.insert(LIFE.to_owned(), life.to_owned());
    // Whole milliseconds in Go's duration format.
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

fn fine(answer: &AgentReply) -> Result<(), Failure> {
    match answer.status {
        200..300 => Ok(()),
        // An internal error: it may succeed later, and may have taken partial effect.
        500.. => Err(Failure::Odd(shown(answer))),
        _ => Err(Failure::Refused(shown(answer))),
    }
}

fn shown(answer: &AgentReply) -> String {
    let body: String = answer.body.trim().chars().take(SHOWN).collect();
    format!("{} {body}", answer.status)
}
