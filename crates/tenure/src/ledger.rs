//! Opens ledgers by URL. A ledger is the durable truth about rosters.
//!
//! | URL | ledger |
//! |---|---|
//! | `memory:` | everything in this process, lost when it ends; for trials |
//! | `sqlite:PATH` | one file of its own, owned by one process |
//! | `postgres://[USER[:PASSWORD]@]HOST[:PORT][,HOST2…]/DATABASE`, `postgresql://…` | a Postgres database, shared by any number |
//!
//! No error repeats a URL, because a URL may hold a password.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::Clock;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::ledger::{Ledger, MemoryLedger};
use tenure_core::store::{Finding, Severity, Store};

/// The supported schemes, for messages.
const SCHEMES: &str = "memory:, sqlite:PATH and postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE";

/// Opens the ledger at a URL. Call it on the runtime on which the ledger is used: connections live there.
///
/// A Postgres database is not contacted yet. The first call connects, checks the schema, and creates or updates it, so
/// a program can start while the database is down. [`Ledger::examine`] reports problems.
///
/// # Errors
/// `Misconfigured` for a URL that is not a ledger's, and for a file that another process owns, that is damaged, or that
/// holds something else (the file is not changed); `Unsupported` for a kind of ledger that this program was built
/// without.
pub async fn open(url: &str, clock: Arc<dyn Clock>) -> Result<Arc<dyn Ledger>> {
    let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        return Err(misconfigured(format!(
            "the ledger's URL has no scheme; use one of {SCHEMES}"
        )));
    };
    match scheme {
        "memory" if rest.is_empty() => Ok(MemoryLedger::new(clock)),
        "memory" => Err(misconfigured("memory: takes no address; write memory:".to_owned())),
        "sqlite" => open_sqlite(rest, clock).await,
        "postgres" | "postgresql" => open_postgres(url, clock),
        "valkey" | "redis" | "valkeys" | "rediss" => Err(misconfigured(format!(
            "{scheme}:// is a store, not a ledger: its latest writes may be lost; use one of {SCHEMES}"
        ))),
        "http" | "https" => Err(misconfigured(format!(
            "{scheme}:// is a daemon, which has its own ledger: use it as the store; for a ledger use one of {SCHEMES}"
        ))),
        // Only the scheme is shown: the rest may hold a password.
        _ => {
            let shown: String = scheme.chars().take(32).collect();
            Err(misconfigured(format!(
                "{shown:?} is not a ledger scheme; use one of {SCHEMES}"
            )))
        }
    }
}

/// Whether the text can be a scheme (RFC 3986, section 3.1). Anything else may be a password and is not shown.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

fn misconfigured(message: String) -> Error {
    Error::new(ErrorKind::Misconfigured, message)
}

#[cfg(not(all(feature = "postgres", feature = "sqlite")))]
fn left_out(what: &str, feature: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("this program was built without {what}; enable the feature `{feature}`"),
    )
}

#[cfg(feature = "sqlite")]
async fn open_sqlite(path: &str, clock: Arc<dyn Clock>) -> Result<Arc<dyn Ledger>> {
    use tenure_sqlite::SqliteLedger;
    // Both sqlite:/var/lib/x.db and sqlite:///var/lib/x.db are common for the same file.
    let path = path.strip_prefix("//").unwrap_or(path).to_owned();
    match path.as_str() {
        "" => {
            return Err(misconfigured(
                "the ledger's URL has no path; write sqlite:PATH, for example sqlite:ledger.db".to_owned(),
            ));
        }
        ":memory:" => {
            return Err(misconfigured(
                "sqlite::memory: is not supported; write memory: for a ledger without a file".to_owned(),
            ));
        }
        _ => {}
    }
    let opened = tokio::task::spawn_blocking(move || SqliteLedger::open(path, clock)).await;
    let opened = opened.map_err(|error| Error::new(ErrorKind::Internal, "opening the file panicked").because(error))?;
    Ok(opened?)
}

#[cfg(not(feature = "sqlite"))]
async fn open_sqlite(_: &str, _: Arc<dyn Clock>) -> Result<Arc<dyn Ledger>> {
    Err(left_out("SQLite", "sqlite"))
}

/// The difference of the clocks of a store and its ledger from which answers are wrong: freshness is measured in seconds.
const CLOCKS_APART: Duration = Duration::from_secs(1);

/// Examines a ledger beside the store that it belongs to: [`Ledger::examine`], whether it takes writes, and whether the
/// clocks of both agree.
pub async fn examine(ledger: &dyn Ledger, store: &dyn Store) -> Vec<Finding> {
    let mut findings = ledger.examine().await;
    findings.push(match ledger.next_version().await {
        Ok(_) => Finding::new("ledger writes", Severity::Ok, "it takes writes"),
        Err(error) => Finding::new("ledger writes", Severity::Error, error.chain()),
    });
    findings.extend(hot_store(ledger, store).await);
    // Either order of the two reads makes the later one seem ahead, so the store is read twice.
    let (before, at, after) = (store.now().await, ledger.now().await, store.now().await);
    if let (Ok(before), Ok(at), Ok(after)) = (before, at, after) {
        let (behind, ahead) = (before.since(at), at.since(after));
        let detail = match (behind.is_zero(), ahead.is_zero()) {
            (false, _) => format!("the ledger's clock is {behind:?} behind the store's"),
            (_, false) => format!("the ledger's clock is {ahead:?} ahead of the store's"),
            _ => "the clocks of the ledger and the store agree".to_owned(),
        };
        let apart = behind.max(ahead) > CLOCKS_APART;
        let severity = if apart { Severity::Warning } else { Severity::Ok };
        let advice =
            "; without the hot store, providers count as fresh for too short or too long: synchronize the clocks";
        let detail = format!("{detail}{}", if apart { advice } else { "" });
        findings.push(Finding::new("ledger and store clocks", severity, detail));
    }
    findings
}

/// Whether the ledger has another hot store on record; nothing if either does not answer.
async fn hot_store(ledger: &dyn Ledger, store: &dyn Store) -> Option<Finding> {
    let recorded = ledger.hot_store().await.ok()??;
    let own = store.identity().await.ok()??;
    let (hot_store, place) = (&recorded.hot_store, store.place());
    let is_same = hot_store.id == own;
    let severity = if is_same { Severity::Ok } else { Severity::Error };
    let detail = match is_same {
        true => format!("{hot_store} is the hot store of the ledger"),
        false => format!(
            "the ledger belongs to the hot store {hot_store}, confirmed {} s ago, and this one is {place} (data {own}); use the \
             same store, or replace the other one: tenure roster hot-store --replace",
            recorded.confirmed_ago.as_secs()
        ),
    };
    Some(Finding::new("ledger and hot store", severity, detail))
}

#[cfg(feature = "postgres")]
fn open_postgres(url: &str, clock: Arc<dyn Clock>) -> Result<Arc<dyn Ledger>> {
    use tenure_postgres::{PostgresLedger, PostgresOptions};
    Ok(PostgresLedger::new(PostgresOptions::new(url)?, clock))
}

#[cfg(not(feature = "postgres"))]
fn open_postgres(_: &str, _: Arc<dyn Clock>) -> Result<Arc<dyn Ledger>> {
    Err(left_out("Postgres", "postgres"))
}

#[cfg(test)]
mod tests;
