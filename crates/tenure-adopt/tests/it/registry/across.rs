//! The passes of a daemon: owners settle across passes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_adopt::{Break, Listener, Notice};

use crate::registry::world::{Daemon, World, on_both, settings};

/// Longer than a short stall, so that several quick passes fit into it.
const SETTLE_MS: u64 = 4_000;

fn claimed(world: &World, owners: &[&str]) {
    for owner in owners {
        world.claim(&format!("device-{owner}"), owner);
        world.beat(owner);
    }
}

/// A janitor's checks and evictions, in order.
fn heard() -> (Arc<Mutex<Vec<String>>>, Listener) {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&told);
    let listener: Listener = Box::new(move |notice| {
        let line = match notice {
            Notice::Settling { absent, .. } => format!("{absent} settling"),
            Notice::Evicted { owner, .. } => format!("{} evicted", String::from_utf8_lossy(owner)),
            _ => return,
        };
        heard.lock().unwrap().push(line);
    });
    (told, listener)
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_settle_across_passes() {
    on_both(&[], |world| async move {
        claimed(&world, &["a", "b", "kept"]);
        let (told, listener) = heard();
        let mut daemon = Daemon::ready(&world.server.url(), settings(SETTLE_MS), Some(listener)).await;
        world.die("a");
        assert_eq!(daemon.quick().await.evicted_total(), 0);
        world.die("b");
        assert_eq!(daemon.quick().await.evicted_total(), 0);
        daemon
            .passes("b is evicted", |report| report.evicted.contains_key(&b"b"[..]))
            .await;
        assert_eq!(
            *told.lock().unwrap(),
            ["1 settling", "1 settling", "a evicted", "b evicted"]
        );
        assert_eq!((world.len(), world.owner("device-kept").as_deref()), (1, Some("kept")));
        let report = daemon.quick().await;
        assert_eq!((report.evicted_total(), report.dead.len()), (0, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn break_between_passes_restarts_the_checks() {
    on_both(&[], |world| async move {
        claimed(&world, &["a"]);
        world.die("a");
        let mut daemon = Daemon::ready(&world.server.url(), settings(SETTLE_MS), None).await;
        daemon.quick().await;
        world.run(&["FLUSHALL"]);
        claimed(&world, &["a"]);
        world.die("a");
        let broken = daemon.quick().await;
        assert_eq!(broken.breaks, [Break::DataLost]);
        assert_eq!(
            broken.quarantined,
            Some(Break::DataLost),
            "the settling does not end with the pass"
        );
        let done = daemon
            .passes("the entry is evicted", |report| report.evicted_total() > 0)
            .await;
        assert_eq!((done.quarantined, world.len()), (None, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mass_death_across_passes_is_braked() {
    on_both(&[], |world| async move {
        let owners: Vec<String> = (0..12).map(|n| format!("i-{n}")).collect();
        let owners: Vec<&str> = owners.iter().map(String::as_str).collect();
        claimed(&world, &owners);
        let mut braking = settings(SETTLE_MS);
        braking.brake.hold = Duration::from_secs(6);
        let mut daemon = Daemon::ready(&world.server.url(), braking, None).await;
        // Neither part alone exceeds half.
        owners[..4].iter().for_each(|owner| world.die(owner));
        daemon.quick().await;
        owners[4..8].iter().for_each(|owner| world.die(owner));
        daemon.quick().await;
        let held = daemon
            .passes("the owners are confirmed dead", |report| !report.dead.is_empty())
            .await;
        assert_eq!(held.braked.map(|brake| brake.lapsed), Some(8));
        assert_eq!(world.len(), 12);
        // The held owners stay due, and are evicted when the brake ends.
        daemon.passes("the brake ends", |_| world.len() == 4).await;
        assert!(
            owners[8..]
                .iter()
                .all(|owner| world.owner(&format!("device-{owner}")).is_some())
        );
    })
    .await;
}
