//! A roster whose file a foreign hand has edited: verifying finds what does not fit together, mends it and tells it.

use tenure_core::TenureId;
use tenure_core::ledger::Version;
use tenure_core::roster::{Entry, HeartbeatReply, RosterMirror, Standing};
use tenure_core::store::{Backend, PageRequest};
use tenure_core::sweep::{BURST, drift};

use crate::common::{rows, s};
use crate::roster_world::{World, gone, provider, row};

/// One who is free, one whose tenure has ended and is pending, one of whom the ledger has been told, one who is offline,
/// and one who was removed.
async fn world() -> (World, TenureId) {
    let world = World::new();
    world.online("free", 1).await;
    let (left, told) = (world.online("left", 2).await, world.online("told", 3).await);
    world.put(row("off", 4, None)).await;
    world.puts(&[gone("gone", 5)]).await;
    world.leave(&told).await;
    world.leave(&left).await;
    assert_eq!(world.done(&[told]).await, 1);
    assert_eq!(world.verify(2).await.1, []);
    (world, left)
}

/// Writes what the schema refuses.
fn by_force(edit: &str) -> String {
    format!("PRAGMA ignore_check_constraints = ON; {edit}")
}

/// Edits, how many rows and removals are there afterwards, and what was mended.
type Edit = (String, usize, Vec<(&'static str, u64)>);

fn edits() -> Vec<Edit> {
    let plain = |edit: &str, left, mended: &[_]| (edit.to_owned(), left, mended.to_vec());
    let forced = |edit: &str, left, mended: &[_]| (by_force(edit), left, mended.to_vec());
    vec![
        plain("DELETE FROM offlined", 5, &[(drift::OFFLINE_NOT_PENDING, 1)]),
        plain(
            "UPDATE providers SET followed = 0",
            5,
            &[(drift::OFFLINE_NOT_PENDING, 1)],
        ),
        plain(
            "INSERT INTO offlined VALUES (1, 'free@77', 1, 1, 1, 'lapsed', NULL), (1, 'nobody@5', 0, 1, 1, 'left', 1)",
            5,
            &[(drift::PENDING_WITHOUT_PROVIDER, 2)],
        ),
        plain(
            "INSERT INTO offlined VALUES (1, 'nonsense', 0, 1, 1, 'so', NULL)",
            5,
            &[(drift::PENDING_WITHOUT_PROVIDER, 1)],
        ),
        plain(
            "INSERT INTO offlined SELECT 1, online, 0, 1, 1, 'left', 1 FROM providers WHERE provider = 'free'",
            5,
            &[(drift::PENDING_WITHOUT_PROVIDER, 1)],
        ),
        plain(
            "DELETE FROM providers WHERE provider = 'left'",
            4,
            &[(drift::PENDING_WITHOUT_PROVIDER, 1)],
        ),
        plain(
            "UPDATE providers SET online = NULL WHERE provider = 'left'",
            5,
            &[(drift::PENDING_WITHOUT_PROVIDER, 1)],
        ),
        plain(
            "UPDATE providers SET online = 'nonsense' WHERE provider = 'free'",
            4,
            &[(drift::BROKEN_PROVIDER, 1)],
        ),
        forced(
            "UPDATE providers SET version = -1 WHERE provider = 'off'",
            4,
            &[(drift::BROKEN_PROVIDER, 1)],
        ),
        forced(
            "UPDATE providers SET capacity = -1, occupancy = -7 WHERE provider = 'off'",
            4,
            &[(drift::BROKEN_PROVIDER, 1)],
        ),
        forced(
            "UPDATE providers SET revoked_us = -1 WHERE provider = 'free'",
            4,
            &[(drift::BROKEN_PROVIDER, 1)],
        ),
        forced(
            "UPDATE providers SET provider = 'no name/' || provider WHERE provider = 'off'",
            4,
            &[(drift::BROKEN_PROVIDER, 1)],
        ),
        plain(
            "UPDATE providers SET display_name = CAST(x'ff' AS TEXT) WHERE provider = 'off'",
            4,
            &[(drift::BROKEN_PROVIDER, 1)],
        ),
        plain(
            "UPDATE providers SET online = 'nonsense' WHERE provider = 'left'",
            4,
            &[(drift::BROKEN_PROVIDER, 1), (drift::PENDING_WITHOUT_PROVIDER, 1)],
        ),
        forced(
            "UPDATE removed_providers SET version = -1",
            4,
            &[(drift::BROKEN_PROVIDER, 1)],
        ),
        plain(
            "INSERT INTO removed_providers VALUES (1, 'off', 9, 1763676800000000)",
            5,
            &[(drift::PROVIDER_MISPLACED, 1)],
        ),
        // What others may hold is not ours to judge: the ledger is compared with it.
        plain(
            "UPDATE providers SET occupancy = 1, version = 99 WHERE provider = 'free'",
            5,
            &[],
        ),
        plain("DELETE FROM removed_providers", 4, &[]),
        plain("DELETE FROM rosters; DELETE FROM turns; DELETE FROM retiming", 5, &[]),
    ]
}

#[tokio::test]
async fn every_edit_is_mended_and_told_and_the_second_look_finds_nothing() {
    for limit in [1, 3, 1_000] {
        for (edit, left, mended) in edits() {
            let (mut world, _) = world().await;
            world.restart(&edit).await;
            let (entries, told) = world.verify(limit).await;
            let mended: Vec<_> = mended
                .into_iter()
                .map(|(kind, count)| (kind.to_owned(), count))
                .collect();
            assert_eq!((entries.len(), told), (left, mended), "{edit}, in parts of {limit}");
            assert_eq!(
                world.verify(limit).await,
                (entries, Vec::new()),
                "{edit}, in parts of {limit}"
            );
            check_counts(&world, &edit).await;
            world.store.close().await;
        }
    }
}

/// What the group knows about itself is what the file holds.
async fn check_counts(world: &World, what: &str) {
    let status = world.tick().await;
    let held = rows(&world.path);
    assert_eq!(i64::try_from(status.pending_offline), Ok(held["offlined"]), "{what}");
    let (stats, pending) = world.stats().await;
    assert_eq!(pending, status.pending_offline, "{what}");
    let page = PageRequest {
        after: None,
        limit: 100,
    };
    let rows = world.store.rows(&world.group, &page).await.expect("a page").rows;
    assert_eq!(i64::try_from(rows.len()), Ok(held["providers"]), "{what}");
    let alive = rows.iter().filter(|seen| seen.standing == Standing::Alive).count() as u64;
    assert_eq!(
        (stats.online, stats.offline),
        (alive, rows.len() as u64 - alive),
        "{what}"
    );
}

#[tokio::test]
async fn a_tenure_that_was_forgotten_is_followed_after_all() {
    let (mut world, left) = world().await;
    world.restart("DELETE FROM offlined").await;
    world.tick().await;
    assert_eq!(world.pending().await.items, []);
    world.verify(10).await;
    world.pass(BURST).await;
    let items = world.pending().await.items;
    assert_eq!(items.iter().map(|item| &item.tenure).collect::<Vec<_>>(), [&left]);
    world.store.close().await;
}

/// Until it is mended, a damaged row harms nobody else, and the ledger may write over it.
#[tokio::test]
async fn a_row_that_cannot_be_read_is_missing_until_it_is_told_anew() {
    let (mut world, _) = world().await;
    world
        .restart(&by_force(
            "UPDATE providers SET version = -1 WHERE provider IN ('free', 'off')",
        ))
        .await;
    assert_eq!(world.available().await, Vec::<String>::new());
    assert_eq!(
        (world.seen("off").await, world.hear("off").await),
        (None, HeartbeatReply::Absent)
    );
    let page = PageRequest { after: None, limit: 1 };
    let first = world.store.rows(&world.group, &page).await.expect("a page");
    assert!(first.rows.is_empty() && first.next.is_some(), "{first:?}");
    let told = world.put(row("off", 1, None)).await;
    assert_eq!((told.applied, told.version), (true, Version(1)));
    assert_eq!(world.seen("off").await.map(|seen| seen.row), Some(row("off", 1, None)));
    assert_eq!(world.verify(10).await.1, [(drift::BROKEN_PROVIDER.to_owned(), 1)]);
    world.store.close().await;
}

/// A hand that edits the file although it is open: what is in memory follows the file.
#[tokio::test]
async fn memory_follows_the_file() {
    let (world, _) = world().await;
    let sql = rusqlite::Connection::open(&world.path).expect("the file");
    sql.execute_batch(
        "UPDATE providers SET occupancy = 2 WHERE provider = 'free';
         DELETE FROM providers WHERE provider = 'off';
         INSERT INTO providers (grp, provider, version, active, capacity, occupancy) VALUES (1, 'new', 50, 1, 1, 0);",
    )
    .expect("an edit");
    assert_eq!(
        (world.available().await, world.stats().await.0.offline),
        (vec!["free".to_owned()], 3)
    );
    let (entries, told) = world.verify(2).await;
    let kinds = [(drift::INDEX_WITHOUT_PROVIDER, 1), (drift::PROVIDER_MISPLACED, 2)];
    assert_eq!(told, kinds.map(|(kind, count)| (kind.to_owned(), count)));
    let names: Vec<&str> = entries.iter().map(|entry| entry.provider().as_str()).collect();
    assert_eq!(names, ["free", "left", "new", "told", "gone"]);
    assert_eq!(world.available().await, Vec::<String>::new());
    assert_eq!(world.verify(2).await.1, []);
    assert!(matches!(&entries[2], Entry::Row(row) if row.provider == provider("new")));
    let counted = world.store.availability(&world.group, s(0)).await.expect("a count");
    assert_eq!(counted.count, 0);
    world.store.close().await;
}
