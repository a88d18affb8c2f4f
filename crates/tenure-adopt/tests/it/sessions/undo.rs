//! An undo restores the previous keys, except for changes of other programs.

use tenure_adopt::{UndoReport, Unit};
use tenure_testkit::valkey::Flavour;

use crate::sessions::world::{World, ago, hour_ago, indexed, settings};

#[tokio::test(flavor = "multi_thread")]
async fn undo_restores_every_key() {
    for flavour in Flavour::ALL {
        for index in [None, Some("disconnected")] {
            let Some(world) = World::start(flavour) else { return };
            (0..950).for_each(|n| world.session(&format!("{n}"), &hour_ago()));
            // A foreign index that is large enough to keep its encoding when entries are added.
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
            assert!(
                world.everything().keys().eq(before.0.keys()),
                "none of our keys is left"
            );
            // The dump of a sorted set depends on its members alone, except for their order.
            assert!(world.everything() == before.0, "{flavour:?} {index:?}");
            assert_eq!(sessions.undo().await.unwrap(), UndoReport::default(), "and again");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn undo_keeps_foreign_changes() {
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
        // We updated this entry's time ourselves.
        world.session("followed", &newer);
        sessions.index(&|_| {}).await.unwrap();
        world.run(&["ZADD", "disconnected", "7", "later"]);
        // After the last pass, so that only the undo can notice.
        world.run(&["ZADD", "disconnected", &newer, "moved-last"]);
        let undone = sessions.undo().await.unwrap();
        assert_eq!(
            (undone.removed, undone.not_ours),
            (3, 1),
            "our entries, including those of the second pass: {undone:?}"
        );
        let left = world.entries(b"disconnected");
        assert_eq!(
            left.keys().collect::<Vec<_>>(),
            ["later", "moved", "moved-last", "theirs"]
        );
        assert!(world.run(&["KEYS", "tenure:*"]).items().is_empty());
    }
}
