//! Certificates and keys, read from PEM files.

use std::fs;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::{Result, TlsError};

/// Reads all certificates of a file; an error if it has none.
pub(crate) fn certificates(path: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(path, what)?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => Err(malformed(path, what, "no certificate in it")),
        Ok(found) => Ok(found),
        Err(error) => Err(malformed(path, what, error)),
    }
}

/// Reads the private key of a file: PKCS #8, PKCS #1 or SEC 1.
pub(crate) fn key(path: &Path, what: &'static str) -> Result<PrivateKeyDer<'static>> {
    let bytes = read(path, what)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| malformed(path, what, error))
}

/// Reads the authorities of a file.
pub(crate) fn roots(path: &Path, what: &'static str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, what)? {
        roots.add(certificate).map_err(|source| TlsError::Unusable {
            what: format!("{what} in {}", path.display()),
            source,
        })?;
    }
    Ok(roots)
}

/// The authorities that this machine trusts.
pub(crate) fn system_roots() -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // One unusable file of a distribution does not invalidate the others.
    let (added, _ignored) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found
            .errors
            .first()
            .map_or_else(|| "none found".to_owned(), ToString::to_string);
        return Err(TlsError::NoRoots(why));
    }
    Ok(roots)
}

fn read(path: &Path, what: &'static str) -> Result<Vec<u8>> {
    fs::read(path).map_err(|source| TlsError::Unreadable {
        what,
        path: path.to_owned(),
        source,
    })
}

fn malformed(path: &Path, what: &'static str, why: impl ToString) -> TlsError {
    TlsError::Malformed {
        what,
        path: path.to_owned(),
        why: why.to_string(),
    }
}
