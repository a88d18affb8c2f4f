//! The index: which sessions it contains, in which unit, how often it is updated, and how fast.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tenure_adopt::{DifferenceKind, Unit, WalkNotice};
use tenure_core::clock::{Clock, SystemClock};
use tenure_core::error::ErrorKind;
use tenure_core::time::StoreTime;
use tenure_testkit::valkey::Flavour;

use crate::sessions::world::{World, ago, hour_ago, indexed, reaper, sessions, settings};

#[tokio::test(flavor = "multi_thread")]
async fn only_disconnected_sessions_are_indexed_in_both_units() {
    for flavour in Flavour::ALL {
        for unit in [Unit::Seconds, Unit::Milliseconds] {
            let Some(world) = World::start(flavour) else { return };
            let (old, new) = (ago(3_600, unit), ago(1, unit));
            world.session("old", &old);
            world.session("new", &new);
            world.session("fraction", &format!("{old}.25"));
            for active in ["0", "", "0.0", "00"] {
                world.session(&format!("active-{active}"), active);
            }
            world.run(&["HSET", "session:never", "name", "x"]);
            world.run(&["SET", "session:old:refs", "0"]);
            world.run(&["SADD", "session:tags", "x"]);
            for (n, no_time) in ["soon", "-5", "1e9", "0x5", "99", "nan", " 1", "None"]
                .iter()
                .enumerate()
            {
                world.session(&format!("odd-{n}"), no_time);
            }
            world.run(&["HSET", "other:a", "last_disconnect", &old]);
            let mut settings = settings();
            settings.unit = unit;
            let sessions = sessions(&world.server.url(), settings).await;
            let report = sessions.index(&|_| {}).await.unwrap();
            let standing = report.counts;
            assert_eq!(
                (report.added, standing.disconnected, standing.active),
                (3, 3, 5),
                "{report:?}"
            );
            assert_eq!(
                (standing.not_hash, standing.invalid, standing.entries),
                (2, 8, 3),
                "{report:?}"
            );
            let entries = world.entries(sessions.index_key());
            let fraction = entries["fraction"].parse::<f64>().unwrap();
            assert!(
                (fraction - (old.parse::<f64>().unwrap() + 0.25)).abs() < 0.001,
                "{entries:?}"
            );
            assert_eq!((&entries["old"], &entries["new"], entries.len()), (&old, &new, 3));
        }
    }
}

/// An instant in the spellings of other languages' libraries.
#[tokio::test(flavor = "multi_thread")]
async fn iso_8601_times_are_indexed_and_reaped() {
    for flavour in Flavour::ALL {
        for unit in [Unit::Seconds, Unit::Milliseconds] {
            let Some(world) = World::start(flavour) else { return };
            // 2026-01-02T03:04:05.25Z
            let spellings = [
                ("z", "2026-01-02T03:04:05.25Z"),
                ("java", "2026-01-02T03:04:05.250000000Z"),
                ("python", "2026-01-02 03:04:05.250000+00:00"),
                ("east", "2026-01-02T05:34:05.25+02:30"),
                ("west", "2026-01-01T19:04:05.25-0800"),
                ("zone", "2026-01-02T04:04:05.25+01:00[Europe/Paris]"),
            ];
            for (id, text) in spellings {
                world.session(id, text);
            }
            world.session("minute", "2026-01-02T03:04Z");
            world.session("leap", "2024-02-29T23:59:60Z");
            for (n, no_time) in [
                "2026-01-02",
                "2026-01-02T03:04:05",
                "2026-13-02T03:04:05Z",
                "2026-02-30T03:04:05Z",
                "2026-01-02T24:04:05Z",
                "2026-01-02T03:04:05+25:00",
                "1970-01-01T00:00:00Z",
                "2999-01-01T00:00:00Z",
                "2026-01-02T03:04:05Z, or so",
            ]
            .iter()
            .enumerate()
            {
                world.session(&format!("odd-{n}"), no_time);
            }
            let mut settings = settings();
            settings.unit = unit;
            let sessions = sessions(&world.server.url(), settings.clone()).await;
            let report = sessions.index(&|_| {}).await.unwrap();
            assert_eq!((report.added, report.counts.invalid), (8, 9), "{report:?}");
            assert_eq!(sessions.index(&|_| {}).await.unwrap().changed(), 0, "a second pass");
            assert!(sessions.compare(None, &|_| {}).await.unwrap().is_equal());
            let entries = world.entries(sessions.index_key());
            let per_second = if unit == Unit::Seconds { 1.0 } else { 1_000.0 };
            for (id, _) in spellings {
                let seconds = entries[id].parse::<f64>().unwrap() / per_second;
                assert!((seconds - 1_767_323_045.25).abs() < 0.001, "{id} {entries:?}");
            }
            world.has_run_for_a_while().await;
            world.session("z", "0");
            world.session("java", &fresh_text());
            let mut reaper = reaper(&world.server.url(), settings).await;
            let done = reaper.pass().await.unwrap();
            assert_eq!((done.reaped, done.active, done.younger), (6, 1, 1), "{done:?}");
            assert!(world.has("session:z") && world.has("session:java") && !world.has("session:zone"));
        }
    }
}

