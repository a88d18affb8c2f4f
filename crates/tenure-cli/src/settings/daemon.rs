//! The settings of the daemon.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tenure::roster::MIN_KEPT;
use tenure_core::session::{MAX_GRACE, MIN_GRACE};
use tenure_core::time::show_duration;
use tenure_core::timing::{DEFAULT_TTL, MIN_TTL, check_ttl};
use tenure_server::daemon::TraceSettings;

use super::value::{address, duration, log_format, number, optional, path, sample, share, switch, text};
use super::{Environment, Flags, LONGEST_TTL};
use crate::exit::Usage;
use crate::logging::LogFormat;

settings! {
    /// The settings of the daemon with their values.
    Settings

    /// The address to serve HTTP on; port 0 takes a free one.
    listen: SocketAddr = "127.0.0.1:7717", "listen", "ADDRESS", address;
    /// Serve on an address that other machines reach, although callers need no credentials, or send them in the clear.
    insecure_listen: bool = "false", "insecure_listen", "", switch;
    /// A file with the tokens that callers must send (`tenure token new` makes them). Without it callers need none.
    tokens: String = "", "tokens", "FILE", text;
    /// Serve /metrics to everyone; with tokens it is for those who may read everything.
    public_metrics: bool = "false", "public_metrics", "", switch;
    /// Where the store is: sqlite:PATH, memory:, valkey://HOST or redis://HOST (with TLS valkeys://, rediss://), valkey-sentinel://HOST,…/NAME, valkey-cluster://HOST,…. Without it: tenure.db in the data directory.
    store: String = "", "store", "URL", text;
    /// Where rosters are durable: postgres://…, sqlite:PATH, memory:. Without it: beside an embedded store, and no rosters on another.
    ledger: String = "", "ledger", "URL", text;
    /// The directory for what the daemon keeps; made when it is missing.
    data_dir: PathBuf = "tenure-data", "data_dir", "DIR", path;
    /// Joins with a longer ttl are refused, and after a loss of data no lease is granted for this long.
    max_ttl: Duration = "2m", "max_ttl", "DURATION", duration;
    /// The longest time between two passes of the janitor; what is due earlier is done earlier.
    janitor_interval: Duration = "60s", "janitor.interval", "DURATION", duration;
    /// The longest time between two looks for sessions whose grace is over; what is due earlier is done earlier.
    reaper_interval: Duration = "30s", "reaper.interval", "DURATION", duration;
    /// How long a session without connections can be resumed, unless it has a grace of its own.
    sessions_grace: Duration = "60s", "sessions.grace", "DURATION", duration;
    /// A connection that was attached longer ago than this, and not again since, is dropped by the next reconcile. Without it: never.
    sessions_max_age: Option<Duration> = "", "sessions.max_age", "DURATION", |given| optional(given, duration);
    /// How often all sessions are compared with their index.
    sessions_reconcile_interval: Duration = "24h", "sessions.reconcile_interval", "DURATION", duration;
    /// The longest time between two looks for providers without heartbeats; what is due earlier is done earlier.
    roster_auto_offline_interval: Duration = "30s", "roster.auto_offline_interval", "DURATION", duration;
    /// How often the heartbeats of providers are written down in the ledger.
    roster_heartbeat_mirror_interval: Duration = "60s", "roster.heartbeat_mirror_interval", "DURATION", duration;
    /// How often the mirror of a roster is compared with its ledger.
    roster_reconcile_interval: Duration = "300s", "roster.reconcile_interval", "DURATION", duration;
    /// Engagements that are over are removed from the ledger this long after their last change. Without it: never.
    roster_keep_engagements: Option<Duration> = "", "roster.keep_engagements", "DURATION", |given| optional(given, duration);
    /// Removal pauses when more than this share of a group lapses at once; 1.0 never pauses.
    brake_share: f64 = "0.5", "brake.share", "SHARE", share;
    /// Groups smaller than this never brake.
    brake_floor: u64 = "10", "brake.floor", "MEMBERS", number;
    /// The brake releases after this long at the latest.
    brake_hold: Duration = "5m", "brake.hold", "DURATION", duration;
    /// A group that has been empty for this long is forgotten, with its events. At least twice max_ttl.
    groups_forget_after: Duration = "24h", "groups.forget_after", "DURATION", duration;
    /// How many events a group keeps.
    events_max: u64 = "100000", "events.max", "EVENTS", number;
    /// About how many bytes the events of a group may take; the oldest go first.
    events_bytes: u64 = "67108864", "events.bytes", "BYTES", number;
    /// Whether events of evictions list the keys (`why KEY` needs them).
    events_keys: bool = "true", "events.keys", "", switch;
    /// A file with the secret that tokens of providers are signed with (HS256); TENURE_JWT_SECRET may have the secret itself. With keys, providers need a token.
    jwt_secret_file: String = "", "jwt.secret_file", "FILE", text;
    /// A file with the public keys that tokens of providers are signed with (JWKS). With keys, providers need a token.
    jwt_jwks_file: String = "", "jwt.jwks_file", "FILE", text;
    /// The one algorithm that tokens are signed by: HS256 with a secret, RS256, PS256, ES256, ES384 or EdDSA with public keys.
    jwt_algorithm: String = "", "jwt.algorithm", "NAME", text;
    /// The issuer (iss) that tokens must have.
    jwt_issuer: String = "", "jwt.issuer", "NAME", text;
    /// The audience (aud) that tokens must be for.
    jwt_audience: String = "", "jwt.audience", "NAME", text;
    /// Claims that tokens must have, separated by commas, like role=provider.
    jwt_require: String = "", "jwt.require", "CLAIM=VALUE", text;
    /// How far the clock of the issuer of tokens may be off.
    jwt_leeway: Duration = "5s", "jwt.leeway", "DURATION", duration;
    /// How often the file of the keys is looked at.
    jwt_refresh: Duration = "5s", "jwt.refresh", "DURATION", duration;
    /// Groups whose registrations in Consul this daemon clears away after their supervisors were killed, separated by commas. Without it: none.
    registrations_groups: String = "", "registrations.groups", "GROUPS", text;
    /// At which agents of Consul it does so, separated by commas: loopback, HOST or ADDRESS/BITS, each with :PORT when the agents are not at 8500 (8501 with TLS). An agent that only a range names gets the token through TLS alone.
    registrations_agents: String = "loopback", "registrations.agents", "AGENTS", text;
    /// A file with the token for these agents, read at every request; TENURE_REGISTRATIONS_TOKEN may have the token itself.
    registrations_token_file: String = "", "registrations.token_file", "FILE", text;
    /// The authority that certificates of agents are checked against, instead of those of the machine.
    registrations_tls_ca: String = "", "registrations.tls_ca", "FILE", text;
    /// The certificate that is shown to such agents.
    registrations_tls_cert: String = "", "registrations.tls_cert", "FILE", text;
    /// Its private key.
    registrations_tls_key: String = "", "registrations.tls_key", "FILE", text;
    /// The certificate that is shown to clients, with what leads from it to its authority: serve HTTPS.
    tls_cert: String = "", "tls.cert", "FILE", text;
    /// Its private key.
    tls_key: String = "", "tls.key", "FILE", text;
    /// The authorities of clients: a client without a certificate of theirs is rejected.
    tls_client_ca: String = "", "tls.client_ca", "FILE", text;
    /// How many requests one caller may make in a second (a caller is a token, or an address without one); 0 = unlimited.
    limits_rate: u64 = "0", "limits.rate", "REQUESTS", number;
    /// How many of these may come together after a silence; 0 is what may come in a second.
    limits_burst: u64 = "0", "limits.burst", "REQUESTS", number;
    /// How many new groups one caller may make in a minute (a caller is a token, or an address without one); 0 = unlimited.
    limits_new_groups: u64 = "600", "limits.new_groups", "GROUPS", number;
    /// The longest body that is read; batches may have four times as much.
    limits_body: u64 = "1048576", "limits.body", "BYTES", number;
    /// How many requests of one caller in one group are answered concurrently, and as many beats; more are refused.
    limits_requests: u64 = "1024", "limits.requests", "REQUESTS", number;
    /// How many connections may be open; for more, those that have sent least for longest are closed.
    limits_connections: u64 = "10000", "limits.connections", "CONNECTIONS", number;
    /// How many event streams and long polls of one caller in one group may be open; more are refused.
    limits_streams: u64 = "1000", "limits.streams", "STREAMS", number;
    /// How many requests of one caller in one group may wait for leases, at most half of `limits.connections`; more are refused.
    limits_waiters: u64 = "20000", "limits.waiters", "REQUESTS", number;
    /// How long the store may take to answer before a call fails; at most 2s.
    limits_request_timeout: Duration = "500ms", "limits.request_timeout", "DURATION", duration;
    /// How long a body may take to arrive.
    limits_body_timeout: Duration = "10s", "limits.body_timeout", "DURATION", duration;
    /// How long a connection may be idle, or take to send the head of a request. Without it: a third of max_ttl, and 5s.
    limits_idle_timeout: Option<Duration> = "", "limits.idle_timeout", "DURATION", |given| optional(given, duration);
    /// How long a connection may take to shake hands, with TLS.
    limits_handshake_timeout: Duration = "5s", "limits.handshake_timeout", "DURATION", duration;
    /// A client that does not read for this long is dropped.
    limits_stall_timeout: Duration = "20s", "limits.stall_timeout", "DURATION", duration;
    /// The collector that traces are sent to, by OTLP over HTTP (/v1/traces is added). Without it there are none. A tenure that was built without traces rejects it.
    otlp_endpoint: String = "", "otlp.endpoint", "URL", text;
    /// Which share of new traces is recorded, 0 to 1. A request that belongs to a trace of its caller (traceparent) is recorded when that is.
    otlp_sample: f64 = "1.0", "otlp.sample", "SHARE", sample;
    /// How long a shutdown waits for requests that are being answered.
    drain: Duration = "5s", "drain", "DURATION", duration;
    /// What is logged: a level (error, warn, info, debug, trace) or targets with levels, like info,tenure=debug.
    log: String = "info", "log", "FILTER", text;
    /// How log lines look: text or json.
    log_format: LogFormat = "text", "log_format", "FORMAT", log_format;
}

