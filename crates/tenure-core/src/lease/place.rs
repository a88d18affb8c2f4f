//! Shared leases: how many holders a lease has room for, and the place of each.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The maximum number of holders of one lease.
pub const MAX_HOLDERS: u16 = 1_000;

/// A place of a lease: 0 to N − 1 for a lease of N holders. An exclusive lease has only place 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "u16")]
pub struct Place(u16);

impl Place {
    /// The only place of an exclusive lease.
    pub const FIRST: Self = Self(0);
    /// The last place that a lease can have.
    pub const LAST: Self = Self(MAX_HOLDERS - 1);

    /// Checks and takes a place.
    ///
    /// # Errors
    /// `Invalid` when it is [`MAX_HOLDERS`] or higher.
    pub fn new(place: u16) -> Result<Self> {
        if place >= MAX_HOLDERS {
            return Err(Error::invalid(format!(
                "the place {place} is outside 0..={}",
                MAX_HOLDERS - 1
            )));
        }
        Ok(Self(place))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for Place {
    type Error = Error;
    fn try_from(place: u16) -> Result<Self> {
        Self::new(place)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of places of a lease: 1 for an exclusive lease, up to [`MAX_HOLDERS`] for a shared one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16")]
pub struct Holders(u16);

impl Holders {
    /// An exclusive lease.
    pub const ONE: Self = Self(1);

    /// Checks and takes a number of holders.
    ///
    /// # Errors
    /// `Invalid` when it is 0 or above [`MAX_HOLDERS`].
    pub fn new(holders: u16) -> Result<Self> {
        if holders == 0 || holders > MAX_HOLDERS {
            return Err(Error::invalid(format!(
                "{holders} holders of a lease; use 1 to {MAX_HOLDERS}"
            )));
        }
        Ok(Self(holders))
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }

    /// Whether the lease is exclusive.
    #[must_use]
    pub fn is_one(&self) -> bool {
        *self == Self::ONE
    }

    /// All places, in order.
    pub fn places(self) -> impl Iterator<Item = Place> {
        (0..self.0).map(Place)
    }
}

impl Default for Holders {
    fn default() -> Self {
        Self::ONE
    }
}

impl TryFrom<u16> for Holders {
    type Error = Error;
    fn try_from(holders: u16) -> Result<Self> {
        Self::new(holders)
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
