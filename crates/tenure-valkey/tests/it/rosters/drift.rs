//! Corrupted data: it is repaired and reported by kind, and no valid row is lost.

use std::time::Duration;

use tenure_core::membership::EndReason;
use tenure_core::roster::{HeartbeatReply, MirrorEntry, Standing};
use tenure_core::store::Call;
use tenure_core::sweep::{BURST, SweepSteps, drift};
use tenure_testkit::valkey::Flavour;

use crate::rosters::set_up::*;
use crate::world::*;

on_both! {
    each_corruption_is_repaired_and_reported,
    unreadable_row_is_removed_until_written_again,
    foreign_key_type_is_repaired_without_reviving_members,
    roster_metadata_is_restored,
    followed_end_is_not_reported_as_drift,
    unreadable_end_does_not_block_others,
}

/// Kinds of drift, with counts.
type Told = &'static [(&'static str, u64)];

/// Corruptions and the drift that must be reported. `%` is the tenure of the provider that left.
const CORRUPTIONS: &[(&[&str], Told)] = &[
    (&["ZREM", "free", "free"], &[(drift::PROVIDER_MISPLACED, 1)]),
    (&["ZADD", "free", "1", "free"], &[(drift::PROVIDER_MISPLACED, 1)]),
    (&["ZADD", "free", "0", "busy"], &[(drift::PROVIDER_MISPLACED, 1)]),
    (&["ZADD", "free", "0", "left"], &[(drift::PROVIDER_MISPLACED, 1)]),
    (&["ZADD", "free", "0", "nobody"], &[(drift::INDEX_WITHOUT_PROVIDER, 1)]),
    (&["ZADD", "free", "0", "no name"], &[(drift::INDEX_WITHOUT_PROVIDER, 1)]),
    (&["DEL", "free"], &[(drift::PROVIDER_MISPLACED, 1)]),
    (&["SREM", "busy", "busy"], &[(drift::PROVIDER_MISPLACED, 1)]),
    (&["SADD", "busy", "free"], &[(drift::PROVIDER_MISPLACED, 1)]),
    (&["SADD", "busy", "nobody"], &[(drift::INDEX_WITHOUT_PROVIDER, 1)]),
    (&["DEL", "barred"], &[(drift::PROVIDER_MISPLACED, 1)]),
    (&["SADD", "barred", "off"], &[(drift::PROVIDER_MISPLACED, 1)]),
    (&["SADD", "barred", "nobody"], &[(drift::INDEX_WITHOUT_PROVIDER, 1)]),
    (&["SREM", "inactive", "off"], &[(drift::PROVIDER_MISPLACED, 1)]),
    (&["SADD", "inactive", "free"], &[(drift::PROVIDER_MISPLACED, 1)]),
    (&["SADD", "inactive", "gone"], &[(drift::INDEX_WITHOUT_PROVIDER, 1)]),
    (&["DEL", "tombstones:at"], &[(drift::PROVIDER_MISPLACED, 1)]),
    (
        &["ZADD", "tombstones:at", "9007199254740991", "gone"],
        &[(drift::PROVIDER_MISPLACED, 1)],
    ),
    (
        &["ZADD", "tombstones:at", "9007199254740991", "nobody"],
        &[(drift::INDEX_WITHOUT_PROVIDER, 1)],
    ),
    (
        &["HSET", "tombstones", "other", "what?"],
        &[(drift::BROKEN_PROVIDER, 1)],
    ),
    (
        &["HSET", "tombstones", "no name", "1 2"],
        &[(drift::BROKEN_PROVIDER, 1)],
    ),
    (
        &["HSET", "tombstones", "free", "1 1763676800000000"],
        &[(drift::PROVIDER_MISPLACED, 1)],
    ),
    (&["HSET", "providers", "other", "what?"], &[(drift::BROKEN_PROVIDER, 1)]),
    (
        &["HSET", "providers", "no name", "what?"],
        &[(drift::BROKEN_PROVIDER, 1)],
    ),
    (&["HDEL", "offlined", "%"], &[(drift::OFFLINE_NOT_PENDING, 1)]),
    (&["HSET", "offlined", "%", "what?"], &[(drift::OFFLINE_NOT_PENDING, 1)]),
    (&["DEL", "offline"], &[(drift::OFFLINE_NOT_PENDING, 1)]),
    (&["ZADD", "offline", "1", "%"], &[(drift::OFFLINE_NOT_PENDING, 1)]),
    (
        &["ZADD", "offline:lapsed", "1", "%"],
        &[(drift::OFFLINE_NOT_PENDING, 1)],
    ),
    (
        &["ZADD", "offline", "1", "nobody@5"],
        &[(drift::PENDING_WITHOUT_PROVIDER, 1)],
    ),
    (
        &["ZADD", "offline:lapsed", "1", "what?"],
        &[(drift::PENDING_WITHOUT_PROVIDER, 1)],
    ),
    (
        &["HSET", "offlined", "free@5", "left 1 - 2"],
        &[(drift::PENDING_WITHOUT_PROVIDER, 1)],
    ),
    (
        &["HSET", "offlined", "what?", "left 1 - 2"],
        &[(drift::PENDING_WITHOUT_PROVIDER, 1)],
    ),
    (&["HSET", "meta", "roster", "what?"], &[]),
    (&["HDEL", "meta", "roster"], &[]),
];

