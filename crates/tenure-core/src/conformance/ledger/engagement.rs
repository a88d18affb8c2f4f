//! Cases about engagements.

use std::sync::Arc;

use super::{ANYONE, Make, World, done, engagement, provider, reserved};
use crate::conformance::world::{refused, s};
use crate::error::ErrorKind;
use crate::ledger::engagement::MAX_EXPIRES_IN;
use crate::ledger::{EngagementOutcome, Expiry, Move, NewEngagement, Reassign, ReserveOutcome, Status};
use crate::time::StoreTime;

fn expiring(name: &str, of: &str, after: std::time::Duration) -> NewEngagement {
    NewEngagement {
        engagement: engagement(name),
        provider: Some(provider(of)),
        status: Status::Pending,
        expires_in: Some(after),
        active_for: None,
    }
}

/// Accept, extend, end: the occupancy follows, and each change raises the provider's version.
pub async fn an_engagement_lives_through_its_statuses(make: Make<'_>) {
    let world = World::new(make).await;
    world.online("ann", 3, 7).await;
    let new = done(world.create("e1", Some("ann"), Status::Pending).await);
    assert!(new.changed && new.engagement.status == Status::Pending);
    assert_eq!(new.providers, [world.provider("ann").await]);
    let mut version = new.providers[0].version;
    for (status, occupancy) in [
        (Status::Active, 1),
        (Status::Pending, 1),
        (Status::Active, 1),
        (Status::Ended, 0),
    ] {
        world.pass(s(1)).await;
        let moved = done(world.shift("e1", Some(status), None).await);
        assert!(moved.changed && moved.engagement.version > new.engagement.version);
        assert_eq!(
            (moved.engagement.status, moved.providers[0].occupancy),
            (status, occupancy)
        );
        assert_eq!(moved.engagement.changed_at, world.now().await);
        assert!(moved.providers[0].version > version, "{status:?}");
        version = moved.providers[0].version;
        let again = done(world.shift("e1", Some(status), None).await);
        assert!(!again.changed && again.engagement == moved.engagement && again.providers == moved.providers);
    }
    assert_eq!(world.occupancy("ann").await, 0);
    let read = world.ledger.engagement(&world.roster, &engagement("e1")).await;
    let read = read.expect("a look-up").expect("an engagement");
    assert_eq!(
        (read.status, read.created_at),
        (Status::Ended, new.engagement.created_at)
    );
    let none = world.ledger.engagement(&world.roster, &engagement("e2")).await;
    assert_eq!(none.expect("a look-up"), None);
}

/// A repeated call after a lost reply is idempotent. A name that is in use is a conflict.
pub async fn repeating_an_engagement_is_idempotent(make: Make<'_>) {
    let world = World::new(make).await;
    world.online("ann", 3, 7).await;
    world.online("bob", 3, 7).await;
    let first = done(world.create("e1", Some("ann"), Status::Pending).await);
    world.pass(s(1)).await;
    let again = done(world.create("e1", Some("ann"), Status::Pending).await);
    assert!(!again.changed && again.engagement == first.engagement && again.providers == first.providers);
    let other = world.create("e1", Some("bob"), Status::Pending).await;
    assert_eq!(other, EngagementOutcome::Conflict(first.engagement));
    let over = done(world.shift("e1", Some(Status::Ended), None).await).engagement;
    let after = world.create("e1", Some("ann"), Status::Pending).await;
    assert_eq!(after, EngagementOutcome::Conflict(over));
    let nobody = done(world.create("e2", None, Status::Pending).await);
    assert!(nobody.changed && nobody.providers.is_empty());
    let taken = done(world.shift("e2", None, Some("bob")).await);
    assert_eq!((taken.providers.len(), world.occupancy("bob").await), (1, 1));
    assert!(!done(world.create("e2", None, Status::Pending).await).changed);
}

