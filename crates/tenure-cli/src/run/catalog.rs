//! The catalog that `run` registers in.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tenure_core::clock::Clock;
use tenure_supervise::catalog::Service;
use tenure_supervise::catalog::consul::{Allowed, ConsulSettings, RemoteAgents, Token};
use tenure_supervise::node::Registrar;
use tenure_tls::ClientTls;

use crate::exit::Usage;

/// The catalog of the service.
#[derive(Debug, Clone, Args)]
pub(super) struct CatalogArgs {
    /// Where the service is registered: consul://HOST:PORT or consul+tls://HOST:PORT (the agent of this node), tenure (the
    /// registry `services` of the group), or none. For a service that is the agent at CONSUL_HTTP_ADDR, or at
    /// 127.0.0.1:8500, with the TLS of CONSUL_HTTP_SSL, CONSUL_CACERT, CONSUL_CLIENT_CERT and CONSUL_CLIENT_KEY.
    #[arg(long, value_name = "CATALOG", env = "TENURE_CATALOG", help_heading = "Catalog")]
    catalog: Option<CatalogKind>,
    /// A file with the token for Consul, read at every request.
    #[arg(long, value_name = "PATH", env = "CONSUL_HTTP_TOKEN_FILE", help_heading = "Catalog")]
    consul_token_file: Option<PathBuf>,
    /// A file that records what is registered, so that the next start removes what a crash left behind.
    #[arg(long, value_name = "PATH", env = "TENURE_JOURNAL", help_heading = "Catalog")]
    journal: Option<PathBuf>,
    /// Consul removes the service after this time in the critical state; at least 1m.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = tenure_core::time::parse_duration, help_heading = "Catalog")]
    deregister_after: Duration,
    /// The Consul agents from which this node removes registrations of killed supervisors of its group, with its own token:
    /// loopback, HOST or ADDRESS/BITS, separated by commas, each with :PORT unless the agent is at 8500 (8501 with TLS). An
    /// agent that only a range names receives the token only through TLS. For Consul with a --store.
    #[arg(
        long,
        value_name = "AGENTS",
        env = "TENURE_REGISTRATIONS_AGENTS",
        default_value = "loopback",
        help_heading = "Catalog"
    )]
    registrations_agents: Allowed,
}

/// Time-out of a request of the janitor to an agent.
const REQUEST: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq)]
enum CatalogKind {
    None,
    Tenure,
    Consul(String),
}

impl FromStr for CatalogKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            _ if text == "none" => Ok(Self::None),
            _ if text == "tenure" => Ok(Self::Tenure),
            Some(("consul" | "consul+tls" | "http" | "https" | "unix", _)) => Ok(Self::Consul(text.to_owned())),
            _ => Err(format!(
                "{text:?} is no catalog; write consul://HOST:PORT, consul+tls://HOST:PORT, tenure or none"
            )),
        }
    }
}

impl CatalogArgs {
    /// Whether the service is in Tenure itself.
    pub(super) fn is_tenure(&self) -> bool {
        self.catalog == Some(CatalogKind::Tenure)
    }

    /// Whether a service would be registered at an agent of Consul.
    pub(super) fn is_consul(&self) -> bool {
        matches!(self.catalog, None | Some(CatalogKind::Consul(_)))
    }

