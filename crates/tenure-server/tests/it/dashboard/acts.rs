//! What an operator does from the page: expel and settle, each after it was said what will happen.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_core::clock::{ManualClock, SystemClock};
use tenure_core::error::ErrorKind;
use tenure_core::memory::MemoryStore;
use tenure_core::store::{Store, StoreOptions};
use tenure_core::sweep::SweepSteps;
use tenure_server::Settings;
use tenure_server::auth::Scope;

use crate::common::Daemon;
use crate::common::faulty::{Faulty, Mood};
use crate::dashboard::fixture::{act, claim, group, join, join_at, open, parts, store_at_rest};
use crate::dashboard::page::{DESK, Page};
use crate::token_server::Tokens;

#[tokio::test(flavor = "multi_thread")]
async fn expel_confirms_then_expels() {
    let daemon = open().await;
    let tenure = join(&daemon, "g", "worker").await;
    for key in ["dev-1", "dev-2"] {
        claim(&daemon, "g", "devices", key, &tenure).await;
    }
    act(
        &daemon,
        "POST",
        "/v1/groups/g/leases/job/acquire",
        json!({"tenure": tenure}),
    )
    .await;
    let Some(mut page) = Page::open(&daemon.base, "#/why/g/worker", DESK).await else {
        return;
    };
    page.click(".act").await;
    page.until_says("#act-title", "Expel worker?").await;
    page.until_says(
        "#act-text",
        &format!("The tenure {tenure} ends now and never comes back."),
    )
    .await;
    page.until_says("#act-text", "It holds 2 claims, which the janitor removes")
        .await;
    page.until_says("#act-text", "It holds 1 lease, which can be acquired by others from")
        .await;
    // Nothing happens before it is confirmed.
    page.press("Escape").await;
    page.until("it is closed", "!document.getElementById('act').open").await;
    assert_eq!(daemon.get("/v1/groups/g/members/worker").await.status, 200);
    page.click(".act").await;
    page.click("#act-do").await;
    page.until_says("#act-outcome", &format!("{tenure} was expelled."))
        .await;
    page.click("#act-close").await;
    page.until_says(".facts", "an operator ended it").await;
    page.until(
        "it cannot be expelled twice",
        "!document.querySelector('.act').checkVisibility()",
    )
    .await;
    assert_eq!(daemon.get("/v1/groups/g/members/worker").await.status, 404);
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_is_released_by_its_token() {
    let daemon = open().await;
    let tenure = join(&daemon, "g", "worker").await;
    let path = "/v1/groups/g/leases/job/acquire";
    act(&daemon, "POST", path, json!({"tenure": tenure})).await;
    let Some(mut page) = Page::open(&daemon.base, "#/why/g/lease:job", DESK).await else {
        return;
    };
    page.click(".act:not([hidden])").await;
    page.until_says("#act-title", "Release job?").await;
    page.until_says("#act-text", &format!("The lease job is taken from {tenure}"))
        .await;
    page.click("#act-do").await;
    page.until_says("#act-outcome", "job was released. Its holder cannot notice")
        .await;
    page.click("#act-close").await;
    page.until_says(".facts", "released by an operator").await;
    let held = daemon.get("/v1/groups/g/leases/job").await.json();
    assert_eq!(held["holders"][0]["revoked"], true, "{held}");
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_settled_with_the_cause_of_its_wait() {
    let system = SystemClock::shared();
    let clock = Arc::new(ManualClock::new(system.wall_micros(), 1));
    let model = MemoryStore::new(StoreOptions::default(), clock.clone());
    let store: Arc<dyn Store> = model.clone();
    join_at(&store, &group("fleet"), "worker", &[]).await;
    clock.advance(Duration::from_secs(30));
    model.tick(&group("fleet")).await.expect("a tick");
    let daemon = Daemon::over(Arc::clone(&store), system, Settings::default()).await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/fleet", DESK).await else {
        return;
    };
    page.until_says(".pill", "settling").await;
    page.until_says("#banners", "fleet is settling.").await;
    page.click("#banners button").await;
    page.until_says("#act-text", "No lease is granted in fleet until").await;
    page.until_says("#act-text", "it was silent").await;
    page.until_says("#act-text", "If one does, two holders work at the same time.")
        .await;
    page.click("#act-do").await;
    page.until_says("#act-outcome", "fleet is settled: leases are granted immediately.")
        .await;
    page.click("#act-close").await;
    page.until_says(".pill", "settled").await;
    page.until_silent("#banners", "is settling").await;
    page.until_says(".event", "an operator said that nothing was held")
        .await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn acts_are_offered_with_the_scope_operate() {
    let store = store_at_rest();
    join_at(&store, &group("g"), "worker", &[]).await;
    let mut tokens = Tokens::none();
    let reads = tokens.add("reader", &[Scope::Read], &[], &[]);
    let operates = tokens.add("operator", &[Scope::Read, Scope::Operate], &["g"], &[]);
    let daemon = Daemon::of(parts(&store), tokens.settings()).await;
    for (secret, is_offered) in [(reads, false), (operates, true)] {
        let Some(mut page) = Page::open(&daemon.base, "#/why/g/worker", DESK).await else {
            return;
        };
        page.until("it asks", "document.getElementById('token').open").await;
        page.write(secret.text()).await;
        page.press("Enter").await;
        page.until_says(".facts", "alive, for another").await;
        page.until(
            "the scopes are known",
            "tenure.world.status?.access.scopes.includes('read')",
        )
        .await;
        let offered = "document.querySelector('.act').checkVisibility()";
        page.until(
            "it is offered to operators alone",
            &format!("{offered} === {is_offered}"),
        )
        .await;
        page.assert_clean();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_nothing_is_offered_or_done() {
    let faulty = Faulty::new(SystemClock::shared());
    let store: Arc<dyn Store> = faulty.clone();
    join_at(&store, &group("g"), "worker", &[]).await;
    let daemon = Daemon::of(parts(&store), Settings::default()).await;
    let Some(mut page) = Page::open(&daemon.base, "#/why/g/worker", DESK).await else {
        return;
    };
    page.until("it is offered", "document.querySelector('.act').checkVisibility()")
        .await;
    faulty.be(Mood::Fails(ErrorKind::Unavailable));
    page.eval("document.querySelector('.act').click()").await;
    page.until_says("#act-text", "Cannot ask now what it would do").await;
    page.until_says("#act-text", "Nothing was changed.").await;
    assert_eq!(
        page.eval("document.getElementById('act-do').checkVisibility()").await,
        false
    );
    page.press("Escape").await;
    page.until(
        "it is no longer offered",
        "!document.querySelector('.act').checkVisibility()",
    )
    .await;
    page.assert_clean();
}
