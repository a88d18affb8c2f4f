//! Cases about members and their tenures.

use std::collections::BTreeMap;

use super::world::{Make, World, member, ms, refused, renewed, s};
use crate::error::ErrorKind;
use crate::event::EventKind;
use crate::id::{TenureId, Term};
use crate::membership::{Beat, BeatReply, EndBy, EndReason, Join, Labels};
use crate::store::{Call, PageRequest, StoreOptions};

/// A join returns a tenure, and a beat extends it.
pub async fn join_gives_a_tenure_that_a_beat_extends(make: Make<'_>) {
    let world = World::new(make).await;
    let joined = world.joined("a", s(30)).await;
    assert_eq!((joined.ttl, joined.expires_in, joined.superseded), (s(30), s(30), None));
    world.pass(s(20)).await;
    assert_eq!(world.beat(&joined.tenure).await, renewed(s(30)));
    world.pass(s(20)).await;
    let seen = world
        .store
        .member(&world.group, &member("a"))
        .await
        .expect("a look-up")
        .expect("a member");
    assert_eq!(
        (seen.tenure, seen.alive, seen.ttl, seen.expires_in),
        (joined.tenure, true, s(30), s(10))
    );
    assert_eq!(seen.last_beat_at.since(joined.as_of), s(20));
    assert!(
        world
            .store
            .member(&world.group, &member("b"))
            .await
            .expect("a look-up")
            .is_none()
    );
}

/// Invariants 1 and 6: a member lapses at its end time, not before.
pub async fn a_member_lapses_exactly_at_its_end(make: Make<'_>) {
    let world = World::new(make).await;
    let tenure = world.join("a", s(30)).await;
    world.pass(s(30) - ms(1)).await;
    assert!(world.end_lapsed().await.is_empty());
    let seen = world
        .store
        .member(&world.group, &member("a"))
        .await
        .expect("a look-up")
        .expect("a member");
    assert!(seen.alive);
    world.pass(ms(1)).await;
    let seen = world
        .store
        .member(&world.group, &member("a"))
        .await
        .expect("a look-up")
        .expect("not swept yet");
    assert_eq!((seen.alive, seen.expires_in), (false, s(0)));
    assert_eq!(world.end_lapsed().await, std::slice::from_ref(&tenure));
    assert!(
        world
            .store
            .member(&world.group, &member("a"))
            .await
            .expect("a look-up")
            .is_none()
    );
    world.ended(&tenure, EndReason::Lapsed).await;
}

/// Invariant 1: a late beat ends the tenure durably, without any sweep.
pub async fn dead_is_final(make: Make<'_>) {
    let world = World::new(make).await;
    let tenure = world.join("a", s(3)).await;
    world.pass(s(3)).await;
    world.ended(&tenure, EndReason::Lapsed).await;
    world.ended(&tenure, EndReason::Lapsed).await;
    assert!(world.end_lapsed().await.is_empty(), "the beat has ended it");
    let left = world
        .store
        .end(&world.group, &tenure, EndBy::Leave, Call::default())
        .await
        .expect("idempotent");
    assert_eq!(left, EndReason::Lapsed);
}

/// A second join of the same member ends its first tenure.
pub async fn joining_again_supersedes(make: Make<'_>) {
    let world = World::new(make).await;
    let old = world.join("a", s(30)).await;
    let joined = world.joined("a", s(30)).await;
    assert_eq!(joined.superseded.as_ref(), Some(&old));
    world.ended(&old, EndReason::Superseded).await;
    assert!(matches!(world.beat(&joined.tenure).await, BeatReply::Renewed { .. }));
    world.pass(s(31)).await;
    assert_eq!(
        world.joined("a", s(30)).await.superseded,
        None,
        "one that had lapsed is not superseded"
    );
    world.ended(&joined.tenure, EndReason::Lapsed).await;
}

/// Terms follow the store's clock and rise even for joins in the same microsecond.
pub async fn terms_rise_for_ever(make: Make<'_>) {
    let world = World::new(make).await;
    let mut last = 0;
    for n in 0..50 {
        let joined = world.joined(&format!("m{}", n % 7), s(30)).await;
        let term = joined.tenure.term().get();
        assert!(
            term > last && term >= joined.as_of.micros(),
            "{term} after {last} at {:?}",
            joined.as_of
        );
        last = term;
    }
}

/// A repeated leave returns the first reason.
pub async fn leaving_is_idempotent_and_names_the_first_reason(make: Make<'_>) {
    let world = World::new(make).await;
    let tenure = world.join("a", s(30)).await;
    for by in [EndBy::Leave, EndBy::Leave, EndBy::Expel] {
        let reason = world
            .store
            .end(&world.group, &tenure, by, Call::default())
            .await
            .expect("idempotent");
        assert_eq!(reason, EndReason::Left);
    }
    let never = TenureId::new(member("b"), Term::new(5).expect("a term"));
    let reason = world
        .store
        .end(&world.group, &never, EndBy::Leave, Call::default())
        .await
        .expect("idempotent");
    assert_eq!(reason, EndReason::Unknown);
    world.ended(&tenure, EndReason::Left).await;
}

