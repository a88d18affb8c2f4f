//! Which entries a pass removes and which it keeps.

use std::process::{Command, Stdio};

use tenure_adopt::OwnerAt;
use tenure_testkit::{Process, have, wait};

use crate::registry::world::{HASH, PATIENCE, at_first, is_settling, on_both, ready, settings};

#[tokio::test(flavor = "multi_thread")]
async fn only_entries_of_dead_owners_are_evicted() {
    on_both(&[], |world| async move {
        world.claim_many("dead", 0..1_000);
        world.claim_many("alive", 0..1_000);
        world.beat("alive");
        let mut janitor = ready(&world.server.url(), settings(200)).await;
        let report = janitor.pass(false).await.unwrap();
        assert_eq!(report.evicted_total(), 1_000);
        assert_eq!(report.evicted.keys().collect::<Vec<_>>(), [&b"dead".to_vec()]);
        assert_eq!((report.owners, report.scanned >= 2_000), (2, true), "{report:?}");
        assert_eq!(world.len(), 1_000);
        assert_eq!(world.owner("alive-device-7").as_deref(), Some("alive"));
        assert_eq!(janitor.pass(false).await.unwrap().evicted_total(), 0);
        janitor.close().await;
        assert!(
            world.run(&["KEYS", "tenure:*"]).items().is_empty(),
            "the janitor leaves no key behind"
        );
    })
    .await;
}

