//! Invalid settings are rejected with advice.

use tenure_adopt::AdoptSettings;
use tenure_core::error::ErrorKind;
use tenure_testkit::port::Port;
use tenure_testkit::valkey::Flavour;
use tenure_testkit::wait;

use crate::registry::world::{HASH, PATIENCE, World, on_both, ready, settings};

#[tokio::test(flavor = "multi_thread")]
async fn error_names_a_key_of_another_type() {
    on_both(&[], |world| async move {
        for (make, kind) in [
            (&["SET", HASH, "x"][..], "string"),
            (&["SADD", HASH, "x"], "set"),
            (&["ZADD", HASH, "1", "x"], "zset"),
        ] {
            world.run(&["DEL", HASH]);
            world.run(make);
            let mut janitor = ready(&world.server.url(), settings(0)).await;
            for error in [
                janitor.pass(false).await.unwrap_err(),
                janitor.preview().await.unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Misconfigured);
                let told = error.to_string();
                assert!(
                    told.contains(&format!("holds a {kind}, not a hash")) && told.contains(HASH),
                    "{told}"
                );
            }
        }
    })
    .await;
}

#[test]
fn invalid_settings_are_rejected() {
    for (hash, heartbeat, must_say) in [
        ("", "hb:{id}", "hash is empty"),
        ("h", "hb:", "{id}"),
        ("h", "{id}{id}", "several"),
    ] {
        let error = AdoptSettings::new(hash, heartbeat).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(must_say), "{error}");
    }
    let usual = AdoptSettings::new("h", "hb:{id}").unwrap();
    assert!(
        usual
            .clone()
            .with_settle("25h")
            .unwrap_err()
            .to_string()
            .contains("24h")
    );
    assert!(usual.with_settle("soon").is_err());
}

/// A cluster of one node, which rejects the same commands as a larger one.
fn cluster(flavour: Flavour) -> Option<std::sync::Arc<World>> {
    // Nodes use a second port, whose default may be taken. It is reserved while the tests run.
    let bus = Box::leak(Box::new(Port::reserve())).number().to_string();
    let world = World::with(flavour, &["--cluster-enabled", "yes", "--cluster-port", &bus])?;
    world.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    wait::until("the cluster is up", PATIENCE, || {
        world.run(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok")
    });
    Some(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_rejects_hash_and_heartbeats_in_different_slots() {
    for flavour in Flavour::ALL {
        let Some(world) = cluster(flavour) else { return };
        world.claim("device", "dead");
        let mut with_info = ready(&world.server.url(), settings(0)).await;
        world.run(&[
            "ACL", "SETUSER", "blind", "on", ">pass", "~*", "+@all", "-info", "-cluster",
        ]);
        let blind = world.server.url().replace("://", "://blind:pass@");
        let mut without_info = ready(&blind, settings(0)).await;
        for error in [
            with_info.pass(false).await.unwrap_err(),
            without_info.pass(false).await.unwrap_err(),
            without_info.preview().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
            assert!(
                error.to_string().contains("slot 1337") && error.to_string().contains("hash tag"),
                "{error}"
            );
        }
        assert_eq!(world.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_works_with_one_hash_tag() {
    for flavour in Flavour::ALL {
        let Some(world) = cluster(flavour) else { return };
        for (hash, template) in [
            ("{fleet}:registry", "{fleet}:heartbeat:{id}"),
            ("fleet", "{fleet}:heartbeat:{id}"),
        ] {
            world.run(&["HSET", hash, "device", "dead", "other", "alive"]);
            world.run(&["SET", "{fleet}:heartbeat:alive", "1", "EX", "90"]);
            let mut adopted = AdoptSettings::new(hash, template).unwrap();
            adopted.settle = std::time::Duration::from_millis(50);
            let mut janitor = ready(&world.server.url(), adopted).await;
            assert_eq!(janitor.pass(false).await.unwrap().evicted_total(), 1, "{hash}");
            assert_eq!(world.run(&["HGETALL", hash]).texts(), ["other", "alive"]);
        }
    }
}
