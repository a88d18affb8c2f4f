//! Cases about leases of several holders.

pub use super::random::shared_leases_agree_with_the_model;
use super::world::{Make, World, lease, member, ms, s};
use crate::event::EventKind;
use crate::id::TenureId;
use crate::lease::{AcquireOutcome, LeaseHolder, ReleaseOutcome, Token};
use crate::membership::{EndBy, EndReason};
use crate::store::{Call, PageRequest};

async fn joined<const N: usize>(world: &World) -> [TenureId; N] {
    let mut all = Vec::new();
    for n in 0..N {
        all.push(world.join(&format!("m{n}"), s(30)).await);
    }
    all.try_into().expect("as many as joined")
}

fn held(outcome: &AcquireOutcome) -> bool {
    matches!(outcome, AcquireOutcome::Held { .. })
}

/// Each holder has the lowest free place and a token above all earlier ones of the lease.
pub async fn each_holder_has_a_place_and_a_token(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c, d] = joined(&world).await;
    let mut tokens = Vec::new();
    for (n, tenure) in [&a, &b, &c].into_iter().enumerate() {
        let (token, place) = world.share(tenure, "pool", 3).await;
        assert_eq!(usize::from(place), n);
        assert!(tokens.last().is_none_or(|last| token > *last));
        tokens.push(token);
    }
    assert_eq!(
        world.share(&b, "pool", 3).await,
        (tokens[1], 1),
        "a retry is answered kept"
    );
    let refused = world.acquire_shared(&d, "pool", 3).await;
    assert_eq!(refused, AcquireOutcome::Held { by: a, free_in: s(30) });
    world.release(&b, "pool", tokens[1], None).await;
    let (token, place) = world.share(&d, "pool", 3).await;
    assert!(place == 1 && token > tokens[2], "{place} {token}");
}

/// While a place is taken, another number of holders is refused; without a number, the lease is held.
pub async fn the_number_of_holders_is_fixed_while_taken(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b] = joined(&world).await;
    let (token, _) = world.share(&a, "pool", 3).await;
    for tenure in [&a, &b] {
        let differs = world.acquire_shared(tenure, "pool", 2).await;
        assert!(matches!(differs, AcquireOutcome::HoldersDiffer { holders } if holders.get() == 3));
        assert!(held(&world.acquire(tenure, "pool").await));
    }
    world.release(&a, "pool", token, None).await;
    let one = world.granted(&b, "pool").await;
    let differs = world.acquire_shared(&a, "pool", 3).await;
    assert!(matches!(differs, AcquireOutcome::HoldersDiffer { holders } if holders.is_one()));
    // A reservation takes a place as well.
    assert_eq!(
        world.release(&b, "pool", one, Some("m0")).await,
        ReleaseOutcome::Reserved
    );
    let differs = world.acquire_shared(&a, "pool", 3).await;
    assert!(matches!(differs, AcquireOutcome::HoldersDiffer { holders } if holders.is_one()));
    world.granted(&a, "pool").await;
}

/// A double or late release never makes room for two.
pub async fn a_second_release_makes_no_room(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c, d] = joined(&world).await;
    let (of_a, _) = world.share(&a, "pool", 2).await;
    let (of_b, _) = world.share(&b, "pool", 2).await;
    world.release(&a, "pool", of_a, None).await;
    world.release(&a, "pool", of_a, None).await;
    world.share(&c, "pool", 2).await;
    world.release(&a, "pool", of_a, None).await;
    assert!(held(&world.acquire_shared(&d, "pool", 2).await));
    // A release with the token of an earlier grant, and with that of another holder.
    world.release(&b, "pool", of_b, None).await;
    let (again, _) = world.share(&b, "pool", 2).await;
    for late in [of_b, of_a] {
        let refused = world.release(&b, "pool", late, None).await;
        assert_eq!(refused, ReleaseOutcome::NotHolder { by: b.clone() });
    }
    assert!(again > of_b && held(&world.acquire_shared(&d, "pool", 2).await));
}

