//! How a fleet runs.

use std::time::Duration;

use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::fleet;
use tenure_core::membership::Member;

use crate::loops::FLOOR;

/// Which living members of the group run this fleet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Nodes {
    /// All of them.
    #[default]
    All,
    /// Those that joined with this label. For groups in which others live as well: what is handed to a member that does
    /// not run the fleet lies idle until its reservation ends.
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

/// How a fleet runs. All its nodes should have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetSettings {
    /// When to ask for leases, and when to hand them off.
    pub placing: fleet::Settings,
    /// Which members are its nodes. What they weigh against each other is their label
    /// [`WEIGHT_LABEL`](crate::nodes::WEIGHT_LABEL).
    pub nodes: Nodes,
    /// Members and targets are looked at this often, whatever events tell. Shorter notices sooner what no event tells of;
    /// longer asks the store less.
    pub discovery: Duration,
    /// How long work may go on after it was told to stop, before it is dropped at its next `await`. Longer lets a cycle
    /// end; shorter frees the lease sooner.
    pub stop_within: Duration,
    /// How long [`Fleet::shut_down`](super::Fleet::shut_down) waits for work to end and leases to be given up.
    pub shut_down_within: Duration,
    /// How long a task rests that has ended without being told to, before it is started again; it doubles up to a minute.
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
    /// Refuses what cannot work.
    ///
    /// # Errors
    /// `Misconfigured`, naming the setting.
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::Misconfigured, format!("the fleet's {what}")));
        if self.discovery < FLOOR {
            return refuse("discovery interval is below 20ms");
        }
        if self.restart_after.is_zero() {
            return refuse("restart_after is zero: work that ends at once would be started over and over");
        }
        if self.placing.max_handoffs == 0 {
            return refuse("max_handoffs is zero: no node that joins would ever be given anything");
        }
        Ok(())
    }
}
