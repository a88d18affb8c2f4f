//! Evicts the entries of dead owners, and reads back the outcome of a page whose reply was lost.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::error::{Outcome, Result};
use tenure_core::time::StoreTime;

use super::brake::Dead;
use super::pass::Janitor;
use super::report::{Notice, PassReport};
use super::step::{Candidate, read_marks};
use super::watch::Watch;
use crate::health::{Break, ServerSnapshot};
use crate::{text, weight};

/// How long one pass tries to read a page back.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval of these attempts.
const LOOK: Duration = Duration::from_millis(50);

/// A page whose reply was lost.
#[derive(Debug)]
pub(super) struct Pending {
    epoch: String,
    page: u64,
    not_after: StoreTime,
    candidates: Vec<Candidate>,
}

impl Pending {
    pub(super) fn size(&self) -> u64 {
        self.candidates.len() as u64
    }

    /// The outcome by the marker; `None` while it is unknown. Until the not-after time the page may still be applied.
    fn outcome(&self, snapshot: &ServerSnapshot, marker: Option<&str>) -> Option<PageOutcome> {
        let mut words = marker.unwrap_or_default().split(' ');
        if words.next() != Some(&self.epoch) {
            return Some(PageOutcome::Forgotten);
        }
        let page = words.next().and_then(|page| page.parse::<u64>().ok());
        if page == Some(self.page) {
            let marks = words.next().and_then(|marks| read_marks(marks, self.candidates.len()));
            return Some(marks.map_or(PageOutcome::Forgotten, PageOutcome::Removed));
        }
        (snapshot.at > self.not_after).then_some(PageOutcome::NotApplied)
    }
}

/// The evictions per owner. Logs one line each when dropped, so also when the pass fails or is dropped.
struct EvictionLog {
    registry: String,
    pass: String,
    entries: BTreeMap<Vec<u8>, u64>,
}

impl Drop for EvictionLog {
    fn drop(&mut self) {
        for (owner, entries) in &self.entries {
            tracing::info!(
                registry = self.registry,
                owner = text(owner),
                entries,
                pass = self.pass,
                "evicted: the owner's heartbeat is gone"
            );
        }
    }
}

/// The outcome of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PageOutcome {
    /// Applied: whether each entry was removed.
    Removed(Vec<bool>),
    /// Not applied, and too late to be.
    NotApplied,
    /// Unknown: the store lost the marker.
    Forgotten,
}

impl Janitor {
    /// Removes the entries of these owners, page by page.
    pub(super) async fn evict(
        &mut self,
        watch: &mut Watch,
        free: &Dead,
        report: &mut PassReport,
    ) -> Result<Option<Break>> {
        if free.is_empty() {
            return Ok(None);
        }
        let mut removed = self.eviction_log(report);
        self.evict_pages(watch, free, report, &mut removed).await
    }

    fn eviction_log(&self, report: &PassReport) -> EvictionLog {
        EvictionLog {
            registry: text(&self.settings.hash),
            pass: report.pass.clone(),
            entries: BTreeMap::new(),
        }
    }

    async fn evict_pages(
        &mut self,
        watch: &mut Watch,
        free: &Dead,
        report: &mut PassReport,
        removed: &mut EvictionLog,
    ) -> Result<Option<Break>> {
        let mut scan = self.steps.scan();
        loop {
            let page = match self.steps.page(&mut scan).await {
                Err(_) if scan.is_cut() => return Ok(Some(Break::Reconnected)),
                page => page?,
            };
            let Some(page) = page else { return Ok(None) };
            self.tell_scanned(&page);
            report.scanned += page.len() as u64;
            let candidates = self.candidates(page, free);
            for some in weight::pages(&candidates, Candidate::weight) {
                watch.pages += 1;
                if self.steps.connection.generation() != Some(watch.last.generation) {
                    return Ok(Some(Break::Reconnected));
                }
                self.tell(&Notice::Evicting(some));
                match self.evict_page(watch, some, report).await? {
                    Ok(marks) => self.count(some, &marks, report, removed),
                    Err(broken) => return Ok(Some(broken)),
                }
            }
        }
    }

