//! Maps failures of the database and of the connection to errors.

use tenure_core::error::Outcome;
use tenure_core::{Error, ErrorKind, StoreTime};
use tokio_postgres::error::{DbError, SqlState};

use crate::tls;

/// Raised by steps past their not-after.
pub(crate) const TOO_LATE: &str = "TN001";
/// Raised by steps on a row that does not exist.
const NOT_FOUND: &str = "TN404";

/// How far a statement had got when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No statement was sent.
    Connecting,
    /// It was sent, and changes no data.
    Reading,
    /// It was sent, and may change data.
    Writing,
}

impl Stage {
    /// The outcome if its reply is lost.
    pub(crate) fn lost(self) -> Outcome {
        match self {
            Self::Connecting | Self::Reading => Outcome::Unchanged,
            Self::Writing => Outcome::Unknown,
        }
    }
}

/// The error for the caller.
pub(crate) fn classify(error: tokio_postgres::Error, stage: Stage) -> Error {
    let outer = match error.as_db_error() {
        Some(said) => of_database(said, stage),
        None => of_connection(&chain(&error), says_read_only(&error), stage),
    };
    outer.because(error)
}

/// The error of a connection. Only while connecting does its message explain a refusal and prove that nothing changed:
/// an alert during a statement says nothing about the statement.
fn of_connection(words: &str, read_only_server: bool, stage: Stage) -> Error {
    if stage != Stage::Connecting {
        return Error::unavailable("the connection to the ledger's database was lost", stage.lost());
    }
    if read_only_server {
        return read_only();
    }
    tls::explain(words)
        .unwrap_or_else(|| Error::unavailable("the ledger's database cannot be reached", Outcome::Unchanged))
}

/// An error with all its causes.
fn chain(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

fn read_only() -> Error {
    Error::unavailable(
        "the ledger's database is read-only: it is a standby, or a primary with writes turned off",
        Outcome::Unchanged,
    )
}

/// Whether the server is not a primary.
fn says_read_only(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error)
        .and_then(|cause| cause.downcast_ref::<std::io::Error>())
        .is_some_and(|cause| cause.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Maps an error reply: a refused statement was rolled back, unless the code says that the outcome is unknown.
fn of_database(said: &DbError, stage: Stage) -> Error {
    let (code, message) = (said.code().code(), said.message());
    let unavailable = |message: &'static str| Error::unavailable(message, Outcome::Unchanged);
    match code {
        TOO_LATE => Error::too_late(),
        NOT_FOUND => Error::new(ErrorKind::NotFound, message.to_owned()),
        "25006" => read_only(),
        "53300" | "53400" => unavailable("the ledger's database has no connection left"),
        "57P01" | "57P02" | "57P03" | "57P05" => unavailable("the ledger's database is starting or stopping"),
        "55P03" | "57014" => unavailable("the ledger's database timed out"),
        "40001" | "40P01" => unavailable("concurrent steps conflicted each time; try again"),
        // Poolers use this code for their clients as well as for the server.
        "08P01" if stage == Stage::Connecting || was_never_run(message) => {
            unavailable("the pooler of the ledger's database has no free connection")
        }
        _ if code.starts_with("08") || code == "40003" => {
            Error::unavailable("the connection to the ledger's database was lost", stage.lost())
        }
        _ if code.starts_with("53") || code.starts_with("58") => {
            unavailable("the ledger's database is out of resources")
        }
        _ if code.starts_with("28") || code == "42501" => Error::new(
            ErrorKind::Denied,
            "the ledger's database denied access; check the user, its password and its rights",
        ),
        "3D000" => Error::new(ErrorKind::Misconfigured, "no database of that name; create it first"),
        "3F000" | "42P01" | "42883" | "42703" => Error::new(
            ErrorKind::Misconfigured,
            "the ledger's schema is missing or foreign; restore it: this program checks it again with the next call",
        ),
        _ => Error::new(
            ErrorKind::Internal,
            "the ledger's database rejected a statement; please report it",
        ),
    }
}

/// Whether PgBouncer says that it did not forward a statement.
fn was_never_run(message: &str) -> bool {
    [
        "query_wait_timeout",
        "cannot connect to server",
        "no more connections allowed",
        "pgbouncer cannot",
    ]
    .iter()
    .any(|sign| message.contains(sign))
}

/// Whether the same statement can be sent again.
pub(crate) fn is_worth_another_try(error: &tokio_postgres::Error) -> bool {
    matches!(
        error.code(),
        Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED)
    )
}

/// Whether the connection must be dropped: its server is not a primary, or it is about to close.
pub(crate) fn ends_the_connection(error: &tokio_postgres::Error) -> bool {
    error.code().is_none_or(|code| {
        let code = code.code();
        code == "25006" || code.starts_with("57P") || code.starts_with("08")
    })
}

/// The ledger's time in the refusal of a late step.
pub(crate) fn time_of_refusal(error: &tokio_postgres::Error) -> Option<StoreTime> {
    let said = error.as_db_error().filter(|said| said.code().code() == TOO_LATE)?;
    said.detail()?.parse().ok().map(StoreTime::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connect_error_proves_that_nothing_changed() {
        let alert = "error communicating with the server: received fatal alert: BadRecordMac";
        for (words, read_only, kind) in [
            (alert, false, ErrorKind::Denied),
            (
                "invalid peer certificate: UnknownIssuer",
                false,
                ErrorKind::Misconfigured,
            ),
            ("error connecting to server", true, ErrorKind::Unavailable),
            ("connection refused", false, ErrorKind::Unavailable),
        ] {
            for (stage, kind, outcome) in [
                (Stage::Connecting, kind, Outcome::Unchanged),
                (Stage::Reading, ErrorKind::Unavailable, Outcome::Unchanged),
                (Stage::Writing, ErrorKind::Unavailable, Outcome::Unknown),
            ] {
                let error = of_connection(words, read_only, stage);
                assert_eq!(
                    (error.kind(), error.outcome()),
                    (kind, outcome),
                    "{words} while {stage:?}"
                );
            }
        }
    }
}
