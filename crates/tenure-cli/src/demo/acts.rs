//! The acts of the demo. Each does something to the fleet and reports what the events, the registry and the endpoints say
//! of it. At its end the fleet is as it was.

mod chat;
mod desk;
mod ingest;
mod pollers;
mod store;
mod swarm;

use super::fleet::Fleet;
use super::story::Story;

/// An act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    GatewayDies,
    GatewayIsReplaced,
    NodeDies,
    NodeDrains,
    FrontDies,
    HostDies,
    StorePauses,
    ProvidersGo,
}

impl Act {
    /// A round of the story.
    pub(super) const ALL: [Self; 8] = [
        Self::GatewayDies,
        Self::GatewayIsReplaced,
        Self::NodeDies,
        Self::NodeDrains,
        Self::FrontDies,
        Self::HostDies,
        Self::StorePauses,
        Self::ProvidersGo,
    ];

    /// Plays it.
    ///
    /// # Errors
    /// If the act could not be played. An expectation that was not met is reported, not returned.
    pub(super) async fn play(self, fleet: &mut Fleet, story: &mut Story) -> anyhow::Result<()> {
        match self {
            Self::GatewayDies => ingest::dies(fleet, story).await,
            Self::GatewayIsReplaced => ingest::is_replaced(fleet, story).await,
            Self::NodeDies => pollers::dies(fleet, story).await,
            Self::NodeDrains => pollers::drains(fleet, story).await,
            Self::FrontDies => chat::dies(fleet, story).await,
            Self::HostDies => swarm::dies(fleet, story).await,
            Self::StorePauses => store::pauses(fleet, story).await,
            Self::ProvidersGo => desk::go(fleet, story).await,
        }
    }
}
