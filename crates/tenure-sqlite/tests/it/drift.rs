//! A file that another program has edited: what does not fit together is repaired when the file is opened, and nothing is
//! taken from the living.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use tenure_core::TenureId;
use tenure_core::clock::ManualClock;
use tenure_core::id::Alias;
use tenure_core::membership::EndBy;
use tenure_core::session::{Attach, SessionState, SessionStore};
use tenure_core::store::{Backend, PageRequest};
use tenure_core::sweep::{SweepRequest, SweepSteps};
use tenure_sqlite::SqliteStore;

use crate::common::{
    self, attached, detach, end, group, join, manual, open, pass, plain, rows, s, seen, settle, sweep,
};

/// A file with a session that is active, one that is disconnected, one of an instance that the janitor has not released
/// yet, and one that no edit touches.
struct World {
    store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
    path: PathBuf,
    front: TenureId,
    _dir: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, clock) = (dir.path().join("tenure.db"), manual());
        let store = open(&path, &clock);
        let (front, dead) = (join(&store, "front", s(10)).await, join(&store, "dead", s(10)).await);
        let live = Attach {
            alias: Some(Alias::new("ann").expect("a name")),
            data: [("room".to_owned(), json!(1))].into(),
            ..plain("live", "c1")
        };
        attached(&store, &front, &live).await;
        attached(&store, &front, &plain("live", "c2")).await;
        attached(&store, &front, &plain("other", "c1")).await;
        attached(&store, &dead, &plain("waits", "c1")).await;
        let away = Attach {
            grace: Some(s(100)),
            ..plain("away", "c1")
        };
        attached(&store, &front, &away).await;
        detach(&store, &front, "away", "c1").await;
        end(&store, &dead, EndBy::Expel).await;
        store.close().await;
        Self {
            store,
            clock,
            path,
            front,
            _dir: dir,
        }
    }

    /// Edits the file while it is closed, and serves it again, first with a silence that unsettles the group.
    fn edit(&mut self, edit: &str) {
        let sql = rusqlite::Connection::open(&self.path).expect("a file that can be edited");
        sql.execute_batch(edit).expect(edit);
        sql.close().expect("a file that can be edited");
        self.store = open(&self.path, &self.clock);
        self.clock.advance(s(3));
    }

    async fn settle(&self) {
        settle(&self.store, &self.clock, &[&self.front]).await;
    }

    async fn state(&self, name: &str) -> Option<SessionState> {
        seen(&self.store, name).await.map(|seen| seen.state)
    }

    /// What the group knows about itself is what the file holds.
    async fn check_counts(&self, what: &str) {
        let status = self.store.tick(&group()).await.expect("a tick");
        let sql = rusqlite::Connection::open(&self.path).expect("a file that can be edited");
        let counted = sql.query_row("SELECT count(*), count(due_us), min(due_us) FROM sessions", [], |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, i64>(1)?,
                row.get::<_, Option<i64>>(2)?,
            ))
        });
        let known = (
            i64::try_from(status.sessions).expect("a small number"),
            i64::try_from(status.disconnected).expect("a small number"),
            status.next_reap.map(|at| i64::try_from(at.micros()).expect("a time")),
        );
        assert_eq!(known, counted.expect("a count"), "{what}");
    }
}

/// Writes what the schema refuses.
fn by_force(edit: &str) -> String {
    format!("PRAGMA ignore_check_constraints = ON; {edit}")
}

fn edits() -> Vec<String> {
    [of_sessions(), of_connections(), of_what_cannot_be_read()].concat()
}

fn of_sessions() -> Vec<String> {
    vec![
        // The index.
        "UPDATE sessions SET reap_us = NULL, granted_us = NULL, due_us = NULL WHERE session = 'away'".to_owned(),
        "UPDATE sessions SET due_us = 9000000000000000 WHERE session = 'away'".to_owned(),
        "UPDATE sessions SET reap_us = 9000000000000000, granted_us = 9000000000000000 WHERE session = 'away'"
            .to_owned(),
        "UPDATE sessions SET reap_us = 1, granted_us = 1, due_us = 1 WHERE session IN ('live', 'waits')".to_owned(),
        // Rows of sessions.
        "DELETE FROM sessions WHERE session IN ('live', 'waits')".to_owned(),
        "DELETE FROM sessions WHERE session = 'away'".to_owned(),
        // Aliases: another one is just another one.
        "UPDATE sessions SET alias = 'bob' WHERE session = 'live'".to_owned(),
        "UPDATE sessions SET alias = NULL WHERE session = 'live'".to_owned(),
    ]
}

