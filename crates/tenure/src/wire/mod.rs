//! The HTTP surface as types: what a daemon reads and answers, shared by the daemon and by its clients.
//!
//! Durations are integers named `…_ms`, times are RFC 3339 in UTC, names are checked as they are read. Requests refuse
//! fields they do not know, so that a misspelt option is an error and not silence; answers may grow fields, so readers
//! ignore what they do not know. Errors are one shape, [`Problem`].
//!
//! It refuses to do I/O and to decide anything.

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

pub use event::{EventsPage, EventsQuery, Gap};
pub use lease::{
    AcquireAnswer, AcquireLeasesAnswer, AcquireRequest, AcquireResult, AcquireWord, Lease, LeasesPage, LeasesQuery,
    ReleaseLeaseAnswer, ReleaseLeaseRequest, ReleaseLeaseResult, ReleaseLeasesAnswer, ReleaseWord, Whose,
};
pub use membership::{
    BeatRequest, BeatResult, BeatStatus, BeatsAnswer, EndQuery, JoinAnswer, JoinRequest, Member, MembersPage,
    PageQuery, Renewed,
};
pub use problem::{Code, PROBLEM_JSON, Problem};
pub use registry::{
    Claim, ClaimAnswer, ClaimRequest, ClaimResult, ClaimWord, ClaimsAnswer, ClaimsPage, ClaimsQuery, ClaimsRequest,
    ReleaseQuery,
};
pub use session::{
    AttachAnswer, AttachRequest, AttachResult, AttachSessionsAnswer, AttachWord, DetachQuery, DetachResult,
    DetachSessionsAnswer, DetachWord, Orphans, OrphansQuery, PatchSessionRequest, Session, SessionStats, SessionsPage,
    SessionsQuery, WhichSessions,
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
/// The answer header with a store time that is not after the moment of the answer.
pub const STORE_TIME: &str = "tenure-store-time";
/// The answer header that tells why a tenure ended, on `DELETE …/tenures/{t}` (which has no body).
pub const END_REASON: &str = "tenure-end-reason";
/// The answer header that tells whether there was something to remove (`true` or `false`), on `DELETE …/targets/{t}`.
pub const REMOVED: &str = "tenure-removed";
/// The answer header with the last epoch of a session that was deleted, on `DELETE …/sessions/{s}`.
pub const SESSION_EPOCH: &str = "tenure-session-epoch";
/// The answer header that tells whether the mirror has a removal already (`true` or `false`), on `DELETE …/providers/{p}`.
pub const MIRRORED: &str = "tenure-mirrored";
/// The longest `wait_ms` of an events page.
pub const MAX_EVENT_WAIT: Duration = Duration::from_secs(30);

/// Reads an optional query value; `after=` with nothing behind it counts as not given.
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

/// The beginning of what somebody sent, short enough for an error message.
pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
