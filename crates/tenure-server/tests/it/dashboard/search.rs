//! Any id leads to its why.

use serde_json::json;

use crate::dashboard::fixture::{act, claim, join, open, open_at_rest};
use crate::dashboard::page::{DESK, Page};

#[tokio::test(flavor = "multi_thread")]
async fn any_id_leads_to_its_why() {
    let daemon = open_at_rest().await;
    let tenure = join(&daemon, "g", "worker").await;
    claim(&daemon, "g", "devices", "dev-7", &tenure).await;
    act(
        &daemon,
        "POST",
        "/v1/groups/g/leases/job-7/acquire",
        json!({"tenure": tenure}),
    )
    .await;
    act(&daemon, "PUT", "/v1/groups/g/targets/site-7", json!({})).await;
    let session = json!({"tenure": tenure, "connection": "c", "alias": "room-7"});
    act(&daemon, "PUT", "/v1/groups/g/sessions/s-7", session).await;
    let gone = join(&daemon, "g", "gone").await;
    daemon.delete(&format!("/v1/groups/g/tenures/{gone}")).await;
    let Some(mut page) = Page::open(&daemon.base, "", DESK).await else {
        return;
    };
    page.until_says(".entry", "settled").await;
    for (id, kind, fact) in [
        ("worker", "member in group g", "alive, for another"),
        (tenure.as_str(), "tenure in group g", "alive, for another"),
        ("job-7", "lease in group g", "worker"),
        ("lease:job-7", "lease in group g", "worker"),
        ("site-7", "target and lease in group g", "none"),
        ("s-7", "session in group g", "active, with 1 connection"),
        ("room-7", "session in group g", "Alias room-7"),
        ("dev-7", "key in group g", "its owner is alive"),
        ("devices/dev-7", "key in group g", "its owner is alive"),
        (
            "gone",
            "a member that is not here any more, in group g",
            "it ended its own tenure",
        ),
        ("never-was", "nothing of this name is here now, in group g", "not here"),
    ] {
        page.press("/").await;
        page.write(id).await;
        page.press("Enter").await;
        let over = "document.getElementById('search').value === '' && document.activeElement.id !== 'search'";
        page.until("the search is over", over).await;
        page.until_says(".kicker", kind).await;
        page.until_says(".facts", fact).await;
    }
    page.turn(&format!("#/why/g/{gone}")).await;
    page.until_says(".event", "gone left").await;
    page.until_says(".event", "gone joined").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn search_finds_page_content_and_known_names() {
    let daemon = open().await;
    let tenure = join(&daemon, "near", "shown-1").await;
    act(
        &daemon,
        "POST",
        "/v1/groups/near/leases/shown-1/acquire",
        json!({"tenure": tenure}),
    )
    .await;
    join(&daemon, "far", "hidden-1").await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/near", DESK).await else {
        return;
    };
    page.until_says(".member", "shown-1").await;
    page.press("/").await;
    page.write("shown").await;
    page.until_says("#found", "shown-1 member in near").await;
    page.write("-1").await;
    // A name may be that of several things; an arrow chooses.
    page.until_says("#found", "lease:shown-1 lease in near").await;
    page.press("ArrowDown").await;
    page.press("ArrowDown").await;
    page.press("Enter").await;
    page.until_says(".kicker", "lease in group near").await;
    page.turn("#/g/near").await;
    page.press("/").await;
    page.write("hidden-1").await;
    page.press("Enter").await;
    page.until_says(".kicker", "member in group far").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_chosen_on_the_overview_is_shown() {
    let daemon = open().await;
    join(&daemon, "ingest", "a").await;
    join(&daemon, "pollers", "b").await;
    let Some(mut page) = Page::open(&daemon.base, "", DESK).await else {
        return;
    };
    page.until_says(".entry", "pollers").await;
    page.press("/").await;
    page.write("poll").await;
    page.until_says("#found", "pollers group").await;
    page.until_silent("#found", "null").await;
    page.press("ArrowDown").await;
    page.press("Enter").await;
    page.until("the group is shown", "tenure.view.key === 'g/pollers'")
        .await;
    page.until_says(".member", "b").await;
    page.assert_clean();
}
