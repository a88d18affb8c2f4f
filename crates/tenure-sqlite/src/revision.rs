//! The numbers of a group's sequence, and the revision of what a member holds: the number of its last change.
//!
//! A revision is written with the holdings it is about, in one transaction, since a client that was told a higher one
//! than the store knows has found a lost tail. Beats compare it from memory. A change that is not committed yet lies in
//! `revised`, apart from `pending`: it says nothing about who is alive, so it makes no beat wait.

use std::time::Duration;

use rusqlite::params;
use tenure_core::membership::Revision;
use tenure_core::{StoreTime, TenureId};

use crate::error::Cause;
use crate::sql::{number, statements};
use crate::step::Step;

statements! { "membership.sql":
    REVISE = "revise",
}

/// How far the sequence may run ahead of the clock: each act takes a number, and a number lasts a microsecond.
const AHEAD: Duration = Duration::from_secs(1);

/// Whether a client was told a number that the group never gave out: this file is an older copy. No group gave
/// out one from the future.
pub(crate) fn marks_a_loss(told: Revision, seq: u64, now: StoreTime) -> bool {
    told.0 > seq && told.0 <= (now + AHEAD).micros()
}

impl Step<'_> {
    /// The next number of the group's sequence: for a term, a token or a revision.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.meta.seq = (self.meta.seq + 1).max(self.now.micros());
        self.meta.seq
    }

    /// Notes that what a current tenure holds has changed.
    pub(crate) fn revise(&mut self, tenure: &TenureId, revision: Revision) -> Result<(), Cause> {
        self.sql.prepare_cached(REVISE)?.execute(params![
            self.id,
            tenure.member().as_str(),
            number(tenure.term().get()),
            number(revision.0)
        ])?;
        self.undo.revise(&mut self.live.lock(), tenure, revision);
        Ok(())
    }

    /// The number of what a tenure holds; none when it is not current.
    pub(crate) fn revision_of(&self, tenure: &TenureId) -> Revision {
        let entry = self.live.lock().head(tenure.member());
        entry
            .filter(|entry| entry.term == tenure.term())
            .map_or(Revision::NONE, |entry| entry.revision)
    }

    /// Looks at the revision that came with a beat.
    pub(crate) fn compare_revisions(&mut self, told: Revision) -> Result<(), Cause> {
        match marks_a_loss(told, self.meta.seq, self.now) {
            true => self.believe_a_loss(told.0),
            false => Ok(()),
        }
    }

    /// A beat named a number that the group never gave out. A file in service does not lose its tail, so that is believed
    /// soon after a start alone, and once: then the store may have forgotten who holds a lease.
    pub(crate) fn believe_a_loss(&mut self, told: u64) -> Result<(), Cause> {
        if !self.life.believe(self.now) {
            return Ok(());
        }
        self.meta.seq = self.meta.seq.max(told);
        self.resume();
        match self.life.wait(self.now) {
            Some(wait) => self.wait(wait),
            None => Ok(()),
        }
    }
}
