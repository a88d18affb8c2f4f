//! Statements of other programs, on a file that is in use: they get versions, log rows and outbox rows like the steps.

use tenure_core::Ledger;
use tenure_core::ledger::{
    Candidates, Change, NewEngagement, Reason, ReserveOutcome, RosterSettings, SettingsPatch, Version,
};

use crate::ledger::common::{clean, connect, engage, log, manual, online, open, provider, roster, row, s};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_by_plain_sql_are_mirrored_and_logged_like_the_steps() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let (ledger, ann) = (open(&path, &manual()), provider("ann"));
    let other = connect(&path);
    let run = |statement: &str| other.execute_batch(statement);

    run("INSERT INTO providers (roster, provider, online) VALUES ('care', 'ann', true)").expect("ann");
    let new = row(&ledger, &ann).await;
    assert_eq!(
        (new.capacity, new.online.is_some(), new.last_online_at.is_some()),
        (1, true, true)
    );
    assert_eq!(ledger.rosters().await.expect("rosters"), [roster()]);
    assert_eq!(clean(&ledger).await, 1);
    run("UPDATE providers SET display_name = display_name").expect("no change");
    assert_eq!(
        (clean(&ledger).await, row(&ledger, &ann).await.version),
        (0, new.version),
        "nothing changed"
    );
    run("UPDATE providers SET capacity = 4, occupancy = 99").expect("a change");
    let wide = row(&ledger, &ann).await;
    assert!(wide.version > new.version);
    assert_eq!((wide.capacity, wide.occupancy), (4, 0), "the occupancy is derived");

    run("INSERT INTO engagements (roster, engagement, provider, status) \
         VALUES ('care', 'e1', 'ann', 'active'), ('care', 'e2', 'ann', 'active'), ('care', 'e3', 'ann', 'pending')")
    .expect("engagements");
    assert_eq!(row(&ledger, &ann).await.occupancy, 3);
    run("UPDATE engagements SET status = 'ended' WHERE engagement = 'e1'").expect("an end");
    run("DELETE FROM engagements WHERE engagement = 'e2'").expect("a deletion");
    assert_eq!(row(&ledger, &ann).await.occupancy, 1);
    run("UPDATE engagements SET provider = 'zoe' WHERE engagement = 'e3'").expect_err("nobody");
    run("INSERT INTO engagements (roster, engagement, provider, status) VALUES ('care', 'e4', 'zoe', 'active')")
        .expect_err("nobody");
    run("UPDATE engagements SET engagement = 'e5'").expect_err("names stay");
    run("DELETE FROM providers").expect_err("she is engaged");

    run("UPDATE providers SET active = false").expect("a change");
    let out = row(&ledger, &ann).await;
    assert!(!out.active && out.online.is_none() && out.revoked_before.is_some() && out.last_offline_at.is_some());
    run("UPDATE providers SET online = true").expect_err("she is deactivated");
    run("INSERT INTO providers (roster, provider, active, online) VALUES ('care', 'bob', 0, 1)").expect_err("so is he");
    run("UPDATE providers SET provider = 'bob'").expect_err("names stay");
    let told: Vec<_> = log(&ledger)
        .await
        .iter()
        .map(|entry| (entry.change, entry.reason))
        .collect();
    assert_eq!(
        told,
        [
            (Change::Online, Reason::Edited),
            (Change::Deactivated, Reason::Edited),
            (Change::Offline, Reason::Deactivated),
        ]
    );

    assert_eq!(clean(&ledger).await, 1);
    run("UPDATE engagements SET status = 'ended'; DELETE FROM providers").expect("a deletion");
    let dirty = ledger.dirty(&roster(), 10).await.expect("the outbox");
    assert_eq!((dirty.len(), &dirty[0].row), (1, &None));
    assert!(dirty[0].version > out.version, "a tombstone");
    ledger.close().await;
}

