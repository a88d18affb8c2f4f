//! TLS for those who connect: the handshake, and a certificate that can be replaced under a running daemon.

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
    /// Held while the files are read. Whoever answers requests never waits for it.
    refreshing: Mutex<()>,
    seen: Mutex<Seen>,
}

/// What was in the files when they were last looked at.
struct Seen {
    print: Vec<u8>,
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
            refreshing: Mutex::new(()),
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
        let certificate = shown.map(|certificate| hex(digest(&SHA256, certificate.as_ref()).as_ref()).into());
        Ok((stream, certificate))
    }

    /// Looks at the files, and takes what is new in them for connections to come. Blocks.
    ///
    /// # Errors
    /// `Misconfigured` when they cannot be used: what is shown stays as it was.
    pub(crate) fn refresh(&self) -> Result<()> {
        // One at a time, from reading to taking over: else what was read first could be put in place last.
        let _turn = self.refreshing.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the files are read: one that changes in between is noticed the next time.
        let print = print(&self.files);
        if self.is_as_seen(&print) {
            return Ok(());
        }
        // Not under the lock of what was seen, which the status of the daemon takes.
        let config = config(&self.files);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match config {
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

    fn is_as_seen(&self, print: &[u8]) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.print == print && seen.trouble.is_none()
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
        // What cannot be used has been reported, and is no reason to look at it more often.
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
    fn nobody_waits_for_files_on_a_disk_that_hangs_but_whoever_reads_them() {
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
