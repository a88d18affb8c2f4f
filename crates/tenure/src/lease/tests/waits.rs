//! Waiting for leases.

use tenure_core::error::ErrorKind;
use tenure_core::lease::{FreeWhen, GRANT_RESERVATION, Holders, ReleaseOutcome, RevokeOf};
use tenure_core::store::Call;
use tenure_core::target::TargetSpec;
use tokio::task::JoinHandle;

use super::*;
use crate::fence::Fence;
use crate::lease::AcquireOptions;
use crate::testing::{Fault, Verb, ms};

type Waiter = JoinHandle<tenure_core::Result<Acquire>>;

const LONG: Duration = secs(60);

fn wait(membership: &Membership, name: &'static str) -> Waiter {
    let leases = membership.leases();
    tokio::spawn(async move { leases.acquire_within(name, LONG).await })
}

impl World {
    async fn waiting(&self, name: &str) -> u32 {
        self.seen(name).await.map_or(0, |lease| lease.waiting)
    }

    /// Waits until so many requests wait.
    async fn until_waiting(&self, name: &str, waiting: u32) {
        let end = self.clock.mono() + secs(60);
        while self.waiting(name).await != waiting {
            assert!(self.clock.mono() < end, "{} wait for {name}", self.waiting(name).await);
            self.pass(ms(10)).await;
        }
    }

    async fn served(&self, waiter: Waiter) -> LeaseGuard {
        let answer = self.run(waiter).await.unwrap().unwrap();
        answer.granted().expect("granted")
    }
}

#[tokio::test]
async fn wait_of_more_than_a_minute_has_parts() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let held = world.granted(&b, "t1").await;
    let wait = |secs_left| {
        let leases = a.leases();
        tokio::spawn(async move { leases.acquire_within("t1", secs(secs_left)).await })
    };
    let waiter = wait(150);
    world.until_waiting("t1", 1).await;
    world.pass(secs(100)).await;
    assert!(!waiter.is_finished());
    world.run(held.release()).await.unwrap();
    let guard = world.served(waiter).await;
    world.run(guard.release()).await.unwrap();
    let _held = world.granted(&b, "t1").await;
    let (began, waiter) = (world.clock.mono(), wait(90));
    let answer = world.run(waiter).await.unwrap().unwrap();
    assert!(matches!(answer, Acquire::Held { .. }));
    let waited = world.clock.mono().since(began);
    assert!((secs(90)..secs(93)).contains(&waited), "{waited:?}");
}

#[tokio::test]
async fn waiter_holds_the_lease_after_its_release() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let held = world.granted(&a, "t1").await;
    let waiter = wait(&b, "t1");
    world.until_waiting("t1", 1).await;
    let token = held.token();
    world.run(held.release()).await.unwrap();
    let guard = world.served(waiter).await;
    assert!(guard.token() > token);
    world.pass(TTL * 2).await;
    assert!(is_held(&guard));
}

#[tokio::test]
async fn dropped_wait_gives_up_its_place() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let _held = world.granted(&a, "t1").await;
    let waiter = wait(&b, "t1");
    world.until_waiting("t1", 1).await;
    waiter.abort();
    world.until_waiting("t1", 0).await;
}

#[tokio::test]
async fn grant_to_a_wait_that_is_dropped_is_given_back() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let held = world.granted(&a, "t1").await;
    let waiter = wait(&b, "t1");
    world.until_waiting("t1", 1).await;
    // The grant is made, and its answer is under way.
    world.other_store.next(Verb::Acquire, Fault::Hang { applied: true });
    world.run(held.release()).await.unwrap();
    world.pass(ms(10)).await;
    assert_eq!(world.seen("t1").await.unwrap().tenure, b.tenure());
    waiter.abort();
    let end = world.clock.mono() + secs(10);
    while world.seen("t1").await.is_some() {
        assert!(world.clock.mono() < end, "the grant was not given back");
        world.pass(ms(50)).await;
    }
    assert!(is_held(&world.granted(&a, "t1").await));
}

