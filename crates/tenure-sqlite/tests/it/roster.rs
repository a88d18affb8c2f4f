//! Rosters on a real file: what survives a restart, what costs no write, and what is left behind.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::clock::ManualClock;
use tenure_core::ledger::{Provider, RosterSettings, Version};
use tenure_core::membership::EndReason;
use tenure_core::roster::{
    Heartbeat, HeartbeatReply, MAX_OVERDUE, MirrorEntry, Overwrite, Put, RosterMirror, Standing, TOMBSTONES_KEPT, Task,
    Turn, TurnRequest,
};
use tenure_core::store::{Backend, Call, PageRequest, Store};
use tenure_core::sweep::BURST;
use tenure_core::{Clock, ProviderId, TenureId};

use crate::common::{rows, s};
use crate::roster_world::{STALE, World, gone, provider, row};

fn settings(version: u64, seconds: u64) -> RosterSettings {
    RosterSettings {
        stale_after: s(seconds),
        snapshot: Duration::from_millis(2_500),
        version: Version(version),
        ..RosterSettings::default()
    }
}

#[tokio::test]
async fn a_restart_needs_nothing_told_anew() {
    let mut world = World::new();
    let (ann, bob) = (world.online("ann", 1).await, world.online("bob", 2).await);
    let mut full = row("eve", 3, None);
    full.revoked_before = Some(tenure_core::StoreTime::from_micros(77));
    full.last_offline_at = Some(tenure_core::StoreTime::from_micros(78));
    full.active = false;
    world.put(full.clone()).await;
    world.puts(&[gone("old", 9)]).await;
    world
        .store
        .put_roster_settings(&world.group, &settings(4, 20), Overwrite::Older, Call::default())
        .await
        .expect("an answer");
    let since = world
        .store
        .mirror_status(&world.group)
        .await
        .expect("a stamp")
        .resumed_at;
    let marked = world.store.mark_seeded(&world.group, since, Call::default()).await;
    assert!(marked.expect("a mark"));
    let turn = TurnRequest {
        task: Task::Heartbeats,
        holder: "a".to_owned(),
        lasts: s(1_000),
        every: s(0),
    };
    world
        .store
        .take_turn(&world.group, &turn, Call::default())
        .await
        .expect("a turn");
    world.leave(&bob).await;
    world.clock.advance(BURST);
    let before = (world.stats().await, world.pending().await, world.verify(10).await);
    assert_eq!(before.1.items.len(), 1);
    world.restart("").await;
    // Before any step, too.
    let stamp = world.store.mirror_status(&world.group).await.expect("a stamp");
    assert_eq!(
        (stamp.seeded, stamp.high, stamp.settings),
        (true, Version(9), Version(4))
    );
    assert_eq!(
        world.store.roster_settings(&world.group).await.expect("an answer"),
        Some(settings(4, 20))
    );
    assert_eq!(world.available().await, ["ann"]);
    assert_eq!(
        (world.stats().await, world.pending().await, world.verify(10).await),
        before
    );
    let seen = world.seen("eve").await.expect("a row");
    assert_eq!((seen.row, seen.standing), (full, Standing::Offline));
    assert_eq!(world.seen("bob").await.map(|seen| seen.standing), Some(Standing::Ended));
    assert_eq!(world.hear("ann").await, HeartbeatReply::Recorded);
    let late = world.puts(&[Put::newer(MirrorEntry::Row(row("old", 8, None)))]).await;
    assert_eq!((late[0].applied, late[0].version), (false, Version(9)));
    let others = TurnRequest {
        holder: "b".to_owned(),
        ..turn
    };
    let others = world.store.take_turn(&world.group, &others, Call::default()).await;
    assert!(matches!(others.expect("a turn"), Turn::Others(_)));
    let newer = world.put(row("ann", 12, Some(&ann))).await;
    assert_eq!((newer.applied, newer.standing), (true, Standing::Alive));
    world.store.close().await;
}

