//! A registration as a holding: everything that another node needs to remove it, in the name of a key.

use std::fmt;
use std::str::FromStr;

use tenure_core::id::Key;

use super::address::Address;
use crate::catalog::Catalog;

/// What is registered where, by which life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The agent: `http://HOST:PORT`.
    pub agent: String,
    /// The service's id.
    pub id: String,
    /// Which life of the service registered it.
    pub life: String,
}

/// What cannot be a holding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadHolding(String);

/// Such keys begin with it.
const KIND: &str = "consul";

impl Holding {
    /// What a catalog registers.
    #[must_use]
    pub fn of(catalog: &Catalog) -> Self {
        Self {
            agent: catalog.place().to_owned(),
            id: catalog.id().to_owned(),
            life: catalog.life().to_owned(),
        }
    }

    /// The key: `consul:LIFE:HOST:PORT:ID`.
    ///
    /// # Errors
    /// For an agent on a socket or at an address of IPv6, and an id that no key can have (200 characters in all of
    /// A-Z a-z 0-9 . _ : -).
    pub fn key(&self) -> Result<Key, BadHolding> {
        let bad = |why: String| BadHolding(format!("the registration of {} cannot be a holding: {why}", self.id));
        let address = Address::read(&self.agent).map_err(bad)?;
        let host = address
            .text
            .strip_prefix("http://")
            .filter(|host| !host.starts_with('['));
        let Some(host) = host else {
            return Err(bad("its agent has no host and port that fit into a key".to_owned()));
        };
        Key::new(format!("{KIND}:{}:{host}:{}", self.life, self.id)).map_err(|error| bad(error.to_string()))
    }
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.id, self.agent)
    }
}

impl FromStr for Holding {
    type Err = BadHolding;

    fn from_str(key: &str) -> Result<Self, BadHolding> {
        let mut parts = key.splitn(5, ':');
        let mut next = || parts.next().filter(|part| !part.is_empty());
        match (next(), next(), next(), next(), next()) {
            (Some(KIND), Some(life), Some(host), Some(port), Some(id)) if port.parse::<u16>().is_ok() => Ok(Self {
                agent: format!("http://{host}:{port}"),
                id: id.to_owned(),
                life: life.to_owned(),
            }),
            _ => Err(BadHolding(format!("{key} is not the key of a registration"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holding_survives_its_key() {
        let holding = Holding {
            agent: "http://10.0.0.7:8500".to_owned(),
            id: "web-a:1".to_owned(),
            life: "00ff".to_owned(),
        };
        let key = holding.key().unwrap();
        assert_eq!(key.as_str(), "consul:00ff:10.0.0.7:8500:web-a:1");
        assert_eq!(key.as_str().parse(), Ok(holding.clone()));
        for agent in ["http://[::1]:8500", "unix:///run/consul.sock", "nowhere"] {
            let agent = agent.to_owned();
            assert!(
                Holding {
                    agent,
                    ..holding.clone()
                }
                .key()
                .is_err()
            );
        }
        let id = "a b".to_owned();
        assert!(Holding { id, ..holding }.key().is_err());
        for bad in ["", "consul", "consul:a:b:c:d", "consul::h:1:i", "other:a:h:1:i"] {
            assert!(bad.parse::<Holding>().is_err(), "{bad}");
        }
    }
}
