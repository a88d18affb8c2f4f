//! TLS for those who connect: the handshake, and a certificate that can be replaced under a running daemon.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use rustls::ServerConfig;
use sha2::{Digest, Sha256};
use tenure::loops::{LoopBody, Turn};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_tls::ServerTls;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::auth::hex;
use crate::meters;

/// The most bytes of a file that are looked at to see whether it has changed.
const MAX_FILE: u64 = 4 << 20;

/// How connections are encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate, its key, and the authorities of clients that have to show one.
    pub files: ServerTls,
    /// How often the files are looked at.
    pub refresh: Duration,
}

impl TlsSettings {
    /// TLS from files that are looked at every 2 s.
    #[must_use]
    pub fn new(files: ServerTls) -> Self {
        Self {
            files,
            refresh: Duration::from_secs(2),
        }
    }
}

/// The certificate that is shown, and the files it is from.
pub(crate) struct Tls {
    files: ServerTls,
    acceptor: RwLock<TlsAcceptor>,
    seen: Mutex<Seen>,
}

/// What was in the files when they were last looked at.
struct Seen {
    print: [u8; 32],
    trouble: Option<String>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// `Misconfigured`, naming the file and what it lacks.
    pub(crate) fn new(settings: &TlsSettings) -> Result<Self> {
        let files = settings.files.clone();
        let (print, config) = (print(&files), config(&files)?);
        meters::stale(meters::TLS_FILES, false);
        Ok(Self {
            files,
            acceptor: RwLock::new(TlsAcceptor::from(config)),
            seen: Mutex::new(Seen { print, trouble: None }),
        })
    }

    /// Whether clients have to show a certificate.
    pub(crate) fn asks_clients(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Why what is in the files now is not used, if it is not.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).trouble.clone()
    }

    /// Shakes hands, and tells the SHA-256 of the certificate that the other side showed, if it had to.
    ///
    /// # Errors
    /// When the other side does not want to, or is not believed.
    pub(crate) async fn accept(&self, socket: TcpStream) -> io::Result<(TlsStream<TcpStream>, Option<Arc<str>>)> {
        let acceptor = self.acceptor.read().unwrap_or_else(PoisonError::into_inner).clone();
        let stream = acceptor.accept(socket).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let certificate = shown.map(|certificate| hex(&Sha256::digest(certificate.as_ref())).into());
        Ok((stream, certificate))
    }

    /// Looks at the files, and takes what is new in them for connections to come. Blocks.
    ///
    /// # Errors
    /// `Misconfigured` when they cannot be used: what is shown stays as it was.
    pub(crate) fn refresh(&self) -> Result<()> {
        // Before the files are read: one that changes in between is noticed the next time.
        let print = print(&self.files);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.print == print && seen.trouble.is_none() {
            return Ok(());
        }
        match config(&self.files) {
            Ok(config) => {
                if seen.print != print {
                    tracing::info!("the certificate has changed");
                    *self.acceptor.write().unwrap_or_else(PoisonError::into_inner) = TlsAcceptor::from(config);
                }
                *seen = Seen { print, trouble: None };
                meters::stale(meters::TLS_FILES, false);
                Ok(())
            }
            Err(error) => {
                let trouble = error.chain();
                if seen.trouble.as_ref() != Some(&trouble) {
                    tracing::warn!(error = trouble, "the certificate stays as it was");
                }
                seen.trouble = Some(trouble);
                meters::stale(meters::TLS_FILES, true);
                Err(error)
            }
        }
    }
}

fn config(files: &ServerTls) -> Result<Arc<ServerConfig>> {
    let config = files.config();
    let config =
        config.map_err(|error| Error::new(ErrorKind::Misconfigured, format!("TLS cannot be set up: {error}")))?;
    Ok(Arc::new(config))
}

/// What the files hold, in short. A file that cannot be read is one that holds nothing.
fn print(files: &ServerTls) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for path in [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()]
        .into_iter()
        .flatten()
    {
        let bytes = bytes(path).unwrap_or_default();
        hasher.update((bytes.len() as u64).to_be_bytes());
        hasher.update(&bytes);
    }
    hasher.finalize().into()
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The loop that looks at the files.
pub(crate) struct TlsWatch(pub(crate) Arc<Tls>);

#[async_trait]
impl LoopBody for TlsWatch {
    async fn turn(&mut self) -> Result<Turn> {
        let tls = Arc::clone(&self.0);
        let refreshed = tokio::task::spawn_blocking(move || tls.refresh().is_err()).await;
        // What cannot be used has been reported, and is no reason to look at it more often.
        let skipped = u64::from(refreshed.unwrap_or(true));
        Ok(Turn { next: None, skipped })
    }
}
