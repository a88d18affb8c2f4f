//! Sessions: the state behind a client's connections, which outlives the last connection for a grace period.
//!
//! A connection is a holding of the front-end instance that serves it, so the janitor releases the connections of a
//! dead instance like its other holdings. A session with connections is *active*. When its last connection ends, it is
//! *disconnected* and can be resumed for its grace period. After that it is an *orphan*: it cannot be resumed, and the
//! reaper deletes it. The grace is fixed at the disconnect. After a gap of the store, every disconnected session gets
//! its full grace again, as every tenure gets its full ttl.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{Limits, send};
use crate::error::{Error, Result};
use crate::id::{Alias, ConnectionId, Group, SessionId, TenureId, Term};
use crate::membership::Revision;
use crate::store::{Backend, Call, Page, PageRequest, check_limit};
use crate::time::StoreTime;

/// The maximum number of attaches or detaches in one call.
pub const MAX_ATTACH: usize = 10_000;
/// The maximum number of connections of one session.
pub const MAX_CONNECTIONS: usize = 200;
/// The maximum number of data fields of a session.
pub const MAX_FIELDS: usize = 64;
/// The maximum length of a field name, in bytes.
pub const MAX_FIELD: usize = 200;
/// The maximum length of a field value, in bytes of JSON.
pub const MAX_VALUE: usize = 4_096;
/// The default grace of a disconnected session.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(60);
/// The shortest grace.
pub const MIN_GRACE: Duration = Duration::from_secs(1);
/// The longest grace.
pub const MAX_GRACE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The number of a session's attach: a strictly rising integer per group, issued like a fencing token, so that a
/// session created again under an old name never reuses a number. Session id and epoch together identify one stretch of
/// its life, for side effects that must happen only once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct Epoch(u64);

impl Epoch {
    /// Checks and takes an epoch.
    ///
    /// # Errors
    /// `Invalid` when it is 0 or above 2^53 − 1.
    pub fn new(epoch: u64) -> Result<Self> {
        if epoch == 0 || epoch > Term::MAX {
            return Err(Error::invalid(format!("the epoch {epoch} is outside 1..=2^53-1")));
        }
        Ok(Self(epoch))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl TryFrom<u64> for Epoch {
    type Error = Error;
    fn try_from(epoch: u64) -> Result<Self> {
        Self::new(epoch)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The user data of a session, by field. As a patch, each given field replaces the old one and `null` removes it (RFC
/// 7396, top level only).
pub type Data = BTreeMap<String, Value>;

/// The settings of sessions. All processes that share a store must use the same values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionSettings {
    /// The default grace.
    pub grace: Duration,
    /// The maximum age of a connection since its last attach. The next reconcile drops an older one: the last resort
    /// against a living front end that forgets to detach. `None`: no limit.
    pub max_age: Option<Duration>,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            grace: DEFAULT_GRACE,
            max_age: None,
        }
    }
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// It has a connection of a living tenure.
    Active,
    /// It has no connection and can be resumed.
    Disconnected,
    /// Its grace is over; the reaper will delete it.
    Orphan,
}

impl SessionState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Active, Self::Disconnected, Self::Orphan];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disconnected => "disconnected",
            Self::Orphan => "orphan",
        }
    }

    /// Parses the name on the wire.
    ///
    /// # Errors
    /// `Invalid`, with the valid states.
    pub fn parse(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|state| state.as_str() == name);
        known.ok_or_else(|| {
            let shown: String = name.chars().take(64).collect();
            Error::invalid(format!(
                "{shown:?} is not a session state; use active, disconnected or orphan"
            ))
        })
    }
}

