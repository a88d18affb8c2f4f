//! 10,000 leases on three nodes of a fleet, one of which is killed: how soon the others hold all leases, and whether a
//! lease ever had two holders.
//!
//! The nodes are separate processes (this program again, as [`crate::node`]), so that the kill is real. All times are
//! the store's: those of the events relative to the last deadline of the killed node.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tenure_core::event::{Event, EventId, EventKind, EventQuery};
use tenure_core::id::{Group, LeaseName, MemberId, TenureId};
use tenure_core::lease::Token;
use tenure_core::store::{PageRequest, Store};
use tenure_core::time::StoreTime;
use tokio::process::{Child, Command};

use crate::node;
use crate::report::{Goal, Report, Row};
use crate::stats::{Samples, ms};
use crate::subject;
use crate::suite::Size;
use crate::valkey::ValkeyServer;

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
/// The time limit for holding all leases.
const PATIENCE: Duration = Duration::from_secs(60);

/// # Errors
/// If the run fails, or not all leases are held in time.
pub async fn run(size: Size, report: Report) -> Result<()> {
    let targets = size.pick(10_000, 1_000);
    let mut lags = Samples::default();
    let mut overlaps = 0;
    for _ in 0..size.pick(3, 1) {
        let (lag, twice) = round(targets, &report).await?;
        lags.push(lag);
        overlaps += twice;
    }
    let what = format!("{targets} leases, one of three nodes killed: all held again after its deadline");
    report.row(Row::new(what.clone(), lags.median(), "ms").goal(Goal::AtMost(200.0)));
    report.keep(what, &lags);
    #[expect(clippy::cast_precision_loss, reason = "a small count")]
    let row = Row::new(
        "leases with two holders at once, or a token that fell",
        overlaps as f64,
        "",
    );
    report.row(row.goal(Goal::AtMost(0.0)));
    Ok(())
}

async fn round(targets: usize, report: &Report) -> Result<(f64, usize)> {
    let valkey = ValkeyServer::start()?;
    let store = subject::open(&valkey.url()).await?;
    valkey.client()?.call(&["HSET", "tenure:store", "born", "1"])?;
    let group = subject::group(node::GROUP)?;
    let mut nodes: Vec<Child> = NODES
        .iter()
        .map(|name| start(name, &valkey.url(), targets))
        .collect::<Result<_>>()?;
    let fixture = Fixture { store, group };
    let start = Instant::now();
    fixture.until_held(&NODES, targets).await?;
    report.note(format!(
        "{targets} leases were held {:.1} s after three nodes were started",
        start.elapsed().as_secs_f64()
    ));
    let before = fixture.held().await?;
    let victim = MemberId::new(NODES[1])?;
    let from = fixture.store.status(&fixture.group).await?.last_event;
    nodes[1].start_kill().context("kill a node")?;
    nodes[1].wait().await?;
    let dead = fixture
        .store
        .member(&fixture.group, &victim)
        .await?
        .context("the dead one was not there any more")?;
    let deadline = dead.last_beat_at + dead.ttl;
    fixture.until_held(&[NODES[0], NODES[2]], targets).await?;
    let events = fixture.events(from).await?;
    let result = judge(&events, &before, &dead.tenure, deadline);
    ensure!(
        result.retaken >= before.values().filter(|(tenure, _)| *tenure == dead.tenure).count(),
        "{} leases were taken over",
        result.retaken
    );
    fixture.store.close().await;
    Ok((ms(result.last.since(deadline)), result.twice))
}

fn start(name: &str, url: &str, targets: usize) -> Result<Child> {
    let program = std::env::current_exe().context("this program's file")?;
    Command::new(program)
        .args(["--node", name, "--store", url, "--targets", &targets.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("start a node")
}

struct Fixture {
    store: Arc<dyn Store>,
    group: Group,
}

impl Fixture {
    /// Waits until these nodes together hold all leases.
    async fn until_held(&self, nodes: &[&str], targets: usize) -> Result<()> {
        let start = Instant::now();
        loop {
            let mut held = 0;
            for name in nodes {
                let member = self.store.member(&self.group, &MemberId::new(*name)?).await?;
                held += member.map_or(0, |member| member.holdings.leases);
            }
            if held >= targets as u64 {
                return Ok(());
            }
            ensure!(start.elapsed() < PATIENCE, "{held} of {targets} leases are held");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn held(&self) -> Result<BTreeMap<LeaseName, (TenureId, Token)>> {
        let (mut all, mut page) = (
            BTreeMap::new(),
            PageRequest {
                after: None,
                limit: 1_000,
            },
        );
        loop {
            let found = self.store.leases(&self.group, None, &page).await?;
            all.extend(
                found
                    .items
                    .into_iter()
                    .map(|lease| (lease.lease, (lease.tenure, lease.token))),
            );
            if found.next.is_none() {
                return Ok(all);
            }
            page.after = found.next;
        }
    }

    async fn events(&self, from: EventId) -> Result<Vec<Event>> {
        let mut query = EventQuery {
            after: Some(from),
            limit: 1_000,
            kinds: vec![
                EventKind::LeaseGranted,
                EventKind::LeaseTakenOver,
                EventKind::LeaseReleased,
            ],
            ..EventQuery::default()
        };
        let mut all = Vec::new();
        loop {
            let page = self.store.events(&self.group, &query).await?;
            ensure!(!page.missed, "events were trimmed before they were read");
            all.extend(page.events);
            if query.after == Some(page.last) {
                return Ok(all);
            }
            query.after = Some(page.last);
        }
    }
}

struct TakeoverResult {
    /// The number of leases of the killed node that were granted again.
    retaken: usize,
    /// The time of the last of these grants.
    last: StoreTime,
    /// Grants of a lease that another node still held, and tokens that fell.
    twice: usize,
}

/// Replays the events in order. A grant is sound if the lease is free, or held by the killed node past its deadline,
/// and its token exceeds all earlier ones.
fn judge(
    events: &[Event],
    before: &BTreeMap<LeaseName, (TenureId, Token)>,
    dead: &TenureId,
    deadline: StoreTime,
) -> TakeoverResult {
    let mut holders: BTreeMap<LeaseName, Option<TenureId>> = before
        .iter()
        .map(|(lease, (tenure, _))| (lease.clone(), Some(tenure.clone())))
        .collect();
    let mut tokens: BTreeMap<LeaseName, Token> = before
        .iter()
        .map(|(lease, (_, token))| (lease.clone(), *token))
        .collect();
    let mut result = TakeoverResult {
        retaken: 0,
        last: deadline,
        twice: 0,
    };
    for event in events {
        let (Some(lease), Some(token)) = (&event.lease, event.token) else {
            continue;
        };
        if event.kind == EventKind::LeaseReleased {
            holders.insert(lease.clone(), None);
            continue;
        }
        let holder = holders.insert(lease.clone(), event.tenure.clone()).flatten();
        let sound = holder.is_none_or(|holder| holder == *dead && event.at >= deadline);
        let rises = tokens.insert(lease.clone(), token).is_none_or(|before| token > before);
        result.twice += usize::from(!sound || !rises);
        if before.get(lease).is_some_and(|(tenure, _)| tenure == dead) {
            result.retaken += 1;
            result.last = result.last.max(event.at);
        }
    }
    result
}