impl Settings {
    /// Puts the settings together from flags, environment and file, and refuses what cannot work.
    ///
    /// # Errors
    /// `Usage`, naming the flag, variable or key, its value and what would be right.
    pub(crate) fn load(flags: &Flags, environment: Environment<'_>) -> Result<Self, Usage> {
        flags.values(environment)?.check()
    }

    /// Refuses values that are each fine but do not work together.
    fn check(self) -> Result<Self, Usage> {
        let refuse = |message: String| Err(Usage::new(message));
        if self.max_ttl < MIN_TTL || self.max_ttl > LONGEST_TTL {
            return refuse(format!(
                "max_ttl is {}; it has to be from {} to {}",
                show_duration(self.max_ttl),
                show_duration(MIN_TTL),
                show_duration(LONGEST_TTL)
            ));
        }
        for (key, value, least, most) in [
            (
                "janitor.interval",
                self.janitor_interval,
                SHORTEST_INTERVAL,
                LONGEST_INTERVAL,
            ),
            (
                "reaper.interval",
                self.reaper_interval,
                SHORTEST_INTERVAL,
                LONGEST_INTERVAL,
            ),
            ("sessions.grace", self.sessions_grace, MIN_GRACE, MAX_GRACE),
            (
                "sessions.max_age",
                self.sessions_max_age.unwrap_or(LONGEST_AGE),
                MIN_GRACE,
                LONGEST_AGE,
            ),
            (
                "sessions.reconcile_interval",
                self.sessions_reconcile_interval,
                SHORTEST_INTERVAL,
                LONGEST_RECONCILE,
            ),
            (
                "roster.auto_offline_interval",
                self.roster_auto_offline_interval,
                SHORTEST_SWEEP,
                LONGEST_INTERVAL,
            ),
            (
                "roster.heartbeat_mirror_interval",
                self.roster_heartbeat_mirror_interval,
                SHORTEST_SWEEP,
                LONGEST_INTERVAL,
            ),
            (
                "roster.reconcile_interval",
                self.roster_reconcile_interval,
                SHORTEST_SWEEP,
                LONGEST_INTERVAL,
            ),
            (
                "roster.keep_engagements",
                self.roster_keep_engagements.unwrap_or(LONGEST_KEPT),
                MIN_KEPT,
                LONGEST_KEPT,
            ),
            ("brake.hold", self.brake_hold, SHORTEST_INTERVAL, LONGEST_INTERVAL),
            ("drain", self.drain, Duration::ZERO, LONGEST_DRAIN),
        ] {
            if value < least || value > most {
                let (value, least, most) = (show_duration(value), show_duration(least), show_duration(most));
                return refuse(format!("{key} is {value}; it has to be from {least} to {most}"));
            }
        }
        if self.groups_forget_after < self.max_ttl * 2 {
            let (after, least) = (show_duration(self.groups_forget_after), show_duration(self.max_ttl * 2));
            return refuse(format!(
                "groups.forget_after is {after}; it has to be at least twice max_ttl, {least}"
            ));
        }
        for (key, value, least) in [
            ("events.max", self.events_max, LEAST_EVENTS),
            ("events.bytes", self.events_bytes, LEAST_EVENT_BYTES),
        ] {
            if value < least {
                return refuse(format!("{key} is {value}; it has to be at least {least}"));
            }
        }
        self.traces()?;
        if !self.listen.ip().is_loopback() && !self.insecure_listen {
            let server = self.server()?;
            server.check_address(self.listen).map_err(|error| {
                let listen = self.listen;
                Usage::new(format!(
                    "listen is {listen}, which other machines reach: {error} (--insecure-listen)"
                ))
            })?;
        }
        Ok(self)
    }

