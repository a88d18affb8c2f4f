//! Where a store is: its URL, with the secrets kept apart from everything that is shown.

use std::fmt;

use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
use tenure_core::error::{Error, ErrorKind, Result};

/// The address of one server, and what to say to it first.
#[derive(Clone)]
pub(crate) struct Address {
    host: String,
    port: u16,
    handshake: RedisConnectionInfo,
    place: String,
}

impl Address {
    /// Reads `valkey://[user:password@]host[:port][/db]` (or `redis://…`).
    ///
    /// # Errors
    /// `Unsupported` for the schemes of TLS, clusters and sentinels, `Misconfigured` for everything else that is not
    /// such a URL. No error repeats more of the URL than its scheme, since the rest may be a password.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let scheme = url
            .split_once("://")
            .map(|(scheme, _)| scheme)
            .ok_or_else(|| refused("it has no scheme"))?;
        match scheme {
            "valkey" | "redis" => {}
            "rediss" | "valkeys" => return Err(unsupported(scheme, "TLS")),
            "redis-cluster" | "valkey-cluster" => return Err(unsupported(scheme, "a cluster")),
            "redis-sentinel" | "valkey-sentinel" => return Err(unsupported(scheme, "sentinels")),
            _ => return Err(refused("its scheme is neither valkey:// nor redis://")),
        }
        let parsed = redis::parse_redis_url(url).ok_or_else(|| refused("it cannot be read"))?;
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(refused("it has a ? or # part, and there are no settings to give there"));
        }
        let info = parsed
            .into_connection_info()
            .map_err(|_| refused("its host, port or database cannot be read"))?;
        let ConnectionAddr::Tcp(host, port) = info.addr().clone() else {
            return Err(refused("it names no host and port"));
        };
        let handshake = info.redis_settings().clone().set_skip_set_lib_name();
        let shown = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.clone()
        };
        let mut place = format!("{scheme}://{shown}:{port}");
        if handshake.db() != 0 {
            place = format!("{place}/{}", handshake.db());
        }
        Ok(Self {
            host,
            port,
            handshake,
            place,
        })
    }

    /// The host's name and port, to be resolved anew for each connection.
    pub(crate) fn host_and_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Credentials and database.
    pub(crate) fn handshake(&self) -> &RedisConnectionInfo {
        &self.handshake
    }

    /// The URL without user and password.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.place)
    }
}

fn refused(why: &str) -> Error {
    Error::new(
        ErrorKind::Misconfigured,
        format!("the store's URL is refused: {why}; write valkey://[user:password@]host:port[/db]"),
    )
}

fn unsupported(scheme: &str, what: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "{scheme}:// asks for {what}, which this version does not speak; use valkey:// or redis:// with one server"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, place) in [
            ("valkey://db.example", "valkey://db.example:6379"),
            ("redis://127.0.0.1:7000/3", "redis://127.0.0.1:7000/3"),
            ("valkey://user:p%40ss@db:1", "valkey://db:1"),
            ("redis://:secret@[::1]:2", "redis://[::1]:2"),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.place(), place);
            assert_eq!(format!("{address:?}"), format!("Address({place})"));
        }
        let address = Address::parse("valkey://user:p%40ss@db:1").unwrap();
        assert_eq!(
            (address.handshake().username(), address.handshake().password()),
            (Some("user"), Some("p@ss"))
        );
    }

    #[test]
    fn what_cannot_work_is_refused_without_repeating_a_password() {
        for (url, kind) in [
            ("rediss://u:secret@h", ErrorKind::Unsupported),
            ("redis-cluster://u:secret@h", ErrorKind::Unsupported),
            ("redis-sentinel://u:secret@h", ErrorKind::Unsupported),
            ("http://u:secret@h", ErrorKind::Misconfigured),
            ("secret", ErrorKind::Misconfigured),
            ("valkey://", ErrorKind::Misconfigured),
            ("valkey://u:secret@h:port", ErrorKind::Misconfigured),
            ("valkey://u:secret@h/x", ErrorKind::Misconfigured),
            ("valkey://u:secret@h?timeout=1", ErrorKind::Misconfigured),
            ("valkey://u:secret@h#frag", ErrorKind::Misconfigured),
            ("valkey://u:secret@0.0.0.0", ErrorKind::Misconfigured),
        ] {
            let error = Address::parse(url).expect_err(url);
            assert_eq!(error.kind(), kind, "{url}: {error}");
            assert!(!error.chain().contains("secret"), "{error:?}");
        }
    }
}
