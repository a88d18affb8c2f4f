//! A cluster, where one step can only look at keys of one slot.

use std::sync::Arc;

use tenure_adopt::{KeyPattern, KeyTemplate, Reaper, SessionSettings};
use tenure_core::error::ErrorKind;
use tenure_testkit::port::Port;
use tenure_testkit::valkey::Flavour;
use tenure_testkit::wait;

use crate::sessions::world::{FIELD, PATIENCE, World, hour_ago, indexed, reaping, sessions, settings};

/// A cluster of one node, which refuses what a cluster of many refuses.
fn cluster(flavour: Flavour) -> Option<Arc<World>> {
    // Nodes talk over a second port; the usual one may be somebody else's. It is kept for as long as the tests run.
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
async fn in_a_cluster_keys_in_different_slots_are_refused_with_the_reason() {
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
async fn in_a_cluster_one_hash_tag_makes_it_work() {
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
