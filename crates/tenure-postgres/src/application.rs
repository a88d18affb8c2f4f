//! Tables of an application in the ledger's database, as its catalogue describes them.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tenure_core::clock::{Clock, within};
use tenure_core::error::Outcome;
use tenure_core::{Error, ErrorKind, Result};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use crate::error::{Stage, classify};
use crate::options::PostgresOptions;
use crate::pool::{self, Pool};

const FIND: &str = include_str!("sql/application/find.sql");
const TABLE: &str = include_str!("sql/application/table.sql");
const NAMES: &str = include_str!("sql/application/names.sql");

/// Whether it can have rows of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableKind {
    /// A table, also a partitioned one.
    Table,
    /// A view.
    View,
    /// A foreign table, a sequence, an index.
    Other,
}

/// A table.
#[derive(Debug, Clone, Deserialize)]
pub struct Table {
    /// Its name with its schema, quoted for a statement.
    pub name: String,
    /// Its schema, quoted for a statement.
    pub schema: String,
    /// Its name alone, not quoted.
    pub bare: String,
    /// What it is.
    pub kind: TableKind,
    /// Its columns in their order.
    pub columns: Vec<Column>,
}

/// A column.
#[derive(Debug, Clone, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its name, quoted for a statement.
    pub quoted: String,
    /// Its type, as in `character varying(80)`.
    pub kind: String,
    /// Whether it is `NOT NULL`.
    pub required: bool,
    /// Whether Postgres computes it from other columns.
    pub generated: bool,
    /// Whether it is `GENERATED ALWAYS AS IDENTITY`.
    pub numbered: bool,
    /// The sequence that it owns, quoted for a statement.
    pub sequence: Option<String>,
    /// The expression of its default.
    pub default: Option<String>,
    /// Whether it alone is the primary key.
    pub primary: bool,
    /// Whether its type is an enum.
    pub enumeration: bool,
    /// The labels of its enum, or the texts that its `CHECK` names.
    pub values: Vec<String>,
    /// The table to which its foreign key points, quoted for a statement.
    pub references: Option<String>,
}

/// Reads the catalogue of a database. It changes nothing, and needs no schema of Tenure.
pub struct Application {
    pool: Pool,
    clock: Arc<dyn Clock>,
    connect_timeout: Duration,
    within: Duration,
}

impl Application {
    /// Of this database, which is not connected yet.
    #[must_use]
    pub fn new(options: &PostgresOptions, clock: Arc<dyn Clock>) -> Self {
        Self {
            pool: pool::pool(options, &clock),
            clock,
            connect_timeout: options.connect_timeout,
            within: options.batch_timeout,
        }
    }

    /// The table of this name, as a statement would name it; `None` if there is none.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn table(&self, name: &str) -> Result<Option<Table>> {
        let described = self.read(async |client| describe(client, name).await).await?;
        described
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|error| {
                let message = "the database returned an unexpected description; please report it";
                Error::new(ErrorKind::Internal, message).because(error)
            })
    }

    /// The names of the first 200 tables outside the schema of Tenure, with their schemas.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn tables(&self) -> Result<Vec<String>> {
        self.read(async |client| {
            let rows = client.query_typed(NAMES, &[]).await?;
            rows.iter().map(|row| row.try_get(0)).collect()
        })
        .await
    }

    async fn read<T>(&self, read: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>) -> Result<T> {
        let connection = pool::get(&self.pool, self.clock.as_ref(), self.connect_timeout).await?;
        let done = within(self.clock.as_ref(), self.within, read(&connection.client)).await;
        // With its transaction, if that is still open.
        pool::discard(connection);
        match done {
            Some(done) => done.map_err(|error| classify(error, Stage::Reading)),
            None => Err(Error::unavailable("the database did not answer", Outcome::Unchanged)),
        }
    }
}

/// In one transaction, because a pooler may give each its own session.
async fn describe(client: &Client, name: &str) -> Result<Option<String>, tokio_postgres::Error> {
    client.batch_execute("BEGIN READ ONLY").await?;
    let found = match client.query_typed_one(FIND, &[(&name, Type::TEXT)]).await {
        // Not a name at all: before version 16 that is an error.
        Err(error) if error.code() == Some(&SqlState::INVALID_NAME) => return Ok(None),
        found => found?,
    };
    let Some(id) = found.try_get::<_, Option<i64>>(0)? else {
        return Ok(None);
    };
    client.batch_execute("SET LOCAL search_path = ''").await?;
    let row = client.query_typed_one(TABLE, &[(&id, Type::INT8)]).await?;
    client.batch_execute("COMMIT").await?;
    row.try_get(0).map(Some)
}
