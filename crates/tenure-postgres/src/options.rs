//! Where the database is, and how long it may take.

use std::time::Duration;

use tenure_core::{Error, ErrorKind, Result};
use tenure_tls::ClientTls;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// How a ledger on Postgres is reached.
#[derive(Clone)]
pub struct PostgresOptions {
    /// The database.
    pub(crate) config: Config,
    /// The files of TLS, if it is spoken.
    pub(crate) tls: Option<ClientTls>,
    /// The most connections this process has to it.
    pub pool_size: usize,
    /// How many calls may wait for a connection; more are refused at once.
    pub waiting: usize,
    /// How long a call may take, from the wait for a connection to the answer.
    pub call_timeout: Duration,
    /// How long a call about many rows may take: those of the sweeps.
    pub batch_timeout: Duration,
    /// How long connecting may take. It goes on for the next caller when the first has given up.
    pub connect_timeout: Duration,
    /// After which age a connection is replaced, so that a new primary or a new address is found.
    pub max_lifetime: Duration,
    /// Whether to make and update the schema. Without, an older schema is refused.
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
    /// From `postgres://[user[:password]@]host[:port][,host2…]/database` (or `postgresql://…`), with 16 connections,
    /// 500 ms for a call and 5 s for a batch. Of several hosts the primary is found.
    ///
    /// `sslmode=verify-full` speaks TLS, as `require` does, which checks as much; `tls_ca=PATH` names the authorities that
    /// are believed in place of those of the machine, `tls_cert=PATH` and `tls_key=PATH` what is shown to a server that
    /// asks; any of them turns TLS on. Without, or with `sslmode=disable`, nothing is encrypted.
    ///
    /// # Errors
    /// `Misconfigured` for what is not such a URL, for files of TLS that cannot be used, and for modes that leave open
    /// whether anything is encrypted or checked. No error repeats the URL, since it may hold a password.
    pub fn new(url: &str) -> Result<Self> {
        let refused = |why: String| Error::new(ErrorKind::Misconfigured, why);
        // The client also reads `host=… sslmode=…`, of which nothing here would see the settings of TLS.
        if !["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
            return Err(refused(
                "the ledger's URL is refused: it has to begin with postgres:// or postgresql://, as in \
                 postgres://[user[:password]@]host[:port]/database"
                    .to_owned(),
            ));
        }
        let (url, tls) = crate::tls::take(url)?;
        let mut config: Config = url.parse().map_err(|_| {
            refused("the ledger's URL is refused: write postgres://[user[:password]@]host[:port]/database".to_owned())
        })?;
        if config.get_hosts().is_empty() {
            return Err(refused("the ledger's URL names no host".to_owned()));
        }
        config.ssl_mode(match tls {
            Some(_) => SslMode::Require,
            None => SslMode::Disable,
        });
        if config.get_application_name().is_none() {
            config.application_name("tenure");
        }
        // A standby answers from the past.
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

    /// Where it is, without secrets.
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
    fn a_place_tells_no_secret() {
        let options = PostgresOptions::new("postgres://me:s3cret@db1:5433,db2/app?connect_timeout=3").unwrap();
        assert_eq!(options.place(), "postgres://db1:5433,db2:5432/app");
        assert!(!format!("{options:?}").contains("s3cret"));
    }

    #[test]
    fn what_cannot_work_is_refused_without_repeating_a_password() {
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
