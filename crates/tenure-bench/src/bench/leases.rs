//! The cost of acquiring and keeping leases.
//!
//! One beat keeps everything that an instance holds, so its cost must not grow with the leases. The baselines are a
//! hand-written lease (one key with a time to live, renewed by `PEXPIRE` in a pipeline) and etcd with one lease each.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tenure_core::id::{Group, LeaseName, TenureId};
use tenure_core::membership::{Beat, BeatReply, Revision};
use tenure_core::store::{Call, Store};
use tenure_testkit::etcd::Etcd;
use tokio::task::JoinSet;

use crate::load::{Load, request};
use crate::process::cpu_seconds;
use crate::report::{Goal, Report, Row};
use crate::stats::Samples;
use crate::subject;
use crate::suite::Size;
use crate::valkey::ValkeyServer;

/// Concurrent beats.
const BEATERS: usize = 8;
/// Leases per call.
const CALL: usize = 1_000;
const TTL_SECONDS: u64 = 600;

/// # Errors
/// If the run fails. etcd is skipped with a note if it is not installed.
pub async fn run(size: Size, report: Report) -> Result<()> {
    let valkey = ValkeyServer::start()?;
    let store = subject::open_patient(&valkey.url()).await?;
    valkey.client()?.call(&["HSET", "tenure:store", "born", "1"])?;
    let etcd = tokio::task::spawn_blocking(Etcd::start).await?;
    if etcd.is_none() {
        report.note("etcd is not installed; its rows are left out");
    }
    let sizes = size.pick([1, 100, 10_000], [1, 100, 1_000]);
    let mut worlds = Vec::new();
    for held in sizes {
        worlds.push(Fixture::hold(&valkey, &store, held, &report).await?);
    }
    for round in 0..size.rounds() {
        for fixture in &mut worlds {
            fixture.round(round, size).await?;
        }
    }
    for fixture in &worlds {
        fixture.write_rows(&report, etcd.as_ref(), size).await?;
    }
    let (one, most) = (&worlds[0], &worlds[2]);
    let name = format!("of one with {}", one.held);
    let what = format!("a beat of an instance with {} leases: server CPU", most.held);
    let row = Row::costs(what, "µs", &most.ours, &name, &one.ours);
    report.row(row.goal(Goal::Within(0.2)));
    store.close().await;
    Ok(())
}

struct Fixture<'a> {
    valkey: &'a ValkeyServer,
    store: &'a Arc<dyn Store>,
    group: Group,
    tenure: TenureId,
    revision: Revision,
    held: usize,
    ours: Samples,
    theirs: Samples,
}

impl<'a> Fixture<'a> {
    /// One instance that acquires its leases.
    async fn hold(valkey: &'a ValkeyServer, store: &'a Arc<dyn Store>, held: usize, report: &Report) -> Result<Self> {
        let group = subject::group(&format!("bench-{held}"))?;
        let mut tenures = subject::fill(store, &group, 1, subject::HOUR).await?;
        let tenure = tenures.pop().context("a tenure")?;
        let names: Vec<LeaseName> = names(held).map(LeaseName::new).collect::<Result<_, _>>()?;
        let (cpu, start) = (valkey.used()?.cpu, Instant::now());
        let mut revision = Revision::NONE;
        for some in names.chunks(CALL) {
            let acquired = store.acquire(&group, &tenure, some, Call::default()).await?;
            ensure!(
                acquired.outcomes.iter().all(|outcome| outcome.token().is_some()),
                "a lease was not granted"
            );
            revision = acquired.revision;
        }
        let (took, used) = (start.elapsed(), valkey.used()?.cpu - cpu);
        if held >= CALL {
            let what = format!("{held} leases acquired, {CALL} in a call: server CPU of each");
            report.row(Row::new(what, per_op(used, held), "µs"));
            let what = format!("{held} leases acquired: the whole time");
            report.row(Row::new(what, crate::stats::ms(took), "ms"));
        }
        Ok(Self {
            valkey,
            store,
            group,
            tenure,
            revision,
            held,
            ours: Samples::default(),
            theirs: Samples::default(),
        })
    }

    /// Measures the cost of keeping them for another ttl, with Tenure and by hand.
    async fn round(&mut self, round: usize, size: Size) -> Result<()> {
        for our_turn in [round.is_multiple_of(2), !round.is_multiple_of(2)] {
            if our_turn {
                self.ours.push(self.beats(size.pick(5_000, 500)).await?);
            } else {
                self.theirs.push(self.renewals(size.pick(50_000, 2_000))?);
            }
        }
        Ok(())
    }

