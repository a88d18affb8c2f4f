//! Nothing on the screen that the store has not said: while it is away, while the daemon is frozen, and after.

use std::sync::Arc;

use serde_json::json;
use tenure_core::clock::SystemClock;
use tenure_core::error::ErrorKind;
use tenure_core::membership::EndBy;
use tenure_core::store::{Call, Store};
use tenure_server::Settings;
use tenure_testkit::proxy::{Mode, Proxy};

use crate::common::Daemon;
use crate::common::faulty::{Faulty, Mood};
use crate::dashboard::fixture::{act, claim, clock_at_rest, group, join, join_at, parts};
use crate::dashboard::page::{DESK, GREEN, PHONE, Page, Screen};

/// Every place that shows something of the group `g`.
const PLACES: &[&str] = &[
    "#/",
    "#/g/g",
    "#/g/g/leases",
    "#/g/g/sessions",
    "#/g/g/registries",
    "#/why/g/worker",
    "#/why/g/gone",
    "#/why/g/lease:endpoint-1",
];

/// A daemon with a janitor over a store that can go away, with something of everything in it.
async fn furnished() -> (Daemon, Arc<Faulty>) {
    furnish(Faulty::new(SystemClock::shared())).await
}

/// The same on a store whose time does not advance, which has no gap when the machine stalls.
async fn furnished_at_rest() -> (Daemon, Arc<Faulty>) {
    furnish(Faulty::new(clock_at_rest())).await
}

async fn furnish(faulty: Arc<Faulty>) -> (Daemon, Arc<Faulty>) {
    let store: Arc<dyn Store> = faulty.clone();
    let daemon = Daemon::of(parts(&store), Settings::default()).await;
    let tenure = join(&daemon, "g", "worker").await;
    claim(&daemon, "g", "devices", "dev-1", &tenure).await;
    act(&daemon, "PUT", "/v1/groups/g/targets/endpoint-1", json!({})).await;
    let acquire = "/v1/groups/g/leases/endpoint-1/acquire";
    act(&daemon, "POST", acquire, json!({"tenure": tenure})).await;
    let session = json!({"tenure": tenure, "connection": "c"});
    act(&daemon, "PUT", "/v1/groups/g/sessions/s", session).await;
    let gone = join(&daemon, "g", "gone").await;
    daemon.delete(&format!("/v1/groups/g/tenures/{gone}")).await;
    (daemon, faulty)
}

const LIVE: &str = "document.getElementById('link').innerText === 'live'";
const AGES: &str =
    "[...document.querySelectorAll('.member .age, .rate .sub, .session .age')].map((one) => one.innerText).join()";

/// All answers show a store's time that is 9 s ahead, as the daemon's estimate may be off while the store is away.
const SKEW: &str = "globalThis.honest = fetch;
    globalThis.fetch = async (...asked) => {
        const answer = await honest(...asked);
        const headers = new Headers(answer.headers);
        headers.set('tenure-store-time', new Date(Date.now() + 9000).toISOString());
        return new Response(answer.body, { status: answer.status, headers });
    }";

/// Whether ages do not change while the page keeps polling.
async fn assert_still(page: &mut Page) {
    let before = page.eval(AGES).await;
    page.eval(SKEW).await;
    page.eval("globalThis.asked = performance.now()").await;
    page.until("seconds have passed", "performance.now() - asked > 2200")
        .await;
    assert_eq!(page.eval(AGES).await, before, "ages stop with the store");
    page.eval("globalThis.fetch = honest").await;
}

