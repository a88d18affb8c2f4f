//! Cases about waiting for leases. On a shared store a freed lease is first reserved for the waiter, until its node takes
//! it: a case sends the request again, which is answered granted there and kept elsewhere.

use super::world::{Make, World, lease, leases, member, ms, refused, s};
use crate::error::ErrorKind;
use crate::event::EventKind;
use crate::id::{NodeId, TenureId};
use crate::lease::{
    Acquire, AcquireOutcome, Queue, ReleaseOutcome, RequestId, RevokeOf, Token, WaitingTurn, Withdrawn,
};
use crate::membership::{Beat, EndBy, Revision};
use crate::store::Call;
use crate::target::TargetSpec;

fn node() -> NodeId {
    NodeId::new("node").expect("a name")
}

fn request(number: u64) -> RequestId {
    RequestId::new(number).expect("a small number")
}

fn queue(number: u64, within: std::time::Duration) -> Queue {
    let (request, node) = (request(number), node());
    Queue { within, request, node }
}

fn ahead(outcome: &AcquireOutcome) -> u32 {
    match outcome {
        AcquireOutcome::Waiting { ahead, .. } => *ahead,
        other => panic!("expected a place in the queue, got {other:?}"),
    }
}

impl World {
    async fn wait(&self, tenure: &TenureId, name: &str, number: u64) -> AcquireOutcome {
        self.ask_for(tenure, name, 1, Some(queue(number, s(60)))).await
    }

    /// The token of a request whose turn has come.
    async fn served(&self, tenure: &TenureId, name: &str, number: u64) -> Token {
        let outcome = self.wait(tenure, name, number).await;
        outcome.token().unwrap_or_else(|| panic!("{tenure}: {outcome:?}"))
    }

    async fn withdraw(&self, tenure: &TenureId, name: &str, number: u64) -> Withdrawn {
        let (lease, call) = (lease(name), Call::default());
        let withdrawn = self.store.withdraw(&self.group, tenure, &lease, request(number), call);
        withdrawn.await.expect("an answer")
    }

    /// What the node learns about its waiting requests.
    async fn turns(&self) -> Vec<WaitingTurn> {
        self.store.wait_for_grants(&node(), s(5)).await.expect("turns")
    }

    fn news(&self, tenure: &TenureId, number: u64, replaced: bool) -> WaitingTurn {
        WaitingTurn {
            group: self.group.clone(),
            lease: lease("poll"),
            tenure: tenure.clone(),
            request: request(number),
            replaced,
        }
    }

    async fn waiting(&self, name: &str) -> u32 {
        let seen = self.store.lease_of(&self.group, &lease(name)).await.expect("a look-up");
        seen.map_or(0, |lease| lease.waiting)
    }

    async fn three(&self) -> [TenureId; 3] {
        [
            self.join("a", s(30)).await,
            self.join("b", s(30)).await,
            self.join("c", s(30)).await,
        ]
    }
}

/// First come, first served. While a request waits, an acquire without a wait is refused, also the last holder's.
pub async fn a_freed_lease_goes_to_the_first_waiter(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c] = world.three().await;
    let token = world.granted(&a, "poll").await;
    assert_eq!(ahead(&world.wait(&b, "poll", 1).await), 0);
    world.pass(ms(1)).await;
    assert_eq!(ahead(&world.wait(&c, "poll", 2).await), 1);
    assert_eq!(world.waiting("poll").await, 2);
    assert_eq!(world.release(&a, "poll", token, None).await, ReleaseOutcome::Released);
    assert!(world.acquire(&a, "poll").await.token().is_none());
    let next = world.served(&b, "poll", 1).await;
    assert!(next > token);
    assert_eq!(
        (ahead(&world.wait(&c, "poll", 2).await), world.waiting("poll").await),
        (0, 1)
    );
    let granted = world.events_of(EventKind::LeaseGranted).await;
    let shown: Vec<_> = granted.iter().map(|event| (event.token, event.request)).collect();
    assert_eq!(shown, [(Some(token), None), (Some(next), Some(request(1)))]);
    world.release(&b, "poll", next, None).await;
    world.served(&c, "poll", 2).await;
}

