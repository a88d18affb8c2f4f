//! The revision of our holdings: the locally known one, compared with the store's at every beat.
//!
//! Every call that can change the holdings of a tenure is an [`Act`] from before it is sent until its answer is
//! processed. An act without an answer may have taken effect, so the leases are re-read once it no longer can.

use tenure_core::clock::Mono;
use tenure_core::error::{Error, Outcome};
use tenure_core::membership::Revision;
use tenure_core::sweep::BATCH;

use super::table::{LeaseTable, TableState};

/// A call in flight. Dropping it without an answer means that its outcome is unknown.
#[derive(Debug)]
pub(crate) struct Act<'a> {
    table: &'a LeaseTable,
    epoch: u64,
    doubts: u64,
    /// The revision known when it started.
    known: Revision,
    /// Whether it runs in several parts, some of which may be applied when it fails.
    in_parts: bool,
    /// Whether it explains a revision that no reply has told us.
    explains: bool,
    /// Until when the call may still take effect without an answer, if it can.
    unheard: Option<Mono>,
}

/// The state when a beat was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BeatSnapshot {
    epoch: u64,
    /// The known revision.
    pub(crate) known: Revision,
    /// The revision to send with the beat. A lease that an operator released is free as soon as a beat names that release,
    /// so a beat names no revision whose effect on our guards is not read yet.
    pub(crate) named: Revision,
}

/// The result of comparing the revision in a beat's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RevisionCheck {
    /// As expected.
    Same,
    /// The store's revision is lower than ours: it lost its latest writes.
    TailLost,
    /// The store's revision is higher than any we received.
    ReplyLost,
    /// As `ReplyLost`, but it concerns no lease: the reply to one of our calls was lost.
    Unheard,
}

/// What the answer to an act shows besides its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActResult {
    /// No problem.
    Fine,
    /// Our holdings became doubtful while it was in flight.
    Doubted,
    /// The store's revision fell: it lost its latest writes.
    TailLost,
}

impl LeaseTable {
    /// Starts an act on this many holdings, which times out at `until`.
    pub(crate) fn act(&self, holdings: usize, until: Mono) -> Act<'_> {
        let mut state = self.state();
        state.in_flight += 1;
        Act {
            table: self,
            epoch: state.epoch,
            doubts: state.doubts,
            known: state.known,
            in_parts: holdings > BATCH as usize,
            explains: true,
            unheard: Some(until),
        }
    }

    /// Starts a wait for a lease. It may take a minute, so it explains no revision: a grant that a beat shows before its
    /// answer is re-read. The same re-read finds what became of a wait that was dropped.
    pub(crate) fn waiting_act(&self) -> Act<'_> {
        let state = self.state();
        Act {
            table: self,
            epoch: state.epoch,
            doubts: state.doubts,
            known: state.known,
            in_parts: false,
            explains: false,
            unheard: None,
        }
    }

    /// The snapshot for a beat that is about to be sent.
    pub(crate) fn sent(&self) -> BeatSnapshot {
        let state = self.state();
        let named = match (self.others_act, state.doubted) {
            // An operator's release that was noticed here may be of a lease that another process works under.
            (true, _) => Revision::NONE,
            (false, true) => state.known.min(state.verified),
            (false, false) => state.known.min(state.explained),
        };
        BeatSnapshot {
            epoch: state.epoch,
            known: state.known,
            named,
        }
    }

    /// Compares the answer to a beat with the known revision. A mismatch puts the leases in doubt. `valid_until`: the end
    /// of the tenure's validity before this answer.
    pub(crate) fn compare(&self, sent: BeatSnapshot, seen: Revision, valid_until: Mono) -> RevisionCheck {
        let mut state = self.state();
        if sent.epoch != state.epoch {
            return RevisionCheck::Same;
        }
        if self.others_act {
            // Acts of other processes under our tenure first show here. A lost reply of our own is an act without an
            // answer, and is re-read for that reason.
            state.known = state.known.max(seen);
        }
        let compared = if seen < sent.known {
            RevisionCheck::TailLost
        } else if seen > state.known {
            match state.explain(seen) {
                RevisionCheck::ReplyLost => RevisionCheck::ReplyLost,
                explained => {
                    state.cap.get_or_insert(valid_until);
                    return explained;
                }
            }
        } else {
            state.unexplained = None;
            if seen == state.known && seen != state.verified {
                self.verify(&mut state);
            }
            state.settle_gap();
            let may_hide = state.explained < state.known || self.others_act && seen > state.verified;
            if may_hide && !state.entries.is_empty() {
                state.cap.get_or_insert(valid_until);
            }
            return RevisionCheck::Same;
        };
        // Continue from the store's revision; the next beat is compared with it.
        state.known = seen;
        state.explained = state.explained.min(seen);
        state.unexplained = None;
        state.doubt();
        drop(state);
        self.changed();
        self.work.notify_one();
        compared
    }
}

