//! The leftovers of a roster's full lifecycle, and its cost for others.

use std::time::Duration;

use tenure_core::membership::{EndBy, EndReason, Join, Labels, MembershipStore};
use tenure_core::registry::{ClaimMode, RegistryStore};
use tenure_core::roster::{Heartbeat, HeartbeatReply, MirrorEntry, RosterMirror};
use tenure_core::store::Call;
use tenure_core::sweep::{BURST, SweepSteps};
use tenure_testkit::valkey::Flavour;

use crate::rosters::set_up::*;
use crate::world::*;

on_both! {
    only_tombstones_remain_after_use,
    ended_tenure_is_unavailable_and_pending,
    unchecked_overdue_members_are_not_counted,
    retime_covers_a_large_group,
    verify_pass_reports_every_row_of_a_large_mirror,
    version_above_2_pow_53_is_refused,
}

async fn only_tombstones_remain_after_use(flavour: Flavour) {
    let world = Rosters::new(flavour).await;
    for (n, name) in ["ann", "bob", "eve", "joe"].into_iter().enumerate() {
        let tenure = world.online(name, n as u64 + 1).await;
        let mut row = row(name, n as u64 + 11, Some(&tenure));
        (row.occupancy, row.active) = (u32::try_from(n).unwrap(), n != 3);
        world.put(MirrorEntry::Row(row)).await;
        if n == 0 {
            world
                .store
                .end(&group(), &tenure, EndBy::Expel, Call::default())
                .await
                .unwrap();
        }
    }
    world.pass(STALE + Duration::from_millis(1)).await;
    world.store.end_lapsed(&group(), 100, Call::default()).await.unwrap();
    world.pass(BURST).await;
    let tenures: Vec<_> = world
        .pending()
        .await
        .items
        .into_iter()
        .map(|item| item.tenure)
        .collect();
    assert_eq!(tenures.len(), 4);
    world
        .store
        .offline_done(&group(), &tenures, Call::default())
        .await
        .unwrap();
    for (n, name) in ["ann", "bob", "eve", "joe"].into_iter().enumerate() {
        world.put(gone(name, n as u64 + 21)).await;
    }
    let left: Vec<String> = world
        .keys()
        .into_iter()
        .filter(|key| key.contains("tenure:ingest"))
        .collect();
    let expected = [
        "ended",
        "events",
        "forget",
        "lapses",
        "meta",
        "tombstones",
        "tombstones:at",
    ];
    assert_eq!(left, expected.map(key_of));
    // Tombstones expire.
    world.run(&["SET", "tenure:test:now", "1763680500000000"]);
    world.verify(100).await;
    assert!(!world.keys().iter().any(|key| key.contains("tombstones")));
}

async fn ended_tenure_is_unavailable_and_pending(flavour: Flavour) {
    let world = Rosters::new(flavour).await;
    for how in [
        "leave",
        "expel",
        "supersede",
        "sweep",
        "beat",
        "claim",
        "heartbeat",
        "seat",
        "put",
        "retime",
    ] {
        world.wipe().await;
        let tenure = world.online("ann", 1).await;
        let other = join(&world.store, "other").await;
        claim(&world.store, &tenure, "k").await.unwrap();
        assert_eq!(world.available().await, ["ann"]);
        if !matches!(how, "leave" | "expel" | "supersede") {
            world.pass(STALE).await;
            // Not by an index, but by the rows.
            assert!(world.available().await.is_empty(), "{how}");
        }
        let call = Call::default();
        let reason = match how {
            "leave" | "expel" => {
                let by = if how == "leave" { EndBy::Leave } else { EndBy::Expel };
                world.store.end(&group(), &tenure, by, call).await.unwrap()
            }
            "supersede" => {
                let join = Join {
                    member: tenure.member().clone(),
                    ttl: STALE,
                    labels: Labels::default(),
                };
                world.store.join(&group(), &join, call).await.unwrap();
                EndReason::Superseded
            }
            "sweep" => {
                world.store.end_lapsed(&group(), 10, call).await.unwrap();
                EndReason::Lapsed
            }
            "beat" => {
                beat(&world.store, &tenure).await;
                EndReason::Lapsed
            }
            "claim" => {
                let keys = [key("k")];
                let mode = ClaimMode::IfAbsent;
                world
                    .store
                    .claim(&group(), &devices(), &other, &keys, mode, call)
                    .await
                    .unwrap();
                EndReason::Lapsed
            }
            "heartbeat" => {
                assert_eq!(world.hear("ann").await, HeartbeatReply::Offline);
                EndReason::Lapsed
            }
            "seat" => {
                assert_ne!(world.seat("ann").await, tenure);
                EndReason::Lapsed
            }
            "put" => {
                world.put(MirrorEntry::Row(row("ann", 2, Some(&tenure)))).await;
                EndReason::Lapsed
            }
            _ => {
                world.settle_at(1, STALE * 3).await;
                while world.store.retime(&group(), 10, call).await.unwrap() {}
                EndReason::Lapsed
            }
        };
        let status = world.store.tick(&group()).await.unwrap();
        assert_eq!(status.next_offline, Some(status.as_of + BURST), "{how}");
        assert_eq!(status.pending_offline, 1, "{how}");
        assert!(world.available().await.is_empty(), "{how}");
        assert_eq!(world.run(&["EXISTS", &key_of("free")]).int(), Some(0), "{how}");
        world.pass(BURST).await;
        let pending = world.pending().await.items;
        assert_eq!((&pending[0].tenure, pending[0].reason), (&tenure, reason), "{how}");
        assert!(pending[0].heard_at.is_some(), "{how}");
        assert!(world.verify(100).await.1.is_empty(), "{how}");
    }
}

