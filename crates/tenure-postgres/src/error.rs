//! What the database and the way to it say, and the errors that becomes.

use tenure_core::error::Outcome;
use tenure_core::{Error, ErrorKind, StoreTime};
use tokio_postgres::error::{DbError, SqlState};

use crate::tls;

/// Raised by steps that come after their time.
pub(crate) const TOO_LATE: &str = "TN001";
/// Raised by steps about what is not there.
const NOT_FOUND: &str = "TN404";

/// How far a statement had come when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No statement was sent.
    Connecting,
    /// It was sent, and changes nothing.
    Reading,
    /// It was sent, and may change something.
    Writing,
}

impl Stage {
    /// What a reply that never came means.
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

/// What the connection says. Only while it is made do its words tell why it was refused, and that nothing changed:
/// an alert that ends one in mid-statement says nothing of the statement.
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
        "the ledger's database is only readable just now: it is a standby, or its primary was made read-only",
        Outcome::Unchanged,
    )
}

/// Connecting to a server that is not the one asked for.
fn says_read_only(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error)
        .and_then(|cause| cause.downcast_ref::<std::io::Error>())
        .is_some_and(|cause| cause.kind() == std::io::ErrorKind::PermissionDenied)
}

/// A reply of the database: what it refuses it has undone, but where it says that it does not know.
fn of_database(said: &DbError, stage: Stage) -> Error {
    let (code, message) = (said.code().code(), said.message());
    let unavailable = |message: &'static str| Error::unavailable(message, Outcome::Unchanged);
    match code {
        TOO_LATE => Error::too_late(),
        NOT_FOUND => Error::new(ErrorKind::NotFound, message.to_owned()),
        "25006" => read_only(),
        "53300" | "53400" => unavailable("the ledger's database has no connection left for us"),
        "57P01" | "57P02" | "57P03" | "57P05" => unavailable("the ledger's database is starting or stopping"),
        "55P03" | "57014" => unavailable("the ledger's database did not get to it in time"),
        "40001" | "40P01" => unavailable("another step was in the way each time; try again"),
        // Poolers speak like this, about clients as well as about what is behind them.
        "08P01" if stage == Stage::Connecting || was_never_run(message) => {
            unavailable("the pooler before the ledger's database has no connection for us")
        }
        _ if code.starts_with("08") || code == "40003" => {
            Error::unavailable("the connection to the ledger's database was lost", stage.lost())
        }
        _ if code.starts_with("53") || code.starts_with("58") => unavailable("the ledger's database is out of means"),
        _ if code.starts_with("28") || code == "42501" => Error::new(
            ErrorKind::Denied,
            "the ledger's database denies what Tenure needs; look at the user, its password and its rights",
        ),
        "3D000" => Error::new(
            ErrorKind::Misconfigured,
            "there is no database of that name; make it first",
        ),
        "3F000" | "42P01" | "42883" | "42703" => Error::new(
            ErrorKind::Misconfigured,
            "the ledger's schema is gone or is another one; restore it: this program looks again at the next call",
        ),
        _ => Error::new(
            ErrorKind::Internal,
            "the ledger's database refuses a statement; please report it",
        ),
    }
}

/// What PgBouncer says of a statement that it did not pass on.
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

/// Whether the same statement may simply be sent again.
pub(crate) fn is_worth_another_try(error: &tokio_postgres::Error) -> bool {
    matches!(
        error.code(),
        Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED)
    )
}

/// Whether the connection has had its day: it leads to a server that is no primary, or is about to end.
pub(crate) fn ends_the_connection(error: &tokio_postgres::Error) -> bool {
    error.code().is_none_or(|code| {
        let code = code.code();
        code == "25006" || code.starts_with("57P") || code.starts_with("08")
    })
}

/// The ledger's time, from a step that came too late.
pub(crate) fn time_of_refusal(error: &tokio_postgres::Error) -> Option<StoreTime> {
    let said = error.as_db_error().filter(|said| said.code().code() == TOO_LATE)?;
    said.detail()?.parse().ok().map(StoreTime::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_while_connecting_do_the_words_of_a_connection_tell_that_nothing_changed() {
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
