//! Which sessions are reaped, which keys are deleted with them, and which are kept.

use std::collections::BTreeMap;

use tenure_adopt::{KeyTemplate, Reaper, Unit};
use tenure_testkit::valkey::Flavour;

use crate::sessions::world::{World, ago, fresh, hour_ago, indexed, reaper, reaping, sessions, settings};

#[tokio::test(flavor = "multi_thread")]
async fn orphans_are_deleted_with_their_count_and_alias() {
    for flavour in Flavour::ALL {
        for unit in [Unit::Seconds, Unit::Milliseconds] {
            let Some(world) = World::start(flavour) else { return };
            let old = ago(3_600, unit);
            let ids = [
                "orphan",
                "plain",
                "by-key",
                "counted",
                "odd-count",
                "set-count",
                "active",
                "younger",
                "moved",
                "list",
                "gone",
                "new",
            ];
            ids.iter().for_each(|id| world.session(id, &old));
            world.session("new", &fresh(unit));
            for id in ["orphan", "by-key", "counted", "active", "moved"] {
                world.run(&["HSET", &format!("session:{id}"), "broadcaster_id", &format!("b-{id}")]);
                world.run(&["SET", &format!("alias:b-{id}"), id]);
                world.run(&["SET", &format!("session:{id}:refs"), "0"]);
            }
            world.run(&["SET", "alias:b-by-key", "session:by-key"]);
            world.run(&["SET", "session:counted:refs", "2"]);
            world.run(&["SET", "session:odd-count:refs", "-1"]);
            world.run(&["SADD", "session:set-count:refs", "someone"]);
            let mut settings = settings();
            settings.unit = unit;
            let sessions = indexed(&world, settings.clone()).await;
            // Changes since the index pass.
            world.session("active", "0");
            world.session("younger", &fresh(unit));
            world.run(&["SET", "alias:b-moved", "another"]);
            world.run(&["DEL", "session:list", "session:gone"]);
            world.run(&["RPUSH", "session:list", "x"]);
            world.has_run_for_a_while().await;

            let mut reaper = reaper(&world.server.url(), settings).await;
            let before = world.everything();
            let told = reaper.preview().await.unwrap();
            assert!(world.everything() == before, "a dry run writes nothing");
            let done = reaper.pass().await.unwrap();
            assert_eq!((done.quarantined.clone(), done.limited), (None, false));
            for report in [&told, &done] {
                assert_eq!(
                    (report.reaped, report.without_session, report.active),
                    (4, 1, 1),
                    "{report:?}"
                );
                assert_eq!(
                    (report.referenced, report.not_hash, report.invalid),
                    (3, 1, 0),
                    "{report:?}"
                );
                assert_eq!(report.younger, 1, "{report:?}");
            }
            for gone in ["orphan", "plain", "by-key", "moved"] {
                assert!(!world.has(&format!("session:{gone}")), "{gone}");
                assert!(!world.has(&format!("session:{gone}:refs")), "{gone}");
            }
            assert!(!world.has("alias:b-orphan") && !world.has("alias:b-by-key"));
            for kept in ["active", "younger", "new", "counted", "odd-count", "set-count", "list"] {
                assert!(world.has(&format!("session:{kept}")), "{kept}");
            }
            assert_eq!(world.run(&["GET", "alias:b-moved"]).text(), "another");
            for kept in ["alias:b-counted", "alias:b-active", "session:active:refs"] {
                assert!(world.has(kept), "{kept}");
            }
            let left = world.entries(sessions.index_key());
            let wanted = ["counted", "list", "new", "odd-count", "set-count", "younger"];
            assert_eq!(
                left.keys().collect::<Vec<_>>(),
                wanted,
                "the active session is removed from the index as well"
            );
            assert_eq!(reaper.pass().await.unwrap().reaped, 0);
            assert_eq!(reaper.close().await, 0);
            assert!(world.run(&["KEYS", "*:reaper:*"]).items().is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_entries_are_removed_only_with_their_session() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        let old = hour_ago();
        world.session("orphan", &old);
        world.session("active", "0");
        world.session("younger", &fresh(Unit::Seconds));
        for id in ["orphan", "active", "younger", "gone"] {
            world.run(&["ZADD", "disconnected", &old, id]);
        }
        world.has_run_for_a_while().await;
        let mut shared = settings();
        shared.index = Some("disconnected".to_owned());
        let report = reaper(&world.server.url(), shared).await.pass().await.unwrap();
        assert_eq!((report.reaped, report.without_session), (1, 1), "{report:?}");
        assert_eq!((report.active, report.younger, report.looked), (1, 1, 4), "{report:?}");
        let left: BTreeMap<_, _> = [("active".to_owned(), old.clone()), ("younger".to_owned(), old)].into();
        assert_eq!(world.entries(b"disconnected"), left);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_sessions_do_not_block_later_orphans() {
    let Some(world) = World::start(Flavour::Valkey) else {
        return;
    };
    let fill = "for i = 1, 450 do redis.call('HSET', 'session:kept-' .. i, 'last_disconnect', ARGV[1]) \
                redis.call('SET', 'session:kept-' .. i .. ':refs', 1) end \
                for i = 1, 350 do redis.call('HSET', 'session:orphan-' .. i, 'last_disconnect', ARGV[1]) end";
    // All in the same second.
    world.run(&["EVAL", fill, "0", &hour_ago()]);
    indexed(&world, settings()).await;
    world.has_run_for_a_while().await;
    let mut limited = reaping();
    limited.limit = Some(130);
    let sessions = sessions(&world.server.url(), settings()).await;
    let mut first = Reaper::new(sessions, limited).unwrap();
    let report = first.pass().await.unwrap();
    assert_eq!((report.reaped, report.limited), (130, true), "{report:?}");
    let report = reaper(&world.server.url(), settings()).await.pass().await.unwrap();
    assert_eq!((report.reaped, report.referenced), (220, 450), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_reapers_reap_each_orphan_once() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        let fill = "for i = 1, 3000 do redis.call('HSET', 'session:' .. i, 'last_disconnect', ARGV[1] + i % 50) end";
        world.run(&["EVAL", fill, "0", &hour_ago()]);
        indexed(&world, settings()).await;
        world.has_run_for_a_while().await;
        let reapers = [(); 4].map(|()| {
            let url = world.server.url();
            tokio::spawn(async move {
                let mut reaper = reaper(&url, settings()).await;
                reaper.pass().await.unwrap().reaped + reaper.pass().await.unwrap().reaped
            })
        });
        let mut total = 0;
        for reaper in reapers {
            total += reaper.await.unwrap();
        }
        assert_eq!(total, 3_000);
        assert!(world.run(&["KEYS", "session:*"]).items().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn multiple_templates_and_hash_tags_are_literal() {
    let Some(world) = World::start(Flavour::Redis) else {
        return;
    };
    world.run(&["HSET", "{app}:s:1", "off", &hour_ago(), "b", "x", "empty", ""]);
    for key in ["{app}:b:x", "{app}:c:x:1", "{app}:none:"] {
        world.run(&["SET", key, "1"]);
    }
    let mut settings = settings();
    settings.pattern = tenure_adopt::KeyPattern::parse("{app}:s:*").unwrap();
    settings.field = "off".to_owned();
    indexed(&world, settings.clone()).await;
    world.has_run_for_a_while().await;
    let mut reaping = reaping();
    reaping.refs = Vec::new();
    reaping.aliases = [
        "{app}:b:{field:b}",
        "{app}:c:{field:b}:{id}",
        "{app}:none:{field:empty}",
    ]
    .map(|template| KeyTemplate::parse(template).unwrap())
    .into();
    let sessions = sessions(&world.server.url(), settings).await;
    assert_eq!(Reaper::new(sessions, reaping).unwrap().pass().await.unwrap().reaped, 1);
    let left = world.run(&["KEYS", "{app}:*"]).texts();
    assert_eq!(left, ["{app}:none:"], "a template without its field makes no key");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reaper_never_scans() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        world.session("orphan", &hour_ago());
        world.session("active", "0");
        indexed(&world, settings()).await;
        world.has_run_for_a_while().await;
        world.run(&["CONFIG", "RESETSTAT"]);
        let mut reaper = reaper(&world.server.url(), settings()).await;
        for reaped in [1, 0, 0] {
            assert_eq!(reaper.pass().await.unwrap().reaped, reaped);
        }
        let stats = world.run(&["INFO", "commandstats"]).text();
        for never in ["cmdstat_scan", "cmdstat_keys", "cmdstat_zscan", "cmdstat_hscan"] {
            assert!(!stats.contains(&format!("{never}:")), "{stats}");
        }
    }
}