#[tokio::test]
async fn after_a_restart_everyone_has_one_full_ttl() {
    let mut world = World::new();
    world.online("ann", 1).await;
    for _ in 0..4 {
        world.pass(s(3)).await;
        assert_eq!(world.hear("ann").await, HeartbeatReply::Recorded);
    }
    world.restart("").await;
    assert_eq!(world.available().await, ["ann"]);
    world.tick().await;
    world
        .pass(STALE.checked_sub(Duration::from_millis(1)).expect("a time"))
        .await;
    assert_eq!(world.available().await, ["ann"]);
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(world.available().await, Vec::<String>::new());
    assert_eq!(world.hear("ann").await, HeartbeatReply::Offline);
    world.pass(BURST).await;
    assert_eq!(world.pending().await.items[0].reason, EndReason::Lapsed);
    world.store.close().await;
}

/// After a restart, too, members with the new ttl are distinguished from those with the old one.
#[tokio::test]
async fn a_retiming_goes_on_after_a_restart() {
    let mut world = World::new();
    for name in ["ann", "bob", "eve"] {
        world.online(name, 1).await;
    }
    let minute = settings(1, 60);
    let put = world
        .store
        .put_roster_settings(&world.group, &minute, Overwrite::Older, Call::default());
    assert!(put.await.expect("an answer"));
    let retime = |store: std::sync::Arc<tenure_sqlite::SqliteStore>, group: tenure_core::Group| async move {
        store.retime(&group, 1, Call::default()).await.expect("a step")
    };
    assert!(retime(world.store.clone(), world.group.clone()).await);
    world.restart("").await;
    assert!(retime(world.store.clone(), world.group.clone()).await);
    assert!(!retime(world.store.clone(), world.group.clone()).await);
    assert!(!retime(world.store.clone(), world.group.clone()).await);
    world.pass(s(50)).await;
    assert_eq!(world.available().await, ["ann", "bob", "eve"]);
    world.store.close().await;
}

/// Another program holds the write lock, so nothing can be written: what memory serves does not wait for that.
#[tokio::test]
async fn heartbeats_and_counts_write_nothing() {
    let world = World::new();
    let tenure = world.online("ann", 1).await;
    world.put(row("bob", 2, None)).await;
    let lock = rusqlite::Connection::open(&world.path).expect("the file");
    lock.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    world.clock.advance(Duration::from_millis(500));
    for _ in 0..100 {
        let asked = ["ann", "bob", "nobody"].map(|name| Heartbeat::of(provider(name)));
        let heard = world.store.heartbeat(&world.group, &asked).await.expect("an answer");
        assert_eq!(
            heard.replies,
            [
                HeartbeatReply::Recorded,
                HeartbeatReply::Offline,
                HeartbeatReply::Absent
            ]
        );
    }
    assert_eq!(world.available().await, ["ann"]);
    let counted = world.store.availability(&world.group, s(0)).await.expect("a count");
    assert_eq!((counted.count, counted.mirror.high), (1, Version(2)));
    assert_eq!(world.stats().await.0.online, 1);
    let heard_at = world.seen("ann").await.expect("a row").row.last_heartbeat_at;
    let joined_at = tenure_core::StoreTime::from_micros(tenure.term().get());
    assert!(heard_at >= Some(joined_at + Duration::from_millis(500)), "{heard_at:?}");
    lock.execute_batch("ROLLBACK").expect("the lock");
    world.store.close().await;
}

/// Those whose ttl may be over are looked at one by one, but not all of them.
#[tokio::test]
async fn a_count_is_never_too_high_when_many_may_have_lapsed() {
    let world = World::new();
    let many = MAX_OVERDUE + 50;
    let names: Vec<ProviderId> = (0..many).map(|n| provider(&format!("p{n:04}"))).collect();
    let seated = world
        .store
        .ensure_tenures(&world.group, &names, STALE, true, Call::default())
        .await;
    let seated = seated.expect("seats");
    let puts: Vec<Put> = (1..)
        .zip(&names)
        .zip(&seated)
        .map(|((version, name), seated)| {
            Put::newer(MirrorEntry::Row(row(name.as_str(), version, Some(&seated.tenure))))
        })
        .collect();
    world.puts(&puts).await;
    world.pass(s(3)).await;
    let heard: Vec<Heartbeat> = names[20..].iter().cloned().map(Heartbeat::of).collect();
    world.store.heartbeat(&world.group, &heard).await.expect("answers");
    world.pass(s(4)).await;
    // All are due to be looked at, and twenty have lapsed.
    let counted = world.store.availability(&world.group, s(0)).await.expect("a count");
    assert_eq!((counted.count, counted.complete), (MAX_OVERDUE as u64 - 20, false));
    let stats = world.store.roster_stats(&world.group).await.expect("counts");
    assert_eq!((stats.stats.online, stats.complete), (MAX_OVERDUE as u64 - 20, false));
    assert_eq!(world.available().await.len(), many - 20);
    world.end_lapsed().await;
    world.clock.advance(s(1));
    let counted = world.store.availability(&world.group, s(0)).await.expect("a count");
    assert_eq!((counted.count, counted.complete), (many as u64 - 20, true));
    world.store.close().await;
}

