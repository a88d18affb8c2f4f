//! The settings of a server, and their validation.

use std::net::SocketAddr;
use std::time::Duration;

use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::time::show_duration;
use tenure_core::timing::DEFAULT_MAX_TTL;

use crate::auth::TokenSettings;
use crate::limits::RateSettings;
use crate::tls::TlsSettings;

/// The limits of a server. The defaults suit a fleet of some ten thousand members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Allow an address that other machines can reach although callers are not authenticated, or send tokens unencrypted.
    pub insecure_listen: bool,
    /// The tokens, one of which each caller needs; `None` disables authentication.
    pub tokens: Option<TokenSettings>,
    /// TLS; `None` for plain HTTP.
    pub tls: Option<TlsSettings>,
    /// Serve `/metrics` without a token. Otherwise, with tokens, it requires an unrestricted read token.
    pub public_metrics: bool,
    /// The rate limit per caller; `None` for no limit. A caller is a token, or an address if there is none.
    pub rate: Option<RateSettings>,
    /// New groups of one caller in a minute; more get a 429. 0 for no limit. A caller is a token, or an address if there is
    /// none.
    pub new_groups: u32,
    /// The largest body, in bytes; four times as much for batches.
    pub body_limit: usize,
    /// The time limit for receiving a body.
    pub body_timeout: Duration,
    /// How long the store may take to answer before the client gets a 503. At most 2 s. A longer time-out tolerates longer
    /// stalls, but clients wait longer for an error.
    pub request_timeout: Duration,
    /// The time limit of a sweep over HTTP.
    pub sweep_timeout: Duration,
    /// Concurrent requests of one caller in one group; more get a 503. Beats have a separate limit of the same size. The limit
    /// shrinks under load from other callers, to 13/9 of it for all together. (Streams have their own limit; probes have
    /// none.)
    pub max_requests: usize,
    /// Open connections. Beyond it, connections without a recent answer are closed: the slowest and oldest first, of the
    /// address that has most.
    pub max_connections: usize,
    /// How long a connection may be idle, or take to send the head of a request. Longer than the longest interval of beats: a
    /// third of the store's `max_ttl` plus 5 s. (A new connection has 5 s for its first byte.)
    pub idle_timeout: Duration,
    /// The time limit of a TLS handshake.
    pub handshake_timeout: Duration,
    /// Open event streams and long polls of one caller in one group; more get a 503. The limit shrinks when other callers have
    /// many, to 13/9 of it for all together.
    pub max_streams: usize,
    /// Requests of one caller in one group that wait for leases; more get a 429. The limit shrinks when other callers have
    /// many, to 13/9 of it for all together. Each needs a connection of its own, so half of `max_connections` is a limit as
    /// well: waiting requests must not shut out beats.
    pub max_waiters: usize,
    /// The interval of keep-alive comments on a silent stream.
    pub stream_keep_alive: Duration,
    /// A client that does not read for this long is disconnected.
    pub stall_timeout: Duration,
    /// How long a shutdown waits for requests in flight.
    pub drain_timeout: Duration,
}

/// The longest request timeout: the promised bound of every answer.
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The highest rate limit; a higher one would never apply.
const MAX_RATE: u32 = 1_000_000;

