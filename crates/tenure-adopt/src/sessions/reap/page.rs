//! One page of a pass of the reaper: which entries, what became of them, and what became of a page whose reply was lost.

use std::time::Duration;

use tenure_core::error::{Outcome, Result};
use tenure_core::time::StoreTime;

use super::Reaper;
use crate::health::{Break, Vitals};
use crate::sessions::SILENCE;
use crate::sessions::report::{ReapNotice, ReapReport};
use crate::sessions::step::{Candidate, Judged};
use crate::text;

/// The most sessions that one step judges.
const BATCH: u64 = 100;
/// How long one pass tries to read back a page.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(50);

/// A page whose reply was lost.
pub(super) struct Pending {
    epoch: String,
    page: u64,
    not_after: StoreTime,
    pub(super) candidates: Vec<Candidate>,
}

/// What became of such a page.
enum Told {
    Marks(Vec<u8>),
    /// It never arrived, and cannot any more.
    Never,
    /// The store lost its memory of it.
    Nothing,
}

/// Where in the index a pass is: what it leaves in place is passed over.
pub(super) struct Place {
    from: String,
    skip: u64,
}

impl Reaper {
    /// The next old entries, no more than the limit leaves.
    pub(super) async fn candidates(
        &self,
        vitals: &Vitals,
        place: &Place,
        report: &ReapReport,
    ) -> Result<Vec<Candidate>> {
        let left = self
            .settings
            .limit
            .map_or(u64::MAX, |limit| limit.saturating_sub(report.reaped));
        if left == 0 {
            return Ok(Vec::new());
        }
        let cutoff = vitals.at.minus(self.settings.max_age);
        self.steps.due(cutoff, &place.from, place.skip, left.min(BATCH)).await
    }

    /// One page: what became of each candidate, or why nothing may be decided any more.
    pub(super) async fn reap(
        &mut self,
        epoch: &str,
        page: u64,
        candidates: &[Candidate],
        resumed: StoreTime,
        base: &Vitals,
        report: &mut ReapReport,
    ) -> Result<Result<(Vitals, Vec<u8>), Break>> {
        if self.steps.connection.life() != Some(base.life) {
            return Ok(Err(Break::Reconnected));
        }
        let sent = self.mono();
        let timeout = self.steps.connection.options().request_timeout;
        let not_after = base.at + sent.since(base.arrived) + timeout;
        let call = Some((epoch, page, not_after));
        let done = self
            .steps
            .reap(&self.settings, &self.marker, call, resumed, candidates)
            .await;
        let (at, marks) = match done {
            Ok(Judged { marks: None, .. }) => return Ok(Err(Break::DataLost)),
            Ok(Judged {
                at, marks: Some(marks), ..
            }) => (at, marks),
            Err(error) if error.outcome() == Outcome::Unknown => {
                let reason = error.chain();
                tracing::warn!(
                    reason,
                    pass = epoch,
                    page,
                    "the reply to a page was lost; reading back what became of it"
                );
                self.pending = Some(Pending {
                    epoch: epoch.to_owned(),
                    page,
                    not_after,
                    candidates: candidates.to_vec(),
                });
                // It is counted by this, once.
                self.read_back(report).await?;
                return Ok(Err(Break::Unreachable { reason }));
            }
            Err(error) => return Err(error),
        };
        let arrived = self.mono();
        let later = Vitals {
            life: self.steps.connection.life().unwrap_or(0),
            at,
            arrived,
            marker: true,
            info: None,
        };
        let silent = arrived.since(sent);
        // The page itself was decided in one step, and counts.
        match base.broken_by(&later) {
            None if silent <= SILENCE => {}
            broken => {
                self.count(candidates, &marks, report);
                return Ok(Err(broken.unwrap_or(Break::Silent { silent })));
            }
        }
        let info = base.info.clone();
        Ok(Ok((Vitals { info, ..later }, marks)))
    }

