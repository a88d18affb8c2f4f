//! Opening a SQLite file, or finding the process that has it open.

use std::sync::Arc;

use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::store::Store;
use tenure_sqlite::{Owner, SqliteStore};

use super::{OpenOptions, misconfigured, open_http};

pub(super) async fn open(path: &str, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    // Both sqlite:/var/lib/x.db and sqlite:///var/lib/x.db are in use for the same file.
    let path = path.strip_prefix("//").unwrap_or(path).to_owned();
    if path.is_empty() {
        return Err(misconfigured(
            "the store URL names no file; write sqlite:PATH, like sqlite:tenure.db".to_owned(),
        ));
    }
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

/// Talks to the owner of the file instead, if it can be talked to.
async fn follow(path: &str, owner: &Owner, refused: Error, options: &OpenOptions) -> Result<Arc<dyn Store>> {
    // The refusal names the owner already.
    let Some(listen) = &owner.listen else {
        return Err(refused);
    };
    let url = reachable(listen);
    let store = open_http(&url, options)?;
    match store.now().await {
        Ok(_) => {
            tracing::debug!(path, url, pid = owner.pid, "the file has an owner; talking to it");
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

/// A URL for an address to listen on: one that means "everywhere" is reached on this machine.
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
    fn an_address_that_means_everywhere_is_reached_here() {
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