/// The first answer after a grant names the revision before that grant, so that it does not hide writes that the store lost.
pub async fn a_waiters_grant_follows_its_last_revision(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, _] = world.three().await;
    let token = world.granted(&a, "poll").await;
    let ask = || {
        let queue = Some(queue(1, s(60)));
        let acquire = Acquire::new(b.clone(), vec![lease("poll")]);
        world
            .store
            .acquire_with(&world.group, Acquire { queue, ..acquire }, Call::default())
    };
    let waiting = ask().await.expect("a place in the queue");
    world.release(&a, "poll", token, None).await;
    let served = ask().await.expect("a grant");
    let granted = served.outcomes[0].token().map(|token| Revision(token.get()));
    assert_eq!((served.before, Some(served.revision)), (waiting.revision, granted));
}

/// A free lease is granted immediately, also to a request that would wait.
pub async fn a_free_lease_needs_no_wait(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, _] = world.three().await;
    assert!(matches!(
        world.wait(&a, "poll", 1).await,
        AcquireOutcome::Granted { .. }
    ));
    assert!(matches!(world.wait(&a, "poll", 2).await, AcquireOutcome::Kept { .. }));
    // A wait of no time is none.
    let outcome = world.ask_for(&b, "poll", 1, Some(queue(3, ms(0)))).await;
    assert!(matches!(outcome, AcquireOutcome::Held { .. }), "{outcome:?}");
}

/// A place ends with its tenure and with its wait, and then delays no other.
pub async fn a_place_ends_with_its_tenure_and_its_wait(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c] = world.three().await;
    let d = world.join("d", s(30)).await;
    let token = world.granted(&a, "poll").await;
    world.wait(&b, "poll", 1).await;
    world.ask_for(&c, "poll", 1, Some(queue(2, s(2)))).await;
    world.wait(&d, "poll", 3).await;
    assert_eq!(world.waiting("poll").await, 3);
    world.leave(&b).await;
    world.pass(s(2)).await;
    assert_eq!(world.waiting("poll").await, 1, "a read shows no ghosts");
    world.release(&a, "poll", token, None).await;
    let next = world.served(&d, "poll", 3).await;
    world.wait(&c, "poll", 4).await;
    world.leave(&c).await;
    world.release(&d, "poll", next, None).await;
    world.granted(&a, "poll").await;
}

/// Asking again keeps the place. Place and grant belong to the newest request; a withdrawal of an older one does nothing.
pub async fn asking_again_keeps_the_place(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c] = world.three().await;
    let token = world.granted(&a, "poll").await;
    world.wait(&b, "poll", 1).await;
    world.wait(&c, "poll", 2).await;
    assert_eq!(ahead(&world.wait(&b, "poll", 3).await), 0);
    assert_eq!(
        (world.withdraw(&b, "poll", 1).await, world.waiting("poll").await),
        (Withdrawn::Nothing, 2)
    );
    assert_eq!(
        (world.withdraw(&b, "poll", 3).await, world.waiting("poll").await),
        (Withdrawn::Removed, 1)
    );
    assert_eq!(
        ahead(&world.wait(&b, "poll", 4).await),
        1,
        "a withdrawn request starts behind"
    );
    world.release(&a, "poll", token, None).await;
    let of_c = world.served(&c, "poll", 2).await;
    assert_eq!(
        world.withdraw(&b, "poll", 2).await,
        Withdrawn::Nothing,
        "another tenure's number"
    );
    assert_eq!(
        world.withdraw(&c, "poll", 2).await,
        Withdrawn::GivenBack { token: of_c }
    );
    assert_eq!(world.withdraw(&c, "poll", 2).await, Withdrawn::Nothing);
    world.served(&b, "poll", 4).await;
}

