//! The error format of the API (RFC 9457), and its conversion from and to [`tenure_core::Error`].

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_core::id::{MemberId, SessionId, TenureId};
use tenure_core::lease::{AcquireOutcome, Holders};
use tenure_core::ledger::Engagement;
use tenure_core::membership::EndReason;
use tenure_core::session::Limit;
use tenure_core::settling::GapCause;

use super::{ms_up, roster};

/// The media type of errors.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The default retry delay while the store is down.
const RETRY_AFTER: Duration = Duration::from_secs(1);

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $status:literal, $title:literal;)*) => {
        /// The stable codes of errors.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* $variant,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in JSON.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The HTTP status.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// The title, constant per code.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }
        }
    };
}

codes! {
    /// The body is not JSON.
    MalformedJson = "malformed_json", 400, "The body is not JSON";
    /// The request violates HTTP or this API.
    BadRequest = "bad_request", 400, "The request cannot be read";
    /// The daemon requires authentication, and the token is missing or unknown.
    Unauthenticated = "unauthenticated", 401, "A token is needed";
    /// The route is for providers and requires their token, which is missing.
    TokenMissing = "token_missing", 401, "A provider's token is needed";
    /// The token is longer than the limit.
    TokenTooLong = "token_too_long", 401, "The token is too long";
    /// The token cannot be parsed.
    TokenMalformed = "token_malformed", 401, "The token cannot be read";
    /// The token is signed with another algorithm than the configured one.
    TokenAlgorithm = "token_algorithm", 401, "The token is signed by another algorithm";
    /// The token requires an extension that is not supported.
    TokenExtension = "token_extension", 401, "The token needs an extension";
    /// The token is signed with an unknown key.
    TokenKeyUnknown = "token_key_unknown", 401, "The key of the token is not known";
    /// The signature is invalid.
    TokenSignature = "token_signature", 401, "The signature of the token is wrong";
    /// The token has no expiry time.
    TokenWithoutExpiry = "token_without_expiry", 401, "The token has no expiry time";
    /// The token has expired.
    TokenExpired = "token_expired", 401, "The token has expired";
    /// The token has no issue time.
    TokenWithoutIssueTime = "token_without_issue_time", 401, "The token does not say when it was issued";
    /// The token is not valid yet.
    TokenNotYetValid = "token_not_yet_valid", 401, "The token is not valid yet";
    /// The token has no provider as its subject.
    TokenSubject = "token_subject", 401, "The token names no provider";
    /// The token is from another issuer.
    TokenIssuer = "token_issuer", 401, "The token is from another issuer";
    /// The token is for another audience.
    TokenAudience = "token_audience", 401, "The token is for another audience";
    /// The token lacks a required claim.
    TokenClaim = "token_claim", 401, "The token lacks a claim";
    /// The token was issued before its provider was deactivated.
    TokenRevoked = "token_revoked", 401, "The token was revoked";
    /// The token does not permit this action or this resource; `detail` names what is missing.
    Forbidden = "forbidden", 403, "The token does not permit this";
    /// The token belongs to another provider.
    WrongProvider = "wrong_provider", 403, "The token is another provider's";
    /// The route is for operators, and the token belongs to a provider.
    NotForProviders = "not_for_providers", 403, "This is not for providers";
    /// An operator has deactivated the provider.
    ProviderDeactivated = "provider_deactivated", 403, "The provider is deactivated";
    /// A web page of another origin sent this request through a browser to a daemon without authentication; nothing was
    /// done.
    WrongOrigin = "wrong_origin", 403, "The request comes from another page";
    /// No route has this path.
    NoSuchRoute = "no_such_route", 404, "Nothing is served at this path";
    /// The session does not exist, or is only an orphan that cannot be resumed.
    SessionNotFound = "session_not_found", 404, "Session not found";
    /// The member, claim or group does not exist.
    NotFound = "not_found", 404, "Not found";
    /// The path exists, but not with this method.
    MethodNotAllowed = "method_not_allowed", 405, "This path does not allow this method";
    /// The client took too long to send the request.
    RequestTimeout = "request_timeout", 408, "The request took too long to arrive";
    /// A living member owns the key.
    ClaimHeld = "claim_held", 409, "A living member owns this key";
    /// Another member holds the lease, or it is reserved for another member.
    LeaseHeld = "lease_held", 409, "Another member has this lease";
    /// The lease is held or waited for with another number of holders.
    HoldersDiffer = "holders_differ", 409, "The lease has another number of holders";
    /// A later request of the same tenure has taken over the place in the queue.
    WaitReplaced = "wait_replaced", 409, "A later request waits in its place";
    /// Another tenure owns what should be released.
    NotOwner = "not_owner", 409, "Another tenure holds this";
    /// The lease to release is held by another tenure or under another token, or the connection to detach is held by
    /// another tenure.
    NotHolder = "not_holder", 409, "Another tenure is the holder";
    /// The alias belongs to another session.
    AliasTaken = "alias_taken", 409, "Another session has this alias";
    /// The session to be deleted has connections.
    SessionActive = "session_active", 409, "The session has connections";
    /// The session has reached its limit of connections or data fields.
    SessionFull = "session_full", 409, "The session is full";
    /// The provider is not online.
    ProviderOffline = "provider_offline", 409, "The provider is offline";
    /// The provider to be removed is online or engaged.
    ProviderBusy = "provider_busy", 409, "The provider is online or engaged";
    /// No provider has room.
    NoneAvailable = "none_available", 409, "No provider is available";
    /// The engagement is over, or is not the expected one.
    EngagementConflict = "engagement_conflict", 409, "The engagement does not allow this";
    /// The group is in a grace period.
    Unsettled = "unsettled", 409, "The group is in a grace period";
    /// The call arrived after its `Tenure-Not-After` and changed nothing.
    TooLate = "too_late", 409, "The call arrived after its not-after time";
    /// The tenure has ended; `reason` says why.
    TenureEnded = "tenure_ended", 410, "The tenure has ended";
    /// The body exceeds the limit.
    BodyTooLarge = "body_too_large", 413, "The body is too large";
    /// The content type of the body is not JSON.
    UnsupportedMediaType = "unsupported_media_type", 415, "The body must be application/json";
    /// The `Host` header is not a name of this daemon. A daemon without authentication checks it against DNS rebinding.
    WrongHost = "wrong_host", 421, "The daemon does not answer to this name";
    /// The request is JSON, but a value is not allowed.
    Invalid = "invalid", 422, "The request is not valid";
    /// The caller exceeded its request rate; nothing was done.
    RateLimited = "rate_limited", 429, "Too many requests from one caller";
    /// Too many requests wait for the lease, or for leases of the group or of the daemon; nothing was done.
    QueueFull = "queue_full", 429, "Too many requests wait";
    /// A bug.
    Internal = "internal", 500, "Internal error";
    /// The daemon's configuration is not valid.
    Misconfigured = "misconfigured", 500, "The configuration cannot work";
    /// The store behind the daemon does not support this.
    Unsupported = "unsupported", 501, "This store cannot do that";
    /// The store rejects the daemon's credentials. Not the caller's fault, hence not 403.
    Denied = "denied", 502, "The store refuses the daemon";
    /// The store did not answer in time. `outcome` says whether the call may have taken effect.
    StoreUnavailable = "store_unavailable", 503, "The store cannot be reached";
    /// Too many concurrent requests or streams; nothing was done.
    Overloaded = "overloaded", 503, "Too many concurrent requests";
}

