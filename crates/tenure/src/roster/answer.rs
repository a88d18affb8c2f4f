//! The results of a roster's methods.

use serde::{Deserialize, Serialize};
use tenure_core::ledger::{Engagement, EngagementChange, Provider};
use tenure_core::time::StoreTime;

/// Where the data of an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The hot copy: liveness is exact.
    Mirror,
    /// The durable truth, while the mirror is unreachable or not trusted: slower, and liveness is as old as the
    /// recorded heartbeats.
    Ledger,
}

impl Source {
    /// The name on the wire and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mirror => "mirror",
            Self::Ledger => "ledger",
        }
    }
}

/// A value and its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sourced<T> {
    /// The value.
    #[serde(flatten)]
    pub value: T,
    /// `mirror`, or `ledger` while there is no mirror.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub source: Source,
}

impl<T> Sourced<T> {
    /// The same source with another value.
    #[must_use]
    pub fn map<U>(self, with: impl FnOnce(T) -> U) -> Sourced<U> {
        Sourced {
            value: with(self.value),
            source: self.source,
        }
    }

    pub(crate) fn mirror(value: T) -> Self {
        let source = Source::Mirror;
        Self { value, source }
    }

    pub(crate) fn ledger(value: T) -> Self {
        let source = Source::Ledger;
        Self { value, source }
    }
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Written<T> {
    /// The value after the write.
    #[serde(flatten)]
    pub value: T,
    /// Whether this call changed it.
    pub changed: bool,
    // The outbox delivers it within about a second after the mirror is reachable again.
    /// Whether the hot store has it already. Otherwise it follows; the ledger has it in any case.
    pub mirrored: bool,
}

impl<T> Written<T> {
    /// The same with another value.
    #[must_use]
    pub fn map<U>(self, with: impl FnOnce(T) -> U) -> Written<U> {
        Written {
            value: with(self.value),
            changed: self.changed,
            mirrored: self.mirrored,
        }
    }
}

/// A provider at the time of the read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderView {
    /// Its row. The last heartbeat is the hot store's if the answer came from there and the provider is online,
    /// otherwise the ledger's.
    pub row: Provider,
    /// Whether it is online, active, and has sent a recent heartbeat. Its room does not count.
    pub reachable: bool,
}

impl ProviderView {
    /// Whether it can take work now.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.reachable && self.row.has_room()
    }
}

/// The result of going online. An unknown provider is an error, `NotFound`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Online {
    /// It is online.
    Done(Written<Provider>),
    /// An operator has deactivated it; nothing changed. 403.
    Deactivated(Provider),
}

/// The result of removing a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// It is removed.
    Removed {
        /// As in [`Written`].
        mirrored: bool,
    },
    /// No such provider. 404.
    Absent,
    /// It is online or engaged; nothing changed. 409.
    Busy(Provider),
}

/// The result of a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeartbeatOutcome {
    /// The heartbeat is recorded in this source.
    Recorded(Source),
    /// The provider is not online and must go online first. 409 `provider_offline`.
    Offline,
    /// An operator has deactivated it. 403.
    Deactivated,
    /// It was deactivated after its credential was issued. 401.
    Revoked,
    /// No such provider. 404.
    Unknown,
}

impl HeartbeatOutcome {
    /// The value of the label `result`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Recorded(_) => "recorded",
            Self::Offline => "offline",
            Self::Deactivated => "deactivated",
            Self::Revoked => "revoked",
            Self::Unknown => "unknown",
        }
    }
}

/// Whether a provider may act with its credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Admission {
    /// It may.
    Admitted,
    /// An operator has deactivated it. 403.
    Deactivated,
    /// It was deactivated after its credential was issued. 401.
    Revoked,
    /// No such provider. 404.
    Unknown,
}

/// How many providers can take work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Availability {
    /// How many can.
    pub count: u64,
    /// When they were counted.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
    /// Whether all providers were counted; the count is never too high.
    pub complete: bool,
}

impl Availability {
    /// Whether there is at least one.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.count > 0
    }
}

/// The result of writing an engagement. An unknown provider or engagement is an error, `NotFound`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngagementAnswer {
    /// It is as requested, since now or since an earlier call.
    Done(Written<EngagementChange>),
    /// It has ended, or differs from the request; nothing changed. 409.
    Conflict(Engagement),
}

/// The result of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reservation {
    /// The engagement has its provider, since now or since an earlier call.
    Reserved(Written<EngagementChange>),
    /// No provider has room; nothing changed. 409 `none_available`.
    NoneAvailable,
    /// The engagement has ended; nothing changed. 409.
    Conflict(Engagement),
}
