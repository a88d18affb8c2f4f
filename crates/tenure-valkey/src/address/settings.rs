//! The settings after the `?` of a store's URL.

use std::path::PathBuf;
use std::time::Duration;

use redis::RedisConnectionInfo;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::time::parse_duration;
use tenure_tls::ClientTls;

use super::refused;

/// The kind of store that the scheme selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    One { tls: bool },
    Sentinel,
    Cluster,
}

impl Scheme {
    pub(super) fn parse(scheme: &str) -> Option<Self> {
        Some(match scheme {
            "valkey" | "redis" => Self::One { tls: false },
            "valkeys" | "rediss" => Self::One { tls: true },
            "valkey-sentinel" | "redis-sentinel" => Self::Sentinel,
            "valkey-cluster" | "redis-cluster" => Self::Cluster,
            _ => return None,
        })
    }
}

/// How many replicas must confirm a grant, and the time limit of the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) replicas: u32,
    pub(crate) within: Duration,
}

/// The validated settings of a URL.
pub(super) struct UrlSettings {
    pub(super) tls: Option<ClientTls>,
    pub(super) sentinel: RedisConnectionInfo,
    pub(super) wait: Option<Wait>,
}

/// The default time limit for replicas.
const WAIT: Duration = Duration::from_millis(200);
/// The longest time limit: a longer wait outlasts the margins of a lease, so the grant is useless.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

impl UrlSettings {
    /// Parses the settings. Each may be given once.
    pub(super) fn parse(scheme: Scheme, query: &str) -> Result<Self> {
        let mut given = RawSettings::default();
        // The host is a dummy: only the query parser is used.
        let pairs = redis::parse_redis_url(&format!("redis://settings?{query}"))
            .ok_or_else(|| refused("its settings cannot be read"))?;
        for (key, value) in pairs.query_pairs() {
            given.put(&key, value.into_owned())?;
        }
        given.into_settings(scheme)
    }
}

#[derive(Default)]
struct RawSettings {
    tls: Option<String>,
    tls_ca: Option<String>,
    tls_cert: Option<String>,
    tls_key: Option<String>,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    wait: Option<String>,
    wait_timeout: Option<String>,
}

impl RawSettings {
    fn put(&mut self, key: &str, value: String) -> Result<()> {
        let slot = match key {
            "tls" => &mut self.tls,
            "tls_ca" => &mut self.tls_ca,
            "tls_cert" => &mut self.tls_cert,
            "tls_key" => &mut self.tls_key,
            "sentinel_user" => &mut self.sentinel_user,
            "sentinel_password" => &mut self.sentinel_password,
            "wait" => &mut self.wait,
            "wait_timeout" => &mut self.wait_timeout,
            _ => {
                return Err(refused(
                    "it has an unknown setting; known are tls, tls_ca, tls_cert, tls_key, sentinel_user, \
                     sentinel_password, wait and wait_timeout",
                ));
            }
        };
        if value.is_empty() {
            return Err(refused("one of its settings is empty"));
        }
        match slot.replace(value) {
            None => Ok(()),
            Some(_) => Err(refused("one of its settings is given twice")),
        }
    }

    fn into_settings(self, scheme: Scheme) -> Result<UrlSettings> {
        let wait = self.wait()?;
        let files = ClientTls {
            ca: self.tls_ca.map(PathBuf::from),
            cert: self.tls_cert.map(PathBuf::from),
            key: self.tls_key.map(PathBuf::from),
        };
        let asked = match (scheme, self.tls.as_deref()) {
            (Scheme::One { tls }, None) => tls,
            (Scheme::One { .. }, Some(_)) => {
                return Err(refused(
                    "tls=… is for sentinels and clusters; write valkeys:// or rediss://",
                ));
            }
            (_, None) => files != ClientTls::default(),
            (_, Some("on")) => true,
            (_, Some(_)) => return Err(refused("tls can only be on")),
        };
        if !asked && files != ClientTls::default() {
            return Err(refused(
                "it has TLS files but no TLS scheme; write valkeys:// or rediss://",
            ));
        }
        let tls = asked.then_some(files);
        if let Some(files) = &tls {
            // An unreadable TLS file is reported before any connection attempt.
            files.config().map_err(unusable)?;
        }
        if scheme != Scheme::Sentinel && (self.sentinel_user.is_some() || self.sentinel_password.is_some()) {
            return Err(refused("it has sentinel credentials but no sentinels"));
        }
        let mut sentinel = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(user) = self.sentinel_user {
            sentinel = sentinel.set_username(user);
        }
        if let Some(password) = self.sentinel_password {
            sentinel = sentinel.set_password(password);
        }
        Ok(UrlSettings { tls, sentinel, wait })
    }

    fn wait(&self) -> Result<Option<Wait>> {
        let Some(wait) = &self.wait else {
            return match self.wait_timeout {
                None => Ok(None),
                Some(_) => Err(refused("it has wait_timeout without wait=REPLICAS")),
            };
        };
        let replicas = wait.parse().ok().filter(|replicas| (1..=100).contains(replicas));
        let replicas = replicas.ok_or_else(|| refused("wait must be a number of replicas from 1 to 100"))?;
        let within = match &self.wait_timeout {
            None => WAIT,
            Some(text) => parse_duration(text)
                .ok()
                .filter(|within| (Duration::from_millis(1)..=LONGEST_WAIT).contains(within))
                .ok_or_else(|| refused("wait_timeout must be a duration from 1ms to 5s"))?,
        };
        Ok(Some(Wait { replicas, within }))
    }
}

/// The error for unusable TLS files.
pub(crate) fn unusable(error: tenure_tls::TlsError) -> Error {
    Error::new(ErrorKind::Misconfigured, "the store's TLS cannot be set up").because(error)
}