/// What a run of versions of a provider comes to, whatever arrives of it and in which order.
fn newest(delivered: &[MirrorEntry]) -> BTreeMap<ProviderId, MirrorEntry> {
    let mut newest: BTreeMap<ProviderId, MirrorEntry> = BTreeMap::new();
    for entry in delivered {
        let known = newest.get(entry.provider()).map_or(Version::NONE, MirrorEntry::version);
        if entry.version() > known {
            newest.insert(entry.provider().clone(), entry.clone());
        }
    }
    newest
}

#[tokio::test]
async fn whatever_arrives_in_whatever_order_the_newest_of_it_stands() {
    for seed in 1..=6 {
        let chance = ManualClock::new(0, seed);
        let draw = |below: usize| usize::try_from(chance.entropy() % (below as u64)).expect("a small number");
        let mut world = World::new();
        let mut history = Vec::new();
        let mut tenures: Vec<TenureId> = Vec::new();
        for n in 0..30 {
            tenures.push(world.seat(&format!("p{n:02}")).await);
        }
        for version in 1..=300u64 {
            let n = draw(30);
            let mut row = row(&format!("p{n:02}"), version, Some(&tenures[n]).filter(|_| draw(4) > 0));
            (row.active, row.occupancy) = (draw(6) > 0, u32::try_from(draw(3)).expect("a small number"));
            history.push(match draw(12) {
                0 => gone(row.provider.as_str(), version).entry,
                _ => MirrorEntry::Row(row),
            });
        }
        // Some are lost, some come twice, and none comes in its turn.
        let mut delivered: Vec<MirrorEntry> = Vec::new();
        for entry in &history {
            (0..draw(3)).for_each(|_| delivered.push(entry.clone()));
        }
        for n in (1..delivered.len()).rev() {
            delivered.swap(n, draw(n + 1));
        }
        let mut left = &delivered[..];
        while !left.is_empty() {
            let (part, rest) = left.split_at(draw(20).clamp(1, left.len()));
            world
                .puts(&part.iter().cloned().map(Put::newer).collect::<Vec<_>>())
                .await;
            left = rest;
            if draw(12) == 0 {
                world.restart("").await;
                world.tick().await;
            }
        }
        check_against(&world, &newest(&delivered), seed).await;
        world.store.close().await;
    }
}

/// Rows, order and counts are those of these entries.
async fn check_against(world: &World, newest: &BTreeMap<ProviderId, MirrorEntry>, seed: u64) {
    let (mut entries, repaired) = world.verify(7).await;
    entries.sort_by(|a, b| a.provider().cmp(b.provider()));
    assert_eq!(entries, newest.values().cloned().collect::<Vec<_>>(), "seed {seed}");
    assert_eq!(repaired, [], "seed {seed}");
    let rows: Vec<&Provider> = newest
        .values()
        .filter_map(|entry| match entry {
            MirrorEntry::Row(row) => Some(row),
            MirrorEntry::Gone { .. } => None,
        })
        .collect();
    let mut free: Vec<_> = rows
        .iter()
        .filter(|row| row.has_room())
        .map(|row| (row.occupancy, row.provider.to_string()))
        .collect();
    free.sort();
    let free: Vec<String> = free.into_iter().map(|(_, name)| name).collect();
    assert_eq!(world.available().await, free, "seed {seed}");
    let count = |of: &dyn Fn(&Provider) -> bool| rows.iter().filter(|row| of(row)).count() as u64;
    let (stats, pending) = world.stats().await;
    assert_eq!((stats.available, pending), (free.len() as u64, 0), "seed {seed}");
    assert_eq!(stats.online, count(&|row| row.online.is_some()), "seed {seed}");
    assert_eq!(
        stats.busy,
        count(&|row| row.online.is_some() && !row.has_room()),
        "seed {seed}"
    );
    assert_eq!(
        stats.offline,
        count(&|row| row.active && row.online.is_none()),
        "seed {seed}"
    );
    assert_eq!(stats.deactivated, count(&|row| !row.active), "seed {seed}");
}