    /// Evicts one page. Returns whether each candidate was removed and is to be counted, or why the checks must start
    /// again.
    async fn evict_page(
        &mut self,
        watch: &Watch,
        candidates: &[Candidate],
        report: &mut PassReport,
    ) -> Result<Result<Vec<bool>, Break>> {
        let (page, last) = (watch.pages, &watch.last);
        let timeout = self.steps.connection.options().request_timeout;
        let not_after = last.at + self.clock().mono().since(last.arrived) + timeout;
        let error = match self.steps.evict(&watch.epoch, page, candidates, not_after).await {
            Ok(Some(marks)) => return Ok(Ok(marks)),
            Ok(None) => return Ok(Err(Break::DataLost)),
            Err(error) if error.outcome() == Outcome::Unknown => error,
            Err(error) => return Err(error),
        };
        let reason = error.chain();
        tracing::warn!(
            reason,
            pass = report.pass,
            page,
            "the reply to a page was lost; reading its outcome back"
        );
        self.pending = Some(Pending {
            epoch: watch.epoch.clone(),
            page,
            not_after,
            candidates: candidates.to_vec(),
        });
        match self.resolve(report).await? {
            // `resolve` has counted them.
            PageOutcome::Removed(_) => Ok(Ok(vec![false; candidates.len()])),
            PageOutcome::NotApplied => Ok(Err(Break::Unreachable { reason })),
            PageOutcome::Forgotten => Ok(Err(Break::DataLost)),
        }
    }

    /// Reads back the outcome of a page whose reply was lost, and counts it.
    ///
    /// # Errors
    /// `Unavailable` if the store did not respond in time. The next pass tries again.
    pub(super) async fn resolve(&mut self, report: &mut PassReport) -> Result<PageOutcome> {
        let Some(pending) = &self.pending else {
            return Ok(PageOutcome::NotApplied);
        };
        let give_up = self.clock().mono() + PATIENCE;
        let outcome = loop {
            match self.steps.check(&pending.epoch).await {
                Ok((snapshot, marker)) => {
                    if let Some(outcome) = pending.outcome(&snapshot, marker.as_deref()) {
                        break outcome;
                    }
                }
                Err(error) if self.clock().mono() > give_up || !error.is_unavailable() => return Err(error),
                Err(_) => {}
            }
            self.clock().sleep(LOOK).await;
        };
        let Some(pending) = self.pending.take() else {
            return Ok(outcome);
        };
        match &outcome {
            PageOutcome::Removed(marks) => {
                let mut removed = self.eviction_log(report);
                self.count(&pending.candidates, marks, report, &mut removed);
            }
            PageOutcome::NotApplied => {}
            PageOutcome::Forgotten => {
                let entries = pending.size();
                report.unsure += entries;
                tracing::warn!(
                    entries,
                    "the store lost the marker of a page: an unknown number of these entries was removed"
                );
                self.tell(&Notice::Unsure { entries });
            }
        }
        Ok(outcome)
    }

    fn candidates(&self, entries: Vec<(Vec<u8>, Vec<u8>)>, free: &Dead) -> Vec<Candidate> {
        let judged = entries.into_iter().filter_map(|(field, value)| {
            let owner = self.settings.owner_at.owner(&value)?;
            free.contains_key(&owner).then_some(Candidate { field, value, owner })
        });
        judged.collect()
    }

    fn count(&self, candidates: &[Candidate], marks: &[bool], report: &mut PassReport, removed: &mut EvictionLog) {
        let mut page: BTreeMap<&[u8], u64> = BTreeMap::new();
        for (entry, _) in candidates.iter().zip(marks).filter(|(_, removed)| **removed) {
            *page.entry(&entry.owner).or_default() += 1;
        }
        for (owner, entries) in page {
            *report.evicted.entry(owner.to_vec()).or_default() += entries;
            *removed.entries.entry(owner.to_vec()).or_default() += entries;
            self.tell(&Notice::Evicted { owner, entries });
        }
    }
}
