//! A file that an earlier version has written opens, keeps everything, and can hold what this version knows.

use std::path::Path;

use tenure_core::ProviderId;
use tenure_core::event::EventKind;
use tenure_core::lease::{AcquireOutcome, LeaseStore};
use tenure_core::ledger::{Provider, Version};
use tenure_core::membership::{BeatReply, EndReason, Revision};
use tenure_core::roster::{MirrorEntry, MirroredProvider, Put, RosterMirror, Standing};
use tenure_core::session::{How, SessionState};
use tenure_core::store::{Backend, Call};
use tenure_core::sweep::{SweepRequest, SweepSteps, run_pass};

use crate::common::{
    self, START, acquire, attached, beat, claim, detach, events, granted, held, holder, join, manual, open, owner,
    pass, plain, release, s, seen,
};

/// The schema before leases.
const FIRST: &str = include_str!("../../src/sql/migrations/0001_tenures.sql");
/// What leases added.
const SECOND: &str = include_str!("../../src/sql/migrations/0002_leases.sql");

/// What sessions added.
const THIRD: &str = include_str!("../../src/sql/migrations/0003_sessions.sql");

/// What the version before leases left behind: `a` alive with a claim, `b` expelled with a claim not yet released, `c`
/// lapsed and released.
fn written_before_leases(path: &Path) {
    let at = |seconds: u64| START - 60_000_000 + seconds * 1_000_000;
    let (a, b, c) = (at(0), at(1), at(2));
    let sql = rusqlite::Connection::open(path).expect("a file of the version before");
    sql.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))
        .expect("a file of the version before");
    sql.execute_batch(&format!(
        "BEGIN; {FIRST}
        PRAGMA application_id = {};
        PRAGMA user_version = 1;
        INSERT INTO meta VALUES (1, 'ingest', {a}, {end}, {a}, {c}, {first} + 6, {first}, 30000000, 60000000, NULL, NULL,
            NULL, NULL);
        INSERT INTO members VALUES (1, 'a', {a}, 60000000, {a} + 60000000, '{{\"zone\":\"x\"}}');
        INSERT INTO ended VALUES
            (1, 'b@{b}', 'expelled', 0, {b} + 60000000, {end}, {end} + 240000000, {end} + 250000),
            (1, 'c@{c}', 'lapsed', 1, {end}, {end}, {end} + 240000000, NULL);
        INSERT INTO lapses VALUES (1, 'c', {end});
        INSERT INTO claims VALUES (1, 'devices/', 'dev-a', 'a@{a}'), (1, 'devices/', 'dev-b', 'b@{b}');
        INSERT INTO events VALUES
            (1, {first}, {a}, 'joined', 'a@{a}', NULL, NULL, NULL, NULL),
            (1, {first} + 1, {b}, 'joined', 'b@{b}', NULL, NULL, NULL, NULL),
            (1, {first} + 2, {c}, 'joined', 'c@{c}', NULL, NULL, NULL, NULL),
            (1, {first} + 3, {end}, 'expelled', 'b@{b}', NULL, NULL, NULL, NULL),
            (1, {first} + 4, {end}, 'lapsed', 'c@{c}', NULL, NULL, NULL, NULL),
            (1, {first} + 5, {end}, 'evicted', 'c@{c}', 'lapsed', 'p.0', '{{\"devices\":2}}', NULL),
            (1, {first} + 6, {end}, 'group_unsettled', NULL, 'silent', NULL, '{{\"silent_ms\":3000}}', NULL);
        UPDATE clock SET high_water_us = {end};
        COMMIT;",
        0x5445_4e52,
        end = at(32),
        first = a + 1,
    ))
    .expect("a file of the version before");
}

/// What the version before sessions left behind: the same, and `a` has a lease.
fn written_before_sessions(path: &Path) {
    written_before_leases(path);
    let sql = rusqlite::Connection::open(path).expect("a file of the version before");
    sql.execute_batch(&format!(
        "BEGIN; {SECOND}
        PRAGMA user_version = 2;
        UPDATE meta SET last_event = last_event + 1, seq = seq + 1;
        INSERT INTO leases SELECT 1, 'poll', tenure, 77 FROM claims WHERE key = 'dev-a';
        UPDATE members SET revision = 77;
        INSERT INTO targets VALUES (1, 'poll', 0, 1);
        INSERT INTO events (grp, id, at_us, kind, tenure, lease, token)
            SELECT 1, last_event, tick_us, 'lease_granted', 'a@' || born_us, 'poll', 77 FROM meta;
        COMMIT;"
    ))
    .expect("a file of the version before");
}

