//! Files that cannot be opened: each is refused with what to do, and nothing in it is changed.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Stdio};

use tenure_core::store::{Backend, Severity, StoreOptions};
use tenure_core::{Error, ErrorKind};
use tenure_sqlite::SqliteStore;
use tenure_testkit::own_test;

use crate::common::{beat, join, manual, open, s, system};

fn refused(path: &Path) -> Error {
    match SqliteStore::open(path, StoreOptions::default(), system()) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
            assert!(error.message().contains(&*path.to_string_lossy()), "{error}");
            error
        }
    }
}

#[test]
fn a_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(
        refused(&dir.path().canonicalize().unwrap())
            .message()
            .contains("is a directory")
    );
}

#[test]
fn a_missing_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("no/tenure.db");
    assert!(refused(&path).message().contains("there is no directory"));
}

#[test]
fn a_read_only_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    assert!(refused(&path).message().contains("is read-only"));
}

#[test]
fn a_file_that_is_no_database_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    let text = "these are notes, and no database at all\n".repeat(100);
    std::fs::write(&path, &text).unwrap();
    assert!(refused(&path).message().contains("not a SQLite database"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_database_of_another_program_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
    drop(other);
    let before = std::fs::read(&path).unwrap();
    assert!(refused(&path).message().contains("another program"));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    open(&path, &manual()).close().await;
    rusqlite::Connection::open(&path)
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(refused(&path).message().contains("newer Tenure"));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    let store = open(&path, &clock);
    for n in 0..500 {
        join(&store, &format!("m{n}"), s(10)).await;
    }
    store.close().await;
    // Everything behind the first page, where the header and the schema are.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096..].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    assert!(refused(&path).message().contains("is damaged"));
    assert_eq!(std::fs::read(&path).unwrap().len(), bytes.len());
}

#[tokio::test]
async fn a_second_owner_is_told_who_has_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    assert_eq!(tenure_sqlite::owner(&path), None);
    let store = open(&path, &clock);
    let tenure = join(&store, "a", s(10)).await;
    let pid = std::process::id();
    let message = refused(&path).message().to_owned();
    assert!(
        message.contains(&pid.to_string()) && message.contains("does not serve"),
        "{message}"
    );
    store.set_address("http://127.0.0.1:7717").unwrap();
    let message = refused(&path).message().to_owned();
    assert!(message.contains("http://127.0.0.1:7717"), "{message}");
    // Another name of the same file leads to the same lock.
    let link = dir.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let owner = tenure_sqlite::owner(&link).unwrap();
    assert_eq!(
        (owner.pid, owner.listen.as_deref()),
        (pid, Some("http://127.0.0.1:7717"))
    );
    assert!(owner.command.is_some());
    // The refused attempts had no effect.
    beat(&store, &tenure).await;
    join(&store, "b", s(10)).await;
    store.close().await;
    assert_eq!(tenure_sqlite::owner(&path), None);
    open(&link, &clock).close().await;
}

/// Not a test of its own: the process that owns the file in the tests below.
#[tokio::test]
#[ignore = "started by the tests that need an owner"]
async fn child_that_owns_the_file() {
    let path = std::env::var_os("TENURE_TEST_FILE").expect("the file to own");
    let store = SqliteStore::open(path, StoreOptions::default(), system()).unwrap();
    store.set_address("http://127.0.0.1:7717").unwrap();
    println!("OWNED");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// A process that has the file open, until it is killed.
fn owned_by_a_child(path: &Path) -> Child {
    let mut child = own_test(module_path!(), "child_that_owns_the_file")
        .env("TENURE_TEST_FILE", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child runs");
    let lines = BufReader::new(child.stdout.take().expect("the child runs")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("OWNED")));
    child
}

#[test]
fn a_file_has_one_owner_also_without_its_lock_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let mut child = owned_by_a_child(&path);
    let lock = dir.path().join("tenure.db.lock");
    let is_named = |message: &str| {
        let named = [format!("process {}", child.id()), "http://127.0.0.1:7717".to_owned()];
        assert!(named.iter().all(|name| message.contains(name)), "{message}");
    };
    std::fs::remove_file(&lock).unwrap();
    is_named(refused(&path).message());
    // The attempt has left a lock file of its own behind.
    is_named(refused(&path).message());
    std::fs::rename(&lock, dir.path().join("old.lock")).unwrap();
    is_named(refused(&path).message());
    child.kill().unwrap();
    child.wait().unwrap();
    SqliteStore::open(&path, StoreOptions::default(), system()).unwrap();
}

#[test]
fn a_hard_link_leads_to_the_same_owner() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("tenure.db"), dir.path().join("link.db"));
    let mut child = owned_by_a_child(&path);
    std::fs::hard_link(&path, &link).unwrap();
    let message = refused(&link).message().to_owned();
    assert!(message.contains("http://127.0.0.1:7717"), "{message}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The kernel drops all record locks of a process on a file when it closes any descriptor of it.
#[tokio::test]
async fn a_refused_open_leaves_the_locks_of_sqlite_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let store = open(&path, &manual());
    join(&store, "a", s(10)).await;
    let inode = format!(":{} ", path.metadata().unwrap().ino());
    let locks = || {
        let all = std::fs::read_to_string("/proc/locks").unwrap();
        let ours = all
            .lines()
            .filter(|line| line.contains("POSIX") && line.contains(&inode));
        ours.count()
    };
    let before = locks();
    assert!(before > 0, "SQLite locks a file that it has open");
    let link = dir.path().join("link.db");
    std::fs::hard_link(&path, &link).unwrap();
    refused(&link);
    std::fs::remove_file(dir.path().join("tenure.db.lock")).unwrap();
    refused(&path);
    // The kernel's list is not a snapshot: other processes lock and unlock concurrently.
    tenure_testkit::wait::until("the locks are as before", s(30), || locks() == before);
    store.close().await;
    assert_eq!(locks(), 0);
    open(&path, &manual()).close().await;
}

#[tokio::test]
async fn new_files_are_for_their_user_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("tenure.db"), &manual());
    join(&store, "a", s(10)).await;
    let mut seen = 0;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", entry.path().display());
        seen += 1;
    }
    assert!(seen >= 4, "the file, its lock, its log and the log's index");
    store.close().await;
}

#[tokio::test]
async fn the_doctor_finds_nothing_wrong_with_a_healthy_file() {
    let dir = tempfile::tempdir().unwrap();
    let clock = manual();
    let store = open(&dir.path().join("tenure.db"), &clock);
    join(&store, "a", s(10)).await;
    let findings = store.examine().await;
    let wrong: Vec<_> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    for check in ["owner", "clock", "file", "log", "disk", "integrity"] {
        assert!(
            findings.iter().any(|finding| finding.check == check),
            "{check}: {findings:?}"
        );
    }
    store.close().await;
}
