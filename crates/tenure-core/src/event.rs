//! Events: what happened and why, written in the same step as the change.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::call::{Limits, ask};
use crate::error::{Error, Result};
use crate::id::{Alias, ConnectionId, Group, LeaseName, MemberId, SessionId, TenureId};
use crate::lease::Token;
use crate::session::Epoch;
use crate::store::{Backend, Call, check_limit};
use crate::time::StoreTime;

/// The number of an event in its group. Like a term it is above the one before and not below the store's time in µs, so it
/// rises across loss of data and failovers, and none is given out twice. Numbers have holes: only a store can tell whether an
/// event is missing ([`EventPage::missed`]).
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
        /// What kind of thing happened.
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
    /// A tenure ended by its member.
    Left = "left",
    /// A tenure ended because its end time passed.
    Lapsed = "lapsed",
    /// A tenure ended because the member joined again.
    Superseded = "superseded",
    /// A tenure ended by an operator.
    Expelled = "expelled",
    /// Holdings of an ended tenure were removed: one event a batch, with counts.
    Evicted = "evicted",
    /// A lease was given out.
    LeaseGranted = "lease_granted",
    /// A lease was given up by its holder, or removed from an ended tenure by the janitor.
    LeaseReleased = "lease_released",
    /// A lease was given out that an ended tenure still had.
    LeaseTakenOver = "lease_taken_over",
    /// A target was added, changed or removed.
    TargetChanged = "target_changed",
    /// A session was made.
    SessionCreated = "session_created",
    /// The last connection of a session went.
    SessionDisconnected = "session_disconnected",
    /// A disconnected session has a connection again.
    SessionResumed = "session_resumed",
    /// An orphan was deleted. Its session and epoch together are the key for side effects that must not happen twice.
    SessionReaped = "session_reaped",
    /// A session was deleted on request.
    SessionDeleted = "session_deleted",
    /// Sessions and their index had drifted apart, and were repaired.
    SessionsRepaired = "sessions_repaired",
    /// An operator lets a provider of a roster take work again.
    ProviderActivated = "provider_activated",
    /// An operator forbids a provider of a roster to take work.
    ProviderDeactivated = "provider_deactivated",
    /// Removal of what the lapsed held is paused.
    SweepBraked = "sweep_braked",
    /// Removal goes on.
    SweepUnbraked = "sweep_unbraked",
    /// The store had a gap, or lost data: everyone gets one full ttl.
    GroupUnsettled = "group_unsettled",
    /// The grace after the last gap is over.
    GroupSettled = "group_settled",
}

impl EventKind {
    /// What an operator decided about a provider.
    #[must_use]
    pub fn of_activation(is_active: bool) -> Self {
        match is_active {
            true => Self::ProviderActivated,
            false => Self::ProviderDeactivated,
        }
    }

    /// From the name on the wire.
    ///
    /// # Errors
    /// `Invalid`, listing the kinds there are.
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|kind| kind.as_str() == name)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|kind| kind.as_str()).collect();
                let shown: String = name.chars().take(64).collect();
                Error::invalid(format!(
                    "{shown:?} is not a type of event; there are {}",
                    known.join(", ")
                ))
            })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Something that happened in a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// Its number: it rises in its group, with holes.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub id: EventId,
    /// When, by the store's clock.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: StoreTime,
    /// `joined`, `left`, `lapsed`, `superseded`, `expelled`, `evicted`, `lease_granted`, `lease_released`,
    /// `lease_taken_over`, `target_changed`, `session_created`, `session_disconnected`, `session_resumed`,
    /// `session_reaped`, `session_deleted`, `sessions_repaired`, `provider_activated`, `provider_deactivated`,
    /// `sweep_braked`, `sweep_unbraked`, `group_unsettled`, `group_settled`; more may come.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub kind: EventKind,
    /// Whose tenure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
    /// Why, in one word or phrase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Which lease, or which target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub lease: Option<LeaseName>,
    /// The fencing token of the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub token: Option<Token>,
    /// With `lease_taken_over`: the ended tenure that still had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub from: Option<TenureId>,
    /// With `lease_released`: the member it is kept for. With `provider_activated` and `provider_deactivated`: the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub to: Option<MemberId>,
    /// Which session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub session: Option<SessionId>,
    /// Which connection of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub connection: Option<ConnectionId>,
    /// The session's other name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub alias: Option<Alias>,
    /// The session's last attach. With the session it is a key for side effects that must not happen twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub epoch: Option<Epoch>,
    /// Which sweep pass did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// How many, by what (a registry for `evicted`; a kind of drift for `sessions_repaired`; `lapsed`, `present` for the brake; `silent_ms` for a gap).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// How many connections of sessions were removed, beside the counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub connections: u64,
    /// The keys removed, as `registry/key`, when the store keeps them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

impl Event {
    /// An event with nothing but its kind.
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

    /// About how many bytes it takes in a log: its texts, and a fixed part for the rest.
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

    /// The member it is about.
    #[must_use]
    pub fn member(&self) -> Option<&MemberId> {
        self.tenure.as_ref().map(TenureId::member)
    }
}

/// Which events to read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventQuery {
    /// Only events after this one; `None` reads from the oldest that is kept.
    pub after: Option<EventId>,
    /// Only events before this one: the newest of them, for reading backwards. Not together with `after`.
    pub before: Option<EventId>,
    /// At most this many, 1 to 1,000.
    pub limit: u32,
    /// Only these kinds; all when empty.
    pub kinds: Vec<EventKind>,
}

impl Limits for EventQuery {
    fn check(&self, _: Duration) -> Result<()> {
        EventQuery::check(self)
    }
}

impl EventQuery {
    /// Refuses what no store can answer.
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
    /// Where to read on: the last event looked at (also when its kind was not asked for). Backwards that is the oldest one,
    /// or `before` itself when none is older.
    pub last: EventId,
    /// Events after the asked one are gone: trimmed, or lost with the store's data. The reader has missed something. Never
    /// set on a page that was read backwards.
    pub missed: bool,
}

/// The most bytes of keys that one event lists, each with a separator.
const MAX_LISTED: usize = 4096;

/// Cuts the keys of a batch, as `registry/key` and in order, into the shares of its events: when they are listed, each
/// share has at most 4 KiB of them. At least one share, also without keys.
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

/// How many of these keys, as `registry/key`, belong to each registry.
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
    /// After which event.
    pub after: EventId,
    /// For how long at most.
    pub patience: Duration,
}

/// What happened.
#[async_trait]
pub trait EventLog: Backend {
    /// Reads events after a point, or the newest before one, oldest first. A missing stretch is announced (`missed`), never
    /// silent: also when the asked event is newer than all there are. O(limit).
    ///
    /// # Errors
    /// `Invalid` as in [`EventQuery::check`], `Unavailable`.
    async fn events(&self, group: &Group, query: &EventQuery) -> Result<EventPage> {
        ask(self, Some(group), query.clone(), Call::default()).await
    }

    /// Waits until there may be an event after `after`, or until `patience` is over. Wake-ups may coalesce and may be
    /// for nothing; events are never skipped, since the reader reads on from its own point.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn wait_for_events(&self, group: &Group, after: EventId, patience: Duration) -> Result<()> {
        ask(self, Some(group), WaitForEvents { after, patience }, Call::default()).await
    }
}

impl<S: Backend> EventLog for S {}
