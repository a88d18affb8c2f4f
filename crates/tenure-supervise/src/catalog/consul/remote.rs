//! Removing a registration at the agent of another node, after its tenure has ended (R5.5).

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Clock;

use super::address::Address;
use super::allow::Allowed;
use super::api::Api;
use super::token::Token;
use crate::catalog::remove::remove;
use crate::catalog::{Failure, Removed};

/// Why a registration was not removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotDeregister {
    /// The agent is not on the list, so it was not called.
    #[error("the agent {0} is not on the list of agents that may be called from here")]
    NotAllowed(String),
    /// The address cannot be one.
    #[error("{0}")]
    NoAgent(String),
    /// It was called, and this came of it. May be tried again.
    #[error("the agent {agent} could not be told from here to deregister {id}: {failure}")]
    Failed {
        /// The agent.
        agent: String,
        /// The service's id.
        id: String,
        /// What came of it.
        failure: Failure,
    },
}

/// The agents of other nodes, as a janitor sees them.
#[derive(Debug, Clone)]
pub struct RemoteAgents {
    allowed: Allowed,
    token: Token,
    request_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl RemoteAgents {
    /// Calls agents on a list, with a token of the caller's own; each request takes at most `request_timeout`.
    #[must_use]
    pub fn new(allowed: Allowed, token: Token, request_timeout: Duration, clock: Arc<dyn Clock>) -> Self {
        Self {
            allowed,
            token,
            request_timeout,
            clock,
        }
    }

    /// Removes what has an id at an agent, when it is of `life` (of any, when `None`): a later life of the service under
    /// the same id is left alone. Repeating it is harmless. At most five requests.
    ///
    /// # Errors
    /// See [`CannotDeregister`]; after `Failed` it may have been removed.
    pub async fn deregister_at(&self, agent: &str, id: &str, life: Option<&str>) -> Result<Removed, CannotDeregister> {
        let address = Address::read(agent).map_err(CannotDeregister::NoAgent)?;
        if !self.allowed.allows(&address) {
            return Err(CannotDeregister::NotAllowed(address.text));
        }
        let api = Api::new(agent, self.token.clone(), self.request_timeout, Arc::clone(&self.clock))
            .map_err(CannotDeregister::NoAgent)?;
        remove(&api, id, life)
            .await
            .map_err(|failure| CannotDeregister::Failed {
                agent: api.address().text.clone(),
                id: id.to_owned(),
                failure,
            })
    }
}
