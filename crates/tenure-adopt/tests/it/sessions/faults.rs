//! Lost replies and late requests: counts stay exact, and a late request has no effect.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use tenure_adopt::{ReapListener, ReapNotice};
use tenure_testkit::valkey::Flavour;
use tenure_testkit::{Mode, Proxy, wait};

use crate::sessions::world::{PATIENCE, World, hour_ago, indexed, reaper, settings};

fn fill(world: &World, sessions: u64) {
    let fill = "for i = 1, tonumber(ARGV[2]) do redis.call('HSET', 'session:' .. i, 'last_disconnect', ARGV[1]) end";
    world.run(&["EVAL", fill, "0", &hour_ago(), &sessions.to_string()]);
}

fn left(world: &World) -> usize {
    world.run(&["KEYS", "session:*"]).items().len()
}

/// Calls `act` at the page with this number.
fn at_page(number: u64, act: impl FnOnce() + Send + 'static) -> ReapListener {
    let (pages, act) = (AtomicU64::new(0), Mutex::new(Some(act)));
    Box::new(move |notice| {
        if matches!(notice, ReapNotice::Reaping(_))
            && pages.fetch_add(1, Relaxed) + 1 == number
            && let Some(act) = act.lock().unwrap().take()
        {
            act();
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn page_with_a_lost_reply_is_counted_once() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        fill(&world, 250);
        indexed(&world, settings()).await;
        world.has_run_for_a_while().await;
        let proxy = Arc::new(Proxy::start(world.server.addr()));
        let (dropping, watching) = (Arc::clone(&proxy), Arc::clone(&world));
        // The second page, because at the first one the server does not know the script yet.
        let listener = at_page(2, move || {
            dropping.set(Mode::DropReplies);
            std::thread::spawn(move || {
                wait::until("the page was applied", PATIENCE, || left(&watching) <= 50);
                wait::until("its reply was lost", PATIENCE, || dropping.counts().swallowed > 0);
                dropping.set(Mode::Pass);
            });
        });
        let mut reaper = reaper(&proxy.url("valkey"), settings()).await.with_listener(listener);
        let (mut total, mut unsure) = (0, 0);
        let report = reaper.pass().await.unwrap();
        assert_eq!(
            (report.reaped, left(&world)),
            (200, 50),
            "the pass stops there: {report:?}"
        );
        assert!(report.quarantined.is_some(), "{report:?}");
        total += report.reaped;
        while left(&world) > 0 {
            let report = reaper.pass().await.unwrap();
            total += report.reaped;
            unsure += report.unsure;
        }
        assert_eq!((total, unsure), (250, 0), "{flavour:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn late_page_reaps_nothing() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        fill(&world, 150);
        indexed(&world, settings()).await;
        world.has_run_for_a_while().await;
        let proxy = Arc::new(Proxy::start(world.server.addr()));
        let holding = Arc::clone(&proxy);
        let listener = at_page(2, move || {
            holding.set(Mode::HoldRequests);
            std::thread::spawn(move || {
                wait::until("the page is held", PATIENCE, || holding.counts().held > 0);
                // New connections pass; held data stay held.
                holding.set(Mode::Pass);
            });
        });
        let mut reaper = reaper(&proxy.url("valkey"), settings()).await.with_listener(listener);
        let report = reaper.pass().await;
        assert_eq!(left(&world), 50, "{report:?}");
        let before = proxy.counts();
        proxy.release();
        wait::until("the held page arrived", PATIENCE, || {
            proxy.counts().held == 0 && proxy.counts().requests >= before.requests + before.held
        });
        // One round trip later on the server.
        assert_eq!(left(&world), 50, "{flavour:?}");
        let total = std::sync::atomic::AtomicU64::new(report.map_or(0, |report| report.reaped));
        while left(&world) > 0 {
            if let Ok(report) = reaper.pass().await {
                total.fetch_add(report.reaped, Relaxed);
            }
        }
        assert!([50, 150].contains(&total.load(Relaxed)), "{total:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_memory_blocks_new_entries_but_not_the_reaper() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        fill(&world, 20);
        let sessions = indexed(&world, settings()).await;
        world.has_run_for_a_while().await;
        world.session("new", &hour_ago());
        let mut reaper = reaper(&world.server.url(), settings()).await;
        // Lets the server learn the scripts.
        reaper.preview().await.unwrap();
        world.run(&["CONFIG", "SET", "maxmemory", "1"]);
        assert!(sessions.index(&|_| {}).await.is_err());
        assert!(!world.entries(sessions.index_key()).contains_key("new"));
        let report = reaper.pass().await.unwrap();
        assert_eq!((report.reaped, left(&world)), (20, 1), "{report:?}");
        assert_eq!(sessions.undo().await.unwrap().removed, 0);
    }
}
