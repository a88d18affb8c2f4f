//! The overview: what ended lately in all groups, and how much.

use crate::common::Daemon;
use crate::dashboard::fixture::{join, open_at_rest};
use crate::dashboard::page::{DESK, Page};

async fn leave(daemon: &Daemon, group: &str, tenure: &str) {
    let answer = daemon.delete(&format!("/v1/groups/{group}/tenures/{tenure}")).await;
    assert_eq!(answer.status, 204, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_lists_recent_ends_first() {
    let daemon = open_at_rest().await;
    let early = join(&daemon, "ingest", "early").await;
    leave(&daemon, "ingest", &early).await;
    join(&daemon, "ingest", "stays").await;
    let Some(mut page) = Page::open(&daemon.base, "", DESK).await else {
        return;
    };
    page.until_says(".entry.ended", "early left in ingest").await;
    let first = "document.querySelector('.overview section').getAttribute('aria-label') === 'Ended lately'";
    page.until("it comes first", first).await;
    let later = join(&daemon, "pollers", "later").await;
    leave(&daemon, "pollers", &later).await;
    page.until_says(".entry.ended", "later left in pollers").await;
    page.until_says(".entry.ended", "early left in ingest").await;
    page.until_says(".rate", "Ends a minute 2 in the last minute").await;
    let drawn = "document.querySelector('.graph').getAttribute('aria-label').endsWith(', 2')";
    page.until("the graph has them", drawn).await;
    page.until_says(".sentence", "2 ended in the last 5 min, all cleaned up.")
        .await;
    page.click(".entry.ended").await;
    page.until_says(".kicker", "tenure in group").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_miss_says_so_and_no_more() {
    let daemon = open_at_rest().await;
    join(&daemon, "ingest", "a").await;
    join(&daemon, "pollers", "b").await;
    let Some(mut page) = Page::open(&daemon.base, "", DESK).await else {
        return;
    };
    page.until_says(".entry", "pollers").await;
    page.press("/").await;
    page.write("never-was").await;
    page.until_says("#found", "Not found in 2 groups. Open a group to search its events.")
        .await;
    assert_eq!(page.eval("document.querySelectorAll('#found > div').length").await, 1);
    page.press("Escape").await;
    page.turn("#/g/ingest").await;
    page.press("/").await;
    page.write("never-was").await;
    page.until_says("#found", "not found; search the events in ingest")
        .await;
    page.press("Enter").await;
    page.until_says(".kicker", "nothing of this name is here now").await;
    page.assert_clean();
}
