//! Where an agent is.

use std::path::PathBuf;

use reqwest::Url;

/// An agent's address, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// What requests are sent to.
    pub(crate) base: Url,
    /// The socket to send them through, when it is not TCP.
    pub(crate) socket: Option<PathBuf>,
    /// The one spelling of it.
    pub(crate) text: String,
}

impl Address {
    /// Reads `HOST:PORT`, `http://HOST:PORT`, `consul://HOST:PORT` and `unix:///PATH`, as `CONSUL_HTTP_ADDR` has them.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let bad = |why: &str| {
            // The address itself stays out of the message: it may carry a password.
            format!("the address of the Consul agent {why}; write HOST:PORT, like 127.0.0.1:8500, or unix:///PATH")
        };
        if let Some(path) = text.strip_prefix("unix://") {
            if !path.starts_with('/') {
                return Err(bad("has no path"));
            }
            let base = Url::parse("http://localhost/").map_err(|error| error.to_string())?;
            return Ok(Self {
                base,
                socket: Some(path.into()),
                text: text.to_owned(),
            });
        }
        let rest = match text.split_once("://") {
            None | Some(("http" | "consul", _)) => text.split_once("://").map_or(text, |(_, rest)| rest),
            Some(("https", _)) => return Err(bad("asks for https, which this version does not speak")),
            Some(_) => return Err(bad("is of no kind that is known")),
        };
        let base = Url::parse(&format!("http://{rest}")).map_err(|_| bad("cannot be read"))?;
        if !base.username().is_empty() || base.password().is_some() {
            return Err(bad("has credentials"));
        }
        if !matches!(base.path(), "" | "/") || base.query().is_some() || base.fragment().is_some() {
            return Err(bad("has a path"));
        }
        let (Some(host), Some(port)) = (base.host_str(), explicit_port(rest)) else {
            return Err(bad("has no port"));
        };
        let text = format!("http://{host}:{port}");
        Ok(Self {
            base,
            socket: None,
            text,
        })
    }
}

/// The port as it was written: a URL forgets the one that is its scheme's own.
fn explicit_port(rest: &str) -> Option<u16> {
    rest.trim_end_matches('/').rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_consul_writes_them() {
        for text in ["127.0.0.1:8500", "http://127.0.0.1:8500", "consul://127.0.0.1:8500/"] {
            assert_eq!(Address::read(text).unwrap().text, "http://127.0.0.1:8500", "{text}");
        }
        assert_eq!(Address::read("[::1]:80").unwrap().text, "http://[::1]:80");
        let socket = Address::read("unix:///run/consul.sock").unwrap();
        assert_eq!(socket.socket, Some("/run/consul.sock".into()));
        for bad in [
            "",
            "host",
            "https://h:1",
            "ftp://h:1",
            "h:1/path",
            "u:p@h:1",
            "unix://",
            "h:99999",
            "http://h:1?x",
        ] {
            assert!(Address::read(bad).is_err(), "{bad}");
        }
        assert!(!Address::read("u:secret@h").unwrap_err().contains("secret"));
    }
}
