//! Sessions: what a connection belongs to, and what stays for a while when the last connection is gone.
//!
//! A connection is a holding of the front-end instance that serves it, so the janitor releases the connections of a dead
//! instance like everything else it held. A session with connections is *active*. When its last connection goes it is
//! *disconnected* and has its grace period to be resumed in; after that it is an *orphan*, which nothing resumes and the
//! reaper deletes. The grace is fixed at the moment of disconnecting, and after a gap of the store everyone gets one full
//! grace anew, for the same reason that every tenure gets one full ttl.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{Limits, ask};
use crate::error::{Error, Result};
use crate::id::{Alias, ConnectionId, Group, SessionId, TenureId, Term};
use crate::membership::Revision;
use crate::store::{Backend, Call, Page, PageRequest, check_limit};
use crate::time::StoreTime;

/// The most attaches or detaches in one call.
pub const MAX_ATTACH: usize = 10_000;
/// The most connections of one session.
pub const MAX_CONNECTIONS: usize = 200;
/// The most fields of a session's data.
pub const MAX_FIELDS: usize = 64;
/// The longest name of a field, in bytes.
pub const MAX_FIELD: usize = 200;
/// The longest value of a field, in bytes of JSON.
pub const MAX_VALUE: usize = 4_096;
/// How long a disconnected session can be resumed, when nobody says otherwise.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(60);
/// The shortest grace.
pub const MIN_GRACE: Duration = Duration::from_secs(1);
/// The longest grace.
pub const MAX_GRACE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Which attach of a session it was: a strictly rising integer per group, made like a fencing token, so a session that is
/// made anew under its old name never sees an old number again. Together with the session's id it names one stretch of
/// its life, for side effects that must not happen twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct Epoch(u64);

impl Epoch {
    /// Takes an epoch from its number.
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

/// What users keep with a session, field by field. As a change to one that is there: each field given replaces the old
/// one, and `null` removes it (RFC 7396, at the top level only).
pub type Data = BTreeMap<String, Value>;

/// What is configured about sessions. All processes that share a store must agree on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionSettings {
    /// The grace of sessions that have none of their own.
    pub grace: Duration,
    /// A connection that was attached longer ago than this, and not again since, is dropped by the next reconcile: the last
    /// resort against a front-end that lives on and forgets to detach. `None`: never.
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

/// How a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// It has a connection of a living tenure.
    Active,
    /// It has none, and can be resumed.
    Disconnected,
    /// Its grace is over; the reaper is about to delete it.
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

    /// From the name on the wire.
    ///
    /// # Errors
    /// `Invalid`, listing the states there are.
    pub fn parse(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|state| state.as_str() == name);
        known.ok_or_else(|| {
            let shown: String = name.chars().take(64).collect();
            Error::invalid(format!(
                "{shown:?} is not a state of a session; there are active, disconnected and orphan"
            ))
        })
    }
}

/// A session as the store sees it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Session {
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// `active`, `disconnected` or `orphan`. Never waits for a janitor: connections of the dead do not make it active.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub state: SessionState,
    /// How many connections it has under living tenures.
    pub connections: u64,
    /// Its other name, unique in the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub alias: Option<Alias>,
    /// What users keep with it, field by field.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub data: Data,
    /// Which attach was its last: a number that rises for ever. With the session's id it is a key for side effects that
    /// must not happen twice.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub epoch: Epoch,
    /// When it was made.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created_at: StoreTime,
    /// When its data last changed.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub updated_at: StoreTime,
    /// Its own grace, when it has one.
    #[serde(
        rename = "grace_ms",
        with = "crate::millis::down",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub grace: Option<Duration>,
    /// When its last connection went. Absent while it has any; also while they are all of the dead and the janitor has not
    /// come yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub disconnected_at: Option<StoreTime>,
    /// How long it can still be resumed; zero for an orphan. Absent as long as `disconnected_at` is.
    #[serde(
        rename = "reap_in_ms",
        with = "crate::millis::down",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub reap_in: Option<Duration>,
}

/// One connection to attach, and what to do about its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Attach {
    /// The session; made when there is none.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// The connection. One that is attached elsewhere moves here.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub connection: ConnectionId,
    /// The session's other name from now on; left as it is when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub alias: Option<Alias>,
    /// A change to its data.
    #[serde(default, skip_serializing_if = "Data::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub data: Data,
    /// Its own grace from now on, at least 1,000; left as it is when not given. One that is no whole number of milliseconds
    /// travels as the next longer one that is.
    #[serde(
        rename = "grace_ms",
        with = "crate::millis::up",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub grace: Option<Duration>,
    /// Do not make it: there has to be a session to come back to, and not only an orphan.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resume_only: bool,
}

