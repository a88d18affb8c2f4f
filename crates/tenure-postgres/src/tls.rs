//! TLS to the database: the settings in a URL, and errors.
//!
//! `sslmode` means what Postgres users expect, with one exception: an encrypted connection is always verified. So
//! `require` checks the certificate and its name like `verify-full`, and modes that may be plain or unverified are
//! refused.

use std::path::PathBuf;

use tenure_core::error::Outcome;
use tenure_core::{Error, ErrorKind, Result};
use tenure_tls::{ClientTls, TlsError};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Removes the TLS settings from a URL. Returns the rest of the URL, and the files if TLS is enabled.
pub(crate) fn take(url: &str) -> Result<(String, Option<ClientTls>)> {
    let Some((rest, query)) = url.split_once('?') else {
        return Ok((url.to_owned(), None));
    };
    let (mut kept, mut mode, mut files) = (Vec::new(), None, ClientTls::default());
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let place = match name {
            "sslmode" => {
                mode = Some(value);
                continue;
            }
            "tls_ca" => &mut files.ca,
            "tls_cert" => &mut files.cert,
            "tls_key" => &mut files.key,
            "sslrootcert" | "sslcert" | "sslkey" => {
                return Err(refused("write tls_ca, tls_cert and tls_key for the TLS files"));
            }
            // The client would read an escaped name differently.
            _ if name.contains('%') => return Err(refused("the name of a setting is escaped")),
            _ => {
                kept.push(pair);
                continue;
            }
        };
        *place = Some(path(value)?);
    }
    let has_files = files != ClientTls::default();
    let tls = match mode {
        Some("require" | "verify-full") => true,
        None => has_files,
        Some("disable") if has_files => return Err(refused("it names TLS files and has sslmode=disable")),
        Some("disable") => false,
        Some(_) => {
            return Err(refused(
                "sslmode can be disable, or verify-full (require means the same: the certificate is always checked)",
            ));
        }
    };
    if tls {
        // Reports an unusable file before any other problem.
        files.config().map_err(unusable)?;
    }
    let url = match kept.is_empty() {
        true => rest.to_owned(),
        false => format!("{rest}?{}", kept.join("&")),
    };
    Ok((url, tls.then_some(files)))
}

/// The TLS connector. It reads the files each time, so that the next connection uses a new certificate.
pub(crate) async fn connector(files: &ClientTls) -> Result<MakeRustlsConnect> {
    let files = files.clone();
    let config = tokio::task::spawn_blocking(move || files.config())
        .await
        .map_err(|error| Error::unavailable("the TLS files could not be read", Outcome::Unchanged).because(error))?
        .map_err(unusable)?;
    Ok(MakeRustlsConnect::new(config))
}

/// The error for a failed TLS connection.
pub(crate) fn explain(chain: &str) -> Option<Error> {
    let says = |part: &str| chain.contains(part);
    if says("invalid peer certificate") {
        Some(Error::new(
            ErrorKind::Misconfigured,
            "the certificate of the ledger's database is not believed; name the authority that signed it with tls_ca=PATH, \
             and the host by a name that is in it",
        ))
    } else if says("fatal alert") {
        Some(Error::new(
            ErrorKind::Denied,
            "the ledger's database ends the TLS connection: it wants a client's certificate of an authority that it \
             believes; give tls_cert=PATH and tls_key=PATH",
        ))
    } else if says("does not support TLS") {
        Some(Error::new(
            ErrorKind::Misconfigured,
            "the ledger's database does not support TLS; enable it there (ssl=on), or write sslmode=disable",
        ))
    } else {
        None
    }
}

fn path(value: &str) -> Result<PathBuf> {
    if value.is_empty() {
        return Err(refused("a TLS file has no name"));
    }
    let text = unescape(value).ok_or_else(|| refused("the name of a TLS file is malformed"))?;
    Ok(PathBuf::from(text))
}

/// Decodes percent escapes such as `%2F`.
fn unescape(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

fn refused(why: &str) -> Error {
    Error::new(ErrorKind::Misconfigured, format!("the ledger's URL is invalid: {why}"))
}

fn unusable(error: TlsError) -> Error {
    Error::new(ErrorKind::Misconfigured, "the ledger's TLS cannot be set up").because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_url_is_unchanged() {
        for (url, rest, tls) in [
            ("postgres://h/d", "postgres://h/d", false),
            (
                "postgres://h/d?connect_timeout=3",
                "postgres://h/d?connect_timeout=3",
                false,
            ),
            ("postgres://h/d?sslmode=disable", "postgres://h/d", false),
            (
                "postgres://h/d?a=b&sslmode=disable&c=d",
                "postgres://h/d?a=b&c=d",
                false,
            ),
        ] {
            let (kept, files) = take(url).unwrap();
            assert_eq!((kept.as_str(), files.is_some()), (rest, tls), "{url}");
        }
    }

    #[test]
    fn an_unverified_mode_is_refused() {
        for mode in ["prefer", "allow", "verify-ca", "", "no"] {
            let error = take(&format!("postgres://:s3cret@h/d?sslmode={mode}")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{mode}");
            assert!(!error.chain().contains("s3cret"), "{error:?}");
        }
        for query in [
            "sslrootcert=/a",
            "tls_ca=",
            "tls_ca=%2",
            "tls_ca=/nowhere/ca",
            "sslmode=disable&tls_ca=/a",
        ] {
            assert!(take(&format!("postgres://h/d?{query}")).is_err(), "{query}");
        }
        let error = take("postgres://h/d?tls_ca=%2Fnowhere%2Fca.pem").unwrap_err();
        assert!(error.chain().contains("/nowhere/ca.pem"), "{error:?}");
    }
}
