//! Events: the changes of a group and their reasons, written in the same step as the change.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::call::{Limits, send};
use crate::error::{Error, Result};
use crate::id::{Alias, ConnectionId, Group, LeaseName, MemberId, SessionId, TenureId};
use crate::lease::{Place, RequestId, Token};
use crate::session::Epoch;
use crate::store::{Backend, Call, check_limit};
use crate::time::StoreTime;

/// The number of an event in its group. Like a term, it is above its predecessor and not below the store's time in µs,
/// so it rises across data loss and failovers and is never reused. Numbers have gaps: only the store can detect a
/// missing event ([`EventPage::missed`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventId(pub u64);

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The type of an event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum EventKind {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl EventKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

kinds! {
    /// A tenure began.
    Joined = "joined",
    /// The member left.
    Left = "left",
    /// The end time of a tenure passed.
    Lapsed = "lapsed",
    /// The member joined again.
    Superseded = "superseded",
    /// An operator ended a tenure.
    Expelled = "expelled",
    /// The work of a member made no progress, so its own process ended the tenure.
    NoProgress = "no_progress",
    /// The labels of a living member were replaced.
    LabelsChanged = "labels_changed",
    /// The janitor removed holdings of an ended tenure: one event per batch, with counts.
    Evicted = "evicted",
    /// A lease was granted.
    LeaseGranted = "lease_granted",
    /// The holder released a lease, or the janitor removed it from an ended tenure.
    LeaseReleased = "lease_released",
    /// A lease was granted that an ended tenure still held.
    LeaseTakenOver = "lease_taken_over",
    /// An operator released a lease. It stays taken until its holder has noticed; `lease_released` follows then.
    LeaseRevoked = "lease_revoked",
    /// A target was added, changed or removed.
    TargetChanged = "target_changed",
    /// A session was created.
    SessionCreated = "session_created",
    /// The last connection of a session ended.
    SessionDisconnected = "session_disconnected",
    /// A disconnected session has a connection again.
    SessionResumed = "session_resumed",
    /// An orphan was deleted. Its session id and epoch together are an idempotency key for side effects.
    SessionReaped = "session_reaped",
    /// A session was deleted on request.
    SessionDeleted = "session_deleted",
    /// Drift between sessions and their index was repaired.
    SessionsRepaired = "sessions_repaired",
    /// An operator activated a provider of a roster.
    ProviderActivated = "provider_activated",
    /// An operator deactivated a provider of a roster.
    ProviderDeactivated = "provider_deactivated",
    /// The brake paused the release of lapsed members' holdings.
    SweepBraked = "sweep_braked",
    /// The release resumed.
    SweepUnbraked = "sweep_unbraked",
    /// The store had a gap or lost data: every ttl restarts.
    GroupUnsettled = "group_unsettled",
    /// The grace after the last gap is over.
    GroupSettled = "group_settled",
}

impl EventKind {
    /// The event of a provider's activation or deactivation.
    #[must_use]
    pub fn of_activation(is_active: bool) -> Self {
        match is_active {
            true => Self::ProviderActivated,
            false => Self::ProviderDeactivated,
        }
    }

    /// Parses the name on the wire.
    ///
    /// # Errors
    /// `Invalid`, with the valid types.
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|kind| kind.as_str() == name)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|kind| kind.as_str()).collect();
                let shown: String = name.chars().take(64).collect();
                Error::invalid(format!(
                    "{shown:?} is not an event type; use one of {}",
                    known.join(", ")
                ))
            })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// An event of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// Its number, which rises in its group, with gaps.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub id: EventId,
    /// The store time of the change.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: StoreTime,
    /// `joined`, `left`, `lapsed`, `superseded`, `expelled`, `no_progress`, `labels_changed`, `evicted`, `lease_granted`,
    /// `lease_released`, `lease_taken_over`, `lease_revoked`, `target_changed`, `session_created`,
    /// `session_disconnected`, `session_resumed`, `session_reaped`, `session_deleted`, `sessions_repaired`,
    /// `provider_activated`, `provider_deactivated`, `sweep_braked`, `sweep_unbraked`, `group_unsettled`,
    /// `group_settled`; later versions may add types.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub kind: EventKind,
    /// The tenure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
    /// The reason, in a word or phrase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The lease or target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub lease: Option<LeaseName>,
    /// The fencing token of the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub token: Option<Token>,
    /// The place of the grant, from 0; only for a lease with several places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u16>))]
    pub place: Option<Place>,
    /// With a grant to a waiter: the number of its request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub request: Option<RequestId>,
    /// With `lease_taken_over`: the ended tenure that held the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from: Option<TenureId>,
    /// With `lease_released`: the successor it is reserved for. With `provider_activated` and `provider_deactivated`:
    /// the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub to: Option<MemberId>,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub session: Option<SessionId>,
    /// The connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub connection: Option<ConnectionId>,
    /// The session's alias.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub alias: Option<Alias>,
    /// The epoch of the session's last attach. With the session it is an idempotency key for side effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub epoch: Option<Epoch>,
    /// The sweep pass that made the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// Counts, by registry for `evicted`, by kind of drift for `sessions_repaired`; `lapsed` and `present` for the
    /// brake; `silent_ms` for a gap.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// The number of removed session connections, in addition to the counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub connections: u64,
    /// The removed keys, as `registry/key`, if the store keeps them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

