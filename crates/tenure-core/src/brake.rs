//! The brake: when an unusual share of a group lapses at once, removal pauses; expiry does not.
//!
//! It counts *members who lapsed and are not back*, a set and not a counter: a member that joins again leaves the set.
//! The brake engages when those are more than [`BrakeSettings::share`] of the group as it was (present + lapsed), and
//! lifts by itself when enough of them are back, or after [`BrakeSettings::hold`] at the latest.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::StoreTime;

/// When the brake engages and how long it holds at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BrakeSettings {
    /// More than this share of the group has to lapse within one ttl. Lower brakes earlier. 1.0 switches it off.
    pub share: f64,
    /// Groups smaller than this never brake: in a group of two, one death is already half.
    pub floor: u64,
    /// The automatic end. Longer keeps ghosts' entries longer after a real mass death; shorter leaves less time to
    /// look at it.
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
    /// Whether this many lapsed members against this many present ones are too many at once.
    ///
    /// `lapsed` counts members who lapsed within the window (the longest ttl of the group; while engaged: since the
    /// window before it engaged) and have not joined again; `present` those in the group now.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 members")]
    pub fn too_many(&self, lapsed: u64, present: u64) -> bool {
        let whole = present.saturating_add(lapsed);
        whole >= self.floor && lapsed as f64 > self.share * whole as f64
    }
}

/// A brake that is engaged: removal pauses, expiry does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Brake {
    /// When it engaged.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub since: StoreTime,
    /// When it ends by itself at the latest.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub until: StoreTime,
    /// How many lapsed members are not back.
    pub lapsed: u64,
    /// How many members are present.
    pub present: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_engages_above_half_of_at_least_ten() {
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
    fn a_share_of_one_switches_it_off() {
        let brake = BrakeSettings {
            share: 1.0,
            ..BrakeSettings::default()
        };
        assert!(!brake.too_many(1000, 0));
    }
}
