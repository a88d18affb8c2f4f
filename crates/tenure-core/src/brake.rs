//! The brake: if an unusual share of a group lapses at once, removal pauses; expiry does not.
//!
//! It counts *lapsed members that have not rejoined*, as a set: a member that rejoins leaves the set. The brake engages
//! when the set exceeds [`BrakeSettings::share`] of the original group (present + lapsed). It lifts when enough members
//! have rejoined, or after [`BrakeSettings::hold`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::StoreTime;

/// The threshold and the maximum duration of the brake.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BrakeSettings {
    /// The share of a group that must lapse within one ttl. Lower engages earlier; 1.0 disables the brake.
    pub share: f64,
    /// Smaller groups never brake: in a group of two, one lapse is already half.
    pub floor: u64,
    /// The maximum duration. Longer keeps stale entries longer after a real mass failure; shorter leaves less time to
    /// investigate.
    pub hold: Duration,
}

impl Default for BrakeSettings {
    fn default() -> Self {
        Self {
            share: 0.5,
            floor: 10,
            hold: Duration::from_secs(300),
        }
    }
}

impl BrakeSettings {
    /// Whether this many lapsed members exceed the threshold.
    ///
    /// `lapsed` counts members that lapsed within the window (the longest ttl of the group; while engaged, since the
    /// window before it engaged) and have not rejoined. `present` counts current members.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 members")]
    pub fn too_many(&self, lapsed: u64, present: u64) -> bool {
        let whole = present.saturating_add(lapsed);
        whole >= self.floor && lapsed as f64 > self.share * whole as f64
    }
}

/// An engaged brake: removal pauses, expiry does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Brake {
    /// When it engaged.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub since: StoreTime,
    /// When it lifts at the latest.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub until: StoreTime,
    /// The number of lapsed members that have not rejoined.
    pub lapsed: u64,
    /// The number of present members.
    pub present: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brake_engages_above_half_of_at_least_ten() {
        let brake = BrakeSettings::default();
        for (lapsed, present, engaged) in [
            (60, 40, true),
            (50, 50, false),
            (51, 49, true),
            (5, 4, false),
            (6, 4, true),
            (1, 0, false),
            (10, 0, true),
            (0, 0, false),
        ] {
            assert_eq!(
                brake.too_many(lapsed, present),
                engaged,
                "{lapsed} lapsed, {present} present"
            );
        }
    }

    #[test]
    fn share_of_one_disables_the_brake() {
        let brake = BrakeSettings {
            share: 1.0,
            ..BrakeSettings::default()
        };
        assert!(!brake.too_many(1000, 0));
    }
}
