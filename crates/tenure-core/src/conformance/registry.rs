//! Cases about claims.

use super::world::{Make, World, key, keys, member, ms, refused, s};
use crate::error::ErrorKind;
use crate::membership::{EndBy, EndReason};
use crate::registry::{ClaimMode, ClaimOutcome};
use crate::store::{Call, PageRequest};

/// A first claim is new, a repeated one is kept, another member's moves the key.
pub async fn a_claim_is_new_then_kept_then_moved(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(30)).await, world.join("b", s(30)).await);
    assert_eq!(world.claim(&a, "dev-1").await, ClaimOutcome::New);
    assert_eq!(world.claim(&a, "dev-1").await, ClaimOutcome::Kept);
    assert_eq!(world.claim(&b, "dev-1").await, ClaimOutcome::Moved { from: a.clone() });
    assert_eq!(world.owner("dev-1").await, Some((b.clone(), true)));
    assert_eq!(world.owner("dev-2").await, None);
    for (name, claims) in [("a", 0), ("b", 1)] {
        let seen = world
            .store
            .member(&world.group, &member(name))
            .await
            .expect("a look-up")
            .expect("a member");
        assert_eq!(seen.holdings.claims, claims, "{name}");
    }
}

/// `if_absent` takes a key that is free or whose owner is dead, and no other.
pub async fn if_absent_yields_only_to_living_owners(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(30)).await, world.join("b", s(4)).await);
    world.claim(&a, "of-a").await;
    world.claim(&b, "of-b").await;
    let asked = [key("free"), key("of-a"), key("of-b")];
    let c = world.join("c", s(30)).await;
    let outcomes = world.try_claim(&c, &asked, ClaimMode::IfAbsent).await.expect("claims");
    assert_eq!(
        outcomes,
        [
            ClaimOutcome::New,
            ClaimOutcome::Held { by: a.clone() },
            ClaimOutcome::Held { by: b.clone() }
        ]
    );
    world.pass(s(4)).await;
    // No sweep has run: b is past its end, and that suffices.
    let outcomes = world.try_claim(&c, &asked, ClaimMode::IfAbsent).await.expect("claims");
    assert_eq!(
        outcomes,
        [
            ClaimOutcome::Kept,
            ClaimOutcome::Held { by: a.clone() },
            ClaimOutcome::Moved { from: b.clone() }
        ]
    );
    world.ended(&b, EndReason::Lapsed).await;
    assert_eq!(world.owner("of-a").await, Some((a, true)));
}

/// Invariant 3: from the instant of the end, without a sweep.
pub async fn reads_never_show_a_ghost(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(6)).await;
    world.claim(&a, "dev-1").await;
    world.pass(s(6) - ms(1)).await;
    assert_eq!(world.owner("dev-1").await, Some((a.clone(), true)));
    world.pass(ms(1)).await;
    assert_eq!(world.owner("dev-1").await, Some((a.clone(), false)));
    let page = world
        .store
        .claims(&world.group, &world.devices, None, &PageRequest::default())
        .await
        .expect("a page");
    assert!(page.items.iter().all(|claim| !claim.alive));
    // Superseded: the entry of the old tenure is dead although the member lives.
    let a2 = world.join("a", s(6)).await;
    assert_eq!(world.owner("dev-1").await, Some((a, false)));
    world.claim(&a2, "dev-1").await;
    assert_eq!(world.owner("dev-1").await, Some((a2, true)));
}

/// Invariant 2: an ended tenure cannot claim.
pub async fn nothing_is_claimed_under_an_ended_tenure(make: Make<'_>) {
    let world = World::new(make).await;
    let lapsed = world.join("a", s(4)).await;
    let left = world.join("b", s(30)).await;
    let old = world.join("c", s(30)).await;
    world.claim(&left, "of-b").await;
    world
        .store
        .end(&world.group, &left, EndBy::Leave, Call::default())
        .await
        .expect("left");
    world.join("c", s(30)).await;
    world.pass(s(4)).await;
    let unknown = "x@17".parse().expect("a tenure id");
    for (tenure, reason) in [
        (&lapsed, EndReason::Lapsed),
        (&left, EndReason::Left),
        (&old, EndReason::Superseded),
        (&unknown, EndReason::Unknown),
    ] {
        refused(
            world.try_claim(tenure, &[key("k")], ClaimMode::Take).await,
            ErrorKind::Ended(reason),
        );
        let release = world
            .store
            .release_claim(&world.group, &world.devices, &key("of-b"), tenure, Call::default())
            .await;
        refused(release, ErrorKind::Ended(reason));
    }
    assert_eq!(world.owner("k").await, None);
    assert_eq!(world.owner("of-b").await, Some((left, false)));
    world.ended(&lapsed, EndReason::Lapsed).await;
}

