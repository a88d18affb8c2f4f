//! Who is there, and what happens to them, as it happens.

use serde_json::json;

use crate::dashboard::fixture::{act, claim, join, open, open_at_rest};
use crate::dashboard::page::{DESK, Page};

#[tokio::test(flavor = "multi_thread")]
async fn member_appears_on_join_and_its_end_has_a_reason() {
    let daemon = open().await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/ingest", DESK).await else {
        return;
    };
    page.until_says(".none", "No members yet.").await;
    let labels = json!({"member": "worker-1", "ttl_ms": 120_000, "labels": {"zone": "fra-1"}});
    act(&daemon, "POST", "/v1/groups/ingest/members", labels).await;
    page.until_says(".member", "worker-1").await;
    page.until_says(".member", "zone fra-1").await;
    let brief = join(&daemon, "ingest", "brief").await;
    claim(&daemon, "ingest", "devices", "dev-1", &brief).await;
    page.until_says(".member", "brief").await;
    // It beats once more, for a short time, and never again.
    let beat = format!("/v1/groups/ingest/tenures/{brief}/beat");
    act(&daemon, "PUT", &beat, json!({"ttl_ms": 1_000})).await;
    page.until_says(".event", "brief lapsed its end time passed without a beat")
        .await;
    page.until_says(".event", "brief was cleaned up 1 claim (devices 1)")
        .await;
    page.until_silent(".member:not([hidden])", "brief").await;
    page.until_says(".member", "worker-1").await;
    page.until_says(".under", "1 member").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_end_has_its_own_words() {
    let daemon = open().await;
    let left = join(&daemon, "g", "leaver").await;
    let expelled = join(&daemon, "g", "outcast").await;
    join(&daemon, "g", "twice").await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/g", DESK).await else {
        return;
    };
    page.until_says(".member", "twice").await;
    daemon.delete(&format!("/v1/groups/g/tenures/{left}")).await;
    daemon
        .delete(&format!("/v1/groups/g/tenures/{expelled}?expel=true"))
        .await;
    join(&daemon, "g", "twice").await;
    page.until_says(".event", "leaver left it ended its own tenure").await;
    page.until_says(".event", "outcast was expelled an operator ended it")
        .await;
    page.until_says(".event", "twice was superseded the same member joined again")
        .await;
    // Events from before the page was opened are shown, too.
    page.go("#/g/g").await;
    page.until_says(".event", "outcast was expelled").await;
    page.until_says(".member", "twice").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_summarizes_and_explains_the_first_steps() {
    let daemon = open_at_rest().await;
    let Some(mut page) = Page::open(&daemon.base, "", DESK).await else {
        return;
    };
    page.until_says(".sentence", "no member has joined").await;
    let command = format!("tenure join --store {} --group demo -- sleep 600", daemon.base);
    page.until_says(".overview .command", &command).await;
    join(&daemon, "ingest", "a").await;
    join(&daemon, "ingest", "b").await;
    join(&daemon, "pollers", "c").await;
    page.until_says(".sentence", "3 members in 2 groups. All settled, nothing left behind.")
        .await;
    page.until_says(".entry", "ingest 2 members settled").await;
    page.until_says("[aria-label=Loops] .fine", "None of the").await;
    assert_eq!(
        page.text("[aria-label=Loops] .entry").await,
        "",
        "only loops in trouble are listed"
    );
    page.until_says(".entry", "memory:").await;
    page.until_says("#link", "live").await;
    page.assert_clean();
}
