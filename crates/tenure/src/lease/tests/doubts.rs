//! The store's state of our holdings differs from ours.

use std::collections::BTreeMap;

use tenure_core::clock::Mono;
use tenure_core::error::ErrorKind;
use tenure_core::id::{Group, TenureId, Term};
use tenure_core::lease::ReleaseOutcome;
use tenure_core::membership::Revision;
use tenure_core::registry::ClaimMode;
use tenure_core::store::Call;

use super::*;
use crate::lease::revision::{ActResult, RevisionCheck};
use crate::lease::table::LeaseTable;
use crate::testing::{Fault, Telemetry, Verb, ms};

impl World {
    /// From now on each write also goes to a replica.
    pub(super) fn replicate(&mut self) -> Arc<dyn Store> {
        let replica: Arc<dyn Store> = MemoryStore::new(StoreOptions::default(), self.clock.clone());
        self.replicated = Some(served(&replica, &self.clock));
        for store in [&self.store, &self.other_store] {
            store.replicate(Some(Arc::clone(&replica)));
        }
        replica
    }

    /// The replica receives no further writes.
    pub(super) fn lag(&mut self) {
        self.replicated = None;
        self.store.replicate(None);
        self.other_store.replicate(None);
    }

    /// The primary dies with the writes that the replica lacks.
    pub(super) fn fail_over(&mut self, replica: Arc<dyn Store>) {
        for store in [&self.store, &self.other_store] {
            store.swap(Arc::clone(&replica));
        }
        self.replicated = None;
        self.beats = Some(served(&replica, &self.clock));
        self.memory = replica;
    }
}

#[tokio::test]
async fn lease_released_by_another_process_is_lost_within_a_beat() {
    let world = world().await;
    let a = world.join().await;
    let guards = [world.granted(&a, "t1").await, world.granted(&a, "t2").await];
    world.until("a beat", || world.store.calls(Verb::Beat) == 1).await;
    world.pass(ms(1)).await;
    let given_up = [(lease("t1"), guards[0].token())];
    let (group, call) = (world.group.name(), Call::default());
    world
        .memory
        .release_leases(group, guards[0].tenure(), &given_up, None, call)
        .await
        .unwrap();
    world.store.always(Verb::Look, Some(Fault::Gate));
    world.until("a beat", || world.store.calls(Verb::Beat) == 2).await;
    settle().await;
    let verdicts = || guards.each_ref().map(LeaseGuard::verdict);
    assert_eq!(
        verdicts(),
        [Verdict::Uncertain; 2],
        "one of them is no longer ours; which one is unknown"
    );
    assert_eq!(guards[1].valid_until(), tenure_core::clock::Mono::default());
    world.store.open();
    settle().await;
    assert_eq!(verdicts(), [Verdict::Lost, Verdict::Held]);
    assert_eq!(a.verdict(), Verdict::Held);
    let (reads, beats) = (world.store.calls(Verb::Look), world.store.calls(Verb::Beat));
    world.pass(TTL * 3).await;
    assert!(world.store.calls(Verb::Beat) > beats + 5);
    assert_eq!(world.store.calls(Verb::Look), reads, "no repeated reads");
}

#[tokio::test]
async fn unknown_lease_at_the_store_is_released() {
    let world = world().await;
    let (a, b) = (world.join().await, world.rival().await);
    let known = world.granted(&a, "t1").await;
    world.pass(TTL / 2).await;
    let unknown = [lease("t2"), lease("t3")];
    let (group, call) = (world.group.name(), Call::default());
    world.memory.acquire(group, &a.tenure(), &unknown, call).await.unwrap();
    assert!(world.seen("t2").await.is_some());
    world.pass(a.timing().interval + ms(10)).await;
    assert!(is_held(&known));
    for name in ["t2", "t3"] {
        assert!(world.seen(name).await.is_none(), "{name}");
        assert!(is_held(&world.granted(&b, name).await));
    }
}