async fn seat_many(world: &Rosters, count: usize) -> Vec<tenure_core::TenureId> {
    let names: Vec<_> = (0..count).map(|n| provider(&format!("p{n:05}"))).collect();
    let seated = world
        .store
        .ensure_tenures(&group(), &names, STALE, true, Call::default())
        .await
        .unwrap();
    let tenures: Vec<_> = seated.into_iter().map(|seat| seat.tenure).collect();
    let puts: Vec<_> = tenures
        .iter()
        .enumerate()
        .map(|(n, tenure)| {
            let row = row(tenure.member().as_str(), n as u64 + 1, Some(tenure));
            tenure_core::roster::Put::newer(MirrorEntry::Row(row))
        })
        .collect();
    world
        .store
        .put_providers(&group(), &puts, Call::default())
        .await
        .unwrap();
    tenures
}

async fn unchecked_overdue_members_are_not_counted(flavour: Flavour) {
    let world = Rosters::new(flavour).await;
    let tenures = seat_many(&world, 1_300).await;
    world.pass(STALE / 2).await;
    let heard: Vec<_> = tenures.iter().map(|one| Heartbeat::of(one.member().into())).collect();
    world.store.heartbeat(&group(), &heard).await.unwrap();
    // All are due by the index, and all are alive.
    world.pass(STALE / 2).await;
    let counted = world.store.availability(&group(), Duration::ZERO).await.unwrap();
    assert_eq!((counted.count, counted.complete), (1_000, false));
    let again = world
        .store
        .availability(&group(), Duration::from_secs(10))
        .await
        .unwrap();
    assert_eq!((again.count, again.complete), (1_000, false));
    let stats = world.store.roster_stats(&group()).await.unwrap();
    assert_eq!(
        (stats.stats.online, stats.stats.offline, stats.complete),
        (1_000, 0, false)
    );
    while world
        .store
        .end_lapsed(&group(), 200, Call::default())
        .await
        .unwrap()
        .more()
    {}
    let counted = world.store.availability(&group(), Duration::ZERO).await.unwrap();
    assert_eq!((counted.count, counted.complete), (1_300, true));
}

async fn retime_covers_a_large_group(flavour: Flavour) {
    let world = Rosters::new(flavour).await;
    let tenures = seat_many(&world, 700).await;
    let ttl = Duration::from_secs(20);
    world.settle_at(1, ttl).await;
    let mut steps = 1;
    while world.store.retime(&group(), 50, Call::default()).await.unwrap() {
        steps += 1;
    }
    assert!(steps >= 10, "{steps} steps");
    for tenure in &tenures {
        let member = world.store.member(&group(), tenure.member()).await.unwrap().unwrap();
        assert_eq!((member.ttl, &member.tenure), (ttl, tenure));
    }
    assert_eq!(world.run(&["HEXISTS", &key_of("meta"), "retime"]).int(), Some(0));
}

async fn verify_pass_reports_every_row_of_a_large_mirror(flavour: Flavour) {
    let world = Rosters::new(flavour).await;
    seat_many(&world, 700).await;
    for limit in [1_000, 7] {
        let (entries, repaired) = world.verify(limit).await;
        assert_eq!((entries.len(), repaired.len()), (700, 0), "in parts of {limit}");
    }
    // All indexes are deleted, and are rebuilt.
    world.run(&["DEL", &key_of("free")]);
    let (_, repaired) = world.verify(60).await;
    assert_eq!(repaired.into_values().collect::<Vec<_>>(), [700]);
    assert_eq!(world.available().await.len(), 700);
}

async fn version_above_2_pow_53_is_refused(flavour: Flavour) {
    let world = Rosters::new(flavour).await;
    let before = dump(&world.server);
    for version in [1 << 53, (1 << 53) + 1, u64::MAX] {
        for entry in [MirrorEntry::Row(row("ann", version, None)), gone("ann", version)] {
            let puts = [tenure_core::roster::Put::newer(entry)];
            let refused = world.store.put_providers(&group(), &puts, Call::default()).await;
            assert_eq!(
                refused.unwrap_err().kind(),
                tenure_core::ErrorKind::Invalid,
                "{version}"
            );
        }
    }
    assert_eq!(dump(&world.server), before);
}
