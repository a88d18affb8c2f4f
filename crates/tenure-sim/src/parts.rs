//! The parts of the library that the programs of a run use beside membership, claims and leases.

use std::fmt;
use std::str::FromStr;

use crate::chance::Chance;

/// The parts. Written as names with commas, `all` or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts {
    /// Programs are front-ends, which attach the connections of clients to sessions.
    pub sessions: bool,
    /// Programs serve a roster from its mirror and a ledger, with a provider, an operator and a client.
    pub rosters: bool,
}

impl Parts {
    /// Every part.
    #[must_use]
    pub fn all() -> Self {
        Self {
            sessions: true,
            rosters: true,
        }
    }

    /// The parts of a seed. They have a stream of their own, so that another part does not shift the other draws.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        let mut chance = Chance::new(seed, 3);
        Self {
            sessions: chance.happens(500),
            rosters: chance.happens(250),
        }
    }
}

impl FromStr for Parts {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => return Ok(Self::all()),
            "none" => return Ok(Self::default()),
            _ => {}
        }
        let mut parts = Self::default();
        for name in text.split(',') {
            match name {
                "sessions" => parts.sessions = true,
                "rosters" => parts.rosters = true,
                _ => return Err(format!("{name:?} is not a part; use sessions, rosters, all, none")),
            }
        }
        Ok(parts)
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.sessions, self.rosters) {
            (false, false) => "none",
            (true, false) => "sessions",
            (false, true) => "rosters",
            (true, true) => "all",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_round_trip_and_depend_on_the_seed() {
        for text in ["none", "sessions", "rosters", "all"] {
            assert_eq!(text.parse::<Parts>().unwrap().to_string(), text);
        }
        assert!("sessions,teapots".parse::<Parts>().unwrap_err().contains("teapots"));
        let drawn = |part: fn(Parts) -> bool| (0..40).filter(|seed| part(Parts::drawn(*seed))).count();
        assert!((5..35).contains(&drawn(|parts| parts.sessions)));
        assert!((2..30).contains(&drawn(|parts| parts.rosters)));
    }
}
