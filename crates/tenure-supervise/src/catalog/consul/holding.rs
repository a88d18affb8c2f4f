//! A registration as a session name: everything another node needs to remove the registration.

use std::fmt;
use std::str::FromStr;

use tenure_core::id::SessionId;

use super::address::Address;
use super::allow::is_loopback;

/// A registration: where it is, and which life of the service made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The agent's address: `http://HOST:PORT` or `https://HOST:PORT`.
    pub agent: String,
    /// The service's id.
    pub id: String,
    /// The life of the service that made it.
    pub life: String,
}

/// Why a registration cannot be a session name, or a name is not a registration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidHolding(String);

/// The prefixes of session names and their URL schemes.
const KINDS: [(&str, &str); 2] = [("consul", "http"), ("consul-tls", "https")];

impl Holding {
    /// The session name: `consul:LIFE:HOST:PORT:ID`, and `consul-tls:…` for an agent behind TLS.
    ///
    /// # Errors
    /// For an agent on a socket or at an IPv6 address, and for an id that does not fit into a name (200 characters in
    /// total, of A-Z a-z 0-9 . _ : -).
    pub fn session(&self) -> Result<SessionId, InvalidHolding> {
        let bad = |why: String| InvalidHolding(format!("the registration of {} cannot be a holding: {why}", self.id));
        let address = Address::read(&self.agent).map_err(bad)?;
        let name = KINDS.iter().find_map(|(kind, scheme)| {
            let host = address.text.strip_prefix(scheme)?.strip_prefix("://")?;
            (!host.starts_with('[')).then(|| format!("{kind}:{}:{host}:{}", self.life, self.id))
        });
        let Some(name) = name else {
            return Err(bad("the host and port of its agent do not fit into a name".to_owned()));
        };
        SessionId::new(name).map_err(|error| bad(error.to_string()))
    }

    /// Whether this address means a different agent on each machine.
    pub(super) fn is_at_loopback(&self) -> bool {
        Address::read(&self.agent).is_ok_and(|address| is_loopback(&address))
    }
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.id, self.agent)
    }
}

impl FromStr for Holding {
    type Err = InvalidHolding;

    fn from_str(name: &str) -> Result<Self, InvalidHolding> {
        let mut parts = name.splitn(5, ':');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        let parts = (next(), next(), next(), next(), next());
        if let (Some(kind), Some(life), Some(host), Some(port), Some(id)) = parts
            && let Some((_, scheme)) = KINDS.iter().find(|(known, _)| *known == kind)
            && port.parse::<u16>().is_ok()
        {
            return Ok(Self {
                agent: format!("{scheme}://{host}:{port}"),
                id: id.to_owned(),
                life: life.to_owned(),
            });
        }
        Err(InvalidHolding(format!("{name} is not the name of a registration")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holdings_round_trip_through_their_names() {
        let holding = Holding {
            agent: "http://10.0.0.7:8500".to_owned(),
            id: "web-a:1".to_owned(),
            life: "00ff".to_owned(),
        };
        let name = holding.session().unwrap();
        assert_eq!(name.as_str(), "consul:00ff:10.0.0.7:8500:web-a:1");
        assert_eq!(name.as_str().parse(), Ok(holding.clone()));
        let secure = Holding {
            agent: "https://consul.internal:8501".to_owned(),
            ..holding.clone()
        };
        let name = secure.session().unwrap();
        assert_eq!(name.as_str(), "consul-tls:00ff:consul.internal:8501:web-a:1");
        assert_eq!(name.as_str().parse(), Ok(secure));
        for agent in ["http://[::1]:8500", "unix:///run/consul.sock", "nowhere"] {
            let agent = agent.to_owned();
            assert!(
                Holding {
                    agent,
                    ..holding.clone()
                }
                .session()
                .is_err()
            );
        }
        for (agent, loopback) in [
            ("http://127.0.0.1:8500", true),
            ("http://localhost:8500", true),
            ("http://10.0.0.7:8500", false),
        ] {
            let agent = agent.to_owned();
            assert_eq!(
                Holding {
                    agent,
                    ..holding.clone()
                }
                .is_at_loopback(),
                loopback
            );
        }
        let id = "a b".to_owned();
        assert!(Holding { id, ..holding }.session().is_err());
        for bad in ["", "consul", "consul:a:b:c:d", "consul::h:1:i", "other:a:h:1:i"] {
            assert!(bad.parse::<Holding>().is_err(), "{bad}");
        }
    }
}
