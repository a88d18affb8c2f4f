//! On a phone, in the dark, and with text from strangers.

use serde_json::json;

use crate::common::Daemon;
use crate::dashboard::fixture::{act, claim, group, join, join_at, open};
use crate::dashboard::page::{DESK, PHONE, Page, Screen};

const PLACES: &[&str] = &[
    "#/",
    "#/g/g",
    "#/g/g/timeline",
    "#/g/g/leases",
    "#/g/g/sessions",
    "#/g/g/registries",
    "#/r/support",
    "#/why/g/worker",
    "#/g/empty",
];

/// Something of everything, with names as long as they may be.
async fn furnished() -> Daemon {
    let daemon = open().await;
    let long = "x".repeat(200);
    let tenure = join(&daemon, "g", "worker").await;
    join(&daemon, "g", &long).await;
    claim(&daemon, "g", &long, &long, &tenure).await;
    for target in ["endpoint-1", "endpoint-2", &long] {
        act(&daemon, "PUT", &format!("/v1/groups/g/targets/{target}"), json!({})).await;
        act(
            &daemon,
            "POST",
            &format!("/v1/groups/g/leases/{target}/acquire"),
            json!({"tenure": tenure}),
        )
        .await;
    }
    let session = json!({"tenure": tenure, "connection": "c", "alias": long});
    act(&daemon, "PUT", &format!("/v1/groups/g/sessions/{long}"), session).await;
    for provider in ["ada", &long] {
        let path = format!("/v1/rosters/support/providers/{provider}");
        act(&daemon, "PUT", &path, json!({"capacity": 1})).await;
        act(&daemon, "POST", &format!("{path}/online"), json!({})).await;
    }
    let gone = join(&daemon, "g", "gone").await;
    daemon.delete(&format!("/v1/groups/g/tenures/{gone}")).await;
    daemon
}

/// Waits until a place has something to show.
async fn settle(page: &mut Page, place: &str) {
    page.turn(place).await;
    let shown = "document.querySelector('.row:not([data-empty]):not([hidden]), .none:not([hidden]), .entry')";
    page.until("there is something", shown).await;
    page.until(
        "it is drawn",
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_wider_than_a_phone() {
    let daemon = furnished().await;
    let Some(mut page) = Page::open(&daemon.base, "", PHONE).await else {
        return;
    };
    for place in PLACES {
        settle(&mut page, place).await;
        let wide = page.eval("document.documentElement.scrollWidth - innerWidth").await;
        assert!(
            wide.as_i64().expect("a number") <= 0,
            "{place} is {wide} px wider than the screen"
        );
    }
    page.assert_clean();
}

/// Everything whose text stands out too little from what is behind it (WCAG 2.2, 1.4.3).
pub const FAINT: &str = "(() => {
    const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
    const light = (color) => {
        const [r, g, b] = numbers(color).map((part) => {
            const share = part / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        for (let one = element; one; one = one.parentElement) {
            const color = getComputedStyle(one).backgroundColor;
            const seen = numbers(color)[3] ?? 1;
            if (seen === 1) return color;
        }
        return getComputedStyle(document.documentElement).backgroundColor;
    };
    const faint = [];
    for (const element of document.querySelectorAll('body *')) {
        const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!own || !element.checkVisibility({ visibilityProperty: true }) || element.closest('.hidden')) continue;
        const style = getComputedStyle(element);
        const [a, b] = [light(style.color), light(behind(element))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        const size = parseFloat(style.fontSize);
        const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
        if (ratio < (large ? 3 : 4.5)) faint.push(element.className + ' ' + element.innerText.slice(0, 40) + ' ' + ratio.toFixed(2));
    }
    return faint;
})()";

#[tokio::test(flavor = "multi_thread")]
async fn all_text_stands_out_by_day_and_by_night() {
    let daemon = furnished().await;
    let Some(mut page) = Page::open(&daemon.base, "", DESK).await else {
        return;
    };
    for dark in [false, true] {
        page.screen(Screen { dark, ..DESK }).await;
        let paper = page
            .eval("getComputedStyle(document.documentElement).backgroundColor")
            .await;
        assert_eq!(paper != "rgb(247, 246, 243)", dark, "{paper}");
        for place in PLACES {
            settle(&mut page, place).await;
            let faint = page.eval(FAINT).await;
            assert_eq!(faint, json!([]), "{place}, dark: {dark}");
        }
    }
    // The switch goes before the system, and is remembered.
    page.eval("document.activeElement.blur()").await;
    page.press("t").await;
    page.until(
        "it is light by choice",
        "document.documentElement.dataset.theme === 'light'",
    )
    .await;
    assert_eq!(
        page.eval("getComputedStyle(document.documentElement).backgroundColor")
            .await,
        "rgb(247, 246, 243)"
    );
    page.go("").await;
    assert_eq!(page.eval("document.documentElement.dataset.theme").await, "light");
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn text_from_strangers_stays_text() {
    let daemon = open().await;
    let bad = "<img src=x onerror=\"globalThis.hacked=1\"><script>globalThis.hacked=1</script>";
    join_at(
        &daemon.store,
        &group("g"),
        "worker",
        &[(bad, "javascript:hacked=1"), ("zone", bad)],
    )
    .await;
    let tenure = join(&daemon, "g", "other").await;
    let session = json!({"tenure": tenure, "connection": "c", "data": {"field": bad}});
    act(&daemon, "PUT", "/v1/groups/g/sessions/s", session).await;
    let provider = json!({"capacity": 1, "display_name": bad});
    act(&daemon, "PUT", "/v1/rosters/support/providers/p", provider).await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/g", DESK).await else {
        return;
    };
    page.until_says(".member", bad).await;
    page.turn("#/why/g/worker").await;
    page.until_says(".facts", bad).await;
    page.turn("#/why/g/session:s").await;
    page.until_says(".facts", "1 field").await;
    page.turn("#/r/support").await;
    page.until_says(".provider", bad).await;
    // And from addresses, which may come from another page.
    let encoded = page.eval(&format!("encodeURIComponent({})", json!(bad))).await;
    let encoded = encoded.as_str().expect("text");
    for place in ["g", "r", "why/g"] {
        page.eval(&format!("location.hash = '#/{place}/{encoded}'")).await;
        page.until_says("main", "onerror").await;
    }
    assert_eq!(
        page.eval("globalThis.hacked === undefined && document.images.length === 0")
            .await,
        true
    );
    assert_eq!(page.eval("document.querySelectorAll('main script').length").await, 0);
    page.assert_clean();
}