/// A re-route is one atomic step.
pub async fn an_engagement_is_re_routed_in_one_step(make: Make<'_>) {
    let world = World::new(make).await;
    let bob = world.online("bob", 1, 7).await;
    world.online("ann", 1, 7).await;
    let new = done(world.create("e1", Some("bob"), Status::Active).await);
    let moved = done(world.shift("e1", None, Some("ann")).await);
    assert_eq!(moved.engagement.provider, Some(provider("ann")));
    assert_eq!(
        moved.providers,
        [world.provider("ann").await, world.provider("bob").await]
    );
    assert_eq!((moved.providers[0].occupancy, moved.providers[1].occupancy), (1, 0));
    assert!(moved.providers.iter().all(|row| row.version > new.providers[0].version));
    assert!(moved.providers[1].version > bob.version);
    let both = done(world.shift("e1", Some(Status::Pending), Some("bob")).await);
    assert_eq!(
        (both.engagement.status, both.providers[1].occupancy),
        (Status::Pending, 1)
    );
    let to = Move {
        provider: Reassign::To(provider("zoe")),
        ..Move::default()
    };
    let (ledger, roster) = (&world.ledger, &world.roster);
    let nobody = ledger.move_engagement(roster, &engagement("e1"), &to).await;
    refused(nobody, ErrorKind::NotFound);
    assert_eq!(world.occupancy("bob").await, 1);
}

/// A finished engagement cannot change.
pub async fn an_impossible_move_is_a_conflict(make: Make<'_>) {
    let world = World::new(make).await;
    world.online("ann", 9, 7).await;
    world.online("bob", 9, 7).await;
    for over in [Status::Ended, Status::Expired, Status::Cancelled] {
        let name = format!("e-{}", over.as_str());
        world.create(&name, Some("ann"), Status::Pending).await;
        let ended = done(world.shift(&name, Some(over), None).await).engagement;
        for status in Status::ALL.into_iter().filter(|status| *status != over) {
            let moved = world.shift(&name, Some(status), None).await;
            assert_eq!(
                moved,
                EngagementOutcome::Conflict(ended.clone()),
                "{over:?} to {status:?}"
            );
        }
        let moved = world.shift(&name, None, Some("bob")).await;
        assert_eq!(moved, EngagementOutcome::Conflict(ended.clone()));
        assert!(!done(world.shift(&name, Some(over), Some("ann")).await).changed);
    }
    let (ledger, roster) = (&world.ledger, &world.roster);
    let unknown = ledger
        .move_engagement(roster, &engagement("e0"), &Move::default())
        .await;
    refused(unknown, ErrorKind::NotFound);
    let mut new = expiring("e9", "ann", s(1));
    new.status = Status::Ended;
    refused(ledger.create_engagement(roster, &new).await, ErrorKind::Invalid);
    for after in [s(0), MAX_EXPIRES_IN + s(1)] {
        let new = expiring("e9", "ann", after);
        let created = ledger.create_engagement(roster, &new).await;
        refused(created, ErrorKind::Invalid);
    }
    let stranger = expiring("e9", "zoe", s(1));
    refused(ledger.create_engagement(roster, &stranger).await, ErrorKind::NotFound);
    let none = ledger.engagement(roster, &engagement("e9")).await;
    assert_eq!(none.expect("a look-up"), None);
}

/// Only `reserve` enforces the capacity.
pub async fn engagements_are_recorded_above_the_capacity(make: Make<'_>) {
    let world = World::new(make).await;
    world.put("ann", 1).await;
    for n in 0..3 {
        done(world.create(&format!("e{n}"), Some("ann"), Status::Active).await);
    }
    assert_eq!(world.occupancy("ann").await, 3);
    world.put("ann", 5).await;
    assert_eq!(
        world.provider("ann").await.occupancy,
        3,
        "a lower capacity keeps the engagement"
    );
}

/// Engagements expire oldest first, at their time and not earlier.
pub async fn engagements_expire_at_their_time(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster) = (&world.ledger, &world.roster);
    world.online("ann", 9, 7).await;
    let begun = world.now().await;
    for (name, after) in [("e1", 30), ("e2", 10), ("e3", 20), ("e4", 10)] {
        let new = expiring(name, "ann", s(after));
        let created = ledger.create_engagement(roster, &new).await;
        let created = done(created.expect("an answer"));
        assert_eq!(created.engagement.expires_at, Some(begun + s(after)));
    }
    world.shift("e4", Some(Status::Ended), None).await;
    let expire = async |limit| {
        let batch = ledger.expire_due(roster, limit).await.expect("a batch");
        let names: Vec<_> = batch.expired.iter().map(|e| e.engagement.to_string()).collect();
        (names.join(" "), batch.providers, batch.next)
    };
    assert_eq!(expire(10).await, (String::new(), Vec::new(), Some(begun + s(10))));
    world.pass(s(25)).await;
    let (names, providers, next) = expire(1).await;
    assert_eq!((names.as_str(), next), ("e2", Some(begun + s(20))), "more to do now");
    assert_eq!(providers, [world.provider("ann").await]);
    assert_eq!(providers[0].occupancy, 2);
    let keep = |expiry| Move {
        expiry,
        ..Move::default()
    };
    let moved = ledger
        .move_engagement(roster, &engagement("e1"), &keep(Expiry::Never))
        .await;
    assert_eq!(done(moved.expect("an answer")).engagement.expires_at, None);
    let (names, _, next) = expire(10).await;
    assert_eq!((names.as_str(), next), ("e3", None));
    let moved = ledger
        .move_engagement(roster, &engagement("e1"), &keep(Expiry::In(s(5))))
        .await;
    let expires_at: Option<StoreTime> = done(moved.expect("an answer")).engagement.expires_at;
    assert_eq!(expires_at, Some(begun + s(30)));
    world.pass(s(5)).await;
    assert_eq!(expire(10).await.0, "e1");
    assert_eq!(world.occupancy("ann").await, 0);
    let late = ledger.engagement(roster, &engagement("e1")).await.expect("a look-up");
    assert_eq!(late.expect("an engagement").status, Status::Expired);
}