/// What the version before rosters left behind: the same, and `a` has a session with a connection.
fn written_before_rosters(path: &Path) {
    written_before_sessions(path);
    let sql = rusqlite::Connection::open(path).expect("a file of the version before");
    sql.execute_batch(&format!(
        "BEGIN; {THIRD}
        PRAGMA user_version = 3;
        INSERT INTO sessions (grp, session, epoch, created_us, updated_us, data) SELECT 1, 'chat', 99, 5, 5, '{{}}';
        INSERT INTO connections SELECT 1, 'chat', 'c1', tenure, 99 FROM claims WHERE key = 'dev-a';
        COMMIT;"
    ))
    .expect("a file of the version before");
}

/// The whole schema, as stored in the file.
fn schema(path: &Path) -> Vec<(String, String, Option<String>)> {
    let sql = rusqlite::Connection::open(path).expect("the file");
    let mut all = sql
        .prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name")
        .expect("the schema");
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    rows.and_then(Iterator::collect).expect("the schema")
}

fn version(path: &Path) -> i64 {
    let sql = rusqlite::Connection::open(path).expect("a file of the version before");
    sql.pragma_query_value(None, "user_version", |row| row.get(0))
        .expect("a file of the version before")
}

#[tokio::test]
async fn a_file_of_the_version_before_leases_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    written_before_leases(&path);
    let store = open(&path, &clock);
    assert_eq!(version(&path), 8);
    let told = events(&store).await;
    let kinds: Vec<_> = told.iter().map(|event| event.kind.as_str()).collect();
    let all = [
        "joined",
        "joined",
        "joined",
        "expelled",
        "lapsed",
        "evicted",
        "group_unsettled",
    ];
    assert_eq!(kinds, all);
    assert_eq!((told[5].counts["devices"], told[5].pass.as_deref()), (2, Some("p.0")));
    assert!(told.iter().all(|event| event.lease.is_none() && event.token.is_none()));
    let (a, b) = (told[0].tenure.clone().unwrap(), told[1].tenure.clone().unwrap());
    assert_eq!(owner(&store, "dev-a").await, Some((a.clone(), true)));
    assert_eq!(owner(&store, "dev-b").await, Some((b.clone(), false)));
    let renewed = BeatReply::Renewed {
        expires_in: s(60),
        revision: Revision::NONE,
    };
    assert_eq!(beat(&store, &a).await, renewed);
    assert_eq!(beat(&store, &b).await, BeatReply::Ended(EndReason::Expelled));
    clock.advance(s(1));
    let report = run_pass(
        &*store,
        &common::group(),
        &SweepRequest::default(),
        "q",
        Call::default(),
    )
    .await;
    assert_eq!(report.unwrap().evicted_total(), 1);
    store.close().await;
}

#[tokio::test]
async fn an_upgraded_file_holds_leases_as_a_new_one_does() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    written_before_leases(&path);
    let store = open(&path, &clock);
    let a = events(&store).await[0].tenure.clone().unwrap();
    // A claim of the earlier version has no revision; the next change has one.
    claim(&store, &a, "dev-c").await.unwrap();
    let (_, revision) = held(&store, &a).await;
    assert!(revision.0 > a.term().get());
    assert!(matches!(
        acquire(&store, &a, "poll").await,
        AcquireOutcome::Unsettled { .. }
    ));
    // The first start after an upgrade waits once: the file might be an older copy.
    for _ in 0..6 {
        pass(&store, &clock, s(20)).await;
        beat(&store, &a).await;
    }
    let b = join(&store, "b", s(60)).await;
    let token = granted(&store, &a, "poll").await;
    assert!(token.get() > revision.0);
    release(&store, &a, "poll", token, Some("b")).await;
    let next = granted(&store, &b, "poll").await;
    store.close().await;
    let store = open(&path, &clock);
    assert_eq!(holder(&store, "poll").await, Some((b, next, true)));
    let granted = events(&store)
        .await
        .into_iter()
        .filter(|e| e.kind == EventKind::LeaseGranted);
    assert_eq!(granted.map(|e| e.token.unwrap()).collect::<Vec<_>>(), [token, next]);
    store.tick(&common::group()).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn file_from_before_sessions_keeps_its_rows_and_gets_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    written_before_sessions(&path);
    let store = open(&path, &clock);
    assert_eq!(version(&path), 8);
    let told = events(&store).await;
    assert_eq!((told.len(), told[7].kind), (8, EventKind::LeaseGranted));
    assert!(
        told.iter()
            .all(|event| event.session.is_none() && event.connections == 0)
    );
    let a = told[0].tenure.clone().unwrap();
    assert_eq!(holder(&store, "poll").await.map(|(tenure, ..)| tenure), Some(a.clone()));
    let status = store.tick(&common::group()).await.unwrap();
    assert_eq!((status.sessions, status.disconnected, status.leases), (0, 0, 1));
    let (how, made) = attached(&store, &a, &plain("chat", "c1")).await;
    assert_eq!(how, How::Created);
    assert!(made.epoch.get() > a.term().get());
    attached(&store, &a, &plain("left", "c1")).await;
    detach(&store, &a, "left", "c1").await;
    store.close().await;
    let store = open(&path, &clock);
    assert_eq!(seen(&store, "chat").await, Some(made));
    assert_eq!(seen(&store, "left").await.unwrap().state, SessionState::Disconnected);
    let told: Vec<_> = events(&store)
        .await
        .into_iter()
        .filter(|e| e.session.is_some())
        .collect();
    assert_eq!(told.len(), 3);
    store.close().await;
}

