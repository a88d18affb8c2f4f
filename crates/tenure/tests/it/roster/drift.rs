//! A mirror corrupted by hand, and one whose writes arrive twice, late, out of order or never: one reconcile restores
//! the ledger's data.

use std::sync::Arc;

use tenure::roster::{Source, SweepIntervals};
use tenure::{PageRequest, ProviderId, RostersSettings, Store};
use tenure_core::conformance::Chance;
use tenure_core::ledger::{Provider, ProviderSpec};
use tenure_core::roster::{MirrorEntry, Put, group_of};
use tenure_core::store::Call;
use tenure_testkit::resp::{Client, Reply};
use tenure_testkit::wait::until_async;
use tenure_testkit::{postgres, valkey};
use tokio::task::JoinSet;

use crate::roster::reconcile_meters;
use crate::roster::world::*;

const PROVIDERS: usize = 40;

fn often() -> RostersSettings {
    RostersSettings {
        sweeps: SweepIntervals {
            reconcile: secs(1),
            ..SweepIntervals::default()
        },
        ..patient()
    }
}

async fn world(roster: &str, store: &str, database: &str) -> [Process; 2] {
    reconcile_meters::listen();
    prepare(roster, database, &stale_after(secs(600))).await;
    let processes = [
        Process::start(roster, store, database, often()).await,
        Process::start(roster, store, database, often()).await,
    ];
    all_believe(&processes).await;
    processes
}

/// Waits for a whole reconcile that begins after this call: processes take turns, so the second one to finish. Returns
/// the differences found since the last call.
async fn one_reconcile(roster: &str) -> f64 {
    let before = reconcile_meters::found(roster);
    until_async("a reconcile ran", PATIENCE, async || {
        reconcile_meters::count(roster) >= 2
    })
    .await;
    before.into_iter().chain(reconcile_meters::found(roster)).sum()
}

/// Writes to the group's keys directly.
struct Corruptor {
    client: Client,
    prefix: String,
}

impl Corruptor {
    fn run(&mut self, command: &str, suffix: &str, args: &[&[u8]]) -> Reply {
        let key = format!("{}:{suffix}", self.prefix);
        let mut words: Vec<&[u8]> = vec![command.as_bytes(), key.as_bytes()];
        words.extend(args);
        self.client.call(&words).unwrap()
    }

    fn row(&mut self, who: &ProviderId) -> Vec<u8> {
        match self.run("HGET", "providers", &[who.as_str().as_bytes()]) {
            Reply::Bulk(row) => row,
            _ => b"nothing".to_vec(),
        }
    }

