//! Opening a SQLite file, or connecting to the process that owns it.

use std::path::Path;
use std::sync::Arc;

use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::store::Store;
use tenure_sqlite::{Owner, SqliteStore};

pub use tenure_sqlite::Restored;

use super::{OpenOptions, misconfigured, open_http};

pub(super) async fn open(path: &str, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    let path = file_of(path)?;
    let (file, settings, clock) = (path.clone(), options.store.clone(), Arc::clone(&options.clock));
    let opened = tokio::task::spawn_blocking(move || SqliteStore::open(file, settings, clock)).await;
    let opened = opened.map_err(|error| Error::new(ErrorKind::Internal, "opening the file panicked").because(error))?;
    match opened {
        Ok(store) => {
            if let Some(address) = &options.http_address {
                store.set_address(address)?;
            }
            Ok(store)
        }
        Err(error) => match tenure_sqlite::owner(&path) {
            Some(owner) if options.follow_owner => follow(&path, &owner, error, options).await,
            _ => Err(error),
        },
    }
}

/// Replaces the store at `sqlite:PATH` with a copy of a backup. No process may have the store open. At its next start
/// the store grants no lease for one max ttl, because grants made since the backup are unknown to it. Blocks; O(size of
/// the backup).
///
/// # Errors
/// `Misconfigured`, with nothing changed: the URL names no file, another process owns the file, or the backup is not
/// valid. `Unavailable` when a file cannot be written.
pub fn restore_sqlite(backup: &Path, url: &str) -> Result<Restored> {
    match url.strip_prefix("sqlite:") {
        Some(path) => tenure_sqlite::restore(backup, file_of(path)?),
        None => Err(misconfigured(
            "only an embedded store can be restored; write sqlite:PATH".to_owned(),
        )),
    }
}

/// `sqlite:/var/lib/x.db` and `sqlite:///var/lib/x.db` name the same file.
fn file_of(path: &str) -> Result<String> {
    match path.strip_prefix("//").unwrap_or(path) {
        "" => Err(misconfigured(
            "the store URL names no file; write sqlite:PATH, like sqlite:tenure.db".to_owned(),
        )),
        path => Ok(path.to_owned()),
    }
}

/// Connects to the owner of the file, if it listens.
async fn follow(path: &str, owner: &Owner, refused: Error, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    // The error already names the owner.
    let Some(listen) = &owner.listen else {
        return Err(refused);
    };
    let url = reachable(listen);
    let store = open_http(&url, options)?;
    match store.now().await {
        Ok(_) => {
            tracing::debug!(
                path,
                url,
                pid = owner.pid,
                "the file is owned by another process; connecting to it"
            );
            Ok(store)
        }
        Err(error) => {
            let name = owner.command.as_deref().unwrap_or("unknown");
            let message = format!(
                "{path} is owned by process {} ({name}), which does not answer at {url}",
                owner.pid
            );
            Err(Error::unavailable(message, error.outcome()).because(error))
        }
    }
}

/// The URL of a listen address on this machine. A wildcard address becomes loopback.
fn reachable(listen: &str) -> String {
    let (scheme, address) = listen.split_once("://").unwrap_or(("http", listen));
    let address = match address.rsplit_once(':') {
        Some(("0.0.0.0" | "", port)) => format!("127.0.0.1:{port}"),
        Some(("[::]", port)) => format!("[::1]:{port}"),
        _ => address.to_owned(),
    };
    format!("{scheme}://{address}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_listen_address_becomes_loopback() {
        for (listen, url) in [
            ("127.0.0.1:7717", "http://127.0.0.1:7717"),
            ("http://10.0.0.7:80", "http://10.0.0.7:80"),
            ("0.0.0.0:7717", "http://127.0.0.1:7717"),
            ("https://0.0.0.0:7717", "https://127.0.0.1:7717"),
            ("[::]:7717", "http://[::1]:7717"),
            (":7717", "http://127.0.0.1:7717"),
        ] {
            assert_eq!(reachable(listen), url);
        }
    }
}