/// A version that is written means nothing, whatever it is; and a conflict clause of the statement reaches no trigger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_way_of_writing_gets_around_the_triggers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let (ledger, ann) = (open(&path, &manual()), provider("ann"));
    let patch = SettingsPatch {
        default_capacity: Some(7),
        ..SettingsPatch::default()
    };
    let settings = ledger.set_settings(&roster(), &patch).await.expect("settings");
    let mut last = online(&ledger, &ann, 3).await.version;
    for recursive in [false, true] {
        let other = connect(&path);
        other
            .pragma_update(None, "recursive_triggers", recursive)
            .expect("a setting");
        for statement in [
            "UPDATE providers SET version = 0",
            "UPDATE providers SET version = 1",
            "UPDATE providers SET version = version + 1000",
            "UPDATE OR REPLACE providers SET capacity = capacity + 1",
            "UPDATE OR IGNORE providers SET capacity = capacity + 1",
            "UPDATE providers SET capacity = capacity + 1 WHERE true",
            "INSERT INTO providers (roster, provider, capacity) VALUES ('care', 'ann', 5) \
             ON CONFLICT DO UPDATE SET capacity = providers.capacity + 1",
            "REPLACE INTO providers (roster, provider, online_tenure, online) VALUES ('care', 'ann', 'ann@9', 1)",
        ] {
            clean(&ledger).await;
            other.execute_batch(statement).expect(statement);
            let row = row(&ledger, &ann).await;
            assert!(row.version > last, "{statement}: {row:?} after {last}");
            let dirty = ledger.dirty(&roster(), 10).await.expect("the outbox");
            assert_eq!(dirty.len(), 1, "{statement}: {dirty:?}");
            assert_eq!(
                (dirty[0].version, dirty[0].row.as_ref()),
                (row.version, Some(&row)),
                "{statement}"
            );
            last = row.version;
        }
        let known = ledger.settings(&roster()).await.expect("settings");
        assert_eq!(known, settings, "nothing of all that is a setting");
    }
    assert_eq!(row(&ledger, &ann).await.capacity, 7, "the roster's default");
    assert!(ledger.next_version().await.expect("a version") > last);
    ledger.close().await;
}

#[tokio::test]
async fn what_could_not_be_read_back_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let (ledger, ann) = (open(&path, &manual()), provider("ann"));
    let before = online(&ledger, &ann, 3).await;
    let other = connect(&path);
    for statement in [
        "INSERT INTO providers (roster, provider) VALUES ('care', 'an n')",
        "INSERT INTO providers (roster, provider) VALUES ('', 'ann')",
        "UPDATE providers SET capacity = -1",
        "UPDATE providers SET capacity = 100001",
        "UPDATE providers SET capacity = 'many'",
        "UPDATE providers SET online = 2",
        "UPDATE providers SET online_tenure = 'bob@7'",
        "UPDATE providers SET online_tenure = 'ann@'",
        "UPDATE providers SET online_tenure = 'ann@07'",
        "UPDATE providers SET online_tenure = 'ann@7x'",
        "UPDATE providers SET online_tenure = 'ann@9007199254740992'",
        "UPDATE providers SET online_tenure = 'ann@99999999999999999999999'",
        "UPDATE providers SET last_online_us = -5",
        "UPDATE rosters SET stale_after_ms = 10",
        "UPDATE rosters SET roster = 'other'",
        "INSERT INTO engagements (roster, engagement, status) VALUES ('care', 'e', 'begun')",
        "UPDATE steps SET last_version = 9007199254740992",
    ] {
        other.execute_batch(statement).expect_err(statement);
    }
    assert_eq!(row(&ledger, &ann).await, before);
    ledger.close().await;
}

#[tokio::test]
async fn settings_by_plain_sql_have_a_version() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let ledger = open(&path, &manual());
    let other = connect(&path);
    let read = async || ledger.settings(&roster()).await.expect("settings");
    other
        .execute_batch("INSERT INTO rosters (roster) VALUES ('care')")
        .unwrap();
    assert_eq!(read().await, RosterSettings::default());
    other.execute_batch("UPDATE rosters SET stale_after_ms = 5000").unwrap();
    let changed = read().await;
    assert!(changed.version > Version::NONE && changed.stale_after == s(5));
    other.execute_batch("UPDATE rosters SET stale_after_ms = 5000").unwrap();
    assert_eq!(read().await, changed);
    other
        .execute_batch("INSERT INTO rosters (roster, snapshot_ms) VALUES ('other', 0)")
        .unwrap();
    let other = tenure_core::RosterName::new("other").unwrap();
    assert!(ledger.settings(&other).await.unwrap().version > changed.version);
    ledger.close().await;
}