impl Default for Settings {
    fn default() -> Self {
        Self {
            insecure_listen: false,
            tokens: None,
            tls: None,
            public_metrics: false,
            rate: None,
            new_groups: 600,
            body_limit: 1 << 20,
            body_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_millis(500),
            sweep_timeout: Duration::from_secs(30),
            max_requests: 1_024,
            max_connections: 10_000,
            idle_timeout: DEFAULT_MAX_TTL / 3 + Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(5),
            max_streams: 1_000,
            max_waiters: 20_000,
            stream_keep_alive: Duration::from_secs(15),
            stall_timeout: Duration::from_secs(20),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

impl Settings {
    /// The URL of a server that listens on an address.
    #[must_use]
    pub fn url_at(&self, address: SocketAddr) -> String {
        let scheme = if self.tls.is_none() { "http" } else { "https" };
        format!("{scheme}://{address}")
    }

    /// The number of waiting requests of one caller in one group.
    pub(crate) fn waiters(&self) -> usize {
        self.max_waiters.min(self.max_connections / 2).max(1)
    }

    /// Validates the settings.
    ///
    /// # Errors
    /// `Misconfigured`, naming the setting and its value.
    pub fn check(&self) -> Result<()> {
        let bad = |message: String| Err(Error::new(ErrorKind::Misconfigured, message));
        if self.request_timeout.is_zero() || self.request_timeout > MAX_REQUEST_TIMEOUT {
            return bad(format!(
                "the request_timeout {} is outside 1ms to {}",
                show_duration(self.request_timeout),
                show_duration(MAX_REQUEST_TIMEOUT)
            ));
        }
        let counts = [
            ("body_limit", self.body_limit),
            ("max_requests", self.max_requests),
            ("max_connections", self.max_connections),
            ("max_streams", self.max_streams),
            ("max_waiters", self.max_waiters),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return bad(format!("the {name} is 0, so nothing would be served"));
        }
        if self.max_connections > tokio::sync::Semaphore::MAX_PERMITS {
            return bad(format!("the max_connections {} is too large", self.max_connections));
        }
        if let Some(rate) = self.rate
            && (rate.burst == 0 || !(1..=MAX_RATE).contains(&rate.per_second))
        {
            return bad(format!(
                "a rate of {} requests per second with a burst of {} is outside 1 to {MAX_RATE} per second and a burst of at least 1",
                rate.per_second, rate.burst
            ));
        }
        let times = [
            ("body_timeout", self.body_timeout),
            ("sweep_timeout", self.sweep_timeout),
            ("idle_timeout", self.idle_timeout),
            ("handshake_timeout", self.handshake_timeout),
            ("stream_keep_alive", self.stream_keep_alive),
            ("stall_timeout", self.stall_timeout),
        ];
        match times.iter().find(|(_, time)| time.is_zero()) {
            Some((name, _)) => bad(format!("the {name} is 0")),
            None => Ok(()),
        }
    }

    /// Refuses an address that other machines can reach, unless callers are authenticated over an encrypted connection, or
    /// `insecure_listen` is set.
    ///
    /// Tokens without TLS are refused, too: anyone on the network path could read them, and a warning in a log would come too
    /// late. Behind a proxy that terminates TLS, set `insecure_listen`.
    ///
    /// # Errors
    /// `Misconfigured`, naming the address and the alternatives.
    pub fn check_address(&self, addr: SocketAddr) -> Result<()> {
        if addr.ip().is_loopback() || self.insecure_listen {
            return Ok(());
        }
        let why = match (&self.tokens, &self.tls) {
            (_, Some(tls)) if tls.files.client_ca.is_some() => return Ok(()),
            (Some(_), Some(_)) => return Ok(()),
            (Some(_), None) => "tokens would be sent in the clear: set tls.cert and tls.key as well",
            (None, Some(_)) => "callers would not be authenticated: set tokens, or tls.client_ca",
            (None, None) => "callers would not be authenticated: set tokens, tls.cert and tls.key",
        };
        Err(Error::new(
            ErrorKind::Misconfigured,
            format!(
                "{addr} can be reached from other machines, and {why}; or listen on 127.0.0.1 or [::1]; or set insecure_listen \
                 on a trusted network"
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_loopback_address_needs_insecure_listen() {
        let settings = Settings::default();
        for good in ["127.0.0.1:0", "127.8.8.8:1", "[::1]:7717"] {
            settings.check_address(good.parse().unwrap()).expect(good);
        }
        for bad in ["0.0.0.0:7717", "10.0.0.1:7717", "[::]:7717"] {
            let error = settings.check_address(bad.parse().unwrap()).expect_err(bad).to_string();
            assert!(error.contains(bad) && error.contains("insecure_listen"), "{error}");
            let open = Settings {
                insecure_listen: true,
                ..Settings::default()
            };
            open.check_address(bad.parse().unwrap()).expect(bad);
        }
    }

    #[test]
    fn authenticated_encrypted_server_may_listen_anywhere() {
        let files = |client_ca: Option<&str>| {
            let client_ca = client_ca.map(Into::into);
            let (cert, key) = ("c".into(), "k".into());
            Some(TlsSettings::new(tenure_tls::ServerTls { cert, key, client_ca }))
        };
        let tokens = || Some(TokenSettings::new("t"));
        for (tokens, tls, must_say) in [
            (None, None, Some("set tokens")),
            (tokens(), None, Some("in the clear")),
            (None, files(None), Some("tls.client_ca")),
            (tokens(), files(None), None),
            (None, files(Some("ca")), None),
            (tokens(), files(Some("ca")), None),
        ] {
            let settings = Settings {
                tokens,
                tls,
                ..Settings::default()
            };
            let checked = settings.check_address("10.0.0.1:7717".parse().unwrap());
            match must_say {
                None => checked.expect("enough"),
                Some(words) => {
                    let error = checked.expect_err(words).to_string();
                    assert!(error.contains(words) && error.contains("insecure_listen"), "{error}");
                }
            }
        }
    }

    #[test]
    fn invalid_setting_is_refused_by_name() {
        Settings::default().check().expect("the defaults work");
        let base = Settings::default;
        for (settings, must_say) in [
            (
                Settings {
                    request_timeout: Duration::from_secs(3),
                    ..base()
                },
                "request_timeout 3s",
            ),
            (
                Settings {
                    request_timeout: Duration::ZERO,
                    ..base()
                },
                "request_timeout 0ms",
            ),
            (
                Settings {
                    body_limit: 0,
                    ..base()
                },
                "body_limit",
            ),
            (
                Settings {
                    max_requests: 0,
                    ..base()
                },
                "max_requests",
            ),
            (
                Settings {
                    max_connections: usize::MAX,
                    ..base()
                },
                "max_connections",
            ),
            (
                Settings {
                    stall_timeout: Duration::ZERO,
                    ..base()
                },
                "stall_timeout",
            ),
        ] {
            let error = settings.check().expect_err(must_say).to_string();
            assert!(error.contains(must_say), "{error}");
        }
    }
}
