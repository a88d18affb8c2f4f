//! Leases, sessions, registries and rosters.

use serde_json::json;

use crate::dashboard::fixture::{act, claim, join, open, open_at_rest};
use crate::dashboard::page::{DESK, Page};

#[tokio::test(flavor = "multi_thread")]
async fn placement_shows_holders_and_preferred_nodes() {
    let daemon = open_at_rest().await;
    let nodes = [
        join(&daemon, "pollers", "node-1").await,
        join(&daemon, "pollers", "node-2").await,
    ];
    let mut elsewhere = 0;
    for n in 1..=8 {
        let target = format!("/v1/groups/pollers/targets/endpoint-{n}");
        act(&daemon, "PUT", &target, json!({"paused": n == 8})).await;
        let preferred = daemon.get(&target).await.json()["preferred"].clone();
        // The first seven are held by node-1, wherever they would rather be.
        if n < 8 {
            elsewhere += usize::from(preferred != "node-1");
            let path = format!("/v1/groups/pollers/leases/endpoint-{n}/acquire");
            act(&daemon, "POST", &path, json!({"tenure": nodes[0]})).await;
        }
    }
    assert!((1..7).contains(&elsewhere), "the names must not all prefer one node");
    let Some(mut page) = Page::open(&daemon.base, "#/g/pollers/leases", DESK).await else {
        return;
    };
    page.until_says(".node", "node-1 7 held").await;
    page.until_says(".node", "node-2 0 held").await;
    page.until_says(".chip", &format!("Elsewhere than preferred {elsewhere}"))
        .await;
    page.until_says(".chip", "Paused 1").await;
    let drawn = page
        .eval("document.querySelector('.cells').getAttribute('aria-label')")
        .await;
    let words = format!("{elsewhere} held elsewhere than preferred");
    assert!(drawn.as_str().expect("words").contains(&words), "{drawn}");
    // A lease that is released and one that is granted show without being asked for.
    let held = daemon.get("/v1/groups/pollers/leases/endpoint-1").await.json();
    let release = json!({"tenure": nodes[0], "token": held["token"]});
    act(&daemon, "POST", "/v1/groups/pollers/leases/endpoint-1/release", release).await;
    page.until_says(".node", "node-1 6 held").await;
    page.until_says(".chip", "Not held 1").await;
    act(
        &daemon,
        "POST",
        "/v1/groups/pollers/leases/endpoint-1/acquire",
        json!({"tenure": nodes[1]}),
    )
    .await;
    page.until_says(".node", "node-2 1 held").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_counted_by_state_and_tell_how_long_they_wait() {
    let daemon = open().await;
    let front = join(&daemon, "chat", "front-1").await;
    for n in 1..=3 {
        let body = json!({"tenure": front, "connection": format!("c-{n}"), "alias": format!("room-{n}")});
        act(&daemon, "PUT", &format!("/v1/groups/chat/sessions/s-{n}"), body).await;
    }
    let Some(mut page) = Page::open(&daemon.base, "#/g/chat/sessions", DESK).await else {
        return;
    };
    page.until_says(".chip", "Active 3").await;
    page.until_says(".session", "s-1 alias room-1 1 connection").await;
    daemon
        .delete(&format!("/v1/groups/chat/sessions/s-2/connections/c-2?tenure={front}"))
        .await;
    page.until_says(".chip", "Disconnected 1").await;
    page.until_says(".session", "s-2 alias room-2 reaped in").await;
    page.eval(
        "[...document.querySelectorAll('.chip')].find((chip) => chip.innerText.startsWith('Disconnected')).click()",
    )
    .await;
    page.until(
        "only the disconnected are listed",
        "document.querySelectorAll('.session:not([hidden])').length === 1",
    )
    .await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn registries_are_listed_and_can_be_entered() {
    let daemon = open().await;
    let owner = join(&daemon, "ingest", "owner-1").await;
    for key in ["dev-1", "dev-2"] {
        claim(&daemon, "ingest", "devices", key, &owner).await;
    }
    let Some(mut page) = Page::open(&daemon.base, "#/g/ingest/registries", DESK).await else {
        return;
    };
    page.until_says(".chip", "devices").await;
    page.until_says(".claim", "dev-2 owner-1").await;
    claim(&daemon, "ingest", "rooms", "room-9", &owner).await;
    page.until_says(".chip", "rooms").await;
    page.eval("document.querySelector('.ask input').focus()").await;
    page.write("not.listed").await;
    page.press("Enter").await;
    page.until_says(".none", "No claims here.").await;
    page.until_says(".chip", "not.listed").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn roster_shows_availability_and_source() {
    let daemon = open().await;
    for (provider, capacity) in [("ada", 2), ("ben", 1), ("chen", 1), ("dora", 1)] {
        let path = format!("/v1/rosters/support/providers/{provider}");
        act(
            &daemon,
            "PUT",
            &path,
            json!({"capacity": capacity, "display_name": provider.to_uppercase()}),
        )
        .await;
        if provider != "chen" {
            act(&daemon, "POST", &format!("{path}/online"), json!({})).await;
        }
    }
    act(
        &daemon,
        "POST",
        "/v1/rosters/support/engagements",
        json!({"provider": "ben"}),
    )
    .await;
    act(
        &daemon,
        "POST",
        "/v1/rosters/support/providers/dora/deactivate",
        json!({}),
    )
    .await;
    let Some(mut page) = Page::open(&daemon.base, "#/r/support", DESK).await else {
        return;
    };
    for words in [
        "ADA ada available 0 of 2 taken",
        "BEN ben busy 1 of 1 taken",
        "CHEN chen offline",
        "DORA dora deactivated",
    ] {
        page.until_says(".provider", words).await;
    }
    page.until_says(".chip", "Available 1").await;
    page.until_says(".fine", "Answered from the mirror.").await;
    act(&daemon, "POST", "/v1/rosters/support/providers/chen/online", json!({})).await;
    page.until_says(".provider", "CHEN chen available").await;
    page.turn("#/why/roster.support/dora").await;
    page.until_says(".kicker", "provider of roster support").await;
    page.until_says(".event", "dora became deactivated").await;
    page.assert_clean();
}
