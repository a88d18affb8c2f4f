//! The service is not wanted: removes its registration and the leftovers of earlier lives.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Actor, Parts, Presence, RECHECKS, SEARCH};
use crate::catalog::journal::JournalEntry;
use crate::catalog::remove::remove;
use crate::catalog::{DesiredState, Failure, Phase, leftovers};

impl Actor {
    /// Removes the registration if it may exist.
    pub(super) async fn keep_away(&mut self, want: DesiredState) -> Result<Option<Duration>, Failure> {
        let Parts {
            agent, service, life, ..
        } = &self.parts;
        if self.presence != Presence::No || self.rechecks > 0 {
            if self.parts.tell.borrow().phase != Phase::Absent {
                self.say(Phase::Removing, None, None);
            }
            let removed = remove(&**agent, &service.id, Some(life)).await?;
            tracing::debug!(
                id = service.id,
                ?removed,
                rechecks = self.rechecks,
                "removed from the catalog"
            );
            self.presence = Presence::No;
            self.rechecks = self.rechecks.saturating_sub(1);
        }
        self.failed = 0;
        self.waited = false;
        if self.rechecks > 0 {
            self.say(Phase::Absent, None, Some(want.turn));
            return Ok(Some(RECHECKS.1));
        }
        // Remove the journal entry and the session before publishing: a supervisor whose command crashed exits on that
        // status, and what remains then becomes an order to janitors. The calls are bounded, and a stop waits only for
        // so long.
        if std::mem::take(&mut self.written) {
            self.parts.journal.remove(&self.parts.life).await;
        }
        if let Some(hold) = &self.parts.hold {
            hold.detach().await;
        }
        self.say(Phase::Absent, None, Some(want.turn));
        Ok(None)
    }

    /// Removes leftovers at this agent. A failure does not block the others: the next turn starts with another
    /// leftover. Cancel-safe.
    pub(super) async fn remove_leftovers(&mut self, want: DesiredState) {
        self.search().await;
        for _ in 0..self.left.len() {
            let Some(entry) = self.left.front().map(|leftover| leftover.entry.clone()) else {
                return;
            };
            // Rotate first, so that the next turn starts with another leftover in any case.
            self.left.rotate_left(1);
            if want.registered && self.presence == Presence::No && entry.id == self.parts.service.id {
                // Our registration is about to replace it; a late removal would hit the new one.
                continue;
            }
            let done = leftovers::remove_one(&*self.parts.agent, &entry).await;
            match (done, self.left.back_mut()) {
                (Ok(()), _) => {
                    if let Some(leftover) = self.left.pop_back() {
                        self.parts.journal.remove_leftover(leftover).await;
                    }
                }
                (Err(failure), Some(leftover)) if !leftover.reported => {
                    leftover.reported = true;
                    let JournalEntry { agent, id, .. } = entry;
                    tracing::warn!(agent, id, error = %failure, "cannot remove the registration of an earlier life yet");
                }
                (Err(_), _) => {}
            }
        }
    }

    /// Searches the journal, at most once per interval.
    async fn search(&mut self) {
        let parts = &self.parts;
        let now = parts.clock.mono();
        if parts.journal.is_kept() && self.searched.is_none_or(|last| now.since(last) >= SEARCH) {
            // Set before the search, so that a hung disk is not searched in every turn.
            self.searched = Some(now);
            let (here, away) = leftovers::of(&parts.journal, parts.agent.place()).await;
            self.elsewhere.extend(leftovers::remove_elsewhere(away, parts));
            self.left.extend(here);
        }
    }

    pub(super) async fn replaced(&mut self) {
        let (replaced, others) = std::mem::take(&mut self.left)
            .into_iter()
            .partition::<VecDeque<_>, _>(|leftover| leftover.entry.id == self.parts.service.id);
        self.left = others;
        for leftover in replaced {
            self.parts.journal.remove_leftover(leftover).await;
        }
    }
}