#[tokio::test]
async fn nothing_is_left_behind() {
    let mut world = World::new();
    let mut version = 0;
    for n in 0..20 {
        let name = format!("p{n:02}");
        version += 1;
        let tenure = world.online(&name, version).await;
        if n % 2 == 0 {
            world.leave(&tenure).await;
        }
    }
    world.pass(STALE + BURST).await;
    world.end_lapsed().await;
    let forced = world
        .store
        .pending_offline(&world.group, 1_000, true, Call::default())
        .await;
    let ended: Vec<TenureId> = forced
        .expect("an answer")
        .items
        .into_iter()
        .map(|item| item.tenure)
        .collect();
    assert!(ended.len() >= 10, "{ended:?}");
    let all: Vec<Put> = (0..20).map(|n| gone(&format!("p{n:02}"), 100 + n)).collect();
    world.puts(&all).await;
    assert_eq!(
        (world.pending().await.items, world.tick().await.pending_offline),
        (Vec::new(), 0)
    );
    world.clock.advance(TOMBSTONES_KEPT);
    world.verify(100).await;
    world.end_lapsed().await;
    assert_eq!(world.verify(100).await, (Vec::new(), Vec::new()));
    let (stats, _) = world.stats().await;
    assert_eq!(stats, tenure_core::ledger::RosterStats::default());
    world.restart("").await;
    world.store.close().await;
    let left: Vec<_> = rows(&world.path).into_iter().filter(|(_, count)| *count > 0).collect();
    // How high the versions were is never forgotten.
    assert_eq!(left, [("rosters".to_owned(), 1)]);
}

#[tokio::test]
async fn reads_of_a_group_that_is_not_there_make_none() {
    let world = World::new();
    let page = PageRequest { after: None, limit: 10 };
    let (store, group) = (&world.store, &world.group);
    assert_eq!(store.available(group, &page).await.expect("a page").candidates, []);
    assert_eq!(store.rows(group, &page).await.expect("a page").rows, []);
    assert_eq!(store.availability(group, s(5)).await.expect("a count").count, 0);
    assert_eq!(
        store
            .look(group, &[provider("ann")])
            .await
            .expect("a look-up")
            .providers,
        [None]
    );
    assert_eq!(store.roster_settings(group).await.expect("an answer"), None);
    assert!(!store.mirror_status(group).await.expect("a stamp").seeded);
    assert_eq!(world.stats().await.1, 0);
    assert_eq!(store.groups().await.expect("groups"), []);
    store.close().await;
}

/// One of the two lost data: the ledger wins over what the mirror has, also when that is a removal.
#[tokio::test]
async fn a_forced_entry_replaces_a_removal_and_its_pending_tenure() {
    let world = World::new();
    let tenure = world.online("ann", 5).await;
    world.leave(&tenure).await;
    assert_eq!(world.tick().await.pending_offline, 1);
    let force = |entry, over| Put {
        entry,
        over: Overwrite::Exactly(Version(over)),
    };
    world.puts(&[force(gone("ann", 3).entry, 5)]).await;
    assert_eq!((world.tick().await.pending_offline, world.stats().await.1), (0, 0));
    let back = world
        .puts(&[force(MirrorEntry::Row(row("ann", 2, Some(&tenure))), 3)])
        .await;
    // The row names an ended tenure again.
    assert_eq!((back[0].applied, back[0].standing), (true, Standing::Ended));
    assert_eq!(world.tick().await.pending_offline, 1);
    assert_eq!(world.done(&[tenure]).await, 1);
    let stamp = world.store.mirror_status(&world.group).await.expect("a stamp");
    assert_eq!(stamp.high, Version(5));
    world.store.close().await;
}
