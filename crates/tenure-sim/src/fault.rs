//! The faults: which, when and for how long, drawn from the seed by the weights of a mix.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::chance::Chance;
use crate::network::Conditions;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// A fault and its duration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it; docs/simulation.md describes the faults")]
pub enum Fault {
    Pause {
        node: usize,
        lasts: Duration,
    },
    Suspend {
        node: usize,
        lasts: Duration,
    },
    Kill {
        node: usize,
        down: Duration,
    },
    Cut {
        node: usize,
        out: bool,
        back: bool,
        lasts: Duration,
    },
    Slow {
        node: usize,
        out: Duration,
        back: Duration,
        lasts: Duration,
    },
    LedgerAway {
        lasts: Duration,
    },
    LedgerHangs {
        lasts: Duration,
    },
    LedgerLoses {
        often: u64,
        lasts: Duration,
    },
    StepWall {
        node: usize,
        by_ms: i64,
    },
    Twin {
        of: usize,
        lasts: Duration,
    },
    Storm {
        conditions: Conditions,
        lasts: Duration,
    },
    Freeze {
        lasts: Duration,
    },
    Restart {
        down: Duration,
    },
    RollBack {
        lag: Duration,
        down: Duration,
    },
    Wipe {
        down: Duration,
    },
    ClockBack {
        by: Duration,
    },
    JumpAhead {
        by: Duration,
    },
    LeapAhead {
        by: Duration,
    },
}

/// The families of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Network,
    Slow,
    Nodes,
    Store,
    Ledger,
    Clocks,
    Loss,
}

const FAMILIES: [(&str, Family); 7] = [
    ("network", Family::Network),
    ("slow", Family::Slow),
    ("nodes", Family::Nodes),
    ("store", Family::Store),
    ("ledger", Family::Ledger),
    ("clocks", Family::Clocks),
    ("loss", Family::Loss),
];

/// The families of faults to draw from. Written as names with commas, `all` or `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix(Vec<Family>);

impl Mix {
    /// All families.
    #[must_use]
    pub fn all() -> Self {
        Self(FAMILIES.map(|(_, family)| family).to_vec())
    }
}

impl FromStr for Mix {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => return Ok(Self::all()),
            "none" => return Ok(Self(Vec::new())),
            _ => {}
        }
        let family = |name: &str| {
            let known = FAMILIES.iter().find(|(known, _)| *known == name);
            known.map(|(_, family)| *family).ok_or_else(|| {
                format!("{name:?} is not a family of faults; use network, slow, nodes, store, ledger, clocks, loss, all, none")
            })
        };
        text.split(',').map(family).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = FAMILIES
            .iter()
            .filter(|(_, family)| self.0.contains(family))
            .map(|(name, _)| *name)
            .collect();
        f.write_str(match names.len() {
            0 => "none",
            7 => "all",
            _ => return f.write_str(&names.join(",")),
        })
    }
}

type Make = fn(usize, &mut Chance) -> Fault;

