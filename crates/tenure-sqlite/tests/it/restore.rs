//! A backup that is put in the place of a store.

use std::path::Path;

use tenure_core::lease::AcquireOutcome;
use tenure_core::settling::GapCause;
use tenure_core::store::Backend;
use tenure_core::{Error, ErrorKind};
use tenure_sqlite::restore;

use crate::common::{acquire, claim, granted, join, manual, open, owner, s};

fn refused(backup: &Path, path: &Path) -> Error {
    let error = restore(backup, path).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
    error
}

#[tokio::test]
async fn a_restored_store_waits_and_keeps_what_it_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy, clock) = (dir.path().join("tenure.db"), dir.path().join("copy.db"), manual());
    let store = open(&path, &clock);
    let a = join(&store, "a", s(30)).await;
    claim(&store, &a, "before").await.unwrap();
    // As `VACUUM INTO` or `.backup` make it while the store is open.
    let source = rusqlite::Connection::open(&path).unwrap();
    source.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    drop(source);
    claim(&store, &a, "since").await.unwrap();
    granted(&store, &a, "poll").await;
    assert!(refused(&copy, &path).message().contains("is in use by process"));
    store.close().await;
    let (newest, backup) = (std::fs::read(&path).unwrap(), std::fs::read(&copy).unwrap());

    let restored = restore(&copy, &path).unwrap();
    let aside = restored.set_aside.expect("there was a file");
    assert_eq!(std::fs::read(aside).unwrap(), newest);
    assert_eq!(std::fs::read(&copy).unwrap(), backup);
    let store = open(&path, &clock);
    assert_eq!(owner(&store, "before").await, Some((a.clone(), true)));
    assert_eq!(owner(&store, "since").await, None);
    let b = join(&store, "b", s(30)).await;
    let waits = AcquireOutcome::Unsettled {
        retry_in: s(120),
        cause: GapCause::New,
    };
    assert_eq!(acquire(&store, &b, "poll").await, waits);
    store.close().await;
}

#[tokio::test]
async fn the_newest_file_that_is_put_back_waits_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy, clock) = (dir.path().join("tenure.db"), dir.path().join("copy.db"), manual());
    let store = open(&path, &clock);
    let a = join(&store, "a", s(30)).await;
    store.close().await;
    std::fs::copy(&path, &copy).unwrap();
    restore(&copy, &path).unwrap();
    let store = open(&path, &clock);
    assert!(matches!(
        acquire(&store, &a, "poll").await,
        AcquireOutcome::Unsettled { .. }
    ));
    store.close().await;
    // Where there is nothing yet.
    let elsewhere = dir.path().join("other.db");
    assert_eq!(restore(&copy, &elsewhere).unwrap().set_aside, None);
    let store = open(&elsewhere, &clock);
    assert!(matches!(
        acquire(&store, &a, "poll").await,
        AcquireOutcome::Unsettled { .. }
    ));
    store.close().await;
}

#[tokio::test]
async fn what_is_no_backup_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other, clock) = (dir.path().join("tenure.db"), dir.path().join("other"), manual());
    open(&path, &clock).close().await;
    let before = std::fs::read(&path).unwrap();
    assert!(refused(&other, &path).message().contains("No such file"));
    assert!(refused(&path, &path).message().contains("to be replaced"));
    std::fs::write(&other, "").unwrap();
    assert!(refused(&other, &path).message().contains("is empty"));
    std::fs::write(&other, "notes\n".repeat(1_000)).unwrap();
    let message = refused(&other, &path).message().to_owned();
    assert!(message.contains("other is not a SQLite database"), "{message}");
    let mut torn = before.clone();
    torn[4096..].fill(0xa5);
    std::fs::write(&other, torn).unwrap();
    refused(&other, &path);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !left.iter().any(|name| name.to_string_lossy().contains("restor")),
        "{left:?}"
    );
    // It is as whole as before.
    let store = open(&path, &clock);
    let a = join(&store, "a", s(30)).await;
    granted(&store, &a, "poll").await;
    store.close().await;
}
