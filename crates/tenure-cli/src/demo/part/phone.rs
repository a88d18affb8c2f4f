//! The phone of a provider: it goes online in the roster and sends heartbeats until it is deactivated.

use std::sync::Arc;
use std::time::Duration;

use tenure::http::{HttpSettings, RemoteRosters};
use tenure::roster::HeartbeatOutcome;
use tenure::{Clock, ProviderId, RosterName, SystemClock};
use tokio::runtime::Handle;
use tokio::signal::unix::Signal;

use super::DESK;
use crate::output::line;

pub(super) async fn run(url: &str, name: &str, stale_after: Duration, mut term: Signal) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let rosters = RemoteRosters::new(url, Arc::clone(&clock), Handle::current(), HttpSettings::default())?;
    let (roster, provider) = (rosters.roster(&RosterName::new(DESK)?), ProviderId::new(name)?);
    roster.online(&provider).await?;
    line("online")?;
    loop {
        tokio::select! {
            _ = term.recv() => break,
            () = clock.sleep(stale_after / 3) => {}
        }
        match roster.heartbeat(&provider).await {
            // A provider that went offline in between must go online again.
            Ok(HeartbeatOutcome::Offline) => drop(roster.online(&provider).await?),
            // An operator has decided; the phone asks again, in case that changes.
            Ok(
                HeartbeatOutcome::Deactivated
                | HeartbeatOutcome::Revoked
                | HeartbeatOutcome::Unknown
                | HeartbeatOutcome::Recorded(_),
            ) => {}
            // The daemon is away. The next heartbeat may find it.
            Err(_) => {}
        }
    }
    roster.offline(&provider).await?;
    Ok(())
}
