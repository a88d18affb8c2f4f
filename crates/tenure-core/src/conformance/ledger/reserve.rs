//! Cases about availability and reservation.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ANYONE, Make, World, among, engagement, provider, reserved};
use crate::conformance::world::{refused, s};
use crate::error::ErrorKind;
use crate::ledger::engagement::MAX_CANDIDATES;
use crate::ledger::{Candidate, Candidates, NewEngagement, Reassign, ReserveOutcome, Status};
use crate::store::PageRequest;

/// Only a candidate that is online, active and below its capacity is taken.
pub async fn only_a_candidate_with_room_is_taken(make: Make<'_>) {
    let world = World::new(make).await;
    world.put("off", 5).await;
    world.online("out", 5, 7).await;
    let out = world.ledger.deactivate(&world.roster, &provider("out")).await;
    out.expect("a provider");
    world.online("none", 0, 7).await;
    world.online("ann", 1, 7).await;
    world.online("bob", 2, 7).await;
    let all = ["zoe", "off", "out", "none", "ann", "bob", "ann"];
    let mut got = Vec::new();
    for n in 0..3 {
        got.push(reserved(world.reserve(&format!("e{n}"), among(&all)).await));
    }
    assert_eq!(got, ["ann", "bob", "bob"]);
    assert_eq!(world.reserve("e3", among(&all)).await, ReserveOutcome::NoneAvailable);
    assert_eq!(world.reserve("e3", among(&[])).await, ReserveOutcome::NoneAvailable);
    let none = world.ledger.engagement(&world.roster, &engagement("e3")).await;
    assert_eq!(none.expect("a look-up"), None);
    world.shift("e0", Some(Status::Cancelled), None).await;
    assert_eq!(reserved(world.reserve("e3", among(&all)).await), "ann");
    let reserve = async |new: &NewEngagement, candidates| world.ledger.reserve(&world.roster, new, candidates).await;
    let new = NewEngagement::new(engagement("e4"));
    let many = Candidates::Among(vec![provider("ann"); MAX_CANDIDATES + 1]);
    refused(reserve(&new, &many).await, ErrorKind::Invalid);
    let many = Candidates::Any {
        fresh_since: None,
        except: vec![provider("ann"); MAX_CANDIDATES + 1],
    };
    refused(reserve(&new, &many).await, ErrorKind::Invalid);
}

/// The named provider gets it, or none does.
pub async fn a_named_provider_is_reserved_within_its_capacity(make: Make<'_>) {
    let world = World::new(make).await;
    world.online("ann", 1, 7).await;
    world.online("bob", 9, 7).await;
    world.put("off", 9).await;
    let reserve = async |name: &str, of: &str, candidates: &Candidates| {
        let new = NewEngagement {
            provider: Some(provider(of)),
            ..NewEngagement::new(engagement(name))
        };
        world.ledger.reserve(&world.roster, &new, candidates).await
    };
    assert_eq!(reserved(reserve("e0", "ann", &ANYONE).await.expect("a place")), "ann");
    let again = reserve("e0", "ann", &ANYONE).await.expect("the same answer");
    assert_eq!(reserved(again), "ann");
    let other = reserve("e0", "bob", &ANYONE).await.expect("an answer");
    assert!(matches!(other, ReserveOutcome::Conflict(_)), "{other:?}");
    let full = ReserveOutcome::NoneAvailable;
    assert_eq!(reserve("e1", "ann", &ANYONE).await.expect("an answer"), full);
    assert_eq!(reserve("e1", "off", &ANYONE).await.expect("an answer"), full);
    assert_eq!(reserve("e1", "bob", &among(&["ann"])).await.expect("an answer"), full);
    let stale = Candidates::Any {
        fresh_since: Some(world.now().await + s(1)),
        except: Vec::new(),
    };
    assert_eq!(reserve("e1", "bob", &stale).await.expect("an answer"), full);
    refused(reserve("e1", "zoe", &ANYONE).await, ErrorKind::NotFound);
    // An engagement that waits.
    world.create("e2", None, Status::Pending).await;
    assert_eq!(
        reserved(reserve("e2", "bob", &among(&["ann", "bob"])).await.expect("a place")),
        "bob"
    );
}