#[tokio::test]
async fn lost_reply_of_a_waiter_is_asked_again() {
    let too_late = Fault::Fail(ErrorKind::TooLate);
    for fault in [
        Fault::LoseReply,
        Fault::LoseRequest,
        Fault::Hang { applied: true },
        too_late,
    ] {
        let world = world().await;
        let (a, b) = (world.join().await, world.rival().await);
        let held = world.granted(&a, "t1").await;
        let waiter = wait(&b, "t1");
        world.until_waiting("t1", 1).await;
        world.other_store.next(Verb::Acquire, fault.clone());
        world.run(held.release()).await.unwrap();
        let guard = world.served(waiter).await;
        world.pass(TTL).await;
        let seen = world.seen("t1").await.unwrap();
        assert_eq!((seen.token, is_held(&guard)), (guard.token(), true), "{fault:?}");
    }
}

#[tokio::test]
async fn wait_ends_with_the_tenure() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let _held = world.granted(&a, "t1").await;
    let waiter = wait(&b, "t1");
    world.until_waiting("t1", 1).await;
    world.run(world.group.expel(&b.tenure())).await.unwrap();
    let error = world.run(waiter).await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Ended(_)), "{error}");
}

#[tokio::test]
async fn wait_that_is_over_names_the_holder() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let _held = world.granted(&a, "t1").await;
    let began = world.clock.mono();
    let over = world.run(b.leases().acquire_within("t1", secs(5))).await.unwrap();
    assert!(matches!(over, Acquire::Held { by, .. } if by == a.tenure()));
    assert!((secs(5)..secs(6)).contains(&world.clock.mono().since(began)));
    assert_eq!(world.waiting("t1").await, 0);
}

#[tokio::test]
async fn wait_survives_an_outage_of_the_store() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let held = world.granted(&a, "t1").await;
    world
        .other_store
        .always(Verb::Acquire, Some(Fault::Fail(ErrorKind::Unavailable)));
    let waiter = wait(&b, "t1");
    world.pass(secs(5)).await;
    assert!(!waiter.is_finished());
    world.other_store.heal();
    world.until_waiting("t1", 1).await;
    world.run(held.release()).await.unwrap();
    assert!(is_held(&world.served(waiter).await));
}

/// The store user may not subscribe to the channel of turns.
#[tokio::test]
async fn unannounced_turn_is_found_by_asking_again() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let held = world.granted(&a, "t1").await;
    world
        .other_store
        .always(Verb::Turns, Some(Fault::Fail(ErrorKind::Denied)));
    let waiter = wait(&b, "t1");
    world.until_waiting("t1", 1).await;
    world.run(held.release()).await.unwrap();
    let released = world.clock.mono();
    assert!(is_held(&world.served(waiter).await));
    assert!(world.clock.mono().since(released) < GRANT_RESERVATION);
}

/// What an operator did during the wait is not hidden by the revision of the grant.
#[tokio::test]
async fn grant_after_a_wait_explains_no_other_change() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let (held, other) = (world.granted(&a, "t1").await, world.granted(&b, "t2").await);
    world.pass(TTL).await;
    let waiter = wait(&b, "t1");
    world.until_waiting("t1", 1).await;
    let of = RevokeOf::Token(other.token());
    let (group, name) = (world.group.name(), lease("t2"));
    let revoked = world.memory.revoke_lease(group, &name, of, Call::default());
    assert_eq!(revoked.await.unwrap().free_when, FreeWhen::Noticed);
    world.run(held.release()).await.unwrap();
    let guard = world.served(waiter).await;
    // No beat since the release names it, or shows that it was read.
    let seen = world.seen("t2").await.expect("it stays taken");
    assert!(seen.holders[0].revoked && seen.token == other.token());
    world.until("it is lost", || other.verdict() == Verdict::Lost).await;
    assert!(is_held(&guard));
    let free = world.clock.mono() + TTL;
    while world.seen("t2").await.is_some() {
        assert!(world.clock.mono() < free, "it is free");
        world.pass(ms(50)).await;
    }
}

