//! The purpose and the results of a walk.

use std::collections::HashSet;

use tenure_core::time::StoreTime;

use super::{WalkListener, WalkNotice};
use crate::sessions::Sessions;
use crate::sessions::report::{Comparison, Difference, DifferenceKind, IndexReport};
use crate::sessions::step::{EntryComparison, Mode};

/// The most differences that are listed.
const LISTED: usize = 1_000;

/// The purpose of a walk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Update the index, or preview that.
    Index(Mode),
    /// Preview a repair.
    PreviewRepair,
    /// Compare everything.
    Compare,
}

impl Purpose {
    pub(super) fn mode(self) -> Mode {
        match self {
            Self::Index(mode) => mode,
            Self::PreviewRepair | Self::Compare => Mode::Look,
        }
    }

    pub(super) fn is_to_write(self) -> bool {
        self.mode() != Mode::Look
    }

    pub(super) fn is_to_repair(self) -> bool {
        matches!(self, Self::Index(Mode::Repair) | Self::PreviewRepair)
    }
}

/// The results of a walk so far.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) report: IndexReport,
    pub(super) found: Comparison,
    pub(super) seen: HashSet<u64>,
}

impl Tally {
    /// Reports the results so far. Returns whether the walk is to end.
    pub(super) fn report_progress(&mut self, sessions: &Sessions, listener: WalkListener<'_>) -> bool {
        self.report.stopped = sessions.is_stopped();
        listener(&WalkNotice::Changed(&self.report));
        self.report.stopped
    }

    /// Counts a scanned key.
    pub(super) fn scanned(
        &mut self,
        purpose: Purpose,
        since: Option<StoreTime>,
        sessions: &Sessions,
        id: &[u8],
        seen: EntryComparison,
        listener: WalkListener<'_>,
    ) {
        let counts = &mut self.report.counts;
        counts.scanned += 1;
        match seen.mark {
            b'a' | b'k' | b'u' | b'o' => counts.disconnected += 1,
            b'n' => counts.not_hash += 1,
            b'i' | b'?' => counts.invalid += 1,
            b'g' => counts.scanned -= 1,
            // An entry without a disconnected session: usually the session is active.
            _ => counts.active += 1,
        }
        if matches!(seen.mark, b'i' | b'?') {
            let value = &seen.session;
            listener(&WalkNotice::Invalid { id, value });
        }
        match seen.mark {
            b'a' if since.is_some_and(|since| is_since(&seen.session, since, sessions)) => self.found.fresh += 1,
            b'a' => {
                self.report.added += 1;
                self.found.missing += 1;
                self.differ(id, DifferenceKind::Missing, true, seen, listener);
            }
            b'u' | b'o' => {
                let ours = seen.mark == b'u';
                self.report.updated += u64::from(ours);
                self.report.repaired += u64::from(!ours && purpose.is_to_repair());
                self.found.differing += 1;
                self.differ(id, DifferenceKind::Differing, ours, seen, listener);
            }
            // A preview counts these when it scans the entries.
            b'r' if purpose.is_to_write() => {
                self.report.removed += 1;
                self.differ(id, DifferenceKind::Extra, true, seen, listener);
            }
            b'!' if purpose == Purpose::Index(Mode::Repair) => {
                self.report.repaired += 1;
                self.differ(id, DifferenceKind::Extra, false, seen, listener);
            }
            _ => {}
        }
    }

    /// Counts an entry without a disconnected session.
    pub(super) fn entry(&mut self, purpose: Purpose, id: &[u8], seen: EntryComparison, listener: WalkListener<'_>) {
        let report = &mut self.report;
        match seen.mark {
            b'r' => report.removed += 1,
            b'!' if purpose.is_to_repair() => report.repaired += 1,
            b'!' | b'?' if purpose == Purpose::Compare => {}
            // The session was created or changed after its key was scanned.
            b'a' if purpose.is_to_write() => report.added += 1,
            b'u' if purpose.is_to_write() => report.updated += 1,
            b'o' if purpose == Purpose::Index(Mode::Repair) => report.repaired += 1,
            _ => return,
        }
        let ours = !b"!?o".contains(&seen.mark);
        let kind = match seen.mark {
            b'a' => DifferenceKind::Missing,
            b'u' | b'o' => DifferenceKind::Differing,
            _ => DifferenceKind::Extra,
        };
        self.found.extra += u64::from(kind == DifferenceKind::Extra);
        self.differ(id, kind, ours, seen, listener);
    }

    fn differ(
        &mut self,
        id: &[u8],
        kind: DifferenceKind,
        ours: bool,
        seen: EntryComparison,
        listener: WalkListener<'_>,
    ) {
        let difference = Difference {
            id: id.to_vec(),
            kind,
            session: seen.session,
            index: seen.index,
            ours,
        };
        listener(&WalkNotice::Difference(&difference));
        if self.found.listed.len() < LISTED {
            self.found.listed.push(difference);
        }
    }
}

/// Whether a session's time is not before `since`, with the precision of whole units.
fn is_since(session: &[u8], since: StoreTime, sessions: &Sessions) -> bool {
    let unit = sessions.steps.settings.unit.micros();
    let whole = session.split(|byte| *byte == b'.').next().unwrap_or_default();
    let told = std::str::from_utf8(whole)
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    told.is_some_and(|told| told >= since.micros() / unit)
}
