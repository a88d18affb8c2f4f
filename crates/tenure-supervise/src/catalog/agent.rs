//! The catalog, as the actor sees it. Each call has its own deadline and sends nothing twice.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Failure, Service};

/// A service as listed in the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedService {
    pub(crate) by: RegisteredBy,
    /// Whether all visible properties equal the service that was asked about.
    pub(crate) same: bool,
}

/// The origin of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RegisteredBy {
    /// This life of the service.
    Life(String),
    /// Unknown: the registration was overwritten by hand.
    Unknown,
    /// This process, according to the catalog.
    Us,
    /// Another process, according to the catalog.
    Another,
}

/// The agent of a catalog.
#[async_trait]
pub(crate) trait Agent: fmt::Debug + Send + Sync + 'static {
    /// Its unique address, for people and for the journal.
    fn place(&self) -> &str;

    /// The agent at another address, if this one can reach it.
    fn at(&self, place: &str) -> Option<Arc<dyn Agent>>;

    /// Registers the service and replaces any service with its id. Its state is critical unless `passing`.
    async fn register(&self, service: &Service, life: &str, passing: bool) -> Result<(), Failure>;

    /// Sends one beat. `false`: the check does not exist or has no ttl.
    async fn pass(&self, service: &Service) -> Result<bool, Failure>;

    /// The service with this id, compared with `service` if given.
    async fn look(&self, id: &str, service: Option<&Service>) -> Result<Option<ListedService>, Failure>;

    /// Deregisters the id. Succeeds if it does not exist.
    async fn deregister(&self, id: &str) -> Result<(), Failure>;
}

/// A catalog that stores nothing.
#[derive(Debug)]
pub(crate) struct NoCatalog;

#[async_trait]
impl Agent for NoCatalog {
    fn place(&self) -> &str {
        "none"
    }

    fn at(&self, _: &str) -> Option<Arc<dyn Agent>> {
        None
    }

    async fn register(&self, _: &Service, _: &str, _: bool) -> Result<(), Failure> {
        Ok(())
    }

    async fn pass(&self, _: &Service) -> Result<bool, Failure> {
        Ok(true)
    }

    async fn look(&self, _: &str, service: Option<&Service>) -> Result<Option<ListedService>, Failure> {
        // A beat compares the registration, a removal wants it gone.
        Ok(service.map(|_| ListedService {
            by: RegisteredBy::Us,
            same: true,
        }))
    }

    async fn deregister(&self, _: &str) -> Result<(), Failure> {
        Ok(())
    }
}
