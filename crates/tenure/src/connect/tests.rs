//! Store URLs, and files that another process owns.

use super::*;

async fn refused(url: &str) -> Error {
    match open_store(url, &OpenOptions::default()).await {
        Ok(store) => panic!("{url} opened {}", store.place()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn unknown_url_is_rejected_with_the_supported_schemes() {
    for url in ["", "tenure.db", "postgres://x", "memory:x", "://", "mysql:x"] {
        let error = refused(url).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}");
        assert!(
            url.starts_with("memory") || error.to_string().contains("valkey://"),
            "{error}"
        );
    }
    let error = refused("amqp://user:secret@host").await.to_string();
    assert!(error.contains("amqp") && !error.contains("secret"), "{error}");
}

#[cfg(feature = "valkey")]
#[tokio::test]
async fn valkey_urls_open_while_the_server_is_down() {
    for url in [
        "valkey://127.0.0.1:1",
        "redis-cluster://127.0.0.1:1,127.0.0.1:2",
        "valkey-sentinel://127.0.0.1:1/main",
    ] {
        let store = open_store(url, &OpenOptions::default()).await.unwrap();
        assert_eq!(store.place(), url);
        store.close().await;
    }
    let error = refused("rediss://:s3cret@h?tls_ca=/nowhere/ca.pem").await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(!error.chain().contains("s3cret"), "{error:?}");
}

#[tokio::test]
async fn memory_store_opens() {
    let store = open_store("memory:", &OpenOptions::default()).await.unwrap();
    assert!(store.now().await.unwrap().micros() > 0);
}

#[cfg(all(feature = "sqlite", feature = "http"))]
#[tokio::test]
async fn owned_file_names_its_owner_or_connects_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db").display().to_string();
    let url = format!("sqlite:{path}");
    let owner = open_store(&url, &OpenOptions::default()).await.unwrap();
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    owner.close().await;

    // No process listens there: the error names the file, its owner and the address.
    let port = tenure_testkit::port::Port::reserve();
    let free = port.addr();
    let told = OpenOptions {
        http_address: Some(free.to_string()),
        ..OpenOptions::default()
    };
    let owner = open_store(&format!("sqlite://{path}"), &told).await.unwrap();
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let message = error.to_string();
    assert!(
        message.contains(&free.to_string()) && message.contains(&path) && message.contains("owned by"),
        "{message}"
    );

    // A daemon owns its file or fails.
    let daemon = OpenOptions {
        follow_owner: false,
        ..OpenOptions::default()
    };
    let error = open_store(&url, &daemon).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    owner.close().await;
}
