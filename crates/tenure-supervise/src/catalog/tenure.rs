//! Tenure itself as a catalog: the service is a claim in the registry `services`, held under this process's tenure.
//!
//! No cleanup is necessary: reads never show a ghost, and the claim ends with the tenure. The key has all properties of
//! the service: `NAME:ID:ADDRESS:PORT`.

use std::sync::Arc;

use async_trait::async_trait;
use tenure::{Error, ErrorKind, Membership, Registry};
use tenure_core::clock::Clock;
use tenure_core::error::Result;
use tenure_core::id::Key;

use super::agent::{Agent, ListedService, RegisteredBy};
use super::{Catalog, CatalogParts, Failure, MembershipWatch, Service};

/// The registry for services.
pub const SERVICES: &str = "services";

struct Claims {
    joined: MembershipWatch,
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
/// `Invalid` without an address, and when the key has more than 200 characters or a character outside A-Z a-z 0-9 . _ :
/// -, such as the brackets of an IPv6 address.
pub fn key_of(service: &Service) -> Result<Key> {
    let address = service.address.as_deref();
    let Some(address) = address.filter(|address| !address.is_empty()) else {
        return Err(Error::invalid(format!(
            "the service {} has no address for clients",
            service.id
        )));
    };
    Key::new(format!("{}:{}:{address}:{}", service.name, service.id, service.port))
}

/// Claims a service once it is wanted and the membership is joined. Does no I/O yet. Runs on the caller's runtime.
///
/// # Errors
/// `Invalid` for a service that cannot be registered or whose key is invalid.
///
/// # Panics
/// Outside of a runtime.
pub fn catalog(joined: MembershipWatch, service: Service, clock: &Arc<dyn Clock>) -> Result<Catalog> {
    service.check().map_err(|error| Error::invalid(error.to_string()))?;
    let claims = Claims {
        joined,
        key: key_of(&service)?,
    };
    let parts = CatalogParts {
        agent: Arc::new(claims),
        service,
        life: String::new(),
        journal: None,
        hold: None,
    };
    Ok(Catalog::start(parts, clock))
}

fn failure(error: &Error) -> Failure {
    match error.kind() {
        ErrorKind::Denied => Failure::Forbidden(error.chain()),
        ErrorKind::Unavailable => Failure::Unreachable(error.chain()),
        _ => Failure::Odd(error.chain()),
    }
}

impl Claims {
    fn registry(&self) -> std::result::Result<(Arc<Membership>, Registry), Failure> {
        let joined = self.joined.borrow().clone();
        let membership = joined.ok_or_else(|| Failure::Unreachable("the store is not joined yet".to_owned()))?;
        let services = membership.registry(SERVICES).map_err(|error| failure(&error))?;
        Ok((membership, services))
    }

    /// The current owner of the claim.
    async fn owner(&self) -> std::result::Result<Option<ListedService>, Failure> {
        if self.joined.borrow().is_none() {
            // Nothing was ever claimed.
            return Ok(None);
        }
        let (membership, services) = self.registry()?;
        let claim = services
            .look_up(self.key.as_str())
            .await
            .map_err(|error| failure(&error))?;
        Ok(claim.filter(|claim| claim.alive).map(|claim| ListedService {
            // An earlier tenure of this process counts as ours.
            by: if claim.owner == *membership.member() {
                RegisteredBy::Us
            } else {
                RegisteredBy::Another
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
        let (_, services) = self.registry()?;
        let claimed = services.claim(self.key.as_str()).await;
        claimed.map(drop).map_err(|error| failure(&error))
    }

    async fn pass(&self, _: &Service) -> std::result::Result<bool, Failure> {
        Ok(self.owner().await?.is_some())
    }

    async fn look(&self, _: &str, _: Option<&Service>) -> std::result::Result<Option<ListedService>, Failure> {
        self.owner().await
    }

    async fn deregister(&self, _: &str) -> std::result::Result<(), Failure> {
        let (_, services) = self.registry()?;
        match services.release(self.key.as_str()).await {
            // In both cases the claim is not ours.
            Err(error) if matches!(error.kind(), ErrorKind::NotOwner | ErrorKind::Ended(_)) => Ok(()),
            done => done.map_err(|error| failure(&error)),
        }
    }
}

#[cfg(test)]
mod tests;