/// One provider of each kind, and one removed; returns the tenure of the one that left.
async fn one_of_each(world: &Rosters) -> String {
    world.online("free", 1).await;
    let tenure = world.seat("busy").await;
    let mut busy = row("busy", 2, Some(&tenure));
    busy.occupancy = 2;
    world.put(MirrorEntry::Row(busy)).await;
    let tenure = world.seat("barred").await;
    let mut barred = row("barred", 3, Some(&tenure));
    barred.active = false;
    world.put(MirrorEntry::Row(barred)).await;
    let mut off = row("off", 4, None);
    off.active = false;
    world.put(MirrorEntry::Row(off)).await;
    world.put(MirrorEntry::Row(row("away", 5, None))).await;
    let left = world.online("left", 6).await;
    world.leave(&left).await;
    world.put(gone("gone", 7)).await;
    left.to_string()
}

const NAMES: [&str; 7] = ["away", "barred", "busy", "free", "gone", "left", "off"];

async fn all_is_well(world: &Rosters, about: &str) {
    let stats = world.stats().await;
    assert_eq!((stats.online, stats.available, stats.busy), (3, 1, 2), "{about}");
    assert_eq!((stats.offline, stats.deactivated), (2, 2), "{about}");
    assert_eq!(world.available().await, ["free"], "{about}");
    world.pass(BURST).await;
    let pending = world.pending().await.items;
    assert_eq!((pending.len(), pending[0].reason), (1, EndReason::Left), "{about}");
    let status = world.store.tick(&group()).await.unwrap();
    assert_eq!(status.pending_offline, 1, "{about}");
}

async fn each_corruption_is_repaired_and_reported(flavour: Flavour) {
    let world = Rosters::new(flavour).await;
    for limit in [200, 1] {
        for (command, expected) in CORRUPTIONS {
            world.wipe().await;
            let tenure = one_of_each(&world).await;
            let command: Vec<String> = command.iter().map(|word| word.replace('%', &tenure)).collect();
            let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
            let key = key_of(args[1]);
            args[1] = &key;
            world.run(&args);
            let about = format!("{command:?} in parts of {limit}");
            let (entries, repaired) = world.verify(limit).await;
            let names: Vec<&str> = entries.iter().map(|entry| entry.provider().as_str()).collect();
            assert_eq!(names, NAMES, "{about}");
            let expected = expected
                .iter()
                .map(|(kind, count)| ((*kind).to_owned(), *count))
                .collect();
            assert_eq!(repaired, expected, "{about}");
            assert!(
                world.verify(limit).await.1.is_empty(),
                "{about}: a second one finds something"
            );
            all_is_well(&world, &about).await;
        }
    }
}

async fn unreadable_row_is_removed_until_written_again(flavour: Flavour) {
    let world = Rosters::new(flavour).await;
    for value in ["", "x", "what is this that somebody has put here?"] {
        world.wipe().await;
        let tenure = world.online("ann", 8).await;
        world.online("bob", 9).await;
        world.run(&["HSET", &key_of("providers"), "ann", value]);
        assert_eq!(world.seen("ann").await, None, "{value:?}");
        assert_eq!(world.hear("ann").await, HeartbeatReply::Absent, "{value:?}");
        assert_eq!(world.hear("bob").await, HeartbeatReply::Recorded, "{value:?}");
        let (entries, repaired) = world.verify(10).await;
        assert_eq!(entries.len(), 1, "{value:?}");
        let told = [(drift::BROKEN_PROVIDER, 1), (drift::INDEX_WITHOUT_PROVIDER, 1)];
        let told = told.map(|(kind, count)| (kind.to_owned(), count));
        assert_eq!(repaired, told.into(), "{value:?}");
        assert!(world.verify(10).await.1.is_empty(), "{value:?}");
        let put = world.put(MirrorEntry::Row(row("ann", 8, Some(&tenure)))).await;
        assert_eq!((put.applied, put.standing), (true, Standing::Alive));
        assert_eq!(world.available().await, ["ann", "bob"]);
    }
}