#[tokio::test]
async fn wait_for_a_target_is_invalid() {
    let world = world().await;
    let a = world.join().await;
    let target = lease("t1");
    let group = world.group.name();
    let put = world
        .memory
        .put_target(group, &target, TargetSpec::default(), Call::default());
    put.await.unwrap();
    let error = world.run(a.leases().acquire_within("t1", secs(5))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn semaphore_has_as_many_guards_as_places() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let options = AcquireOptions {
        holders: Holders::new(2).unwrap(),
        ..AcquireOptions::default()
    };
    let mut guards = Vec::new();
    for membership in [&a, &b] {
        let leases = membership.leases();
        let answer = world.run(leases.acquire_with("slots", options)).await.unwrap();
        guards.push(answer.granted().expect("a place"));
    }
    let fences: Vec<_> = guards.iter().map(LeaseGuard::fence_resource).collect();
    assert_eq!(fences, ["slots", "slots/1"]);
    // The holder with the higher token does not shut out the other one; a successor in its place does.
    let fence = Fence::default();
    let admits = |guard: &LeaseGuard| fence.admit(&guard.fence_resource(), guard.token()).is_ok();
    assert!(admits(&guards[1]) && admits(&guards[0]) && admits(&guards[1]));
    let (resource, old) = (guards[0].fence_resource(), guards[0].token());
    world.run(guards.remove(0).release()).await.unwrap();
    let answer = world.run(a.leases().acquire_with("slots", options)).await.unwrap();
    guards.push(answer.granted().expect("the free place"));
    assert!(admits(&guards[1]) && admits(&guards[0]) && fence.admit(&resource, old).is_err());
    world.pass(TTL).await;
    assert!(guards.iter().all(is_held));
    let exclusive = world.run(a.leases().acquire("other")).await.unwrap();
    assert!(matches!(exclusive, Acquire::Granted(_)));
}

#[tokio::test]
async fn lease_released_by_an_operator_is_lost_before_it_is_granted() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let guard = world.granted(&a, "t1").await;
    // Its beats name a revision from now on.
    world.pass(TTL).await;
    let waiter = wait(&b, "t1");
    world.until_waiting("t1", 1).await;
    let of = RevokeOf::Token(guard.token());
    let (group, name) = (world.group.name(), lease("t1"));
    let revoked = world.memory.revoke_lease(group, &name, of, Call::default());
    let revoked = revoked.await.unwrap();
    assert_eq!(revoked.free_when, FreeWhen::Noticed);
    let granted = world.served(waiter).await;
    assert_eq!(guard.verdict(), Verdict::Lost);
    assert!(is_held(&granted) && granted.token() > guard.token());
}

#[tokio::test]
async fn beat_names_no_release_that_was_not_read() {
    let world = world().await;
    let a = world.join().await;
    let guard = world.granted(&a, "t1").await;
    world.pass(TTL).await;
    world
        .store
        .always(Verb::Look, Some(Fault::Fail(ErrorKind::Unavailable)));
    let of = RevokeOf::Token(guard.token());
    let (group, name) = (world.group.name(), lease("t1"));
    let revoked = world.memory.revoke_lease(group, &name, of, Call::default());
    assert_eq!(revoked.await.unwrap().free_when, FreeWhen::Noticed);
    // More than one beat, and less than its deadline at the release.
    world.pass(TTL / 2).await;
    let seen = world.seen("t1").await.expect("it stays taken");
    assert_eq!(seen.token, guard.token());
    world.store.heal();
    world.until("it is lost", || guard.verdict() == Verdict::Lost).await;
}

