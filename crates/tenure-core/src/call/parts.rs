//! Splits a long call into parts, because one step takes a bounded number of items.

use super::{Op, Reply, StoreRequest, add};
use crate::error::{Error, Outcome, Result};
use crate::store::Backend;

/// Makes a call of any kind, with the checks and the splitting of the typed methods.
///
/// # Errors
/// Those of the call. Once a part has succeeded, every error is `Unavailable` with the outcome `Unknown`.
pub async fn make<S: Backend + ?Sized>(store: &S, mut request: StoreRequest) -> Result<Reply> {
    request.op.check(store.max_ttl())?;
    if let Some(reply) = request.op.empty_reply() {
        return Ok(reply);
    }
    match request.op.split_off(store.part(&request.op)) {
        None => store.call(request).await,
        // Boxed: most calls have one part, and their futures stay small.
        Some(rest) => Box::pin(make_in_parts(store, request, rest)).await,
    }
}

async fn make_in_parts<S: Backend + ?Sized>(store: &S, mut request: StoreRequest, rest: Op) -> Result<Reply> {
    let (mut done, mut all, mut rest) = (Parts::default(), None, Some(rest));
    loop {
        let next = rest.take().map(|op| StoreRequest {
            group: request.group.clone(),
            op,
            call: request.call,
        });
        let is_read = request.op.is_read();
        let part = store.call(request).await;
        // A read that fails halfway has changed nothing.
        let part = if is_read { part? } else { done.take(part)? };
        let whole = match all {
            None => part,
            Some(all) => add(all, part),
        };
        match next {
            None => return Ok(whole),
            Some(next) => (all, request) = (Some(whole), next),
        }
        rest = request.op.split_off(store.part(&request.op));
    }
}

/// The progress of a call in parts.
///
/// The outcome of an error describes the *whole call*. A part that fails unchanged (full memory, lost connection, ended
/// tenure) leaves the earlier parts applied.
#[derive(Debug, Default)]
pub struct Parts {
    any: bool,
}

impl Parts {
    /// Records the result of the next part.
    ///
    /// # Errors
    /// The part's own error if it is the first. After a successful part, `Unavailable` with the outcome `Unknown` and
    /// the part's error as the cause, because every other kind promises that nothing changed.
    pub fn take<T>(&mut self, part: Result<T>) -> Result<T> {
        let error = match part {
            Ok(done) => {
                self.any = true;
                return Ok(done);
            }
            Err(error) if self.any && error.outcome() == Outcome::Unchanged => error,
            Err(error) => return Err(error),
        };
        let message = "a part of the call was applied before another failed; the outcome of the whole is unknown";
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
    fn first_part_keeps_its_own_error() {
        for error in errors() {
            let (kind, text) = (error.kind(), error.chain());
            let told = Parts::default().take::<()>(Err(error)).unwrap_err();
            assert_eq!((told.kind(), told.chain()), (kind, text));
        }
    }

    #[test]
    fn error_after_an_applied_part_has_an_unknown_outcome() {
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
