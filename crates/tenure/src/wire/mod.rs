//! The HTTP API as types, shared by the daemon and its clients.
//!
//! Durations are integers named `…_ms`, times are RFC 3339 in UTC, and names are validated when parsed. Requests reject
//! unknown fields, so that a misspelt option is an error. Answers may gain fields, so readers ignore unknown ones. All
//! errors have one shape, [`Problem`].
//!
//! This module does no I/O and makes no decisions.

mod event;
mod lease;
mod membership;
mod problem;
mod registry;
pub mod roster;
mod session;
mod settle;
mod status;
mod sweep;
mod target;

pub use event::{EventAnswer, EventsPage, EventsQuery, Gap};
pub use lease::{
    AcquireAnswer, AcquireLeasesAnswer, AcquireRequest, AcquireResult, AcquireWord, Lease, LeaseFilter, LeasesPage,
    LeasesQuery, ReleaseLeaseAnswer, ReleaseLeaseRequest, ReleaseLeaseResult, ReleaseLeasesAnswer, ReleaseWord,
    RevokeQuery,
};
pub use membership::{
    BeatRequest, BeatResult, BeatStatus, BeatsAnswer, EndQuery, JoinAnswer, JoinRequest, LabelsRequest, Member,
    MembersPage, PageQuery, Renewed, StalledWork,
};
pub use problem::{Code, PROBLEM_JSON, Problem};
pub use registry::{
    Claim, ClaimAnswer, ClaimRequest, ClaimResult, ClaimWord, ClaimsAnswer, ClaimsPage, ClaimsQuery, ClaimsRequest,
    ReleaseQuery,
};
pub use session::{
    AttachAnswer, AttachRequest, AttachResult, AttachSessionsAnswer, AttachWord, DetachQuery, DetachResult,
    DetachSessionsAnswer, DetachWord, Orphans, OrphansQuery, PatchSessionRequest, Session, SessionFilter, SessionStats,
    SessionsPage, SessionsQuery,
};
pub use settle::SettleRequest;
pub use status::{AccessState, Findings, GroupsPage, LoopState, Now, Readiness, ServerStatus, StoreState, Watched};
pub use sweep::{GroupState, SweepAnswer, SweepRequest};
pub use target::{Target, TargetQuery, TargetRequest, TargetsPage, TargetsQuery};

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};
pub use tenure_core::millis::{down as ms, up as ms_up};

/// The request header with the store time after which a mutating call must not take effect.
pub const NOT_AFTER: &str = "tenure-not-after";
/// The response header with a store time not later than the response.
pub const STORE_TIME: &str = "tenure-store-time";
/// The response header with the reason why a tenure ended, on `DELETE …/tenures/{t}` (which has no body).
pub const END_REASON: &str = "tenure-end-reason";
/// The response header with whether a target was removed (`true` or `false`), on `DELETE …/targets/{t}`.
pub const REMOVED: &str = "tenure-removed";
/// The response header with the last epoch of a deleted session, on `DELETE …/sessions/{s}`.
pub const SESSION_EPOCH: &str = "tenure-session-epoch";
/// The response header with whether a removal reached the mirror (`true` or `false`), on `DELETE …/providers/{p}`.
pub const MIRRORED: &str = "tenure-mirrored";
/// The longest `wait_ms` of an events page.
pub const MAX_EVENT_WAIT: Duration = Duration::from_secs(30);

/// Parses an optional query value; an empty value (`after=`) counts as absent.
pub(crate) fn if_given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: fmt::Display,
{
    struct Given<T>(PhantomData<T>);
    impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Given<T> {
        type Value = Option<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<T>, E> {
            if text.is_empty() {
                return Ok(None);
            }
            text.parse()
                .map(Some)
                .map_err(|error| E::custom(format!("{:?}: {error}", shorten(text))))
        }
    }
    deserializer.deserialize_str(Given(PhantomData))
}

/// The start of an invalid input, short enough for an error message.
pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
