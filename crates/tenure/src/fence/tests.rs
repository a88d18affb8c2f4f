//! What a fence admits, rejects and forgets.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tenure_core::id::Term;

use super::*;

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn admits(fence: &Fence, resource: &str, number: u64) -> bool {
    fence.admit(resource, token(number)).is_ok()
}

#[test]
fn equal_or_higher_tokens_are_admitted() {
    let fence = Fence::default();
    assert!(admits(&fence, "a", 5));
    assert!(admits(&fence, "a", 5), "a holder writes more than once");
    assert!(admits(&fence, "a", 6));
    assert!(!admits(&fence, "a", 5));
    assert!(!admits(&fence, "a", 1));
    assert!(admits(&fence, "a", 6), "a refusal changes nothing");
    assert!(admits(&fence, "b", 1), "another resource has a mark of its own");
    assert_eq!(
        (fence.seen("a"), fence.seen("b"), fence.seen("c")),
        (Some(token(6)), Some(token(1)), None)
    );
    assert!(admits(&fence, "a", Term::MAX) && !admits(&fence, "a", Term::MAX - 1));
}

#[test]
fn rejection_names_the_seen_token_and_the_fix() {
    let fence = Fence::new(1);
    fence.admit("device-7", token(43)).unwrap();
    let fenced = fence.admit("device-7", token(42)).unwrap_err();
    assert_eq!(
        (fenced.seen, fenced.token, fenced.is_remembered),
        (token(43), token(42), true)
    );
    let said = fenced.to_string();
    assert!(
        said.contains("device-7") && said.contains("43") && said.contains("42 is older"),
        "{said}"
    );
    fence.admit("device-8", token(50)).unwrap();
    let fenced = fence.admit("device-7", token(42)).unwrap_err();
    assert_eq!((fenced.seen, fenced.is_remembered), (token(43), false));
    assert!(fenced.to_string().contains("below the floor 43"), "{fenced}");
}

#[test]
fn lowest_mark_is_forgotten_first_and_becomes_the_floor() {
    let fence = Fence::new(2);
    assert!(admits(&fence, "a", 10) && admits(&fence, "b", 20));
    assert_eq!(fence.floor(), None);
    assert!(admits(&fence, "c", 30));
    assert_eq!((fence.seen("a"), fence.floor()), (None, Some(token(10))));
    assert!(!admits(&fence, "a", 9), "forgetting admits nothing old");
    assert!(!admits(&fence, "new", 9), "an unseen resource has the same floor");
    assert!(
        admits(&fence, "b", 20),
        "the floor does not apply to a remembered resource"
    );
    assert!(
        admits(&fence, "a", 10),
        "the last holder of the forgotten resource is admitted"
    );
    assert_eq!(fence.floor(), Some(token(10)), "and has the lowest mark again");
    // A mark that rose is ranked by its new value.
    let fence = Fence::new(2);
    assert!(admits(&fence, "a", 10) && admits(&fence, "b", 20) && admits(&fence, "a", 40) && admits(&fence, "c", 30));
    assert_eq!((fence.seen("a"), fence.seen("b")), (Some(token(40)), None));
}

#[test]
fn fence_starts_from_marks_kept_by_the_sink() {
    let fence = Fence::default();
    fence.remember("a", token(7));
    fence.remember("a", token(3));
    assert!(!admits(&fence, "a", 6) && admits(&fence, "a", 7));
    fence.raise_floor(token(100));
    fence.raise_floor(token(50));
    assert!(admits(&fence, "a", 8), "it is remembered, with a mark below the floor");
    assert!(!admits(&fence, "b", 99) && admits(&fence, "b", 100));
    // Forgetting a mark below the floor does not lower it.
    let small = Fence::new(1);
    small.remember("a", token(7));
    small.raise_floor(token(100));
    assert!(admits(&small, "b", 100));
    assert_eq!((small.seen("a"), small.floor()), (None, Some(token(100))));
}

#[test]
fn bounded_fence_admits_no_more_than_an_unbounded_one() {
    for most in [0, 1, 3, 10, 100] {
        let fence = Fence::new(most);
        let mut endless: HashMap<String, u64> = HashMap::new();
        let mut admitted = 0;
        let mut chance = 0x2545_f491_4f6c_dd1d_u64;
        for step in 0..20_000 {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            let resource = format!("r{}", chance % 30);
            // Rising on average, as tokens do, with outliers.
            let number = 1 + step / 4 + (chance >> 32) % 100;
            let mark = endless.entry(resource.clone()).or_default();
            let (seen, floor) = (fence.seen(&resource), fence.floor());
            let is_admitted = admits(&fence, &resource, number);
            assert!(
                !is_admitted || number >= *mark,
                "{number} below {mark} of {resource}, of {most}"
            );
            assert!(
                is_admitted || Some(token(number)) < seen.or(floor),
                "rejected without a reason"
            );
            if is_admitted {
                *mark = number;
                admitted += 1;
            }
            let remembered = (0..30).filter(|n| fence.seen(&format!("r{n}")).is_some()).count();
            assert!(remembered <= most.max(1));
        }
        assert!(admitted > 1_000, "{admitted} with {most}");
    }
}

#[test]
fn passed_writes_of_a_resource_do_not_overlap() {
    let fence = Fence::default();
    let log = Mutex::new(Vec::new());
    let next = AtomicU64::new(1);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let token = token(next.fetch_add(1, Ordering::Relaxed));
                    let _ = fence.pass("r", token, || {
                        // The write begins here and ends there.
                        thread::yield_now();
                        log.lock().unwrap().push(token);
                    });
                }
            });
        }
    });
    let log = log.into_inner().unwrap();
    assert!(log.is_sorted() && log.len() > 100, "{} writes", log.len());
}

#[test]
fn rejected_write_does_not_run_and_failed_write_keeps_mark() {
    let fence = Fence::default();
    assert_eq!(fence.pass("a", token(2), || 7), Ok(7));
    let mut ran = false;
    assert!(fence.pass("a", token(1), || ran = true).is_err());
    assert!(!ran);
    let failed = catch_unwind(AssertUnwindSafe(|| fence.pass("a", token(3), || panic!("no room"))));
    assert!(failed.is_err());
    assert_eq!(fence.seen("a"), Some(token(3)));
    assert_eq!(fence.pass("a", token(3), || "again"), Ok("again"));
}

#[test]
fn debug_output_shows_usage() {
    let fence = Fence::new(5);
    fence.remember("a", token(9));
    let shown = format!("{fence:?}");
    assert!(shown.contains("resources: 1") && shown.contains("most: 5"), "{shown}");
}
