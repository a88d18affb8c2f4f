//! Letting a request in: who is calling, whether they may, and whether they ask too often.

use std::time::Duration;

use axum::extract::Request;
use tenure::wire::{Code, Problem};
use tenure_core::error::Outcome;
use tenure_core::time::StoreTime;

use super::caller::{Caller, Peer};
use super::guard::{Ask, Refusal};
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
    /// Lets a request in, or does not. Without tokens and limits it is two comparisons.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn admit(&self, rule: &Rule, request: &Request) -> Result<Caller, Shut> {
        let found = if self.guard.asks() {
            let ask = Ask {
                headers: request.headers(),
                uri: request.uri(),
                jwt: self.jwt.as_deref(),
                now: &|| self.time(),
            };
            self.guard.check(rule, &ask)
        } else {
            Ok(Caller::Anyone)
        };
        if !rule.is_open() {
            self.count(found.as_ref().ok(), request).map_err(Shut::TooOften)?;
        }
        found.map_err(|refusal| Shut::Refused(Box::new(refusal)))
    }

    /// One more request of a caller: of a token by the token, of everybody else by their address.
    fn count(&self, caller: Option<&Caller>, request: &Request) -> Result<(), Duration> {
        let Some(limiter) = &self.limiter else {
            return Ok(());
        };
        let now = self.clock.mono();
        match (caller, request.extensions().get::<Peer>()) {
            (Some(Caller::Known(grant)), _) => limiter.count(&grant.due, now),
            (_, Some(peer)) => limiter.count_peer(peer.address, now),
            (_, None) => Ok(()),
        }
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