/// A superseded or expelled holder keeps its place until its last deadline; one that left does not.
pub async fn a_place_is_taken_until_the_last_deadline(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c, d] = joined(&world).await;
    for tenure in [&a, &b, &c] {
        world.share(tenure, "pool", 3).await;
    }
    world.pass(s(10)).await;
    world.beats(&[c.clone(), d.clone()]).await;
    let again = world.join("m0", s(30)).await;
    let expelled = world.store.end(&world.group, &b, EndBy::Expel, Call::default()).await;
    assert_eq!(expelled.expect("an end"), EndReason::Expelled);
    let refused = world.acquire_shared(&again, "pool", 3).await;
    let free_in = s(20);
    assert_eq!(refused, AcquireOutcome::Held { by: a, free_in });
    world.leave(&c).await;
    assert_eq!(world.share(&again, "pool", 3).await.1, 2);
    world.pass(s(20) - ms(1)).await;
    world.beat(&d).await;
    assert!(held(&world.acquire_shared(&d, "pool", 3).await));
    world.pass(ms(1)).await;
    assert_eq!(world.share(&d, "pool", 3).await.1, 0);
}

/// A lapsed holder's place is granted without a sweep, at its end and not before.
pub async fn a_lapsed_holders_place_is_granted(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b, c) = (
        world.join("a", s(4)).await,
        world.join("b", s(30)).await,
        world.join("c", s(30)).await,
    );
    world.share(&b, "pool", 2).await;
    world.share(&a, "pool", 2).await;
    world.pass(s(4) - ms(1)).await;
    let (by, free_in) = (a.clone(), ms(1));
    assert_eq!(
        world.acquire_shared(&c, "pool", 2).await,
        AcquireOutcome::Held { by, free_in }
    );
    world.pass(ms(1)).await;
    match world.acquire_shared(&c, "pool", 2).await {
        AcquireOutcome::Granted { place, from, .. } => assert_eq!((place.get(), from), (1, Some(a))),
        other => panic!("{other:?}"),
    }
}

/// A hand-off reserves the place of the holder, for its successor only.
pub async fn a_hand_off_reserves_a_place(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c, d] = joined(&world).await;
    let (token, _) = world.share(&a, "pool", 2).await;
    world.share(&b, "pool", 2).await;
    assert_eq!(
        world.release(&a, "pool", token, Some("m2")).await,
        ReleaseOutcome::Reserved
    );
    let reserved = AcquireOutcome::Reserved {
        to: member("m2"),
        free_in: crate::lease::RESERVATION,
    };
    assert_eq!(world.acquire_shared(&d, "pool", 2).await, reserved);
    assert_eq!(world.share(&c, "pool", 2).await.1, 0);
    assert!(held(&world.acquire_shared(&d, "pool", 2).await));
}

/// The place of a successor whose tenure ended is free, also in a read, and stays so when the member joins again.
pub async fn an_ended_successors_place_is_free(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c, _] = joined(&world).await;
    let (of_a, _) = world.share(&a, "pool", 2).await;
    let (of_b, _) = world.share(&b, "pool", 2).await;
    world.release(&b, "pool", of_b, Some("m2")).await;
    let free = async || {
        let seen = world.store.lease_of(&world.group, &lease("pool")).await;
        seen.expect("a look-up").expect("a held lease").free
    };
    assert_eq!(free().await, 0);
    world.leave(&c).await;
    assert_eq!(free().await, 1);
    world.release(&a, "pool", of_a, None).await;
    world.granted(&b, "pool").await;
    world.join("m2", s(30)).await;
    let seen = world.store.lease_of(&world.group, &lease("pool")).await;
    let seen = seen.expect("a look-up").expect("a held lease");
    assert_eq!((seen.places.get(), seen.free), (1, 0));
}

