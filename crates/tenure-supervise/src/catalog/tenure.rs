//! Tenure itself as a catalog: the service is a claim in the registry `services`, held under this process' tenure.
//!
//! So nothing has to be reaped: reads never show a ghost, and the claim goes with the tenure. The key tells all that there
//! is to know: `NAME:ID:ADDRESS:PORT`.

use std::sync::Arc;

use async_trait::async_trait;
use tenure::{Error, ErrorKind, Membership, Registry};
use tenure_core::clock::Clock;
use tenure_core::error::Result;
use tenure_core::id::Key;

use super::agent::{Agent, By, Listed};
use super::{Catalog, Failure, Service};

/// The registry that services are in.
pub const SERVICES: &str = "services";

struct Claims {
    /// Held, because it ends with its last handle.
    membership: Arc<Membership>,
    services: Registry,
    key: Key,
}

impl std::fmt::Debug for Claims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Claims({})", self.key)
    }
}

/// The key of a service.
///
/// # Errors
/// `Invalid` when it has more than 200 characters or others than A-Z a-z 0-9 . _ : -, as with an address of IPv6 in
/// brackets; a service without an address is one.
pub fn key_of(service: &Service) -> Result<Key> {
    let address = service.address.as_deref();
    let Some(address) = address.filter(|address| !address.is_empty()) else {
        return Err(Error::invalid(format!(
            "the service {} has no address to be found at",
            service.id
        )));
    };
    Key::new(format!("{}:{}:{address}:{}", service.name, service.id, service.port))
}

/// Claims a service, once it is wanted, under a membership. Does no I/O yet. Runs on the runtime of the caller.
///
/// # Errors
/// `Invalid` for a service that cannot be a key, or cannot be registered.
///
/// # Panics
/// Outside of a runtime.
pub fn catalog(membership: Arc<Membership>, service: Service, clock: &Arc<dyn Clock>) -> Result<Catalog> {
    service.check().map_err(|error| Error::invalid(error.to_string()))?;
    let claims = Claims {
        services: membership.registry(SERVICES)?,
        key: key_of(&service)?,
        membership,
    };
    Ok(Catalog::start(Arc::new(claims), service, None, clock))
}

fn failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Denied => Failure::Forbidden(error.chain()),
        ErrorKind::Unavailable => Failure::Unreachable(error.chain()),
        _ => Failure::Odd(error.chain()),
    }
}

impl Claims {
    /// Whether the claim is ours, and whose else it is.
    async fn owner(&self) -> std::result::Result<Option<Listed>, Failure> {
        let claim = self
            .services
            .look_up(self.key.as_str())
            .await
            .map_err(|error| failure(&error))?;
        Ok(claim.filter(|claim| claim.alive).map(|claim| Listed {
            // An earlier tenure of this process is as good as the present one.
            by: if claim.owner == *self.membership.member() {
                By::Us
            } else {
                By::Another
            },
            same: true,
        }))
    }
}

#[async_trait]
impl Agent for Claims {
    fn place(&self) -> &str {
        SERVICES
    }

    fn at(&self, _: &str) -> Option<Arc<dyn Agent>> {
        None
    }

    async fn register(&self, _: &Service, _: &str, _: bool) -> std::result::Result<(), Failure> {
        self.services
            .claim(self.key.as_str())
            .await
            .map(drop)
            .map_err(|error| failure(&error))
    }

    async fn pass(&self, _: &Service) -> std::result::Result<bool, Failure> {
        Ok(self.owner().await?.is_some())
    }

    async fn look(&self, _: &str, _: Option<&Service>) -> std::result::Result<Option<Listed>, Failure> {
        self.owner().await
    }

    async fn deregister(&self, _: &str) -> std::result::Result<(), Failure> {
        match self.services.release(self.key.as_str()).await {
            // Either way it is not ours.
            Err(error) if matches!(error.kind(), ErrorKind::NotOwner | ErrorKind::Ended(_)) => Ok(()),
            done => done.map_err(|error| failure(&error)),
        }
    }
}

#[cfg(test)]
mod tests;