impl Code {
    /// Parses the name in JSON.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == name)
    }

    /// The code of an error.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid => Self::Invalid,
            ErrorKind::Ended(_) => Self::TenureEnded,
            ErrorKind::Held => Self::ClaimHeld,
            ErrorKind::NotOwner => Self::NotOwner,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Unsettled => Self::Unsettled,
            ErrorKind::TooLate => Self::TooLate,
            ErrorKind::Unavailable => Self::StoreUnavailable,
            ErrorKind::Denied => Self::Denied,
            ErrorKind::Misconfigured => Self::Misconfigured,
            ErrorKind::Unsupported => Self::Unsupported,
            _ => Self::Internal,
        }
    }
}

/// The body of an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// A URN of the problem type, `urn:tenure:problem:<code>`.
    #[serde(rename = "type")]
    pub urn: String,
    /// The title, constant per problem type.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The code, for programs.
    pub code: String,
    /// The detail, for people: what was wrong and what to do.
    pub detail: String,
    /// When to retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// With `tenure_ended`: the reason (`left`, `lapsed`, `superseded`, `expelled`, `unknown`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub reason: Option<EndReason>,
    /// With status 500 and above: `unchanged` if the call certainly did nothing, `unknown` if it may have taken effect
    /// (or still may, until its `Tenure-Not-After`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// With `lease_held` and `not_holder`: the member that holds the lease or the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub holder: Option<MemberId>,
    /// With `claim_held` and `not_owner`: the member that owns the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub owner: Option<MemberId>,
    /// With `holder` and `owner`: the tenure that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenure: Option<TenureId>,
    /// With `lease_held`: the member that the lease is reserved for, if it was handed off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub reserved_for: Option<MemberId>,
    /// With `holders_differ`: the number of holders that the lease has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u16>))]
    pub holders: Option<Holders>,
    /// With `unsettled`: the cause of the grace period (`new`, `silent`, `clock_back`, `data_loss` or `tail_loss`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub cause: Option<GapCause>,
    /// With `queue_full`: how many requests wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u32>,
    /// After a wait for a lease: how long it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// With `alias_taken`: the session that has the alias.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub session: Option<SessionId>,
    /// With `session_active`: how many connections it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// With `session_full`: the limit reached, `connections` or `fields`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub limit: Option<Limit>,
    /// With `provider_deactivated` and `provider_busy`: the current provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Box<roster::Provider>>,
    /// With `engagement_conflict`: the current engagement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engagement: Option<Box<Engagement>>,
}

