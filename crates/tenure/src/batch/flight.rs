//! One batch under way.

use std::sync::Arc;

use tenure_core::clock::within;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::Group;

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

    /// Sends a batch and answers everyone in it.
    pub(super) async fn together(self, mut batch: Vec<Waiter<S>>) {
        // Who has given up needs no answer; for a beat, its tenure may have been left meanwhile.
        batch.retain(|waiter| !waiter.answer.is_closed());
        let items: Vec<S::Item> = batch.iter().map(|waiter| waiter.item.clone()).collect();
        if items.is_empty() {
            return;
        }
        match self.send(&items).await {
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

    async fn send_one(&self, item: &S::Item) -> Result<S::Answer> {
        let answers = self.send(std::slice::from_ref(item)).await?;
        answers.into_iter().next().ok_or_else(short_answer::<S>)
    }

    async fn send(&self, items: &[S::Item]) -> Result<Vec<S::Answer>> {
        let Inner {
            clock,
            settings,
            sender,
            ..
        } = &*self.inner;
        let done = within(&**clock, settings.give_up, sender.send(&self.group, items)).await;
        let done =
            done.unwrap_or_else(|| Err(Error::unavailable("the store did not answer in time", Outcome::Unknown)));
        sender.sent(&done, items.len());
        done
    }
}

fn short_answer<S: Gathered>() -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("fewer {} were answered than asked", S::WHAT),
    )
}
