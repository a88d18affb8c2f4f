//! The service of the whole store: its pulse, and the index of due groups.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::error::Result;
use tenure_core::id::Group;
use tenure_core::pulse::{BeatPulse, DueGroups, FAILED_GROUPS, ListDue, Pulsed};
use tenure_core::store::Call;
use tenure_core::time::{StoreTime, micros};

use crate::keys::{self, DUE_GROUPS, PULSE};
use crate::script::{Invocation, Lateness};
use crate::store::ValkeyStore;

#[async_trait]
impl Serve<BeatPulse> for ValkeyStore {
    /// On a cluster no key is on the node of every group, so each group goes by its own tick.
    async fn serve(&self, _: &Option<Group>, ask: BeatPulse, call: Call) -> Result<Pulsed> {
        if self.connection.is_cluster() {
            return Ok(Pulsed {
                as_of: self.connection.time().await?,
                without: vec!["a cluster".to_owned()],
            });
        }
        // A beat that comes late would hide a hole.
        let keys = vec![PULSE.to_owned(), DUE_GROUPS.to_owned()];
        let invocation = Invocation::new(keys, Lateness::Refused(call))
            .number(micros(self.options.max_ttl))
            .number(FAILED_GROUPS as u64)
            .args(ask.failed.iter().take(2 * FAILED_GROUPS).map(keys::meta));
        let beat = self
            .connection
            .call(&self.scripts.beat_pulse, invocation, |_, now| Ok(now));
        Ok(Pulsed {
            as_of: beat.await?,
            without: Vec::new(),
        })
    }
}

#[async_trait]
impl Serve<ListDue> for ValkeyStore {
    async fn serve(&self, _: &Option<Group>, ask: ListDue, _: Call) -> Result<DueGroups> {
        if self.connection.is_cluster() {
            return Ok(DueGroups {
                as_of: self.connection.time().await?,
                ..DueGroups::default()
            });
        }
        let invocation = Invocation::new(vec![DUE_GROUPS.to_owned(), PULSE.to_owned()], Lateness::Harmless)
            .number(micros(ask.ahead))
            .number(u64::from(ask.limit));
        let read = self
            .connection
            .call(&self.scripts.due_groups, invocation, |reader, now| {
                let mark = reader.number()?;
                let resumed_at = reader.number()?;
                let (mut due, mut groups) = (reader.array()?, Vec::new());
                while due.left() > 0 {
                    let (name, at) = (due.text()?, due.time()?);
                    // Another program wrote an invalid name.
                    groups.extend(Group::new(name).ok().map(|group: Group| (group, at)));
                }
                Ok((mark, resumed_at, groups, now))
            });
        let (mark, resumed_at, groups, as_of): (u64, u64, Vec<(Group, StoreTime)>, StoreTime) = read.await?;
        Ok(DueGroups {
            as_of,
            resumed_at: Some(resumed_at).filter(|at| *at != 0).map(StoreTime::from_micros),
            groups,
            is_complete: self.due_mark.swap(mark, Ordering::Relaxed) == mark && resumed_at != 0,
        })
    }
}
