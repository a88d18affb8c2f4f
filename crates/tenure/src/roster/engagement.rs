//! Engagements: recorded and reserved.

use tenure_core::error::Result;
use tenure_core::id::{EngagementId, ProviderId};
use tenure_core::ledger::engagement::{MAX_CANDIDATES, check_except};
use tenure_core::ledger::{
    Candidates, Engagement, EngagementChange, EngagementOutcome, Move, NewEngagement, ReserveOutcome,
};
use tenure_core::store::PageRequest;

use super::answer::{EngagementAnswer, Reservation, Written};
use super::handle::Roster;

impl Roster {
    /// Records an engagement, also above the capacity. O(open engagements of the provider).
    ///
    /// # Errors
    /// `NotFound` for an unknown provider, `Invalid`: nothing changed.
    pub async fn create_engagement(&self, engagement: &NewEngagement) -> Result<EngagementAnswer> {
        self.touch();
        let ledger = self.inner.ledger();
        let outcome = ledger.create_engagement(self.name(), engagement).await?;
        Ok(self.engaged(outcome).await)
    }

    /// Moves an engagement to another status, another provider or both, in one step. O(open engagements of both).
    ///
    /// # Errors
    /// `NotFound` for an unknown engagement or provider, `Invalid`: nothing changed.
    pub async fn move_engagement(&self, engagement: &EngagementId, to: &Move) -> Result<EngagementAnswer> {
        self.touch();
        let ledger = self.inner.ledger();
        let outcome = ledger.move_engagement(self.name(), engagement, to).await?;
        Ok(self.engaged(outcome).await)
    }

    /// One engagement, from the ledger. O(1).
    ///
    /// # Errors
    /// None of its own.
    pub async fn engagement(&self, engagement: &EngagementId) -> Result<Option<Engagement>> {
        self.touch();
        self.exists().await?;
        self.inner.ledger().engagement(self.name(), engagement).await
    }

    /// Reserves a place with the least occupied provider that has room; of several, with the one that has been idle
    /// longest. If the engagement names a provider, with that one or none. The mirror names the candidates, and the ledger
    /// decides under a lock, so two callers cannot take the last place. O(candidates passed over).
    ///
    /// # Errors
    /// `Invalid`; `NotFound` for an unknown provider: nothing changed.
    pub async fn reserve(&self, new: &NewEngagement) -> Result<Reservation> {
        self.reserve_except(new, &[]).await
    }

    /// The same, but with none of these providers; at most [`MAX_CANDIDATES`].
    ///
    /// # Errors
    /// As [`Roster::reserve`].
    pub async fn reserve_except(&self, new: &NewEngagement, except: &[ProviderId]) -> Result<Reservation> {
        new.check()?;
        check_except(except)?;
        self.touch();
        let ledger = self.inner.ledger();
        let ranked = match &new.provider {
            Some(provider) => self.is_reachable(provider).await?.value.then(|| vec![provider.clone()]),
            None => self.ranked(except).await?,
        };
        let outcome = match ranked {
            Some(ranked) => ledger.reserve(self.name(), new, &Candidates::Among(ranked)).await?,
            None => ReserveOutcome::NoneAvailable,
        };
        let outcome = match outcome {
            // The mirror had no candidate, or all of them are taken by now. The ledger may have more.
            ReserveOutcome::NoneAvailable => {
                let fresh_since = self.inner.fresh_since(&self.state).await?;
                let except = except.to_vec();
                ledger
                    .reserve(self.name(), new, &Candidates::Any { fresh_since, except })
                    .await?
            }
            outcome => outcome,
        };
        Ok(match outcome {
            ReserveOutcome::Reserved(change) => Reservation::Reserved(self.engagement_written(change).await),
            ReserveOutcome::NoneAvailable => Reservation::NoneAvailable,
            ReserveOutcome::Conflict(there) => Reservation::Conflict(there),
        })
    }

    /// The least occupied candidates; `None` when the mirror cannot answer or has none.
    async fn ranked(&self, except: &[ProviderId]) -> Result<Option<Vec<ProviderId>>> {
        let limit = u32::try_from(MAX_CANDIDATES).unwrap_or(u32::MAX);
        let ranked = self.rank_in_mirror(&PageRequest { after: None, limit }).await?;
        let ranked = ranked.unwrap_or_default().items;
        let names = ranked.into_iter().map(|candidate| candidate.provider);
        let names: Vec<_> = names.filter(|name| !except.contains(name)).collect();
        Ok(Some(names).filter(|names| !names.is_empty()))
    }

    async fn engaged(&self, outcome: EngagementOutcome) -> EngagementAnswer {
        match outcome {
            EngagementOutcome::Done(change) => EngagementAnswer::Done(self.engagement_written(change).await),
            EngagementOutcome::Conflict(there) => EngagementAnswer::Conflict(there),
        }
    }

    async fn engagement_written(&self, change: EngagementChange) -> Written<EngagementChange> {
        if change.changed && change.engagement.expires_at.is_some() {
            self.inner.wake_expiry(&self.state);
        }
        let mirrored = self.mirror_rows(change.providers.iter().cloned()).await;
        Written {
            changed: change.changed,
            value: change,
            mirrored,
        }
    }
}
