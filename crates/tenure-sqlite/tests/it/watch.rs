//! A file that is moved, replaced or cut while it is open: nothing is acknowledged into it.

use std::path::Path;

use tenure_core::error::Outcome;
use tenure_core::store::{Backend, Health, Store};
use tenure_core::sweep::SweepSteps;
use tenure_core::{Error, ErrorKind};
use tenure_sqlite::SqliteStore;
use tenure_testkit::wait;

use crate::common::{beat, claim, group, join, manual, open, owner, s};

/// What every call answers while the file is not in its place.
fn unchanged<T: std::fmt::Debug>(answer: Result<T, Error>, what: &str) {
    let error = answer.expect_err("the file is not in its place");
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unchanged)
    );
    assert!(error.message().contains(what), "{error}");
}

fn is_down(store: &SqliteStore, what: &str) -> bool {
    matches!(store.health(), Health::Down { reason } if reason.contains(what))
}

/// Waits until the file is looked at without any call.
fn noticed(store: &SqliteStore, what: &str) {
    wait::until("the watch has looked", s(30), || is_down(store, what));
}

#[tokio::test]
async fn nothing_is_acknowledged_into_a_file_that_was_moved_away() {
    let dir = tempfile::tempdir().unwrap();
    let (path, aside) = (dir.path().join("tenure.db"), dir.path().join("aside.db"));
    let store = open(&path, &manual());
    let a = join(&store, "a", s(100)).await;
    std::fs::rename(&path, &aside).unwrap();
    // The writer looks for itself, before the watch has.
    unchanged(claim(&store, &a, "dev-1").await, "was deleted or moved away");
    assert!(is_down(&store, "moved away"));
    unchanged(store.tick(&group()).await, "moved away");
    unchanged(store.now().await, "tenure.db");
    std::fs::rename(&aside, &path).unwrap();
    wait::until("the file is served again", s(30), || store.health() == Health::Up);
    assert!(matches!(
        beat(&store, &a).await,
        tenure_core::membership::BeatReply::Renewed { .. }
    ));
    assert_eq!(owner(&store, "dev-1").await, None);
    claim(&store, &a, "dev-1").await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_replaced_file_is_noticed_without_any_call() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("tenure.db"), dir.path().join("copy.db"));
    let store = open(&path, &manual());
    let a = join(&store, "a", s(100)).await;
    std::fs::copy(&path, &copy).unwrap();
    std::fs::rename(&copy, &path).unwrap();
    noticed(&store, "was replaced by another file");
    unchanged(claim(&store, &a, "dev-1").await, "restart this process");
    store.close().await;
}

#[tokio::test]
async fn a_deleted_log_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let store = open(&path, &manual());
    let a = join(&store, "a", s(100)).await;
    std::fs::remove_file(dir.path().join("tenure.db-wal")).unwrap();
    unchanged(claim(&store, &a, "dev-1").await, "tenure.db-wal was deleted");
    store.close().await;
}

/// An older copy that is written over the open file has the same inode.
#[tokio::test]
async fn a_file_that_was_cut_short_is_not_trusted_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    open(&path, &manual()).close().await;
    let store = open(&path, &manual());
    let a = join(&store, "a", s(100)).await;
    let whole = std::fs::read(&path).unwrap();
    truncate(&path, 4096);
    noticed(&store, "was cut short");
    std::fs::write(&path, whole).unwrap();
    unchanged(claim(&store, &a, "dev-1").await, "was cut short");
    store.close().await;
}

fn truncate(path: &Path, len: u64) {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .expect("a file to cut");
    file.set_len(len).expect("a file to cut");
}
