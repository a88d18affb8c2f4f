//! The daemons of the cells, and the calls that the harness makes itself.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tenure_testkit::port::Port;
use tenure_testkit::{Process, http};

use crate::script::{LEASE, MEMBER};

const START: Duration = Duration::from_secs(60);
/// How many cells use a daemon at a time, and in all.
const AT_A_TIME: usize = 8;
const IN_ALL: usize = 160;
/// The harness' members live longer than a cell.
const TTL_MS: u64 = 110_000;
/// How long an acquire waits; it is repeated. Less than the patience of the client.
const WAIT_MS: u64 = 15_000;

/// A daemon in memory that has been told that no lease was held before.
#[derive(Debug)]
pub(crate) struct Daemon {
    port: Port,
    _process: Process,
}

impl Daemon {
    fn start(tenure: &Path) -> Result<Self> {
        let port = Port::reserve();
        let process = Process::spawn("tenure serve", |dir| {
            let mut command = Command::new(tenure);
            for (name, _) in std::env::vars_os() {
                if name.to_string_lossy().starts_with("TENURE_") {
                    command.env_remove(name);
                }
            }
            command
                .current_dir(dir)
                .args(["serve", "--store", "memory:", "--drain", "0s"]);
            command.args(["--listen", &port.addr().to_string(), "--brake-share", "1.0"]);
            command
        })?;
        process.wait_ready(START, || {
            let (status, body) = http::get(port.addr(), "/readyz")?;
            ensure!(status == 200, "not ready: {status} {body}");
            Ok(())
        })?;
        let (status, body) = http::request(port.addr(), "POST", "/v1/settle", "")?;
        ensure!(status == 200, "cannot settle: {status} {body}");
        Ok(Self {
            port,
            _process: process,
        })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.port.addr()
    }
}

/// Daemons, each for a number of cells with a group of their own.
#[derive(Debug)]
pub(crate) struct Daemons {
    tenure: PathBuf,
    /// Each with the number of cells that it has served.
    all: Mutex<Vec<(Arc<Daemon>, usize)>>,
}

impl Daemons {
    pub(crate) fn of(tenure: &Path) -> Self {
        Self {
            tenure: tenure.to_owned(),
            all: Mutex::default(),
        }
    }

    /// A daemon with room for another cell.
    pub(crate) fn one(&self) -> Result<Arc<Daemon>> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        // One that has served its cells ends with the last of them.
        all.retain(|(_, served)| *served < IN_ALL);
        if let Some((daemon, served)) = all
            .iter_mut()
            .find(|(daemon, _)| Arc::strong_count(daemon) <= AT_A_TIME)
        {
            *served += 1;
            return Ok(Arc::clone(daemon));
        }
        let daemon = Arc::new(Daemon::start(&self.tenure)?);
        all.push((Arc::clone(&daemon), 1));
        Ok(daemon)
    }
}

/// Calls about one group.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    pub(crate) addr: SocketAddr,
    pub(crate) group: String,
}

impl Api {
    fn call(&self, method: &str, path: &str, body: &Value) -> Result<(u16, Value)> {
        let path = format!("/v1/groups/{}/{path}", self.group);
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let headers = [("Content-Type", "application/json")];
        let (status, body) = http::request_with(self.addr, method, &path, &headers, &text)?;
        Ok((status, serde_json::from_str(&body).unwrap_or(Value::Null)))
    }

    /// Joins, and returns the tenure.
    pub(crate) fn join(&self, member: &str, ttl_ms: u64) -> Result<String> {
        let body = json!({ "member": member, "ttl_ms": ttl_ms });
        let (status, said) = self.call("POST", "members", &body)?;
        let tenure = said["tenure"].as_str();
        Ok(tenure
            .with_context(|| format!("cannot join: {status} {said}"))?
            .to_owned())
    }

    /// Joins as the process that waits for the lease.
    pub(crate) fn join_waiter(&self) -> Result<String> {
        self.join("waiter", TTL_MS)
    }

    /// Waits for the lease once. Returns whether it was granted.
    pub(crate) fn wait(&self, tenure: &str) -> Result<bool> {
        self.acquire(tenure, WAIT_MS)
    }

    pub(crate) fn acquire(&self, tenure: &str, wait_ms: u64) -> Result<bool> {
        let body = json!({ "tenure": tenure, "wait_ms": wait_ms });
        let (status, said) = self.call("POST", &format!("leases/{LEASE}/acquire"), &body)?;
        match (status, said["code"].as_str()) {
            (200, _) => Ok(true),
            (409, _) | (_, Some("tenure_ended")) => Ok(false),
            _ => bail!("cannot acquire: {status} {said}"),
        }
    }

    pub(crate) fn beat(&self, tenure: &str) -> Result<bool> {
        Ok(self.call("PUT", &format!("tenures/{tenure}/beat"), &Value::Null)?.0 == 200)
    }

    /// Ends a tenure.
    pub(crate) fn leave(&self, tenure: &str) -> Result<()> {
        self.call("DELETE", &format!("tenures/{tenure}"), &Value::Null)
            .map(drop)
    }

    /// Releases the wrapper's lease as an operator does.
    pub(crate) fn release(&self) -> Result<()> {
        let path = format!("leases/{LEASE}");
        let (_, said) = self.call("GET", &path, &Value::Null)?;
        let token = said["token"].as_u64().with_context(|| format!("no holder: {said}"))?;
        let (status, said) = self.call("DELETE", &format!("{path}?token={token}"), &Value::Null)?;
        // 409: on a late machine the lease has moved on in between.
        ensure!(status < 300 || status == 409, "cannot release: {status} {said}");
        Ok(())
    }

    /// Expels the wrapper's member.
    pub(crate) fn expel(&self) -> Result<()> {
        let (_, said) = self.call("GET", &format!("members/{MEMBER}"), &Value::Null)?;
        let tenure = said["tenure"].as_str().with_context(|| format!("no member: {said}"))?;
        let (status, said) = self.call("DELETE", &format!("tenures/{tenure}?expel=true"), &Value::Null)?;
        ensure!(status < 300, "cannot expel: {status} {said}");
        Ok(())
    }
}
