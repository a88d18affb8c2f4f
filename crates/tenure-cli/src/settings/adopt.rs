//! The settings of `tenure adopt`: a table for each keyspace that it looks after.

use std::net::SocketAddr;
use std::time::Duration;

use tenure_adopt::{MAX_SETTLE, MIN_MAX_AGE, Unit, Until};
use tenure_core::id::Group;
use tenure_core::time::show_duration;

use super::value::{address, duration, group, number, optional, share, text};
use super::{Environment, FlagsOf, Table};
use crate::exit::Usage;

settings! {
    /// The settings of `tenure adopt registry` with their values.
    Registry

    /// The hash of key -> owner's id.
    hash: String = "", "adopt.registry.hash", "KEY", text;
    /// The heartbeat key of an owner, with {id} for its id: instance:heartbeat:{id}
    heartbeat: String = "", "adopt.registry.heartbeat", "TEMPLATE", text;
    /// The server of the other programs: valkey://HOST or redis://HOST, with TLS valkeys:// or rediss://.
    store: String = "", "adopt.registry.store", "URL", text, shared "TENURE_STORE";
    /// The time between the two looks; 0s decides by one look.
    settle: Duration = "30s", "adopt.registry.settle", "DURATION", duration;
    /// A JSON pointer to the id in JSON values, like /instance. Without it the value is the id.
    owner_pointer: Option<String> = "", "adopt.registry.owner_pointer", "POINTER", |given| optional(given, text);
    /// Run as a daemon with a pass at least this often; 60s if no value is given.
    interval: Option<Duration> = "", "adopt.registry.interval", "DURATION", |given| optional(given, duration), bare "60s";
    /// Serve metrics for Prometheus on this address (/metrics). Only with --interval.
    metrics_listen: Option<SocketAddr> = "", "adopt.registry.metrics_listen", "ADDRESS", |given| optional(given, address);
    /// Removal pauses when more than this share of the owners is dead together; 1.0 never pauses.
    brake_share: f64 = "0.5", "adopt.registry.brake.share", "SHARE", share;
    /// Hashes with fewer owners than this never brake.
    brake_floor: u64 = "10", "adopt.registry.brake.floor", "OWNERS", number;
    /// The brake releases after this long at the latest.
    brake_hold: Duration = "5m", "adopt.registry.brake.hold", "DURATION", duration;
}

settings! {
    /// The settings of `tenure adopt leases` with their values.
    Leases

    /// The pattern of the old keys, with {target} or one * for the target's name: 'poll:lease:*'
    pattern: String = "", "adopt.leases.pattern", "PATTERN", text;
    /// The server with the old keys: valkey://HOST or redis://HOST, with TLS valkeys:// or rediss://.
    store: String = "", "adopt.leases.store", "URL", text, shared "TENURE_STORE";
    /// The store of Tenure's leases, if it is another one: a daemon (http://HOST:PORT, https://HOST), or a store itself (as --store of `tenure leases`).
    tenure_store: Option<String> = "", "adopt.leases.tenure_store", "URL", |given| optional(given, text);
    /// The group.
    group: Group = "default", "adopt.leases.group", "GROUP", group, shared "TENURE_GROUP";
    /// The pattern of the keys of the targets, with {target} or one * for the name: 'endpoint:*'. Targets without a holder are then shown, too.
    targets: Option<String> = "", "adopt.leases.targets", "PATTERN", |given| optional(given, text);
    /// With --targets: the field of these keys (hashes or JSON objects) that is true for a paused target.
    paused_field: Option<String> = "", "adopt.leases.paused_field", "FIELD", |given| optional(given, text);
    /// When the move is done: no-old, when no old instance holds a key; both, when new nodes also hold every target of --targets that is not paused.
    until: Until = "no-old", "adopt.leases.until", "WHEN", until;
    /// Wait until that, at most this long.
    wait: Option<Duration> = "", "adopt.leases.wait", "DURATION", |given| optional(given, duration);
}

