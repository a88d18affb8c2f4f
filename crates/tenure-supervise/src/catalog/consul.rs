//! Consul: the service is registered at the agent of this node, with a ttl check.
//!
//! Only the agent API (`/v1/agent/…`) is used, because the agent reverts direct writes to the catalog. Connections are
//! not pooled: an agent that closes one during a write would fail the beat.
//!
//! With a Tenure store, the registration is also held as a session ([`Holding`]). A [`Janitor`] on any node removes it
//! after its supervisor was killed.

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

use super::registration_session::RegistrationSession;
use super::{Catalog, CatalogParts, MembershipWatch, Service};

pub use allow::{Allowed, InvalidRule};
pub use holding::{Holding, InvalidHolding};
pub use janitor::Janitor;
pub use remote::{Cleared, DeregisterError, RemoteAgents};
pub use token::Token;

use api::Api;

/// The metadata key that identifies a life of the service.
pub const LIFE: &str = "tenure-life";

/// How to reach an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsulSettings {
    /// The address: `127.0.0.1:8500`, `http://…`, `consul://…` or `unix:///path`; with TLS `https://…` or
    /// `consul+tls://…?tls_ca=PATH&tls_cert=PATH&tls_key=PATH`.
    pub address: String,
    /// The TLS files, unless the address names some.
    pub tls: ClientTls,
    /// The ACL token.
    pub token: Token,
    /// The directory of the journal. Without it, the agent must remove what this process leaves behind.
    pub journal: Option<PathBuf>,
    /// The timeout of one request. `None`: four fifths of a beat, at most 4 s.
    pub request_timeout: Option<Duration>,
}

impl ConsulSettings {
    /// An agent without a token and without a journal.
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

/// Registers a service at an agent once it is wanted. Reads certificates but does no other I/O. Runs on the caller's
/// runtime.
///
/// # Errors
/// `Misconfigured` for an invalid address or unusable certificates. `Invalid` for a service that no agent would accept,
/// and for a timeout that is not below a beat.
///
/// # Panics
/// Outside of a runtime.
pub fn catalog(settings: ConsulSettings, service: Service, clock: &Arc<dyn Clock>) -> Result<Catalog> {
    open(settings, service, None, clock)
}

/// Like [`catalog`], and holds the registration as a session once the membership is joined: a [`Janitor`] then removes
/// it if its tenure ended before it was deregistered. Registering waits for the store, at most a beat and 5 s. After
/// that, the service is registered without a session, which is attached once the membership is joined.
///
/// # Errors
/// Those of [`catalog`].
///
/// # Panics
/// Outside of a runtime.
pub fn held_catalog(
    settings: ConsulSettings,
    service: Service,
    joined: MembershipWatch,
    clock: &Arc<dyn Clock>,
) -> Result<Catalog> {
    open(settings, service, Some(joined), clock)
}

fn open(
    settings: ConsulSettings,
    service: Service,
    joined: Option<MembershipWatch>,
    clock: &Arc<dyn Clock>,
) -> Result<Catalog> {
    service.check().map_err(|error| Error::invalid(error.to_string()))?;
    let beat = service.beat();
    let bound = settings
        .request_timeout
        .unwrap_or((beat * 4 / 5).min(Duration::from_secs(4)));
    if bound.is_zero() || bound >= beat {
        return Err(Error::invalid(format!(
            "the request timeout {bound:?} is not between zero and a beat, {beat:?}"
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
            Ok(session) => Some(RegistrationSession::new(joined, session, clock)),
            Err(error) => {
                tracing::warn!(%error, "no janitor can remove this registration; after a hard kill Consul does, in a minute or two");
                None
            }
        }
    });
    let parts = CatalogParts {
        agent: Arc::new(api),
        service,
        life,
        journal: settings.journal,
        hold,
    };
    Ok(Catalog::start(parts, clock))
}

#[cfg(test)]
mod tests;