/// For instance those who have declined.
pub async fn excluded_providers_are_not_reserved(make: Make<'_>) {
    let world = World::new(make).await;
    for name in ["ann", "bob", "cyd"] {
        world.online(name, 1, 7).await;
    }
    let except = |names: &[&str]| Candidates::Any {
        fresh_since: None,
        except: names.iter().map(|name| provider(name)).collect(),
    };
    assert_eq!(
        reserved(world.reserve("e0", except(&["ann", "bob", "zoe"])).await),
        "cyd"
    );
    assert_eq!(reserved(world.reserve("e1", except(&["ann"])).await), "bob");
    assert_eq!(
        world.reserve("e2", except(&["ann"])).await,
        ReserveOutcome::NoneAvailable
    );
    assert_eq!(reserved(world.reserve("e2", except(&[])).await), "ann");
}

/// Least occupied first, then by name. `reserve` picks in the same order.
pub async fn the_least_occupied_is_available_first(make: Make<'_>) {
    let world = World::new(make).await;
    for (name, capacity) in [("cyd", 2), ("ann", 2), ("bob", 3)] {
        world.online(name, capacity, 7).await;
    }
    assert_eq!(world.available(None).await, ["ann", "bob", "cyd"]);
    let mut got = Vec::new();
    for n in 0..7 {
        got.push(reserved(world.reserve(&format!("e{n}"), ANYONE).await));
    }
    assert_eq!(got, ["ann", "bob", "cyd", "ann", "bob", "cyd", "bob"]);
    assert_eq!(world.reserve("e7", ANYONE).await, ReserveOutcome::NoneAvailable);
    assert_eq!(world.available(None).await, Vec::<String>::new());
    world.shift("e6", Some(Status::Ended), None).await;
    let read = async |after: Option<&str>| {
        let page = PageRequest {
            after: after.map(str::to_owned),
            limit: 1,
        };
        world.ledger.available(&world.roster, &page, None).await
    };
    let first = read(None).await.expect("a list").items;
    let bob = Candidate {
        provider: provider("bob"),
        occupancy: 2,
        capacity: 3,
    };
    assert_eq!(first, [bob]);
    for (after, left) in [("2/bo", 1), ("1/zoe", 1), ("2/bob", 0), ("3/a", 0)] {
        let rest = read(Some(after)).await.expect("a list");
        assert_eq!((rest.items.len(), rest.next), (left, None), "{after}");
    }
    for bad in ["", "bob", "x/bob", "-1/bob", "1/"] {
        refused(read(Some(bad)).await, ErrorKind::Invalid);
    }
}

/// Of providers with the same occupancy, the one that has been idle longest is next.
pub async fn the_longest_idle_is_reserved_first(make: Make<'_>) {
    let world = World::new(make).await;
    for name in ["cyd", "ann", "bob"] {
        world.online(name, 1, 7).await;
        world.pass(s(1)).await;
    }
    let mut got = Vec::new();
    for n in 0..7 {
        let candidates = match n % 2 {
            0 => among(&["ann", "bob", "cyd"]),
            _ => ANYONE,
        };
        let name = format!("e{n}");
        got.push(reserved(world.reserve(&name, candidates).await));
        world.put("ann", 1).await;
        world.pass(s(1)).await;
        world.shift(&name, Some(Status::Ended), None).await;
        world.pass(s(1)).await;
    }
    assert_eq!(got, ["cyd", "ann", "bob", "cyd", "ann", "bob", "cyd"]);
}

/// A provider is fresh by the heartbeats in the ledger.
pub async fn only_fresh_providers_are_available(make: Make<'_>) {
    let world = World::new(make).await;
    for name in ["ann", "bob"] {
        world.online(name, 1, 7).await;
    }
    world.pass(s(60)).await;
    let now = world.now().await;
    world.online("cyd", 1, 7).await;
    let beat = [(provider("bob"), now)];
    let recorded = world.ledger.record_heartbeats(&world.roster, &beat).await;
    recorded.expect("a heartbeat");
    assert_eq!(world.available(Some(now)).await, ["bob", "cyd"]);
    assert_eq!(world.available(Some(now.minus(s(60)))).await, ["ann", "bob", "cyd"]);
    assert_eq!(world.available(Some(now + s(1))).await, Vec::<String>::new());
    let stats = world.ledger.stats(&world.roster, Some(now)).await.expect("stats");
    assert_eq!((stats.online, stats.available, stats.busy), (3, 2, 0));
    let fresh = || Candidates::Any {
        fresh_since: Some(now),
        except: Vec::new(),
    };
    assert_eq!(reserved(world.reserve("e1", fresh()).await), "bob");
    assert_eq!(reserved(world.reserve("e2", fresh()).await), "cyd");
    assert_eq!(world.reserve("e3", fresh()).await, ReserveOutcome::NoneAvailable);
}

