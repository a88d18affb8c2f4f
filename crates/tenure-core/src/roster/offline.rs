//! Ended tenures that the ledger must apply.

use crate::brake::Brake;
use crate::id::TenureId;
use crate::ledger::EndedTenure;
use crate::membership::EndReason;
use crate::time::StoreTime;

/// A provider whose tenure has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offlined {
    /// The tenure, which its row names.
    pub tenure: TenureId,
    /// When it ended; the end time if it lapsed.
    pub at: StoreTime,
    /// The reason of the end.
    pub reason: EndReason,
    /// The last heartbeat; `None` if the tenure had ended before its row arrived.
    pub heard_at: Option<StoreTime>,
}

impl From<&Offlined> for EndedTenure {
    fn from(offlined: &Offlined) -> Self {
        Self {
            tenure: offlined.tenure.clone(),
            at: offlined.at,
            reason: offlined.reason,
            heard_at: offlined.heard_at,
        }
    }
}

/// The tenures for the ledger to apply now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pending {
    /// The tenures, in the order of their ends, then by text.
    pub items: Vec<Offlined>,
    /// When to read again: the time of the earliest one not included; not in the future if there are more now.
    pub next: Option<StoreTime>,
    /// Set if the brake holds some back.
    pub braked: Option<Brake>,
}
