//! Lost replies and late requests: counts stay exact, and a late request has no effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tenure_adopt::Notice;
use tenure_testkit::valkey::Flavour;
use tenure_testkit::{Mode, Proxy, wait};
use tenure_valkey::ConnectionOptions;

use crate::registry::world::{PATIENCE, World, at_first, is_evicting, ready, ready_with, settings};

#[tokio::test(flavor = "multi_thread")]
async fn page_with_a_lost_reply_is_counted_once() {
    for flavour in Flavour::ALL {
        for settle in [0, 50] {
            let Some(world) = World::start(flavour) else { return };
            world.claim_many("dead", 0..450);
            let proxy = Arc::new(Proxy::start(world.server.addr()));
            let (dropping, watching) = (Arc::clone(&proxy), Arc::clone(&world));
            let pages = AtomicU64::new(0);
            // The second page, because at the first one the server does not know the script yet.
            let is_second = move |notice: &Notice<'_>| is_evicting(notice) && pages.fetch_add(1, Relaxed) == 1;
            let listener = at_first(is_second, move || {
                dropping.set(Mode::DropReplies);
                std::thread::spawn(move || {
                    wait::until("the page was applied", PATIENCE, || watching.len() <= 50);
                    wait::until("its reply was lost", PATIENCE, || dropping.counts().swallowed > 0);
                    dropping.set(Mode::Pass);
                });
            });
            let mut janitor = ready(&proxy.url("valkey"), settings(settle))
                .await
                .with_listener(listener);
            let mut total = 0;
            let mut unsure = 0;
            while world.len() > 0 {
                let report = janitor.pass(false).await.unwrap();
                total += report.evicted_total();
                unsure += report.unsure;
            }
            assert_eq!((total, unsure), (450, 0), "{flavour:?}, settle {settle}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn late_page_evicts_nothing() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        world.claim_many("dead", 0..100);
        let proxy = Arc::new(Proxy::start(world.server.addr()));
        let holding = Arc::clone(&proxy);
        let listener = at_first(is_evicting, move || {
            holding.set(Mode::HoldRequests);
            std::thread::spawn(move || {
                wait::until("the page is held", PATIENCE, || holding.counts().held > 0);
                // New connections pass; held data stay held.
                holding.set(Mode::Pass);
            });
        });
        // The janitor waits for the page until its timeout.
        let mut janitor = ready_with(&proxy.url("valkey"), settings(50), ConnectionOptions::default())
            .await
            .with_listener(listener);
        let report = janitor.pass(false).await.unwrap();
        assert_eq!(
            (report.evicted_total(), report.unsure, world.len()),
            (100, 0, 0),
            "{report:?}"
        );
        // The same entries again, and their owner has not beaten yet: exactly what the held page would evict.
        world.claim_many("dead", 0..100);
        let before = proxy.counts();
        proxy.release();
        wait::until("the held page arrived", PATIENCE, || {
            proxy.counts().held == 0 && proxy.counts().requests >= before.requests + before.held
        });
        // One round trip later on the server.
        assert_eq!(world.len(), 100, "{flavour:?}");
    }
}