/// A time slightly in the future, so that its session is no orphan during the test.
fn fresh_text() -> String {
    let micros = SystemClock::new().wall_micros() + 1_800 * 1_000_000;
    StoreTime::from_micros(micros).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn large_fields_are_not_times_and_hold_nothing_up() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        let large = "1".repeat(1 << 20);
        for n in 0..100 {
            world.session(&format!("large-{n}"), &large);
        }
        world.session("old", &hour_ago());
        world.run(&["HSET", "session:old", "broadcaster_id", &large]);
        let sessions = sessions(&world.server.url(), settings()).await;
        let report = sessions.index(&|_| {}).await.unwrap();
        assert_eq!((report.added, report.counts.invalid), (1, 100));
        world.has_run_for_a_while().await;
        let done = reaper(&world.server.url(), settings()).await.pass().await.unwrap();
        assert_eq!(done.reaped, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_unit_indexes_nothing() {
    let Some(world) = World::start(Flavour::Valkey) else {
        return;
    };
    for (told, read) in [(Unit::Seconds, Unit::Milliseconds), (Unit::Milliseconds, Unit::Seconds)] {
        world.session("a", &ago(3_600, told));
        let mut settings = settings();
        settings.unit = read;
        let report = sessions(&world.server.url(), settings)
            .await
            .index(&|_| {})
            .await
            .unwrap();
        assert_eq!((report.counts.invalid, report.counts.entries), (1, 0), "{read}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_passes_follow_changes() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        let old = hour_ago();
        for id in ["stays", "back", "again", "gone", "odd"] {
            world.session(id, &old);
        }
        let sessions = indexed(&world, settings()).await;
        assert_eq!(
            sessions.index(&|_| {}).await.unwrap().changed(),
            0,
            "a second pass changes nothing"
        );
        // Foreign entries, correct and wrong.
        let index = String::from_utf8(sessions.index_key().to_vec()).unwrap();
        world.session("theirs", &old);
        world.session("theirs-wrong", &old);
        world.run(&[
            "ZADD",
            &index,
            &old,
            "theirs",
            "7",
            "theirs-wrong",
            "8",
            "theirs-active",
        ]);
        world.session("theirs-active", "0");
        let newer = ago(60, Unit::Seconds);
        world.session("back", "0");
        world.session("again", &newer);
        world.run(&["DEL", "session:gone"]);
        world.session("odd", "what");
        world.session("late", &newer);
        let report = sessions.index(&|_| {}).await.unwrap();
        assert_eq!((report.added, report.updated, report.removed), (1, 1, 3), "{report:?}");
        let entries = world.entries(sessions.index_key());
        let wanted = [
            ("again", newer.as_str()),
            ("late", &newer),
            ("stays", &old),
            ("theirs", &old),
            ("theirs-active", "8"),
            ("theirs-wrong", "7"),
        ];
        assert_eq!(
            entries
                .iter()
                .map(|(id, score)| (id.as_str(), score.as_str()))
                .collect::<Vec<_>>(),
            wanted
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quiet_passes_count_passes_without_a_change() {
    let Some(world) = World::start(Flavour::Redis) else {
        return;
    };
    world.session("a", &hour_ago());
    let sessions = indexed(&world, settings()).await;
    // An old writer is still active.
    world.session("b", &hour_ago());
    let mut quiet = Vec::new();
    for _ in 0..3 {
        quiet.push(sessions.index(&|_| {}).await.unwrap().quiet);
    }
    assert_eq!(quiet, [0, 1, 2]);
    world.session("c", &hour_ago());
    assert_eq!(sessions.index(&|_| {}).await.unwrap().quiet, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_reports_the_changes_and_writes_nothing() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        (0..700).for_each(|n| world.session(&format!("{n}"), &hour_ago()));
        let sessions = sessions(&world.server.url(), settings()).await;
        let before = world.everything();
        let told = AtomicU64::new(0);
        let report = sessions
            .preview(&|notice| {
                if let WalkNotice::Difference(difference) = notice {
                    assert_eq!(difference.kind, DifferenceKind::Missing);
                    told.fetch_add(1, Relaxed);
                }
            })
            .await
            .unwrap();
        assert_eq!((report.added, report.quiet, told.load(Relaxed)), (700, 0, 700));
        assert!(world.everything() == before);
        assert_eq!(sessions.index(&|_| {}).await.unwrap().added, 700);
        world.session("5", "0");
        let before = world.everything();
        let report = sessions.preview(&|_| {}).await.unwrap();
        assert_eq!((report.added, report.removed), (0, 1));
        assert!(world.everything() == before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_pass_can_run_again() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        let fill = "for i = 1, 5000 do redis.call('HSET', 'session:' .. i, 'last_disconnect', ARGV[1]) end";
        world.run(&["EVAL", fill, "0", &hour_ago()]);
        let sessions = sessions(&world.server.url(), settings()).await;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let stop = std::sync::Mutex::new(Some(stop));
        let listener = move |notice: &WalkNotice<'_>| {
            if let WalkNotice::Page { scanned: 2_000.., .. } = notice
                && let Some(stop) = stop.lock().unwrap().take()
            {
                stop.send(()).unwrap();
            }
        };
        tokio::select! {
            biased;
            _ = stopped => {}
            done = sessions.index(&listener) => panic!("the pass was not interrupted: {done:?}"),
        }
        let found = world.entries(sessions.index_key()).len() as u64;
        assert!((1_000..5_000).contains(&found), "{found}");
        let report = sessions.index(&|_| {}).await.unwrap();
        // Entries in flight at the interruption count for either run.
        assert_eq!((report.added + found).min(5_000), 5_000, "{report:?}");
        assert_eq!(world.entries(sessions.index_key()).len(), 5_000);
        assert!(sessions.compare(None, &|_| {}).await.unwrap().is_equal());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limits_the_commands() {
    let Some(world) = World::start(Flavour::Valkey) else {
        return;
    };
    let fill = "for i = 1, 4000 do redis.call('HSET', 'session:' .. i, 'last_disconnect', ARGV[1]) end";
    world.run(&["EVAL", fill, "0", &hour_ago()]);
    let mut slow = settings();
    slow.rate = 2_000;
    let sessions = sessions(&world.server.url(), slow).await;
    let calls = |command: &str| {
        let stats = world.run(&["INFO", "commandstats"]).text();
        let line = stats.lines().find_map(|line| {
            line.strip_prefix(&format!("cmdstat_{command}:calls="))
                .map(str::to_owned)
        });
        line.map_or(0, |line| line.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    let clock = SystemClock::new();
    let (before, begun) = (calls("scan"), clock.mono());
    sessions.index(&|_| {}).await.unwrap();
    let (pages, took) = (calls("scan") - before, clock.mono().since(begun));
    // Each page scans 200 keys and pauses for a tenth of a second, except the last one.
    assert!(pages >= 10, "{pages} pages of 4,000 keys");
    assert!(
        took.as_millis() as u64 >= (pages - 1) * 100,
        "{pages} pages in {took:?}"
    );
    let scripts = calls("evalsha") + calls("eval");
    assert!(scripts <= 2 * pages + 30, "{scripts} steps for {pages} pages");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_index_key_is_rejected_without_a_write() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        world.session("a", &hour_ago());
        world.run(&["SET", "taken", "x"]);
        let before = world.everything();
        let mut settings = settings();
        settings.index = Some("taken".to_owned());
        let sessions = sessions(&world.server.url(), settings).await;
        let error = sessions.index(&|_| {}).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains("not a sorted set"), "{error}");
        assert!(world.everything() == before);
    }
}
