//! The same work, distributed by the library's fleet.

use std::sync::Arc;
use std::time::Duration;

use tenure::fleet::{FleetSettings, PlacingSettings};
use tenure::{Assignment, Clock, EndReason, Fleet, Membership, Result, TargetList, Verdict};

use super::{LEASES, MS, Program, View};
use crate::chance::Chance;
use crate::sink::{Sink, Write};

/// Shorter times than the defaults, so that targets move within a run.
fn settings() -> FleetSettings {
    FleetSettings {
        placing: PlacingSettings {
            stability: Duration::from_secs(3),
            min_hold: Duration::from_secs(5),
            ..PlacingSettings::default()
        },
        ..FleetSettings::default()
    }
}

impl Program {
    /// Starts this node's part of the fleet.
    ///
    /// # Errors
    /// Those of the fleet.
    pub(super) fn start_fleet(&self, membership: &Arc<Membership>) -> Result<Fleet> {
        let (view, sink, clock) = (Arc::clone(&self.view), Arc::clone(&self.sink), Arc::clone(&self.clock));
        Fleet::builder(membership)
            .targets(TargetList::new(LEASES)?)
            .settings(settings())
            .start(move |target| poll(target, Arc::clone(&view), Arc::clone(&sink), Arc::clone(&clock)))
    }

    /// An operator's action on a node of a fleet.
    pub(super) fn disturb_fleet(&mut self, fleet: &Fleet) {
        match self.chance.below(200) {
            // The program does not wait for it; the fleet continues on its own.
            0..4 => drop(futures_util::FutureExt::now_or_never(fleet.drain())),
            4..12 => fleet.undrain(),
            _ => {}
        }
    }

    /// Leaves gracefully: hands its work over first.
    pub(super) async fn leave_fleet(&mut self, fleet: Fleet, membership: &Arc<Membership>) -> Result<EndReason> {
        if self.chance.happens(700) {
            drop(fleet.shut_down().await);
            // Work that has not stopped in time ends with its next poll, or when its lease expires with the tenure.
            while fleet.status().held > 0 {
                self.rest(MS * 100, MS * 300).await;
            }
        }
        drop(fleet);
        membership.leave().await
    }
}

/// Works on one target in cycles: wait, write, rest.
async fn poll(target: Assignment, view: Arc<View>, sink: Arc<Sink>, clock: Arc<dyn Clock>) {
    let target = Arc::new(target);
    let mut chance = Chance::new(clock.entropy(), 1);
    view.work_on(&target);
    while target.next_cycle().await {
        // The cycle itself waits for an external reply.
        clock.sleep(chance.duration(MS, MS * 300)).await;
        let trusted = target.verdict() == Verdict::Held;
        sink.write(&Write::under(target.guard()), trusted);
        target.rest(chance.duration(MS * 50, MS * 900)).await;
    }
}
