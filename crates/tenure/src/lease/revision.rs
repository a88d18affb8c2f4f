//! The number of what we hold: what we were told, compared with what the store says at every beat.
//!
//! Every act under a tenure that can change what it holds is an [`Act`] from before it is sent until its answer was
//! taken. One whose answer is missing may have taken effect, so what the store has for us is read back once it no longer
//! can.

use tenure_core::clock::Mono;
use tenure_core::error::{Error, Outcome};
use tenure_core::membership::Revision;
use tenure_core::sweep::BATCH;

use super::book::{Book, State};

/// An act under way. Dropping it without an answer means that its outcome is unknown.
#[derive(Debug)]
pub(crate) struct Act<'a> {
    book: &'a Book,
    epoch: u64,
    doubts: u64,
    /// The number that was known when it began.
    told: Revision,
    /// Whether it is applied in more than one part, of which some may be applied when it fails.
    in_parts: bool,
    /// Set while it may have, or may yet, take effect unheard: until then.
    unheard: Option<Mono>,
}

/// What was known when a beat was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    epoch: u64,
    /// What the beat carries.
    pub(crate) told: Revision,
}

/// What a beat's answer says about what we hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    /// What we know.
    Same,
    /// The store has forgotten what it told us: it lost the end of its data.
    TailLost,
    /// The store knows of something that we were never told.
    ReplyLost,
    /// The same, and it concerns no lease: an act of ours was not heard.
    Unheard,
}

/// What the answer to an act says beside what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    /// Nothing.
    Fine,
    /// A doubt arose while it was under way.
    Doubted,
    /// The store has forgotten what it told us before.
    TailLost,
}

impl Book {
    /// An act on this many holdings begins, which is given up at `until`.
    pub(crate) fn act(&self, holdings: usize, until: Mono) -> Act<'_> {
        let mut state = self.state();
        state.flying += 1;
        Act {
            book: self,
            epoch: state.epoch,
            doubts: state.doubts,
            told: state.told,
            in_parts: holdings > BATCH as usize,
            unheard: Some(until),
        }
    }

    /// A beat is about to be sent.
    pub(crate) fn sent(&self) -> Sent {
        let state = self.state();
        Sent {
            epoch: state.epoch,
            told: state.told,
        }
    }

    /// Compares the answer to a beat with what we know. What does not fit is a doubt from now on.
    pub(crate) fn compare(&self, sent: Sent, seen: Revision) -> Compared {
        let mut state = self.state();
        if sent.epoch != state.epoch {
            return Compared::Same;
        }
        if self.others_act {
            // What others did under our tenure is heard of here for the first time; a reply of our own that is missing is
            // an act that was not heard, and is read back for that.
            state.told = state.told.max(seen);
        }
        let compared = if seen < sent.told {
            Compared::TailLost
        } else if seen > state.told {
            match state.explain(seen) {
                Compared::ReplyLost => Compared::ReplyLost,
                explained => return explained,
            }
        } else {
            state.unexplained = None;
            if seen == state.told && seen != state.verified {
                self.verify(&mut state);
            }
            return Compared::Same;
        };
        // From here on the store's word counts; the next beat compares with it.
        state.told = seen;
        state.unexplained = None;
        state.doubt();
        drop(state);
        self.changed();
        self.work.notify_one();
        compared
    }
}

impl Book {
    /// The numbers agree, but an act since the last beat may have hidden a loss before it: the number is that of the last
    /// act. So after every change the leases are looked at once, without doubting them.
    fn verify(&self, state: &mut State) {
        if state.entries.is_empty() {
            state.verified = state.told;
        } else if state.read_at.is_none() && !state.reading {
            state.look = true;
            self.work.notify_one();
        }
    }
}

impl State {
    /// Where a number may come from that nobody told us yet.
    ///
    /// An act under way is waited for, until the next beat; longer not, since the number may hide that the store lost
    /// the end of its data before that act. One that was not heard explains nothing to whoever has leases.
    fn explain(&mut self, seen: Revision) -> Compared {
        let is_late = self.unexplained.is_some_and(|before| before > self.told);
        if self.flying > 0 && !is_late {
            self.unexplained = Some(seen);
            return Compared::Same;
        }
        if !self.asked && (self.flying > 0 || self.read_at.is_some() || self.reading) {
            return Compared::Same;
        }
        if std::mem::take(&mut self.accept_next) {
            self.told = seen;
            return Compared::Unheard;
        }
        Compared::ReplyLost
    }

    /// From now on nothing counts before it was read back.
    pub(super) fn doubt(&mut self) {
        self.doubted = true;
        self.doubts += 1;
        self.look = true;
    }

    /// What the store has for us is to be read, from then on.
    pub(super) fn read_from(&mut self, at: Mono) {
        self.read_at = Some(self.read_at.map_or(at, |before| before.max(at)));
    }
}

impl Act<'_> {
    /// It was answered, and these are the numbers of our holdings before and after it. What earlier attempts of it did is
    /// in there. A number before it that is lower than what we were told when it began shows that the store lost the end
    /// of its data, which no beat would show any more. Answers whether a doubt arose, now or meanwhile: then it may have
    /// happened in what was lost since.
    pub(crate) fn answered(mut self, before: Revision, revision: Revision) -> Answered {
        self.unheard = None;
        let mut state = self.book.state();
        if state.epoch != self.epoch {
            return Answered::Fine;
        }
        let tail_lost = before < self.told;
        // After a loss the store's word counts, from here on.
        state.told = if tail_lost { revision } else { state.told.max(revision) };
        let doubted = state.doubts != self.doubts;
        if doubted || tail_lost {
            // Read it back, and once more if that was done already.
            state.doubt();
        }
        match (tail_lost, doubted) {
            (true, _) => Answered::TailLost,
            (false, true) => Answered::Doubted,
            (false, false) => Answered::Fine,
        }
    }

    /// An attempt of it failed for good. What certainly changed nothing needs no reading back.
    pub(crate) fn failed(mut self, error: &Error, tried_before: bool) {
        if error.outcome() == Outcome::Unchanged && !self.in_parts && !tried_before {
            self.unheard = None;
        }
    }

    /// It is attempted once more, and given up at `until`.
    pub(crate) fn again(&mut self, until: Mono) {
        self.unheard = self.unheard.max(Some(until));
    }
}

impl Drop for Act<'_> {
    fn drop(&mut self) {
        let mut state = self.book.state();
        if state.epoch != self.epoch {
            return;
        }
        state.flying = state.flying.saturating_sub(1);
        if let Some(until) = self.unheard {
            state.read_from(until);
            drop(state);
            self.book.work.notify_one();
        } else if state.read_at.is_some() || state.look {
            drop(state);
            self.book.work.notify_one();
        }
    }
}
