//! Random tests: rows in any order, repeated or lost, and random corruptions. The newest row that arrived wins. One
//! pass repairs every detectable corruption, and the next pass finds nothing.

use std::collections::BTreeMap;

use tenure_core::conformance::{Cases, Chance};
use tenure_core::ledger::Version;
use tenure_core::roster::{MirrorEntry, Put, RosterMirror};
use tenure_core::store::Call;
use tenure_testkit::valkey::Flavour;

use crate::rosters::set_up::*;
use crate::world::*;

on_both! {
    rows_in_any_order_converge_to_the_newest,
    random_corruptions_are_repaired,
}

async fn rows_in_any_order_converge_to_the_newest(flavour: Flavour) {
    let cases = Cases::times(40);
    let (world, mut chance) = (Rosters::new(flavour).await, cases.chance());
    for case in 0..cases.count {
        world.wipe().await;
        let mut tenures = Vec::new();
        for n in 0..3 {
            tenures.push(world.seat(&format!("p{n}")).await);
        }
        let base = (1 << 53) - 31;
        let written: Vec<MirrorEntry> = (0..30)
            .map(|n| {
                let who = chance.below(3);
                let (name, version) = (format!("p{who}"), base + n);
                match chance.below(5) {
                    0 => gone(&name, version),
                    kind => {
                        let mut row = row(&name, version, (kind > 1).then_some(&tenures[who]));
                        row.occupancy = u32::try_from(chance.below(4)).unwrap();
                        row.active = chance.below(4) > 0;
                        MirrorEntry::Row(row)
                    }
                }
            })
            .collect();
        let (mut newest, mut left): (BTreeMap<String, MirrorEntry>, Vec<usize>) = (BTreeMap::new(), (0..30).collect());
        while !left.is_empty() {
            let mut puts = Vec::new();
            for _ in 0..=chance.below(4).min(left.len() - 1) {
                let at = chance.below(left.len());
                let entry = written[left[at]].clone();
                match chance.below(6) {
                    // It is repeated later.
                    0 => {}
                    // It never arrives.
                    1 => {
                        left.swap_remove(at);
                        if left.is_empty() {
                            break;
                        }
                        continue;
                    }
                    _ => drop(left.swap_remove(at)),
                }
                let known = newest
                    .entry(entry.provider().to_string())
                    .or_insert_with(|| entry.clone());
                if known.version() < entry.version() {
                    *known = entry.clone();
                }
                puts.push(Put::newer(entry));
                if left.is_empty() {
                    break;
                }
            }
            world
                .store
                .put_providers(&group(), &puts, Call::default())
                .await
                .unwrap();
        }
        let about = format!("case {case} of {cases}");
        let (entries, repaired) = world.verify(100).await;
        assert_eq!(entries, newest.into_values().collect::<Vec<_>>(), "{about}");
        assert!(repaired.is_empty(), "{about}: {repaired:?}");
        let high = entries.iter().map(MirrorEntry::version).max();
        assert_eq!(
            Some(world.store.mirror_status(&group()).await.unwrap().high),
            high,
            "{about}"
        );
        assert!(high < Some(Version(1 << 53)));
        let free = entries
            .iter()
            .filter(|entry| matches!(entry, MirrorEntry::Row(row) if row.has_room()));
        let free: Vec<String> = free.map(|entry| entry.provider().to_string()).collect();
        assert_eq!(world.available().await, free, "{about}");
    }
}

const KEYS: [(&str, &str); 10] = [
    ("providers", "HSET"),
    ("tombstones", "HSET"),
    ("offlined", "HSET"),
    ("free", "ZADD"),
    ("offline", "ZADD"),
    ("offline:lapsed", "ZADD"),
    ("tombstones:at", "ZADD"),
    ("busy", "SADD"),
    ("barred", "SADD"),
    ("inactive", "SADD"),
];

/// One random corruption of a roster.
fn corruption(chance: &mut Chance, tenures: &[String]) -> Vec<String> {
    let tenure = tenures[chance.below(tenures.len())].clone();
    let name = match chance.below(8) {
        0 => "nobody".to_owned(),
        1 => "no name".to_owned(),
        2 => tenure.clone(),
        n => format!("p{}", n - 3),
    };
    let (suffix, put) = KEYS[chance.below(10)];
    let key = key_of(suffix);
    let member = match suffix.starts_with("offline") {
        true if chance.below(4) > 0 => tenure,
        _ => name,
    };
    let score = chance.below(2_000_000_000_000_000).to_string();
    let words: Vec<&str> = match (chance.below(8), put) {
        (0, _) => vec!["DEL", &key],
        (1, _) => vec!["SET", &key, "foreign"],
        (2 | 3, "HSET") => vec!["HDEL", &key, &member],
        (2 | 3, "ZADD") => vec!["ZREM", &key, &member],
        (2 | 3, _) => vec!["SREM", &key, &member],
        (_, "HSET") => vec![
            "HSET",
            &key,
            &member,
            ["what?", "lapsed 5 - 6", "7 8", ""][chance.below(4)],
        ],
        (_, "ZADD") => vec!["ZADD", &key, &score, &member],
        _ => vec!["SADD", &key, &member],
    };
    words.into_iter().map(str::to_owned).collect()
}

async fn random_corruptions_are_repaired(flavour: Flavour) {
    let cases = Cases::times(60);
    let (world, mut chance) = (Rosters::new(flavour).await, cases.chance());
    for case in 0..cases.count {
        world.wipe().await;
        let (mut tenures, mut rows) = (Vec::new(), Vec::new());
        for n in 0..5 {
            let name = format!("p{n}");
            let tenure = world.seat(&name).await;
            let mut row = row(&name, n + 1, (n != 4).then_some(&tenure));
            row.occupancy = u32::try_from(chance.below(3)).unwrap();
            row.active = chance.below(4) > 0;
            world.put(MirrorEntry::Row(row.clone())).await;
            if n == 0 {
                world.leave(&tenure).await;
            }
            tenures.push(tenure.to_string());
            rows.push(MirrorEntry::Row(row));
        }
        world.put(gone("p5", 9)).await;
        let done: Vec<Vec<String>> = (0..1 + chance.below(6))
            .map(|_| corruption(&mut chance, &tenures))
            .collect();
        for words in &done {
            // A command that does not fit a key's new type has nothing left to corrupt.
            drop(world.server.cli(words).unwrap());
        }
        let about = format!("case {case} of {cases}: {done:?}");
        let limit = if chance.below(2) == 0 { 200 } else { 2 };
        world.verify(limit).await;
        let (entries, again) = world.verify(limit).await;
        assert!(again.is_empty(), "{about}: a second one finds {again:?}");
        // The ledger writes the lost rows again; then the state is as before.
        for row in &rows {
            world.put(row.clone()).await;
        }
        let (all, repaired) = world.verify(limit).await;
        assert!(repaired.is_empty(), "{about}: {repaired:?}");
        let lost: Vec<&MirrorEntry> = rows.iter().filter(|row| !all.contains(row)).collect();
        assert!(
            lost.iter()
                .all(|row| entries.iter().any(|there| there.version() >= row.version())),
            "{about}: {lost:?}"
        );
        let free = all.iter().enumerate().filter(|(_, entry)| match entry {
            MirrorEntry::Row(row) => row.has_room() && row.provider.as_str() != "p0",
            MirrorEntry::Gone { .. } => false,
        });
        let free: Vec<String> = free.map(|(_, entry)| entry.provider().to_string()).collect();
        assert_eq!(world.available().await, free, "{about}");
    }
}
