//! Who is calling, as the routes see it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tenure_core::id::{Group, RosterName};

use super::grant::Grant;
use super::refusal::Refusal;
use super::scope::Scope;
use crate::app::App;
use crate::connections::Link;
use crate::jwt;
use crate::reply::Failure;

/// Who is calling.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// Whoever it is: the daemon asks nobody.
    Anyone,
    /// Somebody who has shown nothing that is known here.
    Stranger,
    /// A provider with a good token of its own, at the routes of providers; which provider, these see to.
    Provider(Arc<jwt::Caller>),
    /// Somebody with a token.
    Known(Arc<Grant>),
}

impl Caller {
    /// The name of the token.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Known(grant) => Some(grant.name()),
            Self::Anyone | Self::Stranger | Self::Provider(_) => None,
        }
    }

    /// Whether they may do something, if it is not about a group or roster that they have no part in.
    pub(crate) fn may(&self, scope: Scope) -> bool {
        match self {
            Self::Anyone => true,
            Self::Stranger | Self::Provider(_) => false,
            Self::Known(grant) => grant.scopes.has(scope),
        }
    }

    /// Refuses what they may not do.
    ///
    /// # Errors
    /// 403 `forbidden`, naming the scope.
    pub(crate) fn check(&self, scope: Scope) -> Result<(), Failure> {
        match self {
            _ if self.may(scope) => Ok(()),
            Self::Known(grant) => Err(Refusal::scope(grant, scope.into()).into_failure()),
            _ => Err(Refusal::unknown().into_failure()),
        }
    }

    /// Whether they see everything there is, and not only groups and rosters by name.
    pub(crate) fn is_everywhere(&self) -> bool {
        match self {
            Self::Anyone => true,
            Self::Stranger | Self::Provider(_) => false,
            Self::Known(grant) => grant.only.is_none(),
        }
    }

    pub(crate) fn sees_group(&self, group: &Group) -> bool {
        match self {
            Self::Anyone => true,
            Self::Stranger | Self::Provider(_) => false,
            Self::Known(grant) => grant.is_for_group(group),
        }
    }

    pub(crate) fn sees_roster(&self, roster: &RosterName) -> bool {
        match self {
            Self::Anyone => true,
            Self::Stranger | Self::Provider(_) => false,
            Self::Known(grant) => grant.is_for_roster(roster),
        }
    }
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Infallible> {
        let nobody = || if app.guard.asks() { Self::Stranger } else { Self::Anyone };
        Ok(parts.extensions.get().cloned().unwrap_or_else(nobody))
    }
}

/// The other side of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The SHA-256 of the certificate that it has shown, if it had to.
    pub(crate) certificate: Option<Arc<str>>,
    pub(crate) link: Arc<Link>,
}