impl Event {
    /// An event of a type, without details.
    #[must_use]
    pub fn new(id: EventId, at: StoreTime, kind: EventKind) -> Self {
        Self {
            id,
            at,
            kind,
            tenure: None,
            reason: None,
            lease: None,
            token: None,
            place: None,
            request: None,
            from: None,
            to: None,
            session: None,
            connection: None,
            alias: None,
            epoch: None,
            pass: None,
            counts: BTreeMap::new(),
            connections: 0,
            keys: Vec::new(),
        }
    }

    /// The approximate size in a log, in bytes: the texts, and a constant for the rest.
    #[must_use]
    pub(crate) fn weight(&self) -> u64 {
        const FIXED: usize = 64;
        const TERM: usize = 17;
        let tenures = [&self.tenure, &self.from].into_iter().flatten();
        let tenures = tenures.map(|tenure| tenure.member().as_str().len() + TERM);
        let names = [
            self.reason.as_deref(),
            self.lease.as_ref().map(LeaseName::as_str),
            self.to.as_ref().map(MemberId::as_str),
            self.session.as_ref().map(SessionId::as_str),
            self.connection.as_ref().map(ConnectionId::as_str),
            self.alias.as_ref().map(Alias::as_str),
            self.pass.as_deref(),
        ];
        let names = names.into_iter().flatten().map(str::len);
        let listed = self.counts.keys().chain(&self.keys).map(|text| text.len() + 4);
        (FIXED + tenures.chain(names).chain(listed).sum::<usize>()) as u64
    }

    /// The member of its tenure.
    #[must_use]
    pub fn member(&self) -> Option<&MemberId> {
        self.tenure.as_ref().map(TenureId::member)
    }
}

/// A query for events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventQuery {
    /// Only events after this one; `None` reads from the oldest kept event.
    pub after: Option<EventId>,
    /// Only the newest events before this one, for reading backwards. Not together with `after`.
    pub before: Option<EventId>,
    /// The maximum number of events, 1 to 1,000.
    pub limit: u32,
    /// Only these types; empty means all.
    pub kinds: Vec<EventKind>,
}

impl Limits for EventQuery {
    fn check(&self, _: Duration) -> Result<()> {
        EventQuery::check(self)
    }
}

impl EventQuery {
    /// Rejects an invalid query.
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000, and for `after` together with `before`.
    pub fn check(&self) -> Result<()> {
        if let (Some(after), Some(before)) = (self.after, self.before) {
            return Err(Error::invalid(format!(
                "events after {after} and before {before} are asked for; name one of the two: `after` reads forwards, `before` \
                 backwards"
            )));
        }
        check_limit(self.limit).map(drop)
    }
}

/// A page of events, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventPage {
    /// The events.
    pub events: Vec<Event>,
    /// The cursor: the last event read, even if its type was filtered out. When reading backwards, the oldest one, or
    /// `before` itself if none is older.
    pub last: EventId,
    /// Events after the requested one are missing: trimmed, or lost with the store's data. Never set when reading
    /// backwards.
    pub missed: bool,
}

/// The maximum size of the keys listed in one event, in bytes, each with a separator.
const MAX_LISTED: usize = 4096;

/// Splits the keys of a batch (`registry/key`, in order) among its events. If the keys are listed, each event has at
/// most 4 KiB of them. Returns at least one share, also without keys.
#[must_use]
pub fn shares_of(keys: &[String], listed: bool) -> Vec<&[String]> {
    let (mut shares, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (n, key) in keys.iter().enumerate() {
        let length = key.len() + 1;
        if listed && n > begin && bytes + length > MAX_LISTED {
            shares.push(&keys[begin..n]);
            (begin, bytes) = (n, 0);
        }
        bytes += length;
    }
    shares.push(&keys[begin..]);
    shares
}

/// The number of keys (`registry/key`) per registry.
#[must_use]
pub fn count_by_registry(keys: &[String]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (registry, _) in keys.iter().filter_map(|key| key.split_once('/')) {
        match counts.get_mut(registry) {
            Some(count) => *count += 1,
            None => drop(counts.insert(registry.to_owned(), 1)),
        }
    }
    counts
}

/// [`EventLog::wait_for_events`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitForEvents {
    /// The last event already read.
    pub after: EventId,
    /// The maximum wait.
    pub patience: Duration,
}

/// The event log of a group.
#[async_trait]
pub trait EventLog: Backend {
    /// Reads the events after a point, or the newest before one, oldest first. Sets `missed` if events are missing,
    /// also if the requested event is newer than every event there is. O(limit).
    ///
    /// # Errors
    /// `Invalid` as in [`EventQuery::check`], `Unavailable`.
    async fn events(&self, group: &Group, query: &EventQuery) -> Result<EventPage> {
        send(self, Some(group), query.clone(), Call::default()).await
    }

    /// Waits until there may be an event after `after`, at most `patience`. Wake-ups may coalesce or be spurious; no
    /// event is skipped, because the reader continues from its own cursor.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn wait_for_events(&self, group: &Group, after: EventId, patience: Duration) -> Result<()> {
        send(self, Some(group), WaitForEvents { after, patience }, Call::default()).await
    }
}

impl<S: Backend> EventLog for S {}