async fn assert_says_nothing_of_now(page: &mut Page, place: &str) {
    assert_eq!(page.green().await, "", "{place}");
    let words = page.text("#link, .pill, .entry .mood, .sentence").await;
    for word in ["live", "settled", "left behind"] {
        assert!(!words.contains(word), "{place} says {word}: {words}");
    }
    let all = page.text("main").await;
    for wrong in ["Nothing is recorded", "No members yet", "All 0", "ended here yet"] {
        assert!(!all.contains(wrong), "{place} says {wrong:?}: {all}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_outage_takes_colours_and_stops_ages() {
    let (daemon, store) = furnished().await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/g", DESK).await else {
        return;
    };
    page.until_says(".member", "worker").await;
    page.until("it is live", LIVE).await;
    page.until("what is alive is green", &format!("{GREEN} !== ''")).await;
    for (mood, words) in [
        (Mood::Fails(ErrorKind::Unavailable), "made to be away"),
        (Mood::Hangs, "The store does not answer."),
    ] {
        store.be(mood);
        page.until_says("#banners", words).await;
        page.until_says("#link", "store away since").await;
        page.until_says(".pill", "unknown since").await;
        page.until_says(".member", "as of").await;
        page.until_says(".under", "Nothing newer is known.").await;
        assert_says_nothing_of_now(&mut page, "the group").await;
        assert_still(&mut page).await;
        page.turn("#/").await;
        page.until_says(".sentence", "The store does not answer; nothing newer is known.")
            .await;
        page.until_says(".entry", "unknown since").await;
        assert_says_nothing_of_now(&mut page, "the overview").await;
        page.turn("#/g/g").await;
        store.be(Mood::Good);
        page.until("it is live again", LIVE).await;
        page.until_says(".member[data-tone=alive]", "worker").await;
    }
    // The store was silent for longer than a gap: everyone got a full ttl, and that is said.
    page.until_says("#banners", "The store did not serve").await;
    page.until_says(".pill", "settling").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_answers_do_not_move_the_store_time() {
    let (daemon, _store) = furnished().await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/g", DESK).await else {
        return;
    };
    page.until("it is live", LIVE).await;
    let moved = "(async () => {
        const { learn, storeTime } = await import(new URL('dashboard/api.js', document.baseURI));
        const [now, before] = [Date.now(), storeTime(0)];
        const moves = (shown) => {
            learn(new Date(storeTime(shown)).toISOString(), now - 5000);
            return storeTime(0) - before;
        };
        return [moves(now - 4900), moves(now - 100), Math.round(moves(now + 60000) / 1000)];
    })()";
    assert_eq!(
        page.eval(moved).await,
        json!([0, 0, 60]),
        "only an answer that contradicts it does"
    );
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_opened_during_an_outage_cannot_ask_now() {
    let (daemon, store) = furnished_at_rest().await;
    let Some(mut page) = Page::open(&daemon.base, "#/", DESK).await else {
        return;
    };
    page.until_says(".entry", "settled").await;
    store.be(Mood::Fails(ErrorKind::Unavailable));
    page.until_says("#link", "store away since").await;
    for place in PLACES.iter().skip(1) {
        page.turn(place).await;
        page.until_says("main", "Cannot ask now: the store does not answer")
            .await;
        assert_says_nothing_of_now(&mut page, place).await;
    }
    // Also a page that was never told anything by the store itself says since when.
    page.go("#/g/g").await;
    page.until(
        "it says since when",
        "/unknown since \\d/.test(document.querySelector('.pill').innerText)",
    )
    .await;
    page.until_says(".under", "1 member").await;
    page.turn("#/why/g/worker").await;
    page.until_says(".facts", "cannot ask now").await;
    page.press("/").await;
    page.write("worker").await;
    page.until_says("#found", "Cannot ask now: the store does not answer")
        .await;
    page.press("Escape").await;
    // It retries.
    store.be(Mood::Good);
    page.until_says(".facts", "alive, for another").await;
    page.until_says(".event", "worker joined").await;
    page.turn("#/why/g/gone").await;
    page.until_says(".facts", "it ended its own tenure").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn why_page_keeps_content_and_age_during_outage() {
    let (daemon, store) = furnished().await;
    let Some(mut page) = Page::open(&daemon.base, "#/why/g/worker", DESK).await else {
        return;
    };
    page.until_says(".facts", "alive, for another").await;
    page.until_says(".event", "worker joined").await;
    store.be(Mood::Fails(ErrorKind::Unavailable));
    page.until_says("#link", "store away since").await;
    page.until_says(".facts", "cannot ask now: the store does not answer")
        .await;
    page.until_says(".facts", "Then alive, for another").await;
    page.until_says(".fine", "What happened since cannot be asked now")
        .await;
    assert_says_nothing_of_now(&mut page, "why of the living").await;
    let facts = page.text(".facts").await;
    page.eval("globalThis.asked = performance.now()").await;
    page.until("seconds have passed", "performance.now() - asked > 2200")
        .await;
    assert_eq!(page.text(".facts").await, facts, "it does not change");
    store.be(Mood::Good);
    page.until_says(".facts", "State alive, for another").await;
    page.turn("#/why/g/gone").await;
    page.until_says(".facts", "it ended its own tenure").await;
    store.be(Mood::Fails(ErrorKind::Unavailable));
    page.until_says("#link", "store away since").await;
    page.until_says(".facts", "cannot ask now: the store does not answer")
        .await;
    // An end is final, so it still stands.
    page.until_says(".facts", "it ended its own tenure").await;
    assert_says_nothing_of_now(&mut page, "why of the dead").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_daemon_is_not_live() {
    let (daemon, _store) = furnished().await;
    let proxy = Proxy::start(daemon.server.addr());
    let Some(mut page) = Page::open(&proxy.url("http"), "#/g/g", DESK).await else {
        return;
    };
    page.until_says(".member", "worker").await;
    page.until("it is live", LIVE).await;
    proxy.set(Mode::HoldAll);
    page.until_says("#link", "no answer since").await;
    page.until_says("#banners", "The daemon does not answer. What is shown is as of")
        .await;
    assert_says_nothing_of_now(&mut page, "the group").await;
    assert_still(&mut page).await;
    for place in PLACES {
        page.turn(place).await;
        page.until("it is drawn", "!document.body.innerText.includes('Looking')")
            .await;
        assert_says_nothing_of_now(&mut page, place).await;
    }
    page.turn("#/g/g").await;
    proxy.release();
    page.until("it is live again", LIVE).await;
    page.until_says(".member[data-tone=alive]", "worker").await;
    page.until_silent("#banners", "The daemon does not answer.").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_group_may_be_unknown_while_others_are_live() {
    let (daemon, store) = furnished_at_rest().await;
    join_at(&daemon.store, &group("other"), "near", &[]).await;
    let Some(mut page) = Page::open(&daemon.base, "#/", DESK).await else {
        return;
    };
    // The daemon reports the state of a group once it has swept it.
    page.until_says(".entry", "g 1 member · 1 lease · 1 session").await;
    page.turn("#/g/g").await;
    page.until_says(".member", "worker").await;
    store.be(Mood::FailsIn("g"));
    page.until_says(".pill", "unknown since").await;
    page.until_says(".member", "as of").await;
    page.until("the daemon and its store answer", LIVE).await;
    page.turn("#/").await;
    page.until_says(".entry", "g 1 member · 1 lease · 1 session unknown since")
        .await;
    page.until_says(".entry[data-tone=alive]", "other").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_fits_a_phone_and_stands_out_in_the_dark() {
    let (daemon, store) = furnished().await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/g", Screen { dark: true, ..PHONE }).await else {
        return;
    };
    page.until_says(".member", "worker").await;
    store.be(Mood::Fails(ErrorKind::Unavailable));
    page.until_says("#link", "store away since").await;
    page.until_says(".member", "as of").await;
    for place in ["#/g/g", "#/", "#/why/g/worker"] {
        page.turn(place).await;
        page.until("it is drawn", "document.querySelector('main').innerText.length > 40")
            .await;
        let wide = page.eval("document.documentElement.scrollWidth - innerWidth").await;
        assert!(wide.as_i64().expect("a number") <= 0, "{place} is {wide} px too wide");
        assert_eq!(page.eval(crate::dashboard::looks::FAINT).await, json!([]), "{place}");
    }
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn end_during_an_outage_is_shown_after_it() {
    let faulty = Faulty::new(SystemClock::shared());
    let store: Arc<dyn Store> = faulty.clone();
    let fleet = group("fleet");
    let first = join_at(&store, &fleet, "first", &[]).await;
    join_at(&store, &fleet, "second", &[]).await;
    let daemon = Daemon::of(parts(&store), Settings::default()).await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/fleet", DESK).await else {
        return;
    };
    page.until_says(".member", "second").await;
    faulty.be(Mood::Fails(ErrorKind::Unavailable));
    page.until_says("#link", "store away since").await;
    faulty.be(Mood::Good);
    let first = first.parse().expect("a tenure");
    let end = store.end(&fleet, &first, EndBy::Expel, Call::default());
    end.await.expect("an end");
    page.until_says(".event", "first was expelled").await;
    page.until_silent(".member:not([hidden])", "first").await;
    page.until("it is live again", LIVE).await;
    page.assert_clean();
}