/// A request is granted the lease or ends in one step: what comes free after its end goes to the next waiter.
pub async fn a_wait_of_zero_is_the_last(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c] = world.three().await;
    let token = world.granted(&a, "poll").await;
    world.wait(&b, "poll", 1).await;
    world.wait(&c, "poll", 2).await;
    let last = async |tenure: &TenureId, number| world.ask_for(tenure, "poll", 1, Some(queue(number, ms(0)))).await;
    let is_held = |outcome: &AcquireOutcome| matches!(outcome, AcquireOutcome::Held { by, .. } if *by == a);
    assert!(is_held(&last(&b, 7).await));
    assert_eq!(world.waiting("poll").await, 2, "another request of the tenure waits on");
    assert!(is_held(&last(&b, 1).await));
    assert_eq!(world.waiting("poll").await, 1);
    world.release(&a, "poll", token, None).await;
    let of_c = last(&c, 2).await.token();
    assert_eq!(
        world
            .holder("poll")
            .await
            .map(|(holder, token, _)| (holder, Some(token))),
        Some((c, of_c))
    );
    assert_eq!(world.withdraw(&b, "poll", 1).await, Withdrawn::Nothing);
}

/// A grant that a newer request was told of is not given back for an older one.
pub async fn a_kept_grant_belongs_to_the_newest_request(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, _] = world.three().await;
    world.served(&a, "poll", 1).await;
    let token = world.served(&a, "poll", 2).await;
    assert_eq!(world.withdraw(&a, "poll", 1).await, Withdrawn::Nothing);
    assert_eq!(world.holder("poll").await, Some((a.clone(), token, true)));
    // A request without a wait has no number.
    assert_eq!(world.acquire(&a, "poll").await.token(), Some(token));
    assert_eq!(world.withdraw(&a, "poll", 2).await, Withdrawn::Nothing);
    world.served(&a, "poll", 3).await;
    world.leave(&a).await;
    assert_eq!(
        world.withdraw(&a, "poll", 3).await,
        Withdrawn::Nothing,
        "an ended tenure gives nothing back"
    );
    world.granted(&b, "poll").await;
}

/// A gap may hide that the store lost a later request for the same grant, so a withdrawal of an earlier one frees nothing.
pub async fn a_gap_clears_request_numbers(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, ..] = world.three().await;
    let before = world.served(&a, "poll", 1).await;
    world.outage(s(5)).await;
    world.beat_pulse().await;
    assert_eq!(world.withdraw(&a, "poll", 1).await, Withdrawn::Nothing);
    assert_eq!(world.holder("poll").await.map(|(_, token, _)| token), Some(before));
}

/// A lease that comes free by time alone is served by the sweep, which knows the moment.
pub async fn a_lapsed_holders_lease_goes_to_the_waiter(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(4)).await, world.join("b", s(30)).await);
    world.granted(&a, "poll").await;
    world.wait(&b, "poll", 1).await;
    let status = world.tick().await;
    assert!(
        status.next_wake.is_some_and(|at| at <= status.as_of + s(4)),
        "{status:?}"
    );
    world.pass(s(2)).await;
    world.beat(&a).await;
    world.pass(s(4) - ms(1)).await;
    world.end_lapsed().await;
    assert_eq!(ahead(&world.wait(&b, "poll", 1).await), 0);
    world.pass(ms(1)).await;
    world.end_lapsed().await;
    assert_eq!(world.turns().await, [world.news(&b, 1, false)]);
    world.served(&b, "poll", 1).await;
    assert!(world.tick().await.next_wake.is_none());
}

/// A waiter is served at the last deadline of an expelled holder, not before.
pub async fn a_waiter_is_served_at_the_last_deadline(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(10)).await, world.join("b", s(30)).await);
    world.granted(&a, "poll").await;
    world.wait(&b, "poll", 1).await;
    world
        .store
        .end(&world.group, &a, EndBy::Expel, Call::default())
        .await
        .expect("an end");
    world.pass(s(10) - ms(1)).await;
    world.end_lapsed().await;
    assert_eq!(ahead(&world.wait(&b, "poll", 1).await), 0);
    world.pass(ms(1)).await;
    world.end_lapsed().await;
    world.served(&b, "poll", 1).await;
}