settings! {
    /// The settings of `tenure adopt sessions` with their values.
    Sessions

    /// The pattern of the session keys, with {id} or one * for the id: 'session:*'
    pattern: String = "", "adopt.sessions.pattern", "PATTERN", text;
    /// The field with the time of the disconnect; missing, empty or 0 while the session is active.
    disconnected_field: String = "", "adopt.sessions.disconnected_field", "FIELD", text;
    /// The server of the other programs: valkey://HOST or redis://HOST, with TLS valkeys:// or rediss://.
    store: String = "", "adopt.sessions.store", "URL", text, shared "TENURE_STORE";
    /// An index that other programs use, too: a sorted set of ids by time. Without it a private one under tenure:adopt:.
    index: Option<String> = "", "adopt.sessions.index", "KEY", |given| optional(given, text);
    /// The unit of the field and of the index: s or ms.
    unit: Unit = "s", "adopt.sessions.unit", "UNIT", unit;
    /// The most keys to scan per second.
    rate: u64 = "20000", "adopt.sessions.rate", "KEYS", number;
    /// With --reap: a session that has been disconnected for this long is an orphan.
    max_age: Duration = "60s", "adopt.sessions.max_age", "DURATION", duration;
    /// With --reap: the reference count of a session, like 'session:{id}:refs'. Sessions with a count above 0 are kept.
    refs: Option<String> = "", "adopt.sessions.refs", "TEMPLATE", |given| optional(given, text);
    /// With --reap: alias keys that are deleted with their session, like 'alias:{field:broadcaster_id}'; several separated by spaces.
    alias: Option<String> = "", "adopt.sessions.alias", "TEMPLATES", |given| optional(given, text);
    /// With --reap: the most sessions that one pass reaps.
    limit: Option<u64> = "", "adopt.sessions.limit", "SESSIONS", |given| optional(given, number);
    /// Run as a daemon with a pass at least this often; 30s if no value is given.
    interval: Option<Duration> = "", "adopt.sessions.interval", "DURATION", |given| optional(given, duration), bare "30s";
    /// With --reap and --interval: also update the index this often, while some writers do not maintain it. Without it the keyspace is never scanned.
    index_every: Option<Duration> = "", "adopt.sessions.index_every", "DURATION", |given| optional(given, duration), bare "10m";
    /// Serve metrics for Prometheus on this address (/metrics). Only with --interval.
    metrics_listen: Option<SocketAddr> = "", "adopt.sessions.metrics_listen", "ADDRESS", |given| optional(given, address);
}

/// The key of the interval, which makes a run a daemon.
pub(crate) const INTERVAL: &str = "adopt.registry.interval";
const METRICS_LISTEN: &str = "adopt.registry.metrics_listen";
/// The key of the interval of `tenure adopt sessions`.
pub(crate) const SESSIONS_INTERVAL: &str = "adopt.sessions.interval";
const SESSIONS_INDEX_EVERY: &str = "adopt.sessions.index_every";
const SESSIONS_METRICS_LISTEN: &str = "adopt.sessions.metrics_listen";
/// The shortest time between two passes.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
/// The longest that the brake may hold: ghosts would stay for longer than anyone looks.
const LONGEST_HOLD: Duration = Duration::from_secs(3600);

impl Registry {
    /// Puts the settings together from flags, environment and file, and refuses what cannot work. `once` makes it a
    /// single run, whatever the environment and the file say.
    ///
    /// # Errors
    /// `Usage`, naming the flag, variable or key, its value and what would be right.
    pub(crate) fn load(flags: &FlagsOf<Self>, once: bool, environment: Environment<'_>) -> Result<Self, Usage> {
        let mut values = flags.values(environment)?;
        require::<Self>(&[
            ("adopt.registry.hash", &values.hash),
            ("adopt.registry.heartbeat", &values.heartbeat),
            ("adopt.registry.store", &values.store),
        ])?;
        if once {
            values.interval = None;
        }
        if values.interval.is_none() {
            // In the environment or the file it is for the daemon.
            if flags.has(METRICS_LISTEN) {
                return Err(Usage::new(
                    "--metrics-listen needs --interval: a single run is over too soon to be read",
                ));
            }
            values.metrics_listen = None;
        }
        values.check()
    }

    fn check(self) -> Result<Self, Usage> {
        let too_much = |key: &str, value, most| {
            let (value, most) = (show_duration(value), show_duration(most));
            Err(Usage::new(format!("{key} is {value}, which is above {most}")))
        };
        if self.settle > MAX_SETTLE {
            return too_much("adopt.registry.settle", self.settle, MAX_SETTLE);
        }
        if self.brake_hold > LONGEST_HOLD {
            return too_much("adopt.registry.brake.hold", self.brake_hold, LONGEST_HOLD);
        }
        match self.interval.filter(|interval| *interval < SHORTEST_INTERVAL) {
            Some(interval) => {
                let (interval, least) = (show_duration(interval), show_duration(SHORTEST_INTERVAL));
                Err(Usage::new(format!("{INTERVAL} is {interval}, which is below {least}")))
            }
            None => Ok(self),
        }
    }
}

