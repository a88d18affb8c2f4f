//! Checks for problems of a ledger on Postgres.

use tenure_core::store::{Finding, Severity};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::migrate;

const LOOK: &str = include_str!("sql/examine.sql");

/// Runs all checks. A check that fails to run is a finding.
pub(crate) async fn examine(client: &Client) -> Vec<Finding> {
    let messages = match client.simple_query(LOOK).await {
        Ok(messages) => messages,
        Err(error) => {
            return vec![Finding::new(
                "ledger",
                Severity::Error,
                format!("it cannot be examined: {error}"),
            )];
        }
    };
    let Some(row) = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    }) else {
        return vec![Finding::new("ledger", Severity::Error, "it returned no row")];
    };
    let cell = |name: &str| row.get(name).unwrap_or_default();
    let mut findings = Vec::new();
    let mut find = |check: &str, is_well: bool, severity: Severity, detail: String| {
        findings.push(Finding::new(
            check,
            if is_well { Severity::Ok } else { severity },
            detail,
        ));
    };
    let number: u32 = cell("server_version_num").parse().unwrap_or(0);
    let version = format!("PostgreSQL {}; 13 or newer is needed", cell("server_version"));
    find("ledger version", number >= 130_000, Severity::Error, version);
    let (standby, read_only) = (cell("standby") == "t", cell("read_only") == "on");
    let role = match (standby, read_only) {
        (true, _) => "this is a standby, which takes no writes; name the primary in the URL",
        (_, true) => "it takes no writes (default_transaction_read_only is on); let this role or database write",
        _ => "a primary that takes writes",
    };
    find("ledger role", !standby && !read_only, Severity::Error, role.to_owned());
    let schema = format!("schema {} of {}", cell("schema_version"), migrate::version());
    find(
        "ledger schema",
        cell("schema_version") == migrate::version().to_string(),
        Severity::Error,
        schema,
    );
    let encoding = cell("encoding");
    let detail = format!("the encoding is {encoding}; another than UTF8 cannot hold every name");
    find("ledger encoding", encoding == "UTF8", Severity::Error, detail);
    let isolation = cell("isolation");
    let advice =
        format!("default_transaction_isolation is {isolation}; others than read committed cost repeated tries");
    find(
        "ledger isolation",
        isolation == "read committed",
        Severity::Warning,
        advice,
    );
    let commit = cell("synchronous_commit");
    let advice = format!("synchronous_commit is {commit}; with off the last changes are lost in a crash of the server");
    find("ledger durability", commit != "off", Severity::Warning, advice);
    let fsync = format!(
        "fsync is {}; without it a crash of the machine can destroy the database",
        cell("fsync")
    );
    find("ledger fsync", cell("fsync") == "on", Severity::Warning, fsync);
    let timeout = cell("statement_timeout");
    let advice = format!(
        "statement_timeout is {timeout}; ALTER ROLE … SET statement_timeout = '10s' makes the server give up by itself \
         what was cancelled in vain"
    );
    find("ledger statement timeout", timeout != "0", Severity::Warning, advice);
    findings
}
