//! Who may call, and how much: the settings of the server, put together from those of the daemon.

use std::time::Duration;

use tenure_server::auth::TokenSettings;
use tenure_server::{RateSettings, Settings as Server, TlsSettings};
use tenure_tls::ServerTls;

use super::Settings;
use crate::exit::Usage;

/// The idle time of a connection beyond the longest heartbeat interval.
const BEYOND_A_BEAT: Duration = Duration::from_secs(5);

impl Settings {
    /// The limits of the server, and how it finds out who is calling. Reads no file.
    ///
    /// # Errors
    /// `Usage`, naming the setting, for what cannot work.
    pub(crate) fn server(&self) -> Result<Server, Usage> {
        let settings = Server {
            insecure_listen: self.insecure_listen,
            tokens: given(&self.tokens).map(TokenSettings::new),
            tls: self.tls()?,
            public_metrics: self.public_metrics,
            rate: self.rate()?,
            new_groups: count("limits.new_groups", self.limits_new_groups)?,
            body_limit: size("limits.body", self.limits_body)?,
            body_timeout: self.limits_body_timeout,
            request_timeout: self.limits_request_timeout,
            max_requests: size("limits.requests", self.limits_requests)?,
            max_connections: size("limits.connections", self.limits_connections)?,
            max_streams: size("limits.streams", self.limits_streams)?,
            max_waiters: size("limits.waiters", self.limits_waiters)?,
            idle_timeout: self.limits_idle_timeout.unwrap_or(self.max_ttl / 3 + BEYOND_A_BEAT),
            handshake_timeout: self.limits_handshake_timeout,
            stall_timeout: self.limits_stall_timeout,
            drain_timeout: self.drain,
            ..Server::default()
        };
        match settings.check() {
            Ok(()) => Ok(settings),
            Err(error) => Err(Usage::new(format!("limits: {}", error.chain()))),
        }
    }

    fn tls(&self) -> Result<Option<TlsSettings>, Usage> {
        let client_ca = given(&self.tls_client_ca).map(Into::into);
        match (given(&self.tls_cert), given(&self.tls_key)) {
            (Some(cert), Some(key)) => {
                let (cert, key) = (cert.into(), key.into());
                Ok(Some(TlsSettings::new(ServerTls { cert, key, client_ca })))
            }
            (None, None) if client_ca.is_none() => Ok(None),
            (None, None) => Err(Usage::new(
                "tls.client_ca is given without tls.cert and tls.key, so no certificate would be asked for",
            )),
            (Some(_), None) => Err(Usage::new("tls.cert is given without tls.key: give both, or neither")),
            (None, Some(_)) => Err(Usage::new("tls.key is given without tls.cert: give both, or neither")),
        }
    }

    fn rate(&self) -> Result<Option<RateSettings>, Usage> {
        if self.limits_rate == 0 {
            return match self.limits_burst {
                0 => Ok(None),
                _ => Err(Usage::new(
                    "limits.burst is given without limits.rate, so nothing would be limited",
                )),
            };
        }
        let burst = match self.limits_burst {
            0 => self.limits_rate,
            burst => burst,
        };
        Ok(Some(RateSettings {
            per_second: count("limits.rate", self.limits_rate)?,
            burst: count("limits.burst", burst)?,
        }))
    }
}

fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn count(key: &str, count: u64) -> Result<u32, Usage> {
    u32::try_from(count).map_err(|_| Usage::new(format!("{key} is {count}, which is too much")))
}

fn size(key: &str, size: u64) -> Result<usize, Usage> {
    usize::try_from(size).map_err(|_| Usage::new(format!("{key} is {size}, which is too much")))
}

#[cfg(test)]
mod tests {
    use super::super::Flags;
    use super::*;

    fn server(flags: &[(&'static str, &str)]) -> Result<Server, String> {
        let settings = Settings::load(&Flags::of(None, flags), &|_| None).map_err(|error| error.to_string())?;
        settings.server().map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_those_of_the_server() {
        assert_eq!(server(&[]).unwrap(), Server::default());
    }

    #[test]
    fn a_connection_may_idle_between_two_beats() {
        let idle = |flags: &[(&'static str, &str)]| server(flags).unwrap().idle_timeout;
        assert_eq!(idle(&[("max_ttl", "30m")]), Duration::from_secs(10 * 60 + 5));
        assert_eq!(
            idle(&[("max_ttl", "30m"), ("limits.idle_timeout", "1m")]),
            Duration::from_secs(60)
        );
    }

    #[test]
    fn every_limit_reaches_the_server() {
        let server = server(&[
            ("limits.rate", "50"),
            ("limits.body", "1"),
            ("limits.requests", "2"),
            ("limits.connections", "3"),
            ("limits.streams", "4"),
            ("limits.waiters", "5"),
            ("limits.new_groups", "12"),
            ("limits.request_timeout", "1s"),
            ("limits.body_timeout", "2s"),
            ("limits.idle_timeout", "3s"),
            ("limits.handshake_timeout", "4s"),
            ("limits.stall_timeout", "5s"),
            ("drain", "6s"),
            ("public_metrics", "true"),
        ]);
        let server = server.unwrap();
        assert_eq!(server.new_groups, 12);
        let (per_second, burst) = (50, 50);
        assert_eq!(server.rate, Some(RateSettings { per_second, burst }));
        let counts = (
            server.body_limit,
            server.max_requests,
            server.max_connections,
            server.max_streams,
            server.max_waiters,
        );
        assert_eq!(counts, (1, 2, 3, 4, 5));
        let times = [
            server.request_timeout,
            server.body_timeout,
            server.idle_timeout,
            server.handshake_timeout,
            server.stall_timeout,
            server.drain_timeout,
        ];
        assert_eq!(times, [1, 2, 3, 4, 5, 6].map(Duration::from_secs));
        assert!(server.public_metrics);
    }

    #[test]
    fn public_address_needs_tokens_and_tls_or_client_certificates() {
        let listen = ("listen", "0.0.0.0:7717");
        let tls = [("tls.cert", "c"), ("tls.key", "k")];
        server(&[listen, tls[0], tls[1], ("tokens", "t")]).unwrap();
        server(&[listen, tls[0], tls[1], ("tls.client_ca", "a")]).unwrap();
        server(&[listen, ("tokens", "t"), ("insecure_listen", "true")]).unwrap();
        for (flags, must_say) in [
            (&[listen][..], "set tokens"),
            (&[listen, ("tokens", "t")], "in the clear"),
            (&[listen, tls[0], tls[1]], "would not be authenticated"),
        ] {
            let error = server(flags).unwrap_err();
            assert!(
                error.starts_with("listen is 0.0.0.0:7717") && error.contains(must_say),
                "{error}"
            );
        }
    }

    #[test]
    fn incomplete_settings_are_refused_by_name() {
        for (flags, must_say) in [
            (&[("tls.cert", "c")][..], "without tls.key"),
            (&[("tls.key", "k")], "without tls.cert"),
            (&[("tls.client_ca", "a")], "tls.client_ca is given without"),
            (&[("limits.burst", "5")], "limits.burst is given without"),
            (&[("limits.rate", "5000000000")], "limits.rate"),
            (&[("limits.body", "0")], "body_limit"),
            (&[("limits.request_timeout", "3s")], "request_timeout 3s"),
        ] {
            let error = server(flags).unwrap_err();
            assert!(error.contains(must_say), "{error}");
        }
    }
}