#[tokio::test]
async fn file_from_before_rosters_keeps_its_rows_and_gets_rosters() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    written_before_rosters(&path);
    let store = open(&path, &clock);
    assert_eq!(version(&path), 8);
    let a = events(&store).await[0].tenure.clone().unwrap();
    assert_eq!(seen(&store, "chat").await.map(|session| session.epoch.get()), Some(99));
    let status = store.tick(&common::group()).await.unwrap();
    assert_eq!((status.sessions, status.leases, status.pending_offline), (1, 1, 0));
    let provider = ProviderId::from(a.member());
    let row = MirrorEntry::Row(Provider {
        provider: provider.clone(),
        display_name: None,
        active: true,
        online: Some(a),
        capacity: 1,
        occupancy: 0,
        last_online_at: None,
        last_offline_at: None,
        last_heartbeat_at: None,
        revoked_before: None,
        version: Version(7),
    });
    let (group, puts) = (common::group(), [Put::newer(row)]);
    let put = store.put_providers(&group, &puts, Call::default()).await;
    assert_eq!(put.unwrap()[0].standing, Standing::Alive);
    store.close().await;
    let store = open(&path, &clock);
    let stamp = store.mirror_status(&common::group()).await.unwrap();
    assert_eq!((stamp.high, stamp.seeded), (Version(7), false));
    let looked = store.look(&common::group(), &[provider]).await.unwrap().providers;
    assert!(
        looked[0].as_ref().is_some_and(MirroredProvider::is_available),
        "{looked:?}"
    );
    store.close().await;
}

/// The version before had one holder of each lease, and one reservation.
#[tokio::test]
async fn leases_of_a_file_from_before_shared_leases_have_place_0() {
    let dir = tempfile::tempdir().unwrap();
    let (path, clock) = (dir.path().join("tenure.db"), manual());
    written_before_rosters(&path);
    let sql = rusqlite::Connection::open(&path).unwrap();
    let until = START + 5_000_000;
    sql.execute_batch(&format!("INSERT INTO reserved VALUES (1, 'kept', 'a', {until})"))
        .unwrap();
    drop(sql);
    let store = open(&path, &clock);
    let poll = store
        .lease_of(&common::group(), &common::lease("poll"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((poll.token.get(), poll.place.get(), poll.places.get()), (77, 0, 1));
    assert_eq!(poll.generation, poll.token);
    assert_eq!(poll.holders.len(), 1);
    let b = join(&store, "b", s(30)).await;
    let reserved = acquire(&store, &b, "kept").await;
    assert!(
        matches!(&reserved, AcquireOutcome::Reserved { to, .. } if to.as_str() == "a"),
        "{reserved:?}"
    );
    store.close().await;
}

/// What is in a file does not depend on the version that made it.
#[tokio::test]
async fn every_way_leads_to_the_same_schema() {
    let dir = tempfile::tempdir().unwrap();
    let clock = manual();
    let path = |name: &str| dir.path().join(name);
    written_before_leases(&path("first"));
    written_before_sessions(&path("second"));
    written_before_rosters(&path("third"));
    for name in ["first", "second", "third", "new"] {
        open(&path(name), &clock).close().await;
    }
    let newest = schema(&path("new"));
    assert_eq!(schema(&path("first")), newest);
    assert_eq!(schema(&path("second")), newest);
    assert_eq!(schema(&path("third")), newest);
    assert!(newest.iter().any(|(_, name, _)| name == "sessions_away"));
}
