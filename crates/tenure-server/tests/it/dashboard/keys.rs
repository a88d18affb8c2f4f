//! Everything by the keyboard.

use crate::dashboard::fixture::{join, open};
use crate::dashboard::page::{DESK, Page};

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_used_without_a_mouse() {
    let daemon = open().await;
    for member in ["a-1", "b-2", "c-3"] {
        join(&daemon, "g", member).await;
    }
    let Some(mut page) = Page::open(&daemon.base, "#/g/g", DESK).await else {
        return;
    };
    page.until_says(".member", "c-3").await;
    // The first stop is the way past the top.
    page.eval("document.activeElement.blur()").await;
    page.press("Tab").await;
    assert_eq!(page.eval("document.activeElement.className").await, "skip");
    page.press("Enter").await;
    assert_eq!(page.eval("document.activeElement.id").await, "main");
    page.press("/").await;
    assert_eq!(page.eval("document.activeElement.id").await, "search");
    page.press("Escape").await;
    assert_eq!(page.eval("document.activeElement === document.body").await, true);
    // Lists move by arrows, and tell which row is marked.
    page.eval("document.querySelector('[aria-label=Members] .rows').focus()")
        .await;
    page.until(
        "a row is marked",
        "document.querySelector('.member[aria-selected=true] .name').innerText === 'a-1'",
    )
    .await;
    page.press("ArrowDown").await;
    page.until(
        "the next is",
        "document.querySelector('.member[aria-selected=true] .name').innerText === 'b-2'",
    )
    .await;
    page.press("End").await;
    page.until(
        "the last is",
        "document.querySelector('.member[aria-selected=true] .name').innerText === 'c-3'",
    )
    .await;
    let marked = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).innerText";
    assert!(page.eval(marked).await.as_str().expect("text").contains("c-3"));
    page.press("Enter").await;
    page.until_says("h2.id", "c-3").await;
    page.press("Escape").await;
    page.until_says("h2", "g").await;
    page.press("Escape").await;
    page.until_says(".sentence", "3 members").await;
    page.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn tabs_move_by_arrows_and_there_is_help() {
    let daemon = open().await;
    join(&daemon, "g", "a").await;
    let Some(mut page) = Page::open(&daemon.base, "#/g/g", DESK).await else {
        return;
    };
    page.until_says(".member", "a").await;
    page.eval("document.getElementById('tab-members').focus()").await;
    page.press("ArrowRight").await;
    page.until(
        "the next part is shown",
        "document.querySelector('[role=tab][aria-selected=true]').innerText === 'Leases'",
    )
    .await;
    page.until_says(".none", "No leases and no targets yet.").await;
    page.eval("document.activeElement.blur()").await;
    page.press("?").await;
    page.until("the help is open", "document.getElementById('keys').open")
        .await;
    page.press("Escape").await;
    page.until("the help is closed", "!document.getElementById('keys').open")
        .await;
    page.assert_clean();
}