/// The time and the reason of a step are gone with it.
#[tokio::test]
async fn an_edit_after_a_step_is_not_taken_for_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let (ledger, ann) = (open(&path, &manual()), provider("ann"));
    online(&ledger, &ann, 3).await;
    engage(&ledger, 1, &ann).await;
    let other = connect(&path);
    other.execute_batch("UPDATE providers SET online = 0").unwrap();
    let entry = log(&ledger).await.pop().expect("an entry");
    assert_eq!((entry.change, entry.reason), (Change::Offline, Reason::Edited));
    assert!(row(&ledger, &ann).await.last_offline_at.is_some());
    let open: i64 = other
        .query_row(
            "SELECT count(*) FROM steps WHERE at_us IS NOT NULL OR follows",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(open, 0);
    ledger.close().await;
}

#[tokio::test]
async fn default_capacity_follows_edits_by_plain_sql() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let ledger = open(&path, &manual());
    for recursive in [false, true] {
        let other = connect(&path);
        other
            .pragma_update(None, "recursive_triggers", recursive)
            .expect("a setting");
        let run = |statement: &str| other.execute_batch(statement).expect(statement);
        let capacities = || {
            let sql = "SELECT group_concat(provider || capacity, ' ') FROM (SELECT * FROM providers ORDER BY provider)";
            other.query_row(sql, [], |row| row.get::<_, String>(0)).expect("a row")
        };
        run("DELETE FROM providers; UPDATE rosters SET default_capacity = 1");
        run("INSERT INTO providers (roster, provider, capacity) VALUES ('care', 'a', NULL), ('care', 'b', 1)");
        assert_eq!(capacities(), "a1 b1");
        run("UPDATE rosters SET default_capacity = 3");
        assert_eq!(capacities(), "a3 b1");
        run("UPDATE providers SET capacity = NULL WHERE provider = 'b'");
        run("UPDATE providers SET capacity = 5 WHERE provider = 'a'");
        assert_eq!(capacities(), "a5 b3");
        run("UPDATE rosters SET default_capacity = 2");
        assert_eq!(capacities(), "a5 b2");
        run("UPDATE providers SET display_name = 'B'");
        run("UPDATE rosters SET default_capacity = 4");
        assert_eq!(capacities(), "a5 b4");
        let rows = ledger.dirty(&roster(), 10).await.expect("the outbox");
        let b = rows.iter().find(|row| row.provider == provider("b")).expect("b");
        assert_eq!(
            b.row.as_ref().map(|row| (row.capacity, row.version)),
            Some((4, b.version))
        );
    }
    ledger.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepting_an_offer_by_sql_clears_its_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let ledger = open(&path, &manual());
    online(&ledger, &provider("ann"), 9).await;
    let other = connect(&path);
    other
        .execute_batch(
            "INSERT INTO engagements (roster, engagement, provider, status, expires_us)
             VALUES ('care', 'e1', 'ann', 'pending', 5), ('care', 'e2', 'ann', 'pending', 5), ('care', 'e3', 'ann', 'pending', 5);
             UPDATE engagements SET status = 'active' WHERE engagement = 'e1';
             UPDATE engagements SET status = 'active', expires_us = 4 WHERE engagement = 'e2'",
        )
        .unwrap();
    let expired = ledger.expire_due(&roster(), 10).await.unwrap().expired;
    let names: Vec<_> = expired.iter().map(|e| e.engagement.as_str()).collect();
    assert_eq!(names, ["e2", "e3"]);
    ledger.close().await;
}

/// A program with triggers turned off left an occupancy wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engagements_written_without_triggers_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let (ledger, ann) = (open(&path, &manual()), provider("ann"));
    online(&ledger, &ann, 1).await;
    let other = connect(&path);
    let without_triggers = |statement: &str| {
        let off = rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER;
        other.set_db_config(off, false).unwrap();
        other.execute_batch(statement).unwrap();
    };
    without_triggers(
        "INSERT INTO engagements (roster, engagement, provider, status) VALUES ('care', 'e1', 'ann', 'active')",
    );
    assert_eq!(row(&ledger, &ann).await.occupancy, 0, "no trigger ran");
    let reserved = ledger
        .reserve(
            &roster(),
            &NewEngagement::new("e2".parse().unwrap()),
            &Candidates::ANYONE,
        )
        .await;
    assert_eq!(reserved.unwrap(), ReserveOutcome::NoneAvailable);
    assert_eq!(row(&ledger, &ann).await.occupancy, 1);
    without_triggers("DELETE FROM engagements");
    assert_eq!(ledger.recount(&roster()).await.unwrap(), 1);
    assert_eq!(
        (
            row(&ledger, &ann).await.occupancy,
            ledger.recount(&roster()).await.unwrap()
        ),
        (0, 0)
    );
    ledger.close().await;
}
