//! The authenticated caller, as handlers see it.

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

/// An authenticated caller.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// Any caller of a daemon without tokens.
    Anyone,
    /// A caller without a valid token, on a route that is open.
    Stranger,
    /// A provider with a verified token. The routes check that it is the provider in the path.
    Provider(Arc<jwt::ProviderIdentity>),
    /// The holder of a token of the file.
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

    /// Whether the caller has a scope. Says nothing about groups and rosters.
    pub(crate) fn may(&self, scope: Scope) -> bool {
        match self {
            Self::Anyone => true,
            Self::Stranger | Self::Provider(_) => false,
            Self::Known(grant) => grant.scopes.has(scope),
        }
    }

    /// Requires a scope.
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

    /// Whether the caller is not restricted to some groups and rosters.
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
        let unauthenticated = || if app.guard.asks() { Self::Stranger } else { Self::Anyone };
        Ok(parts.extensions.get().cloned().unwrap_or_else(unauthenticated))
    }
}

/// The remote end of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// The SHA-256 of its client certificate, when client certificates are required.
    pub(crate) certificate: Option<Arc<str>>,
    pub(crate) link: Arc<Link>,
}
