//! One batch under way.

use std::sync::Arc;

use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::Group;
use tenure_core::time::show_duration;

use super::gatherer::{Gathered, Inner, Waiter};
use crate::error_copy::copy_of;

/// Counts as under way until it is dropped, however that happens: an abandoned caller must not block its group.
pub(super) struct Flight<S: Gathered> {
    inner: Arc<Inner<S>>,
    group: Group,
}

impl<S: Gathered> Drop for Flight<S> {
    fn drop(&mut self) {
        self.inner.landed(&self.group);
    }
}

impl<S: Gathered> Flight<S> {
    pub(super) fn new(inner: &Arc<Inner<S>>, group: &Group) -> Self {
        Self {
            inner: Arc::clone(inner),
            group: group.clone(),
        }
    }

    /// Sends one item from its caller's own task: an idle group costs no task and no channel.
    pub(super) async fn alone(self, item: &S::Item) -> Result<S::Answer> {
        self.send_one(item).await
    }

    /// Sends a batch and answers everyone in it. It has no time-out: the sender has one, or its callers have, and a batch
    /// whose callers have all gone is dropped.
    pub(super) async fn together(self, batch: Vec<Waiter<S>>) {
        let mut batch = self.still_wanted(batch);
        let items: Vec<S::Item> = batch.iter().map(|waiter| waiter.item.clone()).collect();
        if items.is_empty() {
            return;
        }
        let done = tokio::select! {
            biased;
            done = self.send(&items) => done,
            () = all_gone(&mut batch) => return,
        };
        match done {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for waiter in batch {
                    // It only fails when the caller has gone.
                    drop(waiter.answer.send(answers.next().ok_or_else(short_answer::<S>)));
                }
            }
            // The store refuses a batch as a whole for one bad item in it: then each gets its own answer.
            Err(error) if error.kind() == ErrorKind::Invalid && items.len() > 1 => {
                for (waiter, item) in batch.into_iter().zip(&items) {
                    drop(waiter.answer.send(self.send_one(item).await));
                }
            }
            Err(error) => {
                for waiter in batch {
                    drop(waiter.answer.send(Err(copy_of(&error))));
                }
            }
        }
    }

    /// Drops the items of callers that have gone (for a beat, its tenure may have been left since), and refuses those that
    /// have waited too long for their turn.
    fn still_wanted(&self, batch: Vec<Waiter<S>>) -> Vec<Waiter<S>> {
        let (now, give_up) = (self.inner.clock.mono(), self.inner.settings.give_up);
        let (late, mut batch): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|waiter| now.since(waiter.asked_at) >= give_up);
        for waiter in late {
            let (what, waited) = (S::WHAT, show_duration(give_up));
            let message = format!("not sent: no turn within {waited}, {what} are answered too slowly");
            drop(waiter.answer.send(Err(Error::unavailable(message, Outcome::Unchanged))));
        }
        batch.retain(|waiter| !waiter.answer.is_closed());
        batch
    }

    async fn send_one(&self, item: &S::Item) -> Result<S::Answer> {
        let answers = self.send(std::slice::from_ref(item)).await?;
        answers.into_iter().next().ok_or_else(short_answer::<S>)
    }

    async fn send(&self, items: &[S::Item]) -> Result<Vec<S::Answer>> {
        let sender = &self.inner.sender;
        let done = sender.send(&self.group, items).await;
        sender.sent(&done, items.len());
        done
    }
}

async fn all_gone<S: Gathered>(batch: &mut [Waiter<S>]) {
    for waiter in batch {
        waiter.answer.closed().await;
    }
}

fn short_answer<S: Gathered>() -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("fewer {} were answered than asked", S::WHAT),
    )
}
