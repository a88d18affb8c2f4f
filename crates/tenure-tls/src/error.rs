//! What is wrong with a certificate or a key, and in which file.

use std::io;
use std::path::PathBuf;

/// A configuration that cannot be made. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read.
    #[error("cannot read {what} from {}: {source}", path.display())]
    Unreadable {
        /// What it was to hold.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file holds no such thing, or something that is not PEM.
    #[error("{} holds no PEM for {what} ({why})", path.display())]
    Malformed {
        /// What it was to hold.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// A certificate without its key, or a key without its certificate.
    #[error("a client's {given} is given without its {missing}: give both, or neither")]
    Half {
        /// What there is.
        given: &'static str,
        /// What there is not.
        missing: &'static str,
    },
    /// No authority is named, and this machine has none that it trusts.
    #[error(
        "this machine has no certificate authorities that it trusts ({0}): install ca-certificates, or name a file with one"
    )]
    NoRoots(String),
    /// The parts do not fit: a key of another certificate, a certificate that is no authority.
    #[error("{what} cannot be used: {source}")]
    Unusable {
        /// Which parts.
        what: String,
        /// Why not.
        source: rustls::Error,
    },
}

/// What making a configuration comes to.
pub type Result<T> = std::result::Result<T, TlsError>;
