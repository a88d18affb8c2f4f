//! Members and claims in the order of what is urgent, and filtered.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_core::clock::{ManualClock, SystemClock};
use tenure_core::memory::MemoryStore;
use tenure_core::pulse::BeatPulse;
use tenure_core::store::{Call, Store, StoreOptions};
use tenure_core::sweep::SweepSteps;
use tenure_server::Settings;

use crate::common::Daemon;
use crate::dashboard::fixture::{LONG, claim, group, join_at};
use crate::dashboard::page::{DESK, Page};

/// More than one page of the listing.
const MANY: usize = 2_300;
const FIRST: &str = "document.querySelector('.member[aria-posinset=\"1\"] .name')?.innerText";

/// A group of very many, of which one beat long ago, and what they own.
async fn with_one_late() -> (Daemon, String) {
    let system = SystemClock::shared();
    let clock = Arc::new(ManualClock::new(system.wall_micros(), 1));
    let model = MemoryStore::new(StoreOptions::default(), clock.clone());
    let store: Arc<dyn Store> = model.clone();
    let fleet = group("fleet");
    let late = join_at(&store, &fleet, "member-01777", &[("zone", "fra-9")]).await;
    // In steps shorter than a gap, for more than half of its ttl.
    for _ in 0..70 {
        clock.advance(Duration::from_secs(1));
        model.tick(&fleet).await.expect("a tick");
    }
    let mut last = String::new();
    for n in (0..MANY).filter(|n| *n != 1777) {
        last = join_at(&store, &fleet, &format!("member-{n:05}"), &[]).await;
        if n % 50 == 0 {
            clock.advance(Duration::from_millis(1));
        }
    }
    let daemon = Daemon::over(Arc::clone(&store), system, Settings::default()).await;
    for key in ["a-1", "b-2", "c-3"] {
        claim(&daemon, "fleet", "devices", key, &last).await;
    }
    claim(&daemon, "fleet", "devices", "z-9", &late).await;
    (daemon, late)
}

