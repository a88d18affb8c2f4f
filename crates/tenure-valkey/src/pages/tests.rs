//! The paging rule against a server that behaves as badly as the protocol allows.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{Place, Scanned};

/// A hash that is small (comes whole) or big (comes by buckets of uneven size).
fn scan(names: &BTreeSet<u16>, small: bool, cursor: u64, resumed: u64) -> Scanned {
    let name = |n: &u16| format!("n{n:05}");
    if small {
        return Scanned {
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
    Scanned {
        resumed,
        cursor: (cursor + 1) % 8,
        names,
    }
}

proptest! {
    #[test]
    fn whoever_is_present_throughout_is_listed(
        stay in prop::collection::btree_set(any::<u16>(), 0..60),
        others in prop::collection::vec(prop::collection::btree_set(any::<u16>(), 0..20), 1..6),
        limit in 1..30usize,
        grows_at in 0..40usize,
        resumes_at in 0..40usize,
    ) {
        let (mut place, mut listed, mut pages) = (Some(Place::beginning()), BTreeSet::new(), 0);
        while let Some(at) = place {
            // The place survives being told to a client.
            let at = Place::parse(&at.show()).expect("a place of ours");
            let names: BTreeSet<u16> = stay.union(&others[pages % others.len()]).copied().collect();
            let (small, resumed) = (pages < grows_at, u64::from(pages >= resumes_at));
            let (page, next) = match at.scan_from(limit) {
                None => at.carried_page(limit),
                Some(cursor) => match at.page(scan(&names, small, cursor, resumed), limit) {
                    Some(done) => done,
                    None => Place::beginning().page(scan(&names, small, 0, resumed), limit).expect("a beginning"),
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
    fn no_text_makes_a_place_panic(text in ".*") {
        if let Some(place) = Place::parse(&text) {
            prop_assert_eq!(Place::parse(&place.show()), Some(place));
        }
    }
}

#[test]
fn junk_is_no_place() {
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
        assert_eq!(Place::parse(junk), None, "{junk:?}");
    }
}
