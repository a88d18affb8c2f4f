//! The connection pool. After a failure it connects with back-off, and it replaces old connections.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool::managed::{self, Metrics, Object, RecycleError, RecycleResult};
use tenure_core::Error;
use tenure_core::clock::{Clock, Mono, within};
use tenure_core::error::Outcome;
use tokio_postgres::error::DbError;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, NoTls, Socket};

use crate::backoff::ConnectBackoff;
use crate::error::{Stage, classify};
use crate::options::PostgresOptions;
use crate::tls;

pub(crate) type Pool = managed::Pool<Manager>;
pub(crate) type Connection = Object<Manager>;

/// A connection and the time at which it is replaced.
pub(crate) struct PooledClient {
    pub(crate) client: Client,
    /// Whether the server said that it stopped waiting for a synchronous standby.
    unconfirmed: Arc<AtomicBool>,
    until: Mono,
}

impl PooledClient {
    /// Whether a commit since the last call may not be on the synchronous standbys.
    pub(crate) fn take_unconfirmed(&self) -> bool {
        self.unconfirmed.swap(false, Ordering::AcqRel)
    }
}

/// A commit whose wait for a standby was cancelled is answered as a success with a warning. Its text is translated, and
/// its code is also that of warnings of other programs' triggers.
fn is_unconfirmed(notice: &DbError) -> bool {
    notice.routine() == Some("SyncRepWaitForLSN")
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
        let (client, unconfirmed) = connected?;
        let spread = tenure_core::clock::jitter(self.clock.as_ref(), self.options.max_lifetime, 10);
        Ok(PooledClient {
            client,
            unconfirmed,
            until: self.clock.mono() + spread,
        })
    }
}

impl Manager {
    async fn connect_with<T>(&self, tls: T) -> Result<(Client, Arc<AtomicBool>), Error>
    where
        T: MakeTlsConnect<Socket>,
        T::Stream: Send + 'static,
    {
        let connected = self.options.config.connect(tls).await;
        let (client, mut connection) = connected.map_err(|error| classify(error, Stage::Connecting))?;
        let unconfirmed = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&unconfirmed);
        // It ends when the client is dropped or the connection closes. A notice comes before the end of its statement.
        tokio::spawn(async move {
            while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                match message {
                    Ok(AsyncMessage::Notice(notice)) if is_unconfirmed(&notice) => seen.store(true, Ordering::Release),
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!(%error, "a connection to the ledger ended");
                        break;
                    }
                }
            }
        });
        Ok((client, unconfirmed))
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

/// Creates a pool without connections. One of the process's connections is for [`crate::running`].
pub(crate) fn pool(options: &PostgresOptions, clock: &Arc<dyn Clock>) -> Pool {
    let manager = Manager::new(options.clone(), Arc::clone(clock));
    Pool::builder(manager)
        .max_size(options.pool_size.saturating_sub(1).max(3))
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

/// Drops a connection and frees its slot in the pool.
pub(crate) fn discard(connection: Connection) {
    drop(Object::take(connection));
}