/// The weight and constructor of each fault.
const FAULTS: [(Family, u64, Make); 19] = [
    (Family::Network, 14, |node, chance| {
        let ways = [(true, true), (true, false), (false, true)];
        let (out, back) = chance.pick(&ways).copied().unwrap_or((true, true));
        let lasts = chance.duration(S / 5, S * 9);
        Fault::Cut { node, out, back, lasts }
    }),
    (Family::Network, 12, |_, chance| Fault::Storm {
        conditions: storm(chance),
        lasts: chance.duration(S, S * 12),
    }),
    // Up to a multiple of the time-out, so that a request comes in time, after its sender gave up, or after its not-after.
    (Family::Slow, 12, |node, chance| {
        let longest = [MS * 300, MS * 900, S * 2, S * 4];
        let mut longest = |often| match chance.happens(often) {
            true => chance.pick(&longest).copied().unwrap_or_default(),
            false => Duration::ZERO,
        };
        let (out, back) = (longest(800), longest(600));
        let lasts = chance.duration(S, S * 12);
        Fault::Slow { node, out, back, lasts }
    }),
    (Family::Nodes, 12, |node, chance| Fault::Pause {
        node,
        lasts: chance.duration(S / 5, S * 14),
    }),
    (Family::Nodes, 8, |node, chance| Fault::Suspend {
        node,
        lasts: chance.duration(S / 5, S * 14),
    }),
    (Family::Nodes, 10, |node, chance| Fault::Kill {
        node,
        down: chance.duration(MS * 20, S * 8),
    }),
    (Family::Nodes, 4, |node, chance| Fault::Twin {
        of: node,
        lasts: chance.duration(S, S * 8),
    }),
    (Family::Store, 12, |_, chance| Fault::Freeze {
        lasts: chance.duration(S / 5, S * 8),
    }),
    (Family::Store, 10, |_, chance| Fault::Restart {
        down: chance.duration(S / 20, S * 8),
    }),
    (Family::Ledger, 4, |_, chance| Fault::LedgerAway {
        lasts: chance.duration(S / 5, S * 8),
    }),
    (Family::Ledger, 4, |_, chance| Fault::LedgerHangs {
        lasts: chance.duration(S / 5, S * 6),
    }),
    (Family::Ledger, 4, |_, chance| Fault::LedgerLoses {
        often: chance.below(400),
        lasts: chance.duration(S, S * 8),
    }),
    (Family::Clocks, 6, |_, chance| Fault::ClockBack {
        by: chance.duration(MS, S * 9),
    }),
    (Family::Clocks, 5, |_, chance| Fault::JumpAhead {
        by: chance.duration(MS * 10, MS * 800),
    }),
    (Family::Clocks, 3, |_, chance| Fault::LeapAhead {
        by: chance.duration(S * 3, S * 60),
    }),
    (Family::Clocks, 8, |node, chance| {
        let by = i64::try_from(chance.below(20_000)).unwrap_or(0);
        let by_ms = if chance.happens(500) { by } else { -by };
        Fault::StepWall { node, by_ms }
    }),
    (Family::Loss, 6, |_, chance| Fault::RollBack {
        lag: chance.duration(MS * 10, S * 5),
        down: chance.duration(MS, S * 3),
    }),
    // A failover so quick that it is shorter than the gap.
    (Family::Loss, 6, |_, chance| Fault::RollBack {
        lag: chance.duration(MS, MS * 500),
        down: chance.duration(MS, MS * 100),
    }),
    (Family::Loss, 3, |_, chance| Fault::Wipe {
        down: chance.duration(MS, S * 3),
    }),
];

impl Mix {
    /// The mix without the faults of a ledger, for a run without rosters.
    #[must_use]
    pub fn without_ledger(mut self) -> Self {
        self.0.retain(|family| *family != Family::Ledger);
        self
    }

    /// Draws the next fault, or `None` if the mix is empty.
    pub fn draw(&self, chance: &mut Chance, nodes: usize) -> Option<Fault> {
        let allowed: Vec<_> = FAULTS.iter().filter(|(family, ..)| self.0.contains(family)).collect();
        let whole: u64 = allowed.iter().map(|(_, weight, _)| weight).sum();
        let mut drawn = chance.below(whole);
        let node = usize::try_from(chance.below(nodes as u64)).unwrap_or(0);
        for (_, weight, make) in allowed {
            if drawn < *weight {
                return Some(make(node, chance));
            }
            drawn -= weight;
        }
        None
    }
}

fn storm(chance: &mut Chance) -> Conditions {
    Conditions {
        lose_request: chance.below(200),
        lose_reply: chance.below(250),
        reset: chance.below(100),
        straggle: chance.below(120),
        slow: chance.below(400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_round_trips_and_draws_only_its_families() {
        for text in ["all", "none", "network", "slow", "nodes,loss"] {
            assert_eq!(text.parse::<Mix>().unwrap().to_string(), text);
        }
        assert!("network,weather".parse::<Mix>().unwrap_err().contains("weather"));
        let mut chance = Chance::new(1, 1);
        let mix: Mix = "loss".parse().unwrap();
        let all_loss = |fault: &Fault| matches!(fault, Fault::RollBack { .. } | Fault::Wipe { .. });
        assert!((0..100).all(|_| mix.draw(&mut chance, 3).is_some_and(|fault| all_loss(&fault))));
        assert_eq!("none".parse::<Mix>().unwrap().draw(&mut chance, 3), None);
    }
}
