//! The brake on a real keyspace: a suspected mass death is held back for a bounded time.

use std::time::Duration;

use tenure_adopt::{AdoptSettings, Notice};
use tenure_testkit::valkey::Flavour;
use tenure_testkit::wait::until_async;

use crate::registry::world::{PATIENCE, World, on_both, ready, settings};

fn holding(hold: Duration) -> AdoptSettings {
    let mut settings = settings(50);
    settings.brake.hold = hold;
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn flushed_heartbeats_evict_only_truly_dead_owners() {
    on_both(&[], |world| async move {
        for n in 0..100 {
            world.claim(&format!("device-{n}"), &format!("i-{n}"));
        }
        let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let heard = std::sync::Arc::clone(&told);
        let mut janitor = ready(&world.server.url(), settings(50))
            .await
            .with_listener(Box::new(move |notice| {
                if let Notice::Braked(_) | Notice::Unbraked(_) = notice {
                    heard.lock().unwrap().push(format!("{notice:?}"));
                }
            }));
        let report = janitor.pass(false).await.unwrap();
        let brake = report.braked.unwrap();
        assert_eq!((brake.lapsed, brake.present, report.evicted_total()), (100, 0, 0));
        assert_eq!(brake.until.since(brake.since), Duration::from_secs(300));
        assert_eq!(
            janitor.preview().await.unwrap().braked.map(|brake| brake.lapsed),
            Some(100)
        );
        (0..99).for_each(|n| world.beat(&format!("i-{n}")));
        let report = janitor.pass(false).await.unwrap();
        assert_eq!((report.braked, report.evicted_total(), world.len()), (None, 1, 99));
        let told = told.lock().unwrap();
        assert!(told.len() == 2 && told[1].contains("recovered"), "{told:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn brake_ends_in_time_for_separate_processes() {
    on_both(&[], |world| async move {
        for n in 0..20 {
            world.claim(&format!("device-{n}"), &format!("i-{n}"));
        }
        (0..5).for_each(|n| world.beat(&format!("i-{n}")));
        let hold = Duration::from_millis(600);
        // Each run uses a new janitor, as with cron.
        let first = ready(&world.server.url(), holding(hold))
            .await
            .pass(false)
            .await
            .unwrap();
        let engaged = first.braked.unwrap();
        assert_eq!((engaged.lapsed, engaged.present), (15, 5));
        let second = ready(&world.server.url(), holding(hold))
            .await
            .pass(false)
            .await
            .unwrap();
        if let Some(braked) = second.braked {
            assert_eq!(braked.since, engaged.since, "the same brake");
        }
        until_async("the brake ends and the ghosts are evicted", PATIENCE, || async {
            ready(&world.server.url(), holding(hold))
                .await
                .pass(false)
                .await
                .unwrap();
            world.len() == 5
        })
        .await;
        assert!(world.run(&["KEYS", "tenure:*:brake"]).items().is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_overrides_the_brake() {
    on_both(&[], |world| async move {
        for n in 0..20 {
            world.claim(&format!("device-{n}"), &format!("i-{n}"));
        }
        let mut janitor = ready(&world.server.url(), settings(0)).await;
        assert!(janitor.pass(false).await.unwrap().braked.is_some());
        let report = janitor.pass(true).await.unwrap();
        assert_eq!((report.braked, report.evicted_total(), world.len()), (None, 20, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_fleet_is_never_braked() {
    let Some(world) = World::start(Flavour::Valkey) else {
        return;
    };
    for owner in ["one", "two"] {
        world.claim("device", owner);
        let mut janitor = ready(&world.server.url(), settings(0)).await;
        assert_eq!(janitor.pass(false).await.unwrap().evicted_total(), 1);
    }
}
