//! A node of a fleet: it polls those endpoints whose lease it has, and shows the token of the lease to each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tenure::fleet::PlacingSettings;
use tenure::{Assignment, Fleet, FleetSettings, Membership};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::signal::unix::Signal;

use super::asked_to_leave;
use crate::exit::say;
use crate::output::line;

/// The polling interval of an endpoint.
const EVERY: Duration = Duration::from_millis(200);

pub(super) async fn run(membership: Membership, endpoints: SocketAddr, mut term: Signal) -> anyhow::Result<()> {
    // Quicker to level the load than a fleet should be that runs for longer than a minute.
    let settings = FleetSettings {
        placing: PlacingSettings {
            stability: Duration::from_secs(2),
            min_hold: Duration::from_secs(2),
            ..PlacingSettings::default()
        },
        discovery: Duration::from_secs(2),
        ..FleetSettings::default()
    };
    let node: Arc<str> = membership.member().as_str().into();
    // The targets are those in the store, as `tenure targets` shows them.
    let fleet = Fleet::builder(&membership)
        .settings(settings)
        .start(move |target| work(target, endpoints, Arc::clone(&node)))?;
    line("polling")?;
    if asked_to_leave(&membership, &mut term).await {
        // Work ends first, then the leases go to the other nodes, then this node leaves.
        fleet.shut_down().await;
        membership.leave().await?;
    }
    Ok(())
}

async fn work(target: Assignment, endpoints: SocketAddr, node: Arc<str>) {
    // Before every cycle: is it still ours? Waits through doubts.
    while target.next_cycle().await {
        if let Err(error) = poll(&target, endpoints, &node).await {
            say(format_args!("{}: {error}", target.target()));
        }
        target.rest(EVERY).await;
    }
}

async fn poll(target: &Assignment, endpoints: SocketAddr, node: &str) -> std::io::Result<()> {
    let mut socket = TcpStream::connect(endpoints).await?;
    let request = format!(
        "GET /{} HTTP/1.0\r\nNode: {node}\r\nFencing-Token: {}\r\n\r\n",
        target.target(),
        target.token()
    );
    socket.write_all(request.as_bytes()).await?;
    socket.read_to_end(&mut Vec::new()).await?;
    Ok(())
}
