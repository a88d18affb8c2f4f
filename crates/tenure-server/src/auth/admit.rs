//! Letting a request in: who is calling, whether they may, and whether they ask too often.

use std::time::Duration;

use axum::extract::Request;
use tenure::wire::{Code, Problem};
use tenure_core::error::Outcome;
use tenure_core::id::Group;
use tenure_core::roster::roster_of;
use tenure_core::time::StoreTime;

use super::caller::{Caller, Peer};
use super::grant::Grant;
use super::guard::Ask;
use super::refusal::Refusal;
use super::rule::Rule;
use crate::app::App;
use crate::meters;
use crate::reply::Failure;

/// Why a request is not let in.
#[derive(Debug)]
pub(crate) enum Shut {
    /// Nobody knows the caller, or they may not.
    Refused(Box<Refusal>),
    /// They ask too often; not so after this long.
    TooOften(Duration),
}

impl App {
    /// Lets a request in, or does not. Without tokens, keys and limits it is a few comparisons.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn admit(&self, rule: &Rule, request: &Request) -> Result<Caller, Shut> {
        let known = self.guard.known(request.headers());
        // Before any signature is looked at, which may take a millisecond.
        if !rule.is_open() {
            self.count(known.as_deref(), request).map_err(Shut::TooOften)?;
        }
        let ask = Ask {
            headers: request.headers(),
            uri: request.uri(),
            jwt: self.jwt.as_deref(),
            now: &|| self.time(),
        };
        let found = self.guard.check(rule, known, &ask);
        found.map_err(|refusal| Shut::Refused(Box::new(refusal)))
    }

    /// One more request of a caller: of a token of the file by the token, refused or not; of everybody else by their
    /// address. That includes providers, because who they are is known only from a signature.
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

    /// Refuses to end a tenure in the name of whoever has it where that is for a provider's own token alone: in the group
    /// of a roster, once there are keys for these.
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

    /// The store's clock, and our own while that is not known.
    pub(crate) fn time(&self) -> StoreTime {
        self.store_time()
            .unwrap_or_else(|| StoreTime::from_micros(self.clock.wall_micros()))
    }
}

impl Shut {
    /// Whose token it was, when that is known.
    pub(crate) fn who(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => refusal.who(),
            Self::TooOften(_) => None,
        }
    }

    /// The answer. Counts it.
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
                    "this caller asks more often than the daemon allows; nothing was done",
                );
                problem.with_outcome(Outcome::Unchanged).with_retry_after(wait).into()
            }
        }
    }
}
