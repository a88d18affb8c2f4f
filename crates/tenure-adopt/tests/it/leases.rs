//! Migrates a fleet with plain lock keys to Tenure, one instance at a time, without two pollers of a target.

mod faults;
mod log;
mod old_fleet;
mod order;
mod rolling;
mod step;
mod targets;

use std::time::Duration;

use tenure::fleet::FleetSettings;

/// Settings that give every task enough time to end on a slow machine.
fn patient() -> FleetSettings {
    FleetSettings {
        stop_within: Duration::from_secs(3),
        shut_down_within: Duration::from_secs(40),
        ..FleetSettings::default()
    }
}
