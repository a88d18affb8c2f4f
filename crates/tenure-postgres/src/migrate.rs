//! The schema: the first process to start creates or updates it; a schema newer than the program is refused.

use tenure_core::error::Outcome;
use tenure_core::{Error, ErrorKind, Result};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::error::{Stage, classify};

/// All migrations, in order. A released migration never changes: append only.
const MIGRATIONS: &[(&str, &str)] = &[(
    "schema",
    concat!(
        include_str!("sql/schema/tables.sql"),
        include_str!("sql/schema/triggers.sql"),
        include_str!("sql/schema/log.sql"),
        include_str!("sql/schema/reading.sql"),
        include_str!("sql/schema/steps.sql"),
        include_str!("sql/schema/heartbeats.sql"),
        include_str!("sql/schema/engagements.sql"),
    ),
)];
const PREPARE: &str = include_str!("sql/prepare.sql");
const PRESENT: &str = include_str!("sql/present.sql");
const APPLIED: &str = include_str!("sql/applied.sql");
const LOCK: &str = include_str!("sql/lock.sql");
const ENCODING: &str = "SHOW server_encoding";

/// The schema version of this program.
pub(crate) fn version() -> usize {
    MIGRATIONS.len()
}

/// The allowed change to the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchemaChange {
    /// None: only check it.
    Forbidden,
    /// Update an existing schema to this program's version.
    Update,
    /// Update it, or create it.
    Create,
}

/// Updates the schema to this program's version.
///
/// All migrations run in one transaction under an advisory lock that ends with it. Concurrent programs therefore run
/// them once, also through a pooler.
pub(crate) async fn migrate(client: &Client, allowed: SchemaChange) -> Result<()> {
    let applied = read_applied(client).await?.len();
    if applied == MIGRATIONS.len() {
        return Ok(());
    }
    let misconfigured = |message| Err(Error::new(ErrorKind::Misconfigured, message));
    match allowed {
        SchemaChange::Forbidden => {
            return misconfigured(
                "the ledger's schema is missing or older than this program, and this one may not change it; start one with \
                 migrations enabled first",
            );
        }
        SchemaChange::Update if applied == 0 => {
            return misconfigured(
                "the ledger's schema was removed; restore it, or restart this program to create an empty one",
            );
        }
        SchemaChange::Update | SchemaChange::Create => {}
    }
    check_encoding(client).await?;
    run(client, LOCK).await?;
    let done = update(client).await;
    let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = run(client, end).await;
    done.and(ended)
}

/// Refuses a database that cannot hold every name.
async fn check_encoding(client: &Client) -> Result<()> {
    let messages = client
        .simple_query(ENCODING)
        .await
        .map_err(|error| classify(error, Stage::Reading))?;
    match cells(&messages).first().map(String::as_str) {
        Some("UTF8") | None => Ok(()),
        Some(other) => {
            let message = format!(
                "the ledger's database has the encoding {other} and needs UTF8: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE                  template0"
            );
            Err(Error::new(ErrorKind::Misconfigured, message))
        }
    }
}

async fn update(client: &Client) -> Result<()> {
    // Another program may have updated it before the lock was granted.
    let applied = read_applied(client).await?;
    if applied.is_empty() {
        run(client, PREPARE).await?;
    }
    for (n, (name, text)) in MIGRATIONS.iter().enumerate().skip(applied.len()) {
        run(client, &crate::planted::alter(text)).await?;
        let number = n + 1;
        let checksum = checksum(text);
        run(
            client,
            &format!(
                "INSERT INTO tenure.migrations (number, name, checksum) VALUES ({number}, '{name}', '{checksum}')"
            ),
        )
        .await?;
        tracing::info!(number, name, "the ledger's schema was updated");
    }
    Ok(())
}

/// The checksums of the applied migrations, after checking that they are a prefix of the known ones.
async fn read_applied(client: &Client) -> Result<Vec<String>> {
    let messages = client
        .simple_query(PRESENT)
        .await
        .map_err(|error| classify(error, Stage::Reading))?;
    if cells(&messages) != ["t"] {
        return Ok(Vec::new());
    }
    let messages = client
        .simple_query(APPLIED)
        .await
        .map_err(|error| classify(error, Stage::Reading))?;
    let applied = cells(&messages);
    for ((name, text), theirs) in MIGRATIONS.iter().zip(&applied) {
        if checksum(text) != *theirs {
            return Err(Error::new(
                ErrorKind::Misconfigured,
                format!(
                    "the step {name:?} of the ledger's schema was made by another build of this program; use the build that \
                     made it, another database, or remove the schema with all its rows: DROP SCHEMA tenure CASCADE"
                ),
            ));
        }
    }
    if applied.len() > MIGRATIONS.len() {
        return Err(Error::new(
            ErrorKind::Misconfigured,
            format!(
                "the ledger's schema has version {}, and this program knows those up to {}; update the program",
                applied.len(),
                MIGRATIONS.len()
            ),
        ));
    }
    Ok(applied)
}

fn cells(messages: &[SimpleQueryMessage]) -> Vec<String> {
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
        _ => None,
    };
    messages.iter().filter_map(row).collect()
}

async fn run(client: &Client, statements: &str) -> Result<()> {
    client.batch_execute(statements).await.map_err(|error| {
        let kind = error.code().map(|code| code.code().to_owned());
        match kind.as_deref() {
            Some("55P03") => {
                Error::unavailable("another program is updating the ledger's schema", Outcome::Unchanged).because(error)
            }
            _ => classify(error, Stage::Writing),
        }
    })
}

/// FNV-1a, 64 bits (Fowler, Noll and Vo): it detects a changed file, not an adversary.
fn checksum(text: &str) -> String {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
}
