//! Whether the disk may have forgotten something, while it is served.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::recall::{Doubt, Recall, believes_an_older_copy};
use crate::settling::GapCause;
use crate::sweep::Unsettled;
use crate::time::StoreTime;

/// What is known of the disk as a whole.
#[derive(Debug)]
pub(super) struct Doubts {
    max_ttl: Duration,
    known: Mutex<Known>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    recall: Recall,
    /// The longest ttl that was ever served.
    longest: Duration,
    /// When service began, until a beat has proved a loss.
    started_at: Option<StoreTime>,
}

impl Doubts {
    /// As the disk says at a start.
    pub(super) fn new(max_ttl: Duration, recall: Recall, longest: Duration, now: StoreTime) -> Self {
        let known = Known {
            recall,
            longest,
            started_at: Some(now),
        };
        Self {
            max_ttl,
            known: Mutex::new(known),
        }
    }

    /// Why and until when nothing is granted, if that is later than now.
    pub(super) fn wait(&self, now: StoreTime) -> Option<Unsettled> {
        let mut known = self.lock();
        let longest = self.max_ttl.max(known.longest);
        known.recall.wait(now, longest)
    }

    /// Whether a beat that names a number which was never given out would be believed now.
    pub(super) fn believes(&self, now: StoreTime) -> bool {
        believes_an_older_copy(self.lock().started_at, now, self.max_ttl)
    }

    /// A beat proves that the disk is an older copy, if it is believed.
    pub(super) fn believe(&self, now: StoreTime) -> bool {
        let mut known = self.lock();
        let believed = believes_an_older_copy(known.started_at, now, self.max_ttl);
        if believed {
            let wait = self.max_ttl.max(known.longest);
            known.recall.doubt(Doubt::Proven, now, wait);
            known.started_at = None;
        }
        believed
    }

    /// What a commit stores: the recall, and the longest ttl ever served, this one included.
    pub(super) fn kept(&self, longest: Duration) -> (Recall, Duration) {
        let mut known = self.lock();
        known.longest = known.longest.max(longest);
        (known.recall, known.longest)
    }

    /// An operator's word became durable: nothing was held.
    pub(super) fn settle(&self, named: Option<GapCause>, before: Recall) {
        let mut known = self.lock();
        // A loss that was proved since then is not what the operator spoke of.
        if known.recall == before {
            known.recall.settle(named);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