/// It may be of a lease that another process works under.
#[tokio::test]
async fn beat_for_others_names_no_release() {
    for holds in [false, true] {
        let world = world().await;
        let options = JoinOptions {
            others_act: true,
            ..named("a")
        };
        let (a, b) = (world.group.join(options).await.unwrap(), world.rival().await);
        let (group, name, call) = (world.group.name(), [lease("theirs")], Call::default());
        let theirs = world.memory.acquire(group, &a.tenure(), &name, call).await;
        assert!(theirs.unwrap().outcomes[0].token().is_some());
        let _own = if holds {
            Some(world.granted(&a, "own").await)
        } else {
            None
        };
        world.pass(TTL).await;
        let revoked = world
            .memory
            .revoke_lease(group, &name[0], RevokeOf::Any, Call::default());
        assert_eq!(revoked.await.unwrap().free_when, FreeWhen::TenureEnds);
        world.pass(TTL * 3).await;
        assert!(world.acquire(&b, "theirs").await.granted().is_none(), "holds: {holds}");
        world.run(a.leave()).await.unwrap();
        assert!(world.acquire(&b, "theirs").await.granted().is_some());
    }
}

#[tokio::test]
async fn release_by_an_operator_is_not_hidden_by_an_act_of_the_holder() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let guard = world.granted(&a, "t1").await;
    world.pass(TTL).await;
    let (name, of) = (lease("t1"), RevokeOf::Token(guard.token()));
    let revoked = world
        .memory
        .revoke_lease(world.group.name(), &name, of, Call::default());
    assert_eq!(revoked.await.unwrap().free_when, FreeWhen::Noticed);
    // The answer names a revision above that of the release; the holder cannot read what it holds.
    let fault = Fault::Fail(ErrorKind::Unavailable);
    world.store.always(Verb::Look, Some(fault));
    let devices = a.registry("devices").unwrap();
    devices.claim("d1").await.unwrap();
    let (mut freed, end) = (false, world.clock.mono() + TTL * 2);
    while world.clock.mono() < end {
        world.pass(ms(100)).await;
        let rival = world.acquire(&b, "t1").await.granted();
        freed |= rival.is_some();
        assert!(!freed || !is_held(&guard), "two holders");
        assert_eq!(a.verdict(), Verdict::Held);
    }
    assert!(freed, "the lease is free at the deadline that it had");
    world.store.always(Verb::Look, None);
    world.until("it is re-read", || guard.verdict() == Verdict::Lost).await;
}

#[tokio::test]
async fn lease_is_free_once_its_release_is_answered() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let guard = world.granted(&a, "t1").await;
    world.pass(TTL).await;
    // A beat reports the release by an operator, and the holder cannot read what it holds.
    for verb in [Verb::Look, Verb::ReleaseLeases] {
        world.store.always(verb, Some(Fault::Fail(ErrorKind::Unavailable)));
    }
    let (name, of) = (lease("t1"), RevokeOf::Token(guard.token()));
    let revoked = world
        .memory
        .revoke_lease(world.group.name(), &name, of, Call::default());
    assert_eq!(revoked.await.unwrap().free_when, FreeWhen::Noticed);
    world.pass(TTL / 2).await;
    let release = tokio::spawn(guard.release());
    world.pass(ms(1)).await;
    world.store.always(Verb::Look, None);
    for _ in 0..100 {
        if release.is_finished() {
            break;
        }
        world.pass(ms(10)).await;
    }
    world.store.always(Verb::ReleaseLeases, None);
    let answer = world.run(release).await.unwrap();
    assert_eq!(answer.unwrap(), ReleaseOutcome::Released);
    assert!(world.acquire(&b, "t1").await.granted().is_some());
}

#[tokio::test]
async fn answers_that_overtake_each_other_cause_no_doubt() {
    let world = world().await;
    let a = world.join().await;
    let guard = world.granted(&a, "t1").await;
    world.pass(TTL).await;
    let devices = a.registry("devices").unwrap();
    for round in 0..20 {
        let keys: Vec<String> = (0..8).map(|number| format!("d{round}-{number}")).collect();
        world.store.next(Verb::Claim, Fault::Hang { applied: true });
        let claims = keys.iter().map(|key| devices.claim(key));
        drop(world.run(futures_util::future::join_all(claims)).await);
        world.pass(ms(200)).await;
        assert!(is_held(&guard), "round {round}");
    }
    world.pass(TTL).await;
    assert!(is_held(&guard));
}