/// An unmodified client: the server's own command line program.
#[tokio::test(flavor = "multi_thread")]
async fn killed_writer_loses_its_entries_and_others_keep_theirs() {
    let (Some(cli), Some(world)) = (
        have("redis-cli").or_skip(),
        crate::registry::world::World::start(tenure_testkit::valkey::Flavour::Redis),
    ) else {
        return;
    };
    let port = world.server.port().to_string();
    let run = |args: &[&str]| {
        let done = Command::new(&cli)
            .args(["-p", &port])
            .args(args)
            .stdout(Stdio::null())
            .status();
        assert!(done.unwrap().success(), "{args:?}");
    };
    let beating = |owner: &str| {
        let owner = owner.to_owned();
        let process = Process::spawn("writer", |_| {
            let mut command = Command::new(&cli);
            command.args(["-p", &port, "-r", "-1", "-i", "0.1"]);
            command.args(["SET", &format!("instance:heartbeat:{owner}"), "1", "PX", "3000"]);
            command
        });
        process.unwrap()
    };
    let (killed, kept) = (beating("ingest-1"), beating("ingest-2"));
    for n in 0..20 {
        run(&[
            "HSET",
            HASH,
            &format!("device-{n}"),
            if n % 2 == 0 { "ingest-1" } else { "ingest-2" },
        ]);
    }
    for owner in ["ingest-1", "ingest-2"] {
        wait::until("the writer beats", PATIENCE, || {
            world.run(&["EXISTS", &format!("instance:heartbeat:{owner}")]).int() == Some(1)
        });
    }
    let mut janitor = ready(&world.server.url(), settings(500)).await;
    assert_eq!(janitor.pass(false).await.unwrap().evicted_total(), 0);
    killed.kill();
    wait::until("the heartbeat is gone", PATIENCE, || {
        world.run(&["EXISTS", "instance:heartbeat:ingest-1"]).int() == Some(0)
    });
    let report = janitor.pass(false).await.unwrap();
    assert_eq!(report.evicted.get(&b"ingest-1"[..]), Some(&10));
    assert_eq!((report.evicted_total(), world.len()), (10, 10));
    assert!((0..20).all(|n| (n % 2 == 1) == (world.owner(&format!("device-{n}")).is_some())));
    drop(kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_that_recovers_before_the_second_check_keeps_all() {
    on_both(&[], |world| async move {
        world.claim_many("slow", 0..10);
        let back = std::sync::Arc::clone(&world);
        let mut janitor = ready(&world.server.url(), settings(100))
            .await
            .with_listener(at_first(is_settling, move || back.beat("slow")));
        assert_eq!(janitor.pass(false).await.unwrap().evicted_total(), 0);
        assert_eq!(world.len(), 10);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_hash_counts_as_empty() {
    on_both(&[], |world| async move {
        let mut janitor = ready(&world.server.url(), settings(0)).await;
        let report = janitor.pass(false).await.unwrap();
        assert_eq!((report.scanned, report.owners), (0, 0));
        assert_eq!(janitor.preview().await.unwrap().scanned, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_hash_in_one_large_page_is_handled() {
    on_both(&["--hash-max-listpack-entries", "5000"], |world| async move {
        world.claim_many("dead", 0..500);
        world.claim_many("alive", 0..50);
        world.beat("alive");
        assert_eq!(world.run(&["OBJECT", "ENCODING", HASH]).text(), "listpack");
        let mut janitor = ready(&world.server.url(), settings(0)).await;
        assert_eq!(janitor.pass(false).await.unwrap().evicted_total(), 500);
        assert_eq!(world.len(), 50);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_and_keys_may_be_any_bytes() {
    on_both(&[], |world| async move {
        let odd: &[&[u8]] = &[b"a b\n\xff", b"{x}", b"it's \"quoted\"", b"\x00"];
        for (n, owner) in odd.iter().enumerate() {
            world.run(&[b"HSET", HASH.as_bytes(), &[b'k', 0xfe, n as u8][..], owner]);
        }
        // One of these owners is alive.
        world.run(&[&b"SET"[..], &[b"instance:heartbeat:", odd[0]].concat(), b"1"]);
        world.run(&["HSET", HASH, "empty", ""]);
        let mut janitor = ready(&world.server.url(), settings(0)).await;
        let report = janitor.pass(false).await.unwrap();
        assert_eq!(
            (report.evicted_total(), report.skipped, report.endless),
            (3, 1, 1),
            "{report:?}"
        );
        assert_eq!(world.len(), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_in_json_is_found_and_whole_value_is_compared() {
    on_both(&[], |world| async move {
        world.claim("a", r#"{"instance":"dead","since":1}"#);
        world.claim("b", r#"{"instance":"alive","since":1}"#);
        world.claim("c", "not json");
        world.beat("alive");
        let mut with_pointer = settings(0);
        with_pointer.owner_at = OwnerAt::pointer("/instance").unwrap();
        let mut janitor = ready(&world.server.url(), with_pointer).await;
        let report = janitor.pass(false).await.unwrap();
        assert_eq!((report.evicted_total(), report.skipped), (1, 1));
        assert_eq!((world.owner("a"), world.len()), (None, 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numeric_ids_are_alive_in_every_spelling() {
    on_both(&[], |world| async move {
        for (key, value) in [
            ("float", r#"{"id":17.0}"#),
            ("integer", r#"{"id":17}"#),
            ("exponent", r#"{"id":1.7e1}"#),
            ("text", r#"{"id":"17"}"#),
            ("dead-float", r#"{"id":18.0}"#),
            ("dead-integer", r#"{"id":18}"#),
            ("float-beats", r#"{"id":19}"#),
            ("both-float", r#"{"id":20.0}"#),
            ("long", r#"{"id":12345678901234567890123}"#),
            ("dead-long", r#"{"id":12345678901234567890124}"#),
            ("negative", r#"{"id":-3.0}"#),
            ("fraction", r#"{"id":1.50}"#),
            ("percent", r#"{"id":"100% \"a b\""}"#),
            ("dead-percent", r#"{"id":"99%"}"#),
        ] {
            world.claim(key, value);
        }
        for owner in [
            "17",
            "19.0",
            "20.0",
            "12345678901234567890123",
            "-3",
            "1.50",
            "100% \"a b\"",
        ] {
            world.beat(owner);
        }
        let mut with_pointer = settings(50);
        with_pointer.owner_at = OwnerAt::pointer("/id").unwrap();
        let mut janitor = ready(&world.server.url(), with_pointer).await;
        let preview = janitor.preview().await.unwrap();
        let report = janitor.pass(false).await.unwrap();
        let gone = ["dead-float", "dead-integer", "dead-long", "dead-percent"];
        let mut listed: Vec<String> = preview
            .doomed
            .iter()
            .map(|entry| tenure_adopt::text(&entry.field))
            .collect();
        listed.sort();
        assert_eq!(
            (listed.as_slice(), report.evicted_total()),
            (&gone.map(str::to_owned)[..], 4)
        );
        assert!(gone.iter().all(|key| world.owner(key).is_none()));
        assert_eq!(world.len(), 10);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn preview_lists_evictions_and_writes_nothing() {
    on_both(&[], |world| async move {
        world.claim_many("dead", 0..1_500);
        world.claim_many("alive", 0..10);
        world.beat("alive");
        let mut janitor = ready(&world.server.url(), settings(30_000)).await;
        let preview = janitor.preview().await.unwrap();
        assert_eq!(preview.dead.get(&b"dead"[..]), Some(&1_500));
        assert_eq!(
            (preview.dead.len(), preview.doomed.len(), preview.owners),
            (1, 1_000, 2)
        );
        assert!(
            preview
                .doomed
                .iter()
                .all(|entry| entry.owner == b"dead" && entry.field.starts_with(b"dead-device-"))
        );
        assert_eq!(world.len(), 1_510);
        assert!(world.run(&["KEYS", "tenure:*"]).items().is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_janitors_count_each_entry_once() {
    on_both(&[], |world| async move {
        for round in 0..5 {
            for owner in ["dead-1", "dead-2", "dead-3"] {
                world.claim_many(owner, 0..2_000);
            }
            let passes = (0..4).map(|_| {
                let url = world.server.url();
                tokio::spawn(async move { ready(&url, settings(50)).await.pass(false).await.unwrap() })
            });
            let mut total = 0;
            for pass in passes.collect::<Vec<_>>() {
                total += pass.await.unwrap().evicted_total();
            }
            assert_eq!((total, world.len()), (6_000, 0), "round {round}");
        }
    })
    .await;
}