/// Invariant 5: a leave that arrives late leaves the successor alive.
pub async fn a_late_leave_cannot_touch_a_successor(make: Make<'_>) {
    let world = World::new(make).await;
    let old = world.join("a", s(30)).await;
    let new = world.join("a", s(30)).await;
    let reason = world
        .store
        .end(&world.group, &old, EndBy::Leave, Call::default())
        .await
        .expect("idempotent");
    assert_eq!(reason, EndReason::Superseded);
    assert!(matches!(world.beat(&new).await, BeatReply::Renewed { .. }));
}

/// A beat after an expel returns `ended` with the reason.
pub async fn a_beat_of_an_expelled_member_names_the_reason(make: Make<'_>) {
    let world = World::new(make).await;
    let tenure = world.join("a", s(30)).await;
    world
        .store
        .end(&world.group, &tenure, EndBy::Expel, Call::default())
        .await
        .expect("expelled");
    world.ended(&tenure, EndReason::Expelled).await;
}

/// A shorter ttl takes effect with the beat that sets it, and the lazy index follows.
pub async fn a_beat_can_change_the_ttl(make: Make<'_>) {
    let world = World::new(make).await;
    let tenure = world.join("a", s(60)).await;
    let beat = [Beat {
        ttl: Some(s(6)),
        ..Beat::of(tenure.clone())
    }];
    let beaten = world.store.beat(&world.group, &beat).await.expect("a beat");
    assert_eq!(beaten.replies, [renewed(s(6))]);
    world.pass(s(5)).await;
    assert!(world.end_lapsed().await.is_empty());
    world.pass(s(1)).await;
    assert_eq!(world.end_lapsed().await, [tenure]);
    let bad = [Beat {
        ttl: Some(s(500)),
        ..Beat::of(world.join("b", s(6)).await)
    }];
    refused(world.store.beat(&world.group, &bad).await, ErrorKind::Invalid);
}

/// Replies come in order, and a beat that fails affects no other, also across the atomic parts of a large batch.
pub async fn a_bad_beat_fails_no_other_in_its_batch(make: Make<'_>) {
    let world = World::new(make).await;
    let alive = world.join("alive", s(60)).await;
    let left = world.join("left", s(60)).await;
    world
        .store
        .end(&world.group, &left, EndBy::Leave, Call::default())
        .await
        .expect("left");
    let dead = world.join("dead", s(2)).await;
    world.pass(s(2)).await;
    let unknown = TenureId::new(member("nobody"), Term::new(7).expect("a term"));
    let batch: Vec<TenureId> = [alive, left, dead, unknown].into_iter().cycle().take(1_003).collect();
    let expected = [
        renewed(s(60)),
        BeatReply::Ended(EndReason::Left),
        BeatReply::Ended(EndReason::Lapsed),
        BeatReply::Unknown,
    ];
    for (n, reply) in world.beats(&batch).await.into_iter().enumerate() {
        assert_eq!(reply, expected[n % 4], "beat {n}");
    }
    assert!(world.beats(&[]).await.is_empty());
    let too_many = vec![Beat::of(batch[0].clone()); 10_001];
    refused(world.store.beat(&world.group, &too_many).await, ErrorKind::Invalid);
}

/// Labels are stored with the member. The next join replaces them.
pub async fn labels_come_back(make: Make<'_>) {
    let world = World::new(make).await;
    let labels = BTreeMap::from([
        ("zone".to_owned(), "a\"b{}\u{1F980}".to_owned()),
        ("empty".to_owned(), String::new()),
    ]);
    let labels = Labels::new(labels).expect("good labels");
    let join = Join {
        member: member("a"),
        ttl: s(30),
        labels: labels.clone(),
    };
    world
        .store
        .join(&world.group, &join, Call::default())
        .await
        .expect("a join");
    let seen = world
        .store
        .member(&world.group, &member("a"))
        .await
        .expect("a look-up")
        .expect("a member");
    assert_eq!(seen.labels, labels);
    world.join("a", s(30)).await;
    let seen = world
        .store
        .member(&world.group, &member("a"))
        .await
        .expect("a look-up")
        .expect("a member");
    assert!(seen.labels.is_empty());
}

/// New labels replace all old ones of a living tenure, which stays; only a difference is an event.
pub async fn labels_change_without_a_rejoin(make: Make<'_>) {
    let world = World::new(make).await;
    let named = |name: &str| {
        let labels = BTreeMap::from([(name.to_owned(), "1".to_owned())]);
        Labels::new(labels).expect("good labels")
    };
    let a = world.join("a", s(30)).await;
    world.granted(&a, "poll").await;
    for labels in [
        named("zone"),
        named("version"),
        named("version"),
        Labels::default(),
        Labels::default(),
    ] {
        let set = world.store.set_labels(&world.group, &a, &labels, Call::default());
        set.await.expect("a living tenure");
        let seen = world.store.member(&world.group, &member("a")).await;
        let seen = seen.expect("a look-up").expect("a member");
        assert_eq!((seen.labels, seen.tenure, seen.holdings.leases), (labels, a.clone(), 1));
    }
    let changed = world.events_of(EventKind::LabelsChanged).await;
    assert!(changed.iter().all(|event| event.tenure.as_ref() == Some(&a)));
    assert_eq!(changed.len(), 3);
}

