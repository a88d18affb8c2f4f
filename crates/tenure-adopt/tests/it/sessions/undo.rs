//! An undo leaves what was there before, and what others have made of it since.

use tenure_adopt::{UndoReport, Unit};
use tenure_testkit::valkey::Flavour;

use crate::sessions::world::{World, ago, hour_ago, indexed, settings};

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_leaves_every_byte_as_it_was() {
    for flavour in Flavour::ALL {
        for index in [None, Some("disconnected")] {
            let Some(world) = World::start(flavour) else { return };
            (0..950).for_each(|n| world.session(&format!("{n}"), &hour_ago()));
            // An index of others, large enough that its encoding does not depend on what we add.
            for n in 0..300 {
                world.run(&["ZADD", "disconnected", &hour_ago(), &format!("theirs-{n}")]);
            }
            let before = (world.everything(), world.entries(b"disconnected"));
            let mut settings = settings();
            settings.index = index.map(str::to_owned);
            let sessions = indexed(&world, settings).await;
            sessions.index(&|_| {}).await.unwrap();
            assert!(world.everything() != before.0);
            let changed = world.everything();
            let told = sessions.preview_undo().await.unwrap();
            assert!(world.everything() == changed, "a dry run writes nothing");
            let undone = sessions.undo().await.unwrap();
            assert_eq!(
                (undone, told),
                (
                    UndoReport {
                        removed: 950,
                        ..UndoReport::default()
                    },
                    undone
                )
            );
            assert_eq!(world.entries(b"disconnected"), before.1);
            assert!(world.everything().keys().eq(before.0.keys()), "no key of ours is left");
            // The order of entries within a dump of a sorted set follows from its members alone.
            assert!(world.everything() == before.0, "{flavour:?} {index:?}");
            assert_eq!(sessions.undo().await.unwrap(), UndoReport::default(), "and again");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_changed_since_stays() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        let (old, newer) = (hour_ago(), ago(60, Unit::Seconds));
        for id in ["ours", "moved", "removed", "followed", "moved-last"] {
            world.session(id, &old);
        }
        world.session("theirs", &old);
        world.run(&["ZADD", "disconnected", &old, "theirs"]);
        let mut settings = settings();
        settings.index = Some("disconnected".to_owned());
        let sessions = indexed(&world, settings).await;
        world.run(&["ZADD", "disconnected", &newer, "moved"]);
        world.run(&["ZREM", "disconnected", "removed"]);
        // This one we gave the new time ourselves.
        world.session("followed", &newer);
        sessions.index(&|_| {}).await.unwrap();
        world.run(&["ZADD", "disconnected", "7", "later"]);
        // After the last pass, so that only the undo can tell.
        world.run(&["ZADD", "disconnected", &newer, "moved-last"]);
        let undone = sessions.undo().await.unwrap();
        assert_eq!(
            (undone.removed, undone.not_ours),
            (3, 1),
            "ours, followed, and removed, which the second pass added: {undone:?}"
        );
        let left = world.entries(b"disconnected");
        assert_eq!(
            left.keys().collect::<Vec<_>>(),
            ["later", "moved", "moved-last", "theirs"]
        );
        assert!(world.run(&["KEYS", "tenure:*"]).items().is_empty());
    }
}
