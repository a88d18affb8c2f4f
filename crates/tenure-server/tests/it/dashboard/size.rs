//! Ten thousand members: the page stays as small as with ten.

use std::sync::Arc;

use tenure_core::membership::EndBy;
use tenure_core::store::{Call, Store};
use tenure_server::Settings;

use crate::common::Daemon;
use crate::dashboard::fixture::{group, join_at, parts, store};
use crate::dashboard::page::{DESK, Page};

const MANY: usize = 10_000;
/// What a screen of rows takes, and a good deal more.
const MOST_NODES: u64 = 1_200;

async fn nodes(page: &mut Page) -> u64 {
    page.eval("document.querySelectorAll('*').length")
        .await
        .as_u64()
        .expect("a number")
}

async fn leave(store: &Arc<dyn Store>, tenures: &[String]) {
    for tenure in tenures {
        let tenure = tenure.parse().expect("a tenure");
        store
            .end(&group("big"), &tenure, EndBy::Leave, Call::default())
            .await
            .expect("an end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_members_are_a_screen_of_rows() {
    let store = store();
    let mut tenures = Vec::new();
    for n in 0..MANY {
        tenures.push(join_at(&store, &group("big"), &format!("member-{n:05}"), &[]).await);
    }
    let daemon = Daemon::of(parts(&store), Settings::default()).await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/big", DESK).await else {
        return;
    };
    page.until_says(".under", "10,000 members").await;
    page.until_says(".fine", "All 10,000 were last read at").await;
    // By name it is read as far as it is looked at.
    page.click("[aria-label=Order] .chip:last-child").await;
    page.until_says(".member", "member-00000").await;
    let requests = "tenure.cost.requests - performance.now() / 1000";
    let before = page.eval(requests).await.as_f64().expect("a number");
    page.until(
        "the list is as long as there are members",
        "parseFloat(document.querySelector('.rows').style.height) / 56 === 10000",
    )
    .await;
    assert!(nodes(&mut page).await < MOST_NODES, "{} nodes", nodes(&mut page).await);
    let loaded = page.eval("tenure.view.pane.pages.items().length").await;
    assert!(
        loaded.as_u64().expect("a number") <= 200,
        "only what is seen was fetched: {loaded}"
    );
    // Besides, it asks for news less often than once a second, for however long all this has taken.
    let after = page.eval(requests).await.as_f64().expect("a number");
    assert!(after - before < 20.0, "{after} requests, {before} before");
    // To the end, over everything in between.
    page.eval("document.querySelector('.side').scrollTop = 1e9").await;
    page.until_says(".member", "member-09999").await;
    assert!(nodes(&mut page).await < MOST_NODES, "{} nodes", nodes(&mut page).await);
    page.eval("document.querySelector('.rows').focus()").await;
    page.press("Home").await;
    page.until(
        "the first row is in sight",
        "document.querySelector('.side').scrollTop < 200",
    )
    .await;
    page.until_says(".member", "member-00000").await;
    // Half of them leave together.
    leave(&store, &tenures[..MANY / 2]).await;
    page.until_says(".under", "5,000 members").await;
    page.until_says(".event", "members left").await;
    page.until_says(".member", "member-05000").await;
    assert!(nodes(&mut page).await < MOST_NODES, "{} nodes", nodes(&mut page).await);
    let kept = page.eval("tenure.view.timeline.events.length").await;
    assert!(kept.as_u64().expect("a number") <= 5_000, "{kept} events are kept");
    page.assert_clean();
}
