//! The silence of the store is nobody's disconnecting: after an outage everyone has the whole age anew to come back.

use std::sync::Arc;
use std::time::Duration;

use tenure_adopt::{Break, ReapReport, ReapSettings, Reaper};
use tenure_core::clock::{Clock, Mono, SystemClock};
use tenure_core::error::ErrorKind;
use tenure_testkit::valkey::{DURABLE, Flavour, Server};
use tenure_testkit::{Mode, Proxy, wait};

use crate::sessions::world::{AGE, PATIENCE, World, hour_ago, indexed, reaper, reaping, settings};

/// Passes until one is answered.
async fn answered(reaper: &mut Reaper) -> ReapReport {
    answered_since(reaper, &SystemClock::new()).await.0
}

/// The same, with when the one was begun that was answered.
async fn answered_since(reaper: &mut Reaper, clock: &SystemClock) -> (ReapReport, Mono) {
    let reaper = tokio::sync::Mutex::new(reaper);
    let answer = tokio::sync::Mutex::new(None);
    wait::until_async("a pass is answered", PATIENCE, async || {
        let begun = clock.mono();
        let done = reaper.lock().await.pass().await;
        *answer.lock().await = done.ok().map(|report| (report, begun));
        answer.lock().await.is_some()
    })
    .await;
    answer.into_inner().unwrap()
}

/// Passes that follow an outage: nothing is reaped until a whole age is over, and then everything is.
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
async fn a_lost_connection_gives_everyone_the_whole_age_anew() {
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
        // A pass that meets no connection at all has found the store away; one that meets a new one has found that.
        held_back_for_an_age(&mut reaper, &["reconnected", "unreachable"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_holds_back_a_reaper_that_never_saw_it() {
    for flavour in Flavour::ALL {
        let Some(world) = World::with(flavour, DURABLE) else {
            return;
        };
        world.session("orphan", &hour_ago());
        indexed(&world, settings()).await;
        world.server.restart_with_data();
        // An age that is certainly not over yet, and is over for the session.
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
async fn lost_data_give_everyone_the_whole_age_anew() {
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
async fn a_store_that_stood_still_gives_everyone_the_whole_age_anew() {
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
async fn a_replica_is_never_decided_on() {
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
        // The connection of a client that was told so is a new one.
        world.has_run_for_a_while().await;
        replica.promote();
        let report = answered(&mut reaper).await;
        assert_eq!((report.reaped, report.quarantined.is_some()), (0, true), "{report:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_whose_connection_is_lost_begins_anew_and_is_whole() {
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
            (report.standing.scanned, report.standing.entries),
            (5_000, 5_000),
            "{report:?}"
        );
        assert!(
            (4_800..=5_000).contains(&report.added),
            "what was on its way may be uncounted: {report:?}"
        );
    }
}