#[test]
fn doubtful_answer_puts_no_other_act_in_doubt() {
    let table = LeaseTable::new(Group::new("g").unwrap());
    let now = Mono::default();
    assert_eq!(table.act(1, now).answered(Revision::NONE, Revision(5)), ActResult::Fine);
    let first = table.act(1, now);
    assert_eq!(table.compare(table.sent(), Revision(3), now), RevisionCheck::TailLost);
    let (reading, second) = (table.start_reading(now), table.act(1, now));
    assert_eq!(
        first.answered(Revision(5), Revision(6)),
        ActResult::Doubted,
        "it may be among the lost writes"
    );
    assert_eq!(
        second.answered(Revision(3), Revision(7)),
        ActResult::Fine,
        "it began after the loss was known"
    );
    let tenure = TenureId::new(member("m"), Term::new(1).unwrap());
    table.settle(&tenure, reading, BTreeMap::new(), Revision(3));
    assert!(table.is_doubted(), "the read began before the doubtful answer");
    let reading = table.start_reading(now);
    table.settle(&tenure, reading, BTreeMap::new(), Revision(7));
    assert!(!table.is_doubted());
}

#[tokio::test]
async fn failed_reread_keeps_leases_uncertain_and_is_retried() {
    let world = world().await;
    let a = world.join().await;
    let guard = world.granted(&a, "t1").await;
    world.pass(TTL).await;
    let (group, call) = (world.group.name(), Call::default());
    world
        .memory
        .acquire(group, &a.tenure(), &[lease("t2")], call)
        .await
        .unwrap();
    world
        .store
        .always(Verb::Look, Some(Fault::Fail(ErrorKind::Unavailable)));
    world.until("doubt", || guard.verdict() == Verdict::Uncertain).await;
    let before = world.store.calls(Verb::Look);
    world.pass(TTL * 3).await;
    let tries = world.store.calls(Verb::Look) - before;
    assert!((8..=60).contains(&tries), "{tries} tries in three ttls");
    assert_eq!((guard.verdict(), a.verdict()), (Verdict::Uncertain, Verdict::Held));
    world.store.always(Verb::Look, None);
    for fault in [Fault::LoseReply, Fault::Panic, Fault::Hang { applied: true }] {
        world.store.next(Verb::Look, fault);
    }
    let healed_at = world.clock.mono();
    assert_eq!(world.run(guard.decided()).await, Verdict::Held);
    let took = world.clock.mono().since(healed_at);
    assert!(took < secs(8), "retried independently of the next beat: {took:?}");
    world.pass(ms(10)).await;
    assert!(world.seen("t2").await.is_none());
}

#[tokio::test]
async fn grant_lost_in_failover_loses_only_its_guard() {
    let mut world = world().await;
    let replica = world.replicate();
    let a = world.join().await;
    let kept = world.granted(&a, "kept").await;
    world.pass(TTL).await;
    world.lag();
    let lost = world.granted(&a, "lost").await;
    let tenure = a.tenure();
    world.fail_over(replica);
    let beats = world.store.calls(Verb::Beat);
    world
        .until("a beat", || world.store.calls(Verb::Beat) > beats + 1)
        .await;
    world.pass(ms(10)).await;
    assert_eq!((kept.verdict(), lost.verdict()), (Verdict::Held, Verdict::Lost));
    assert_eq!((a.tenure(), a.status().rejoins), (tenure, 0));
    // It is not granted until every possible earlier holder must have stopped.
    let b = world.rival().await;
    assert!(matches!(world.acquire(&b, "lost").await, Acquire::Unsettled { .. }));
    assert!(world.win(&b, "lost").await.token() > lost.token());
}

#[tokio::test]
async fn release_lost_in_failover_is_repeated() {
    let mut world = world().await;
    let replica = world.replicate();
    let a = world.join().await;
    let (gone, kept) = (world.granted(&a, "gone").await, world.granted(&a, "kept").await);
    world.pass(TTL).await;
    world.lag();
    assert_eq!(world.run(gone.release()).await.unwrap(), ReleaseOutcome::Released);
    world.fail_over(replica);
    assert!(world.seen("gone").await.is_some(), "the release is lost");
    world.pass(a.timing().interval + ms(10)).await;
    assert!(world.seen("gone").await.is_none());
    assert!(is_held(&kept));
}

