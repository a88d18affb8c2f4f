//! Finds out whether the server still runs a statement whose caller timed out.
//!
//! A statement can wait for a lock or a standby for hours, and closing its connection does not end it. A connection that
//! replaces it would be one more of the server's. A lost reply, on the other hand, would hold its connection forever.

use deadpool::managed::Manager as _;
use tokio::sync::Mutex;
use tokio_postgres::types::Type;

use crate::pool::{Pool, PooledClient};

// Where the server does not show what it runs, every statement counts as running.
const LOOK: &str = include_str!("sql/running.sql");

/// One connection outside the pool, because all of the pool's may be in use.
#[derive(Default)]
pub(crate) struct Running(Mutex<Option<PooledClient>>);

impl Running {
    /// Whether the server runs the statement with this mark; true if that cannot be found out.
    pub(crate) async fn look(&self, pool: &Pool, mark: &str) -> bool {
        let mut kept = self.0.lock().await;
        // Taken, so that a look that is dropped halfway drops its connection.
        let found = match kept.take().filter(|kept| !kept.client.is_closed()) {
            Some(found) => Ok(found),
            None => pool.manager().create().await,
        };
        let Ok(found) = found else { return true };
        let Ok(row) = found.client.query_typed_one(LOOK, &[(&mark, Type::TEXT)]).await else {
            return true;
        };
        *kept = Some(found);
        row.try_get(0).unwrap_or(true)
    }
}
