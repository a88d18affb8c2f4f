//! The trust roots and the certificate of a TLS client.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring;

use crate::error::{Result, TlsError};
use crate::files;

/// The files of a TLS client. Without any, it trusts the machine's authorities and presents no certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// The trusted authorities, instead of those of the machine.
    pub ca: Option<PathBuf>,
    /// The certificate to present to a server that asks for one.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

impl ClientTls {
    /// Reads the files. The configuration always checks certificates and host names, with TLS 1.2 or 1.3.
    ///
    /// # Errors
    /// [`TlsError`], which names the file and the defect.
    pub fn config(&self) -> Result<ClientConfig> {
        let roots = match &self.ca {
            Some(path) => files::roots(path, "a certificate authority")?,
            None => files::system_roots()?,
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|source| unusable("the versions of TLS", source))?
            .with_root_certificates(roots);
        match (&self.cert, &self.key) {
            (None, None) => Ok(builder.with_no_client_auth()),
            (Some(cert), Some(key)) => {
                let chain = files::certificates(cert, "a client's certificate")?;
                let what = format!(
                    "the certificate in {} with the key in {}",
                    cert.display(),
                    key.display()
                );
                builder
                    .with_client_auth_cert(chain, files::key(key, "a client's key")?)
                    .map_err(|source| unusable(what, source))
            }
            (Some(_), None) => Err(half("certificate", "key")),
            (None, Some(_)) => Err(half("key", "certificate")),
        }
    }
}

/// A configuration without trust roots or files, for a plain-HTTP client whose library requires one. It rejects every
/// TLS server.
///
/// # Errors
/// [`TlsError`] when rustls lacks the safe TLS versions.
pub fn without_roots() -> Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|source| unusable("the versions of TLS", source))?;
    let roots = rustls::RootCertStore::empty();
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn half(given: &'static str, missing: &'static str) -> TlsError {
    TlsError::Half { given, missing }
}

fn unusable(what: impl Into<String>, source: rustls::Error) -> TlsError {
    TlsError::Unusable {
        what: what.into(),
        source,
    }
}
