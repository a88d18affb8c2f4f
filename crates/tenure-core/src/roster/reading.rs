//! The replies of the mirror.

use std::collections::BTreeMap;

use super::put::{MirrorEntry, Standing};
use crate::ledger::{Candidate, Provider, RosterStats, Version};
use crate::time::StoreTime;

/// The status of the mirror, which every reply carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorStatus {
    /// Whether all rows of the ledger have arrived since the data was created. A mirror that is not seeded may lack any
    /// provider, so it must not be trusted.
    pub seeded: bool,
    /// The highest version ever written. A lower value than before means that the store lost its tail.
    pub high: Version,
    /// The version of the settings.
    pub settings: Version,
    /// When the store last resumed serving after a gap.
    pub resumed_at: StoreTime,
    /// The store time of the reply.
    pub as_of: StoreTime,
}

/// A row and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirroredProvider {
    /// The row, with its last heartbeat only while it is alive.
    pub row: Provider,
    /// The state of its tenure now. A read ends no tenure: one past its end time reads as `Ended`.
    pub standing: Standing,
}

impl MirroredProvider {
    /// Whether it is available now.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.standing == Standing::Alive && self.row.has_room()
    }
}

/// A page of the available providers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked {
    /// The providers, in order.
    pub candidates: Vec<Candidate>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<String>,
    /// The status of the mirror.
    pub mirror: MirrorStatus,
}

/// The number of available providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Availability {
    /// The number.
    pub count: u64,
    /// When it was counted.
    pub as_of: StoreTime,
    /// Whether all providers were checked. If not, those beyond [`MAX_OVERDUE`](super::MAX_OVERDUE) possibly lapsed
    /// ones are not counted, so the number is never too high.
    pub complete: bool,
    /// The status of the mirror.
    pub mirror: MirrorStatus,
}

/// The reply to a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundProviders {
    /// The providers, in request order; `None` for a missing one.
    pub providers: Vec<Option<MirroredProvider>>,
    /// The status of the mirror.
    pub mirror: MirrorStatus,
}

/// A page of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// The rows.
    pub rows: Vec<MirroredProvider>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<String>,
    /// The status of the mirror.
    pub mirror: MirrorStatus,
}

/// The number of providers by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// The counts. `dirty` belongs to the ledger and is 0 here. A provider whose tenure ended counts as offline, also
    /// before the ledger has applied that.
    pub stats: RosterStats,
    /// Ended tenures that the ledger must apply.
    pub pending: u64,
    /// As in [`Availability`].
    pub complete: bool,
    /// The status of the mirror.
    pub mirror: MirrorStatus,
}

/// The result of verifying a part of the mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The rows and removals; each appears at least once over all parts.
    pub entries: Vec<MirrorEntry>,
    /// The repaired inconsistencies, by kind ([`drift`](crate::sweep::drift)).
    pub repaired: BTreeMap<String, u64>,
    /// The cursor of the next part; `None` at the end.
    pub next: Option<String>,
    /// The status of the mirror.
    pub mirror: MirrorStatus,
}
