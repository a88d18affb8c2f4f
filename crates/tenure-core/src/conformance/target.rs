//! Cases about targets.

use super::world::{Make, World, lease, leases, ms, refused};
use crate::error::ErrorKind;
use crate::event::EventKind;
use crate::store::{Call, PageRequest};
use crate::target::{Target, TargetSpec};

/// Targets are added, changed and removed.
pub async fn targets_are_added_changed_and_removed(make: Make<'_>) {
    let world = World::new(make).await;
    let (store, group, name) = (&world.store, &world.group, lease("endpoint-1"));
    assert_eq!(store.target(group, &name).await.expect("a look-up"), None);
    let plain = TargetSpec::default();
    let heavy = TargetSpec {
        paused: true,
        weight: 7,
    };
    for (spec, new) in [(plain, true), (plain, false), (heavy, false)] {
        let put = store.put_target(group, &name, spec, Call::default()).await;
        assert_eq!(put.expect("put"), new);
        let seen = store.target(group, &name).await.expect("a look-up");
        assert_eq!(
            seen,
            Some(Target {
                target: name.clone(),
                spec
            })
        );
    }
    for known in [true, false] {
        let removed = store.remove_target(group, &name, Call::default()).await;
        assert_eq!(removed.expect("removed"), known);
    }
    assert_eq!(store.target(group, &name).await.expect("a look-up"), None);
    let told = world.events_of(EventKind::TargetChanged).await;
    let reasons: Vec<_> = told.iter().map(|event| event.reason.as_deref()).collect();
    assert_eq!(reasons, [Some("added"), Some("changed"), Some("removed")]);
    assert!(told.iter().all(|event| event.lease.as_ref() == Some(&name)));
}

/// A target over a limit, or a late call, is refused.
pub async fn a_bad_target_changes_nothing(make: Make<'_>) {
    let world = World::new(make).await;
    let (store, group, name) = (&world.store, &world.group, lease("endpoint-1"));
    world.tick().await;
    for weight in [0, crate::target::MAX_WEIGHT + 1] {
        let spec = TargetSpec { paused: false, weight };
        let put = store.put_target(group, &name, spec, Call::default()).await;
        refused(put, ErrorKind::Invalid);
    }
    let late = Call::not_after(store.now().await.expect("a time").minus(ms(1)));
    let put = store.put_target(group, &name, TargetSpec::default(), late).await;
    refused(put, ErrorKind::TooLate);
    refused(store.remove_target(group, &name, late).await, ErrorKind::TooLate);
    assert!(world.events_of(EventKind::TargetChanged).await.is_empty());
}

/// Targets are listed in pages.
pub async fn targets_are_listed_page_by_page(make: Make<'_>) {
    let world = World::new(make).await;
    let names = leases("t-", 23);
    for name in &names {
        let put = world
            .store
            .put_target(&world.group, name, TargetSpec::default(), Call::default());
        put.await.expect("put");
    }
    let (mut after, mut all) = (None, Vec::new());
    loop {
        let page = PageRequest { after, limit: 5 };
        let page = world.store.targets(&world.group, &page).await.expect("a page");
        assert!(page.items.len() <= 5);
        all.extend(page.items.into_iter().map(|target| target.target));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    all.sort();
    assert_eq!(all, names);
    let bad = PageRequest {
        after: Some("no such/place/".to_owned()),
        limit: 3,
    };
    refused(world.store.targets(&world.group, &bad).await, ErrorKind::Invalid);
}
