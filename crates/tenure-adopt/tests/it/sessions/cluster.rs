//! A cluster, in which one step can access only the keys of one slot.

use std::sync::Arc;

use tenure_adopt::{KeyPattern, KeyTemplate, Reaper, SessionSettings};
use tenure_core::error::ErrorKind;
use tenure_testkit::port::Port;
use tenure_testkit::valkey::Flavour;
use tenure_testkit::wait;

use crate::sessions::world::{FIELD, PATIENCE, World, hour_ago, indexed, reaping, sessions, settings};

/// A cluster of one node, which rejects the same commands as a larger one.
fn cluster(flavour: Flavour) -> Option<Arc<World>> {
    // Nodes use a second port, whose default may be taken. It is reserved while the tests run.
    let bus = Box::leak(Box::new(Port::reserve())).number().to_string();
    let world = World::with(flavour, &["--cluster-enabled", "yes", "--cluster-port", &bus])?;
    world.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    wait::until("the cluster is up", PATIENCE, || {
        world.run(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok")
    });
    Some(world)
}

fn of_pattern(pattern: &str) -> SessionSettings {
    SessionSettings {
        pattern: KeyPattern::parse(pattern).unwrap(),
        ..settings()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_rejects_keys_in_different_slots() {
    for flavour in Flavour::ALL {
        let Some(world) = cluster(flavour) else { return };
        world.session("a", &hour_ago());
        let error = sessions(&world.server.url(), of_pattern("session:*"))
            .await
            .index(&|_| {})
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.to_string().contains("hash tag"), "{error}");
        let tagged = sessions(&world.server.url(), of_pattern("{app}:session:*")).await;
        let mut reaper = Reaper::new(tagged, reaping()).unwrap();
        for error in [reaper.pass().await.unwrap_err(), reaper.preview().await.unwrap_err()] {
            assert!(error.to_string().contains("session:{id}:refs"), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_works_with_one_hash_tag() {
    for flavour in Flavour::ALL {
        let Some(world) = cluster(flavour) else { return };
        world.run(&["HSET", "{app}:session:a", FIELD, &hour_ago(), "b", "x"]);
        world.run(&["SET", "{app}:alias:x", "a"]);
        let settings = of_pattern("{app}:session:*");
        let all = indexed(&world, settings.clone()).await;
        assert!(all.compare(None, &|_| {}).await.unwrap().is_equal());
        world.has_run_for_a_while().await;
        let mut reaping = reaping();
        reaping.refs = vec![KeyTemplate::parse("{app}:session:{id}:refs").unwrap()];
        reaping.aliases = vec![KeyTemplate::parse("{app}:alias:{field:b}").unwrap()];
        let mut reaper = Reaper::new(all, reaping).unwrap();
        assert_eq!(reaper.pass().await.unwrap().reaped, 1);
        reaper.close().await;
        sessions(&world.server.url(), settings).await.undo().await.unwrap();
        assert!(world.run(&["KEYS", "*"]).items().is_empty());
    }
}
