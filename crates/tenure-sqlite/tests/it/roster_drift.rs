//! A roster whose file another program has edited: what does not fit together is mended when the file is opened.

use tenure_core::TenureId;
use tenure_core::ledger::Version;
use tenure_core::roster::{HeartbeatReply, RosterMirror, Standing};
use tenure_core::store::{Backend, PageRequest};
use tenure_core::sweep::BURST;

use crate::common::rows;
use crate::roster_world::{World, gone, row};

/// Providers in each state: free, ended and pending, ended and applied to the ledger, offline, and removed.
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

/// Edits, and how many rows and removals are there afterwards.
type Edit = (String, usize);

fn edits() -> Vec<Edit> {
    let plain = |edit: &str, left| (edit.to_owned(), left);
    let forced = |edit: &str, left| (by_force(edit), left);
    vec![
        plain("DELETE FROM offlined", 5),
        plain("UPDATE providers SET followed = 0", 5),
        plain(
            "INSERT INTO offlined VALUES (1, 'free@77', 1, 1, 1, 'lapsed', NULL), (1, 'nobody@5', 0, 1, 1, 'left', 1)",
            5,
        ),
        plain("INSERT INTO offlined VALUES (1, 'nonsense', 0, 1, 1, 'so', NULL)", 5),
        plain(
            "INSERT INTO offlined SELECT 1, online, 0, 1, 1, 'left', 1 FROM providers WHERE provider = 'free'",
            5,
        ),
        plain("DELETE FROM providers WHERE provider = 'left'", 4),
        plain("UPDATE providers SET online = NULL WHERE provider = 'left'", 5),
        plain("UPDATE providers SET online = 'nonsense' WHERE provider = 'free'", 4),
        forced("UPDATE providers SET version = -1 WHERE provider = 'off'", 4),
        forced(
            "UPDATE providers SET capacity = -1, occupancy = -7 WHERE provider = 'off'",
            4,
        ),
        forced("UPDATE providers SET revoked_us = -1 WHERE provider = 'free'", 4),
        forced(
            "UPDATE providers SET provider = 'no name/' || provider WHERE provider = 'off'",
            4,
        ),
        plain(
            "UPDATE providers SET display_name = CAST(x'ff' AS TEXT) WHERE provider = 'off'",
            4,
        ),
        plain("UPDATE providers SET online = 'nonsense' WHERE provider = 'left'", 4),
        forced("UPDATE removed_providers SET version = -1", 4),
        plain(
            "INSERT INTO removed_providers VALUES (1, 'off', 9, 1763676800000000)",
            5,
        ),
        // What others may hold is not ours to judge: the ledger is compared with it.
        plain(
            "UPDATE providers SET occupancy = 1, version = 99 WHERE provider = 'free'",
            5,
        ),
        plain("DELETE FROM removed_providers", 4),
        plain("DELETE FROM rosters; DELETE FROM turns; DELETE FROM retiming", 5),
    ]
}

#[tokio::test]
async fn edited_rosters_are_mended_when_the_file_is_opened() {
    for (edit, left) in edits() {
        let (mut world, _) = world().await;
        world.restart(&edit).await;
        let (entries, told) = world.verify(3).await;
        assert_eq!((entries.len(), told), (left, Vec::new()), "{edit}");
        check_counts(&world, &edit).await;
        world.store.close().await;
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
    world.pass(BURST).await;
    let items = world.pending().await.items;
    assert_eq!(items.iter().map(|item| &item.tenure).collect::<Vec<_>>(), [&left]);
    world.store.close().await;
}

/// A damaged row harms no other, and the ledger may tell it again.
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
    let told = world.put(row("off", 1, None)).await;
    assert_eq!((told.applied, told.version), (true, Version(1)));
    assert_eq!(world.seen("off").await.map(|seen| seen.row), Some(row("off", 1, None)));
    assert_eq!(world.verify(10).await.1, []);
    world.store.close().await;
}
