//! Where a daemon is, by its URL, and what a connection to it needs.

use std::path::PathBuf;

use reqwest::Url;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_tls::{ClientTls, Followed, believing_nobody};

use super::HttpSettings;
use super::connector::Connector;

/// A daemon's URL, taken apart.
#[derive(Debug)]
pub(super) struct Base {
    /// Always ends with a slash, so that a path prefix survives. Without a query.
    pub(super) url: Url,
    /// For `https`: whom to believe, and what to show.
    tls: Option<ClientTls>,
}

impl Base {
    /// Reads a URL.
    ///
    /// # Errors
    /// `Misconfigured`. The URL itself stays out of the messages: it may carry a password.
    pub(super) fn read(url: &str) -> Result<Self> {
        let mut url = Url::parse(url).map_err(|error| bad("cannot be read").because(error))?;
        let mut tls = match url.scheme() {
            "http" => None,
            "https" => Some(ClientTls::default()),
            _ => return Err(bad("is neither http:// nor https://")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad(
                "has credentials, which a URL shows to everybody; show a token from a file instead",
            ));
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

    /// What connects there. Reads the files, or the machine's authorities.
    ///
    /// # Errors
    /// `Misconfigured`, naming the file and what it lacks.
    pub(super) fn connector(&self, settings: HttpSettings) -> Result<Connector> {
        let read = match &self.tls {
            Some(tls) => Followed::new(tls.clone()).map(|(files, config)| (config, Some(files))),
            None => believing_nobody().map(|config| (config, None)),
        };
        let (config, files) = read.map_err(|error| bad(&format!("cannot be used: {error}")))?;
        Connector::new(settings, config, files)
    }
}

fn take(tls: Option<&mut ClientTls>, name: &str, value: String) -> Result<()> {
    if !matches!(name, "tls_ca" | "tls_cert" | "tls_key") {
        return Err(bad("has a query; it takes tls_ca, tls_cert and tls_key alone"));
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

/// What to do about a handshake that failed, from what the library says about it; `None` for any other trouble.
pub(super) fn advice(cause: &str) -> Option<&'static str> {
    let table = [
        (
            "UnknownIssuer",
            "its certificate is by an authority that is not believed here; name the authority's file in the URL: ?tls_ca=FILE",
        ),
        (
            "NotValidForName",
            "its certificate is for another host name; use a name that is in it",
        ),
        (
            "CaUsedAsEndEntity",
            "its certificate is that of an authority itself; it needs one with basicConstraints=CA:FALSE",
        ),
        ("Expired", "its certificate has expired; it needs a new one"),
        ("NotValidYet", "its certificate is not valid yet; look at both clocks"),
        (
            "CertificateRequired",
            "it asks for a client's certificate; name one in the URL: ?tls_cert=FILE&tls_key=FILE",
        ),
        (
            "UnknownCA",
            "it does not believe the certificate that this client shows; name another one in the URL: ?tls_cert=FILE&tls_key=FILE",
        ),
        (
            "InvalidContentType",
            "it does not speak TLS there; write http:// if it is meant to be in the clear",
        ),
    ];
    let found = table.iter().find(|(word, _)| cause.contains(word));
    found.map(|(_, advice)| *advice)
}