#[tokio::test]
async fn restored_older_grant_is_released_and_granted_again() {
    let mut world = world().await;
    let replica = world.replicate();
    let (a, b) = (world.join().await, world.rival().await);
    let first = world.granted(&a, "t1").await;
    let (other, older) = (world.granted(&a, "t2").await, first.token());
    world.pass(TTL).await;
    world.lag();
    world.run(first.release()).await.unwrap();
    let newest = world.granted(&b, "t1").await;
    assert!(newest.token() > older);
    world.pass(ms(1)).await;
    world.fail_over(replica);
    assert_eq!(world.seen("t1").await.unwrap().token, older, "the store lost both");
    // The acquire names what it has seen, so the store knows of the loss, and grants nothing for a ttl.
    assert!(matches!(world.acquire(&a, "t1").await, Acquire::Unsettled { .. }));
    assert!(world.seen("t1").await.is_none());
    let again = world.win(&a, "t1").await;
    assert!(again.token() > newest.token(), "a sink has seen {}", newest.token());
    assert!(is_held(&other) && is_held(&again));
    assert_eq!(world.seen("t1").await.unwrap().token, again.token());
    // If other processes act under the tenure, the older grant may be theirs.
    let shared = JoinOptions {
        others_act: true,
        ..named("c")
    };
    let c = world.group.join(shared).await.unwrap();
    let (group, call) = (world.group.name(), Call::default());
    world
        .memory
        .acquire(group, &c.tenure(), &[lease("t3")], call)
        .await
        .unwrap();
    let theirs = world.seen("t3").await.unwrap().token;
    world.pass(TTL).await;
    assert_eq!(world.granted(&c, "t3").await.token(), theirs);
}

#[tokio::test]
async fn loss_before_an_unanswered_act_is_found_in_two_beats() {
    let mut world = world().await;
    let replica = world.replicate();
    let a = world.join().await;
    world.pass(TTL).await;
    world.lag();
    let lost = world.granted(&a, "lost").await;
    world.pass(ms(1)).await;
    world.fail_over(replica);
    // Its revision hides the loss from the beats. Its answer or a re-read would show the loss.
    world.store.next(Verb::Claim, Fault::Hang { applied: true });
    world.store.always(Verb::Look, Some(Fault::Hang { applied: false }));
    let devices = a.registry("devices").unwrap();
    let claiming = tokio::spawn(async move { devices.claim("later").await });
    world.pass(ms(10)).await;
    assert!(is_held(&lost));
    world.pass(a.timing().interval * 2).await;
    assert_eq!(lost.verdict(), Verdict::Uncertain);
    claiming.abort();
    world.store.always(Verb::Look, None);
    world.until("it is re-read", || lost.verdict() == Verdict::Lost).await;
}

#[tokio::test]
async fn loss_hidden_by_a_later_act_is_found() {
    let mut world = world().await;
    let replica = world.replicate();
    let a = world.join().await;
    world.pass(TTL).await;
    world.lag();
    let lost = world.granted(&a, "lost").await;
    let devices = a.registry("devices").unwrap();
    devices.claim("lost").await.unwrap();
    world.fail_over(replica);
    // Its revision is higher than that of the lost grant, and known to the store.
    devices.claim("later").await.unwrap();
    world.pass(a.timing().interval + ms(10)).await;
    assert_eq!(lost.verdict(), Verdict::Lost);
    // If a grant is lost, claims may be lost as well.
    assert_eq!(devices.look_up("lost").await.unwrap().unwrap().tenure, a.tenure());
}

#[tokio::test]
async fn change_by_others_hides_no_loss_of_claims() {
    let mut world = world().await;
    let replica = world.replicate();
    let a = world.join().await;
    let kept = world.granted(&a, "kept").await;
    world.pass(TTL).await;
    world.lag();
    let devices = a.registry("devices").unwrap();
    devices.claim("lost").await.unwrap();
    world.pass(ms(1)).await;
    world.fail_over(replica);
    // The revision before the next act is higher than that of the lost claim.
    let (tenure, theirs, call) = (a.tenure(), [lease("t9")], Call::default());
    let others = world.memory.acquire(world.group.name(), &tenure, &theirs, call);
    others.await.unwrap();
    let beats = world.store.calls(Verb::Beat);
    devices.claim("later").await.unwrap();
    world.pass(ms(50)).await;
    assert_eq!(world.store.calls(Verb::Beat), beats, "found without a beat");
    let claim = devices.look_up("lost").await.unwrap();
    assert_eq!(claim.map(|claim| claim.tenure), Some(a.tenure()));
    assert!(is_held(&kept));
}

