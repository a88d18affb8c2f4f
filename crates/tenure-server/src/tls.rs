//! TLS: the handshake, and certificates that are reloaded while the daemon runs.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use ring::digest::{Context, SHA256, digest};
use rustls::ServerConfig;
use tenure::loops::{LoopBody, Turn};
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_tls::ServerTls;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::auth::hex;
use crate::meters;

/// The most bytes of a file that are hashed to detect a change.
const MAX_FILE: u64 = 4 << 20;

/// The TLS settings of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate, its key, and the CA of client certificates, if those are required.
    pub files: ServerTls,
    /// How often the files are checked for changes.
    pub refresh: Duration,
}

impl TlsSettings {
    /// TLS from files that are checked every 2 s.
    #[must_use]
    pub fn new(files: ServerTls) -> Self {
        Self {
            files,
            refresh: Duration::from_secs(2),
        }
    }
}

/// The certificate in use, and its files.
pub(crate) struct Tls {
    files: ServerTls,
    acceptor: RwLock<TlsAcceptor>,
    /// Held while the files are read. Requests never wait for it.
    refreshing: Mutex<()>,
    last_read: Mutex<LastRead>,
}

/// The files as they were last read.
struct LastRead {
    print: Vec<u8>,
    trouble: Option<String>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// `Misconfigured`, naming the file and the mistake.
    pub(crate) fn new(settings: &TlsSettings) -> Result<Self> {
        let files = settings.files.clone();
        let (print, config) = (print(&files), config(&files)?);
        meters::stale(meters::TLS_FILES, false);
        Ok(Self {
            files,
            acceptor: RwLock::new(TlsAcceptor::from(config)),
            refreshing: Mutex::new(()),
            last_read: Mutex::new(LastRead { print, trouble: None }),
        })
    }

    /// Whether client certificates are required.
    pub(crate) fn asks_clients(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Why the current files are not in use, if they are not.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.last_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .trouble
            .clone()
    }

    /// Performs the handshake; returns the SHA-256 of the client certificate, if one is required.
    ///
    /// # Errors
    /// When the handshake fails or the client certificate is not trusted.
    pub(crate) async fn accept(&self, socket: TcpStream) -> io::Result<(TlsStream<TcpStream>, Option<Arc<str>>)> {
        let acceptor = self.acceptor.read().unwrap_or_else(PoisonError::into_inner).clone();
        let stream = acceptor.accept(socket).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let certificate = shown.map(|certificate| hex(digest(&SHA256, certificate.as_ref()).as_ref()).into());
        Ok((stream, certificate))
    }

    /// Reloads the files if they changed, for new connections. Blocks.
    ///
    /// # Errors
    /// `Misconfigured` when the files are invalid; the certificate does not change.
    pub(crate) fn refresh(&self) -> Result<()> {
        // One reload at a time, from reading to replacing: an older read must not finish last.
        let _turn = self.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the files are read: a change in between is noticed by the next reload.
        let print = print(&self.files);
        if self.is_as_seen(&print) {
            return Ok(());
        }
        // Not under the lock of `last_read`, which the daemon's status takes.
        let config = config(&self.files);
        let mut last_read = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        match config {
            Ok(config) => {
                if last_read.print != print {
                    tracing::info!("certificate reloaded");
                    *self.acceptor.write().unwrap_or_else(PoisonError::into_inner) = TlsAcceptor::from(config);
                }
                *last_read = LastRead { print, trouble: None };
                meters::stale(meters::TLS_FILES, false);
                Ok(())
            }
            Err(error) => {
                let trouble = error.chain();
                if last_read.trouble.as_ref() != Some(&trouble) {
                    tracing::warn!(error = trouble, "certificate not reloaded: the old one stays in use");
                }
                last_read.trouble = Some(trouble);
                meters::stale(meters::TLS_FILES, true);
                Err(error)
            }
        }
    }

    fn is_as_seen(&self, print: &[u8]) -> bool {
        let last_read = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        last_read.print == print && last_read.trouble.is_none()
    }
}

fn config(files: &ServerTls) -> Result<Arc<ServerConfig>> {
    let config = files.config();
    let config =
        config.map_err(|error| Error::new(ErrorKind::Misconfigured, format!("TLS cannot be set up: {error}")))?;
    Ok(Arc::new(config))
}

/// What the files hold, in short. A file that cannot be read is one that holds nothing.
fn print(files: &ServerTls) -> Vec<u8> {
    let mut hasher = Context::new(&SHA256);
    for path in [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()]
        .into_iter()
        .flatten()
    {
        let bytes = bytes(path).unwrap_or_default();
        hasher.update(&(bytes.len() as u64).to_be_bytes());
        hasher.update(&bytes);
    }
    hasher.finish().as_ref().to_vec()
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
        // Invalid files were reported already, and are not read more often for it.
        let skipped = u64::from(refreshed.unwrap_or(true));
        Ok(Turn {
            skipped,
            ..Turn::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;

    use tenure_testkit::certs::Certs;

    use super::*;

    #[test]
    fn hung_disk_blocks_the_reload_only() {
        let certs = Certs::new();
        let files = ServerTls {
            cert: certs.server_cert(),
            key: certs.server_key(),
            client_ca: None,
        };
        let key = files.key.clone();
        let tls = Arc::new(Tls::new(&TlsSettings::new(files)).unwrap());
        // A pipe is a file that hangs until somebody writes to it. Two of them: one for looking whether anything is new, one
        // for taking it over.
        let pipe = |name: &str| {
            let path = certs.dir().join(name);
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            path
        };
        let writer = || OpenOptions::new().write(true).open(&key).unwrap();
        fs::rename(pipe("first"), &key).unwrap();
        let refresh = thread::spawn({
            let tls = Arc::clone(&tls);
            move || tls.refresh()
        });
        let first = writer();
        fs::rename(pipe("second"), &key).unwrap();
        drop(first);
        let second = writer();
        let (tell, told) = mpsc::channel();
        thread::spawn({
            let tls = Arc::clone(&tls);
            move || tell.send(tls.trouble())
        });
        let trouble = told.recv_timeout(Duration::from_secs(20));
        assert_eq!(trouble, Ok(None), "the status waits for the disk");
        drop(second);
        refresh.join().unwrap().expect_err("an empty key");
        assert!(tls.trouble().is_some());
    }
}