#[tokio::test]
async fn wait_returns_no_restored_older_grant() {
    let mut world = world().await;
    let replica = world.replicate();
    let (a, b) = (world.join().await, world.rival().await);
    let first = world.granted(&a, "t1").await;
    let older = first.token();
    world.pass(TTL).await;
    world.lag();
    world.run(first.release()).await.unwrap();
    let newest = world.granted(&b, "t1").await;
    let (seen, waiter) = (newest.token(), wait(&a, "t1"));
    world.until_waiting("t1", 1).await;
    // The turn of the waiter is announced just before the failover.
    let (tenure, primary) = (b.tenure(), Arc::clone(&world.memory));
    world.fail_over(replica);
    let (group, released) = (world.group.name(), [(lease("t1"), seen)]);
    let release = primary.release_leases(group, &tenure, &released, None, Call::default());
    release.await.unwrap();
    assert_eq!(
        world.seen("t1").await.unwrap().token,
        older,
        "the store lost the release"
    );
    let guard = world.served(waiter).await;
    assert!(guard.token() > seen, "a sink has seen {seen}");
    assert_eq!(world.seen("t1").await.unwrap().token, guard.token());
}

/// A grant whose answer is lost, and a failover that loses what came after it.
async fn grant_without_an_answer(world: &World, a: &Membership) -> Waiter {
    world.until("a beat", || world.store.calls(Verb::Beat) > 0).await;
    world.store.next(Verb::Acquire, Fault::Hang { applied: true });
    world.store.always(Verb::ReleaseLeases, Some(Fault::LoseRequest));
    let waiter = wait(a, "t1");
    world
        .until("the request", || world.store.calls(Verb::Acquire) == 1)
        .await;
    settle().await;
    assert_eq!(world.seen("t1").await.unwrap().tenure, a.tenure());
    waiter
}

#[tokio::test]
async fn late_withdrawal_leaves_the_lease_of_a_later_wait() {
    let mut world = world().await;
    let replica = world.replicate();
    let a = world.join().await;
    let waiter = grant_without_an_answer(&world, &a).await;
    world.lag();
    // It asks again, and the store loses the number of that request.
    let guard = world.served(waiter).await;
    world.fail_over(replica);
    world.store.heal();
    for _ in 0..40 {
        world.pass(ms(500)).await;
        assert!(is_held(&guard));
        assert_eq!(world.seen("t1").await.map(|seen| seen.token), Some(guard.token()));
    }
}

#[tokio::test]
async fn late_withdrawal_leaves_the_lease_of_a_later_acquire() {
    let mut world = world().await;
    let replica = world.replicate();
    let a = world.join().await;
    let waiter = grant_without_an_answer(&world, &a).await;
    waiter.abort();
    world.pass(ms(1)).await;
    world.lag();
    let guard = world.granted(&a, "t1").await;
    world.fail_over(replica);
    world.store.heal();
    for _ in 0..40 {
        world.pass(ms(500)).await;
        assert!(is_held(&guard));
        assert_eq!(world.seen("t1").await.map(|seen| seen.token), Some(guard.token()));
    }
}

#[tokio::test]
async fn acquire_without_a_grant_continues_the_withdrawal() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let held = world.granted(&b, "t1").await;
    let waiter = wait(&a, "t1");
    world.until_waiting("t1", 1).await;
    world.store.always(Verb::ReleaseLeases, Some(Fault::LoseRequest));
    waiter.abort();
    world.pass(ms(1)).await;
    assert!(matches!(world.acquire(&a, "t1").await, Acquire::Held { .. }));
    world.store.heal();
    world.pass(secs(10)).await;
    assert_eq!(world.waiting("t1").await, 0, "long before the end of the wait");
    assert!(is_held(&held));
}
