//! One error for several callers.

use tenure_core::error::{Error, ErrorKind};

/// The same error once more, for everyone who waited for it; its causes become part of the sentence.
pub(crate) fn copy_of(error: &Error) -> Error {
    let copy = match error.kind() {
        ErrorKind::Unavailable => Error::unavailable(error.chain(), error.outcome()),
        kind => Error::new(kind, error.chain()),
    };
    match error.retry_after() {
        Some(after) => copy.with_retry_after(after),
        None => copy,
    }
}
