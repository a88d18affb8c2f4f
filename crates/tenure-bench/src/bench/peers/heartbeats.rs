//! Heartbeats of 1,000 members: the rate, and the processor time of the server for each.

use std::time::Duration;

use anyhow::{Context, Result};

use super::peer::{Kind, Peer, Way, cpu};
use super::{CONNECTIONS, start};
use crate::load;
use crate::report::{Figure, Grid, Report, ratio};
use crate::stats::Samples;
use crate::suite::Size;

/// No member dies in this figure.
const TTL: Duration = Duration::from_secs(120);

/// A way of a server, and its samples.
struct Side {
    name: String,
    /// The number of its server among all.
    server: usize,
    way: Way,
    rate: Samples,
    cpu: Samples,
    p99: Samples,
}

/// The servers that are installed.
pub(super) struct Servers(Vec<(Kind, Box<dyn Peer>)>);

impl Servers {
    pub(super) async fn start(kinds: &[Kind]) -> Result<Self> {
        start(kinds, TTL).await.map(Self)
    }

    pub(super) fn kinds(&self) -> Vec<Kind> {
        self.0.iter().map(|(kind, _)| *kind).collect()
    }
}

pub(super) async fn run(servers: Servers, size: Size, report: &Report, grid: &mut Grid) -> Result<()> {
    let (Servers(servers), members) = (servers, size.pick(1_000, 200));
    let mut sides = Vec::new();
    for (number, (kind, peer)) in servers.iter().enumerate() {
        peer.join(members).await.with_context(|| format!("{kind}: join"))?;
        let lanes = peer.lanes(0..members, CONNECTIONS).await?;
        let way = Way::single(kind.name(), lanes);
        sides.push(Side::new(kind.name().to_owned(), number, way));
        for way in peer.other_ways(members, CONNECTIONS).await? {
            sides.push(Side::new(format!("{kind}, {}", way.name), number, way));
        }
    }
    let time = size.pick(Duration::from_secs(2), Duration::from_millis(150));
    for round in 0..=size.rounds() {
        // The first round is a warm-up.
        for side in &mut sides {
            let peer = servers[side.server].1.as_ref();
            side.round(peer, time, round > 0).await?;
        }
    }
    let (rates, costs) = (sides[0].rate.clone(), sides[0].cpu.clone());
    for side in &sides {
        let (rate, cost) = (side.rate.over(&rates).median(), side.cpu.over(&costs).median());
        let text = format!("{} ({})", Figure::new(side.rate.median(), "/s"), ratio(rate));
        grid.set(&side.name, "heartbeats", text);
        let text = format!("{} ({})", Figure::new(side.cpu.median(), "µs"), ratio(cost));
        grid.set(&side.name, "server CPU of one", text);
        report.keep(format!("{} heartbeats/s", side.name), &side.rate);
        report.keep(format!("{} server µs of a heartbeat", side.name), &side.cpu);
        report.keep(format!("{} p99 ms of a request", side.name), &side.p99);
    }
    Ok(())
}

impl Side {
    fn new(name: String, server: usize, way: Way) -> Self {
        let (rate, cpu, p99) = Default::default();
        Self {
            name,
            server,
            way,
            rate,
            cpu,
            p99,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 heartbeats")]
    async fn round(&mut self, peer: &dyn Peer, time: Duration, counts: bool) -> Result<()> {
        let peer = self.way.server.as_deref().unwrap_or(peer);
        let before = cpu(peer)?;
        let tally = load::run(&mut self.way.lanes, time, None)
            .await
            .with_context(|| format!("heartbeats to {}", self.name))?;
        let used = cpu(peer)? - before;
        if counts {
            let each = self.way.each as f64;
            self.rate.push(tally.rate() * each);
            self.cpu.push(used * 1e6 / (tally.good as f64 * each));
            self.p99.push(tally.latency.percentile(99.0));
        }
        Ok(())
    }
}