#[tokio::test(flavor = "multi_thread")]
async fn late_members_are_listed_first() {
    let (daemon, late) = with_one_late().await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/fleet", DESK).await else {
        return;
    };
    page.until_says(".fine", "All 2,300 were last read at").await;
    page.until("the late one is first", &format!("{FIRST} === 'member-01777'"))
        .await;
    page.until_says(".member[data-tone=uncertain]", "member-01777 late")
        .await;
    page.until_says(".member[data-tone=uncertain]", "beat 1 min 1").await;
    page.until_says(
        ".member",
        &format!("ttl {}", if LONG.as_secs() == 120 { "2 min" } else { "?" }),
    )
    .await;
    page.until_says(".chip", "Late 1").await;
    // Only the late, then by text: of a name, and of a label.
    page.click("[aria-label='Which members'] .chip:nth-child(2)").await;
    page.until(
        "one row",
        "document.querySelectorAll('.member:not([hidden])').length === 1",
    )
    .await;
    page.click("[aria-label='Which members'] .chip:first-child").await;
    page.eval("document.querySelector('.filter').focus()").await;
    page.write("member-0200").await;
    page.until(
        "ten rows",
        "document.querySelectorAll('.member:not([hidden])').length === 10",
    )
    .await;
    page.eval("document.querySelector('.filter').select()").await;
    page.write("FRA-9").await;
    page.until(
        "its row",
        &format!("{FIRST} === 'member-01777' && document.querySelectorAll('.member:not([hidden])').length === 1"),
    )
    .await;
    page.eval("document.querySelector('.filter').select()").await;
    page.write("nothing-like-it").await;
    page.until_says(".none", "No member fits the filter.").await;
    page.eval("document.querySelector('.filter').select()").await;
    page.write("member-").await;
    page.click("[aria-label=Order] .chip:last-child").await;
    page.until("by name", &format!("{FIRST} === 'member-00000'")).await;
    // What ends goes.
    page.click("[aria-label=Order] .chip:first-child").await;
    page.until("the late one is first", &format!("{FIRST} === 'member-01777'"))
        .await;
    daemon.delete(&format!("/v1/groups/fleet/tenures/{late}")).await;
    page.until_silent(".member:not([hidden])", "member-01777").await;
    page.until_says(".under", "2,299 members").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_late_owners_are_listed_first() {
    let (daemon, _late) = with_one_late().await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/fleet/registries", DESK).await else {
        return;
    };
    let first = "document.querySelector('.claim[aria-posinset=\"1\"] .name')?.innerText";
    page.until("the late one's is first", &format!("{first} === 'z-9'"))
        .await;
    page.until_says(".claim[data-tone=uncertain]", "z-9 member-01777 beat 1 min 1")
        .await;
    page.click("[aria-label=Order] .chip:last-child").await;
    page.until("by key", &format!("{first} === 'a-1'")).await;
    page.eval("document.querySelector('.filter').focus()").await;
    page.write("01777").await;
    page.until("by its owner", &format!("{first} === 'z-9'")).await;
    page.until(
        "one row",
        "document.querySelectorAll('.claim:not([hidden])').length === 1",
    )
    .await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn mass_lapse_is_one_line() {
    const LAPSE: usize = 6_000;
    let system = SystemClock::shared();
    let clock = Arc::new(ManualClock::new(system.wall_micros(), 1));
    let model = MemoryStore::new(StoreOptions::default(), clock.clone());
    let store: Arc<dyn Store> = model.clone();
    let fleet = group("fleet");
    for n in 0..LAPSE {
        join_at(&store, &fleet, &format!("m-{n}"), &[]).await;
    }
    let daemon = Daemon::over(Arc::clone(&store), system, Settings::default()).await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/fleet", DESK).await else {
        return;
    };
    page.until("the stream is followed", "tenure.world.stream === 'live'")
        .await;
    page.until_says(".under", "6,000 members").await;
    for _ in 0..125 {
        clock.advance(Duration::from_secs(1));
        model.beat_pulse(BeatPulse::default()).await.expect("a pulse");
        model.tick(&fleet).await.expect("a tick");
    }
    let lapse = || model.end_lapsed(&fleet, 200, Call::default());
    while !lapse().await.expect("a step").ended.is_empty() {}
    for _ in 0..2 {
        // As it happens, and for who comes later.
        page.until_says(".crash", "6,000 members lapsed together. 0 are present.")
            .await;
        page.until_says(".event", "6,000 members lapsed").await;
        page.until_says("#banners", "6,000 lapsed together").await;
        page.until_says(".none", "No member is alive.").await;
        assert!(!page.text("main").await.contains("No members yet"));
        page.go("#/g/fleet").await;
    }
    page.turn("#/").await;
    page.until_says(".entry.ended", "6,000 members lapsed in fleet").await;
    page.until_says(".rate", "Ends a minute 6,000 in the last minute").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn durations_are_exact() {
    let daemon = Daemon::start().await;
    let Some(mut page) = Page::open(&daemon.base, "", DESK).await else {
        return;
    };
    let told = "(async () => {
        const { span, exact } = await import(new URL('dashboard/dom.js', document.baseURI));
        return [[999, 70_000, 119_999, 3_600_000, 3_725_000, 97_200_000].map(span), [500, 1_500, 30_000, 110_000, 110_500, 3_725_000].map(exact)];
    })()";
    let expected = json!([
        ["0 s", "1 min 10 s", "1 min 59 s", "1 h", "1 h 2 min", "1 d 3 h"],
        ["0.5 s", "1.5 s", "30 s", "1 min 50 s", "1 min 50.5 s", "1 h 2 min 5 s"],
    ]);
    assert_eq!(page.eval(told).await, expected);
    page.assert_clean();
}