    async fn write_rows(&self, report: &Report, etcd: Option<&Etcd>, size: Size) -> Result<()> {
        let what = format!("{} leases of one instance kept for a ttl: server CPU", self.held);
        report.row(Row::costs(what.clone(), "µs", &self.ours, "PEXPIRE each", &self.theirs));
        report.keep(format!("{what}, µs"), &self.ours);
        report.keep(format!("{what}, PEXPIRE µs"), &self.theirs);
        if let Some(etcd) = etcd {
            let theirs = self.etcd(etcd, size.pick(3_000, 300)).await?;
            let ours = self.ours.median();
            report.row(Row::new(what, ours, "µs").against("etcd keepalive each", theirs, Some(theirs / ours)));
        }
        Ok(())
    }

    /// Single beats, each of which keeps all leases. Returns the server's µs per beat.
    async fn beats(&self, count: usize) -> Result<f64> {
        let cpu = self.valkey.used()?.cpu;
        let mut tasks = JoinSet::new();
        for _ in 0..BEATERS {
            let (store, group) = (Arc::clone(self.store), self.group.clone());
            let beat = Beat {
                tenure: self.tenure.clone(),
                ttl: None,
                revision: self.revision,
                seen: Revision::NONE,
            };
            tasks.spawn(async move {
                for _ in 0..count / BEATERS {
                    let beaten = store.beat(&group, std::slice::from_ref(&beat)).await?;
                    let kept = |reply: &BeatReply| matches!(reply, BeatReply::Renewed { .. });
                    ensure!(beaten.replies.iter().all(kept), "a beat was not renewed");
                }
                Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.context("a beating task")??;
        }
        Ok(per_op(self.valkey.used()?.cpu - cpu, count / BEATERS * BEATERS))
    }

    /// One key per lease, renewed one by one. Returns the server's µs for all of them.
    fn renewals(&self, count: usize) -> Result<f64> {
        let mut client = self.valkey.client()?;
        let set: Vec<Vec<String>> = names(self.held)
            .map(|name| {
                ["SET", &format!("lease:{name}"), "node-1", "EX", "600"]
                    .map(str::to_owned)
                    .to_vec()
            })
            .collect();
        let renew: Vec<Vec<String>> = names(self.held)
            .map(|name| {
                ["PEXPIRE", &format!("lease:{name}"), "600000"]
                    .map(str::to_owned)
                    .to_vec()
            })
            .collect();
        for some in set.chunks(100) {
            ValkeyServer::pipeline(&mut client, some)?;
        }
        let (rounds, cpu) = ((count / self.held).max(1), self.valkey.used()?.cpu);
        for _ in 0..rounds {
            for some in renew.chunks(100) {
                ValkeyServer::pipeline(&mut client, some)?;
            }
        }
        Ok(per_op(self.valkey.used()?.cpu - cpu, rounds))
    }

    /// One etcd lease each, kept one by one over its JSON gateway. Returns the server's µs for all of them.
    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 leases")]
    async fn etcd(&self, etcd: &Etcd, count: usize) -> Result<f64> {
        let (addr, pid) = (etcd.addr(), etcd.process().pid().context("etcd has ended")?);
        // Distinct ids for each fixture.
        let ids = || (1..=self.held).map(|number| self.held * 100_000 + number);
        let grant = ids().map(|id| {
            request(
                addr,
                "POST",
                "/v3/lease/grant",
                &format!(r#"{{"TTL":{TTL_SECONDS},"ID":{id}}}"#),
            )
        });
        let keep = ids().map(|id| request(addr, "POST", "/v3/lease/keepalive", &format!(r#"{{"ID":{id}}}"#)));
        let mut load = Load {
            addr,
            connections: 16,
            requests: grant.collect(),
            count: self.held,
            time: std::time::Duration::from_secs(60),
            good: |_| true,
        };
        load.run().await.context("grant leases at etcd")?;
        load.requests = keep.collect();
        load.count = count.max(self.held);
        load.good = |body| body.windows(5).any(|window| window == b"\"TTL\"");
        let before = cpu_seconds(pid)?;
        let tally = load.run().await.context("keep leases at etcd")?;
        let used = cpu_seconds(pid)? - before;
        Ok(per_op(used, tally.good) * self.held as f64)
    }
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("endpoint-{number:05}"))
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 operations")]
fn per_op(cpu_seconds: f64, count: usize) -> f64 {
    cpu_seconds * 1e6 / count as f64
}
