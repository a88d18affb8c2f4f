//! A file that a foreign hand has edited: reconcile finds what does not fit together, repairs it, and takes nothing from
//! the living.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use tenure_core::TenureId;
use tenure_core::clock::ManualClock;
use tenure_core::event::EventKind;
use tenure_core::id::Alias;
use tenure_core::membership::EndBy;
use tenure_core::session::{Attach, SessionState, SessionStore};
use tenure_core::store::{Backend, Call, PageRequest};
use tenure_core::sweep::{SweepRequest, SweepSteps, drift};
use tenure_sqlite::SqliteStore;

use crate::common::{
    self, attached, detach, end, events, group, join, manual, member, open, pass, plain, reap, rows, s, seen, settle,
    sweep,
};

/// A file with a session that is active, one that is disconnected, one of an instance that the janitor has not released
/// yet, and one that nobody touches.
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

/// An edit, and what it is told as.
type Edit = (String, Vec<(&'static str, u64)>);

fn edits() -> Vec<Edit> {
    [of_sessions(), of_connections(), of_what_cannot_be_read()].concat()
}

fn of_sessions() -> Vec<Edit> {
    vec![
        // The index.
        (
            "UPDATE sessions SET reap_us = NULL, granted_us = NULL, due_us = NULL WHERE session = 'away'".to_owned(),
            vec![(drift::SESSION_WITHOUT_INDEX, 1)],
        ),
        (
            "UPDATE sessions SET due_us = 9000000000000000 WHERE session = 'away'".to_owned(),
            vec![(drift::SESSION_WITHOUT_INDEX, 1)],
        ),
        (
            "UPDATE sessions SET reap_us = 9000000000000000, granted_us = 9000000000000000 WHERE session = 'away'"
                .to_owned(),
            vec![(drift::SESSION_WITHOUT_INDEX, 1)],
        ),
        (
            "UPDATE sessions SET reap_us = 1, granted_us = 1, due_us = 1 WHERE session IN ('live', 'waits')".to_owned(),
            vec![(drift::INDEX_OF_ACTIVE, 2)],
        ),
        // Rows of sessions.
        (
            "DELETE FROM sessions WHERE session IN ('live', 'waits')".to_owned(),
            vec![(drift::CONNECTION_WITHOUT_SESSION, 3)],
        ),
        ("DELETE FROM sessions WHERE session = 'away'".to_owned(), vec![]),
        // Aliases: another one is just another one.
        (
            "UPDATE sessions SET alias = 'bob' WHERE session = 'live'".to_owned(),
            vec![],
        ),
        (
            "UPDATE sessions SET alias = NULL WHERE session = 'live'".to_owned(),
            vec![],
        ),
    ]
}

/// Rows of connections, which are also what a tenure holds.
fn of_connections() -> Vec<Edit> {
    let connect = |of: &str, name: &str, tenure: &str| {
        format!("INSERT INTO connections VALUES (1, '{of}', '{name}', '{tenure}', 1763676800000099);")
    };
    vec![
        (
            "DELETE FROM connections WHERE session IN ('live', 'waits')".to_owned(),
            vec![(drift::SESSION_WITHOUT_INDEX, 2)],
        ),
        (
            "DELETE FROM connections WHERE session = 'live' AND connection = 'c1'".to_owned(),
            vec![],
        ),
        (
            connect("live", "x", "nobody@1763676800000001"),
            vec![(drift::GHOST_CONNECTION, 1)],
        ),
        (
            connect("away", "x", "nobody@1763676800000001"),
            vec![(drift::GHOST_CONNECTION, 1), (drift::INDEX_OF_ACTIVE, 1)],
        ),
        (connect("live", "x", "nonsense"), vec![(drift::GHOST_CONNECTION, 1)]),
        (
            connect("live", "bad name", "nonsense"),
            vec![(drift::GHOST_CONNECTION, 1)],
        ),
        (
            connect("nowhere", "x", "nonsense"),
            vec![(drift::CONNECTION_WITHOUT_SESSION, 1)],
        ),
        (
            connect("no/where at all", "x/y", "nonsense"),
            vec![(drift::CONNECTION_WITHOUT_SESSION, 1)],
        ),
        (
            "UPDATE ended SET visit_us = NULL".to_owned(),
            vec![(drift::GHOST_CONNECTION, 1)],
        ),
        ("DELETE FROM ended".to_owned(), vec![(drift::GHOST_CONNECTION, 1)]),
    ]
}

fn of_what_cannot_be_read() -> Vec<Edit> {
    let mut edits: Vec<Edit> = vec![
        (
            "UPDATE sessions SET data = '{\"room\":' WHERE session IN ('live', 'away')".to_owned(),
            vec![(drift::BROKEN_SESSION, 2), (drift::SESSION_WITHOUT_INDEX, 1)],
        ),
        (
            by_force("UPDATE sessions SET reap_us = NULL WHERE session = 'away'"),
            vec![(drift::BROKEN_SESSION, 1), (drift::SESSION_WITHOUT_INDEX, 1)],
        ),
        (
            by_force("UPDATE sessions SET due_us = NULL WHERE session = 'away'"),
            vec![(drift::BROKEN_SESSION, 1), (drift::SESSION_WITHOUT_INDEX, 1)],
        ),
        (
            by_force("UPDATE sessions SET session = 'no/name at all' WHERE session = 'live'"),
            vec![(drift::BROKEN_SESSION, 1), (drift::CONNECTION_WITHOUT_SESSION, 2)],
        ),
        (
            by_force("UPDATE connections SET epoch = 0 WHERE session = 'live' AND connection = 'c1'"),
            vec![(drift::BROKEN_SESSION, 1)],
        ),
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
        edits.push((edit, vec![(drift::BROKEN_SESSION, 1)]));
    }
    edits
}

#[tokio::test]
async fn whatever_a_hand_has_done_is_told_by_kind_and_repaired() {
    for (edit, expected) in edits() {
        for limit in [1, 3, 200] {
            let what = format!("{edit} in parts of {limit}");
            let expected: BTreeMap<_, _> = expected
                .iter()
                .map(|(kind, count)| ((*kind).to_owned(), *count))
                .collect();
            let mut world = World::new().await;
            world.edit(&edit);
            world.settle().await;
            assert_eq!(common::reconcile(&world.store, limit).await, expected, "{what}");
            assert_eq!(common::reconcile(&world.store, limit).await, BTreeMap::new(), "{what}");
            let mut told = BTreeMap::new();
            for event in events(&world.store).await {
                if event.kind == EventKind::SessionsRepaired {
                    event
                        .counts
                        .into_iter()
                        .for_each(|(kind, count)| *told.entry(kind).or_default() += count);
                }
            }
            assert_eq!(told, expected, "{what}");
            world.check_counts(&what).await;
            assert_eq!(world.state("other").await, Some(SessionState::Active), "{what}");
            assert_eq!(world.state("live").await, live_after(&edit), "{what}");
            // All of it can be read again, and everything goes the way of all sessions.
            let page = PageRequest {
                after: None,
                limit: 100,
            };
            let listed = world.store.sessions(&group(), None, &page).await.unwrap().items.len();
            assert_eq!(i64::try_from(listed).unwrap(), rows(&world.path)["sessions"], "{what}");
            end(&world.store, &world.front, EndBy::Leave).await;
            for _ in 0..2 {
                pass(&world.store, &world.clock, s(1)).await;
                sweep(&world.store, SweepRequest::default(), &what).await;
                pass(&world.store, &world.clock, s(101)).await;
            }
            let rows = rows(&world.path);
            assert_eq!((rows["sessions"], rows["connections"]), (0, 0), "{what}");
            world.check_counts(&what).await;
            world.store.close().await;
        }
    }
}

/// What becomes of the session that is active: it stays so, unless its row or all its connections are gone from the file.
fn live_after(edit: &str) -> Option<SessionState> {
    let about = |words: &str| edit.contains(words) && edit.contains("'live'");
    if about("DELETE FROM sessions") || about("SET session =") {
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

#[tokio::test]
async fn nothing_is_taken_from_a_session_while_unsettled_or_braked() {
    let mut world = World::new().await;
    world.edit(
        "INSERT INTO connections VALUES (1, 'live', 'x', 'nobody@1763676800000001', 1763676800000099);
         INSERT INTO connections VALUES (1, 'nowhere', 'x', 'nobody@1763676800000001', 1763676800000099);",
    );
    // What nobody can have lost goes at once.
    let at_once = BTreeMap::from([(drift::CONNECTION_WITHOUT_SESSION.to_owned(), 1)]);
    assert_eq!(common::reconcile(&world.store, 200).await, at_once);
    for n in 0..12 {
        join(&world.store, &format!("m{n}"), s(2)).await;
    }
    world.settle().await;
    let ended = world.store.end_lapsed(&group(), 100, Call::default()).await.unwrap();
    assert_eq!(ended.ended.len(), 12);
    assert!(world.store.tick(&group()).await.unwrap().brake.is_some());
    assert_eq!(common::reconcile(&world.store, 200).await, BTreeMap::new());
    let forced = SweepRequest {
        force: true,
        reconcile: true,
        ..SweepRequest::default()
    };
    let report = sweep(&world.store, forced, "forced").await;
    assert_eq!(report.repaired, [(drift::GHOST_CONNECTION.to_owned(), 1)].into());
    assert_eq!(seen(&world.store, "live").await.unwrap().connections, 2);
    world.store.close().await;
}

#[tokio::test]
async fn the_last_ghost_of_a_session_begins_its_grace() {
    let mut world = World::new().await;
    world.edit("UPDATE ended SET visit_us = NULL");
    world.settle().await;
    common::reconcile(&world.store, 200).await;
    assert_eq!(seen(&world.store, "waits").await.unwrap().reap_in, Some(s(60)));
    let told = events(&world.store).await;
    let told: Vec<_> = told.iter().rev().take(2).collect();
    assert_eq!(told[0].kind, EventKind::SessionsRepaired);
    assert_eq!(
        (told[1].kind, told[1].reason.as_deref()),
        (EventKind::SessionDisconnected, Some("ghost"))
    );
    assert_eq!(told[1].tenure.as_ref().map(TenureId::member), Some(&member("dead")));
    world.store.close().await;
}

/// R3.2, R3.3: a session with connections is never deleted, whatever the index says.
#[tokio::test]
async fn the_reaper_skips_and_strikes_what_is_no_disconnected_session() {
    let mut world = World::new().await;
    world.edit(&by_force(
        "UPDATE sessions SET reap_us = 1, granted_us = 1, due_us = 1 WHERE session IN ('live', 'away');
         UPDATE sessions SET epoch = 0 WHERE session = 'away'",
    ));
    world.settle().await;
    let orphans = world.store.orphans(&group(), s(0), 100).await.unwrap();
    assert_eq!((orphans.orphans.len(), orphans.skipped), (0, 2));
    let batch = reap(&world.store, "p").await;
    assert_eq!((batch.reaped.len(), batch.skipped, batch.more), (0, 2, false));
    assert_eq!(world.state("live").await, Some(SessionState::Active));
    let batch = reap(&world.store, "p").await;
    assert_eq!((batch.reaped.len(), batch.skipped), (0, 0));
    let repaired = common::reconcile(&world.store, 200).await;
    let kinds = [drift::BROKEN_SESSION, drift::SESSION_WITHOUT_INDEX];
    assert_eq!(repaired, kinds.map(|kind| (kind.to_owned(), 1)).into());
    assert_eq!(seen(&world.store, "away").await.unwrap().reap_in, Some(s(100)));
    world.check_counts("the reaper").await;
    world.store.close().await;
}

/// One spoilt session keeps nobody from the others.
#[tokio::test]
async fn a_session_that_cannot_be_read_is_left_out_of_lists() {
    let mut world = World::new().await;
    world.edit("UPDATE sessions SET data = 'x' WHERE session = 'live'");
    for limit in [1, 2, 100] {
        let (mut after, mut all) = (None, Vec::new());
        loop {
            let page = world
                .store
                .sessions(&group(), None, &PageRequest { after, limit })
                .await
                .unwrap();
            all.extend(page.items.into_iter().map(|seen| seen.session.to_string()));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(all, ["away", "other", "waits"]);
    }
    assert!(world.store.session(&group(), &common::session("live")).await.is_err());
    // The janitor and the instance itself are not held up by it.
    world.settle().await;
    for name in ["c1", "c2"] {
        detach(&world.store, &world.front, "live", name).await;
    }
    common::reconcile(&world.store, 200).await;
    let mended = seen(&world.store, "live").await.unwrap();
    assert_eq!((mended.state, mended.data.len()), (SessionState::Disconnected, 0));
    assert_eq!(mended.alias, Some(Alias::new("ann").unwrap()));
    world.store.close().await;
}
