//! What the actor needs of a catalog. Every call has its own deadline and asks nothing twice.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Failure, Service};

/// A service as the catalog has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Who has registered it.
    pub(crate) by: By,
    /// Whether it is what was asked about, in all that others see.
    pub(crate) same: bool,
}

/// Who has registered a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    /// This life of the service.
    Life(String),
    /// Somebody who does not say: it was written over by hand.
    Unknown,
    /// This process, as the catalog itself can tell.
    Us,
    /// Another process, as the catalog itself can tell.
    Another,
}

/// A catalog's agent.
#[async_trait]
pub(crate) trait Agent: fmt::Debug + Send + Sync + 'static {
    /// Where it is: unique, for people and for the journal.
    fn place(&self) -> &str;

    /// The agent at another place, as far as this one may reach it.
    fn at(&self, place: &str) -> Option<Arc<dyn Agent>>;

    /// Puts the service there, replacing what has its id: critical, unless it is known to be `passing`.
    async fn register(&self, service: &Service, life: &str, passing: bool) -> Result<(), Failure>;

    /// One beat. `false`: there is no such check, or it has no ttl.
    async fn pass(&self, service: &Service) -> Result<bool, Failure>;

    /// What is there under an id, compared with `service` when that is given.
    async fn look(&self, id: &str, service: Option<&Service>) -> Result<Option<Listed>, Failure>;

    /// Takes away what has an id. Fine when there is nothing.
    async fn deregister(&self, id: &str) -> Result<(), Failure>;
}

/// A catalog that nobody looks at.
#[derive(Debug)]
pub(crate) struct Nowhere;

#[async_trait]
impl Agent for Nowhere {
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

    async fn look(&self, _: &str, service: Option<&Service>) -> Result<Option<Listed>, Failure> {
        // Who beats compares what is there; who removes wants it gone.
        Ok(service.map(|_| Listed { by: By::Us, same: true }))
    }

    async fn deregister(&self, _: &str) -> Result<(), Failure> {
        Ok(())
    }
}
