//! The service is not wanted: it is removed where it may be, with all that earlier lives have left.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Actor, DOUBTS, Parts, Presence, SEARCH};
use crate::catalog::journal::Entry;
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
        self.waited = false;
        if self.doubts > 0 {
            self.say(Phase::Absent, None, Some(want.turn));
            return Ok(Some(DOUBTS.1));
        }
        // Before anybody is told: a supervisor whose command has crashed ends on that word, and what it has not let go of
        // by then is an order to others. Bounded, and a stop waits for the word only so long.
        if std::mem::take(&mut self.written) {
            self.parts.journal.strike(&self.parts.life).await;
        }
        if let Some(hold) = &self.parts.hold {
            hold.let_go().await;
        }
        self.say(Phase::Absent, None, Some(want.turn));
        Ok(None)
    }

    /// Removes what earlier lives have left at this agent. What cannot be removed keeps nobody from going on: the next turn
    /// begins with another one. May be dropped at any time.
    pub(super) async fn remove_what_was_left(&mut self, want: Want) {
        self.search().await;
        for _ in 0..self.left.len() {
            let Some(entry) = self.left.front().map(|leftover| leftover.entry.clone()) else {
                return;
            };
            // Whatever becomes of it, it is not the first again.
            self.left.rotate_left(1);
            if want.registered && self.presence == Presence::No && entry.id == self.parts.service.id {
                // It is about to be replaced; a removal that is late would hit what replaces it.
                continue;
            }
            let done = leftovers::remove_one(&*self.parts.agent, &entry).await;
            match (done, self.left.back_mut()) {
                (Ok(()), _) => {
                    if let Some(leftover) = self.left.pop_back() {
                        self.parts.journal.settle(leftover).await;
                    }
                }
                (Err(failure), Some(leftover)) if !leftover.told => {
                    leftover.told = true;
                    let Entry { agent, id, .. } = entry;
                    tracing::warn!(agent, id, error = %failure, "what an earlier life has left cannot be removed yet");
                }
                (Err(_), _) => {}
            }
        }
    }

    /// Looks into the journal now and then.
    async fn search(&mut self) {
        let parts = &self.parts;
        let now = parts.clock.mono();
        if parts.journal.is_kept() && self.searched.is_none_or(|last| now.since(last) >= SEARCH) {
            // Before it is done: a disk that hangs is not asked in every turn.
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
            self.parts.journal.settle(leftover).await;
        }
    }
}
