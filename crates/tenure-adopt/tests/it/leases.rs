//! A fleet that shares its targets by plain keys moves to Tenure, one instance at a time, and nobody polls twice.

mod faults;
mod log;
mod old_fleet;
mod order;
mod rolling;
mod step;
mod targets;

use std::time::Duration;

use tenure::fleet::FleetSettings;

/// Settings with which work that ends by itself is not called stubborn, however slow the machine is.
fn patient() -> FleetSettings {
    FleetSettings {
        stop_within: Duration::from_secs(3),
        shut_down_within: Duration::from_secs(40),
        ..FleetSettings::default()
    }
}
