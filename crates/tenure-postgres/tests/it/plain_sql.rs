//! Statements of other programs: they draw versions and write log and outbox rows like the steps.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::ledger::{Change, Reason, SettingsPatch};
use tenure_core::store::PageRequest;
use tenure_core::{EngagementId, Ledger, ProviderId, RosterName};
use tenure_testkit::postgres::shared;
use tenure_testkit::wait::until_async;

use crate::servers::{connect, ledger, long_timeouts};

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_sql_is_mirrored_and_logged_like_the_steps() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let ledger = ledger(long_timeouts(&database));
    ledger.prepare().await.expect("a schema");
    let admin = connect(&database).await;
    let run = async |statement: &str| admin.batch_execute(statement).await;
    let (roster, ann) = (
        RosterName::new("care").expect("a name"),
        ProviderId::new("ann").expect("a name"),
    );
    let row = async || ledger.provider(&roster, &ann).await.expect("a look-up").expect("ann");
    let clean = async || {
        let dirty = ledger.dirty(&roster, 10).await.expect("the outbox");
        let rows: Vec<_> = dirty
            .iter()
            .map(|dirty| (dirty.provider.clone(), dirty.version))
            .collect();
        ledger.clean(&roster, &rows).await.expect("an answer")
    };

    run("INSERT INTO tenure.providers (roster, provider, online) VALUES ('care', 'ann', true)")
        .await
        .expect("ann");
    let rows = admin.query_one("SELECT count(*) FROM tenure.rosters", &[]).await;
    assert_eq!(rows.expect("a count").get::<_, i64>(0), 0);
    assert_eq!(
        ledger.rosters().await.expect("a list"),
        std::slice::from_ref(&roster),
        "found by its provider"
    );
    let new = row().await;
    assert_eq!(
        (new.capacity, new.online.is_some(), new.last_online_at.is_some()),
        (1, true, true)
    );
    assert_eq!(clean().await, 1);
    run("UPDATE tenure.providers SET display_name = display_name")
        .await
        .expect("no change");
    assert_eq!(
        (clean().await, row().await.version),
        (0, new.version),
        "nothing changed"
    );
    run("UPDATE tenure.providers SET capacity = 4, occupancy = 99")
        .await
        .expect("a change");
    let wide = row().await;
    assert!(wide.version > new.version);
    assert_eq!((wide.capacity, wide.occupancy), (4, 0), "the occupancy is derived");

    let engage = "INSERT INTO tenure.engagements (roster, engagement, provider, status) \
                  SELECT 'care', 'e' || n, 'ann', 'active' FROM generate_series(1, 3) n";
    run(engage).await.expect("engagements");
    assert_eq!(row().await.occupancy, 3);
    run("UPDATE tenure.engagements SET status = 'ended' WHERE engagement = 'e1'")
        .await
        .expect("an end");
    run("DELETE FROM tenure.engagements WHERE engagement = 'e2'")
        .await
        .expect("a deletion");
    assert_eq!(row().await.occupancy, 1);
    run("UPDATE tenure.engagements SET provider = 'zoe' WHERE engagement = 'e3'")
        .await
        .expect_err("refused");
    run("DELETE FROM tenure.providers").await.expect_err("it is engaged");

    run("UPDATE tenure.providers SET active = false")
        .await
        .expect("a change");
    let out = row().await;
    assert!(!out.active && out.online.is_none() && out.revoked_before.is_some() && out.last_offline_at.is_some());
    run("UPDATE tenure.providers SET online = true")
        .await
        .expect_err("the provider is deactivated");
    run("UPDATE tenure.providers SET provider = 'bob'")
        .await
        .expect_err("names stay");
    let page = PageRequest::default();
    let log = ledger.log(&roster, None, &page).await.expect("the log").items;
    let told: Vec<_> = log.iter().map(|entry| (entry.change, entry.reason)).collect();
    assert_eq!(
        told,
        [
            (Change::Online, Reason::Edited),
            (Change::Deactivated, Reason::Edited),
            (Change::Offline, Reason::Deactivated),
        ]
    );

    assert_eq!(clean().await, 1);
    run("UPDATE tenure.engagements SET status = 'ended'; DELETE FROM tenure.providers")
        .await
        .expect("a deletion");
    let dirty = ledger.dirty(&roster, 10).await.expect("the outbox");
    assert_eq!((dirty.len(), &dirty[0].row), (1, &None));
    assert!(dirty[0].version > out.version, "a tombstone");
}

