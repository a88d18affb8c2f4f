//! Consul: the service is registered at the agent of this node, with a check that has to be told that all is well.
//!
//! Only the agent's own interface is used (`/v1/agent/…`): what is written to the catalog directly, the agent undoes.
//! Connections are not kept: an agent that closes one while a beat is being written would fail the beat.
//!
//! With a Tenure store a registration is a holding as well ([`Holding`]), and a [`Janitor`] on any node clears it away when
//! its supervisor was killed.

mod address;
mod allow;
mod api;
mod holding;
mod janitor;
mod remote;
mod token;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_tls::ClientTls;

use super::hold::Hold;
use super::{Catalog, Joined, Making, Service};

pub use allow::{Allowed, BadRule};
pub use holding::{BadHolding, Holding};
pub use janitor::Janitor;
pub use remote::{CannotDeregister, Cleared, RemoteAgents};
pub use token::Token;

use api::Api;

/// The key of the metadata that tells one life of a service from the next.
pub const LIFE: &str = "tenure-life";

/// How to reach an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsulSettings {
    /// Where it is: `127.0.0.1:8500`, `http://…`, `consul://…` or `unix:///path`; with TLS `https://…` or
    /// `consul+tls://…?tls_ca=PATH&tls_cert=PATH&tls_key=PATH`.
    pub address: String,
    /// The files for TLS, unless the address names some.
    pub tls: ClientTls,
    /// What it is told about who we are.
    pub token: Token,
    /// Where registrations are written down; without it, what this process leaves behind is left to the agent.
    pub journal: Option<PathBuf>,
    /// How long one request may take; four fifths of a beat and at most 4 s when `None`.
    pub request_timeout: Option<Duration>,
}

impl ConsulSettings {
    /// An agent, without a token and without a journal.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            tls: ClientTls::default(),
            token: Token::none(),
            journal: None,
            request_timeout: None,
        }
    }
}

/// Registers a service at an agent, once it is wanted. Does no I/O but reading certificates. Runs on the runtime of the
/// caller.
///
/// # Errors
/// `Misconfigured` for an address that cannot be one and certificates that cannot be used, `Invalid` for a service that no
/// agent would take, and for a timeout that is not below a beat.
///
/// # Panics
/// Outside of a runtime.
pub fn catalog(settings: ConsulSettings, service: Service, clock: &Arc<dyn Clock>) -> Result<Catalog> {
    open(settings, service, None, clock)
}

/// As [`catalog`], and holds the registration under a membership, once that is there: a [`Janitor`] then removes it when its
/// tenure has ended and it was not deregistered. Registering waits at most a beat, and 5 s, for the store; then the service is
/// registered without it, and held once the membership is there.
///
/// # Errors
/// Those of [`catalog`].
///
/// # Panics
/// Outside of a runtime.
pub fn held_catalog(
    settings: ConsulSettings,
    service: Service,
    joined: Joined,
    clock: &Arc<dyn Clock>,
) -> Result<Catalog> {
    open(settings, service, Some(joined), clock)
}

fn open(settings: ConsulSettings, service: Service, joined: Option<Joined>, clock: &Arc<dyn Clock>) -> Result<Catalog> {
    service.check().map_err(|error| Error::invalid(error.to_string()))?;
    let beat = service.beat();
    let bound = settings
        .request_timeout
        .unwrap_or((beat * 4 / 5).min(Duration::from_secs(4)));
    if bound.is_zero() || bound >= beat {
        return Err(Error::invalid(format!(
            "a request that may take {bound:?} is not over before the next beat, {beat:?} later"
        )));
    }
    let ConsulSettings {
        address, tls, token, ..
    } = settings;
    let api = Api::new(&address, &tls, token, bound, Arc::clone(clock))
        .map_err(|why| Error::new(ErrorKind::Misconfigured, why))?;
    let life = format!("{:016x}", clock.entropy());
    let hold = joined.and_then(|joined| {
        let holding = Holding {
            agent: api.address().text.clone(),
            id: service.id.clone(),
            life: life.clone(),
        };
        match holding.session() {
            Ok(session) => Some(Hold::new(joined, session, clock)),
            Err(error) => {
                tracing::warn!(%error, "no janitor can clear it away; after a hard kill Consul does, in a minute or two");
                None
            }
        }
    });
    let making = Making {
        agent: Arc::new(api),
        service,
        life,
        journal: settings.journal,
        hold,
    };
    Ok(Catalog::start(making, clock))
}

#[cfg(test)]
mod tests;
