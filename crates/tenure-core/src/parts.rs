//! Calls that are done in parts, because one step takes a bounded number of items.

use crate::error::{Error, Outcome, Result};

/// How far a call in parts has come.
///
/// An error tells whether the *call* changed anything. What makes a part fail with nothing changed (a full memory, a server
/// that went away, a tenure that ended in between) leaves the parts before it done.
#[derive(Debug, Default)]
pub struct Parts {
    any: bool,
}

impl Parts {
    /// What the next part came to.
    ///
    /// # Errors
    /// The part's own when it is the first; after one that was done `Unavailable` with the outcome `Unknown`, whatever the
    /// part says, since every other kind promises that nothing changed. The part's own is the cause.
    pub fn take<T>(&mut self, part: Result<T>) -> Result<T> {
        let error = match part {
            Ok(done) => {
                self.any = true;
                return Ok(done);
            }
            Err(error) if self.any && error.outcome() == Outcome::Unchanged => error,
            Err(error) => return Err(error),
        };
        let message = "a part of the call was done before another failed; the outcome of the whole is unknown";
        let whole = Error::unavailable(message, Outcome::Unknown);
        let whole = match error.retry_after() {
            Some(after) => whole.with_retry_after(after),
            None => whole,
        };
        Err(whole.because(error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::ErrorKind;
    use crate::membership::EndReason;

    fn errors() -> [Error; 4] {
        [
            Error::unavailable("full", Outcome::Unchanged).with_retry_after(Duration::from_secs(1)),
            Error::too_late(),
            Error::ended("a@1", EndReason::Lapsed),
            Error::new(ErrorKind::Denied, "no"),
        ]
    }

    #[test]
    fn the_first_part_fails_as_it_says() {
        for error in errors() {
            let (kind, text) = (error.kind(), error.chain());
            let told = Parts::default().take::<()>(Err(error)).unwrap_err();
            assert_eq!((told.kind(), told.chain()), (kind, text));
        }
    }

    #[test]
    fn after_a_part_that_was_done_nothing_says_unchanged() {
        for error in errors() {
            let (text, after) = (error.chain(), error.retry_after());
            let mut parts = Parts::default();
            parts.take(Ok(())).unwrap();
            let told = parts.take::<()>(Err(error)).unwrap_err();
            assert_eq!(
                (told.kind(), told.outcome()),
                (ErrorKind::Unavailable, Outcome::Unknown)
            );
            assert!(told.chain().ends_with(&text), "{told:?}");
            assert_eq!(told.retry_after(), after);
        }
    }
}
