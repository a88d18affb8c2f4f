//! Opening ledgers by URL.

use tenure_core::clock::SystemClock;
use tenure_core::ledger::ProviderSpec;
use tenure_core::store::Health;
use tenure_core::{ProviderId, RosterName};

use super::*;

async fn opened(url: &str) -> Arc<dyn Ledger> {
    open(url, SystemClock::shared()).await.expect("a ledger")
}

async fn refused(url: &str) -> Error {
    match open(url, SystemClock::shared()).await {
        Ok(ledger) => panic!("{url} opened {}", ledger.place()),
        Err(error) => error,
    }
}

/// Writes a row and reads it back.
async fn works(ledger: &dyn Ledger) {
    let (roster, ann) = (RosterName::new("care").unwrap(), ProviderId::new("ann").unwrap());
    let spec = ProviderSpec {
        display_name: Some("Ann".to_owned()),
        capacity: Some(2).into(),
    };
    let put = ledger.put_provider(&roster, &ann, &spec).await.unwrap();
    assert_eq!(ledger.provider(&roster, &ann).await.unwrap(), Some(put.provider));
    assert_eq!(ledger.health(), Health::Up);
}

#[tokio::test]
async fn invalid_ledger_url_lists_the_valid_forms() {
    for url in [
        "",
        "ledger.db",
        "memory:x",
        "://",
        ":",
        "sqlite:",
        "sqlite://",
        "sqlite::memory:",
        "mysql://root:s3cret@host/db",
        "me:s3cret@host/db",
        "s3cret@host:5432/db",
        "valkey://:s3cret@host",
        "rediss://:s3cret@host",
        "http://me:s3cret@host:7717",
        "Postgres://me:s3cret@host/db",
    ] {
        let error = refused(url).await;
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{url}");
        assert!(!error.chain().contains("s3cret"), "{error:?}");
        let tells = ["sqlite:PATH", "write memory:"];
        assert!(
            tells.iter().any(|part| error.message().contains(part)),
            "{url}: {error}"
        );
    }
    assert!(
        refused("mysql://h/d").await.message().contains("\"mysql\""),
        "the value is named"
    );
    let long = refused(&format!("{}:", "x".repeat(10_000))).await;
    assert!(long.message().len() < 300, "{long}");
}

#[tokio::test]
async fn memory_ledger_opens_immediately() {
    let ledger = opened("memory:").await;
    works(&*ledger).await;
    assert_eq!(ledger.place(), "memory:");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_file_opens_by_both_url_forms_and_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db").display().to_string();
    let ledger = opened(&format!("sqlite:{path}")).await;
    works(&*ledger).await;
    let second = refused(&format!("sqlite://{path}")).await;
    assert_eq!(second.kind(), ErrorKind::Misconfigured);
    assert!(
        second.message().contains(&path) && second.message().contains(&std::process::id().to_string()),
        "{second}"
    );
    ledger.close().await;
    let again = opened(&format!("sqlite://{path}")).await;
    assert_eq!(again.rosters().await.unwrap().len(), 1);
    again.close().await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn unreachable_database_does_not_prevent_start() {
    let port = tenure_testkit::port::Port::reserve();
    let free = port.addr();
    for scheme in ["postgres", "postgresql"] {
        let ledger = opened(&format!("{scheme}://me:s3cret@{free}/app")).await;
        let error = ledger.now().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        let told = format!("{} {} {:?}", ledger.place(), error.chain(), ledger.health());
        assert!(!told.contains("s3cret") && told.contains(&free.to_string()), "{told}");
    }
    let refused = refused("postgres:///app?password=s3cret").await;
    assert_eq!(refused.kind(), ErrorKind::Misconfigured);
    assert!(!refused.chain().contains("s3cret"), "{refused:?}");
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn database_opens_by_both_schemes() {
    let Some(server) = tenure_testkit::postgres::shared() else {
        return;
    };
    let url = server.database();
    let other = match url.strip_prefix("postgres://") {
        Some(rest) => format!("postgresql://{rest}"),
        None => url.replacen("postgresql://", "postgres://", 1),
    };
    for url in [url, other] {
        let ledger = opened(&url).await;
        // The first call creates the schema, which can take longer than the default half second on a busy machine.
        let patience = std::time::Duration::from_secs(60);
        tenure_testkit::wait::until_async("it answers", patience, async || ledger.now().await.is_ok()).await;
        works(&*ledger).await;
        ledger.close().await;
    }
}
