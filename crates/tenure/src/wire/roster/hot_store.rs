//! The hot store of a ledger on the wire.

use serde::{Deserialize, Serialize};

use crate::roster::HotStoreStatus;
use crate::wire::ms;

/// The hot store of a daemon beside that of its ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HotStoreState {
    /// The URL of the daemon's hot store, without secrets.
    pub place: String,
    /// Identifies the data of the daemon's hot store.
    pub id: String,
    /// Whether it is that of the ledger. If not, the daemon serves rosters from the ledger.
    pub admitted: bool,
    /// That of the ledger; absent if the ledger has none on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<RecordedState>,
}

/// The hot store that a ledger has on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = RecordedHotStore))]
pub struct RecordedState {
    /// Its URL without secrets, as the last daemon named it.
    pub place: String,
    /// Identifies its data.
    pub id: String,
    /// How long ago a daemon last confirmed it.
    pub confirmed_ms_ago: u64,
}

impl From<HotStoreStatus> for HotStoreState {
    fn from(status: HotStoreStatus) -> Self {
        let admitted = status.is_admitted();
        Self {
            place: status.own.place,
            id: status.own.id,
            admitted,
            recorded: status.recorded.map(|recorded| RecordedState {
                place: recorded.hot_store.place,
                id: recorded.hot_store.id,
                confirmed_ms_ago: ms(recorded.confirmed_ago),
            }),
        }
    }
}