/// Unreadable values are refused, and an infinite time counts as none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_sql_cannot_block_a_roster() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let ledger = ledger(long_timeouts(&database));
    ledger.prepare().await.expect("a schema");
    let admin = connect(&database).await;
    let run = async |statement: &str| admin.batch_execute(statement).await;
    run("INSERT INTO tenure.providers (roster, provider, online) VALUES ('care', 'ann', true)")
        .await
        .expect("ann");
    for bad in [
        "UPDATE tenure.providers SET online_tenure = 'x'",
        "UPDATE tenure.providers SET online_tenure = 'bob@5'",
        "UPDATE tenure.providers SET online_tenure = 'ann@0'",
        "UPDATE tenure.providers SET online_tenure = 'ann@99999999999999999'",
        "INSERT INTO tenure.providers (roster, provider) VALUES ('care', '..')",
        "INSERT INTO tenure.rosters (roster) VALUES ('.')",
    ] {
        let refused = run(bad).await.expect_err(bad);
        assert_eq!(
            refused.code().map(|code| code.code()),
            Some("23514"),
            "{bad}: {refused}"
        );
    }
    run(
        "INSERT INTO tenure.engagements (roster, engagement, provider, status, expires_at) \
         VALUES ('care', 'e1', 'ann', 'active', 'infinity')",
    )
    .await
    .expect("an engagement");
    let roster = RosterName::new("care").expect("a name");
    let engagement = EngagementId::new("e1").expect("a name");
    let found = ledger
        .engagement(&roster, &engagement)
        .await
        .expect("a look-up")
        .expect("it");
    assert_eq!(found.expires_at, None);
    ledger.expire_due(&roster, 10).await.expect("nothing is due");
    let page = PageRequest { after: None, limit: 10 };
    assert_eq!(
        ledger
            .providers(&roster, None, &page)
            .await
            .expect("a page")
            .items
            .len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rosters_are_found_by_row_and_by_provider() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let ledger = ledger(long_timeouts(&database));
    ledger.prepare().await.expect("a schema");
    assert_eq!(ledger.rosters().await.expect("a list"), []);
    let admin = connect(&database).await;
    let inserts = "INSERT INTO tenure.rosters (roster) VALUES ('b'), ('d');
                   INSERT INTO tenure.providers (roster, provider)
                   SELECT r, 'p' || n FROM unnest(ARRAY['a', 'b', 'c', 'C', '.']) r, generate_series(1, 3) n";
    admin.batch_execute(inserts).await.expect("rows");
    let found = ledger.rosters().await.expect("a list");
    let found: Vec<&str> = found.iter().map(RosterName::as_str).collect();
    assert_eq!(found, ["C", "a", "b", "c", "d"], "and not what is no name of a roster");
}

/// Log ids are assigned in another order than transactions commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_cursor_skips_no_entry_that_commits_late() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let ledger = ledger(long_timeouts(&database));
    ledger.prepare().await.expect("a schema");
    let admin = connect(&database).await;
    let run = async |statement: &str| admin.batch_execute(statement).await.expect("a statement");
    let roster = RosterName::new("care").expect("a name");
    run("INSERT INTO tenure.providers (roster, provider) SELECT 'care', 'p' || n FROM generate_series(1, 3) n").await;
    let mut page = PageRequest { after: None, limit: 1 };
    let mut seen: Vec<String> = Vec::new();
    let mut read = async |seen: &mut Vec<String>| loop {
        let part = ledger.log(&roster, None, &page).await.expect("the log");
        let Some(last) = part.items.last() else { return };
        page.after = Some(last.id.to_string());
        seen.extend(part.items.into_iter().map(|entry| entry.provider.to_string()));
    };
    let deactivate = async |name: &str| {
        let name = ProviderId::new(name).expect("a name");
        let done = ledger.deactivate(&roster, &name).await;
        assert!(done.expect("a change").changed);
    };
    deactivate("p1").await;
    read(&mut seen).await;
    assert_eq!(seen, ["p1"]);
    run("BEGIN; UPDATE tenure.providers SET active = false WHERE provider = 'p2'").await;
    deactivate("p3").await;
    read(&mut seen).await;
    assert_eq!(seen, ["p1"], "p2 has the lower number and may still commit");
    run("COMMIT").await;
    read(&mut seen).await;
    assert_eq!(seen, ["p1", "p2", "p3"]);
    // A rolled-back transaction or a gap in the ids blocks nothing.
    run("BEGIN; UPDATE tenure.providers SET active = true WHERE provider = 'p2'; ROLLBACK").await;
    let p3 = ProviderId::new("p3").expect("a name");
    ledger.activate(&roster, &p3).await.expect("a change");
    read(&mut seen).await;
    assert_eq!(seen.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn default_capacity_follows_edits_by_plain_sql() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let ledger = ledger(long_timeouts(&database));
    ledger.prepare().await.expect("a schema");
    let admin = connect(&database).await;
    let run = async |statement: &str| admin.batch_execute(statement).await.expect("a statement");
    let capacities = async || {
        let sql = "SELECT string_agg(provider || capacity, ' ' ORDER BY provider) FROM tenure.providers";
        admin.query_one(sql, &[]).await.expect("a row").get::<_, String>(0)
    };
    run("INSERT INTO tenure.providers (roster, provider, capacity) VALUES ('care', 'a', NULL), ('care', 'b', 1)").await;
    assert_eq!(capacities().await, "a1 b1");
    // The roster has no row yet.
    run("INSERT INTO tenure.rosters (roster, default_capacity) VALUES ('care', 3)").await;
    assert_eq!(capacities().await, "a3 b1");
    run("UPDATE tenure.providers SET capacity = NULL WHERE provider = 'b'").await;
    run("UPDATE tenure.providers SET capacity = 5 WHERE provider = 'a'").await;
    assert_eq!(capacities().await, "a5 b3");
    run("UPDATE tenure.rosters SET default_capacity = 2").await;
    assert_eq!(capacities().await, "a5 b2");
    run("UPDATE tenure.providers SET display_name = 'B'").await;
    run("UPDATE tenure.rosters SET default_capacity = 4").await;
    assert_eq!(capacities().await, "a5 b4");
}

