//! Files that cannot be opened: each is refused with what to do, and nothing in it is changed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tenure_core::store::{Backend, Severity, StoreOptions};
use tenure_core::{Error, ErrorKind, Ledger};
use tenure_sqlite::{SqliteLedger, SqliteStore};

use crate::ledger::common::{connect, manual, numbered, open, provider, put, roster, system};

fn refused(path: &Path) -> Error {
    match SqliteLedger::open(path, system()) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
            assert!(error.message().contains(&*path.to_string_lossy()), "{error}");
            error
        }
    }
}

#[test]
fn what_is_no_file_to_write_to_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let message = refused(&root).message().to_owned();
    assert!(
        message.contains("is a directory") && message.contains("/ledger.db"),
        "{message}"
    );
    let message = refused(&root.join("no/ledger.db")).message().to_owned();
    assert!(message.contains("there is no directory"), "{message}");
    let path = root.join("ledger.db");
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    assert!(refused(&path).message().contains("is read-only"));
}

#[tokio::test]
async fn what_is_no_ledger_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "these are notes, and no database at all\n".repeat(100)).unwrap();
    let other = dir.path().join("other.db");
    connect(&other).execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
    let store = dir.path().join("tenure.db");
    let opened = SqliteStore::open(&store, StoreOptions::default(), system()).unwrap();
    // While a store has the file, the refusal is about that.
    assert!(refused(&store).message().contains("is in use by"));
    opened.close().await;
    for (path, what) in [
        (&text, "not a SQLite database"),
        (&other, "another program"),
        (&store, "holds a store of Tenure and no ledger"),
    ] {
        let before = std::fs::read(path).unwrap();
        let message = refused(path).message().to_owned();
        assert!(message.contains(what), "{message}");
        assert_eq!(std::fs::read(path).unwrap(), before, "{what}");
    }
    // And the other way round.
    let path = dir.path().join("ledger.db");
    open(&path, &manual()).close().await;
    let error = SqliteStore::open(&path, StoreOptions::default(), system()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(
        error.message().contains("holds a ledger of Tenure and no store"),
        "{error}"
    );
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    open(&path, &manual()).close().await;
    connect(&path).pragma_update(None, "user_version", 99).unwrap();
    let before = std::fs::read(&path).unwrap();
    let message = refused(&path).message().to_owned();
    assert!(message.contains("newer Tenure") && message.contains("99"), "{message}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_file_of_an_unreleased_build_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    open(&path, &manual()).close().await;
    connect(&path).pragma_update(None, "user_version", 4).unwrap();
    let before = std::fs::read(&path).unwrap();
    let message = refused(&path).message().to_owned();
    assert!(
        message.contains("schema 4") && message.contains("move it away"),
        "{message}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let ledger = open(&path, &manual());
    for n in 0..300 {
        put(&ledger, &numbered(n), 1).await;
    }
    ledger.close().await;
    let bytes = std::fs::read(&path).unwrap();
    // Everything behind the first page, where the header and the beginning of the schema are; and the schema itself.
    for from in [4096, 100] {
        let mut damaged = bytes.clone();
        damaged[from..].fill(0xa5);
        std::fs::write(&path, &damaged).unwrap();
        let message = refused(&path).message().to_owned();
        assert!(
            message.contains("is damaged") && message.contains("restore a copy"),
            "{message}"
        );
        assert_eq!(std::fs::read(&path).unwrap().len(), damaged.len());
    }
}

/// Damage that opening does not find makes the read fail with an error, without a panic.
#[tokio::test]
async fn damage_in_the_middle_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let ledger = open(&path, &manual());
    for n in 0..300 {
        put(&ledger, &numbered(n), 1).await;
    }
    ledger.close().await;
    let sql = connect(&path);
    let page: i64 = sql
        .query_row(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'providers'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    drop(sql);
    let page = usize::try_from(page).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[(page - 1) * 4096..page * 4096].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    let ledger = open(&path, &manual());
    let (roster, name) = (roster(), numbered(1));
    let read = ledger.provider(&roster, &name).await.unwrap_err();
    assert_eq!(read.kind(), ErrorKind::Unavailable);
    assert!(read.message().contains("damaged"), "{read}");
    let written = ledger.deactivate(&roster, &name).await;
    assert_eq!(written.unwrap_err().kind(), ErrorKind::Unavailable);
    let findings = ledger.examine().await;
    let integrity = findings.iter().find(|finding| finding.check == "integrity").unwrap();
    assert_eq!(integrity.severity, Severity::Error, "{findings:?}");
    ledger.close().await;
}

#[tokio::test]
async fn a_second_owner_is_told_who_has_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("ledger.db"), manual());
    let ledger = open(&path, &clock);
    let pid = std::process::id();
    let message = refused(&path).message().to_owned();
    assert!(
        message.contains(&pid.to_string()) && message.contains("does not serve"),
        "{message}"
    );
    ledger.set_address("http://127.0.0.1:7717").unwrap();
    let message = refused(&path).message().to_owned();
    assert!(
        message.contains("http://127.0.0.1:7717") && message.contains("serves the ledger"),
        "{message}"
    );
    // The refused attempts had no effect.
    put(&ledger, &provider("ann"), 1).await;
    ledger.close().await;
    assert_eq!(tenure_sqlite::owner(&path), None);
    open(&path, &clock).close().await;
}

#[tokio::test]
async fn the_doctor_finds_nothing_wrong_with_a_healthy_file() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(&dir.path().join("ledger.db"), &manual());
    put(&ledger, &provider("ann"), 1).await;
    let findings = ledger.examine().await;
    assert!(
        findings.iter().all(|finding| finding.severity != Severity::Error),
        "{findings:?}"
    );
    for check in ["owner", "clock", "file", "log", "disk", "integrity"] {
        assert!(
            findings.iter().any(|finding| finding.check == check),
            "{check}: {findings:?}"
        );
    }
    ledger.close().await;
}
