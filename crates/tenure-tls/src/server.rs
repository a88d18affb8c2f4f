//! The certificate of a TLS server and the client authorities it accepts.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;

use crate::error::{Result, TlsError};
use crate::files;

/// The files of a TLS server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// The certificate, with its chain up to the authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of client certificates. If set, clients without a certificate from one of them are rejected.
    pub client_ca: Option<PathBuf>,
}

impl ServerTls {
    /// Reads the files. The configuration offers TLS 1.2 or 1.3 and HTTP/1.1.
    ///
    /// # Errors
    /// [`TlsError`], which names the file and the defect.
    pub fn config(&self) -> Result<ServerConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|source| unusable("the versions of TLS", source))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = files::roots(path, "an authority of clients")?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|error| {
                        unusable(
                            format!("{} ({error})", path.display()),
                            rustls::Error::General(error.to_string()),
                        )
                    })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let chain = files::certificates(&self.cert, "a server's certificate")?;
        let what = format!(
            "the certificate in {} with the key in {}",
            self.cert.display(),
            self.key.display()
        );
        let mut config = builder
            .with_single_cert(chain, files::key(&self.key, "a server's key")?)
            .map_err(|source| unusable(what, source))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn unusable(what: impl Into<String>, source: rustls::Error) -> TlsError {
    TlsError::Unusable {
        what: what.into(),
        source,
    }
}