impl Leases {
    /// Puts the settings together from flags, environment and file.
    ///
    /// # Errors
    /// `Usage`, naming the flag, variable or key, its value and what would be right.
    pub(crate) fn load(flags: &FlagsOf<Self>, environment: Environment<'_>) -> Result<Self, Usage> {
        let values = flags.values(environment)?;
        require::<Self>(&[
            ("adopt.leases.pattern", &values.pattern),
            ("adopt.leases.store", &values.store),
        ])?;
        if values.paused_field.is_some() && values.targets.is_none() {
            return Err(Usage::new(
                "--paused-field needs --targets: the pattern of the keys that have the field",
            ));
        }
        if values.until == Until::Both && values.targets.is_none() {
            return Err(Usage::new(
                "--until both needs --targets: a target that no program holds is seen in no other way",
            ));
        }
        Ok(values)
    }
}

impl Sessions {
    /// Puts the settings together from flags, environment and file, and refuses what cannot work. `once` makes it a
    /// single run, whatever the environment and the file say.
    ///
    /// # Errors
    /// `Usage`, naming the flag, variable or key, its value and what would be right.
    pub(crate) fn load(flags: &FlagsOf<Self>, once: bool, environment: Environment<'_>) -> Result<Self, Usage> {
        let mut values = flags.values(environment)?;
        require::<Self>(&[
            ("adopt.sessions.pattern", &values.pattern),
            ("adopt.sessions.disconnected_field", &values.disconnected_field),
            ("adopt.sessions.store", &values.store),
        ])?;
        if once {
            values.interval = None;
        }
        if values.interval.is_none() {
            // In the environment or the file they are for the daemon.
            if flags.has(SESSIONS_METRICS_LISTEN) || flags.has(SESSIONS_INDEX_EVERY) {
                return Err(Usage::new(
                    "--metrics-listen and --index-every need --interval: a single run is over too soon",
                ));
            }
            (values.metrics_listen, values.index_every) = (None, None);
        }
        values.check()
    }

    fn check(self) -> Result<Self, Usage> {
        let least = [
            (SESSIONS_INTERVAL, self.interval, SHORTEST_INTERVAL),
            (SESSIONS_INDEX_EVERY, self.index_every, SHORTEST_INTERVAL),
            ("adopt.sessions.max_age", Some(self.max_age), MIN_MAX_AGE),
        ];
        let short = least
            .into_iter()
            .find_map(|(key, given, least)| Some((key, given.filter(|given| *given < least)?, least)));
        if let Some((key, given, least)) = short {
            let (given, least) = (show_duration(given), show_duration(least));
            return Err(Usage::new(format!("{key} is {given}, which is below {least}")));
        }
        if self.rate == 0 || self.limit == Some(0) {
            let key = if self.rate == 0 { "rate" } else { "limit" };
            return Err(Usage::new(format!("adopt.sessions.{key} is 0; write at least 1")));
        }
        Ok(self)
    }
}

fn until(text: &str) -> Result<Until, String> {
    Until::parse(text).map_err(|error| error.to_string())
}

fn unit(text: &str) -> Result<Unit, String> {
    Unit::parse(text).map_err(|error| error.to_string())
}

/// Names all required settings that are missing.
fn require<T: Table>(given: &[(&str, &str)]) -> Result<(), Usage> {
    let missing = given.iter().filter(|(_, value)| value.is_empty());
    let rows = missing.filter_map(|(key, _)| T::ROWS.iter().find(|setting| setting.key == *key));
    let lines: Vec<String> = rows
        .map(|setting| {
            let what = setting.doc.trim().trim_end_matches('.');
            format!(
                "--{} is missing ({what}): give it as {}",
                setting.flag(),
                setting.ways()
            )
        })
        .collect();
    if lines.is_empty() {
        return Ok(());
    }
    Err(Usage::new(lines.join("; ")))
}

#[cfg(test)]
mod tests;