impl Attach {
    /// A plain one.
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

/// What an attach did to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It is new.
    Created,
    /// It had connections, and has this one now as well (or had it already).
    Attached,
    /// It was disconnected, and is active again.
    Resumed,
}

/// Which limit was met.
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

/// What asking to attach a connection came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachOutcome {
    /// It is attached.
    Attached {
        /// What became of the session.
        how: How,
        /// The session now; its epoch is that of this attach.
        session: Box<Session>,
    },
    /// The alias belongs to another session. Nothing changed.
    AliasTaken {
        /// Which.
        by: SessionId,
    },
    /// There is nothing to resume. Nothing changed, but that an orphan was reaped.
    Gone,
    /// The session cannot take more. Nothing changed.
    Full {
        /// More than this.
        of: Limit,
    },
}

/// The answers to a request to attach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// One each, in the order asked.
    pub outcomes: Vec<AttachOutcome>,
    /// What the tenure holds now goes by this number.
    pub revision: Revision,
    /// What it held before this call went by this number. Lower than what the client was told last: the store lost the end
    /// of its data.
    pub before: Revision,
}

/// One connection to detach.
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
    /// Only if it was not attached again since this epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub epoch: Option<Epoch>,
}

/// What asking to detach a connection came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetachOutcome {
    /// It is gone.
    Detached {
        /// It was the last: the grace has begun, and is this long.
        reap_in: Option<Duration>,
    },
    /// There is no such connection. Nothing changed.
    NotAttached,
    /// It was attached again since. Nothing changed.
    Stale {
        /// Then.
        epoch: Epoch,
    },
    /// It is held under another tenure. Nothing changed.
    NotHolder {
        /// Which.
        by: TenureId,
    },
}

/// What changing a session's data came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchOutcome {
    /// It is changed.
    Patched(Box<Session>),
    /// There is no such session, or only an orphan.
    NotFound,
    /// It cannot take more. Nothing changed.
    Full {
        /// More than this.
        of: Limit,
    },
}

/// What deleting a session came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It is gone, with its data and alias.
    Deleted {
        /// Its last attach.
        epoch: Epoch,
    },
    /// It has connections, those of the dead that the janitor has not released yet included. Nothing changed.
    Active {
        /// How many.
        connections: u64,
    },
    /// There is no such session.
    NotFound,
}

/// How many sessions there are. By index: sessions whose connections are all of the dead count as active until the janitor
/// comes, and within a grace after a gap those that would be over count as orphans until the reaper has looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionStats {
    /// With connections.
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
    /// Which.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub session: SessionId,
    /// Its last attach.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub epoch: Epoch,
    /// When its last connection went.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub disconnected_at: StoreTime,
    /// For how long its grace has been over.
    #[serde(rename = "overdue_ms", with = "crate::millis::down")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub overdue: Duration,
}

/// Orphans, those first whose grace ended first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Orphans {
    /// They.
    pub orphans: Vec<Orphan>,
    /// Entries of the index that belong to no disconnected session; `reconcile` of a sweep repairs them.
    pub skipped: u64,
}

/// Refuses what breaks a limit, before anything is sent.
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

/// Refuses too many.
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

/// Refuses data that is too large. How many fields a session has after a change, only the store can tell.
///
/// # Errors
/// `Invalid`, naming the field and the rule.
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
                "{shown:?} cannot name a field of session data; use 1 to {MAX_FIELD} bytes without control characters"
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