    /// Where traces go; `None` for nowhere.
    pub(crate) fn traces(&self) -> Result<Option<TraceSettings>, Usage> {
        if self.otlp_endpoint.is_empty() {
            return Ok(None);
        }
        let traces = TraceSettings {
            endpoint: self.otlp_endpoint.clone(),
            sample: self.otlp_sample,
        };
        match traces.check() {
            Ok(()) => Ok(Some(traces)),
            Err(error) => Err(Usage::new(format!("otlp.endpoint: {}", error.chain()))),
        }
    }

    /// Warnings about settings that work but may surprise.
    pub(crate) fn surprises(&self) -> Option<String> {
        check_ttl(DEFAULT_TTL, self.max_ttl).err().map(|error| {
            format!(
                "joins that name no ttl ask for {} and will be refused: {error}",
                show_duration(DEFAULT_TTL)
            )
        })
    }

    /// The store's URL, and whether it is the default one inside the data directory.
    pub(crate) fn store_url(&self) -> (String, bool) {
        if self.store.is_empty() {
            (format!("sqlite:{}", self.data_dir.join("tenure.db").display()), true)
        } else {
            (self.store.clone(), false)
        }
    }

    /// The ledger's URL; `None` for a store on a network without one, where rosters have no place to be durable.
    pub(crate) fn ledger_url(&self) -> Option<String> {
        if self.ledger.is_empty() {
            let (store, is_default) = self.store_url();
            let default = || format!("sqlite:{}", self.data_dir.join("ledger.db").display());
            return if is_default { Some(default()) } else { beside(&store) };
        }
        Some(self.ledger.clone())
    }
}

