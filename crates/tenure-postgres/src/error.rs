//! Maps failures of the database and of the connection to errors.

use tenure_core::error::Outcome;
use tenure_core::escape::server_words;
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
    match error.as_db_error() {
        Some(said) => of_database(said, stage).because(words(said)),
        None => of_connection(&chain(&error), says_read_only(&error), stage).because(error),
    }
}

/// The database's own words. Without its DETAIL, which repeats the values of rows.
fn words(said: &DbError) -> String {
    let hint = said.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
    server_words(&format!(
        "{} {}: {}{hint}",
        said.severity(),
        said.code().code(),
        said.message()
    ))
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
    match code {
        TOO_LATE => Error::too_late(),
        NOT_FOUND => Error::new(ErrorKind::NotFound, message.to_owned()),
        "25006" => read_only(),
        // Poolers use this code for their clients as well as for the server.
        "08P01" if stage == Stage::Connecting || was_never_run(message) => {
            let message = "the pooler of the ledger's database has no free connection";
            Error::unavailable(message, Outcome::Unchanged)
        }
        _ if code.starts_with("08") || code == "40003" => {
            Error::unavailable("the connection to the ledger's database was lost", stage.lost())
        }
        _ => match kind_of(code) {
            (ErrorKind::Unavailable, message) => Error::unavailable(message, Outcome::Unchanged),
            (kind, message) => Error::new(kind, message),
        },
    }
}

/// The kind of a refusal by its SQLSTATE, and what to do about it. The classes that no statement of Tenure raises come from
/// the server, its operator, or what others added to the schema. Only what is left is a bug.
fn kind_of(code: &str) -> (ErrorKind, &'static str) {
    use ErrorKind::{Denied, Internal, Misconfigured, Unavailable};
    match (code.get(..2).unwrap_or_default(), code) {
        (_, "53300" | "53400") => (Unavailable, "the ledger's database has no connection left"),
        (_, "57P03") => (Unavailable, "the ledger's database is starting or stopping"),
        (_, "57P04" | "3D000") => (Misconfigured, "no database of that name; create it first"),
        (_, "57014") => (
            Unavailable,
            "the ledger's database ended the statement, by one of its time-outs or for an administrator; try again",
        ),
        ("57", _) => (
            Unavailable,
            "the ledger's database ended the connection: it stops, or by one of its time-outs, or for an administrator",
        ),
        (_, "55P03") => (
            Unavailable,
            "a lock in the ledger's database was not free in time; try again",
        ),
        (_, "40001" | "40P01") => (Unavailable, "concurrent steps conflicted each time; try again"),
        ("25" | "53" | "54" | "55" | "58" | "F0" | "XX", _) => (
            Unavailable,
            "the ledger's database failed or is out of resources; look at its log",
        ),
        ("28", _) | (_, "42501") => (
            Denied,
            "the ledger's database denied access; check the user, its password and its rights",
        ),
        ("3F", _) | (_, "42P01" | "42883" | "42703") => (
            Misconfigured,
            "the ledger's schema is missing or foreign; restore it: this program checks it again with the next call",
        ),
        ("42", _) => (
            Misconfigured,
            "the schema \"tenure\" of the ledger's database has objects that Tenure did not create; rename that schema, or \
             use another database",
        ),
        ("0A", _) => (
            Misconfigured,
            "the ledger's database does not support a statement; PostgreSQL 13 or newer is needed",
        ),
        (_, "22P05" | "22021") => (
            Misconfigured,
            "the ledger's database cannot hold a character; it needs the encoding UTF8",
        ),
        ("P0" | "23" | "09" | "27" | "2F" | "38" | "39" | "40" | "44" | "HV", _) => (
            Misconfigured,
            "a trigger, constraint or function in the ledger's database refused the change; Tenure's own do not: look at \
             those that were added",
        ),
        _ => (Internal, "the ledger's database rejected a statement; please report it"),
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
    fn only_what_nobody_else_causes_is_a_bug() {
        use ErrorKind::{Denied, Internal, Misconfigured, Unavailable};
        for (codes, kind) in [
            (&["22003", "22012", "21000", "34000", ""][..], Internal),
            (
                &["42P07", "42710", "42723", "42P13", "42703", "3F000", "3D000", "57P04"],
                Misconfigured,
            ),
            (&["P0001", "23514", "23505", "0A000", "22P05", "HV000"], Misconfigured),
            (
                &[
                    "57014", "57P01", "57P05", "25P03", "55006", "XX000", "XX002", "53100", "58030",
                ],
                Unavailable,
            ),
            (&["28P01", "28000", "42501"], Denied),
        ] {
            for code in codes {
                let (found, message) = kind_of(code);
                assert_eq!(found, kind, "{code}");
                assert_eq!(message.contains("report it"), kind == Internal, "{code}");
            }
        }
    }

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
