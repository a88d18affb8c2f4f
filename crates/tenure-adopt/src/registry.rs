//! Adopting a registry of other programs: a janitor for a plain hash `key → owner's id` and heartbeat keys with a ttl.
//!
//! Programs in other languages write such a pair by hand, and an instance that dies leaves its entries behind. This
//! janitor removes them, and nothing else: it needs no change in those programs. An owner counts as dead only when its
//! heartbeat key is absent in two looks, [`AdoptSettings::settle`] apart, at a store that served all along between them
//! ([`Break`](crate::Break) lists what does not count as that). One step per page of at most 200 entries then checks *both* the
//! heartbeat key and the entry's exact value at the moment it removes the entry: whoever claims the key again in time,
//! or comes back to life, keeps it. The brake of [`tenure_core::brake`] holds back what looks like a mass death.
//!
//! Any number of janitors may look after one hash: an entry is removed, and counted, by exactly one of them. A reply that
//! was lost is read back from the store, so its count is not lost either.
//!
//! What the janitor refuses: to write anything but keys under `tenure:adopt:`. Without `INFO` it notices less, and says so
//! once.

mod brake;
#[cfg(feature = "daemon")]
mod daemon;
mod evict;
mod heartbeat;
mod look;
#[cfg(feature = "daemon")]
mod meters;
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

/// How far two looks are apart when not said otherwise.
pub const DEFAULT_SETTLE: Duration = Duration::from_secs(30);
/// The longest that two looks may be apart.
pub const MAX_SETTLE: Duration = Duration::from_secs(24 * 3600);

/// What to adopt, and how careful to be.
#[derive(Debug, Clone, PartialEq)]
pub struct AdoptSettings {
    /// The hash of key → owner's id.
    pub hash: Vec<u8>,
    /// How an owner's heartbeat key is called.
    pub heartbeat: Heartbeat,
    /// Where in an entry's value the owner's id stands.
    pub owner_at: OwnerAt,
    /// How far the two looks are apart in which a heartbeat has to be absent. Longer forgives longer pauses of the
    /// owners, and keeps ghosts longer. Zero decides by one look.
    pub settle: Duration,
    /// The brake.
    pub brake: BrakeSettings,
}

impl AdoptSettings {
    /// The usual care for a hash and a heartbeat template.
    ///
    /// # Errors
    /// `Invalid` for an empty name or a template without `{id}`.
    pub fn new(hash: &str, heartbeat: &str) -> Result<Self> {
        if hash.is_empty() {
            return Err(Error::invalid(
                "the name of the hash is empty; name the hash of key -> owner's id",
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

    /// Another time between the looks, as people write it.
    ///
    /// # Errors
    /// `Invalid` for what is no duration or longer than [`MAX_SETTLE`].
    pub fn with_settle(mut self, settle: &str) -> Result<Self> {
        self.settle = parse_duration(settle)?;
        if self.settle > MAX_SETTLE {
            return Err(Error::invalid(format!("the settle time {settle} is above 24h")));
        }
        Ok(self)
    }
}
