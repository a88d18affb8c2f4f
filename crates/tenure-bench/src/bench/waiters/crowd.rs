//! 10,000 members on 100 leases, one holder and 99 waiters each, at one daemon, each on a connection of its own: the order in which they are served, what
//! they cost the store, and the memory of the daemon.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tenure_core::id::{Group, LeaseName, NodeId, TenureId};
use tenure_core::lease::{Acquire, AcquireOutcome, Queue, RequestId, Token};
use tenure_core::store::{Call, Store};
use tokio::task::JoinSet;

use super::World;
use crate::process::resident_bytes;
use crate::report::{Goal, Report, Row};
use crate::stats::rate;
use crate::subject::{self, Beating};
use crate::suite::Size;

/// How long all wait while nothing changes.
const IDLE: Duration = Duration::from_secs(5);
const TTL: Duration = Duration::from_secs(110);
const WAIT: Duration = Duration::from_secs(60);

/// One lease and those that want it.
struct Lane {
    store: Arc<dyn Store>,
    group: Group,
    lease: LeaseName,
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 of anything")]
pub(super) async fn run(world: &World, size: Size, report: &Report) -> Result<()> {
    let (leases, each) = size.pick((100, 99), (10, 99));
    let (daemon, group) = (&world.daemons[0], subject::group("crowd")?);
    let store = subject::open(&daemon.url()).await?;
    let mut tenures = subject::fill(&store, &group, leases * (each + 1), TTL).await?;
    let _beating = Beating::start(&store, &group, &tenures, Duration::from_secs(30), None);
    let before = resident_bytes(daemon.pid()?)?;
    let mut lanes = JoinSet::new();
    for number in 0..leases {
        let (store, group) = (Arc::clone(&store), group.clone());
        let lease = LeaseName::new(format!("lease-{number}"))?;
        let members = tenures.split_off(tenures.len() - each - 1);
        lanes.spawn(Lane { store, group, lease }.fill(members));
    }
    let mut crowd = Vec::new();
    while let Some(lane) = lanes.join_next().await {
        crowd.push(lane.context("a lane")??);
    }
    let memory = resident_bytes(daemon.pid()?)?.saturating_sub(before) as f64 / (leases * each) as f64 / 1024.0;
    let start = world.scripts_run()?;
    tokio::time::sleep(IDLE).await;
    let idle = world.scripts_run()?;
    let served = Instant::now();
    let mut lanes = JoinSet::new();
    crowd
        .into_iter()
        .for_each(|(lane, first, waiters)| drop(lanes.spawn(lane.serve(first, waiters))));
    let mut overtaken = 0;
    while let Some(lane) = lanes.join_next().await {
        overtaken += lane.context("a lane")??;
    }
    let (what, count) = (world.name, leases * each);
    let title = format!("{what}: {count} waiters on {leases} leases");
    report.row(Row::new(format!("{title}, served out of turn"), overtaken as f64, "").goal(Goal::AtMost(0.0)));
    report.row(Row::new(
        "… all served, each releases at once",
        rate(count, served),
        "grants/s",
    ));
    report.row(Row::new("… memory of the daemon for one", memory, "KiB"));
    if let (Some(start), Some(idle), Some(end)) = (start, idle, world.scripts_run()?) {
        let scripts = (idle - start) as f64 / IDLE.as_secs_f64();
        report.row(Row::new("… scripts in the store while all wait", scripts, "/s").goal(Goal::AtMost(10.0)));
        let of_one = (end - idle) as f64 / count as f64;
        report.row(Row::new("… scripts for a release and a grant", of_one, "").goal(Goal::AtMost(2.2)));
    }
    store.close().await;
    Ok(())
}

/// The holder's grant and the waiting requests, in the order in which they came.
type Filled = (Lane, (TenureId, Token), Vec<tokio::task::JoinHandle<Result<Token>>>);

impl Lane {
    /// The first tenure acquires the lease. The others wait for it, one after the other.
    async fn fill(self, members: Vec<TenureId>) -> Result<Filled> {
        let mut members = members.into_iter();
        let first = members.next().context("a holder")?;
        let call = Call::default();
        let acquired = self
            .store
            .acquire(&self.group, &first, std::slice::from_ref(&self.lease), call)
            .await?;
        let token = acquired.outcomes[0].token().context("a free lease")?;
        let mut waiters = Vec::new();
        for tenure in members {
            waiters.push(tokio::spawn(wait(
                Arc::clone(&self.store),
                self.group.clone(),
                self.lease.clone(),
                tenure,
            )));
            while (self
                .store
                .lease_of(&self.group, &self.lease)
                .await?
                .map_or(0, |seen| seen.waiting) as usize)
                < waiters.len()
            {
                ensure!(
                    waiters.iter().all(|waiter| !waiter.is_finished()),
                    "a request does not wait"
                );
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        Ok((self, (first, token), waiters))
    }

    /// Releases the lease and waits until all were served. Returns how many were overtaken.
    async fn serve(
        self,
        (tenure, token): (TenureId, Token),
        waiters: Vec<tokio::task::JoinHandle<Result<Token>>>,
    ) -> Result<usize> {
        release(&self.store, &self.group, &self.lease, &tenure, token).await?;
        let mut tokens = Vec::new();
        for waiter in waiters {
            tokens.push(waiter.await.context("a waiter")??);
        }
        Ok(tokens.windows(2).filter(|pair| pair[0] >= pair[1]).count())
    }
}

/// Waits for the lease, and releases it immediately.
async fn wait(store: Arc<dyn Store>, group: Group, lease: LeaseName, tenure: TenureId) -> Result<Token> {
    let queue = Queue {
        within: WAIT,
        // The daemon draws its own number and names itself.
        request: RequestId::new(0)?,
        node: NodeId::new("bench")?,
    };
    let acquire = Acquire {
        queue: Some(queue),
        ..Acquire::new(tenure.clone(), vec![lease.clone()])
    };
    let acquired = store.acquire_with(&group, acquire, Call::default()).await?;
    let outcome = acquired.outcomes.first();
    let token = outcome.and_then(AcquireOutcome::token);
    let token = token.with_context(|| format!("{tenure} was not served: {outcome:?}"))?;
    release(&store, &group, &lease, &tenure, token).await?;
    Ok(token)
}

async fn release(
    store: &Arc<dyn Store>,
    group: &Group,
    lease: &LeaseName,
    tenure: &TenureId,
    token: Token,
) -> Result<()> {
    let given = [(lease.clone(), token)];
    store
        .release_leases(group, tenure, &given, None, Call::default())
        .await?;
    Ok(())
}