/// Rows of connections, which are also what a tenure holds.
fn of_connections() -> Vec<String> {
    let connect = |of: &str, name: &str, tenure: &str| {
        format!("INSERT INTO connections VALUES (1, '{of}', '{name}', '{tenure}', 1763676800000099);")
    };
    vec![
        "DELETE FROM connections WHERE session IN ('live', 'waits')".to_owned(),
        "DELETE FROM connections WHERE session = 'live' AND connection = 'c1'".to_owned(),
        connect("live", "x", "nobody@1763676800000001"),
        connect("away", "x", "nobody@1763676800000001"),
        connect("live", "x", "nonsense"),
        connect("live", "bad name", "nonsense"),
        connect("nowhere", "x", "nonsense"),
        connect("no/where at all", "x/y", "nonsense"),
        "UPDATE ended SET visit_us = NULL".to_owned(),
        "DELETE FROM ended".to_owned(),
    ]
}

fn of_what_cannot_be_read() -> Vec<String> {
    let mut edits: Vec<String> = vec![
        "UPDATE sessions SET data = '{\"room\":' WHERE session IN ('live', 'away')".to_owned(),
        by_force("UPDATE sessions SET reap_us = NULL WHERE session = 'away'"),
        by_force("UPDATE sessions SET due_us = NULL WHERE session = 'away'"),
        by_force("UPDATE sessions SET session = 'no/name at all' WHERE session = 'live'"),
        by_force("UPDATE connections SET epoch = 0 WHERE session = 'live' AND connection = 'c1'"),
    ];
    let broken = [
        "epoch = 0",
        "epoch = -1",
        "alias = 'no name'",
        "grace_us = -5",
        "created_us = -1",
        "updated_us = -1",
        "data = '[]'",
    ];
    for field in broken {
        let edit = by_force(&format!("UPDATE sessions SET {field} WHERE session = 'live'"));
        edits.push(edit);
    }
    edits
}

#[tokio::test]
async fn edited_sessions_are_repaired_when_the_file_is_opened() {
    for edit in edits() {
        let mut world = World::new().await;
        world.edit(&edit);
        world.settle().await;
        assert_eq!(common::reconcile(&world.store, 200).await, BTreeMap::new(), "{edit}");
        world.check_counts(&edit).await;
        assert_eq!(world.state("other").await, Some(SessionState::Active), "{edit}");
        assert_eq!(world.state("live").await, live_after(&edit), "{edit}");
        let page = PageRequest {
            after: None,
            limit: 100,
        };
        let listed = world.store.sessions(&group(), None, &page).await.unwrap().items.len();
        assert_eq!(i64::try_from(listed).unwrap(), rows(&world.path)["sessions"], "{edit}");
        // Everything goes the way of all sessions.
        end(&world.store, &world.front, EndBy::Leave).await;
        for _ in 0..2 {
            pass(&world.store, &world.clock, s(1)).await;
            sweep(&world.store, SweepRequest::default(), &edit).await;
            pass(&world.store, &world.clock, s(101)).await;
        }
        let rows = rows(&world.path);
        assert_eq!((rows["sessions"], rows["connections"]), (0, 0), "{edit}");
        world.check_counts(&edit).await;
        world.store.close().await;
    }
}

/// What becomes of the session that is active: it stays so, unless its row cannot be read any more or all its connections
/// are gone from the file.
fn live_after(edit: &str) -> Option<SessionState> {
    let about = |words: &str| edit.contains(words) && edit.contains("'live'");
    let is_unreadable = [
        "epoch = ",
        "alias = 'no name'",
        "grace_us = -5",
        "created_us",
        "updated_us",
        "data = ",
    ];
    let is_row = edit.contains("UPDATE sessions SET");
    let is_gone = about("DELETE FROM sessions") || about("SET session =");
    if is_gone || is_row && is_unreadable.iter().any(|words| about(words)) {
        None
    } else if about("DELETE FROM connections WHERE session IN") {
        Some(SessionState::Disconnected)
    } else {
        Some(SessionState::Active)
    }
}

#[tokio::test]
async fn the_file_itself_refuses_most_of_it() {
    let world = World::new().await;
    let sql = rusqlite::Connection::open(&world.path).unwrap();
    for edit in [
        "UPDATE sessions SET alias = 'ann' WHERE session = 'other'",
        "UPDATE sessions SET epoch = 0",
        "UPDATE sessions SET epoch = 'x'",
        "UPDATE sessions SET due_us = 5 WHERE session = 'live'",
        "UPDATE sessions SET session = 'no name' WHERE session = 'live'",
        "UPDATE sessions SET data = NULL",
        "UPDATE connections SET epoch = NULL",
        "INSERT INTO sessions SELECT NULL, grp, session, epoch, NULL, NULL, 0, 0, NULL, NULL, NULL, '{}' FROM sessions",
    ] {
        assert!(sql.execute_batch(edit).is_err(), "{edit}");
    }
}
