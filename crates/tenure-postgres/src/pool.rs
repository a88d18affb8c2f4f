//! The connection pool. After a failure it connects with back-off, and it replaces old connections.

use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{self, Metrics, Object, RecycleError, RecycleResult};
use tenure_core::Error;
use tenure_core::clock::{Clock, Mono, within};
use tenure_core::error::Outcome;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{CancelToken, Client, NoTls, Socket};

use crate::backoff::ConnectBackoff;
use crate::error::{Stage, classify};
use crate::options::PostgresOptions;
use crate::tls;

pub(crate) type Pool = managed::Pool<Manager>;
pub(crate) type Connection = Object<Manager>;

/// A connection and the time at which it is replaced.
pub(crate) struct PooledClient {
    pub(crate) client: Client,
    until: Mono,
}

pub(crate) struct Manager {
    options: PostgresOptions,
    clock: Arc<dyn Clock>,
    backoff: ConnectBackoff,
}

impl Manager {
    pub(crate) fn new(options: PostgresOptions, clock: Arc<dyn Clock>) -> Self {
        Self {
            backoff: ConnectBackoff::new(Arc::clone(&clock)),
            options,
            clock,
        }
    }

    async fn connect(&self) -> Result<PooledClient, Error> {
        let connecting = async {
            match &self.options.tls {
                None => self.connect_with(NoTls).await,
                Some(files) => self.connect_with(tls::connector(files).await?).await,
            }
        };
        let Some(connected) = within(self.clock.as_ref(), self.options.connect_timeout, connecting).await else {
            let message = format!(
                "the ledger's database did not answer within {:?}",
                self.options.connect_timeout
            );
            return Err(Error::unavailable(message, Outcome::Unchanged));
        };
        let client = connected?;
        let spread = tenure_core::clock::jitter(self.clock.as_ref(), self.options.max_lifetime, 10);
        Ok(PooledClient {
            client,
            until: self.clock.mono() + spread,
        })
    }
}

impl Manager {
    async fn connect_with<T>(&self, tls: T) -> Result<Client, Error>
    where
        T: MakeTlsConnect<Socket>,
        T::Stream: Send + 'static,
    {
        let connected = self.options.config.connect(tls).await;
        let (client, connection) = connected.map_err(|error| classify(error, Stage::Connecting))?;
        // It ends when the client is dropped or the connection closes.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the ledger ended");
            }
        });
        Ok(client)
    }
}

impl managed::Manager for Manager {
    type Type = PooledClient;
    type Error = Error;

    async fn create(&self) -> Result<PooledClient, Error> {
        let attempt = self.backoff.begin()?;
        let made = self.connect().await;
        match &made {
            Ok(_) => attempt.succeeded(),
            Err(error) => attempt.failed(error),
        }
        made
    }

    async fn recycle(&self, held: &mut PooledClient, _: &Metrics) -> RecycleResult<Error> {
        if held.client.is_closed() {
            return Err(RecycleError::message("it was closed"));
        }
        if self.clock.mono() > held.until {
            return Err(RecycleError::message("it is old"));
        }
        Ok(())
    }
}

/// Creates a pool without connections.
pub(crate) fn pool(options: &PostgresOptions, clock: &Arc<dyn Clock>) -> Pool {
    let manager = Manager::new(options.clone(), Arc::clone(clock));
    Pool::builder(manager)
        .max_size(options.pool_size.max(1))
        .build()
        .unwrap_or_else(|never| unreachable!("a pool without timeouts needs no runtime: {never}"))
}

/// Returns a connection, waiting at most `bound` for a busy one.
pub(crate) async fn get(pool: &Pool, clock: &dyn Clock, bound: Duration) -> Result<Connection, Error> {
    let Some(got) = within(clock, bound, pool.get()).await else {
        return Err(Error::unavailable(
            "all connections to the ledger are busy",
            Outcome::Unchanged,
        ));
    };
    got.map_err(|error| match error {
        managed::PoolError::Backend(error) => error,
        other => Error::unavailable("the ledger was closed", Outcome::Unchanged).because(other.to_string()),
    })
}

/// Requests the cancellation of a statement, over a separate connection with the pool's settings. Only the statement's
/// own reply shows whether it was cancelled.
pub(crate) async fn cancel(pool: &Pool, token: CancelToken) {
    let asked = match &pool.manager().options.tls {
        None => token.cancel_query(NoTls).await,
        Some(files) => match tls::connector(files).await {
            Ok(connector) => token.cancel_query(connector).await,
            Err(error) => {
                tracing::debug!(error = error.chain(), "a statement could not be cancelled");
                return;
            }
        },
    };
    if let Err(error) = asked {
        tracing::debug!(%error, "a statement could not be cancelled");
    }
}

/// Drops a connection and frees its slot in the pool.
pub(crate) fn discard(connection: Connection) {
    drop(Object::take(connection));
}
