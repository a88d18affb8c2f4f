//! What a walk is for, and what it has seen so far.

use std::collections::HashSet;

use tenure_core::time::StoreTime;

use super::{WalkListener, WalkNotice};
use crate::sessions::Sessions;
use crate::sessions::report::{Comparison, Difference, IndexReport, Kind};
use crate::sessions::step::{Mode, Seen};

/// The most differences that are listed.
const LISTED: usize = 1_000;

/// What one walk is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Bring the index up to date, or tell what that would do.
    Index(Mode),
    /// Tell what a repair would do.
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

/// What a walk has seen so far.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) report: IndexReport,
    pub(super) found: Comparison,
    pub(super) seen: HashSet<u64>,
}

impl Tally {
    /// Tells what was done so far. Answers whether that is all, because the walk is to end.
    pub(super) fn told(&mut self, sessions: &Sessions, listener: WalkListener<'_>) -> bool {
        self.report.stopped = sessions.is_stopped();
        listener(&WalkNotice::Changed(&self.report));
        self.report.stopped
    }

    /// Counts a key that a scan showed.
    pub(super) fn scanned(
        &mut self,
        purpose: Purpose,
        since: Option<StoreTime>,
        sessions: &Sessions,
        id: &[u8],
        seen: Seen,
        listener: WalkListener<'_>,
    ) {
        let standing = &mut self.report.standing;
        standing.scanned += 1;
        match seen.mark {
            b'a' | b'k' | b'u' | b'o' => standing.disconnected += 1,
            b'n' => standing.not_hash += 1,
            b'i' | b'?' => standing.invalid += 1,
            b'g' => standing.scanned -= 1,
            // An entry without a disconnected session: mostly an active one.
            _ => standing.active += 1,
        }
        match seen.mark {
            b'a' if since.is_some_and(|since| is_since(&seen.session, since, sessions)) => self.found.fresh += 1,
            b'a' => {
                self.report.added += 1;
                self.found.missing += 1;
                self.differ(id, Kind::Missing, true, seen, listener);
            }
            b'u' | b'o' => {
                let ours = seen.mark == b'u';
                self.report.updated += u64::from(ours);
                self.report.repaired += u64::from(!ours && purpose.is_to_repair());
                self.found.differing += 1;
                self.differ(id, Kind::Differing, ours, seen, listener);
            }
            // A look counts them when it comes to the entries.
            b'r' if purpose.is_to_write() => {
                self.report.removed += 1;
                self.differ(id, Kind::Extra, true, seen, listener);
            }
            b'!' if purpose == Purpose::Index(Mode::Repair) => {
                self.report.repaired += 1;
                self.differ(id, Kind::Extra, false, seen, listener);
            }
            _ => {}
        }
    }

    /// Counts an entry that has no disconnected session.
    pub(super) fn entry(&mut self, purpose: Purpose, id: &[u8], seen: Seen, listener: WalkListener<'_>) {
        let report = &mut self.report;
        match seen.mark {
            b'r' => report.removed += 1,
            b'!' if purpose.is_to_repair() => report.repaired += 1,
            b'!' | b'?' if purpose == Purpose::Compare => {}
            // Its session came, or changed, after the scan was there.
            b'a' if purpose.is_to_write() => report.added += 1,
            b'u' if purpose.is_to_write() => report.updated += 1,
            b'o' if purpose == Purpose::Index(Mode::Repair) => report.repaired += 1,
            _ => return,
        }
        let ours = !b"!?o".contains(&seen.mark);
        let kind = match seen.mark {
            b'a' => Kind::Missing,
            b'u' | b'o' => Kind::Differing,
            _ => Kind::Extra,
        };
        self.found.extra += u64::from(kind == Kind::Extra);
        self.differ(id, kind, ours, seen, listener);
    }

    fn differ(&mut self, id: &[u8], kind: Kind, ours: bool, seen: Seen, listener: WalkListener<'_>) {
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

/// Whether a time as a session tells it is not before another, as exactly as whole units can tell.
fn is_since(session: &[u8], since: StoreTime, sessions: &Sessions) -> bool {
    let unit = sessions.steps.settings.unit.micros();
    let whole = session.split(|byte| *byte == b'.').next().unwrap_or_default();
    let told = std::str::from_utf8(whole)
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    told.is_some_and(|told| told >= since.micros() / unit)
}
