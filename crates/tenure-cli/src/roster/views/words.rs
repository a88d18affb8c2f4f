//! What the words of an application's status mean.

use tenure_core::ledger::Status;
use tenure_postgres::{Column, Table};

use crate::exit::Usage;
use crate::nearest::unknown;

/// Words of applications for each status.
const WORDS: [(Status, &[&str]); 5] = [
    (
        Status::Pending,
        &[
            "pending",
            "offered",
            "new",
            "requested",
            "open",
            "created",
            "queued",
            "waiting",
            "assigned",
        ],
    ),
    (
        Status::Active,
        &[
            "active",
            "accepted",
            "in_progress",
            "started",
            "running",
            "ongoing",
            "confirmed",
            "picked_up",
        ],
    ),
    (
        Status::Ended,
        &[
            "ended",
            "done",
            "finished",
            "completed",
            "complete",
            "closed",
            "delivered",
            "resolved",
        ],
    ),
    (
        Status::Expired,
        &["expired", "timed_out", "timeout", "lapsed", "missed"],
    ),
    (
        Status::Cancelled,
        &["cancelled", "canceled", "rejected", "declined", "aborted", "refused"],
    ),
];

/// Whether two words mean the same status.
pub(super) fn keeps(words: &[(String, Status)]) -> bool {
    let count = |status| words.iter().filter(|(_, of)| *of == status).count();
    Status::ALL.into_iter().any(|status| count(status) > 1)
}

/// The first word of a status.
pub(super) fn word(words: &[(String, Status)], status: Status) -> Option<&str> {
    words
        .iter()
        .find(|(_, of)| *of == status)
        .map(|(word, _)| word.as_str())
}

/// What each word of a status means: as the flag says, else as it is usual.
pub(super) fn words_of(table: &Table, column: &Column, given: &[String]) -> Result<Vec<(String, Status)>, Usage> {
    let mut words = said_words(table, column, given)?;
    let place = format!("{}.{}", table.name, column.name);
    if column.values.is_empty() && words.is_empty() {
        let message = format!(
            "{place} is a text whose values no CHECK lists; say what all of them mean with --words, as in \
             offered=pending,accepted=active,done=ended"
        );
        return Err(Usage::new(message));
    }
    let mut strange = Vec::new();
    for value in &column.values {
        if words.iter().any(|(word, _)| word == value) {
            continue;
        }
        match usual(value) {
            Some(status) => words.push((value.clone(), status)),
            None => strange.push(value.as_str()),
        }
    }
    if let [first, ..] = strange[..] {
        let message = format!(
            "{place} can be {}, and what that means is unknown; say it with --words {first}=STATUS, which is pending, active, \
             ended, expired or cancelled",
            strange.join(", ")
        );
        return Err(Usage::new(message));
    }
    let is_closed = column.enumeration || (keeps(&words) && !column.values.is_empty());
    let missing = Status::ALL.into_iter().find(|status| word(&words, *status).is_none());
    if let Some(status) = missing.filter(|_| is_closed).map(Status::as_str) {
        let message = format!(
            "{place} has no word for {status}, which Tenure may write; first allow one more ({}), or give one of its words this \
             meaning with --words WORD={status}",
            if column.enumeration {
                "ALTER TYPE … ADD VALUE"
            } else {
                "a wider CHECK"
            }
        );
        return Err(Usage::new(message));
    }
    Ok(words)
}

/// The words of the flag.
fn said_words(table: &Table, column: &Column, given: &[String]) -> Result<Vec<(String, Status)>, Usage> {
    let mut words: Vec<(String, Status)> = Vec::new();
    for pair in given {
        let parts = pair.split_once('=').filter(|(word, _)| !word.is_empty());
        let Some((word, status)) = parts else {
            let message = format!("--words {pair}: write WORD=STATUS, as in accepted=active");
            return Err(Usage::new(message));
        };
        let Some(status) = Status::parse(status) else {
            let all = Status::ALL.map(Status::as_str).join(", ");
            return Err(Usage::new(format!(
                "--words {pair}: there is no status \"{status}\"; there are {all}"
            )));
        };
        if !column.values.is_empty() && !column.values.iter().any(|value| value == word) {
            let values: Vec<&str> = column.values.iter().map(String::as_str).collect();
            let message = unknown("word", word, &values, "--words", "");
            return Err(Usage::new(format!(
                "--words {pair}: {}.{} has {message}",
                table.name, column.name
            )));
        }
        words.push((word.to_owned(), status));
    }
    Ok(words)
}

/// What a word means in most applications.
fn usual(value: &str) -> Option<Status> {
    let value = value.to_lowercase();
    let known = WORDS.iter().find(|(_, words)| words.contains(&value.as_str()));
    known.map(|(status, _)| *status)
}