impl Problem {
    /// A problem with a code.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            urn: format!("urn:tenure:problem:{}", code.as_str()),
            title: code.title().to_owned(),
            status: code.status(),
            code: code.as_str().to_owned(),
            detail: detail.into(),
            retry_after_ms: None,
            reason: None,
            outcome: None,
            holder: None,
            owner: None,
            tenure: None,
            reserved_for: None,
            holders: None,
            cause: None,
            waiting: None,
            waited_ms: None,
            session: None,
            connections: None,
            limit: None,
            provider: None,
            engagement: None,
        }
    }

    /// Adds when to retry.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after_ms = Some(ms_up(after));
        self
    }

    /// Adds whether the call may have taken effect.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = Some(match outcome {
            Outcome::Unchanged => "unchanged".to_owned(),
            Outcome::Unknown => "unknown".to_owned(),
        });
        self
    }

    /// Adds the holder of the lease or the connection.
    #[must_use]
    pub fn with_holder(mut self, tenure: TenureId) -> Self {
        self.holder = Some(tenure.member().clone());
        self.tenure = Some(tenure);
        self
    }

    /// Adds the owner of the key.
    #[must_use]
    pub fn with_owner(mut self, tenure: TenureId) -> Self {
        self.owner = Some(tenure.member().clone());
        self.tenure = Some(tenure);
        self
    }

    /// Adds the member that the lease is reserved for.
    #[must_use]
    pub fn with_reserved_for(mut self, member: MemberId) -> Self {
        self.reserved_for = Some(member);
        self
    }

    /// Adds the number of holders of the lease.
    #[must_use]
    pub fn with_holders(mut self, holders: Holders) -> Self {
        self.holders = Some(holders);
        self
    }

    /// Adds the cause of the grace period.
    #[must_use]
    pub fn with_cause(mut self, cause: GapCause) -> Self {
        self.cause = Some(cause);
        self
    }

    /// Adds how many requests wait.
    #[must_use]
    pub fn with_waiting(mut self, waiting: u32) -> Self {
        self.waiting = Some(waiting);
        self
    }

    /// Adds how long the request waited.
    #[must_use]
    pub fn with_waited(mut self, waited: Option<Duration>) -> Self {
        self.waited_ms = waited.map(super::ms);
        self
    }

    /// Adds the session that has the alias.
    #[must_use]
    pub fn with_session(mut self, session: SessionId) -> Self {
        self.session = Some(session);
        self
    }

    /// Adds the number of connections of the session.
    #[must_use]
    pub fn with_connections(mut self, connections: u64) -> Self {
        self.connections = Some(connections);
        self
    }

    /// Adds the limit that the session reached.
    #[must_use]
    pub fn with_limit(mut self, limit: Limit) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Adds the current provider.
    #[must_use]
    pub fn with_provider(mut self, provider: roster::Provider) -> Self {
        self.provider = Some(Box::new(provider));
        self
    }

    /// Adds the current engagement.
    #[must_use]
    pub fn with_engagement(mut self, engagement: Engagement) -> Self {
        self.engagement = Some(Box::new(engagement));
        self
    }

    /// The outcome of an acquire that was refused; `None` if a part is missing.
    #[must_use]
    pub fn refusal(&self) -> Option<AcquireOutcome> {
        let free_in = Duration::from_millis(self.retry_after_ms.unwrap_or(0));
        match Code::parse(&self.code)? {
            Code::LeaseHeld => match (&self.tenure, &self.reserved_for) {
                (Some(by), _) => Some(AcquireOutcome::Held {
                    by: by.clone(),
                    free_in,
                }),
                (None, Some(to)) => Some(AcquireOutcome::Reserved {
                    to: to.clone(),
                    free_in,
                }),
                (None, None) => None,
            },
            Code::HoldersDiffer => self.holders.map(|holders| AcquireOutcome::HoldersDiffer { holders }),
            Code::QueueFull => self.waiting.map(|waiting| AcquireOutcome::QueueFull { waiting }),
            Code::Unsettled => self.cause.map(|cause| AcquireOutcome::Unsettled {
                retry_in: free_in,
                cause,
            }),
            _ => None,
        }
    }

    /// Converts to an error. An unknown code is classified by its status: below 500 nothing changed, from 500 on the
    /// outcome is unknown.
    #[must_use]
    pub fn into_error(self) -> Error {
        let outcome = match self.outcome.as_deref() {
            Some("unchanged") => Outcome::Unchanged,
            Some(_) => Outcome::Unknown,
            None if self.status < 500 && self.status != 408 => Outcome::Unchanged,
            None => Outcome::Unknown,
        };
        let kind = match Code::parse(&self.code) {
            Some(Code::StoreUnavailable) => None,
            Some(Code::Overloaded | Code::RateLimited | Code::QueueFull) => {
                return self.finish(Error::unavailable(self.detail.clone(), Outcome::Unchanged));
            }
            Some(Code::RequestTimeout) => None,
            Some(Code::TenureEnded) => Some(ErrorKind::Ended(self.reason.unwrap_or(EndReason::Unknown))),
            Some(Code::ClaimHeld | Code::LeaseHeld | Code::AliasTaken | Code::SessionActive) => Some(ErrorKind::Held),
            Some(Code::HoldersDiffer | Code::WaitReplaced) => Some(ErrorKind::Held),
            Some(Code::ProviderBusy | Code::NoneAvailable | Code::EngagementConflict) => Some(ErrorKind::Held),
            Some(Code::NotOwner | Code::NotHolder) => Some(ErrorKind::NotOwner),
            Some(Code::NotFound | Code::SessionNotFound) => Some(ErrorKind::NotFound),
            Some(Code::Unsettled) => Some(ErrorKind::Unsettled),
            Some(Code::TooLate) => Some(ErrorKind::TooLate),
            Some(
                Code::Denied
                | Code::Forbidden
                | Code::WrongProvider
                | Code::NotForProviders
                | Code::WrongOrigin
                | Code::ProviderDeactivated,
            ) => Some(ErrorKind::Denied),
            Some(code) if code.status() == 401 => Some(ErrorKind::Denied),
            Some(Code::Misconfigured | Code::NoSuchRoute | Code::MethodNotAllowed | Code::WrongHost) => {
                Some(ErrorKind::Misconfigured)
            }
            Some(Code::Unsupported) => Some(ErrorKind::Unsupported),
            Some(Code::Internal) => Some(ErrorKind::Internal),
            Some(_) => Some(ErrorKind::Invalid),
            None if self.status >= 500 => None,
            None => Some(ErrorKind::Invalid),
        };
        let error = match kind {
            Some(kind) => Error::new(kind, self.detail.clone()).with_outcome(outcome),
            None => Error::unavailable(self.detail.clone(), outcome),
        };
        self.finish(error)
    }

    fn finish(&self, error: Error) -> Error {
        let error = match Code::parse(&self.code) {
            Some(code) => error.with_code(code.as_str()),
            None => error,
        };
        let error = match &self.tenure {
            Some(holder) => error.with_holder(holder.clone()),
            None => error,
        };
        match self.retry_after_ms {
            Some(after) => error.with_retry_after(Duration::from_millis(after)),
            None => error,
        }
    }
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let code = Code::of(error);
        // Causes help to repair errors that are not the caller's fault. For the caller's own mistakes they would only
        // reveal internals.
        let detail = if code.status() >= 500 {
            error.chain()
        } else {
            error.message().to_owned()
        };
        let mut problem = Self::new(code, detail);
        if let ErrorKind::Ended(reason) = error.kind() {
            problem.reason = Some(reason);
        }
        if let (Code::NotOwner, Some(owner)) = (code, error.holder()) {
            problem = problem.with_owner(owner.clone());
        }
        if code.status() >= 500 {
            problem = problem.with_outcome(error.outcome());
        }
        let default = matches!(code, Code::StoreUnavailable | Code::Unsettled).then_some(RETRY_AFTER);
        match error.retry_after().or(default) {
            Some(after) => problem.with_retry_after(after),
            None => problem,
        }
    }
}
