//! The catalog that `run` registers in.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tenure_core::clock::Clock;
use tenure_supervise::catalog::consul::{self, ConsulSettings, Token};
use tenure_supervise::catalog::{Catalog, Service};

use crate::exit::Usage;

/// Where others look for the service.
#[derive(Debug, Clone, Args)]
pub(super) struct CatalogArgs {
    /// Where the service is registered: consul://HOST:PORT (the agent of this node), or none. For a service that is the
    /// agent at CONSUL_HTTP_ADDR, or at 127.0.0.1:8500.
    #[arg(long, value_name = "CATALOG", env = "TENURE_CATALOG")]
    catalog: Option<Where>,
    /// A file with the token for Consul; read again whenever it is needed.
    #[arg(long, value_name = "PATH", env = "CONSUL_HTTP_TOKEN_FILE")]
    consul_token_file: Option<PathBuf>,
    /// Where to write down what is registered, so that the next start removes what a failed end has left behind.
    #[arg(long, value_name = "PATH", env = "TENURE_JOURNAL")]
    journal: Option<PathBuf>,
    /// After this long in the critical state Consul removes the service by itself; at least 1m.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = tenure_core::time::parse_duration)]
    deregister_after: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Where {
    None,
    Consul(String),
}

impl FromStr for Where {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            _ if text == "none" => Ok(Self::None),
            Some(("consul" | "http" | "unix", _)) => Ok(Self::Consul(text.to_owned())),
            _ => Err(format!("{text:?} is no catalog; write consul://HOST:PORT or none")),
        }
    }
}

impl CatalogArgs {
    /// The actor that keeps the service registered, on the runtime of the caller. `None`: nobody is to find it.
    ///
    /// # Errors
    /// Wrong usage.
    pub(super) fn open(
        &self,
        service: Option<Service>,
        ttl: Duration,
        env: impl Fn(&str) -> Option<String>,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Option<Catalog>> {
        let Some(mut service) = service else {
            return match self.catalog {
                Some(Where::Consul(_)) => Err(Usage::new("--catalog: there is no --service to register").into()),
                Some(Where::None) | None => Ok(None),
            };
        };
        let address = match &self.catalog {
            Some(Where::None) => return Ok(None),
            Some(Where::Consul(address)) => address.clone(),
            None => env("CONSUL_HTTP_ADDR").unwrap_or_else(|| "127.0.0.1:8500".to_owned()),
        };
        (service.ttl, service.deregister_after) = (ttl, self.deregister_after);
        let token = match (&self.consul_token_file, env("CONSUL_HTTP_TOKEN")) {
            (Some(path), _) => Token::file(path),
            (None, Some(token)) => Token::fixed(token),
            (None, None) => Token::none(),
        };
        let settings = ConsulSettings {
            token,
            journal: self.journal.clone(),
            ..ConsulSettings::new(address)
        };
        let catalog = consul::catalog(settings, service, clock);
        Ok(Some(catalog.map_err(|error| {
            Usage::new(format!("--catalog: {}", error.chain()))
        })?))
    }
}
