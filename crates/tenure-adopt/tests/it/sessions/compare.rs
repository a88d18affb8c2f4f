//! A comparison finds every planted difference and changes none.

use std::collections::BTreeSet;

use tenure_adopt::{Comparison, Unit};
use tenure_core::time::StoreTime;
use tenure_testkit::valkey::Flavour;

use crate::sessions::world::{World, ago, hour_ago, indexed, settings};

fn listed(found: &Comparison) -> BTreeSet<(String, &'static str, bool)> {
    let each = found.listed.iter().map(|difference| {
        let id = String::from_utf8(difference.id.clone()).unwrap();
        (id, difference.kind.as_str(), difference.ours)
    });
    each.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_differences_are_found_in_both_directions() {
    for flavour in Flavour::ALL {
        for index in [None, Some("disconnected")] {
            let Some(world) = World::start(flavour) else { return };
            (0..1_500).for_each(|n| world.session(&format!("{n}"), &hour_ago()));
            (0..50).for_each(|n| world.session(&format!("active-{n}"), "0"));
            let mut settings = settings();
            settings.index = index.map(str::to_owned);
            let sessions = indexed(&world, settings).await;
            let equal = sessions.compare(None, &|_| {}).await.unwrap();
            assert!(equal.is_equal(), "{equal:?}");
            assert_eq!((equal.counts.disconnected, equal.counts.entries), (1_500, 1_500));

            let key = String::from_utf8(sessions.index_key().to_vec()).unwrap();
            world.run(&["ZREM", &key, "3"]);
            world.run(&["ZADD", &key, "5", "4", "6", "unknown", "7", "active-1"]);
            world.session("5", "0");
            world.session("6", &ago(60, Unit::Seconds));
            world.run(&["DEL", "session:7"]);
            world.session("8", "nonsense");
            let before = world.everything();
            let found = sessions.compare(None, &|_| {}).await.unwrap();
            let wanted = [
                ("3", "missing", true),
                ("4", "differing", false),
                ("unknown", "extra", false),
                ("active-1", "extra", false),
                ("5", "extra", true),
                ("6", "differing", true),
                ("7", "extra", true),
                ("8", "extra", true),
            ];
            let wanted = wanted.map(|(id, kind, ours)| (id.to_owned(), kind, ours));
            assert_eq!(listed(&found), BTreeSet::from(wanted));
            assert_eq!((found.missing, found.differing, found.extra), (1, 2, 5));
            assert!(world.everything() == before, "a comparison changes nothing");

            // Our entries are corrected; foreign ones are reported again.
            sessions.index(&|_| {}).await.unwrap();
            let found = sessions.compare(None, &|_| {}).await.unwrap();
            assert_eq!((found.missing, found.differing, found.extra), (0, 1, 2), "{found:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_disconnected_after_a_pass_is_not_missing() {
    for unit in [Unit::Seconds, Unit::Milliseconds] {
        let Some(world) = World::start(Flavour::Valkey) else {
            return;
        };
        let mut settings = settings();
        settings.unit = unit;
        let sessions = indexed(&world, settings).await;
        world.session("overlooked", &ago(60, unit));
        world.session("fresh", &ago(0, unit));
        let since = StoreTime::from_micros(ago(10, Unit::Milliseconds).parse::<u64>().unwrap() * 1_000);
        let found = sessions.compare(Some(since), &|_| {}).await.unwrap();
        assert_eq!((found.missing, found.fresh), (1, 1), "{found:?}");
        assert_eq!(sessions.compare(None, &|_| {}).await.unwrap().missing, 2);
    }
}
