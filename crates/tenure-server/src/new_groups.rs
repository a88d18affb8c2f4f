//! The bound of new groups per caller. A group costs memory, metrics and visits until it is forgotten, so that a caller who
//! makes one for each job would slow down all others.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::wire::{Code, Problem};
use tenure_core::clock::Mono;
use tenure_core::error::Outcome;
use tenure_core::event::EventId;
use tenure_core::id::Group;

use crate::app::App;
use crate::limits::Limiter;
use crate::meters;
use crate::reply::Failure;
use crate::room::{COUNTERS, Share};

/// Counts the groups that callers make.
pub(crate) struct NewGroups {
    per_minute: u32,
    limiter: Limiter,
    callers: Box<[AtomicU64]>,
    /// Groups that are being made: the other members of a fleet that starts in a new group are not counted.
    under_way: Arc<Mutex<BTreeSet<Group>>>,
}

/// A call that makes a group. The group is known to the sweeps before this is dropped.
pub(crate) struct Making {
    group: Group,
    under_way: Arc<Mutex<BTreeSet<Group>>>,
}

impl Drop for Making {
    fn drop(&mut self) {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.remove(&self.group);
    }
}

impl NewGroups {
    /// `None` without a limit.
    pub(crate) fn new(per_minute: u32) -> Option<Self> {
        (per_minute > 0).then(|| Self {
            per_minute,
            limiter: Limiter::per_minute(per_minute),
            callers: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            under_way: Arc::default(),
        })
    }

    /// Counts a group that does not exist yet; `None` if another call is making it.
    fn count(&self, group: &Group, share: Share, now: Mono) -> Result<Option<Making>, Duration> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way.contains(group) {
            return Ok(None);
        }
        self.limiter.count(&self.callers[share.caller()], now)?;
        under_way.insert(group.clone());
        Ok(Some(Making {
            group: group.clone(),
            under_way: Arc::clone(&self.under_way),
        }))
    }
}

impl App {
    /// Admits a call that makes its group if there is none. Keep the result until the call is done.
    ///
    /// # Errors
    /// 429 `rate_limited`; nothing was done.
    pub(crate) async fn admit_group(&self, group: &Group, share: Share) -> Result<Option<Making>, Failure> {
        let Some(new) = &self.new_groups else { return Ok(None) };
        if self.sweeper.as_ref().is_some_and(|sweeper| sweeper.knows(group)) {
            return Ok(None);
        }
        // Other processes may have made it. If the store does not answer, the call itself says so.
        let status = self.read(self.store.status(group)).await;
        if status.map_or(true, |status| status.last_event != EventId(0)) {
            return Ok(None);
        }
        new.count(group, share, self.clock.mono()).map_err(|wait| {
            meters::refused(Code::RateLimited);
            let detail = format!(
                "group \"{group}\" is new, and this caller has made {} groups in the last minute (limits.new_groups); nothing \
                 was done",
                new.per_minute
            );
            Problem::new(Code::RateLimited, detail)
                .with_outcome(Outcome::Unchanged)
                .with_retry_after(wait)
                .into()
        })
    }
}
