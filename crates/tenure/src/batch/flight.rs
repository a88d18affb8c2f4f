//! One batch under way.

use std::sync::Arc;

use tenure_core::clock::within;
use tenure_core::error::{Error, ErrorKind, Outcome, Result};
use tenure_core::id::Group;
use tenure_core::membership::{Beat, BeatReply, Beaten};

use super::{Beated, Inner, Waiter};
use crate::error_copy::copy_of;
use crate::meters;

/// Counts as under way until it is dropped, however that happens: an abandoned caller must not block its group.
pub(super) struct Flight {
    inner: Arc<Inner>,
    group: Group,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.inner.landed(&self.group);
    }
}

impl Flight {
    pub(super) fn new(inner: &Arc<Inner>, group: &Group) -> Self {
        Self {
            inner: Arc::clone(inner),
            group: group.clone(),
        }
    }

    /// Sends one beat from its caller's own task: an idle group costs no task and no channel.
    pub(super) async fn alone(self, beat: &Beat) -> Result<Beated> {
        let beaten = self.send(std::slice::from_ref(beat)).await?;
        let reply = beaten.replies.first().copied().ok_or_else(short_answer)?;
        Ok(Beated {
            reply,
            as_of: beaten.as_of,
        })
    }

    /// Sends a batch and answers everyone in it.
    pub(super) async fn together(self, mut batch: Vec<Waiter>) {
        // Who has given up needs no beat; its tenure may have been left meanwhile.
        batch.retain(|waiter| !waiter.answer.is_closed());
        let beats: Vec<Beat> = batch.iter().map(|waiter| waiter.beat.clone()).collect();
        if beats.is_empty() {
            return;
        }
        match self.send(&beats).await {
            Ok(beaten) => {
                let mut replies = beaten.replies.into_iter();
                for waiter in batch {
                    let reply = replies.next().map(|reply| Beated {
                        reply,
                        as_of: beaten.as_of,
                    });
                    // It only fails when the caller has gone.
                    drop(waiter.answer.send(reply.ok_or_else(short_answer)));
                }
            }
            // The store refuses a batch as a whole for one bad beat in it: then each gets its own answer.
            Err(error) if error.kind() == ErrorKind::Invalid && beats.len() > 1 => {
                for (waiter, beat) in batch.into_iter().zip(&beats) {
                    let answer = self.send(std::slice::from_ref(beat)).await.and_then(|beaten| {
                        let reply = beaten.replies.first().copied().ok_or_else(short_answer)?;
                        Ok(Beated {
                            reply,
                            as_of: beaten.as_of,
                        })
                    });
                    drop(waiter.answer.send(answer));
                }
            }
            Err(error) => {
                for waiter in batch {
                    drop(waiter.answer.send(Err(copy_of(&error))));
                }
            }
        }
    }

    async fn send(&self, beats: &[Beat]) -> Result<Beaten> {
        let Inner {
            clock, settings, store, ..
        } = &*self.inner;
        let done = within(&**clock, settings.give_up, store.beat(&self.group, beats)).await;
        let done =
            done.unwrap_or_else(|| Err(Error::unavailable("the store did not answer in time", Outcome::Unknown)));
        count(&done, beats.len());
        done
    }
}

fn short_answer() -> Error {
    Error::new(ErrorKind::Internal, "the store answered fewer beats than it was asked")
}

fn count(done: &Result<Beaten>, beats: usize) {
    let Ok(beaten) = done else {
        return meters::beats("failed", beats as u64);
    };
    let (mut renewed, mut ended, mut unknown) = (0, 0, 0);
    for reply in &beaten.replies {
        match reply {
            BeatReply::Renewed { .. } => renewed += 1,
            BeatReply::Ended(_) => ended += 1,
            BeatReply::Unknown => unknown += 1,
        }
    }
    for (outcome, count) in [("renewed", renewed), ("ended", ended), ("unknown", unknown)] {
        if count > 0 {
            meters::beats(outcome, count);
        }
    }
}
