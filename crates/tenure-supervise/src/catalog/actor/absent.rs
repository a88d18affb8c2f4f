//! The service is not wanted: it is removed where it may be, with all that earlier lives have left.

use std::time::Duration;

use super::{Actor, DOUBTS, Parts, Presence, SEARCH};
use crate::catalog::remove::remove;
use crate::catalog::{Failure, Phase, Want, leftovers};

impl Actor {
    /// Removes it where it may be.
    pub(super) async fn keep_away(&mut self, want: Want) -> Result<Option<Duration>, Failure> {
        let Parts {
            agent, service, life, ..
        } = &self.parts;
        if self.presence != Presence::No || self.doubts > 0 {
            if self.parts.tell.borrow().phase != Phase::Absent {
                self.say(Phase::Removing, None, None);
            }
            let removed = remove(&**agent, &service.id, Some(life)).await?;
            tracing::debug!(
                id = service.id,
                ?removed,
                doubts = self.doubts,
                "removed from the catalog"
            );
            self.presence = Presence::No;
            self.doubts = self.doubts.saturating_sub(1);
        }
        self.failed = 0;
        self.say(Phase::Absent, None, Some(want.turn));
        if self.doubts > 0 {
            return Ok(Some(DOUBTS.1));
        }
        if std::mem::take(&mut self.written) {
            self.parts.journal.strike(&self.parts.life).await;
        }
        if let Some(hold) = &self.parts.hold {
            hold.let_go().await;
        }
        Ok(None)
    }

    /// Removes what earlier lives have left at this agent, before anything new is registered. An agent that refuses that
    /// keeps nobody from going on; one that cannot be reached could not be asked anything else either.
    pub(super) async fn remove_what_was_left(&mut self) -> Result<(), Failure> {
        let parts = &self.parts;
        let now = parts.clock.mono();
        if parts.journal.is_kept() && self.searched.is_none_or(|last| now.since(last) >= SEARCH) {
            let (here, away) = leftovers::of(&parts.journal, parts.agent.place()).await;
            self.elsewhere.extend(leftovers::remove_elsewhere(away, parts));
            self.left.extend(here);
            self.searched = Some(now);
        }
        let mut refused = Vec::new();
        // What is at hand is dropped with an overtaken turn, and found again by the next search.
        while let Some(leftover) = self.left.pop() {
            match leftovers::remove_one(&*parts.agent, &leftover.entry).await {
                Ok(()) => parts.journal.settle(leftover).await,
                Err(failure) if failure.is_definite() => refused.push(leftover),
                Err(failure) => {
                    self.left.push(leftover);
                    self.left.append(&mut refused);
                    return Err(failure);
                }
            }
        }
        self.left = refused;
        Ok(())
    }

    pub(super) async fn replaced(&mut self) {
        let (replaced, others) = std::mem::take(&mut self.left)
            .into_iter()
            .partition::<Vec<_>, _>(|leftover| leftover.entry.id == self.parts.service.id);
        self.left = others;
        for leftover in replaced {
            self.parts.journal.settle(leftover).await;
        }
    }
}
