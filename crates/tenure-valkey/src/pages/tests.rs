//! The paging rule against every behaviour that the protocol allows a server.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{PageCursor, ScanStep};

/// One scan step over a small hash (returned whole) or a large one (returned in buckets of uneven size).
fn scan(names: &BTreeSet<u16>, small: bool, cursor: u64, resumed: u64) -> ScanStep {
    let name = |n: &u16| format!("n{n:05}");
    if small {
        return ScanStep {
            resumed,
            cursor: 0,
            names: names.iter().rev().map(name).collect(),
        };
    }
    // Bucket b holds the names equal to b modulo 8, so a bucket may hold none or many.
    let names = names
        .iter()
        .filter(|n| u64::from(**n % 8) == cursor)
        .map(name)
        .collect();
    ScanStep {
        resumed,
        cursor: (cursor + 1) % 8,
        names,
    }
}

proptest! {
    #[test]
    fn present_names_are_listed(
        stay in prop::collection::btree_set(any::<u16>(), 0..60),
        others in prop::collection::vec(prop::collection::btree_set(any::<u16>(), 0..20), 1..6),
        limit in 1..30usize,
        grows_at in 0..40usize,
        resumes_at in 0..40usize,
    ) {
        let (mut place, mut listed, mut pages) = (Some(PageCursor::beginning()), BTreeSet::new(), 0);
        while let Some(at) = place {
            // The cursor survives a round trip through a client.
            let at = PageCursor::parse(&at.show()).expect("a place of ours");
            let names: BTreeSet<u16> = stay.union(&others[pages % others.len()]).copied().collect();
            let (small, resumed) = (pages < grows_at, u64::from(pages >= resumes_at));
            let (page, next) = match at.scan_from(limit) {
                None => at.carried_page(limit),
                Some(cursor) => match at.page(scan(&names, small, cursor, resumed), limit) {
                    Some(done) => done,
                    None => PageCursor::beginning().page(scan(&names, small, 0, resumed), limit).expect("a beginning"),
                },
            };
            prop_assert!(page.len() <= limit);
            listed.extend(page);
            (place, pages) = (next, pages + 1);
            prop_assert!(pages < 2_000, "the listing does not end");
        }
        for name in &stay {
            prop_assert!(listed.contains(&format!("n{name:05}")), "n{name:05} is lost");
        }
    }

    #[test]
    fn any_text_parses_or_is_refused(text in ".*") {
        if let Some(place) = PageCursor::parse(&text) {
            prop_assert_eq!(PageCursor::parse(&place.show()), Some(place));
        }
    }
}

#[test]
fn malformed_cursor_is_refused() {
    for junk in [
        "",
        "k",
        "x/1",
        "h/1/2",
        "h/1/2/a/b",
        "h/-1/2/a",
        "h/1/x/a",
        "k/a b",
        "h/1/2/a b",
        "k/\u{e9}",
        "h/1/99999999999999999999/",
    ] {
        assert_eq!(PageCursor::parse(junk), None, "{junk:?}");
    }
}
