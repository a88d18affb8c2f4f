//! Adopts a registry of other programs: a janitor for a plain hash `key → owner's id` with heartbeat keys that have a
//! ttl.
//!
//! Programs in other languages write such a pair by hand, and an instance that dies leaves its entries behind. This
//! janitor removes them, without a change to these programs. An owner counts as dead only if its heartbeat key is
//! absent in two checks, [`AdoptSettings::settle`] apart, at a store that served continuously in between
//! ([`Break`](crate::Break) lists the exceptions). One step per page of at most 200 entries then verifies *both* the
//! heartbeat key and the exact value of the entry while it removes the entry: an instance that claims the key again in
//! time, or recovers, keeps it. The brake of [`tenure_core::brake`] holds back suspected mass deaths.
//!
//! Any number of janitors may run on one hash: exactly one of them removes and counts an entry. The outcome of a lost
//! reply is read back from the store, so its count is not lost either.
//!
//! The janitor writes only keys under `tenure:adopt:`. Without `INFO` it detects fewer breaks, and logs that once.

mod brake;
#[cfg(feature = "daemon")]
mod daemon;
mod evict;
mod heartbeat;
mod look;
#[cfg(feature = "daemon")]
mod meters;
mod number;
mod owner;
mod pass;
mod report;
mod step;
#[cfg(feature = "daemon")]
mod tally;
mod watch;

use std::time::Duration;

use tenure_core::brake::BrakeSettings;
use tenure_core::error::{Error, Result};
use tenure_core::time::parse_duration;

#[cfg(feature = "daemon")]
pub use daemon::{LAST_PAGE, PassEnd, PassListener, RegistryDaemon};
pub use heartbeat::Heartbeat;
pub use owner::{MAX_OWNER, MAX_OWNERS, OwnerAt};
pub use pass::{Janitor, Listener};
pub use report::{Notice, PassReport, Preview};
pub use step::Candidate;
#[cfg(feature = "daemon")]
pub use tally::{Removed, Tally};

/// The default time between the two checks.
pub const DEFAULT_SETTLE: Duration = Duration::from_secs(30);
/// The longest time between the two checks.
pub const MAX_SETTLE: Duration = Duration::from_secs(24 * 3600);

/// The registry to adopt, and the safety limits.
#[derive(Debug, Clone, PartialEq)]
pub struct AdoptSettings {
    /// The hash of key → owner's id.
    pub hash: Vec<u8>,
    /// The template of heartbeat keys.
    pub heartbeat: Heartbeat,
    /// Where an entry's value contains the owner's id.
    pub owner_at: OwnerAt,
    /// The time between the two checks of an absent heartbeat. Longer tolerates longer pauses of owners, and keeps
    /// ghosts longer. Zero decides by one check.
    pub settle: Duration,
    /// The limits of the brake.
    pub brake: BrakeSettings,
}

impl AdoptSettings {
    /// The defaults for a hash and a heartbeat template.
    ///
    /// # Errors
    /// `Invalid` for an empty name or a template without `{id}`.
    pub fn new(hash: &str, heartbeat: &str) -> Result<Self> {
        if hash.is_empty() {
            return Err(Error::invalid(
                "the name of the hash is empty; write the name of the hash of key -> owner's id",
            ));
        }
        Ok(Self {
            hash: hash.into(),
            heartbeat: Heartbeat::parse(heartbeat)?,
            owner_at: OwnerAt::default(),
            settle: DEFAULT_SETTLE,
            brake: BrakeSettings::default(),
        })
    }

    /// Sets the time between the checks from text.
    ///
    /// # Errors
    /// `Invalid` for an invalid duration or one above [`MAX_SETTLE`].
    pub fn with_settle(mut self, settle: &str) -> Result<Self> {
        self.settle = parse_duration(settle)?;
        if self.settle > MAX_SETTLE {
            return Err(Error::invalid(format!("the settle time {settle} is above 24h")));
        }
        Ok(self)
    }
}