    /// The registration, which is critical after `ttl` without a heartbeat. `None` if nothing is registered.
    ///
    /// # Errors
    /// Wrong usage.
    pub(super) fn registration(
        &self,
        service: Option<Service>,
        ttl: Duration,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<(Service, Registrar)>, Usage> {
        let Some(mut service) = service else {
            return match self.catalog {
                Some(CatalogKind::Consul(_) | CatalogKind::Tenure) => {
                    Err(Usage::new("--catalog: there is no --service to register"))
                }
                Some(CatalogKind::None) | None => Ok(None),
            };
        };
        (service.ttl, service.deregister_after) = (ttl, self.deregister_after);
        let registrar = match &self.catalog {
            Some(CatalogKind::None) => return Ok(None),
            Some(CatalogKind::Tenure) => Registrar::Tenure,
            Some(CatalogKind::Consul(_)) | None => Registrar::Consul(self.consul(&env)?),
        };
        Ok(Some((service, registrar)))
    }

    /// The agents at which this node may clear away what others have left.
    ///
    /// # Errors
    /// Wrong usage.
    pub(super) fn agents(
        &self,
        env: impl Fn(&str) -> Option<String>,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<RemoteAgents> {
        let settings = self.consul(&env)?;
        let agents = RemoteAgents::new(
            self.registrations_agents.clone(),
            settings.token,
            REQUEST,
            Arc::clone(clock),
        );
        Ok(agents.with_tls(settings.tls))
    }

    fn consul(&self, env: &impl Fn(&str) -> Option<String>) -> Result<ConsulSettings, Usage> {
        let address = match &self.catalog {
            Some(CatalogKind::Consul(address)) => address.clone(),
            _ => default_address(env)?,
        };
        let token = match (&self.consul_token_file, env("CONSUL_HTTP_TOKEN")) {
            (Some(path), _) => Token::file(path),
            (None, Some(token)) => Token::fixed(token),
            (None, None) => Token::none(),
        };
        let file = |name: &str| env(name).map(PathBuf::from);
        Ok(ConsulSettings {
            token,
            journal: self.journal.clone(),
            tls: ClientTls {
                ca: file("CONSUL_CACERT"),
                cert: file("CONSUL_CLIENT_CERT"),
                key: file("CONSUL_CLIENT_KEY"),
            },
            ..ConsulSettings::new(address)
        })
    }
}

/// The address at which Consul's own tools look for the agent.
fn default_address(env: &impl Fn(&str) -> Option<String>) -> Result<String, Usage> {
    let address = env("CONSUL_HTTP_ADDR").unwrap_or_else(|| "127.0.0.1:8500".to_owned());
    let is_set = |name: &str, value: bool| -> Result<bool, Usage> {
        let read = |text: String| match text.to_ascii_lowercase().as_str() {
            "1" | "t" | "true" => Ok(true),
            "0" | "f" | "false" => Ok(false),
            _ => Err(Usage::new(format!("{name}: {text:?} is neither true nor false"))),
        };
        env(name).map_or(Ok(value), read)
    };
    let secure = if address.contains("://") {
        address.starts_with("https://")
    } else {
        is_set("CONSUL_HTTP_SSL", false)?
    };
    if secure && !is_set("CONSUL_HTTP_SSL_VERIFY", true)? {
        let why = "CONSUL_HTTP_SSL_VERIFY: the certificate of the agent is always checked; name its authority in CONSUL_CACERT";
        return Err(Usage::new(why));
    }
    if secure && !address.contains("://") {
        return Ok(format!("https://{address}"));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(env: &[(&str, &str)]) -> Result<String, String> {
        let found = |name: &str| env.iter().find(|(known, _)| *known == name);
        let env = |name: &str| found(name).map(|(_, value)| (*value).to_owned());
        default_address(&env).map_err(|error| error.to_string())
    }

    #[test]
    fn the_agent_is_where_consuls_own_tools_look_for_it() {
        for (env, means) in [
            (&[][..], "127.0.0.1:8500"),
            (&[("CONSUL_HTTP_ADDR", "h:1")], "h:1"),
            (
                &[("CONSUL_HTTP_ADDR", "h:1"), ("CONSUL_HTTP_SSL", "true")],
                "https://h:1",
            ),
            (&[("CONSUL_HTTP_ADDR", "https://h:1")], "https://h:1"),
            (
                &[("CONSUL_HTTP_ADDR", "http://h:1"), ("CONSUL_HTTP_SSL", "1")],
                "http://h:1",
            ),
            (
                &[("CONSUL_HTTP_SSL", "0"), ("CONSUL_HTTP_SSL_VERIFY", "0")],
                "127.0.0.1:8500",
            ),
        ] {
            assert_eq!(address(env).as_deref(), Ok(means), "{env:?}");
        }
        let unchecked = [("CONSUL_HTTP_SSL", "true"), ("CONSUL_HTTP_SSL_VERIFY", "false")];
        assert!(address(&unchecked).unwrap_err().contains("CONSUL_CACERT"));
        assert!(address(&[("CONSUL_HTTP_SSL", "perhaps")]).is_err());
    }

    #[test]
    fn a_catalog_is_an_agent_tenure_or_none() {
        for (text, means) in [
            ("none", CatalogKind::None),
            ("tenure", CatalogKind::Tenure),
            ("consul+tls://h:1", CatalogKind::Consul("consul+tls://h:1".to_owned())),
        ] {
            assert_eq!(text.parse(), Ok(means), "{text}");
        }
        for wrong in ["", "etcd://h:1", "h:1"] {
            assert!(wrong.parse::<CatalogKind>().is_err(), "{wrong}");
        }
    }
}