/// The deadline of an offer does not end accepted work, unless the call that accepts it names one.
pub async fn accepted_work_outlives_its_offer(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster) = (&world.ledger, &world.roster);
    world.online("ann", 9, 7).await;
    let begun = world.now().await;
    for name in ["kept", "timed", "offer", "routed"] {
        let created = ledger.create_engagement(roster, &expiring(name, "ann", s(10))).await;
        created.expect("an offer");
    }
    let accept = async |name: &str, expiry| {
        let to = Move {
            status: Some(Status::Active),
            expiry,
            ..Move::default()
        };
        let moved = ledger.move_engagement(roster, &engagement(name), &to).await;
        done(moved.expect("an answer")).engagement.expires_at
    };
    assert_eq!(accept("kept", Expiry::Keep).await, None);
    assert_eq!(accept("timed", Expiry::In(s(20))).await, Some(begun + s(20)));
    assert_eq!(
        accept("timed", Expiry::Keep).await,
        Some(begun + s(20)),
        "it was active"
    );
    let routed = done(world.shift("routed", None, Some("ann")).await);
    assert_eq!(routed.engagement.expires_at, Some(begun + s(10)));
    let work = NewEngagement {
        status: Status::Active,
        ..expiring("work", "ann", s(10))
    };
    let work = ledger.create_engagement(roster, &work).await.expect("work");
    assert_eq!(
        done(work).engagement.expires_at,
        Some(begun + s(10)),
        "named for the work"
    );
    world.pass(s(15)).await;
    let expired = ledger.expire_due(roster, 10).await.expect("a batch").expired;
    let names: Vec<_> = expired.iter().map(|e| e.engagement.to_string()).collect();
    assert_eq!(names, ["offer", "routed", "work"]);
    assert_eq!(world.occupancy("ann").await, 2);
}

/// Concurrent instances share the work, and each engagement expires once.
pub async fn concurrent_sweeps_expire_an_engagement_once(make: Make<'_>) {
    let world = World::new(make).await;
    for n in 0..4 {
        world.online(&format!("p{n}"), 99, 7).await;
    }
    for n in 0..40 {
        let new = expiring(&format!("e{n:02}"), &format!("p{}", n * 7 % 4), s(1));
        let created = world.ledger.create_engagement(&world.roster, &new).await;
        done(created.expect("an answer"));
    }
    world.pass(s(2)).await;
    let mut tasks = Vec::new();
    for _ in 0..5 {
        let (ledger, roster) = (Arc::clone(&world.ledger), world.roster.clone());
        tasks.push(tokio::spawn(async move {
            let mut expired = Vec::new();
            loop {
                let batch = ledger.expire_due(&roster, 7).await.expect("a batch");
                if batch.expired.is_empty() && batch.next.is_none() {
                    return expired;
                }
                expired.extend(batch.expired.into_iter().map(|e| e.engagement));
            }
        }));
    }
    let mut expired = Vec::new();
    for task in tasks {
        expired.extend(task.await.expect("a task"));
    }
    expired.sort();
    assert_eq!(expired.len(), 40);
    expired.dedup();
    assert_eq!(expired.len(), 40, "each once");
    for n in 0..4 {
        assert_eq!(world.occupancy(&format!("p{n}")).await, 0);
    }
}

