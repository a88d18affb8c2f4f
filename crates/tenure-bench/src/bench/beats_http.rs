//! One beat per HTTP request: Tenure's daemon on its embedded store, a bare handler of the same framework, Consul's
//! `check/pass`, and etcd's keepalive over its JSON gateway, with the same load generator, and with `wrk` as a second
//! witness.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tenure_testkit::consul::Agent;
use tenure_testkit::etcd::Etcd;
use tenure_testkit::{Availability, have};
use tokio::process::Command;

use crate::bare::Bare;
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
        ("the bare handler", Some(Side::bare(ours.load.clone()).await?)),
        (
            "Consul",
            Side::consul("Consul check/pass, one check", Some(1.8), 1).await?,
        ),
        ("Consul", Side::consul("Consul check/pass", None, members).await?),
        ("etcd", Side::etcd(members).await?),
    ] {
        match side {
            Some(side) => theirs.push(side),
            None => report.note(format!("{name} is not installed; a row is left out")),
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
        report.row(match side.goal {
            Some(goal) => row.goal(Goal::Times(goal)),
            None => row,
        });
        report.row(Row::costs(
            "server CPU of a beat",
            "µs",
            &ours.cpu,
            side.name,
            &side.cpu,
        ));
        report.row(Row::costs("latency p99", "ms", &ours.p99, side.name, &side.p99));
    }
    match have("wrk") {
        Availability::Found(wrk) => {
            for _ in 0..size.rounds() {
                for side in std::iter::once(&mut ours).chain(&mut theirs) {
                    side.witness(&wrk, time).await?;
                }
            }
            for side in &theirs {
                let what = format!("{CONNECTIONS} connections, measured by wrk");
                report.row(Row::rates(what, "beats/s", &ours.wrk, side.name, &side.wrk));
            }
        }
        Availability::Missing { .. } => report.note("wrk is not installed; there is no second witness".to_owned()),
    }
    for side in std::iter::once(&ours).chain(&theirs) {
        report.keep(format!("{} beats/s", side.name), &side.rate);
        report.keep(format!("{} beats/s by wrk", side.name), &side.wrk);
        report.keep(format!("{} server µs", side.name), &side.cpu);
        report.keep(format!("{} p99 ms", side.name), &side.p99);
    }
    Ok(())
}

/// A server and its load.
struct Side {
    name: &'static str,
    goal: Option<f64>,
    load: Load,
    pid: u32,
    rate: Samples,
    cpu: Samples,
    p99: Samples,
    /// The rate by the second load generator.
    wrk: Samples,
    /// Keeps the server running.
    _server: Box<dyn Send>,
}

impl Side {
    fn new(name: &'static str, goal: Option<f64>, load: Load, pid: u32, server: impl Send + 'static) -> Self {
        let (rate, cpu, p99, wrk) = Default::default();
        Self {
            name,
            goal,
            load,
            pid,
            rate,
            cpu,
            p99,
            wrk,
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

    /// A round with `wrk`: the same requests on as many connections.
    async fn witness(&mut self, wrk: &Path, time: Duration) -> Result<()> {
        // A quoted string of Rust is one of Lua, since the requests are ASCII without quotes in other than escaped form.
        let requests: Vec<String> = self
            .load
            .requests
            .iter()
            .map(|request| format!("{:?}", String::from_utf8_lossy(request)))
            .collect();
        let script = format!("requests = {{{}}}\n{}", requests.join(","), include_str!("wrk.lua"));
        let file = std::env::temp_dir().join(format!("tenure-bench-{}.lua", std::process::id()));
        tokio::fs::write(&file, script).await?;
        let output = Command::new(wrk)
            .args([
                "-t1",
                &format!("-c{CONNECTIONS}"),
                &format!("-d{}s", time.as_secs().max(1)),
                "-s",
            ])
            .arg(&file)
            .arg(format!("http://{}", self.load.addr))
            .output()
            .await
            .context("run wrk")?;
        tokio::fs::remove_file(&file).await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let failed = text
            .lines()
            .find(|line| line.contains("Non-2xx") || line.contains("Socket errors"));
        ensure!(
            failed.is_none(),
            "wrk at {}: {}",
            self.name,
            failed.unwrap_or_default().trim()
        );
        let rate = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
        let rate = rate.with_context(|| format!("wrk printed no rate: {text}"))?;
        self.wrk.push(rate.trim().parse().context("wrk's rate")?);
        Ok(())
    }

    /// The requests are those of another side.
    async fn bare(requests: Load) -> Result<Self> {
        let bare = Bare::start().await?;
        let addr = bare.addr();
        let load = Load { addr, ..requests };
        let pid = bare.pid()?;
        Ok(Self::new("a bare handler", Some(0.85), load, pid, bare))
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
        Ok(Self::new("Tenure", None, load, daemon.pid()?, daemon))
    }

    async fn consul(name: &'static str, goal: Option<f64>, members: usize) -> Result<Option<Self>> {
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
        Ok(Some(Self::new(name, goal, load, pid, agent)))
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
        Ok(Some(Self::new("etcd keepalive", Some(8.0), load, pid, etcd)))
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
