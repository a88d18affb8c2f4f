//! A command of the runner, and the error of an operation.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::wire::Code;
use tenure::{Error, ErrorKind, Outcome};

/// What an operation answers.
pub(crate) type Answered = Result<Value, Refusal>;

/// A line of the runner.
pub(crate) struct Command(pub(crate) Value);

impl Command {
    /// A text that the command must have.
    pub(crate) fn text(&self, field: &str) -> Result<&str, Refusal> {
        let missing = || Refusal::bad_command(&format!("the command has no {field:?}: {}", self.0));
        self.optional(field).ok_or_else(missing)
    }

    pub(crate) fn optional(&self, field: &str) -> Option<&str> {
        self.0[field].as_str()
    }

    pub(crate) fn number(&self, field: &str) -> Option<u64> {
        self.0[field].as_u64()
    }

    pub(crate) fn duration(&self, field: &str) -> Option<Duration> {
        self.number(field).map(Duration::from_millis)
    }

    pub(crate) fn flag(&self, field: &str) -> Option<bool> {
        self.0[field].as_bool()
    }

    /// A field that is a JSON object, in the type of the library.
    pub(crate) fn object<T: serde::de::DeserializeOwned + Default>(&self, field: &str) -> Result<T, Refusal> {
        match &self.0[field] {
            Value::Null => Ok(T::default()),
            value => serde_json::from_value(value.clone()).map_err(|error| Refusal::bad_command(&error.to_string())),
        }
    }
}

/// The error of an operation, as the protocol shows it.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Value);

impl Refusal {
    pub(crate) fn bad_command(message: &str) -> Self {
        Self(json!({ "code": "bad_command", "status": 0, "outcome": "unchanged", "message": message }))
    }

    /// What the library answers as a value, and the API as a problem.
    pub(crate) fn of(code: Code, retry_after: Option<Duration>) -> Self {
        Self(json!({
            "code": code.as_str(),
            "status": code.status(),
            "outcome": "unchanged",
            "reason": null,
            "retry_after_ms": retry_after.map(tenure::wire::ms),
            "message": code.title(),
        }))
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let code = match (error.code().and_then(Code::parse), error.kind()) {
            (Some(code), _) => Some(code),
            // No daemon answered.
            (None, ErrorKind::Unavailable) => None,
            (None, _) => Some(Code::of(&error)),
        };
        let reason = match error.kind() {
            ErrorKind::Ended(reason) => Some(reason.as_str()),
            _ => None,
        };
        let outcome = match error.outcome() {
            Outcome::Unchanged => "unchanged",
            Outcome::Unknown => "unknown",
        };
        Self(json!({
            "code": code.map_or("unreachable", Code::as_str),
            "status": code.map_or(0, Code::status),
            "outcome": outcome,
            "reason": reason,
            "retry_after_ms": error.retry_after().map(tenure::wire::ms),
            "message": error.chain(),
        }))
    }
}
