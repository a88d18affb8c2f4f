//! Ended tenures that the ledger has to follow.

use crate::brake::Brake;
use crate::id::TenureId;
use crate::ledger::EndedTenure;
use crate::membership::EndReason;
use crate::time::StoreTime;

/// A provider whose tenure has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offlined {
    /// The tenure that its row named.
    pub tenure: TenureId,
    /// When it ended: at its end time, if it lapsed.
    pub at: StoreTime,
    /// Why.
    pub reason: EndReason,
    /// When it was heard of last; `None` when it had ended before its row arrived.
    pub heard_at: Option<StoreTime>,
}

impl From<&Offlined> for EndedTenure {
    fn from(offlined: &Offlined) -> Self {
        Self {
            tenure: offlined.tenure.clone(),
            at: offlined.at,
            reason: offlined.reason,
        }
    }
}

/// Those to be followed now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pending {
    /// They, in the order in which they ended, then by the text of their tenures.
    pub items: Vec<Offlined>,
    /// When to ask again: the time of the earliest that is not among these; not in the future when there are more now.
    pub next: Option<StoreTime>,
    /// Set when the brake holds some back.
    pub braked: Option<Brake>,
}
