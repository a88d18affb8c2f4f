//! Removing a registration at the agent of another node, after its tenure has ended (R5.5).

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_tls::ClientTls;

use super::Holding;
use super::address::Address;
use super::allow::{Allowed, Permission};
use super::api::Api;
use super::token::{Reader, Token};
use crate::catalog::agent::By;
use crate::catalog::remove::remove;
use crate::catalog::{Failure, Removed};

/// Why a registration was not removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotDeregister {
    /// The agent is not on the list, so it was not called.
    #[error("the agent {0} is not on the list of agents that may be called from here")]
    NotAllowed(String),
    /// It is on the list, and the token that it would be called with must not be sent to it. It was not called: without its
    /// token an agent hides what there is.
    #[error(
        "the agent {0} is allowed by a range of addresses alone, and without TLS, so the token is not sent to it; register \
         with consul+tls://, or name the agent's own address in the list"
    )]
    InClear(String),
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

/// What clearing a registration away came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleared {
    /// It is gone now.
    Gone,
    /// It was not there any more.
    WasNotThere,
    /// Something else is there under its id, which was left alone.
    Another,
    /// Somebody keeps it alive: beats come within its ttl. It was left alone.
    Alive,
}

/// The agents of other nodes, as a janitor sees them.
#[derive(Debug, Clone)]
pub struct RemoteAgents {
    allowed: Allowed,
    tls: ClientTls,
    token: Reader,
    request_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl RemoteAgents {
    /// Calls agents on a list, with a token of the caller's own; each request takes at most `request_timeout`.
    #[must_use]
    pub fn new(allowed: Allowed, token: Token, request_timeout: Duration, clock: Arc<dyn Clock>) -> Self {
        Self {
            allowed,
            tls: ClientTls::default(),
            token: Reader::new(token),
            request_timeout,
            clock,
        }
    }

    /// With these files for agents behind TLS. They are read at every call, so new certificates are used from then on.
    #[must_use]
    pub fn with_tls(self, tls: ClientTls) -> Self {
        Self { tls, ..self }
    }

    /// Removes what has an id at an agent, when it is of `life` (of any, when `None`): a later life of the service under
    /// the same id is left alone. Repeating it is harmless. At most five requests.
    ///
    /// # Errors
    /// See [`CannotDeregister`]; after `Failed` it may have been removed.
    pub async fn deregister_at(&self, agent: &str, id: &str, life: Option<&str>) -> Result<Removed, CannotDeregister> {
        let api = self.api(agent)?;
        remove(&api, id, life)
            .await
            .map_err(|failure| failed(&api, id, failure))
    }

    /// Clears away what a supervisor has left that is gone: only what is of exactly its life, and only when nobody beats
    /// for it any more. So neither a later life is hit, nor one whose supervisor lost the store and nothing else.
    /// Repeating it is harmless. At most six requests.
    ///
    /// # Errors
    /// See [`CannotDeregister`]; after `Failed` it may have been removed.
    pub async fn clear(&self, holding: &Holding) -> Result<Cleared, CannotDeregister> {
        let Holding { agent, id, life } = holding;
        let api = self.api(agent)?;
        let pulse = api.pulse(id).await.map_err(|failure| failed(&api, id, failure))?;
        match pulse {
            None => return Ok(Cleared::WasNotThere),
            Some(pulse) if pulse.by != By::Life(life.clone()) => return Ok(Cleared::Another),
            Some(pulse) if pulse.beats => return Ok(Cleared::Alive),
            Some(_) => {}
        }
        match remove(&api, id, Some(life)).await {
            Ok(Removed::Gone) => Ok(Cleared::Gone),
            Ok(Removed::WasNotThere) => Ok(Cleared::WasNotThere),
            Ok(Removed::Another) => Ok(Cleared::Another),
            Err(failure) => Err(failed(&api, id, failure)),
        }
    }

    /// The agent, when it may be called.
    fn api(&self, agent: &str) -> Result<Api, CannotDeregister> {
        let address = Address::read(agent).map_err(CannotDeregister::NoAgent)?;
        match self.allowed.permission(&address) {
            Permission::Refused => return Err(CannotDeregister::NotAllowed(address.text)),
            Permission::WithoutToken if !self.token.is_none() => return Err(CannotDeregister::InClear(address.text)),
            Permission::WithoutToken | Permission::WithToken => {}
        }
        let (token, clock) = (self.token.clone(), Arc::clone(&self.clock));
        // What others wrote may not name files of this machine.
        let address = Address::read(&address.text).map_err(CannotDeregister::NoAgent)?;
        Api::with(address, &self.tls, token, self.request_timeout, clock).map_err(CannotDeregister::NoAgent)
    }
}

fn failed(api: &Api, id: &str, failure: Failure) -> CannotDeregister {
    CannotDeregister::Failed {
        agent: api.address().text.clone(),
        id: id.to_owned(),
        failure,
    }
}