/// A session and its current state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Session {
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// `active`, `disconnected` or `orphan`. Does not depend on the janitor: connections of dead tenures do not count.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub state: SessionState,
    /// The number of connections under living tenures.
    pub connections: u64,
    /// Its alias, unique in the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub alias: Option<Alias>,
    /// The user data, by field.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub data: Data,
    /// The number of its last attach, which always rises. With the session id it is an idempotency key for side
    /// effects.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub epoch: Epoch,
    /// When it was created.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created_at: StoreTime,
    /// When its data last changed.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub updated_at: StoreTime,
    /// Its own grace, if it has one.
    #[serde(
        rename = "grace_ms",
        with = "crate::millis::down",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub grace: Option<Duration>,
    /// When its last connection ended. Absent while it has connections, also if all of them belong to dead tenures and
    /// the janitor has not released them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub disconnected_at: Option<StoreTime>,
    /// The remaining time to resume it; zero for an orphan. Absent whenever `disconnected_at` is.
    #[serde(
        rename = "reap_in_ms",
        with = "crate::millis::down",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub reap_in: Option<Duration>,
}

/// A connection to attach, and the changes to its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Attach {
    /// The session, created if it does not exist.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// The connection. If it is attached to another session, it moves.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub connection: ConnectionId,
    /// The new alias; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub alias: Option<Alias>,
    /// The data changes.
    #[serde(default, skip_serializing_if = "Data::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub data: Data,
    /// The new grace of the session, at least 1,000; unchanged if absent. A fraction of a millisecond is rounded up.
    #[serde(
        rename = "grace_ms",
        with = "crate::millis::up",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub grace: Option<Duration>,
    /// Fail unless the session exists and is not an orphan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resume_only: bool,
}

impl Attach {
    /// An attach without changes to the session.
    #[must_use]
    pub fn new(session: SessionId, connection: ConnectionId) -> Self {
        Self {
            session,
            connection,
            alias: None,
            data: Data::new(),
            grace: None,
            resume_only: false,
        }
    }
}

/// The effect of an attach on the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It was created.
    Created,
    /// It was active.
    Attached,
    /// It was disconnected, and is active again.
    Resumed,
}

/// A limit of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// [`MAX_CONNECTIONS`].
    Connections,
    /// [`MAX_FIELDS`].
    Fields,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connections => write!(f, "{MAX_CONNECTIONS} connections"),
            Self::Fields => write!(f, "{MAX_FIELDS} fields of data"),
        }
    }
}

/// The result of an attach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachOutcome {
    /// The connection is attached.
    Attached {
        /// The effect on the session.
        how: How,
        /// The session now, with the epoch of this attach.
        session: Box<Session>,
    },
    /// The alias belongs to another session. Nothing changed.
    AliasTaken {
        /// That session.
        by: SessionId,
    },
    /// There is no session to resume. Nothing changed, except that an orphan was reaped.
    Gone,
    /// The session is at its limit. Nothing changed.
    Full {
        /// The limit.
        of: Limit,
    },
}

/// The reply to an attach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// One outcome per attach, in request order.
    pub outcomes: Vec<AttachOutcome>,
    /// The revision of the tenure's holdings.
    pub revision: Revision,
    /// The revision before this call. If it is lower than the one the client received last, the store lost its tail.
    pub before: Revision,
}

/// A connection to detach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Detach {
    /// The session.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// The connection.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub connection: ConnectionId,
    /// Detach only if it was not attached again after this epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub epoch: Option<Epoch>,
}

/// The result of a detach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetachOutcome {
    /// The connection is detached.
    Detached {
        /// The grace that has begun, if it was the last connection.
        reap_in: Option<Duration>,
    },
    /// The connection does not exist. Nothing changed.
    NotAttached,
    /// It was attached again after the given epoch. Nothing changed.
    Stale {
        /// The epoch of the later attach.
        epoch: Epoch,
    },
    /// Another tenure holds it. Nothing changed.
    NotHolder {
        /// The holder.
        by: TenureId,
    },
}

/// The result of a data change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchOutcome {
    /// The data is changed.
    Patched(Box<Session>),
    /// There is no such session, or it is an orphan.
    NotFound,
    /// The session is at its limit. Nothing changed.
    Full {
        /// The limit.
        of: Limit,
    },
}

