//! The URL of a daemon and its TLS settings.

use std::path::PathBuf;

use reqwest::Url;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_tls::{ClientTls, ReloadingTls, without_roots};

use super::HttpSettings;
use super::connector::Connector;

/// A parsed daemon URL.
#[derive(Debug)]
pub(super) struct Base {
    /// Ends with a slash, so that a path prefix is kept. Without a query.
    pub(super) url: Url,
    /// For `https`: the trusted authorities and the client certificate.
    tls: Option<ClientTls>,
}

impl Base {
    /// Parses a URL.
    ///
    /// # Errors
    /// `Misconfigured`. The message does not contain the URL, which may carry a password.
    pub(super) fn read(url: &str) -> Result<Self> {
        let mut url = Url::parse(url).map_err(|error| bad("cannot be read").because(error))?;
        let mut tls = match url.scheme() {
            "http" => None,
            "https" => Some(ClientTls::default()),
            _ => return Err(bad("is neither http:// nor https://")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("has credentials, which logs may expose; use a token file instead"));
        }
        if url.fragment().is_some() {
            return Err(bad("has a fragment"));
        }
        let pairs: Vec<_> = url
            .query_pairs()
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        for (name, value) in pairs {
            take(tls.as_mut(), &name, value)?;
        }
        url.set_query(None);
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        Ok(Self { url, tls })
    }

    /// Creates the connector. Reads the TLS files or the system's authorities.
    ///
    /// # Errors
    /// `Misconfigured`, naming the file and the problem.
    pub(super) fn connector(&self, settings: HttpSettings) -> Result<Connector> {
        let read = match &self.tls {
            Some(tls) => ReloadingTls::new(tls.clone()).map(|(files, config)| (config, Some(files))),
            None => without_roots().map(|config| (config, None)),
        };
        let (config, files) = read.map_err(|error| bad(&format!("cannot be used: {error}")))?;
        Connector::new(settings, config, files)
    }
}

fn take(tls: Option<&mut ClientTls>, name: &str, value: String) -> Result<()> {
    if !matches!(name, "tls_ca" | "tls_cert" | "tls_key") {
        return Err(bad(
            "has an unknown query parameter; it takes tls_ca, tls_cert and tls_key",
        ));
    }
    let Some(tls) = tls else {
        return Err(bad(&format!("has {name}, which is for https://")));
    };
    if value.is_empty() {
        return Err(bad(&format!("has an empty {name}")));
    }
    let place = match name {
        "tls_ca" => &mut tls.ca,
        "tls_cert" => &mut tls.cert,
        _ => &mut tls.key,
    };
    if place.replace(PathBuf::from(value)).is_some() {
        return Err(bad(&format!("has {name} twice")));
    }
    Ok(())
}

fn bad(why: &str) -> Error {
    Error::new(
        ErrorKind::Misconfigured,
        format!(
            "the store URL {why}; write http://HOST:PORT or https://HOST:PORT?tls_ca=FILE, like http://127.0.0.1:7717"
        ),
    )
}

/// Advice for a failed TLS handshake, from the text of the library's error; `None` for any other error.
pub(super) fn advice(cause: &str) -> Option<&'static str> {
    let table = [
        (
            "UnknownIssuer",
            "its certificate is signed by an unknown authority; name the authority's file in the URL: ?tls_ca=FILE",
        ),
        (
            "NotValidForName",
            "its certificate is for another host name; use a name listed in it",
        ),
        (
            "CaUsedAsEndEntity",
            "it presents the certificate of an authority; it needs one with basicConstraints=CA:FALSE",
        ),
        ("Expired", "its certificate has expired; it needs a new one"),
        (
            "NotValidYet",
            "its certificate is not valid yet; check the clocks of both machines",
        ),
        (
            "CertificateRequired",
            "it requires a client certificate; name one in the URL: ?tls_cert=FILE&tls_key=FILE",
        ),
        (
            "UnknownCA",
            "it rejects the client certificate; name another one in the URL: ?tls_cert=FILE&tls_key=FILE",
        ),
        (
            "InvalidContentType",
            "it does not use TLS on this port; write http:// if that is intended",
        ),
    ];
    let found = table.iter().find(|(word, _)| cause.contains(word));
    found.map(|(_, advice)| *advice)
}
