//! Settings of a fleet.

use std::time::Duration;

use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::fleet;
use tenure_core::membership::Member;

use crate::loops::FLOOR;

/// Which living members of the group are nodes of this fleet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Nodes {
    /// All of them.
    #[default]
    All,
    /// The members with this label. For groups with other members: a lease handed to a member that does not run the
    /// fleet stays idle until its reservation ends.
    Labelled {
        /// The name of the label.
        name: String,
        /// Its value.
        value: String,
    },
}

impl Nodes {
    pub(super) fn has(&self, member: &Member) -> bool {
        match self {
            Self::All => true,
            Self::Labelled { name, value } => member.labels.as_map().get(name) == Some(value),
        }
    }
}

/// Settings of a fleet. Use the same on all its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetSettings {
    /// When to acquire leases, and when to hand them off.
    pub placing: fleet::Settings,
    /// Which members are nodes. The label [`WEIGHT_LABEL`](crate::nodes::WEIGHT_LABEL) sets the weight of a node.
    pub nodes: Nodes,
    /// How often members and targets are polled, in addition to events. Shorter notices changes without an event
    /// sooner; longer puts less load on the store.
    pub discovery: Duration,
    /// How long a task may run after it was told to stop before it is dropped at its next `await`. Longer allows a
    /// cycle to finish; shorter frees the lease sooner.
    pub stop_within: Duration,
    /// How long [`Fleet::shut_down`](super::Fleet::shut_down) waits for work to end and leases to be released.
    pub shut_down_within: Duration,
    /// The pause before restarting a task that ended unexpectedly. It doubles up to one minute.
    pub restart_after: Duration,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self {
            placing: fleet::Settings::default(),
            nodes: Nodes::default(),
            discovery: Duration::from_secs(10),
            stop_within: Duration::from_millis(500),
            shut_down_within: Duration::from_secs(4),
            restart_after: Duration::from_secs(1),
        }
    }
}

impl FleetSettings {
    /// Checks the settings.
    ///
    /// # Errors
    /// `Misconfigured`, naming the setting.
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::Misconfigured, format!("the fleet's {what}")));
        if self.discovery < FLOOR {
            return refuse("discovery interval is below 20ms");
        }
        if self.restart_after.is_zero() {
            return refuse("restart_after is zero: a task that ends immediately would restart in a tight loop");
        }
        if self.placing.max_handoffs == 0 {
            return refuse("max_handoffs is zero: a joining node would never receive a lease");
        }
        Ok(())
    }
}
