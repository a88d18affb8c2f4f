//! Parses the address of an agent.

use std::path::PathBuf;

use reqwest::Url;
use tenure_tls::ClientTls;

/// A parsed address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// The base URL of requests.
    pub(crate) base: Url,
    /// The Unix socket, if the agent is not reached by TCP.
    pub(crate) socket: Option<PathBuf>,
    /// The canonical text. Without the TLS files: these are local, and other machines read the address.
    pub(crate) text: String,
    /// The TLS files named in the address.
    pub(crate) files: ClientTls,
}

impl Address {
    /// Parses `HOST:PORT`, `http://HOST:PORT`, `consul://HOST:PORT` and `unix:///PATH`, like `CONSUL_HTTP_ADDR`, and
    /// with TLS `https://HOST:PORT` and `consul+tls://HOST:PORT`, each with `?tls_ca=PATH&tls_cert=PATH&tls_key=PATH`.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix://") {
            return socket(text, path);
        }
        let (scheme, rest) = match text.split_once("://") {
            None | Some(("http" | "consul", _)) => ("http", text.split_once("://").map_or(text, |(_, rest)| rest)),
            Some(("https" | "consul+tls", rest)) => ("https", rest),
            Some(_) => return Err(bad("has an unknown scheme")),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let base = Url::parse(&format!("{scheme}://{rest}")).map_err(|_| bad("is not a valid URL"))?;
        if !base.username().is_empty() || base.password().is_some() {
            return Err(bad("has credentials"));
        }
        if !matches!(base.path(), "" | "/") || base.fragment().is_some() {
            return Err(bad("has a path"));
        }
        let (Some(host), Some(port)) = (base.host_str(), explicit_port(rest)) else {
            return Err(bad("has no port"));
        };
        if scheme == "http" && !query.is_empty() {
            return Err(bad("has a query, which is allowed only with consul+tls://"));
        }
        let text = format!("{scheme}://{host}:{port}");
        Ok(Self {
            files: files(query)?,
            base,
            socket: None,
            text,
        })
    }

    /// Whether the agent is reached through TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.base.scheme() == "https"
    }
}

fn bad(why: &str) -> String {
    // The address is not part of the message because it may contain a password.
    format!(
        "the address of the Consul agent {why}; write HOST:PORT, like 127.0.0.1:8500, consul+tls://HOST:PORT, or \
         unix:///PATH"
    )
}

fn socket(text: &str, path: &str) -> Result<Address, String> {
    if !path.starts_with('/') {
        return Err(bad("has no path"));
    }
    Ok(Address {
        base: Url::parse("http://localhost/").map_err(|error| error.to_string())?,
        socket: Some(path.into()),
        text: text.to_owned(),
        files: ClientTls::default(),
    })
}

/// Parses `tls_ca`, `tls_cert` and `tls_key`, each at most once. Other keys are rejected.
fn files(query: &str) -> Result<ClientTls, String> {
    let mut files = ClientTls::default();
    // Used only to split and unescape the query.
    let url = Url::parse(&format!("https://x/?{query}")).map_err(|_| bad("is not a valid URL"))?;
    for (name, value) in url.query_pairs() {
        let slot = match name.as_ref() {
            "tls_ca" => &mut files.ca,
            "tls_cert" => &mut files.cert,
            "tls_key" => &mut files.key,
            _ => {
                return Err(bad(
                    "has an unknown query key; only tls_ca, tls_cert and tls_key are allowed",
                ));
            }
        };
        if value.is_empty() || slot.replace(PathBuf::from(value.as_ref())).is_some() {
            return Err(bad("names a TLS file twice, or an empty one"));
        }
    }
    Ok(files)
}

/// The port as written: a URL drops the default port of its scheme.
fn explicit_port(rest: &str) -> Option<u16> {
    rest.trim_end_matches('/').rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_as_in_consul() {
        for text in ["127.0.0.1:8500", "http://127.0.0.1:8500", "consul://127.0.0.1:8500/"] {
            assert_eq!(Address::read(text).unwrap().text, "http://127.0.0.1:8500", "{text}");
        }
        assert_eq!(Address::read("[::1]:80").unwrap().text, "http://[::1]:80");
        let socket = Address::read("unix:///run/consul.sock").unwrap();
        assert_eq!(socket.socket, Some("/run/consul.sock".into()));
        for bad in [
            "",
            "host",
            "https://h",
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
    #[test]
    fn tls_files_are_parsed_from_the_query() {
        for text in ["https://h:8501", "consul+tls://h:8501/"] {
            let address = Address::read(text).unwrap();
            assert_eq!((address.text.as_str(), address.is_secure()), ("https://h:8501", true));
            assert_eq!(address.files, ClientTls::default());
        }
        let address = Address::read("consul+tls://h:8501?tls_ca=/etc/a%20b.pem&tls_cert=c&tls_key=k").unwrap();
        assert_eq!(address.text, "https://h:8501");
        assert_eq!(address.files.ca, Some("/etc/a b.pem".into()));
        assert_eq!(
            (address.files.cert, address.files.key),
            (Some("c".into()), Some("k".into()))
        );
        for bad in [
            "consul://h:1?tls_ca=a",
            "https://h:1?tls_ca=",
            "https://h:1?tls_ca=a&tls_ca=b",
            "https://h:1?verify=no",
        ] {
            assert!(Address::read(bad).is_err(), "{bad}");
        }
    }
}
