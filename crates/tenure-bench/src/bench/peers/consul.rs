//! Consul: TTL checks of one agent as heartbeats, sessions as locks.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use serde_json::Value;
use tenure_testkit::consul::Agent;
use tenure_testkit::{Availability, have};
use tokio::time::sleep;

use super::peer::{Holder, Locks, Peer, Way, share};
use crate::load::{Http, Lane, request};
use crate::subject::member;

/// Concurrent registrations.
const JOINERS: usize = 16;
/// How often a waiter asks again while the lock-delay lasts.
const POLL: Duration = Duration::from_millis(100);
/// The TTL of a waiter's session: it needs no renewal.
const WAITER: Duration = Duration::from_secs(120);

pub(super) struct Consul {
    agent: Agent,
    ttl: Duration,
}

impl Consul {
    pub(super) async fn start(ttl: Duration) -> Result<Option<Self>> {
        if let Availability::Missing { .. } = have("consul") {
            return Ok(None);
        }
        let agent = tokio::task::spawn_blocking(Agent::start).await?;
        Ok(agent.map(|agent| Self { agent, ttl }))
    }
}

#[async_trait]
impl Peer for Consul {
    fn processes(&self) -> Result<Vec<u32>> {
        Ok(vec![self.agent.process().pid().context("Consul has ended")?])
    }

    async fn join(&self, members: usize) -> Result<()> {
        let addr = self.agent.addr();
        let register = (0..members).map(|number| {
            let (name, ttl) = (member(number), self.ttl.as_secs());
            let check = format!(r#"{{"Name":"{name}","ID":"{name}","TTL":"{ttl}s","Status":"passing"}}"#);
            request(addr, "PUT", "/v1/agent/check/register", &check)
        });
        super::send_all(addr, JOINERS, register)
            .await
            .context("register checks with Consul")
    }

    async fn lanes(&self, members: Range<usize>, lanes: usize) -> Result<Vec<Lane>> {
        let addr = self.agent.addr();
        let mut all = Vec::new();
        for lane in 0..lanes {
            let requests = share(members.clone(), lane, lanes).map(|number| pass(addr, number));
            all.push(Lane::http(addr, requests.collect(), 0.., |_| true).await?);
        }
        Ok(all)
    }

    /// The agent's best case.
    async fn other_ways(&self, _members: usize, lanes: usize) -> Result<Vec<Way>> {
        let Some(alone) = Self::start(self.ttl).await? else {
            bail!("Consul is not installed any more");
        };
        alone.join(1).await?;
        let addr = alone.agent.addr();
        let mut all = Vec::new();
        for _ in 0..lanes {
            all.push(Lane::http(addr, [pass(addr, 0)].into(), 0.., |_| true).await?);
        }
        let mut way = Way::single("one check only", all);
        way.server = Some(Box::new(alone));
        Ok(vec![way])
    }

    async fn alive(&self) -> Result<usize> {
        let mut http = Http::connect(self.agent.addr()).await?;
        let passing = http.call("GET", "/v1/health/state/passing", "").await?;
        let checks: Vec<Value> = serde_json::from_str(&passing)?;
        // One more is that of the agent itself.
        let is_member = |check: &&Value| check["CheckID"].as_str().is_some_and(|id| id.starts_with("node-"));
        Ok(checks.iter().filter(is_member).count())
    }

    fn locks(&self) -> Vec<(&'static str, Arc<dyn Locks>)> {
        let addr = self.agent.addr();
        let locks = |delay| -> Arc<dyn Locks> { Arc::new(Sessions { addr, delay }) };
        vec![("", locks("15s")), ("lock-delay 0", locks("0s"))]
    }
}

fn pass(addr: SocketAddr, number: usize) -> Vec<u8> {
    request(addr, "PUT", &format!("/v1/agent/check/pass/{}", member(number)), "")
}

struct Sessions {
    addr: SocketAddr,
    delay: &'static str,
}

#[async_trait]
impl Locks for Sessions {
    fn shortest(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn hold(&self, lock: &str, ttl: Duration) -> Result<Box<dyn Holder>> {
        let mut http = Http::connect(self.addr).await?;
        let session = session(&mut http, ttl, self.delay).await?;
        ensure!(acquire(&mut http, lock, &session).await?, "the lock {lock} is not free");
        Ok(Box::new(SessionHolder { http, session }))
    }

    /// A blocking query until the lock is released, then attempts until the lock-delay is over.
    async fn wait(&self, lock: &str) -> Result<Instant> {
        let mut http = Http::connect(self.addr).await?;
        let session = session(&mut http, WAITER, self.delay).await?;
        let mut index = 0;
        loop {
            let path = format!("/v1/kv/{lock}?index={index}&wait=30s");
            let found: Value = serde_json::from_str(&http.call("GET", &path, "").await?)?;
            let entry = &found[0];
            index = entry["ModifyIndex"].as_u64().context("no index of a key")?;
            if entry.get("Session").is_none() {
                break;
            }
        }
        while !acquire(&mut http, lock, &session).await? {
            sleep(POLL).await;
        }
        Ok(Instant::now())
    }
}

struct SessionHolder {
    http: Http,
    session: String,
}

#[async_trait]
impl Holder for SessionHolder {
    async fn renew(&mut self) -> Result<()> {
        let path = format!("/v1/session/renew/{}", self.session);
        self.http.call("PUT", &path, "").await.map(drop)
    }
}

/// A session that does not depend on the health of the node.
async fn session(http: &mut Http, ttl: Duration, delay: &str) -> Result<String> {
    let request = format!(r#"{{"TTL":"{}s","LockDelay":"{delay}","Checks":[]}}"#, ttl.as_secs());
    let created: Value = serde_json::from_str(&http.call("PUT", "/v1/session/create", &request).await?)?;
    Ok(created["ID"].as_str().context("no id of a session")?.to_owned())
}

async fn acquire(http: &mut Http, lock: &str, session: &str) -> Result<bool> {
    let path = format!("/v1/kv/{lock}?acquire={session}");
    Ok(http.call("PUT", &path, session).await?.trim() == "true")
}