/// A read shows the living holder with the highest token, all holders by place, and the free places.
pub async fn a_read_shows_all_holders(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c] = joined(&world).await;
    let (of_a, _) = world.share(&a, "pool", 4).await;
    let (of_b, _) = world.share(&b, "pool", 4).await;
    let (of_c, _) = world.share(&c, "pool", 4).await;
    world.leave(&c).await;
    let seen = world.store.lease_of(&world.group, &lease("pool")).await;
    let seen = seen.expect("a look-up").expect("a held lease");
    assert_eq!((&seen.tenure, seen.token, seen.place.get()), (&b, of_b, 1));
    assert_eq!((seen.places.get(), seen.free, seen.waiting), (4, 2, 0));
    let shown = |holder: &LeaseHolder| (holder.token, holder.place.get(), holder.alive);
    let shown: Vec<(Token, u16, bool)> = seen.holders.iter().map(shown).collect();
    assert_eq!(shown, [(of_a, 0, true), (of_b, 1, true), (of_c, 2, false)]);
    assert_eq!(world.all_leases(None, 1).await, ["pool"], "one item per lease");
    let mine = world.store.held_leases(&world.group, &a, &PageRequest::default()).await;
    let mine = mine.expect("a page").page.items;
    assert_eq!((mine.len(), &mine[0].tenure, mine[0].token), (1, &a, of_a));
    let by = world
        .store
        .leases(&world.group, Some(&member("m0")), &PageRequest::default())
        .await;
    assert_eq!(by.expect("a page").items[0].tenure, a);
}

/// The janitor releases the place of a dead holder once. Events have the place of a shared lease.
pub async fn the_janitor_releases_places_of_the_dead(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b] = joined(&world).await;
    world.granted(&a, "one").await;
    world.share(&a, "pool", 2).await;
    let (of_b, _) = world.share(&b, "pool", 2).await;
    world.leave(&b).await;
    world.pass(ms(300)).await;
    world.sweep("p").await;
    world.sweep("q").await;
    let place = |event: &crate::event::Event| event.place.map(crate::lease::Place::get);
    let granted = world.events_of(EventKind::LeaseGranted).await;
    assert_eq!(granted.iter().map(place).collect::<Vec<_>>(), [None, Some(0), Some(1)]);
    let released = world.events_of(EventKind::LeaseReleased).await;
    assert_eq!(released.len(), 1);
    assert_eq!((released[0].token, place(&released[0])), (Some(of_b), Some(1)));
    let seen = world.store.lease_of(&world.group, &lease("pool")).await;
    let seen = seen.expect("a look-up").expect("a held lease");
    assert_eq!((seen.holders.len(), seen.free), (1, 1));
}

/// A generation begins when the lease is granted while no place is taken, reserved or held back; its grants have one number.
pub async fn a_generation_begins_on_a_free_lease(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c] = joined(&world).await;
    let ask = async |tenure: &TenureId, holders| {
        let outcome = world.acquire_shared(tenure, "pool", holders).await;
        match (outcome.token(), outcome.generation()) {
            (Some(token), Some(generation)) => (token, generation),
            _ => panic!("{tenure}: {outcome:?}"),
        }
    };
    let (of_a, first) = ask(&a, 3).await;
    let (of_b, generation) = ask(&b, 3).await;
    assert_eq!((generation, ask(&a, 3).await.1), (first, first));
    world.release(&a, "pool", of_a, None).await;
    assert_eq!(ask(&c, 3).await.1, first);
    let seen = world.store.lease_of(&world.group, &lease("pool")).await;
    let seen = seen.expect("a look-up").expect("a held lease");
    let mut all = seen.holders.iter().map(|holder| holder.generation);
    assert!(seen.generation == first && all.all(|generation| generation == first));
    // A reservation continues it, and so does a superseded holder until its deadline.
    let of_c = ask(&c, 3).await.0;
    world.release(&c, "pool", of_c, None).await;
    assert_eq!(
        world.release(&b, "pool", of_b, Some("m0")).await,
        ReleaseOutcome::Reserved
    );
    assert_eq!(ask(&a, 3).await.1, first);
    let again = world.join("m0", s(30)).await;
    assert_eq!(ask(&again, 3).await.1, first);
    world.leave(&again).await;
    world.pass(s(30)).await;
    let (b, c) = (world.join("m1", s(60)).await, world.join("m2", s(60)).await);
    let (of_b, second) = ask(&b, 3).await;
    assert!(second > first && second <= of_b);
    assert_eq!(ask(&c, 3).await.1, second);
    // Each exclusive grant begins one.
    world.leave(&b).await;
    world.leave(&c).await;
    let (b, c) = (world.join("m1", s(60)).await, world.join("m2", s(60)).await);
    let (token, third) = ask(&b, 1).await;
    assert!(third == token && third > second);
    world.release(&b, "pool", token, Some("m2")).await;
    let (token, fourth) = ask(&c, 1).await;
    assert!(fourth == token && fourth > third);
}
