//! Engagements: facts that are written down, and places that are reserved.

use tenure_core::error::Result;
use tenure_core::id::EngagementId;
use tenure_core::ledger::{Engagement, Move, NewEngagement};

use super::answer::{EngagementAnswer, Reservation, Wanted};
use super::handle::Roster;

impl Roster {
    /// Writes a fact down, also above the capacity. O(open engagements of the provider).
    ///
    /// # Errors
    /// `NotFound` for an unknown provider, `Invalid`: nothing changed.
    pub async fn create_engagement(&self, engagement: &NewEngagement) -> Result<EngagementAnswer> {
        let _ = engagement;
        self.soon()
    }

    /// Moves an engagement to another status, another provider or both, in one step. O(open engagements of both).
    ///
    /// # Errors
    /// `NotFound` for an unknown engagement or provider, `Invalid`: nothing changed.
    pub async fn move_engagement(&self, engagement: &EngagementId, to: &Move) -> Result<EngagementAnswer> {
        let _ = (engagement, to);
        self.soon()
    }

    /// One engagement, from the ledger. O(1).
    ///
    /// # Errors
    /// None of its own.
    pub async fn engagement(&self, engagement: &EngagementId) -> Result<Option<Engagement>> {
        let _ = engagement;
        self.soon()
    }

    /// Takes a place with the least occupied provider that has room: the mirror ranks, the ledger decides under a lock, so
    /// that two callers cannot take the last place. O(candidates passed over).
    ///
    /// # Errors
    /// `Invalid`: nothing changed.
    pub async fn reserve(&self, wanted: &Wanted) -> Result<Reservation> {
        let _ = wanted;
        self.soon()
    }
}