/// Invariant 5: a release is compare-and-delete on the tenure.
pub async fn a_release_names_the_exact_tenure(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(30)).await, world.join("b", s(30)).await);
    world.claim(&a, "dev-1").await;
    let release = |tenure| {
        let key = key("dev-1");
        let world = &world;
        async move {
            world
                .store
                .release_claim(&world.group, &world.devices, &key, tenure, Call::default())
                .await
        }
    };
    let error = release(&b).await.expect_err("it is owned by another tenure");
    assert_eq!((error.kind(), error.holder()), (ErrorKind::NotOwner, Some(&a)));
    assert_eq!(world.owner("dev-1").await, Some((a.clone(), true)));
    release(&a).await.expect("its own");
    assert_eq!(world.owner("dev-1").await, None);
    release(&a).await.expect("releasing a free key succeeds");
    assert_eq!(world.listed(Some("a"), 100).await, Vec::<String>::new());
}

/// A call larger than one atomic part is answered in order. A repeated key is kept.
pub async fn many_keys_in_one_call(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(30)).await;
    let mut many = keys("dev-", 999);
    many.push(many[0].clone());
    let outcomes = world.try_claim(&a, &many, ClaimMode::Take).await.expect("claims");
    assert!(outcomes[..999].iter().all(|outcome| *outcome == ClaimOutcome::New));
    assert_eq!(outcomes[999], ClaimOutcome::Kept);
    assert!(
        world
            .try_claim(&a, &[], ClaimMode::Take)
            .await
            .expect("an empty call succeeds")
            .is_empty()
    );
    refused(
        world.try_claim(&a, &keys("x", 10_001), ClaimMode::Take).await,
        ErrorKind::Invalid,
    );
    assert_eq!(world.listed(Some("a"), 1000).await.len(), 999);
}

/// Lists claims by owner and all, for few and for many.
pub async fn claims_are_listed_page_by_page(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(60)).await, world.join("b", s(60)).await);
    for count in [9, 700] {
        let (of_a, of_b) = (keys("a-", count), keys("b-", 5));
        world.claim_all(&a, &of_a).await;
        world.claim_all(&b, &of_b).await;
        let names = |keys: &[crate::id::Key]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
        for limit in [2, 100, 1000] {
            let all: Vec<String> = names(&of_a).into_iter().chain(names(&of_b)).collect();
            assert_eq!(
                deduped(world.listed(None, limit).await),
                all,
                "all, in pages of {limit}"
            );
            assert_eq!(
                deduped(world.listed(Some("a"), limit).await),
                names(&of_a),
                "of a, in pages of {limit}"
            );
        }
        assert_eq!(world.listed(Some("b"), 3).await, names(&of_b));
        assert!(world.listed(Some("nobody"), 3).await.is_empty());
    }
}

fn deduped(mut names: Vec<String>) -> Vec<String> {
    names.dedup();
    names
}

/// A restarted member takes over the keys of its earlier tenure, also with `if_absent`.
pub async fn a_member_takes_over_from_its_own_earlier_tenure(make: Make<'_>) {
    let world = World::new(make).await;
    let old = world.join("a", s(30)).await;
    world.claim_all(&old, &keys("dev-", 3)).await;
    let new = world.join("a", s(30)).await;
    let outcomes = world
        .try_claim(&new, &keys("dev-", 2), ClaimMode::IfAbsent)
        .await
        .expect("claims");
    assert!(
        outcomes
            .iter()
            .all(|outcome| *outcome == ClaimOutcome::Moved { from: old.clone() })
    );
    // Claims of both tenures are listed under the member until the janitor has run.
    assert_eq!(world.listed(Some("a"), 2).await.len(), 3);
    world.pass(s(1)).await;
    assert_eq!(world.sweep("p").await.evicted_total(), 1);
    assert_eq!(world.listed(Some("a"), 2).await, ["dev-00000", "dev-00001"]);
}

/// A malformed cursor is rejected like any bad input.
pub async fn a_bad_cursor_is_refused(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(30)).await;
    world.claim_all(&a, &keys("dev-", 3)).await;
    for junk in ["", "{}", "\u{1F980}", "s:x//y", "a b", "\0"] {
        let page = PageRequest {
            after: Some(junk.to_owned()),
            limit: 10,
        };
        refused(world.store.members(&world.group, &page).await, ErrorKind::Invalid);
        refused(
            world.store.claims(&world.group, &world.devices, None, &page).await,
            ErrorKind::Invalid,
        );
        let owned = world
            .store
            .claims(&world.group, &world.devices, Some(&member("a")), &page)
            .await;
        refused(owned, ErrorKind::Invalid);
    }
}
