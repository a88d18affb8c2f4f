//! One batch in flight.

use std::sync::Arc;

use tenure_core::error::{Error, ErrorKind, Outcome};
use tenure_core::id::Group;
use tenure_core::time::show_duration;

use super::batcher::{BatchSender, Inner, Waiter};
use crate::error_copy::copy_of;
use crate::trace::for_callers;

/// Counts as in flight until it is dropped, for whatever reason: an abandoned caller must not block its group.
pub(super) struct InFlightBatch<S: BatchSender> {
    inner: Arc<Inner<S>>,
    group: Group,
}

impl<S: BatchSender> Drop for InFlightBatch<S> {
    fn drop(&mut self) {
        self.inner.batch_finished(&self.group);
    }
}

impl<S: BatchSender> InFlightBatch<S> {
    pub(super) fn new(inner: &Arc<Inner<S>>, group: &Group) -> Self {
        Self {
            inner: Arc::clone(inner),
            group: group.clone(),
        }
    }

    /// Sends a batch and answers its callers. It has no time-out: the sender has one, or the callers have, and a batch
    /// without callers is dropped.
    pub(super) async fn send_all(self, batch: Vec<Waiter<S>>) {
        let mut batch = self.drop_unwanted(batch);
        let items: Vec<S::Item> = batch.iter().map(|waiter| waiter.item.clone()).collect();
        if items.is_empty() {
            return;
        }
        let sending = for_callers(
            batch.iter().map(|waiter| &waiter.caller),
            self.inner.send(&self.group, &items),
        );
        let done = tokio::select! {
            biased;
            done = sending => done,
            () = all_callers_gone(&mut batch) => return,
        };
        match done {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for waiter in batch {
                    // It only fails when the caller has gone away.
                    drop(waiter.answer.send(answers.next().ok_or_else(short_answer::<S>)));
                }
            }
            // The store rejects a whole batch for one bad item. Sent one by one, each item gets its own answer.
            Err(error) if error.kind() == ErrorKind::Invalid && items.len() > 1 => {
                for (waiter, item) in batch.into_iter().zip(&items) {
                    drop(waiter.answer.send(self.inner.send_one(&self.group, item).await));
                }
            }
            Err(error) => {
                for waiter in batch {
                    drop(waiter.answer.send(Err(copy_of(&error))));
                }
            }
        }
    }

    /// Drops the items whose callers have gone away (the tenure of such a beat may have ended), and refuses those that
    /// were queued too long.
    fn drop_unwanted(&self, batch: Vec<Waiter<S>>) -> Vec<Waiter<S>> {
        let (now, give_up) = (self.inner.clock.mono(), self.inner.settings.give_up);
        let (late, mut batch): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|waiter| now.since(waiter.asked_at) >= give_up);
        for waiter in late {
            let (what, waited) = (S::WHAT, show_duration(give_up));
            let message = format!("not sent: queued for {waited}; {what} are answered too slowly");
            drop(waiter.answer.send(Err(Error::unavailable(message, Outcome::Unchanged))));
        }
        batch.retain(|waiter| !waiter.answer.is_closed());
        batch
    }
}

async fn all_callers_gone<S: BatchSender>(batch: &mut [Waiter<S>]) {
    for waiter in batch {
        waiter.answer.closed().await;
    }
}

pub(super) fn short_answer<S: BatchSender>() -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("the store answered fewer {} than it was sent", S::WHAT),
    )
}
