//! Removes a registration at the agent of another node, after its tenure has ended (R5.5).

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_tls::ClientTls;

use super::Holding;
use super::address::Address;
use super::allow::{Allowed, Permission};
use super::api::Api;
use super::token::{Token, TokenReader};
use crate::catalog::agent::RegisteredBy;
use crate::catalog::remove::remove;
use crate::catalog::{Failure, Removed};

/// Why a registration was not removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeregisterError {
    /// The agent is not on the allow list. It was not called.
    #[error("the agent {0} is not on the list of allowed agents")]
    NotAllowed(String),
    /// The agent is allowed, but the token must not be sent to it. It was not called: without a token an agent hides
    /// its services.
    #[error(
        "the agent {0} is allowed only by an address range and without TLS, so the token is not sent to it; register \
         with consul+tls://, or name the agent's own address in the list"
    )]
    InClear(String),
    /// The address is invalid.
    #[error("{0}")]
    NoAgent(String),
    /// The call failed. May be retried.
    #[error("the agent {agent} did not deregister {id}: {failure}")]
    Failed {
        /// The agent's address.
        agent: String,
        /// The service's id.
        id: String,
        /// The failure of the call.
        failure: Failure,
    },
}

/// The result of cleaning up a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleared {
    /// The registration was removed.
    Gone,
    /// The registration did not exist.
    WasNotThere,
    /// Another registration has its id. It was left alone.
    Another,
    /// Beats arrive within its ttl. It was left alone.
    Alive,
}

/// The agents of other nodes, as called by a janitor.
#[derive(Debug, Clone)]
pub struct RemoteAgents {
    allowed: Allowed,
    tls: ClientTls,
    token: TokenReader,
    request_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl RemoteAgents {
    /// Calls agents of an allow list, with this token. Each request takes at most `request_timeout`.
    #[must_use]
    pub fn new(allowed: Allowed, token: Token, request_timeout: Duration, clock: Arc<dyn Clock>) -> Self {
        Self {
            allowed,
            tls: ClientTls::default(),
            token: TokenReader::new(token),
            request_timeout,
            clock,
        }
    }

    /// Sets the TLS files. They are read at every call, so a rotated certificate is used immediately.
    #[must_use]
    pub fn with_tls(self, tls: ClientTls) -> Self {
        Self { tls, ..self }
    }

    /// Removes the registration of an id at an agent, if it is of `life` (`None`: of any). A later life under the same
    /// id is left alone. Idempotent. At most five requests.
    ///
    /// # Errors
    /// See [`DeregisterError`]. After `Failed` the registration may have been removed.
    pub async fn deregister_at(&self, agent: &str, id: &str, life: Option<&str>) -> Result<Removed, DeregisterError> {
        let api = self.api(agent)?;
        remove(&api, id, life)
            .await
            .map_err(|failure| failed(&api, id, failure))
    }

    /// Cleans up the registration of an ended tenure. Removes it only if it is of exactly its life and beats have
    /// stopped. So neither a later life is removed, nor the registration of a supervisor that only lost the store.
    /// Idempotent. At most six requests.
    ///
    /// # Errors
    /// See [`DeregisterError`]. After `Failed` the registration may have been removed.
    pub async fn clear(&self, holding: &Holding) -> Result<Cleared, DeregisterError> {
        let Holding { agent, id, life } = holding;
        let api = self.api(agent)?;
        let health = api.health(id).await.map_err(|failure| failed(&api, id, failure))?;
        match health {
            None => return Ok(Cleared::WasNotThere),
            Some(health) if health.by != RegisteredBy::Life(life.clone()) => return Ok(Cleared::Another),
            Some(health) if health.beats => return Ok(Cleared::Alive),
            Some(_) => {}
        }
        match remove(&api, id, Some(life)).await {
            Ok(Removed::Gone) => Ok(Cleared::Gone),
            Ok(Removed::WasNotThere) => Ok(Cleared::WasNotThere),
            Ok(Removed::Another) => Ok(Cleared::Another),
            Err(failure) => Err(failed(&api, id, failure)),
        }
    }

    /// A client for the agent, if it may be called.
    fn api(&self, agent: &str) -> Result<Api, DeregisterError> {
        let address = Address::read(agent).map_err(DeregisterError::NoAgent)?;
        match self.allowed.permission(&address) {
            Permission::Refused => return Err(DeregisterError::NotAllowed(address.text)),
            Permission::WithoutToken if !self.token.is_none() => return Err(DeregisterError::InClear(address.text)),
            Permission::WithoutToken | Permission::WithToken => {}
        }
        let (token, clock) = (self.token.clone(), Arc::clone(&self.clock));
        // An address from the store must not name local files, so it is parsed again without them.
        let address = Address::read(&address.text).map_err(DeregisterError::NoAgent)?;
        Api::with(address, &self.tls, token, self.request_timeout, clock).map_err(DeregisterError::NoAgent)
    }
}

fn failed(api: &Api, id: &str, failure: Failure) -> DeregisterError {
    DeregisterError::Failed {
        agent: api.address().text.clone(),
        id: id.to_owned(),
        failure,
    }
}
