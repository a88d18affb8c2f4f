//! Pages are weighed: large values are read, checked and removed a few at a time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use tenure_adopt::{Notice, OwnerAt};

use crate::registry::world::{HASH, World, on_both, ready, settings};

/// The first page asks for 16 entries of unknown size, and a server may return five times as many: about 4 MiB here. A page of
/// 500 entries is 25 MiB.
const MOST: usize = 12 << 20;

/// A value that names its owner in JSON and is this long.
fn padded(owner: &str, bytes: usize) -> String {
    let start = format!(r#"{{"instance":"{owner}","pad":""#);
    let pad = "x".repeat(bytes.saturating_sub(start.len() + 2));
    format!(r#"{start}{pad}"}}"#)
}

fn claim_padded(world: &World, owner: &str, entries: usize, bytes: usize) {
    let value = padded(owner, bytes);
    for n in 0..entries {
        world.claim(&format!("{owner}-{bytes}-{n}"), &value);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_values_are_read_and_removed_in_small_pages() {
    on_both(&[], |world| async move {
        for owner in ["dead", "alive"] {
            claim_padded(&world, owner, 200, 256 << 10);
            claim_padded(&world, owner, 10, 1 << 20);
            claim_padded(&world, owner, 1_000, 100);
        }
        world.beat("alive");
        let mut with_pointer = settings(0);
        with_pointer.owner_at = OwnerAt::pointer("/instance").unwrap();
        let heaviest = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&heaviest);
        let listener = move |notice: &Notice<'_>| match notice {
            Notice::Evicting(page) => {
                let bytes: usize = page.iter().map(|entry| entry.field.len() + entry.value.len()).sum();
                assert!(bytes <= MOST, "{bytes} bytes in a page of {}", page.len());
            }
            Notice::Scanned { bytes, .. } => {
                seen.fetch_max(*bytes, Relaxed);
            }
            _ => {}
        };
        let mut janitor = ready(&world.server.url(), with_pointer)
            .await
            .with_listener(Box::new(listener));
        let preview = janitor.preview().await.unwrap();
        let kept: usize = preview.doomed.iter().map(|entry| entry.value.len()).sum();
        assert_eq!((preview.doomed.len(), kept), (1_000, 0), "a preview keeps no values");
        let report = janitor.pass(false).await.unwrap();
        assert_eq!((report.evicted_total(), world.len()), (1_210, 1_210), "{report:?}");
        let heaviest = heaviest.load(Relaxed);
        assert!(heaviest <= MOST as u64, "a page of {heaviest} bytes was read");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_grow_again_after_large_values() {
    on_both(&[], |world| async move {
        claim_padded(&world, "large", 5, 1 << 20);
        world.claim_many("small", 0..20_000);
        world.beat("small");
        let pages = Arc::new(Mutex::new(0));
        let seen = Arc::clone(&pages);
        let listener = move |notice: &Notice<'_>| {
            *seen.lock().unwrap() += u64::from(matches!(notice, Notice::Scanned { .. }));
        };
        let mut with_pointer = settings(0);
        with_pointer.owner_at = OwnerAt::Value;
        let mut janitor = ready(&world.server.url(), with_pointer)
            .await
            .with_listener(Box::new(listener));
        let report = janitor.pass(false).await.unwrap();
        assert_eq!((report.skipped, report.evicted_total()), (5, 0));
        // 41 pages of 500 entries, and the smaller ones around each large value.
        let pages = *pages.lock().unwrap();
        assert!(pages < 500, "{pages} pages");
        world.run(&["DEL", HASH]);
    })
    .await;
}