/// Invariants 1 and 2: an ended tenure has no labels to change, and its successor keeps its own.
pub async fn labels_of_an_ended_tenure_stay(make: Make<'_>) {
    let world = World::new(make).await;
    let (old, dead) = (world.join("a", s(30)).await, world.join("b", s(2)).await);
    world.join("a", s(30)).await;
    world.pass(s(2)).await;
    let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
    let labels = Labels::new(labels).expect("good labels");
    for (tenure, reason) in [(&old, EndReason::Superseded), (&dead, EndReason::Lapsed)] {
        let set = world.store.set_labels(&world.group, tenure, &labels, Call::default());
        refused(set.await, ErrorKind::Ended(reason));
    }
    let seen = world.store.member(&world.group, &member("a")).await;
    assert!(seen.expect("a look-up").expect("a member").labels.is_empty());
    assert!(world.end_lapsed().await.is_empty(), "the call has ended it");
    assert!(world.events_of(EventKind::LabelsChanged).await.is_empty());
}

/// A ttl out of range is refused.
pub async fn a_bad_ttl_changes_nothing(make: Make<'_>) {
    let world = World::new(make).await;
    for ttl in [ms(999), s(121), s(0)] {
        let join = Join {
            member: member("a"),
            ttl,
            labels: Labels::default(),
        };
        refused(
            world.store.join(&world.group, &join, Call::default()).await,
            ErrorKind::Invalid,
        );
    }
    assert!(
        world
            .store
            .members(&world.group, &PageRequest::default())
            .await
            .expect("a page")
            .items
            .is_empty()
    );
}

/// No page exceeds its limit and no member is missing, for few members and for many.
pub async fn members_are_listed_page_by_page(make: Make<'_>) {
    let world = World::new(make).await;
    let mut joined = 0;
    for (count, limits) in [(7, [1, 3, 100]), (300, [7, 100, 1000])] {
        while joined < count {
            world.join(&format!("m{joined:04}"), s(120)).await;
            joined += 1;
        }
        for limit in limits {
            let (mut after, mut names) = (None, Vec::new());
            loop {
                let page = world
                    .store
                    .members(&world.group, &PageRequest { after, limit })
                    .await
                    .expect("a page");
                assert!(
                    page.items.len() <= limit as usize,
                    "{} items in a page of {limit}",
                    page.items.len()
                );
                names.extend(page.items.into_iter().map(|member| member.member.to_string()));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "in pages of {limit}");
        }
    }
    for limit in [0, 1001] {
        refused(
            world
                .store
                .members(&world.group, &PageRequest { after: None, limit })
                .await,
            ErrorKind::Invalid,
        );
    }
}

/// Invariant 13: a late call changes nothing.
pub async fn a_call_past_its_not_after_changes_nothing(make: Make<'_>) {
    let world = World::new(make).await;
    let tenure = world.join("a", s(30)).await;
    let now = world.store.now().await.expect("the time");
    world.pass(s(1)).await;
    let late = Call::not_after(now);
    let join = Join {
        member: member("b"),
        ttl: s(30),
        labels: Labels::default(),
    };
    refused(world.store.join(&world.group, &join, late).await, ErrorKind::TooLate);
    refused(
        world.store.end(&world.group, &tenure, EndBy::Leave, late).await,
        ErrorKind::TooLate,
    );
    let key = [super::world::key("k")];
    let claim = world
        .store
        .claim(&world.group, &world.devices, &tenure, &key, Default::default(), late)
        .await;
    refused(claim, ErrorKind::TooLate);
    assert!(
        world
            .store
            .member(&world.group, &member("b"))
            .await
            .expect("a look-up")
            .is_none()
    );
    assert_eq!(world.owner("k").await, None);
    assert!(matches!(world.beat(&tenure).await, BeatReply::Renewed { .. }));
    let in_time = Call::not_after(now + s(10));
    world.store.join(&world.group, &join, in_time).await.expect("in time");
}

/// Invariant 1: reasons are kept for 2 × max ttl, and for as long as something is held.
pub async fn reasons_are_kept_for_two_max_ttls(make: Make<'_>) {
    let world = World::with(
        make,
        StoreOptions {
            max_ttl: s(5),
            ..StoreOptions::default()
        },
    )
    .await;
    let tenure = world.join("a", s(5)).await;
    world
        .store
        .end(&world.group, &tenure, EndBy::Leave, Call::default())
        .await
        .expect("left");
    world.pass(s(9)).await;
    world.end_lapsed().await;
    world.ended(&tenure, EndReason::Left).await;
    world.pass(s(1)).await;
    world.end_lapsed().await;
    assert_eq!(world.beat(&tenure).await, BeatReply::Unknown);
}
