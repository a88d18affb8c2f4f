//! What a server can be told, and the refusal of what cannot work.

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
    /// Listen on an address that other machines can reach, although not everybody has to show who they are, or shows it
    /// in the clear.
    pub insecure_listen: bool,
    /// The tokens that callers have to show one of; without them nobody is asked.
    pub tokens: Option<TokenSettings>,
    /// How connections are encrypted; without it they are not.
    pub tls: Option<TlsSettings>,
    /// Serve `/metrics` to everybody. With tokens it is for those who may read everything.
    pub public_metrics: bool,
    /// How often one caller may ask; without it as often as they like. A caller is a token, or an address without one.
    pub rate: Option<RateSettings>,
    /// The largest body that is read, in bytes; batches may have four times as much.
    pub body_limit: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// How long the store may take to answer before the client gets a 503. At most 2 s. Longer rides out longer hiccups,
    /// and makes clients wait longer for an answer that is no answer.
    pub request_timeout: Duration,
    /// How long a sweep that was asked for over HTTP may take.
    pub sweep_timeout: Duration,
    /// How many requests of one caller in one group are answered at once; more get a 503. Beats have as much room again, of
    /// their own. While others ask much as well it is less; together they get 13/9 of it. (Streams have their own limit;
    /// probes have none.)
    pub max_requests: usize,
    /// How many connections are open at once. For more, those that were not answered lately are closed: first those that
    /// have sent least for longest, of the address that has most.
    pub max_connections: usize,
    /// How long a connection may be idle, or take to send the head of a request. Longer than the longest time between two
    /// beats: a third of the store's `max_ttl`, and 5 s. (A new one has 5 s for its first byte.)
    pub idle_timeout: Duration,
    /// How long a connection may take to shake hands, with TLS.
    pub handshake_timeout: Duration,
    /// How many event streams and long polls of one caller in one group are open at once; more get a 503. While others have
    /// many as well it is less; together they get 13/9 of it.
    pub max_streams: usize,
    /// How often a silent stream says that it is still there.
    pub stream_keep_alive: Duration,
    /// A client that does not read for this long is dropped.
    pub stall_timeout: Duration,
    /// How long a shutdown waits for requests under way.
    pub drain_timeout: Duration,
}

/// The longest request timeout: clients are promised an answer within it.
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The highest limit of requests per second: above, it limits nobody.
const MAX_RATE: u32 = 1_000_000;

impl Default for Settings {
    fn default() -> Self {
        Self {
            insecure_listen: false,
            tokens: None,
            tls: None,
            public_metrics: false,
            rate: None,
            body_limit: 1 << 20,
            body_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_millis(500),
            sweep_timeout: Duration::from_secs(30),
            max_requests: 1_024,
            max_connections: 10_000,
            idle_timeout: DEFAULT_MAX_TTL / 3 + Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(5),
            max_streams: 1_000,
            stream_keep_alive: Duration::from_secs(15),
            stall_timeout: Duration::from_secs(20),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

impl Settings {
    /// Where clients reach a server that listens on an address.
    #[must_use]
    pub fn url_at(&self, address: SocketAddr) -> String {
        let scheme = if self.tls.is_none() { "http" } else { "https" };
        format!("{scheme}://{address}")
    }

    /// Refuses what cannot work.
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
                "a rate of {} requests per second and {} at once is outside 1 to {MAX_RATE} and at least 1",
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

    /// Refuses an address that others can reach, unless everybody has to show who they are, and nobody else sees it; or
    /// unless that is wanted all the same.
    ///
    /// Tokens without TLS are refused as well: whoever sees the network pass by has them then, and a warning in a log is
    /// read after that. Behind a proxy that speaks TLS it is wanted, and said so.
    ///
    /// # Errors
    /// `Misconfigured`, naming the address and the ways out.
    pub fn check_address(&self, addr: SocketAddr) -> Result<()> {
        if addr.ip().is_loopback() || self.insecure_listen {
            return Ok(());
        }
        let why = match (&self.tokens, &self.tls) {
            (_, Some(tls)) if tls.files.client_ca.is_some() => return Ok(()),
            (Some(_), Some(_)) => return Ok(()),
            (Some(_), None) => "tokens would travel in the clear: set tls.cert and tls.key as well",
            (None, Some(_)) => "nobody would have to show who they are: set tokens, or tls.client_ca",
            (None, None) => "nobody would have to show who they are: set tokens, tls.cert and tls.key",
        };
        Err(Error::new(
            ErrorKind::Misconfigured,
            format!(
                "{addr} can be reached from other machines, and {why}; or listen on 127.0.0.1 or [::1]; or set insecure_listen \
                 on a network that you trust"
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_listened_on_unless_asked() {
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
    fn whoever_asks_callers_and_hides_the_answer_may_listen_anywhere() {
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
    fn what_cannot_work_is_refused_by_name() {
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
