//! Copies of one error for several callers.

use tenure_core::error::{Error, ErrorKind};

/// A copy of an error for each waiting caller. Its causes become part of the message.
pub(crate) fn copy_of(error: &Error) -> Error {
    let copy = match error.kind() {
        ErrorKind::Unavailable => Error::unavailable(error.chain(), error.outcome()),
        kind => Error::new(kind, error.chain()),
    };
    let copy = match error.code() {
        Some(code) => copy.with_code(code),
        None => copy,
    };
    match error.retry_after() {
        Some(after) => copy.with_retry_after(after),
        None => copy,
    }
}
