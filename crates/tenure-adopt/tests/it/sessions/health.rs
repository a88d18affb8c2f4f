//! A store outage disconnects no session: after it, every session gets the full age again.

use std::sync::Arc;
use std::time::Duration;

use tenure_adopt::{Break, ReapReport, ReapSettings, Reaper};
use tenure_core::clock::{Clock, Mono, SystemClock};
use tenure_core::error::ErrorKind;
use tenure_testkit::valkey::{DURABLE, Flavour, Server};
use tenure_testkit::{Mode, Proxy, wait};

use crate::sessions::world::{AGE, PATIENCE, World, hour_ago, indexed, reaper, reaping, settings};

/// Runs passes until one succeeds.
async fn answered(reaper: &mut Reaper) -> ReapReport {
    answered_since(reaper, &SystemClock::new()).await.0
}

/// Like `answered`, with the start time of the successful pass.
async fn answered_since(reaper: &mut Reaper, clock: &SystemClock) -> (ReapReport, Mono) {
    let reaper = tokio::sync::Mutex::new(reaper);
    let answer = tokio::sync::Mutex::new(None);
    wait::until_async("a pass succeeds", PATIENCE, async || {
        let begun = clock.mono();
        let done = reaper.lock().await.pass().await;
        *answer.lock().await = done.ok().map(|report| (report, begun));
        answer.lock().await.is_some()
    })
    .await;
    answer.into_inner().unwrap()
}

/// Passes after an outage: nothing is reaped for a full age, then everything is.
async fn held_back_for_an_age(reaper: &mut Reaper, reasons: &[&str]) {
    let clock = SystemClock::new();
    let (first, begun) = answered_since(reaper, &clock).await;
    assert_eq!((first.reaped, first.looked), (0, 0), "{first:?}");
    let reason = first.quarantined.as_ref().unwrap().as_str();
    assert!(reasons.contains(&reason), "{first:?}");
    assert!(first.settles_in <= AGE, "{first:?}");
    loop {
        let report = answered(reaper).await;
        if report.quarantined.is_none() {
            assert_eq!(report.reaped, 1, "{report:?}");
            break;
        }
        assert_eq!(report.reaped, 0, "{report:?}");
        clock.sleep(Duration::from_millis(20)).await;
    }
    let waited = clock.mono().since(begun);
    assert!(
        waited + Duration::from_millis(500) >= first.settles_in,
        "{waited:?} of {first:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_connection_restarts_every_age() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        let proxy = Proxy::start(world.server.addr());
        world.has_run_for_a_while().await;
        let mut reaper = reaper(&proxy.url("valkey"), settings()).await;
        assert_eq!(reaper.pass().await.unwrap().quarantined, None);
        world.session("orphan", &hour_ago());
        indexed(&world, settings()).await;
        proxy.set(Mode::Reset);
        proxy.wait("the connection is cut", |counts| counts.reset > 0);
        proxy.set(Mode::Pass);
        // A pass without a connection reports an unreachable store; one with a new connection reports the reconnect.
        held_back_for_an_age(&mut reaper, &["reconnected", "unreachable"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_holds_back_a_reaper_that_did_not_see_it() {
    for flavour in Flavour::ALL {
        let Some(world) = World::with(flavour, DURABLE) else {
            return;
        };
        world.session("orphan", &hour_ago());
        indexed(&world, settings()).await;
        world.server.restart_with_data();
        // An age that is over for the session, but certainly not since the restart.
        let age = Duration::from_secs(1_800);
        let patient = ReapSettings {
            max_age: age,
            ..reaping()
        };
        let sessions = crate::sessions::world::sessions(&world.server.url(), settings()).await;
        let report = Reaper::new(sessions, patient).unwrap().pass().await.unwrap();
        assert_eq!((report.reaped, report.looked), (0, 0), "{report:?}");
        assert_eq!(
            report.quarantined.as_ref().map(Break::as_str),
            Some("restarted"),
            "{report:?}"
        );
        assert!(report.settles_in <= age, "{report:?}");
        world.has_run_for_a_while().await;
        let report = reaper(&world.server.url(), settings()).await.pass().await.unwrap();
        assert_eq!((report.reaped, report.quarantined.clone()), (1, None), "{report:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_data_restarts_every_age() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        world.has_run_for_a_while().await;
        let mut reaper = reaper(&world.server.url(), settings()).await;
        reaper.pass().await.unwrap();
        world.run(&["FLUSHALL"]);
        world.session("orphan", &hour_ago());
        indexed(&world, settings()).await;
        held_back_for_an_age(&mut reaper, &["data_lost"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_store_restarts_every_age() {
    let Some(world) = World::start(Flavour::Valkey) else {
        return;
    };
    world.has_run_for_a_while().await;
    let mut reaper = reaper(&world.server.url(), settings()).await;
    reaper.pass().await.unwrap();
    world.session("orphan", &hour_ago());
    indexed(&world, settings()).await;
    world.server.pause();
    assert_eq!(reaper.pass().await.unwrap_err().kind(), ErrorKind::Unavailable);
    world.server.resume();
    held_back_for_an_age(&mut reaper, &["unreachable"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reaper_never_decides_on_a_replica() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        let Some(replica) = Server::start(flavour) else { return };
        world.session("orphan", &hour_ago());
        indexed(&world, settings()).await;
        replica.replica_of(&world.server);
        replica.catch_up_with(&world.server);
        let sessions = crate::sessions::world::sessions(&replica.url(), settings()).await;
        assert_eq!(
            sessions.preview(&|_| {}).await.unwrap_err().kind(),
            ErrorKind::Unavailable
        );
        let mut reaper = reaper(&replica.url(), settings()).await;
        assert_eq!(reaper.pass().await.unwrap_err().kind(), ErrorKind::Unavailable);
        // A client that learned of the replica uses a new connection.
        world.has_run_for_a_while().await;
        replica.promote();
        let report = answered(&mut reaper).await;
        assert_eq!((report.reaped, report.quarantined.is_some()), (0, true), "{report:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scan_restarts_after_a_lost_connection_and_is_complete() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        let fill = "for i = 1, 5000 do redis.call('HSET', 'session:' .. i, 'last_disconnect', ARGV[1]) end";
        world.run(&["EVAL", fill, "0", &hour_ago()]);
        let proxy = Arc::new(Proxy::start(world.server.addr()));
        let sessions = crate::sessions::world::sessions(&proxy.url("valkey"), settings()).await;
        let (cutting, cut) = (Arc::clone(&proxy), std::sync::Once::new());
        let report = sessions
            .index(&move |notice| {
                if let tenure_adopt::WalkNotice::Page { scanned: 2_000.., .. } = notice {
                    cut.call_once(|| {
                        cutting.set(Mode::Reset);
                        cutting.wait("the connection is cut", |counts| counts.reset > 0);
                        cutting.set(Mode::Pass);
                    });
                }
            })
            .await
            .unwrap();
        assert_eq!(report.restarts, 1, "{report:?}");
        assert_eq!(
            (report.counts.scanned, report.counts.entries),
            (5_000, 5_000),
            "{report:?}"
        );
        assert!(
            (4_800..=5_000).contains(&report.added),
            "entries in flight may be uncounted: {report:?}"
        );
    }
}
