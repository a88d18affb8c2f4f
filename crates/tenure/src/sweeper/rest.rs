//! Resting groups: empty groups are visited rarely, so that ten thousand of them cost little.
//!
//! A new event ends the rest of a group. Joins through this process are reported to the sweeper. For other joins the
//! newest event of every resting group is read, one field each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::jitter;
use tenure_core::error::Result;
use tenure_core::event::EventId;
use tenure_core::id::Group;
use tenure_core::sweep::GroupStatus;
use tenure_core::timeout::Timeout;

use super::Inner;

/// How long a group must be empty before it rests.
const AFTER: Duration = Duration::from_secs(60);
/// How often a resting group is visited.
const RARELY: Duration = Duration::from_secs(900);
/// Visits to resting groups are aligned to multiples of this, because each turn of the janitor scans all groups.
const TOGETHER: Duration = Duration::from_secs(5);

/// How long a group has been empty.
pub(super) fn empty_for(status: &GroupStatus) -> Duration {
    status
        .empty_since
        .map_or(Duration::ZERO, |since| status.as_of.since(since))
}

pub(super) fn rests(status: &GroupStatus) -> bool {
    !status.is_occupied() && status.unsettled.is_none() && status.brake.is_none() && empty_for(status) >= AFTER
}

impl Inner {
    /// The time until the next visit of a resting group: not later than it may be forgotten.
    pub(super) fn rest(&self, status: &GroupStatus) -> Duration {
        let to_forget = self.settings.forget_after.saturating_sub(empty_for(status));
        let wait = jitter(&*self.clock, RARELY.mul_f64(0.9), 10).min(to_forget);
        let now = self.clock.mono();
        let at = (now + wait).since_origin();
        let beyond = at.as_millis() % TOGETHER.as_millis();
        let rest = TOGETHER.as_millis() - beyond;
        wait + Duration::from_millis(u64::try_from(rest).unwrap_or(0))
    }

    /// The resting groups with a new event.
    pub(super) async fn awake(self: &Arc<Self>) -> Result<Vec<Group>> {
        let resting = self.resting();
        if resting.is_empty() {
            return Ok(Vec::new());
        }
        let (groups, known): (Vec<Group>, Vec<EventId>) = resting.into_iter().unzip();
        let asked = self.store.newest_events(&groups);
        let newest = Timeout::read(self.settings.give_up).call(&*self.clock, "the store", asked);
        let newest = newest.await?;
        let known: BTreeMap<_, _> = groups.iter().zip(known).collect();
        let is_awake = |(group, newest): &(Group, EventId)| known.get(group).is_some_and(|known| known != newest);
        Ok(newest.into_iter().filter(is_awake).map(|(group, _)| group).collect())
    }

    fn resting(&self) -> Vec<(Group, EventId)> {
        let groups = self.groups();
        let resting = groups
            .iter()
            .filter_map(|(group, entry)| Some((group.clone(), entry.resting?)));
        resting.collect()
    }
}
