//! The acts of the story. Each does something to the fleet, and tells what the events, the registry and the endpoints say
//! of it. At its end the fleet is as it was.

mod chat;
mod desk;
mod ingest;
mod pollers;
mod store;
mod swarm;

use super::story::Story;
use super::world::World;

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
    /// When it could not be played. What was promised and not seen is no error: the story tells.
    pub(super) async fn play(self, world: &mut World, story: &mut Story) -> anyhow::Result<()> {
        match self {
            Self::GatewayDies => ingest::dies(world, story).await,
            Self::GatewayIsReplaced => ingest::is_replaced(world, story).await,
            Self::NodeDies => pollers::dies(world, story).await,
            Self::NodeDrains => pollers::drains(world, story).await,
            Self::FrontDies => chat::dies(world, story).await,
            Self::HostDies => swarm::dies(world, story).await,
            Self::StorePauses => store::pauses(world, story).await,
            Self::ProvidersGo => desk::go(world, story).await,
        }
    }
}
