//! One beat per HTTP request: Tenure's daemon on its embedded store, Consul's `check/pass`, and etcd's keepalive over
//! its JSON gateway, with the same number of members and the same load generator.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tenure_testkit::consul::Agent;
use tenure_testkit::etcd::Etcd;

use crate::daemon::Daemon;
use crate::load::{Load, request};
use crate::process::cpu_seconds;
use crate::report::{Goal, Report, Row};
use crate::stats::Samples;
use crate::subject;
use crate::suite::Size;

const CONNECTIONS: usize = 32;
const TTL_SECONDS: u64 = 120;

/// # Errors
/// If Tenure's side fails. A baseline that is not installed is skipped with a note.
pub async fn run(size: Size, report: Report) -> Result<()> {
    let members = size.pick(1_000, 200);
    let mut ours = Side::tenure(members).await?;
    let mut theirs = Vec::new();
    for (name, side) in [
        ("Consul", Side::consul(members).await?),
        ("etcd", Side::etcd(members).await?),
    ] {
        match side {
            Some(side) => theirs.push(side),
            None => report.note(format!("{name} is not installed; its row is left out")),
        }
    }
    let time = size.pick(Duration::from_secs(2), Duration::from_millis(500));
    for round in 0..=size.rounds() {
        for side in std::iter::once(&mut ours).chain(&mut theirs) {
            // The first round is a warm-up.
            side.round(time, round > 0).await?;
        }
    }
    for side in &theirs {
        let row = Row::rates(
            format!("{CONNECTIONS} connections"),
            "beats/s",
            &ours.rate,
            side.name,
            &side.rate,
        );
        report.row(row.goal(Goal::Times(side.goal)));
        report.row(Row::costs(
            "server CPU of a beat",
            "µs",
            &ours.cpu,
            side.name,
            &side.cpu,
        ));
        report.row(Row::costs("latency p99", "ms", &ours.p99, side.name, &side.p99));
    }
    for side in std::iter::once(&ours).chain(&theirs) {
        report.keep(format!("{} beats/s", side.name), &side.rate);
        report.keep(format!("{} server µs", side.name), &side.cpu);
        report.keep(format!("{} p99 ms", side.name), &side.p99);
    }
    Ok(())
}

/// A server and its load.
struct Side {
    name: &'static str,
    goal: f64,
    load: Load,
    pid: u32,
    rate: Samples,
    cpu: Samples,
    p99: Samples,
    /// Keeps the server running.
    _server: Box<dyn Send>,
}

impl Side {
    fn new(name: &'static str, goal: f64, load: Load, pid: u32, server: impl Send + 'static) -> Self {
        let (rate, cpu, p99) = Default::default();
        Self {
            name,
            goal,
            load,
            pid,
            rate,
            cpu,
            p99,
            _server: Box::new(server),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 requests")]
    async fn round(&mut self, time: Duration, counts: bool) -> Result<()> {
        self.load.time = time;
        let before = cpu_seconds(self.pid)?;
        let tally = self
            .load
            .run()
            .await
            .with_context(|| format!("beats to {}", self.name))?;
        let used = cpu_seconds(self.pid)? - before;
        if counts {
            self.rate.push(tally.rate());
            self.cpu.push(used * 1e6 / tally.good as f64);
            self.p99.push(tally.latency.percentile(99.0));
        }
        Ok(())
    }

    async fn tenure(members: usize) -> Result<Self> {
        let daemon = Daemon::start(None).await?;
        let store = subject::open(&daemon.url()).await?;
        let group = subject::group("bench")?;
        let tenures = subject::fill(&store, &group, members, Duration::from_secs(TTL_SECONDS)).await?;
        store.close().await;
        let addr = daemon.addr();
        let beat = |tenure| request(addr, "PUT", &format!("/v1/groups/bench/tenures/{tenure}/beat"), "");
        let load = load(addr, tenures.iter().map(beat), |body| holds(body, b"expires_in_ms"));
        Ok(Self::new("Tenure", 1.0, load, daemon.pid()?, daemon))
    }

    async fn consul(members: usize) -> Result<Option<Self>> {
        let Some(agent) = tokio::task::spawn_blocking(Agent::start).await? else {
            return Ok(None);
        };
        let addr = agent.addr();
        let register = (0..members).map(|number| {
            let name = subject::member(number);
            let check = format!(r#"{{"Name":"{name}","ID":"{name}","TTL":"{TTL_SECONDS}s"}}"#);
            request(addr, "PUT", "/v1/agent/check/register", &check)
        });
        all(load(addr, register, |_| true))
            .await
            .context("register checks with Consul")?;
        let pass = (0..members).map(|number| {
            request(
                addr,
                "PUT",
                &format!("/v1/agent/check/pass/{}", subject::member(number)),
                "",
            )
        });
        let load = load(addr, pass, |_| true);
        let pid = agent.process().pid().context("Consul has ended")?;
        Ok(Some(Self::new("Consul check/pass", 1.8, load, pid, agent)))
    }

    async fn etcd(members: usize) -> Result<Option<Self>> {
        let Some(etcd) = tokio::task::spawn_blocking(Etcd::start).await? else {
            return Ok(None);
        };
        let addr = etcd.addr();
        let grant = (1..=members).map(|id| {
            let lease = format!(r#"{{"TTL":{TTL_SECONDS},"ID":{id}}}"#);
            request(addr, "POST", "/v3/lease/grant", &lease)
        });
        all(load(addr, grant, |_| true)).await.context("grant leases at etcd")?;
        let keep = (1..=members).map(|id| request(addr, "POST", "/v3/lease/keepalive", &format!(r#"{{"ID":{id}}}"#)));
        // For an expired lease etcd replies with status 200 and without a TTL.
        let load = load(addr, keep, |body| holds(body, b"\"TTL\""));
        let pid = etcd.process().pid().context("etcd has ended")?;
        Ok(Some(Self::new("etcd keepalive", 8.0, load, pid, etcd)))
    }
}

fn load(addr: SocketAddr, requests: impl Iterator<Item = Vec<u8>>, good: fn(&[u8]) -> bool) -> Load {
    let requests: Arc<[Vec<u8>]> = requests.collect();
    Load {
        addr,
        connections: CONNECTIONS,
        requests,
        count: usize::MAX,
        time: Duration::from_secs(30),
        good,
    }
}

/// Sends every request once.
async fn all(mut load: Load) -> Result<()> {
    load.count = load.requests.len();
    load.run().await.map(drop)
}

fn holds(body: &[u8], what: &[u8]) -> bool {
    body.windows(what.len()).any(|window| window == what)
}