/// The result of deleting a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It is deleted, with its data and alias.
    Deleted {
        /// The epoch of its last attach.
        epoch: Epoch,
    },
    /// It has connections, including those of dead tenures that are not released yet. Nothing changed.
    Active {
        /// The number of connections.
        connections: u64,
    },
    /// There is no such session.
    NotFound,
}

/// The number of sessions by state, counted by index. Sessions whose connections all belong to dead tenures count as
/// active until the janitor releases them. In the grace after a gap, sessions past their original grace count as
/// orphans until the reaper checks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionStats {
    /// Sessions with connections.
    pub active: u64,
    /// Disconnected and resumable.
    pub disconnected: u64,
    /// Disconnected for longer than their grace.
    pub orphans: u64,
}

/// A session whose grace is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Orphan {
    /// The session.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// The epoch of its last attach.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub epoch: Epoch,
    /// When its last connection ended.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub disconnected_at: StoreTime,
    /// The time since its grace ended.
    #[serde(rename = "overdue_ms", with = "crate::millis::down")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub overdue: Duration,
}

/// Orphans, by the end of their grace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Orphans {
    /// The orphans.
    pub orphans: Vec<Orphan>,
    /// Index entries without a disconnected session; the `reconcile` of a sweep repairs them.
    pub skipped: u64,
}

/// Rejects an invalid list of attaches before it is sent.
///
/// # Errors
/// `Invalid`, with the value and the rule.
pub fn check_attaches(attaches: &[Attach]) -> Result<()> {
    check_count(attaches.len(), "attaches")?;
    attaches.iter().try_for_each(|attach| {
        check_data(&attach.data)?;
        attach.grace.map_or(Ok(()), |grace| check_grace(grace).map(|_| ()))
    })
}

/// Rejects too many items.
///
/// # Errors
/// `Invalid`, with the number.
pub fn check_count(count: usize, what: &str) -> Result<()> {
    if count > MAX_ATTACH {
        return Err(Error::invalid(format!(
            "{count} {what} in one call; at most {MAX_ATTACH}"
        )));
    }
    Ok(())
}

/// Rejects data that is too large. Only the store knows the number of fields after a change.
///
/// # Errors
/// `Invalid`, with the field and the rule.
pub fn check_data(data: &Data) -> Result<()> {
    if data.len() > MAX_FIELDS {
        return Err(Error::invalid(format!(
            "{} fields of session data; at most {MAX_FIELDS}",
            data.len()
        )));
    }
    for (name, value) in data {
        let shown: String = name.chars().take(64).collect();
        if name.is_empty() || name.len() > MAX_FIELD || name.chars().any(char::is_control) {
            return Err(Error::invalid(format!(
                "invalid field name {shown:?} in session data; use 1 to {MAX_FIELD} bytes without control characters"
            )));
        }
        let length = value.to_string().len();
        if length > MAX_VALUE {
            return Err(Error::invalid(format!(
                "the field {shown:?} of session data has {length} bytes of JSON; at most {MAX_VALUE}"
            )));
        }
    }
    Ok(())
}

/// Checks and takes a grace.
///
/// # Errors
/// `Invalid` below [`MIN_GRACE`] or above [`MAX_GRACE`].
pub fn check_grace(grace: Duration) -> Result<Duration> {
    if !(MIN_GRACE..=MAX_GRACE).contains(&grace) {
        return Err(Error::invalid(format!(
            "the grace of {} ms is out of range: use 1000 ms to 30 days",
            grace.as_millis()
        )));
    }
    Ok(grace)
}

/// [`SessionStore::attach`] as a value; also the body of `POST …/sessions-attach`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Attaches {
    /// The attaching tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// At most 10,000. An empty list only checks the tenure.
    #[serde(rename = "sessions")]
    pub attaches: Vec<Attach>,
}

impl Limits for Attaches {
    fn check(&self, _: Duration) -> Result<()> {
        check_attaches(&self.attaches)
    }
    fn items(&self) -> usize {
        self.attaches.len()
    }
    fn split_off(&mut self, at: usize) -> Option<Self> {
        let attaches = self.attaches.split_off(at);
        Some(Self {
            attaches,
            ..self.clone()
        })
    }
    fn add(all: Self::Reply, next: Self::Reply) -> Self::Reply {
        Attached {
            outcomes: [all.outcomes, next.outcomes].concat(),
            before: all.before,
            ..next
        }
    }
}