/// Takes a grace within the limits.
///
/// # Errors
/// `Invalid` below [`MIN_GRACE`] or above [`MAX_GRACE`].
pub fn check_grace(grace: Duration) -> Result<Duration> {
    if !(MIN_GRACE..=MAX_GRACE).contains(&grace) {
        return Err(Error::invalid(format!(
            "the grace of {} ms is outside 1000 ms to 30 days; a session needs at least a second to be resumed in",
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
    /// Under which tenure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub tenure: TenureId,
    /// At most 10,000. With none, the tenure alone is checked.
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
    /// The tenure that they are held under.
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
    /// Which.
    pub session: SessionId,
    /// Only while this one is alive.
    pub tenure: Option<TenureId>,
    /// What changes.
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
    /// Which.
    pub session: SessionId,
}

/// [`SessionStore::session`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOf {
    /// Which.
    pub session: SessionId,
}

/// [`SessionStore::session_by_alias`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionByAlias {
    /// Which.
    pub alias: Alias,
}

/// [`SessionStore::sessions`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sessions {
    /// Of one state alone.
    pub state: Option<SessionState>,
    /// Which page.
    pub page: PageRequest,
}

/// [`SessionStore::orphans`] as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOrphans {
    /// For at least how long their grace has been over.
    pub overdue: Duration,
    /// At most this many.
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

/// Sessions, their connections, and what is kept with them.
#[async_trait]
pub trait SessionStore: Backend {
    /// Attaches connections under a living tenure, each answered by itself, in the order asked: makes the session, adds to
    /// it, or resumes it. Meeting an orphan (of this name, or one that has the alias) reaps it first, so nothing depends
    /// on when the reaper comes. At most [`MAX_ATTACH`]; applied in atomic parts of about 200. Asking again for what is
    /// attached already only gives a newer epoch, so a lost reply costs nothing. O(attaches · their data).
    ///
    /// # Errors
    /// `Ended` when the tenure is not alive: nothing changed in that part (parts before it may have been applied, and
    /// belong to the janitor now). `TooLate`, `Unavailable`, `Invalid` for what breaks a limit.
    async fn attach(&self, group: &Group, tenure: &TenureId, attaches: &[Attach], call: Call) -> Result<Attached> {
        let (tenure, attaches) = (tenure.clone(), attaches.to_vec());
        ask(self, Some(group), Attaches { tenure, attaches }, call).await
    }

    /// Detaches connections, each by its exact tenure; the last one of a session starts its grace. At most
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
        ask(self, Some(group), Detaches { tenure, detaches }, call).await
    }

    /// Changes the data of a session, under a living tenure when one is given. O(fields).
    ///
    /// # Errors
    /// `Ended` when a tenure is given that is not alive, `Invalid` for what breaks a limit, `TooLate`, `Unavailable`.
    /// Doing it again is safe.
    async fn patch_session(
        &self,
        group: &Group,
        session: &SessionId,
        tenure: Option<&TenureId>,
        data: &Data,
        call: Call,
    ) -> Result<PatchOutcome> {
        let (session, tenure, data) = (session.clone(), tenure.cloned(), data.clone());
        ask(self, Some(group), PatchSession { session, tenure, data }, call).await
    }

    /// Deletes a session that has no connections. O(fields).
    ///
    /// # Errors
    /// `TooLate`, `Unavailable`. Doing it again is safe.
    async fn delete_session(&self, group: &Group, session: &SessionId, call: Call) -> Result<DeleteOutcome> {
        let session = session.clone();
        ask(self, Some(group), DeleteSession { session }, call).await
    }

    /// Looks a session up. O(its connections and fields).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn session(&self, group: &Group, session: &SessionId) -> Result<Option<Session>> {
        let session = session.clone();
        ask(self, Some(group), SessionOf { session }, Call::default()).await
    }

    /// Looks a session up by its alias. O(its connections and fields).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn session_by_alias(&self, group: &Group, alias: &Alias) -> Result<Option<Session>> {
        let alias = alias.clone();
        ask(self, Some(group), SessionByAlias { alias }, Call::default()).await
    }

    /// Lists sessions, of one state or all. Disconnected ones and orphans come by when their grace ends, from an index of
    /// the disconnected alone; a session whose connections are all of the dead is in neither list until the janitor has
    /// come. One that is of that state throughout is listed at least once. O(page + connections and fields of it).
    ///
    /// # Errors
    /// `Invalid` for a cursor that is not from a page of this listing, `Unavailable`.
    async fn sessions(&self, group: &Group, state: Option<SessionState>, page: &PageRequest) -> Result<Page<Session>> {
        let page = page.clone();
        ask(self, Some(group), Sessions { state, page }, Call::default()).await
    }

    /// Lists orphans whose grace has been over for at least `overdue`, at most `limit` (1 to 1,000), by index: its cost
    /// depends on how many there are to list, not on how many sessions there are. O(log disconnected + limit).
    ///
    /// # Errors
    /// `Invalid` for a limit outside 1..=1000, `Unavailable`.
    async fn orphans(&self, group: &Group, overdue: Duration, limit: u32) -> Result<Orphans> {
        ask(self, Some(group), ListOrphans { overdue, limit }, Call::default()).await
    }

    /// Counts sessions. O(log disconnected).
    ///
    /// # Errors
    /// `Unavailable`.
    async fn session_stats(&self, group: &Group) -> Result<SessionStats> {
        ask(self, Some(group), CountSessions, Call::default()).await
    }
}

impl<S: Backend> SessionStore for S {}
