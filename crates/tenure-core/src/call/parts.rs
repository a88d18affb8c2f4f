//! Calls that are made in parts, because one step takes a bounded number of items.

use super::{Op, Reply};
use crate::error::{Error, Outcome, Result};
use crate::lease::{Acquire, Acquired, GivenUp, ReleaseLeases};
use crate::membership::Beats;
use crate::registry::{ClaimKeys, Claimed};
use crate::roster::{BeatProviders, LookUp, OfflineDone, PutProviders, Seat};
use crate::session::{Attached, Attaches, Detaches};

impl Op {
    /// How many things it lists: beats, keys, leases. 0 for a call that takes no list.
    #[must_use]
    pub fn items(&self) -> usize {
        match self {
            Self::Beat(ask) => ask.beats.len(),
            Self::Claim(ask) => ask.keys.len(),
            Self::Acquire(ask) => ask.leases.len(),
            Self::ReleaseLeases(ask) => ask.leases.len(),
            Self::Attach(ask) => ask.attaches.len(),
            Self::Detach(ask) => ask.detaches.len(),
            Self::PutProviders(ask) => ask.puts.len(),
            Self::Seat(ask) => ask.providers.len(),
            Self::Heartbeat(ask) => ask.heartbeats.len(),
            Self::Look(ask) => ask.providers.len(),
            Self::OfflineDone(ask) => ask.tenures.len(),
            Self::NewestEvents(ask) => ask.groups.len(),
            _ => 0,
        }
    }

    /// The answer to a call that asks for nothing, of those that then are no step either: no tenure is looked at, and no
    /// revision told.
    pub(super) fn asks_for_nothing(&self) -> Option<Reply> {
        match self {
            Self::Claim(ask) if ask.keys.is_empty() => Some(Reply::Claim(Claimed::default())),
            Self::PutProviders(ask) if ask.puts.is_empty() => Some(Reply::PutProviders(Vec::new())),
            Self::Seat(ask) if ask.providers.is_empty() => Some(Reply::Seat(Vec::new())),
            _ => None,
        }
    }

    /// Keeps the first `at` things that it lists and answers the same call for the rest; `None` when there is no rest.
    pub(super) fn split_off(&mut self, at: usize) -> Option<Self> {
        if self.items() <= at {
            return None;
        }
        Some(match self {
            Self::Beat(ask) => {
                let beats = ask.beats.split_off(at);
                Self::Beat(Beats { beats })
            }
            Self::Claim(ask) => {
                let keys = ask.keys.split_off(at);
                Self::Claim(ClaimKeys { keys, ..ask.clone() })
            }
            Self::Acquire(ask) => {
                let leases = ask.leases.split_off(at);
                Self::Acquire(Acquire { leases, ..ask.clone() })
            }
            Self::ReleaseLeases(ask) => {
                let leases = ask.leases.split_off(at);
                Self::ReleaseLeases(ReleaseLeases { leases, ..ask.clone() })
            }
            Self::Attach(ask) => {
                let attaches = ask.attaches.split_off(at);
                Self::Attach(Attaches {
                    attaches,
                    ..ask.clone()
                })
            }
            Self::Detach(ask) => {
                let detaches = ask.detaches.split_off(at);
                Self::Detach(Detaches {
                    detaches,
                    ..ask.clone()
                })
            }
            Self::PutProviders(ask) => {
                let puts = ask.puts.split_off(at);
                Self::PutProviders(PutProviders { puts })
            }
            Self::Seat(ask) => {
                let providers = ask.providers.split_off(at);
                Self::Seat(Seat {
                    providers,
                    ..ask.clone()
                })
            }
            Self::Heartbeat(ask) => {
                let heartbeats = ask.heartbeats.split_off(at);
                Self::Heartbeat(BeatProviders { heartbeats })
            }
            Self::Look(ask) => {
                let providers = ask.providers.split_off(at);
                Self::Look(LookUp { providers })
            }
            Self::OfflineDone(ask) => {
                let tenures = ask.tenures.split_off(at);
                Self::OfflineDone(OfflineDone { tenures })
            }
            // The groups lie on many nodes, and the store cuts by node.
            _ => return None,
        })
    }
}

/// The answer to a call from those to its first parts and to the next one: the outcomes in the order asked, what held
/// before the first part, and what holds after the last.
pub(super) fn add(all: Reply, next: Reply) -> Reply {
    match (all, next) {
        (Reply::Beat(mut all), Reply::Beat(next)) => {
            all.replies.extend(next.replies);
            all.as_of = next.as_of;
            Reply::Beat(all)
        }
        (Reply::Claim(all), Reply::Claim(next)) => Reply::Claim(Claimed {
            outcomes: [all.outcomes, next.outcomes].concat(),
            before: all.before,
            ..next
        }),
        (Reply::Acquire(all), Reply::Acquire(next)) => Reply::Acquire(Acquired {
            outcomes: [all.outcomes, next.outcomes].concat(),
            before: all.before,
            ..next
        }),
        (Reply::ReleaseLeases(all), Reply::ReleaseLeases(next)) => Reply::ReleaseLeases(GivenUp {
            outcomes: [all.outcomes, next.outcomes].concat(),
            before: all.before,
            ..next
        }),
        (Reply::Attach(all), Reply::Attach(next)) => Reply::Attach(Attached {
            outcomes: [all.outcomes, next.outcomes].concat(),
            before: all.before,
            ..next
        }),
        (Reply::Detach(all), Reply::Detach(next)) => Reply::Detach([all, next].concat()),
        (Reply::PutProviders(all), Reply::PutProviders(next)) => Reply::PutProviders([all, next].concat()),
        (Reply::Seat(all), Reply::Seat(next)) => Reply::Seat([all, next].concat()),
        (Reply::Heartbeat(mut all), Reply::Heartbeat(next)) => {
            all.replies.extend(next.replies);
            all.stamp = next.stamp;
            Reply::Heartbeat(all)
        }
        (Reply::Look(mut all), Reply::Look(next)) => {
            all.seen.extend(next.seen);
            all.stamp = next.stamp;
            Reply::Look(all)
        }
        (Reply::OfflineDone(all), Reply::OfflineDone(next)) => Reply::OfflineDone(all + next),
        // A call has one kind of answer; `ask` refuses another one.
        (_, next) => next,
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