/// A holder whose beat shortens its ttl brings the next turn forward.
pub async fn a_waiter_is_served_at_a_deadline_that_came_nearer(make: Make<'_>) {
    let world = World::new(make).await;
    let (a, b) = (world.join("a", s(30)).await, world.join("b", s(30)).await);
    world.granted(&a, "poll").await;
    world.wait(&b, "poll", 1).await;
    let (ttl, revision) = (Some(s(4)), Revision::NONE);
    let beat = Beat {
        tenure: a,
        ttl,
        revision,
        seen: Revision::NONE,
    };
    world.store.beat(&world.group, &[beat]).await.expect("a beat");
    let status = world.tick().await;
    let next = [status.next_due, status.next_wake].into_iter().flatten().min();
    assert!(next.is_some_and(|at| at <= status.as_of + s(4)), "{status:?}");
    world.pass(s(4)).await;
    world.end_lapsed().await;
    assert_eq!(world.turns().await, [world.news(&b, 1, false)]);
    world.served(&b, "poll", 1).await;
}

/// A hand-off goes before the queue, once.
pub async fn a_hand_off_goes_before_the_queue(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c] = world.three().await;
    let token = world.granted(&a, "poll").await;
    world.wait(&b, "poll", 1).await;
    assert_eq!(
        world.release(&a, "poll", token, Some("c")).await,
        ReleaseOutcome::Reserved
    );
    assert_eq!(ahead(&world.wait(&b, "poll", 1).await), 0);
    let token = world.granted(&c, "poll").await;
    world.release(&c, "poll", token, None).await;
    assert!(world.acquire(&c, "poll").await.token().is_none());
    let token = world.served(&b, "poll", 1).await;
    // A reservation that is not taken ends, and the queue follows.
    world.wait(&c, "poll", 2).await;
    world.release(&b, "poll", token, Some("a")).await;
    world.pass(crate::lease::RESERVATION).await;
    world.end_lapsed().await;
    world.served(&c, "poll", 2).await;
}

/// The end of a successor's tenure serves the queue: the one of its ttl when it is due, and any other at once.
pub async fn an_ended_successors_lease_goes_to_the_waiter(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c] = world.three().await;
    let token = world.granted(&a, "poll").await;
    world.wait(&b, "poll", 1).await;
    world.release(&a, "poll", token, Some("c")).await;
    world.leave(&c).await;
    assert_eq!(world.turns().await, [world.news(&b, 1, false)]);
    let token = world.served(&b, "poll", 1).await;
    world.join("c", s(2)).await;
    world.wait(&a, "poll", 2).await;
    world.release(&b, "poll", token, Some("c")).await;
    world.pass(s(2)).await;
    world.end_lapsed().await;
    // A cluster may report a turn twice.
    let told = world.news(&a, 2, false);
    while !world.turns().await.contains(&told) {}
    world.served(&a, "poll", 2).await;
}

/// A successor that waits is served immediately, wherever it is in the queue, and its later requests take its turn over.
pub async fn a_hand_off_serves_a_waiting_successor(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c] = world.three().await;
    let token = world.granted(&a, "poll").await;
    world.wait(&b, "poll", 1).await;
    world.wait(&c, "poll", 2).await;
    assert_eq!(
        world.release(&a, "poll", token, Some("c")).await,
        ReleaseOutcome::Reserved
    );
    assert_eq!(world.turns().await, [world.news(&c, 2, false)]);
    assert_eq!(ahead(&world.wait(&b, "poll", 1).await), 0);
    let token = world.served(&c, "poll", 2).await;
    world.release(&c, "poll", token, None).await;
    // A request of the tenure without a wait has the turn as well.
    assert!(world.acquire(&b, "poll").await.token().is_some());
}