/// An engagement whose provider is taken away waits for a reserve.
pub async fn an_engagement_is_unassigned(make: Make<'_>) {
    let world = World::new(make).await;
    world.online("ann", 1, 7).await;
    world.create("e1", Some("ann"), Status::Active).await;
    let unassign = async || {
        let to = Move {
            provider: Reassign::Unassign,
            ..Move::default()
        };
        world
            .ledger
            .move_engagement(&world.roster, &engagement("e1"), &to)
            .await
    };
    let freed = done(unassign().await.expect("an answer"));
    assert!(freed.changed && freed.engagement.provider.is_none(), "{freed:?}");
    assert_eq!(freed.engagement.status, Status::Active);
    assert_eq!(freed.providers.iter().map(|row| row.occupancy).collect::<Vec<_>>(), [0]);
    assert_eq!(world.occupancy("ann").await, 0);
    assert!(!done(unassign().await.expect("an answer")).changed);
    assert_eq!(reserved(world.reserve("e1", ANYONE).await), "ann");
    world.shift("e1", Some(Status::Ended), None).await;
    let over = unassign().await.expect("an answer");
    assert!(matches!(over, EngagementOutcome::Conflict(_)), "{over:?}");
}

/// An offer expires by its own deadline, the work by another.
pub async fn active_work_has_a_time_of_its_own(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster) = (&world.ledger, &world.roster);
    world.online("ann", 9, 7).await;
    let begun = world.now().await;
    let offer = |name: &str| NewEngagement {
        active_for: Some(s(100)),
        ..expiring(name, "ann", s(10))
    };
    for name in ["work", "timed"] {
        let created = ledger.create_engagement(roster, &offer(name)).await.expect("an offer");
        let row = done(created).engagement;
        assert_eq!((row.expires_at, row.active_for), (Some(begun + s(10)), Some(s(100))));
    }
    world.pass(s(5)).await;
    let accepted = done(world.shift("work", Some(Status::Active), None).await);
    assert_eq!(accepted.engagement.expires_at, Some(begun + s(105)));
    let to = Move {
        status: Some(Status::Active),
        expiry: Expiry::In(s(20)),
        ..Move::default()
    };
    let timed = ledger.move_engagement(roster, &engagement("timed"), &to).await;
    assert_eq!(
        done(timed.expect("an answer")).engagement.expires_at,
        Some(begun + s(25))
    );
    let at_once = NewEngagement {
        status: Status::Active,
        expires_in: None,
        ..offer("at-once")
    };
    let at_once = ledger.create_engagement(roster, &at_once).await.expect("work");
    assert_eq!(done(at_once).engagement.expires_at, Some(begun + s(105)));
    let reserved = NewEngagement {
        provider: None,
        ..offer("reserved")
    };
    let reserved = ledger.reserve(roster, &reserved, &ANYONE).await.expect("a place");
    let ReserveOutcome::Reserved(change) = reserved else {
        panic!("{reserved:?}")
    };
    assert_eq!(change.engagement.active_for, Some(s(100)));
    world.pass(s(94)).await;
    let expired = ledger.expire_due(roster, 10).await.expect("a batch").expired;
    let names: Vec<_> = expired.iter().map(|e| e.engagement.to_string()).collect();
    assert_eq!(names, ["reserved", "timed"]);
}

/// The oldest first, a bounded number at a time, and never an open one.
pub async fn old_closed_engagements_are_removed(make: Make<'_>) {
    let world = World::new(make).await;
    let (ledger, roster) = (&world.ledger, &world.roster);
    world.online("ann", 9, 7).await;
    for (name, status) in [
        ("a", Status::Ended),
        ("b", Status::Cancelled),
        ("c", Status::Expired),
        ("open", Status::Active),
    ] {
        world.create(name, Some("ann"), Status::Pending).await;
        world.shift(name, Some(status), None).await;
        world.pass(s(10)).await;
    }
    let before = world.provider("ann").await;
    let remove = async |age, limit| ledger.remove_closed(roster, age, limit).await;
    refused(remove(s(1), 0).await, ErrorKind::Invalid);
    assert_eq!(remove(s(40), 10).await.expect("a count"), 0);
    assert_eq!(remove(s(15), 2).await.expect("a count"), 2);
    let there = async |name: &str| {
        let row = ledger.engagement(roster, &engagement(name)).await;
        row.expect("a look-up").is_some()
    };
    assert!(!there("a").await && !there("b").await && there("c").await);
    assert_eq!(remove(s(15), 2).await.expect("a count"), 1);
    assert!(!there("c").await && there("open").await);
    assert_eq!(world.provider("ann").await, before, "its row has not changed");
}