/// The ledger that belongs to an embedded store: gone with a process, or a file beside the store's, which is another one
/// because each has one writer. `None` for a store on a network.
pub(crate) fn beside(store: &str) -> Option<String> {
    if store == "memory:" {
        return Some(store.to_owned());
    }
    let path = store.strip_prefix("sqlite:")?;
    let stem = path.strip_suffix(".db").unwrap_or(path);
    Some(format!("sqlite:{stem}.ledger.db"))
}

const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
const LONGEST_INTERVAL: Duration = Duration::from_secs(3600);
/// The sweeps of rosters also query the ledger, so their shortest interval is longer.
const SHORTEST_SWEEP: Duration = Duration::from_secs(1);
const LONGEST_RECONCILE: Duration = Duration::from_secs(30 * 24 * 3600);
const LONGEST_KEPT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
const LONGEST_AGE: Duration = Duration::from_secs(365 * 24 * 3600);
const LONGEST_DRAIN: Duration = Duration::from_secs(600);
/// Fewer would trim the events of one larger burst before anyone could read them.
const LEAST_EVENTS: u64 = 100;
const LEAST_EVENT_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(flags: &[(&'static str, &str)]) -> Option<String> {
        Settings::load(&Flags::of(None, flags), &|_| None).unwrap().ledger_url()
    }

    #[test]
    fn default_ledger_is_beside_an_embedded_store() {
        assert_eq!(ledger(&[("data_dir", "d")]).as_deref(), Some("sqlite:d/ledger.db"));
        for (store, url) in [
            ("memory:", Some("memory:")),
            ("sqlite:/var/x.db", Some("sqlite:/var/x.ledger.db")),
            ("sqlite:x", Some("sqlite:x.ledger.db")),
            ("valkey://h", None),
        ] {
            assert_eq!(ledger(&[("store", store)]).as_deref(), url, "{store}");
        }
        let given = [("store", "valkey://h"), ("ledger", "postgres://h/d")];
        assert_eq!(ledger(&given).as_deref(), Some("postgres://h/d"));
    }
}
