//! Admission of a request: authentication, authorization and rate limit.

use std::time::Duration;

use axum::extract::Request;
use tenure::wire::{Code, Problem};
use tenure_core::error::Outcome;
use tenure_core::id::Group;
use tenure_core::roster::roster_of;
use tenure_core::time::StoreTime;

use super::caller::{Caller, Peer};
use super::grant::Grant;
use super::guard::RequestContext;
use super::refusal::Refusal;
use super::rule::Rule;
use crate::app::App;
use crate::meters;
use crate::reply::Failure;

/// Why a request is not admitted.
#[derive(Debug)]
pub(crate) enum AdmitError {
    /// The caller is unknown, or lacks permission.
    Refused(Box<Refusal>),
    /// The rate limit is exceeded; retry after this long.
    TooOften(Duration),
}

impl App {
    /// Admits a request. Without tokens, keys and rate limits it costs a few comparisons.
    pub(crate) fn admit(&self, rule: &Rule, request: &Request) -> Result<Caller, AdmitError> {
        let known = self.guard.known(request.headers());
        // Before any signature is verified, which may take a millisecond.
        if !rule.is_open() {
            self.count(known.as_deref(), request).map_err(AdmitError::TooOften)?;
        }
        let context = RequestContext {
            headers: request.headers(),
            uri: request.uri(),
            jwt: self.jwt.as_deref(),
            now: &|| self.time(),
        };
        let found = self.guard.check(rule, known, &context);
        found.map_err(|refusal| AdmitError::Refused(Box::new(refusal)))
    }

    /// Counts a request: by token for tokens of the file (also when it is refused later), by address otherwise. Providers
    /// count by address, since their identity is known only after a signature is verified.
    fn count(&self, known: Option<&Grant>, request: &Request) -> Result<(), Duration> {
        let Some(limiter) = &self.limiter else {
            return Ok(());
        };
        let now = self.clock.mono();
        match (known, request.extensions().get::<Peer>()) {
            (Some(grant), _) => limiter.count(&grant.due, now),
            (None, Some(peer)) => limiter.count_peer(peer.address, now),
            (None, None) => Ok(()),
        }
    }

    /// Refuses a leave in a roster's group once keys for providers' tokens are configured: only the provider itself may go
    /// offline then.
    ///
    /// # Errors
    /// 403 `forbidden`.
    pub(crate) fn check_leave(&self, caller: &Caller, group: &Group) -> Result<(), Failure> {
        if self.jwt.is_none() || roster_of(group).is_none() {
            return Ok(());
        }
        let grant = match caller {
            Caller::Known(grant) => Some(&**grant),
            Caller::Anyone | Caller::Stranger | Caller::Provider(_) => None,
        };
        Err(Refusal::for_providers(grant).into_failure())
    }

    /// The store's clock, or the local wall clock while that is not known.
    pub(crate) fn time(&self) -> StoreTime {
        self.store_time()
            .unwrap_or_else(|| StoreTime::from_micros(self.clock.wall_micros()))
    }
}

impl AdmitError {
    /// The name of the token, if it is known.
    pub(crate) fn who(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => refusal.who(),
            Self::TooOften(_) => None,
        }
    }

    /// The answer. Counts it in the metrics.
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            Self::Refused(refusal) => {
                meters::refused(refusal.code());
                refusal.into_failure()
            }
            Self::TooOften(wait) => {
                meters::refused(Code::RateLimited);
                let problem = Problem::new(
                    Code::RateLimited,
                    "this caller exceeds the daemon's rate limit; nothing was done",
                );
                problem.with_outcome(Outcome::Unchanged).with_retry_after(wait).into()
            }
        }
    }
}
