//! Numbers in beats that the group never issued: signs of data loss.

use super::group::GroupModel;
use crate::id::{TenureId, Term};
use crate::membership::{Beat, Revision};
use crate::recall;
use crate::settling::GapCause;
use crate::sweep::Unsettled;
use crate::time::StoreTime;

/// How far the sequence may be ahead of the clock: each call takes a number, and a number lasts a microsecond.
const AHEAD_MICROS: u64 = 1_000_000;

impl GroupModel {
    /// Handles a beat with a number that was never issued: the tail is lost, if the beat is believed.
    fn note_lost_tail(&mut self, number: u64, now: StoreTime) {
        if !self.kept && recall::believes_a_lost_tail(self.believed_at, now, self.options.max_ttl) {
            self.believed_at = Some(now);
            self.unsettle(now, GapCause::TailLoss);
            self.seq = self.seq.max(number);
        }
    }

    /// Handles a beat with a term from before the group began: a group that counted as new has lost its data.
    fn note_loss_of_data(&mut self, term: Term, now: StoreTime) {
        if let Some(Unsettled {
            cause: GapCause::New,
            until,
        }) = self.head().unsettled
            && !self.kept
            && term.get() < self.born_at.micros()
        {
            let cause = GapCause::DataLoss;
            match self.lives.table.is_empty() {
                true => self.begin_wait(Unsettled { cause, until }, now),
                false => self.unsettle(now, cause),
            }
        }
    }

    /// Compares the revision of a beat with the stored one. An unknown revision is from a lost tail, unless a gap was
    /// noticed in between. A store never issues one from the future.
    pub(super) fn compare_revisions(&mut self, told: Revision, known: Revision, now: StoreTime) {
        let possible = told.0 <= now.micros() + AHEAD_MICROS;
        if told > known && told.0 > self.head().resumed_at.micros() && possible {
            self.note_lost_tail(told.0, now);
        }
    }

    /// Handles a term beyond the sequence that is not from the future: its tail is lost.
    pub(super) fn note_unknown_term(&mut self, term: Term, now: StoreTime) {
        if self.is_never_given(term, now) {
            self.note_lost_tail(term.get(), now);
        }
        self.note_loss_of_data(term, now);
    }

    fn is_never_given(&self, term: Term, now: StoreTime) -> bool {
        self.seq < term.get() && term.get() <= now.micros() && term.get() > self.born_at.micros()
    }

    /// The largest number in these beats that the group never issued and that is not from the future. The model of
    /// stored rows does not detect losses, so its engine checks before the step.
    #[must_use]
    pub fn number_never_given(&self, beats: &[Beat], now: StoreTime) -> Option<u64> {
        let unknown = |beat: &Beat| {
            let term = beat.tenure.term();
            let by_term = self.is_never_given(term, now) && self.current(&beat.tenure).is_none();
            let by_term = by_term.then_some(term.get());
            by_term.max(self.revision_never_given(&beat.tenure, beat.newest(), now))
        };
        beats.iter().filter_map(unknown).max()
    }

    /// A revision that a living tenure names, if the group never issued it and it is not from the future.
    pub(crate) fn revision_never_given(&self, tenure: &TenureId, told: Revision, now: StoreTime) -> Option<u64> {
        let is_unknown = told.0 > self.seq && told.0 <= now.micros() + AHEAD_MICROS;
        (is_unknown && self.current(tenure).is_some()).then_some(told.0)
    }

    /// Records the loss of the tail, at least up to this number: every ttl restarts. Part of a step.
    pub fn note_lost_end(&mut self, number: u64, now: StoreTime) {
        self.last_of_gap = self.seq;
        self.seq = self.seq.max(number);
        self.change_head(|head| head.resumed_at = now);
    }
}