#[tokio::test]
async fn act_shows_lost_writes_by_its_previous_revision() {
    let telemetry = Telemetry::default();
    let _listening = telemetry.listen();
    let mut world = world().await;
    let replica = world.replicate();
    let a = world.join().await;
    let devices = a.registry("devices").unwrap();
    devices.claim("early").await.unwrap();
    world.pass(TTL).await;
    world.lag();
    devices.claim("lost").await.unwrap();
    world.fail_over(replica);
    let beats = world.store.calls(Verb::Beat);
    devices.claim("later").await.unwrap();
    world.pass(ms(50)).await;
    assert_eq!(world.store.calls(Verb::Beat), beats, "found without a beat");
    for key in ["early", "lost", "later"] {
        assert_eq!(devices.look_up(key).await.unwrap().unwrap().tenure, a.tenure(), "{key}");
    }
    world.pass(TTL).await;
    assert_eq!(telemetry.lines("lost its latest writes"), 1, "logged once");
}

#[tokio::test]
async fn claims_lost_in_failover_are_reclaimed_within_a_beat() {
    let telemetry = Telemetry::default();
    let _listening = telemetry.listen();
    let mut world = world().await;
    let replica = world.replicate();
    let (a, b) = (world.join().await, world.rival().await);
    let devices = a.registry("devices").unwrap();
    devices.claim_many(["d1", "d2"], ClaimMode::Take).await.unwrap();
    world.pass(TTL).await;
    world.lag();
    devices.claim_many(["d3", "d4", "d5"], ClaimMode::Take).await.unwrap();
    a.registry("others").unwrap().claim("o1").await.unwrap();
    world.fail_over(replica);
    // Another member may claim first.
    b.registry("devices").unwrap().claim("d5").await.unwrap();
    assert!(devices.look_up("d3").await.unwrap().is_none());
    world.pass(a.timing().interval + ms(10)).await;
    for key in ["d1", "d2", "d3", "d4"] {
        let claim = devices.look_up(key).await.unwrap().unwrap();
        assert!(claim.alive && claim.tenure == a.tenure(), "{key}: {claim:?}");
    }
    let others = a.registry("others").unwrap();
    assert_eq!(others.look_up("o1").await.unwrap().unwrap().tenure, a.tenure());
    assert_eq!(devices.look_up("d5").await.unwrap().unwrap().tenure, b.tenure());
    let lost = world.run(devices.lost_claims()).await;
    assert_eq!((lost.len(), lost[0].key.as_str(), &lost[0].to), (1, "d5", &b.tenure()));
    assert_eq!((devices.remembered(), a.status().rejoins), (4, 0));
    // Claimed only once.
    let claims = world.store.calls(Verb::Claim);
    world.pass(TTL * 2).await;
    assert_eq!(world.store.calls(Verb::Claim), claims);
    assert_eq!(telemetry.lines("lost its latest writes"), 1);
}

#[tokio::test]
async fn claim_with_lost_reply_survives_lost_writes() {
    let mut world = world().await;
    let replica = world.replicate();
    let a = world.join().await;
    let devices = a.registry("devices").unwrap();
    world.pass(TTL).await;
    world.lag();
    // No reply contained its revision, so no beat can show the loss.
    world.store.next(Verb::Claim, Fault::LoseReply);
    devices.claim("d1").await.unwrap();
    world.fail_over(replica);
    world.pass(a.timing().interval + ms(10)).await;
    assert_eq!(
        devices.look_up("d1").await.unwrap().map(|claim| claim.tenure),
        Some(a.tenure())
    );
}

#[tokio::test]
async fn busy_registry_causes_no_doubt() {
    let telemetry = Telemetry::default();
    let _listening = telemetry.listen();
    let world = world().await;
    let a = world.join().await;
    let guard = world.granted(&a, "t1").await;
    let devices = a.registry("devices").unwrap();
    for n in 0..2_000 {
        world.run(devices.claim(&format!("d{n}"))).await.unwrap();
        world.pass(ms(10)).await;
        assert!(is_held(&guard));
    }
    assert_eq!(
        telemetry.lines("newer than any reply") + telemetry.lines("lost its latest writes"),
        0
    );
}
