//! Store health: whether the server served continuously between two checks, and was the same server.
//!
//! A missing heartbeat means nothing if the server was down, was replaced, or evicted keys. So a break of health
//! between two checks invalidates the first one, and the wait starts again.

use std::fmt;
use std::time::Duration;

use tenure_core::clock::Mono;
use tenure_core::settling::MAX_GAP;
use tenure_core::time::{StoreTime, show_duration};

/// Why earlier checks of heartbeats no longer count.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Break {
    /// The connection was lost and the client reconnected.
    Reconnected,
    /// The server is another process, or its uptime decreased.
    Restarted,
    /// The data have another replication history: a failover or a promoted replica.
    HistoryChanged,
    /// The server stopped or started being a primary.
    RoleChanged,
    /// The server evicted keys for lack of memory, perhaps heartbeats.
    KeysEvicted {
        /// How many since the first check.
        keys: u64,
    },
    /// The marker of the first check is gone: data were lost or rolled back.
    DataLost,
    /// The server did not respond for too long.
    Silent {
        /// For how long.
        silent: Duration,
    },
    /// The server's clock jumped.
    ClockJumped,
    /// The server was unreachable.
    Unreachable {
        /// The error.
        reason: String,
    },
}

impl Break {
    /// One word, for logs and metrics.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Reconnected => "reconnected",
            Self::Restarted => "restarted",
            Self::HistoryChanged => "history_changed",
            Self::RoleChanged => "role_changed",
            Self::KeysEvicted { .. } => "keys_evicted",
            Self::DataLost => "data_lost",
            Self::Silent { .. } => "silent",
            Self::ClockJumped => "clock_jumped",
            Self::Unreachable { .. } => "unreachable",
        }
    }
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reconnected => f.write_str("the connection to the store was lost, and the client reconnected"),
            Self::Restarted => f.write_str("the store's server was restarted"),
            Self::HistoryChanged => f.write_str("the store's data have another replication history (failover)"),
            Self::RoleChanged => f.write_str("the store's server changed its role"),
            Self::KeysEvicted { keys } => write!(
                f,
                "the store evicted {keys} keys for lack of memory, perhaps heartbeats (set maxmemory-policy noeviction)"
            ),
            Self::DataLost => f.write_str("the store lost data"),
            Self::Silent { silent } => write!(f, "the store did not respond for {}", show_duration(*silent)),
            Self::ClockJumped => f.write_str("the store's clock jumped"),
            Self::Unreachable { reason } => f.write_str(reason),
        }
    }
}

/// The relevant parts of `INFO`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Info {
    run_id: String,
    replication_id: String,
    role: String,
    uptime: u64,
    evicted_keys: u64,
    pub(crate) cluster: bool,
}

impl Info {
    /// Parses the text of `INFO`. A missing line reads as empty, so it never shows a change.
    pub(crate) fn parse(text: &str) -> Self {
        let mut info = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.trim_end().split_once(':')) {
            match name {
                "run_id" => info.run_id = value.to_owned(),
                "master_replid" => info.replication_id = value.to_owned(),
                "role" => info.role = value.to_owned(),
                "uptime_in_seconds" => info.uptime = value.parse().unwrap_or(0),
                "evicted_keys" => info.evicted_keys = value.parse().unwrap_or(0),
                "cluster_enabled" => info.cluster = value == "1",
                _ => {}
            }
        }
        info
    }

    /// The uptime of the server, in whole seconds.
    pub(crate) fn uptime(&self) -> Duration {
        Duration::from_secs(self.uptime)
    }

    fn broken_by(&self, later: &Self) -> Option<Break> {
        if self.run_id != later.run_id || later.uptime < self.uptime {
            Some(Break::Restarted)
        } else if self.role != later.role {
            Some(Break::RoleChanged)
        } else if self.replication_id != later.replication_id {
            Some(Break::HistoryChanged)
        } else {
            // A reset counter (CONFIG RESETSTAT) proves nothing.
            let keys = later.evicted_keys.saturating_sub(self.evicted_keys);
            (keys > 0).then_some(Break::KeysEvicted { keys })
        }
    }
}