    /// Makes one random corrupting write.
    fn corrupt(&mut self, chance: &mut Chance, everyone: &[ProviderId]) {
        const INDEXES: [&str; 4] = ["free", "busy", "barred", "inactive"];
        let who = chance.of(everyone).clone();
        let (name, other) = (who.as_str().as_bytes(), chance.of(everyone).clone());
        let stray = format!("stray{}", chance.below(5));
        let index = *chance.of(&INDEXES);
        match chance.below(14) {
            0 => self.run("HDEL", "providers", &[name]),
            1 => {
                let mut bytes: Vec<u8> = (0..chance.below(90)).map(|_| chance.below(256) as u8).collect();
                bytes.push(b'!');
                self.run("HSET", "providers", &[name, &bytes])
            }
            2 => {
                let row = self.row(&other);
                self.run("HSET", "providers", &[name, &row])
            }
            3 => {
                let row = self.row(&other);
                self.run("HSET", "providers", &[stray.as_bytes(), &row])
            }
            4 | 5 => {
                let mut row = self.row(&who);
                let at = chance.below(row.len());
                row[at] ^= 1 << chance.below(8);
                self.run("HSET", "providers", &[name, &row])
            }
            6 => self.run("DEL", index, &[]),
            7 => {
                self.run("DEL", index, &[]);
                self.client
                    .call(&["SET", &format!("{}:{index}", self.prefix), "foreign"])
                    .unwrap()
            }
            8 => self.run("ZADD", "free", &[b"0", name, b"0", stray.as_bytes()]),
            9 => self.run("SADD", INDEXES[1 + chance.below(3)], &[name, stray.as_bytes()]),
            10 => self.run("ZREM", "free", &[name]),
            11 => self.run("HSET", "tombstones", &[name, b"9000000000000000 1763676800000000"]),
            12 => self.run("HDEL", "members", &[name]),
            _ => self.run("HSET", "tombstones", &[stray.as_bytes(), b"what?"]),
        };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_reconcile_repairs_a_corrupted_mirror() {
    let Some(valkey) = valkey::Server::start(valkey::Flavour::Valkey) else {
        return;
    };
    let Some(postgres) = postgres::shared() else {
        return;
    };
    let (roster, database) = ("drift", postgres.database());
    let processes = world(roster, &valkey.url(), &database).await;
    let [here, there] = &processes;
    let everyone: Vec<_> = (0..PROVIDERS).map(numbered).collect();
    for (n, who) in everyone.iter().enumerate() {
        here.put(who, Some(2)).await;
        if n % 4 > 0 {
            there.go_online(who).await;
        }
        if n % 4 > 1 {
            let new = active(&format!("e{n}"), who);
            here.roster.create_engagement(&new).await.unwrap();
        }
        if n % 8 == 0 {
            there.roster.deactivate(who).await.unwrap();
        }
    }
    here.until_they_agree().await;
    let mut corruptor = Corruptor {
        client: valkey.client().unwrap(),
        prefix: format!("{{tenure:{}}}", group_of(&here.name).unwrap()),
    };
    for seed in 1..=4 {
        let mut chance = Chance::new(seed);
        reconcile_meters::found(roster);
        for _ in 0..60 {
            corruptor.corrupt(&mut chance, &everyone);
        }
        // A reconcile may also run between the writes.
        assert!(one_reconcile(roster).await > 0.0, "seed {seed} corrupts something");
        let (mirrored, written) = (here.mirrored().await.unwrap(), here.written().await.unwrap());
        assert_eq!(mirrored, written, "seed {seed}");
        until_async("answers come from it", PATIENCE, async || {
            let free = there.free().await;
            let stats = there.roster.stats().await.unwrap();
            free.1 == Source::Mirror && stats.source == Source::Mirror
        })
        .await;
        let page = PageRequest {
            after: None,
            limit: 1_000,
        };
        let free = here.ledger.available(&here.name, &page, None).await.unwrap();
        let free: Vec<String> = free
            .items
            .iter()
            .map(|candidate| candidate.provider.to_string())
            .collect();
        assert_eq!(there.free().await, (free, Source::Mirror), "seed {seed}");
        let stats = there.roster.stats().await.unwrap().value;
        assert_eq!(
            (stats.online, stats.offline, stats.deactivated),
            (30, 5, 5),
            "seed {seed}"
        );
    }
    let sql = Sql::connect(&database).await;
    let offline = "SELECT count(*) FROM tenure.provider_log WHERE change = 'offline'";
    assert_eq!(sql.number(offline).await, 0, "no provider went offline");
}

/// Delivers rows to the mirror like a faulty network.
async fn deliver(store: &Arc<dyn Store>, roster: &str, mut rows: Vec<Provider>, chance: &mut Chance) {
    let group = group_of(&tenure::RosterName::new(roster).unwrap()).unwrap();
    rows.retain(|_| chance.below(3) > 0);
    let twice: Vec<Provider> = rows.iter().filter(|_| chance.below(3) == 0).cloned().collect();
    rows.extend(twice);
    chance.shuffle(&mut rows);
    let mut deliveries = JoinSet::new();
    for part in rows.chunks(1 + chance.below(7)) {
        let puts: Vec<Put> = part
            .iter()
            .cloned()
            .map(|row| Put::newer(MirrorEntry::Row(row)))
            .collect();
        let (store, group) = (Arc::clone(store), group.clone());
        deliveries.spawn(async move {
            let mirror = store.mirror().unwrap();
            mirror.put_providers(&group, &puts, Call::default()).await.unwrap();
        });
    }
    while let Some(delivered) = deliveries.join_next().await {
        delivered.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_reconcile_repairs_duplicate_late_and_lost_writes() {
    let Some(valkey) = valkey::Server::start(valkey::Flavour::Valkey) else {
        return;
    };
    let Some(postgres) = postgres::shared() else {
        return;
    };
    let (roster, database) = ("order", postgres.database());
    let processes = world(roster, &valkey.url(), &database).await;
    let [here, there] = &processes;
    let everyone: Vec<_> = (0..PROVIDERS).map(numbered).collect();
    for who in &everyone {
        here.arrive(who, Some(1)).await;
    }
    here.until_they_agree().await;
    for seed in 1..=3 {
        let mut chance = Chance::new(seed);
        let mut rows = Vec::new();
        for round in 0..200 {
            let who = chance.of(&everyone);
            let spec = ProviderSpec {
                display_name: Some(format!("{seed}-{round}")),
                capacity: Some(1 + chance.below(9) as u32).into(),
            };
            // Bypasses the service, which would mirror the row, and marks it clean, so that the outbox does not deliver
            // it.
            let change = there.ledger.put_provider(&there.name, who, &spec).await.unwrap();
            let clean = [(who.clone(), change.provider.version)];
            there.ledger.clean(&there.name, &clean).await.unwrap();
            rows.push(change.provider);
        }
        let newest = rows.iter().map(|row| row.version).max().unwrap();
        deliver(&here.store, roster, rows, &mut chance).await;
        let mirrored = here.mirrored().await.unwrap();
        assert!(mirrored.iter().all(|row| row.version <= newest));
        one_reconcile(roster).await;
        assert_eq!(
            here.mirrored().await.unwrap(),
            here.written().await.unwrap(),
            "seed {seed}"
        );
    }
    let free = there.free().await;
    assert_eq!((free.0.len(), free.1), (PROVIDERS, Source::Mirror));
}
