//! One page of a reaper's pass: its candidates, their results, and the read-back of a page whose reply was lost.

use std::time::Duration;

use tenure_core::error::{Outcome, Result};
use tenure_core::time::StoreTime;

use super::Reaper;
use crate::health::{Break, ServerSnapshot};
use crate::sessions::SILENCE;
use crate::sessions::report::{ReapNotice, ReapReport};
use crate::sessions::step::{Candidate, ReapReply};
use crate::text;

/// The most sessions that one step judges.
const BATCH: u64 = 100;
/// How long one pass tries to read a page back.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval of these attempts.
const LOOK: Duration = Duration::from_millis(50);

/// A page whose reply was lost.
pub(super) struct Pending {
    epoch: String,
    page: u64,
    not_after: StoreTime,
    pub(super) candidates: Vec<Candidate>,
}

/// The outcome of such a page.
enum PageOutcome {
    Marks(Vec<u8>),
    /// Not applied, and too late to be.
    NotApplied,
    /// Unknown: the store lost the marker.
    Forgotten,
}

/// The position of a pass in the index. Entries that stay are skipped.
pub(super) struct IndexCursor {
    from: String,
    skip: u64,
}

impl Reaper {
    /// The next old entries, within the limit.
    pub(super) async fn candidates(
        &self,
        snapshot: &ServerSnapshot,
        cursor: &IndexCursor,
        report: &ReapReport,
    ) -> Result<Vec<Candidate>> {
        let left = self
            .settings
            .limit
            .map_or(u64::MAX, |limit| limit.saturating_sub(report.reaped));
        if left == 0 {
            return Ok(Vec::new());
        }
        let cutoff = snapshot.at.minus(self.settings.max_age);
        self.steps.due(cutoff, &cursor.from, cursor.skip, left.min(BATCH)).await
    }

    /// Reaps one page. Returns the mark of each candidate, or the break that forbids further decisions.
    pub(super) async fn reap(
        &mut self,
        epoch: &str,
        page: u64,
        candidates: &[Candidate],
        resumed: StoreTime,
        base: &ServerSnapshot,
        report: &mut ReapReport,
    ) -> Result<Result<(ServerSnapshot, Vec<u8>), Break>> {
        if self.steps.connection.generation() != Some(base.generation) {
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
            Ok(ReapReply { marks: None, .. }) => return Ok(Err(Break::DataLost)),
            Ok(ReapReply {
                at, marks: Some(marks), ..
            }) => (at, marks),
            Err(error) if error.outcome() == Outcome::Unknown => {
                let reason = error.chain();
                tracing::warn!(
                    reason,
                    pass = epoch,
                    page,
                    "the reply to a page was lost; reading its outcome back"
                );
                self.pending = Some(Pending {
                    epoch: epoch.to_owned(),
                    page,
                    not_after,
                    candidates: candidates.to_vec(),
                });
                // This counts the page exactly once.
                self.read_back(report).await?;
                return Ok(Err(Break::Unreachable { reason }));
            }
            Err(error) => return Err(error),
        };
        let arrived = self.mono();
        let later = ServerSnapshot {
            generation: self.steps.connection.generation().unwrap_or(0),
            at,
            arrived,
            marker: true,
            info: None,
        };
        let silent = arrived.since(sent);
        // The page itself was decided in one step, so it counts.
        match base.broken_by(&later) {
            None if silent <= SILENCE => {}
            broken => {
                self.count(candidates, &marks, report);
                return Ok(Err(broken.unwrap_or(Break::Silent { silent })));
            }
        }
        let info = base.info.clone();
        Ok(Ok((ServerSnapshot { info, ..later }, marks)))
    }

    /// Reads back the outcome of a page whose reply was lost, and counts it.
    pub(super) async fn read_back(&mut self, report: &mut ReapReport) -> Result<()> {
        let Some(pending) = &self.pending else { return Ok(()) };
        let give_up = self.mono() + PATIENCE;
        let outcome = loop {
            match self.steps.check(&self.marker, &pending.epoch).await {
                Ok((snapshot, marker)) => {
                    if let Some(outcome) = pending.outcome(&snapshot, marker.as_deref()) {
                        break outcome;
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
        match outcome {
            PageOutcome::Marks(marks) => self.count(&pending.candidates, &marks, report),
            PageOutcome::NotApplied => {}
            PageOutcome::Forgotten => {
                let candidates = pending.candidates.len() as u64;
                report.unsure += candidates;
                tracing::warn!(
                    candidates,
                    "the store lost the marker of a page: an unknown number of these sessions was reaped"
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
    /// The outcome by the marker; `None` while it is unknown. Until the not-after time the page may still be applied.
    fn outcome(&self, snapshot: &ServerSnapshot, marker: Option<&str>) -> Option<PageOutcome> {
        let mut words = marker.unwrap_or_default().split(' ');
        if words.next() != Some(&self.epoch) {
            return Some(PageOutcome::Forgotten);
        }
        if words.next().and_then(|page| page.parse().ok()) == Some(self.page) {
            let marks = words.next().filter(|marks| marks.len() == self.candidates.len());
            return Some(marks.map_or(PageOutcome::Forgotten, |marks| PageOutcome::Marks(marks.into())));
        }
        (snapshot.at > self.not_after).then_some(PageOutcome::NotApplied)
    }
}

impl IndexCursor {
    pub(super) fn start() -> Self {
        Self {
            from: "-inf".to_owned(),
            skip: 0,
        }
    }

    /// Moves behind a batch of which some entries stay in the index.
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
    fn cursor_skips_entries_that_stay() {
        let batch = |scores: &[&str]| -> Vec<Candidate> {
            let each = scores.iter().map(|score| Candidate {
                id: Vec::new(),
                score: (*score).to_owned(),
            });
            each.collect()
        };
        let mut cursor = IndexCursor::start();
        cursor.advance(&batch(&["1", "2", "2"]), |n| n != 1);
        assert_eq!((cursor.from.as_str(), cursor.skip), ("2", 1));
        cursor.advance(&batch(&["2", "2"]), |_| true);
        assert_eq!((cursor.from.as_str(), cursor.skip), ("2", 3));
        cursor.advance(&batch(&["2", "3"]), |_| false);
        assert_eq!((cursor.from.as_str(), cursor.skip), ("3", 0));
        cursor.advance(&[], |_| true);
        assert_eq!((cursor.from.as_str(), cursor.skip), ("3", 0));
    }
}
