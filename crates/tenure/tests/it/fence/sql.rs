//! Helpers for a sink in Postgres.

use std::time::Duration;

use tenure::fence::POSTGRES;
use tenure_testkit::postgres::shared;
use tenure_testkit::wait::until_async;
use tokio_postgres::{Client, Error, NoTls};

pub(crate) const SOON: Duration = Duration::from_secs(40);

/// The URL of a database with the fence; `None` if this machine lacks a server.
pub(crate) async fn sink() -> Option<String> {
    let database = tokio::task::spawn_blocking(|| Some(shared()?.database()))
        .await
        .unwrap()?;
    connect(&database).await.batch_execute(POSTGRES).await.unwrap();
    Some(database)
}

/// A session with a statement time-out.
pub(crate) async fn connect(database: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(database, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("SET statement_timeout = '40s'").await.unwrap();
    client
}

/// Presents a token for the resource `r`.
pub(crate) async fn fence(client: &Client, token: i64) -> Result<i64, Error> {
    let row = client.query_one("SELECT tenure_fence('r', $1)", &[&token]).await?;
    Ok(row.get(0))
}

/// The outcome of a write: `ok`, or the SQLSTATE of its error.
pub(crate) fn outcome<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.code().unwrap_or_else(|| panic!("{error}")).code().to_owned(),
    }
}

/// Waits until a session of this database waits for a lock.
pub(crate) async fn until_one_waits(watcher: &Client) {
    until_async("a session waits for a lock", SOON, async || {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        watcher.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
}