/// A provider that takes the old default in an open transaction gets the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_default_capacity_reaches_an_open_insert() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let ledger = ledger(long_timeouts(&database));
    ledger.prepare().await.expect("a schema");
    let (slow, admin) = (connect(&database).await, connect(&database).await);
    admin
        .batch_execute("INSERT INTO tenure.rosters (roster) VALUES ('care')")
        .await
        .expect("a roster");
    slow.batch_execute("BEGIN; INSERT INTO tenure.providers (roster, provider) VALUES ('care', 'a')")
        .await
        .expect("a provider");
    let roster = RosterName::new("care").expect("a name");
    let patch = SettingsPatch {
        default_capacity: Some(3),
        ..SettingsPatch::default()
    };
    let (there, care) = (Arc::clone(&ledger), roster.clone());
    let set = tokio::spawn(async move { there.set_settings(&care, &patch).await });
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = \
                 (SELECT oid FROM pg_database WHERE datname = current_database())";
    until_async("the change waits for the insert", PATIENCE, async || {
        admin.query_one(waits, &[]).await.expect("a count").get::<_, i64>(0) == 1
    })
    .await;
    slow.batch_execute("COMMIT").await.expect("a commit");
    assert_eq!(set.await.expect("no panic").expect("settings").default_capacity, 3);
    let a = ProviderId::new("a").expect("a name");
    let row = ledger.provider(&roster, &a).await.expect("a look-up").expect("a row");
    assert_eq!(row.capacity, 3);
}

/// It waits for entries that are being written to its own roster only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_holds_back_only_its_rosters_log() {
    let Some(server) = shared() else { return };
    let database = server.database();
    let ledger = ledger(long_timeouts(&database));
    ledger.prepare().await.expect("a schema");
    let admin = connect(&database).await;
    let run = async |statement: &str| admin.batch_execute(statement).await.expect("a statement");
    run("INSERT INTO tenure.providers (roster, provider) VALUES ('care', 'ann'), ('desk', 'ann')").await;
    let (care, desk) = (
        RosterName::new("care").expect("a name"),
        RosterName::new("desk").expect("a name"),
    );
    let ann = ProviderId::new("ann").expect("a name");
    let read = async |roster: &RosterName| {
        let page = PageRequest { after: None, limit: 9 };
        ledger.log(roster, None, &page).await.expect("the log").items.len()
    };
    run("BEGIN; UPDATE tenure.providers SET active = false WHERE roster = 'care'").await;
    let changed = ledger.deactivate(&desk, &ann).await.expect("a change").changed;
    assert!(changed);
    assert_eq!((read(&care).await, read(&desk).await), (0, 1));
    run("COMMIT").await;
    assert_eq!((read(&care).await, read(&desk).await), (1, 1));
    // Entries of another program hold back all, because the rosters are not known before they are written.
    run(
        "BEGIN; INSERT INTO tenure.provider_log (roster, provider, change, reason, logged_at, version)
         VALUES ('care', 'ann', 'online', 'edited', now(), 1)",
    )
    .await;
    assert!(ledger.activate(&desk, &ann).await.expect("a change").changed);
    assert_eq!(read(&desk).await, 1);
    run("COMMIT").await;
    assert_eq!((read(&care).await, read(&desk).await), (2, 2));
}
