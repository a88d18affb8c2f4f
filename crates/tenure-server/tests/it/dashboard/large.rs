//! Groups with more than a page reads every few seconds, or keeps.

use serde_json::json;
use tenure_core::id::LeaseName;
use tenure_core::membership::EndBy;
use tenure_core::store::Call;
use tenure_core::target::TargetSpec;
use tenure_server::Settings;

use crate::common::Daemon;
use crate::dashboard::fixture::{act, group, join, join_at, open_at_rest, parts, store_at_rest};
use crate::dashboard::page::{DESK, Page};

/// The number of requests of the page when its clock advances by some seconds.
const ASKED: &str =
    "(() => { const before = tenure.cost.requests; tenure.view.freshen(); return tenure.cost.requests - before; })()";
const AT_REST: &str = "tenure.view.pane.read && !tenure.view.pane.busy";

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_read_again_after_events_only() {
    let store = store_at_rest();
    let pollers = group("pollers");
    for n in 0..=1000 {
        let target = LeaseName::new(format!("endpoint-{n:04}")).expect("a name");
        let put = store.put_target(&pollers, &target, TargetSpec::default(), Call::default());
        put.await.expect("a target");
    }
    let daemon = Daemon::of(parts(&store), Settings::default()).await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/pollers/leases", DESK).await else {
        return;
    };
    page.until_says(".chip", "All 1,001").await;
    page.until("all is read", AT_REST).await;
    assert_eq!(page.eval(ASKED).await, 0, "nothing has happened");
    // A member that comes changes where targets would rather be.
    join(&daemon, "pollers", "node-1").await;
    page.until_says(".node", "node-1 0 held, 1,001 preferred").await;
    // After a while it looks all the same.
    page.until("all is read", AT_REST).await;
    let later = "const now = Date.now; Date.now = () => now() + 31000";
    let asked = ASKED.replace("view.freshen", "view.pane.freshen");
    let later = format!("(() => {{ {later}; const asked = {asked}; Date.now = now; return asked; }})()");
    assert_eq!(page.eval(&later).await, 1);
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_during_a_read_of_leases_count() {
    let daemon = open_at_rest().await;
    let node = join(&daemon, "pollers", "node-1").await;
    act(&daemon, "PUT", "/v1/groups/pollers/targets/endpoint-1", json!({})).await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/pollers/leases", DESK).await else {
        return;
    };
    page.until_says(".node", "node-1 0 held").await;
    page.until("the stream is followed", "tenure.world.stream === 'live'")
        .await;
    // One answer about leases is held up on its way to the page.
    page.eval(
        "(() => {
            const real = fetch;
            globalThis.fetch = async (...args) => {
                const answer = await real(...args);
                if (!globalThis.goOn && String(args[0]).includes('/leases?')) await new Promise((go) => { globalThis.goOn = go; });
                return answer;
            };
        })()",
    )
    .await;
    page.until("an answer is held up", "globalThis.goOn").await;
    let acquire = "/v1/groups/pollers/leases/endpoint-1/acquire";
    act(&daemon, "POST", acquire, json!({"tenure": node})).await;
    page.until_says(".node", "node-1 1 held").await;
    let holder = page
        .eval(
            "(async () => {
                const { pane } = tenure.view;
                goOn();
                while (pane.busy) await new Promise((next) => setTimeout(next, 0));
                return pane.entries.get('endpoint-1').holder ?? 'nobody';
            })()",
        )
        .await;
    assert_eq!(holder, "node-1");
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn timeline_counts_events_it_does_not_keep() {
    let store = store_at_rest();
    let fleet = group("fleet");
    for n in 0..2700 {
        let tenure = join_at(&store, &fleet, &format!("m-{n}"), &[]).await;
        let tenure = tenure.parse().expect("a tenure");
        let end = store.end(&fleet, &tenure, EndBy::Leave, Call::default());
        end.await.expect("an end");
    }
    let daemon = Daemon::of(parts(&store), Settings::default()).await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/fleet", DESK).await else {
        return;
    };
    // The burst is counted in full even when there are too many events to keep.
    page.until_says(".event", "2,700 members left").await;
    page.until("it has looked back", "tenure.view.timeline.events.length === 5000")
        .await;
    assert!(
        !page.text(".event").await.contains("at least"),
        "it knows the beginning"
    );
    page.until("it does not offer more", "document.querySelector('.older').hidden")
        .await;
    // What happens now does not bring the offer back, to read again and again what is thrown away.
    join(&daemon, "fleet", "late").await;
    page.until_says(".member", "late").await;
    page.until(
        "it saw the end and no longer offers it",
        "tenure.view.timeline.events.at(-1).tenure.startsWith('late@') && document.querySelector('.older').hidden",
    )
    .await;
    assert_eq!(page.eval("tenure.view.timeline.events.length").await, 5000);
    page.assert_clean();
}