impl LeaseTable {
    /// The revisions agree, but an act since the last beat may hide an earlier loss, because it set a new revision. So
    /// after every change the leases are re-read once, without putting them in doubt.
    fn verify(&self, state: &mut TableState) {
        if state.entries.is_empty() {
            state.verified = state.known;
        } else if state.read_at.is_none() && !state.reading {
            state.look = true;
            self.work.notify_one();
        }
    }
}

impl TableState {
    /// Explains a revision that no reply has told us.
    ///
    /// An act in flight may explain it, so it is waited for until the next beat. No longer, because the revision may
    /// hide that the store lost writes before that act. An act without an answer does not explain it if we hold leases.
    fn explain(&mut self, seen: Revision) -> RevisionCheck {
        let is_late = self.unexplained.is_some_and(|before| before > self.known);
        if self.in_flight > 0 && !is_late {
            self.unexplained = Some(seen);
            return RevisionCheck::Same;
        }
        if !self.asked && (self.in_flight > 0 || self.read_at.is_some() || self.reading) {
            return RevisionCheck::Same;
        }
        if std::mem::take(&mut self.accept_next) {
            self.known = seen;
            self.explained = seen;
            return RevisionCheck::Unheard;
        }
        RevisionCheck::ReplyLost
    }

    /// Explains a change from one revision to another. Answers can overtake each other.
    pub(super) fn explain_change(&mut self, before: Revision, after: Revision) {
        let kept = self.ahead.entry(before).or_insert(after);
        *kept = after.max(*kept);
        self.close_gap();
    }

    /// All changes up to this revision are known.
    pub(super) fn explained_to(&mut self, revision: Revision) {
        self.explained = self.explained.max(revision);
        self.settle_gap();
    }

    fn settle_gap(&mut self) {
        if self.entries.is_empty() && self.asking.is_empty() {
            // Nothing that a change by others could concern.
            self.explained = self.known;
        }
        self.close_gap();
    }

    fn close_gap(&mut self) {
        while let Some(first) = self.ahead.first_entry()
            && *first.key() <= self.explained
        {
            self.explained = first.remove().max(self.explained);
        }
        if self.explained >= self.known && self.unexplained.is_none_or(|seen| seen <= self.explained) {
            self.cap = None;
        }
    }

    /// Puts all leases in doubt until they are re-read.
    pub(super) fn doubt(&mut self) {
        self.doubted = true;
        self.doubts += 1;
        self.look = true;
    }

    /// Schedules a re-read, not before `at`.
    pub(super) fn read_from(&mut self, at: Mono) {
        self.read_at = Some(self.read_at.map_or(at, |before| before.max(at)));
    }
}

impl Act<'_> {
    /// Completes the act with the revisions before and after it; effects of its earlier attempts are included. If the
    /// revision before is lower than the known one was at the start, the store lost its latest writes, which no later
    /// beat would show. Returns `Doubted` if a doubt arose meanwhile: the act may be among the writes lost since.
    pub(crate) fn answered(mut self, before: Revision, revision: Revision) -> ActResult {
        self.unheard = None;
        let mut state = self.table.state();
        if state.epoch != self.epoch {
            return ActResult::Fine;
        }
        let tail_lost = before < self.known;
        if tail_lost {
            // Continue from the store's revision.
            state.known = revision;
            state.explained = state.explained.min(revision);
            state.ahead.clear();
        } else {
            state.known = state.known.max(revision);
            // Changes by others between its parts do not show.
            let before = if self.in_parts { revision } else { before };
            state.explain_change(before, revision);
        }
        let doubted = state.doubts != self.doubts;
        if tail_lost {
            state.doubt();
        } else if doubted {
            // Re-read once more, and let no re-read before that one end the doubt. It is no new doubt: two acts that take
            // turns would otherwise put each other in doubt for ever.
            state.doubted = true;
            state.look = true;
        }
        match (tail_lost, doubted) {
            (true, _) => ActResult::TailLost,
            (false, true) => ActResult::Doubted,
            (false, false) => ActResult::Fine,
        }
    }

    /// Ends the act with an error. If certainly nothing changed, no re-read is needed.
    pub(crate) fn failed(mut self, error: &Error, tried_before: bool) {
        if error.outcome() == Outcome::Unchanged && !self.in_parts && !tried_before {
            self.unheard = None;
        }
    }

    /// Prepares another attempt, which times out at `until`.
    pub(crate) fn again(&mut self, until: Mono) {
        self.unheard = self.unheard.max(Some(until));
    }
}

impl Drop for Act<'_> {
    fn drop(&mut self) {
        let mut state = self.table.state();
        if state.epoch != self.epoch {
            return;
        }
        if self.explains {
            state.in_flight = state.in_flight.saturating_sub(1);
        }
        if state.in_flight == 0 && !state.ahead.is_empty() {
            // No answer under way explains what came before: others changed our holdings. Read what. The store may have
            // lost writes before that, which then does not show.
            state.look |= !state.reading;
            state.hidden |= self.explains && state.asked && !self.table.others_act;
        }
        if let Some(until) = self.unheard {
            state.read_from(until);
            drop(state);
            self.table.work.notify_one();
        } else if state.read_at.is_some() || state.look {
            drop(state);
            self.table.work.notify_one();
        }
    }
}