/// The server at one instant.
#[derive(Debug, Clone)]
pub(crate) struct ServerSnapshot {
    /// The connection it was asked over.
    pub(crate) generation: u64,
    /// The time of the response, by the server's clock and by ours.
    pub(crate) at: StoreTime,
    pub(crate) arrived: Mono,
    /// Whether the marker of the attempt existed.
    pub(crate) marker: bool,
    /// `None` when the server denies `INFO`.
    pub(crate) info: Option<Info>,
}

impl ServerSnapshot {
    /// What broke between this instant and a later one, if anything.
    pub(crate) fn broken_by(&self, later: &Self) -> Option<Break> {
        let known = match (&self.info, &later.info) {
            (Some(before), Some(after)) => before.broken_by(after),
            _ => None,
        };
        if known.is_some() {
            return known;
        }
        if !later.marker {
            return Some(Break::DataLost);
        }
        if self.generation != later.generation {
            return Some(Break::Reconnected);
        }
        let (ours, theirs) = (later.arrived.since(self.arrived), later.at.since(self.at));
        let jumped = later.at < self.at || ours.abs_diff(theirs) > MAX_GAP;
        jumped.then_some(Break::ClockJumped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nrun_id:aa\r\nuptime_in_seconds:50\r\n# Replication\r\nrole:master\r\n\
                        master_replid:bb\r\n# Stats\r\nevicted_keys:3\r\n# Cluster\r\ncluster_enabled:0\r\n";

    fn snapshot(seconds: u64, info: Option<&str>) -> ServerSnapshot {
        ServerSnapshot {
            generation: 1,
            at: StoreTime::from_micros(seconds * 1_000_000),
            arrived: Mono::from_origin(Duration::from_secs(seconds)),
            marker: true,
            info: info.map(Info::parse),
        }
    }

    #[test]
    fn continuous_service_is_not_a_break() {
        let before = snapshot(10, Some(INFO));
        let later = snapshot(40, Some(&INFO.replace("seconds:50", "seconds:80")));
        assert_eq!(before.broken_by(&later), None);
        assert_eq!(snapshot(10, None).broken_by(&snapshot(40, None)), None, "without INFO");
    }

    #[test]
    fn server_changes_are_breaks() {
        let before = snapshot(10, Some(INFO));
        for (from, to, broken) in [
            ("run_id:aa", "run_id:cc", Break::Restarted),
            ("seconds:50", "seconds:3", Break::Restarted),
            ("role:master", "role:slave", Break::RoleChanged),
            ("replid:bb", "replid:dd", Break::HistoryChanged),
            ("evicted_keys:3", "evicted_keys:10", Break::KeysEvicted { keys: 7 }),
        ] {
            let later = snapshot(40, Some(&INFO.replace(from, to)));
            assert_eq!(before.broken_by(&later), Some(broken), "{to}");
        }
        let reset = snapshot(40, Some(&INFO.replace("evicted_keys:3", "evicted_keys:0")));
        assert_eq!(before.broken_by(&reset), None, "a counter that was reset");
    }

    #[test]
    fn breaks_are_detected_without_info() {
        let before = snapshot(10, None);
        let later = snapshot(40, None);
        let reconnected = ServerSnapshot {
            generation: 2,
            ..later.clone()
        };
        assert_eq!(before.broken_by(&reconnected), Some(Break::Reconnected));
        let lost = ServerSnapshot {
            marker: false,
            ..later.clone()
        };
        assert_eq!(before.broken_by(&lost), Some(Break::DataLost));
        let ahead = ServerSnapshot {
            at: StoreTime::from_micros(43_000_000),
            ..later.clone()
        };
        assert_eq!(before.broken_by(&ahead), Some(Break::ClockJumped));
        let back = ServerSnapshot {
            at: StoreTime::from_micros(9_000_000),
            ..later
        };
        assert_eq!(before.broken_by(&back), Some(Break::ClockJumped));
    }
}