    /// Finds out what became of a page whose reply was lost, and counts it.
    pub(super) async fn read_back(&mut self, report: &mut ReapReport) -> Result<()> {
        let Some(pending) = &self.pending else { return Ok(()) };
        let give_up = self.mono() + PATIENCE;
        let told = loop {
            match self.steps.check(&self.marker, &pending.epoch).await {
                Ok((vitals, marker)) => {
                    if let Some(told) = pending.outcome(&vitals, marker.as_deref()) {
                        break told;
                    }
                }
                Err(error) if self.mono() > give_up || !error.is_unavailable() => return Err(error),
                Err(_) => {}
            }
            self.steps.connection.clock().sleep(LOOK).await;
        };
        let Some(pending) = self.pending.take() else {
            return Ok(());
        };
        match told {
            Told::Marks(marks) => self.count(&pending.candidates, &marks, report),
            Told::Never => {}
            Told::Nothing => {
                let candidates = pending.candidates.len() as u64;
                report.unsure += candidates;
                tracing::warn!(
                    candidates,
                    "the store lost its memory of a page: nobody knows how many of these sessions were reaped by it"
                );
                self.tell(&ReapNotice::Unsure(candidates));
            }
        }
        Ok(())
    }

    pub(super) fn count(&self, candidates: &[Candidate], marks: &[u8], report: &mut ReapReport) {
        report.looked += candidates.len() as u64;
        for (entry, mark) in candidates.iter().zip(marks) {
            let count = match mark {
                b'x' | b'z' => &mut report.reaped,
                b'm' => &mut report.without_session,
                b'a' | b'A' => &mut report.active,
                b'y' | b'Y' => &mut report.younger,
                b'F' => &mut report.referenced,
                b'N' => &mut report.not_hash,
                b'I' => &mut report.invalid,
                _ => continue,
            };
            *count += 1;
            report.uncounted += u64::from(*mark == b'z');
            if matches!(mark, b'x' | b'z') {
                tracing::debug!(session = text(&entry.id), disconnected = entry.score, "reaped");
                self.tell(&ReapNotice::Reaped(&entry.id));
            }
        }
        report.limited = self.settings.limit.is_some_and(|limit| report.reaped >= limit);
    }
}

impl Pending {
    /// What the marker tells, or `None` when it does not tell (yet). Before the not-after time a page may still arrive.
    fn outcome(&self, vitals: &Vitals, marker: Option<&str>) -> Option<Told> {
        let mut words = marker.unwrap_or_default().split(' ');
        if words.next() != Some(&self.epoch) {
            return Some(Told::Nothing);
        }
        if words.next().and_then(|page| page.parse().ok()) == Some(self.page) {
            let marks = words.next().filter(|marks| marks.len() == self.candidates.len());
            return Some(marks.map_or(Told::Nothing, |marks| Told::Marks(marks.into())));
        }
        (vitals.at > self.not_after).then_some(Told::Never)
    }
}

impl Place {
    pub(super) fn start() -> Self {
        Self {
            from: "-inf".to_owned(),
            skip: 0,
        }
    }

    /// Goes on behind a batch of which some stay in the index.
    pub(super) fn advance(&mut self, batch: &[Candidate], stays: impl Fn(usize) -> bool) {
        let Some(last) = batch.last() else { return };
        let with_last = batch
            .iter()
            .enumerate()
            .filter(|(n, entry)| entry.score == last.score && stays(*n));
        let stay = with_last.count() as u64;
        if self.from == last.score {
            self.skip += stay;
        } else {
            self.from.clone_from(&last.score);
            self.skip = stay;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_goes_on_behind_what_it_leaves_in_place() {
        let batch = |scores: &[&str]| -> Vec<Candidate> {
            let each = scores.iter().map(|score| Candidate {
                id: Vec::new(),
                score: (*score).to_owned(),
            });
            each.collect()
        };
        let mut place = Place::start();
        place.advance(&batch(&["1", "2", "2"]), |n| n != 1);
        assert_eq!((place.from.as_str(), place.skip), ("2", 1));
        place.advance(&batch(&["2", "2"]), |_| true);
        assert_eq!((place.from.as_str(), place.skip), ("2", 3));
        place.advance(&batch(&["2", "3"]), |_| false);
        assert_eq!((place.from.as_str(), place.skip), ("3", 0));
        place.advance(&[], |_| true);
        assert_eq!((place.from.as_str(), place.skip), ("3", 0));
    }
}
