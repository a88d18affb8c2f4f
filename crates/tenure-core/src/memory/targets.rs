//! The targets of one group.

use super::decide::Decide;
use super::group::GroupModel;
use crate::error::Result;
use crate::event::EventKind;
use crate::id::LeaseName;
use crate::store::Call;
use crate::target::{PutTarget, RemoveTarget, Target, TargetOf};
use crate::time::StoreTime;

impl Decide<PutTarget> for GroupModel {
    /// Creates a target or replaces its settings.
    fn step(&mut self, PutTarget { target, spec }: &PutTarget, call: Call, now: StoreTime) -> Result<bool> {
        self.open(now, call)?;
        let before = self.targets.insert(target.clone(), *spec);
        match before {
            None => self.tell_target(target, "added", now),
            Some(before) if before != *spec => self.tell_target(target, "changed", now),
            Some(_) => {}
        }
        Ok(before.is_none())
    }
}

impl Decide<RemoveTarget> for GroupModel {
    fn step(&mut self, RemoveTarget { target }: &RemoveTarget, call: Call, now: StoreTime) -> Result<bool> {
        self.open(now, call)?;
        let known = self.targets.remove(target).is_some();
        if known {
            self.tell_target(target, "removed", now);
        }
        Ok(known)
    }
}

impl GroupModel {
    fn tell_target(&mut self, target: &LeaseName, what: &str, now: StoreTime) {
        let event = self.emit(now, EventKind::TargetChanged);
        event.lease = Some(target.clone());
        event.reason = Some(what.to_owned());
    }

    /// Reads a target.
    pub(super) fn target(&self, target: &LeaseName) -> Option<Target> {
        self.targets.get(target).map(|spec| Target {
            target: target.clone(),
            spec: *spec,
        })
    }
}

impl Decide<TargetOf> for GroupModel {
    fn read(&self, ask: &TargetOf, _: StoreTime) -> Result<Option<Target>> {
        Ok(self.target(&ask.target))
    }
}