/// A request on another node ends the older request, whose node learns it.
pub async fn a_replaced_request_is_announced(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, _] = world.three().await;
    world.granted(&a, "poll").await;
    world.wait(&b, "poll", 1).await;
    let other = Queue {
        node: NodeId::new("other").expect("a name"),
        ..queue(2, s(60))
    };
    assert_eq!(ahead(&world.ask_for(&b, "poll", 1, Some(other)).await), 0);
    assert_eq!(world.turns().await, [world.news(&b, 1, true)]);
    assert_eq!(world.withdraw(&b, "poll", 1).await, Withdrawn::Nothing);
    assert_eq!(world.waiting("poll").await, 1);
}

/// The number of holders is also fixed while a free lease is only waited for.
pub async fn waiters_fix_the_number_of_holders(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c] = world.three().await;
    let (token, _) = world.share(&a, "pool", 2).await;
    world.outage(s(5)).await;
    world.release(&a, "pool", token, None).await;
    let wait = world.ask_for(&b, "pool", 2, Some(queue(1, s(60)))).await;
    assert_eq!(ahead(&wait), 0);
    for waits in [None, Some(queue(2, s(60)))] {
        let differs = world.ask_for(&c, "pool", 3, waits.clone()).await;
        assert!(matches!(differs, AcquireOutcome::HoldersDiffer { holders } if holders.get() == 2));
        let refused = world.ask_for(&c, "pool", 1, waits).await;
        assert!(matches!(refused, AcquireOutcome::Reserved { to, .. } if to == member("b")));
    }
}

/// In a grace period nothing is granted; the waiter is served at its end.
pub async fn a_waiter_is_served_at_the_end_of_a_grace(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c] = world.three().await;
    let token = world.granted(&a, "poll").await;
    world.wait(&b, "poll", 1).await;
    world.outage(s(5)).await;
    let until = world.tick().await.unsettled.expect("a grace").until;
    world.release(&a, "poll", token, None).await;
    assert_eq!(ahead(&world.wait(&b, "poll", 1).await), 0);
    assert_eq!(ahead(&world.wait(&c, "poll", 2).await), 1);
    let status = world.tick().await;
    assert!(status.next_wake.is_some_and(|at| at <= until), "{status:?}");
    while world.tick().await.as_of < until {
        world.beats(&[a.clone(), b.clone(), c.clone()]).await;
        world.pass(s(5)).await;
    }
    world.beats(&[b.clone(), c.clone()]).await;
    world.end_lapsed().await;
    world.served(&b, "poll", 1).await;
}

/// When an operator ends a grace, all leases with waiters are served, however many: the first in that step.
pub async fn a_settled_group_serves_all_waiters(make: Make<'_>) {
    let world = World::new(make).await;
    let a = world.join("a", s(30)).await;
    world.outage(s(5)).await;
    let names = leases("l", 250);
    for (number, name) in (0u64..).zip(&names) {
        world.wait(&a, name.as_str(), number).await;
    }
    let cause = world.tick().await.unsettled.expect("a grace").cause;
    let settled = world
        .store
        .settle(Some(&world.group), Some(cause), Call::default())
        .await;
    assert_eq!(settled.expect("an answer").settled, 1);
    world.tick().await;
    world.tick().await;
    let mut served = std::collections::BTreeSet::new();
    while served.len() < names.len() {
        let turns = world.turns().await;
        assert!(!turns.is_empty(), "{} of {}", served.len(), names.len());
        served.extend(turns.into_iter().map(|turn| turn.lease));
    }
}

