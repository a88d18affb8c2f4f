//! Calls that are made in parts, because one step takes a bounded number of items.

use super::{Ask, Op, Reply, add};
use crate::error::{Error, Outcome, Result};
use crate::store::Backend;

/// Makes a call of any kind as the typed methods do.
///
/// # Errors
/// Those of the call. After a part that was done, every error is `Unavailable` with the outcome `Unknown`.
pub async fn make<S: Backend + ?Sized>(store: &S, mut ask: Ask) -> Result<Reply> {
    ask.op.check(store.max_ttl())?;
    if let Some(reply) = ask.op.answer_to_nothing() {
        return Ok(reply);
    }
    match ask.op.split_off(store.part(&ask.op)) {
        None => store.call(ask).await,
        // Boxed: most calls have one part, and their futures stay small.
        Some(rest) => Box::pin(make_in_parts(store, ask, rest)).await,
    }
}

async fn make_in_parts<S: Backend + ?Sized>(store: &S, mut ask: Ask, rest: Op) -> Result<Reply> {
    let (mut done, mut all, mut rest) = (Parts::default(), None, Some(rest));
    loop {
        let next = rest.take().map(|op| Ask {
            group: ask.group.clone(),
            op,
            call: ask.call,
        });
        let is_read = ask.op.is_read();
        let part = store.call(ask).await;
        // A read that ends halfway has changed nothing.
        let part = if is_read { part? } else { done.take(part)? };
        let whole = match all {
            None => part,
            Some(all) => add(all, part),
        };
        match next {
            None => return Ok(whole),
            Some(next) => (all, ask) = (Some(whole), next),
        }
        rest = ask.op.split_off(store.part(&ask.op));
    }
}

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
