//! The address and the time-outs of the database.

use std::time::Duration;

use tenure_core::{Error, ErrorKind, Result};
use tenure_tls::ClientTls;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// The connection options of a ledger on Postgres.
#[derive(Clone)]
pub struct PostgresOptions {
    /// The database.
    pub(crate) config: Config,
    /// The files for TLS, if it is used.
    pub(crate) tls: Option<ClientTls>,
    /// The maximum number of connections of this process; at least 4.
    pub pool_size: usize,
    /// The maximum number of calls that wait for a connection; further calls are refused immediately.
    pub waiting: usize,
    /// The time-out of a call, from the wait for a connection to the reply.
    pub call_timeout: Duration,
    /// The time-out of a call about many rows, as sweeps make.
    pub batch_timeout: Duration,
    /// The connect time-out. The attempt continues for the next caller if the first has timed out.
    pub connect_timeout: Duration,
    /// The age at which a connection is replaced, so that a new primary or address is found.
    pub max_lifetime: Duration,
    /// Whether to create and update the schema. If false, an older schema is refused.
    pub migrate: bool,
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("place", &self.place())
            .field("pool_size", &self.pool_size)
            .field("call_timeout", &self.call_timeout)
            .field("batch_timeout", &self.batch_timeout)
            .finish_non_exhaustive()
    }
}

impl PostgresOptions {
    /// Parses `postgres://[user[:password]@]host[:port][,host2…]/database` (or `postgresql://…`), with 16 connections,
    /// 500 ms for a call and 5 s for a batch. Of several hosts the primary is used.
    ///
    /// `sslmode=verify-full` enables TLS. `require` is the same and checks as much. `tls_ca=PATH` replaces the
    /// machine's authorities, `tls_cert=PATH` and `tls_key=PATH` are the client's certificate; each of them enables
    /// TLS. Without these, or with `sslmode=disable`, nothing is encrypted.
    ///
    /// # Errors
    /// `Misconfigured` for an invalid URL, unusable TLS files, and modes under which encryption or verification is
    /// optional. No error contains the URL, since it may hold a password.
    pub fn new(url: &str) -> Result<Self> {
        let refused = |why: String| Error::new(ErrorKind::Misconfigured, why);
        // The client also accepts `host=… sslmode=…`, whose TLS settings would be ignored here.
        if !["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
            return Err(refused(
                "the ledger's URL is invalid: it must begin with postgres:// or postgresql://, as in \
                 postgres://[user[:password]@]host[:port]/database"
                    .to_owned(),
            ));
        }
        let (url, tls) = crate::tls::take(url)?;
        let mut config: Config = url.parse().map_err(|_| {
            refused("the ledger's URL is invalid: write postgres://[user[:password]@]host[:port]/database".to_owned())
        })?;
        if config.get_hosts().is_empty() {
            return Err(refused("the ledger's URL has no host".to_owned()));
        }
        config.ssl_mode(match tls {
            Some(_) => SslMode::Require,
            None => SslMode::Disable,
        });
        if config.get_application_name().is_none() {
            config.application_name("tenure");
        }
        // A standby serves stale data.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(Self {
            config,
            tls,
            pool_size: 16,
            waiting: 1_024,
            call_timeout: Duration::from_millis(500),
            batch_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(2),
            max_lifetime: Duration::from_secs(30 * 60),
            migrate: true,
        })
    }

    /// The address without secrets.
    #[must_use]
    pub fn place(&self) -> String {
        let ports = self.config.get_ports();
        let port = |n: usize| ports.get(n).or(ports.first()).copied().unwrap_or(5432);
        let hosts: Vec<String> = self
            .config
            .get_hosts()
            .iter()
            .enumerate()
            .map(|(n, host)| match host {
                Host::Tcp(name) => format!("{name}:{}", port(n)),
                Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        let database = self.config.get_dbname().unwrap_or_default();
        format!("postgres://{}/{database}", hosts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_contains_no_secret() {
        let options = PostgresOptions::new("postgres://me:s3cret@db1:5433,db2/app?connect_timeout=3").unwrap();
        assert_eq!(options.place(), "postgres://db1:5433,db2:5432/app");
        assert!(!format!("{options:?}").contains("s3cret"));
    }

    #[test]
    fn errors_about_a_url_do_not_contain_its_password() {
        for url in [
            "s3cret",
            "mysql://a:s3cret@b/c",
            "host=b dbname=c user=a password=s3cret sslmode=require",
            "postgres://a:s3cret@b/c?%73slmode=require",
            "postgres://a:s3cret@b/c?sslmode=prefer",
            "postgres:///app",
        ] {
            let error = PostgresOptions::new(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured);
            assert!(!error.chain().contains("s3cret"), "{error:?}");
        }
    }
}
