//! A file that is moved, replaced or cut while it is open: nothing is acknowledged into it.

use std::path::Path;

use tenure_core::error::Outcome;
use tenure_core::store::{Backend, Health, Severity, Store};
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

fn overwrite(path: &Path, from: u64, len: usize) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("a file");
    file.write_all_at(&vec![0; len], from).expect("a file");
}

type Damage = fn(&Path);

/// What can happen to the log and its index. The last word of each is what the refusal says.
const DAMAGES: [(&str, &str, Damage); 9] = [
    ("emptied", "was cut short", |log| truncate(log, 0)),
    ("cut to its head", "was cut short", |log| truncate(log, 32)),
    ("cut by a byte", "was cut short", |log| truncate(log, len(log) - 1)),
    ("head overwritten", "overwritten", |log| overwrite(log, 0, 32)),
    ("tail overwritten", "overwritten", |log| {
        overwrite(log, len(log) - 4_120, 4_120)
    }),
    ("all overwritten", "overwritten", |log| {
        overwrite(log, 0, usize::try_from(len(log)).expect("a short log"))
    }),
    ("replaced", "was replaced by another file", |log| {
        let copy = log.with_extension("copy");
        std::fs::copy(log, &copy).expect("a log");
        std::fs::rename(copy, log).expect("a copy");
    }),
    ("index emptied", "index (-shm) that was cut short", |log| {
        truncate(&index(log), 0)
    }),
    ("index removed", "tenure.db-shm was deleted", |log| {
        std::fs::remove_file(index(log)).expect("an index")
    }),
];

fn len(path: &Path) -> u64 {
    path.metadata().expect("a file").len()
}

fn index(log: &Path) -> std::path::PathBuf {
    log.with_extension("db-shm")
}

/// A log that lost commits takes no more, neither while the file is open nor when it is closed.
#[tokio::test]
async fn nothing_is_acknowledged_into_a_damaged_log() {
    for (damage, what, apply) in DAMAGES {
        eprintln!("{damage}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenure.db");
        let clock = manual();
        let store = open(&path, &clock);
        let a = join(&store, "a", s(100)).await;
        claim(&store, &a, "dev-1").await.unwrap();
        apply(&dir.path().join("tenure.db-wal"));
        let refused = claim(&store, &a, "dev-2").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(refused.message().contains(what), "{damage}: {refused}");
        assert!(is_down(&store, what));
        let findings = store.examine().await;
        assert!(
            findings.iter().any(|finding| finding.detail.contains(what)),
            "{findings:?}"
        );
        unchanged(claim(&store, &a, "dev-3").await, what);
        store.close().await;
        // After a damage the writer lets the file go by itself.
        wait::until("the file is free", s(30), || tenure_sqlite::owner(&path).is_none());

        // Nothing of what the log lost was copied into the file.
        let store = open(&path, &clock);
        assert!(
            store
                .examine()
                .await
                .iter()
                .all(|finding| finding.severity != Severity::Error)
        );
        for key in ["dev-2", "dev-3"] {
            assert_eq!(owner(&store, key).await, None, "{damage}");
        }
        let b = join(&store, "b", s(100)).await;
        claim(&store, &b, "dev-2").await.unwrap();
        store.close().await;
    }
}

#[tokio::test]
async fn an_idle_store_notices_a_damaged_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let store = open(&path, &manual());
    join(&store, "a", s(100)).await;
    truncate(&dir.path().join("tenure.db-wal"), 0);
    // A daemon stops then, so that a new process reads the file.
    assert!(store.until_broken().await.message().contains("was cut short"));
    noticed(&store, "was cut short");
    store.close().await;
}

/// Backup programs do that: everything is in the file when the log is emptied.
#[tokio::test]
async fn a_checkpoint_of_another_program_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let store = open(&path, &manual());
    let a = join(&store, "a", s(100)).await;
    // In a process, SQLite shares the index between connections.
    let other = rusqlite::Connection::open(&path).unwrap();
    for mode in ["PASSIVE", "RESTART", "TRUNCATE"] {
        claim(&store, &a, mode).await.unwrap();
        let pragma = format!("PRAGMA wal_checkpoint({mode})");
        let is_busy: bool = other.query_row(&pragma, [], |row| row.get(0)).unwrap();
        assert!(!is_busy, "{mode}");
        assert_eq!(
            mode == "TRUNCATE",
            len(&dir.path().join("tenure.db-wal")) == 0,
            "{mode}"
        );
        claim(&store, &a, &format!("after-{mode}")).await.unwrap();
        assert_eq!(store.health(), Health::Up);
    }
    store.close().await;
}

fn truncate(path: &Path, len: u64) {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .expect("a file to cut");
    file.set_len(len).expect("a file to cut");
}
