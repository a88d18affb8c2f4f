//! What a roster answers.

use serde::{Deserialize, Serialize};
use tenure_core::ledger::{Engagement, EngagementChange, Provider};
use tenure_core::time::StoreTime;

/// Where an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The hot copy: who is alive counts to the moment.
    Mirror,
    /// The durable truth, while the mirror is away or not to be believed: slower, and fresh as far as heartbeats were
    /// written down.
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

/// An answer that can come from two places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sourced<T> {
    /// The answer.
    #[serde(flatten)]
    pub value: T,
    /// `mirror`, or `ledger` while there is no mirror.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub source: Source,
}

impl<T> Sourced<T> {
    /// The same about another value.
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

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Written<T> {
    /// What is there now.
    #[serde(flatten)]
    pub value: T,
    /// Whether this call changed it.
    pub changed: bool,
    // The mirror gets it from the outbox, within about a second of its being back.
    /// Whether the hot store has it already. If not, it follows; the ledger has it in any case.
    pub mirrored: bool,
}

impl<T> Written<T> {
    /// The same about another value.
    #[must_use]
    pub fn map<U>(self, with: impl FnOnce(T) -> U) -> Written<U> {
        Written {
            value: with(self.value),
            changed: self.changed,
            mirrored: self.mirrored,
        }
    }
}

/// A provider, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderView {
    /// Its row. The time of the last heartbeat is the hot store's if the answer came from there and it is online, and else
    /// the ledger's.
    pub row: Provider,
    /// Whether it is online, active, and heard of lately. Its room does not matter.
    pub reachable: bool,
}

impl ProviderView {
    /// Whether it can take work now.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.reachable && self.row.has_room()
    }
}

/// What going online came to. That there is no such provider is an error, `NotFound`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Online {
    /// It is online.
    Done(Written<Provider>),
    /// An operator has deactivated it; nothing changed. 403.
    Deactivated(Provider),
}

/// What removing a provider came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// It is gone.
    Removed {
        /// As in [`Written`].
        mirrored: bool,
    },
    /// There was none. 404.
    Absent,
    /// It is online or engaged; nothing changed. 409.
    Busy(Provider),
}

/// What a heartbeat came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Heard {
    /// It counts, and this is where it was written down.
    Recorded(Source),
    /// The provider is not online; it has to go online first. 409 `provider_offline`.
    Offline,
    /// An operator has deactivated it. 403.
    Deactivated,
    /// It was deactivated after what it showed was issued. 401.
    Revoked,
    /// There is no such provider. 404.
    Unknown,
}

impl Heard {
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

/// Whether a provider may act on what it showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Admission {
    /// It may.
    Welcome,
    /// An operator has deactivated it. 403.
    Deactivated,
    /// It was deactivated after what it showed was issued. 401.
    Revoked,
    /// There is no such provider. 404.
    Unknown,
}

/// How many can take work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Availability {
    /// How many can.
    pub count: u64,
    /// When they were counted.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub as_of: StoreTime,
    /// Whether everyone was looked at; the count is never too high.
    pub complete: bool,
}

impl Availability {
    /// Whether there is anyone.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.count > 0
    }
}

/// What writing an engagement came to. That there is no such provider or engagement is an error, `NotFound`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngagementAnswer {
    /// It is as asked for, since now or since an earlier call.
    Done(Written<EngagementChange>),
    /// It is over, or is another than the one meant; nothing changed. 409.
    Conflict(Engagement),
}

/// What a reserve came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reservation {
    /// The engagement has its provider, since now or since an earlier call.
    Reserved(Written<EngagementChange>),
    /// Nobody has room; nothing changed. 409 `none_available`.
    NoneAvailable,
    /// The engagement is over; nothing changed. 409.
    Conflict(Engagement),
}