/// [`SessionStore::detach`] as a value; also the body of `POST …/sessions-detach`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Detaches {
    /// The tenure that holds the connections.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// At most 10,000.
    #[serde(rename = "connections")]
    pub detaches: Vec<Detach>,
}

impl Limits for Detaches {
    fn check(&self, _: Duration) -> Result<()> {
        check_count(self.detaches.len(), "detaches")
    }
    fn items(&self) -> usize {
        self.detaches.len()
    }
    fn split_off(&mut self, at: usize) -> Option<Self> {
        let detaches = self.detaches.split_off(at);
        Some(Self {
            detaches,
            ..self.clone()
        })
    }
    fn add(all: Self::Reply, next: Self::Reply) -> Self::Reply {
        [all, next].concat()
    }
}

/// [`SessionStore::patch_session`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchSession {
    /// The session.
    pub session: SessionId,
    /// Only while this tenure is alive.
    pub tenure: Option<TenureId>,
    /// The data changes.
    pub data: Data,
}

impl Limits for PatchSession {
    fn check(&self, _: Duration) -> Result<()> {
        check_data(&self.data)
    }
}

/// [`SessionStore::delete_session`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteSession {
    /// The session.
    pub session: SessionId,
}

/// [`SessionStore::session`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOf {
    /// The session.
    pub session: SessionId,
}

/// [`SessionStore::session_by_alias`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionByAlias {
    /// The alias.
    pub alias: Alias,
}

/// [`SessionStore::sessions`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sessions {
    /// Only sessions in this state.
    pub state: Option<SessionState>,
    /// Only sessions without connections for at least this long; zero: all.
    pub older_than: Duration,
    /// The page.
    pub page: PageRequest,
}

impl Sessions {
    /// Whether they are listed by the end of their grace, from the index of disconnected sessions.
    #[must_use]
    pub fn is_by_grace(&self) -> bool {
        match self.state {
            None => !self.older_than.is_zero(),
            Some(state) => state != SessionState::Active,
        }
    }

    /// Whether a session is one of these now.
    #[must_use]
    pub fn has(&self, session: &Session, now: StoreTime) -> bool {
        let is_older = || {
            session
                .disconnected_at
                .is_some_and(|at| now.since(at) >= self.older_than)
        };
        self.state.is_none_or(|state| session.state == state) && (self.older_than.is_zero() || is_older())
    }
}

impl Limits for Sessions {
    fn check(&self, _: Duration) -> Result<()> {
        if self.state == Some(SessionState::Active) && !self.older_than.is_zero() {
            return Err(Error::invalid(
                "active sessions have connections: ask for an age with the state disconnected or orphan, or with none",
            ));
        }
        self.page.check()
    }
}

/// [`SessionStore::orphans`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOrphans {
    /// The minimum time since the end of their grace.
    pub overdue: Duration,
    /// The maximum number of orphans.
    pub limit: u32,
}

impl Limits for ListOrphans {
    fn check(&self, _: Duration) -> Result<()> {
        check_limit(self.limit).map(drop)
    }
}

/// [`SessionStore::session_stats`] as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountSessions;

/// The sessions of a group, with their connections and data.
#[async_trait]
pub trait SessionStore: Backend {
    /// Attaches connections for a living tenure: creates the session, joins it, or resumes it. Each attach has its own
    /// outcome, in request order. An orphan of this name or with the alias is reaped first, so the result does not
    /// depend on the reaper. At most [`MAX_ATTACH`]; applied in atomic parts of about 200. A retry only raises the
    /// epoch, so a lost reply is harmless. O(attaches · their data).
    ///
    /// # Errors
    /// `Ended` if the tenure is not alive: nothing changed in that part (earlier parts may have been applied; the
    /// janitor releases them). `TooLate`, `Unavailable`, `Invalid` for an exceeded limit.
    async fn attach(&self, group: &Group, tenure: &TenureId, attaches: &[Attach], call: Call) -> Result<Attached> {
        let (tenure, attaches) = (tenure.clone(), attaches.to_vec());
        send(self, Some(group), Attaches { tenure, attaches }, call).await
    }

