//! Errors of certificates and keys, with the file.

use std::io;
use std::path::PathBuf;

/// A configuration that cannot be built. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read.
    #[error("cannot read {what} from {}: {source}", path.display())]
    Unreadable {
        /// The expected content.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The file has no PEM block of the expected kind.
    #[error("{} holds no PEM for {what} ({why})", path.display())]
    Malformed {
        /// The expected content.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The actual content.
        why: String,
    },
    /// A certificate without its key, or a key without its certificate.
    #[error("a client's {given} is given without its {missing}: give both, or neither")]
    Half {
        /// The option that is set.
        given: &'static str,
        /// The option that is not.
        missing: &'static str,
    },
    /// No authority is named, and the machine trusts none.
    #[error(
        "this machine has no certificate authorities that it trusts ({0}): install ca-certificates, or name a file with one"
    )]
    NoRoots(String),
    /// The parts do not match: a key of another certificate, a certificate that is not an authority.
    #[error("{what} cannot be used: {source}")]
    Unusable {
        /// The parts.
        what: String,
        /// The TLS error.
        source: rustls::Error,
    },
}

/// A result with a [`TlsError`].
pub type Result<T> = std::result::Result<T, TlsError>;