async fn foreign_key_type_is_repaired_without_reviving_members(flavour: Flavour) {
    let world = Rosters::new(flavour).await;
    for suffix in [
        "providers",
        "tombstones",
        "tombstones:at",
        "free",
        "busy",
        "barred",
        "inactive",
        "offlined",
        "offline",
        "offline:lapsed",
    ] {
        world.wipe().await;
        one_of_each(&world).await;
        let key = key_of(suffix);
        world.run(&["DEL", &key]);
        world.run(&["SET", &key, "foreign"]);
        world.pass(STALE + Duration::from_millis(1)).await;
        let ended = world.store.end_lapsed(&group(), 100, Call::default()).await;
        let mut ended: Vec<String> = ended
            .unwrap()
            .ended
            .iter()
            .map(|one| one.member().to_string())
            .collect();
        ended.sort();
        assert_eq!(ended, ["barred", "busy", "free"], "{suffix}");
        let (_, repaired) = world.verify(200).await;
        assert_eq!(repaired.get(drift::BROKEN_PROVIDER), Some(&1), "{suffix}: {repaired:?}");
        assert!(world.verify(200).await.1.is_empty(), "{suffix}");
        let status = world.store.tick(&group()).await.unwrap();
        let rows_lost = suffix == "providers";
        assert_eq!(status.pending_offline, if rows_lost { 0 } else { 4 }, "{suffix}");
        let stats = world.stats().await;
        assert_eq!((stats.online, stats.available), (0, 0), "{suffix}");
        assert_eq!(stats.deactivated, if rows_lost { 0 } else { 2 }, "{suffix}");
    }
}

async fn roster_metadata_is_restored(flavour: Flavour) {
    let world = Rosters::new(flavour).await;
    use tenure_core::ledger::Version;
    use tenure_core::roster::RosterMirror;
    world.online("ann", 5).await;
    world.put(gone("bob", 12)).await;
    world.settle_at(7, STALE).await;
    let since = world.store.mirror_status(&group()).await.unwrap().resumed_at;
    assert!(world.store.mark_seeded(&group(), since, Call::default()).await.unwrap());
    world.run(&["HDEL", &key_of("meta"), "roster"]);
    let lost = world.store.mirror_status(&group()).await.unwrap();
    assert!(!lost.seeded && lost.high == Version::NONE);
    world.verify(10).await;
    let found = world.store.mirror_status(&group()).await.unwrap();
    assert_eq!(
        (found.seeded, found.high, found.settings),
        (false, Version(12), Version(7))
    );
    // Unreadable settings count as missing and are written again.
    world.run(&["HSET", &key_of("meta"), "settings", "what?"]);
    assert_eq!(world.store.roster_settings(&group()).await.unwrap(), None);
    world.verify(10).await;
    assert_eq!(
        world.store.mirror_status(&group()).await.unwrap().settings,
        Version::NONE
    );
    world.settle_at(7, STALE).await;
}

async fn followed_end_is_not_reported_as_drift(flavour: Flavour) {
    use tenure_core::roster::RosterMirror;
    let world = Rosters::new(flavour).await;
    let tenure = world.online("ann", 5).await;
    world.leave(&tenure).await;
    let done = world.store.offline_done(&group(), &[tenure], Call::default()).await;
    assert_eq!(done.unwrap(), 1);
    assert!(world.verify(10).await.1.is_empty(), "the row is still on its way");
    world.put(MirrorEntry::Row(row("ann", 6, None))).await;
    assert!(world.verify(10).await.1.is_empty());
    assert_eq!(world.run(&["EXISTS", &key_of("offlined")]).int(), Some(0));
}

/// The ledger still receives the other ends.
async fn unreadable_end_does_not_block_others(flavour: Flavour) {
    use tenure_core::roster::RosterMirror;
    let world = Rosters::new(flavour).await;
    let tenures = [world.online("ann", 5).await, world.online("bob", 6).await];
    for tenure in &tenures {
        world.leave(tenure).await;
    }
    world.pass(BURST).await;
    for spoilt in ["odd 5 - 6", "left 5 y 6"] {
        world.run(&["HSET", &key_of("offlined"), &tenures[0].to_string(), spoilt]);
        let pending = async || {
            let pending = world.store.pending_offline(&group(), 10, false, Call::default()).await;
            let items = pending.unwrap().items.into_iter();
            items.map(|item| item.tenure).collect::<Vec<_>>()
        };
        assert_eq!(pending().await, [tenures[1].clone()], "{spoilt}");
        world.verify(10).await;
        world.pass(BURST).await;
        assert_eq!(pending().await.len(), 2, "{spoilt} is mended");
    }
}