/// A repeated reserve is idempotent, and an engagement that waits gets a provider.
pub async fn repeating_a_reserve_is_idempotent(make: Make<'_>) {
    let world = World::new(make).await;
    world.online("ann", 2, 7).await;
    world.online("bob", 2, 7).await;
    let first = world.reserve("e1", among(&["bob", "ann"])).await;
    let again = world.reserve("e1", among(&["ann"])).await;
    match (first, again) {
        (ReserveOutcome::Reserved(first), ReserveOutcome::Reserved(again)) => {
            assert!(first.changed && !again.changed);
            assert_eq!((first.engagement, first.providers), (again.engagement, again.providers));
        }
        other => panic!("{other:?}"),
    }
    world.create("e2", None, Status::Active).await;
    let ReserveOutcome::Reserved(given) = world.reserve("e2", among(&["ann"])).await else {
        panic!("ann has room")
    };
    assert_eq!(given.engagement.provider, Some(provider("ann")));
    assert_eq!(given.engagement.status, Status::Active, "as it was");
    world.shift("e1", Some(Status::Ended), None).await;
    let over = world.reserve("e1", among(&["ann"])).await;
    assert!(matches!(over, ReserveOutcome::Conflict(row) if row.status == Status::Ended));
}

/// Two callers cannot take the last place, and no place stays unused.
pub async fn concurrent_reserves_take_the_last_place_once(make: Make<'_>) {
    let world = World::new(make).await;
    for n in 0..3 {
        world.online(&format!("p{n}"), 5, 7).await;
    }
    let mut tasks = Vec::new();
    for n in 0..40 {
        let (ledger, roster) = (Arc::clone(&world.ledger), world.roster.clone());
        let mut names = vec![provider("p0"), provider("p1"), provider("p2")];
        names.rotate_left(n % 3);
        let new = NewEngagement::new(engagement(&format!("e{n}")));
        let candidates = match n % 2 {
            0 => Candidates::Among(names),
            _ => ANYONE,
        };
        tasks.push(tokio::spawn(async move {
            ledger.reserve(&roster, &new, &candidates).await.expect("an answer")
        }));
    }
    let mut places: BTreeMap<String, u32> = BTreeMap::new();
    for task in tasks {
        match task.await.expect("a task") {
            ReserveOutcome::NoneAvailable => {}
            other => *places.entry(reserved(other)).or_default() += 1,
        }
    }
    let expected = (0..3).map(|n| (format!("p{n}"), 5)).collect();
    assert_eq!(places, expected);
}

/// Moves in opposite directions, and many requests for one engagement, do not deadlock.
pub async fn opposite_moves_do_not_deadlock(make: Make<'_>) {
    let world = World::new(make).await;
    for name in ["a", "b", "c"] {
        world.online(name, 99, 7).await;
    }
    for n in 0..6 {
        world.create(&format!("e{n}"), Some("a"), Status::Active).await;
    }
    let mut tasks = Vec::new();
    for n in 0..24 {
        let (ledger, roster) = (Arc::clone(&world.ledger), world.roster.clone());
        tasks.push(tokio::spawn(async move {
            let to = crate::ledger::Move {
                provider: Reassign::To(provider(["a", "b", "c"][n % 3])),
                ..Default::default()
            };
            let name = engagement(&format!("e{}", n % 6));
            ledger.move_engagement(&roster, &name, &to).await.expect("moved");
        }));
    }
    for task in tasks {
        task.await.expect("a task");
    }
    let mut total = 0;
    for name in ["a", "b", "c"] {
        total += world.occupancy(name).await;
    }
    assert_eq!(total, 6);
}