/// A wait that is too long, for several leases or for a target is refused, and a late request does not join.
pub async fn a_bad_wait_changes_nothing(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, _] = world.three().await;
    world.granted(&a, "poll").await;
    let ask = |names: &[&str], within, call| {
        let acquire = Acquire {
            queue: Some(queue(1, within)),
            ..Acquire::new(b.clone(), names.iter().map(|name| lease(name)).collect())
        };
        let (store, group) = (world.store.clone(), world.group.clone());
        async move { store.acquire_with(&group, acquire, call).await }
    };
    let call = Call::default();
    refused(ask(&["poll"], s(61), call).await, ErrorKind::Invalid);
    refused(ask(&["poll", "x"], s(1), call).await, ErrorKind::Invalid);
    let now = world.store.now().await.expect("the time");
    world.pass(ms(10)).await;
    refused(ask(&["poll"], s(1), Call::not_after(now)).await, ErrorKind::TooLate);
    let put = world
        .store
        .put_target(&world.group, &lease("poll"), TargetSpec::default(), call)
        .await;
    put.expect("a target");
    refused(ask(&["poll"], s(1), call).await, ErrorKind::Invalid);
    assert_eq!(world.waiting("poll").await, 0);
    assert!(matches!(world.acquire(&b, "poll").await, AcquireOutcome::Held { .. }));
}

/// Each free place of a shared lease goes to the next waiter, and waiting fixes the number of holders.
pub async fn places_of_a_shared_lease_are_waited_for(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, c] = world.three().await;
    let d = world.join("d", s(30)).await;
    let (of_a, _) = world.share(&a, "pool", 2).await;
    let (of_b, _) = world.share(&b, "pool", 2).await;
    let wait = async |tenure: &TenureId, number| world.ask_for(tenure, "pool", 2, Some(queue(number, s(60)))).await;
    assert_eq!(ahead(&wait(&c, 1).await), 0);
    assert_eq!(ahead(&wait(&d, 2).await), 1);
    world.release(&b, "pool", of_b, None).await;
    assert_eq!(wait(&c, 1).await.place().map(crate::lease::Place::get), Some(1));
    assert_eq!(ahead(&wait(&d, 2).await), 0);
    let differs = world.ask_for(&b, "pool", 3, Some(queue(3, s(60)))).await;
    assert!(matches!(differs, AcquireOutcome::HoldersDiffer { .. }), "{differs:?}");
    world.release(&a, "pool", of_a, None).await;
    assert_eq!(wait(&d, 2).await.place().map(crate::lease::Place::get), Some(0));
}

/// The lease of a holder that an operator released goes to the waiter once the holder has noticed.
pub async fn a_revoked_lease_goes_to_the_waiter(make: Make<'_>) {
    let world = World::new(make).await;
    let [a, b, _] = world.three().await;
    let known = Revision(world.granted(&a, "poll").await.get());
    world.beat_naming(&a, known).await;
    world.wait(&b, "poll", 1).await;
    let of = RevokeOf::Holder(member("a"));
    let revoked = world
        .store
        .revoke_lease(&world.group, &lease("poll"), of, Call::default())
        .await;
    revoked.expect("a release");
    assert_eq!(ahead(&world.wait(&b, "poll", 1).await), 0);
    let crate::membership::BeatReply::Renewed { revision, .. } = world.beat_naming(&a, known).await else {
        panic!("the holder is alive");
    };
    assert_eq!(ahead(&world.wait(&b, "poll", 1).await), 0);
    world.beat_naming(&a, revision).await;
    world.served(&b, "poll", 1).await;
}

/// The brake pauses removals, never the hand-over of a lease to its waiter.
pub async fn the_brake_does_not_hold_waiters(make: Make<'_>) {
    let world = World::new(make).await;
    let b = world.join("b", s(60)).await;
    let mut members = Vec::new();
    for n in 0..20 {
        members.push(world.join(&format!("m{n}"), s(4)).await);
    }
    world.granted(&members[0], "poll").await;
    world.wait(&b, "poll", 1).await;
    world.pass(s(4)).await;
    world.end_lapsed().await;
    assert!(world.tick().await.brake.is_some());
    world.served(&b, "poll", 1).await;
}