    /// Detaches connections, each by its exact tenure. The last connection of a session starts its grace. At most
    /// [`MAX_ATTACH`]; applied in atomic parts of about 200. O(detaches).
    ///
    /// # Errors
    /// As [`SessionStore::attach`].
    async fn detach(
        &self,
        group: &Group,
        tenure: &TenureId,
        detaches: &[Detach],
        call: Call,
    ) -> Result<Vec<DetachOutcome>> {
        let (tenure, detaches) = (tenure.clone(), detaches.to_vec());
        send(self, Some(group), Detaches { tenure, detaches }, call).await
    }

    /// Changes the data of a session, optionally only under a living tenure. O(fields).
    ///
    /// # Errors
    /// `Ended` if the given tenure is not alive, `Invalid` for an exceeded limit, `TooLate`, `Unavailable`. A retry is
    /// safe.
    async fn patch_session(
        &self,
        group: &Group,
        session: &SessionId,
        tenure: Option<&TenureId>,
        data: &Data,
        call: Call,
    ) -> Result<PatchOutcome> {
        let (session, tenure, data) = (session.clone(), tenure.cloned(), data.clone());
        send(self, Some(group), PatchSession { session, tenure, data }, call).await
    }

    /// Deletes a session without connections. O(fields).
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`. A retry is safe.
    async fn delete_session(&self, group: &Group, session: &SessionId, call: Call) -> Result<DeleteOutcome> {
        let session = session.clone();
        send(self, Some(group), DeleteSession { session }, call).await
    }

    /// Reads a session. O(its connections and fields).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn session(&self, group: &Group, session: &SessionId) -> Result<Option<Session>> {
        let session = session.clone();
        send(self, Some(group), SessionOf { session }, Call::default()).await
    }

    /// Reads a session by its alias. O(its connections and fields).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn session_by_alias(&self, group: &Group, alias: &Alias) -> Result<Option<Session>> {
        let alias = alias.clone();
        send(self, Some(group), SessionByAlias { alias }, Call::default()).await
    }

    /// Lists sessions, of one state or all. Disconnected sessions and orphans are listed by the end of their grace,
    /// from the index of disconnected sessions. A session whose connections all belong to dead tenures is in neither
    /// list until the janitor releases them. A session that is in the state throughout appears at least once. O(page +
    /// connections and fields of it).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, `Unavailable`.
    async fn sessions(&self, group: &Group, state: Option<SessionState>, page: &PageRequest) -> Result<Page<Session>> {
        self.sessions_older_than(group, state, Duration::ZERO, page).await
    }

    /// Like [`SessionStore::sessions`], only those that have had no connection for at least this long, by the end of
    /// their grace. O(disconnected sessions) for all pages.
    ///
    /// # Errors
    /// Also `Invalid` for the state active.
    async fn sessions_older_than(
        &self,
        group: &Group,
        state: Option<SessionState>,
        older_than: Duration,
        page: &PageRequest,
    ) -> Result<Page<Session>> {
        let page = page.clone();
        let request = Sessions {
            state,
            older_than,
            page,
        };
        send(self, Some(group), request, Call::default()).await
    }

    /// Lists at most `limit` (1 to 1,000) orphans whose grace ended at least `overdue` ago, by index: the cost depends
    /// on the number of listed orphans only. O(log disconnected + limit).
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000, `Unavailable`.
    async fn orphans(&self, group: &Group, overdue: Duration, limit: u32) -> Result<Orphans> {
        send(self, Some(group), ListOrphans { overdue, limit }, Call::default()).await
    }

    /// Counts sessions. O(log disconnected).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn session_stats(&self, group: &Group) -> Result<SessionStats> {
        send(self, Some(group), CountSessions, Call::default()).await
    }
}

impl<S: Backend> SessionStore for S {}
