//! A membership over a store with injected faults.

mod timeouts;

use std::sync::Mutex;

use tenure_core::clock::{Clock, ManualClock};
use tenure_core::membership::{Beat, BeatReply, Member};
use tenure_core::memory::MemoryStore;
use tenure_core::registry::{ClaimMode, ClaimOutcome};
use tenure_core::store::{Call, Store, StoreOptions};
use tokio::runtime::Handle;

use super::*;
use crate::client::{ClientSettings, Tenure};
use crate::group::GroupHandle;
use crate::testing::{Fault, Faulty, START, Verb, ms, pass, pass_until, secs, settle};

const TTL: Duration = secs(12);

/// One client over a store with injected faults, and another whose janitor keeps the store ticking.
struct World {
    clock: Arc<ManualClock>,
    memory: Arc<dyn Store>,
    store: Arc<Faulty>,
    group: GroupHandle,
    other: GroupHandle,
}

async fn world() -> World {
    world_with_seed(1).await
}

async fn world_with_seed(seed: u64) -> World {
    let clock = Arc::new(ManualClock::new(START, seed));
    let memory: Arc<dyn Store> = MemoryStore::new(StoreOptions::default(), clock.clone());
    let store = Faulty::new(Arc::clone(&memory), clock.clone());
    let client = |store: Arc<dyn Store>, sweeps: bool| {
        let mut settings = ClientSettings::default();
        settings.sweeper = settings.sweeper.filter(|_| sweeps);
        Tenure::on_store(store, clock.clone(), Handle::current(), &settings).unwrap()
    };
    let other = client(Arc::clone(&memory), true).group("g").unwrap();
    let group = client(store.clone(), false).group("g").unwrap();
    World {
        clock: Arc::clone(&clock),
        memory,
        store,
        group,
        other,
    }
}

fn named(member: &str) -> JoinOptions {
    JoinOptions {
        ttl: TTL,
        ..JoinOptions::named(member).unwrap()
    }
}

impl World {
    async fn join(&self) -> Membership {
        self.group.join(named("a")).await.unwrap()
    }

    async fn seen(&self, member: &str) -> Option<Member> {
        self.memory
            .member(self.group.name(), &MemberId::new(member).unwrap())
            .await
            .unwrap()
    }

    async fn pass(&self, time: Duration) {
        pass(&self.clock, time).await;
    }

    async fn until(&self, what: &str, condition: impl FnMut() -> bool) {
        pass_until(&self.clock, what, secs(60), condition).await;
    }
}

#[tokio::test]
async fn join_within_waits_for_an_unavailable_store() {
    let world = world().await;
    let away = Fault::Fail(ErrorKind::Unavailable);
    world.store.always(Verb::Join, Some(away.clone()));
    let error = world.group.join(named("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let joining = tokio::spawn({
        let group = world.group.clone();
        async move { group.join_within(named("a"), secs(60)).await }
    });
    world.pass(secs(30)).await;
    assert!(!joining.is_finished(), "it gave up");
    world.store.heal();
    world.until("it has joined", || joining.is_finished()).await;
    let membership = joining.await.unwrap().unwrap();
    assert_eq!(membership.verdict(), Verdict::Held);

    world.store.always(Verb::Join, Some(away));
    let joining = tokio::spawn({
        let group = world.group.clone();
        async move { group.join_within(named("b"), secs(60)).await }
    });
    world.pass(secs(62)).await;
    assert_eq!(joining.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    // A retry does not help here.
    world.store.always(Verb::Join, Some(Fault::Fail(ErrorKind::Denied)));
    let error = world.group.join_within(named("b"), secs(60)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
}

fn stopped(membership: &Membership) -> Option<EndReason> {
    match membership.status().phase {
        Phase::Stopped { reason } => Some(reason),
        _ => None,
    }
}

#[tokio::test]
async fn membership_stays_alive_while_it_exists() {
    let world = world().await;
    let membership = world.join().await;
    let tenure = membership.tenure();
    for _ in 0..20 {
        world.pass(TTL / 2).await;
        assert_eq!(membership.verdict(), Verdict::Held);
        assert!(
            world
                .seen("a")
                .await
                .is_some_and(|member| member.alive && member.tenure == tenure)
        );
    }
    let beats = world.store.calls(Verb::Beat);
    assert!(
        (29..=36).contains(&beats),
        "one beat per third of the ttl: {beats} in ten ttls"
    );
    assert_eq!(membership.leave().await.unwrap(), EndReason::Left);
    assert!(world.seen("a").await.is_none());
}

#[tokio::test]
async fn fails_closed_while_silent_and_rejoins_when_confirmed() {
    let world = world().await;
    let membership = world.join().await;
    world
        .until("the first beat", || world.store.calls(Verb::Beat) == 1)
        .await;
    let (tenure, lost, valid) = (membership.tenure(), membership.lost(), membership.valid_until());
    let sent_at = world.clock.mono();
    assert_eq!(
        valid,
        sent_at + (TTL - membership.timing().margin),
        "trust starts when the beat is sent"
    );
    world.store.cut(true);
    world.pass(valid.since(world.clock.mono()) - ms(1)).await;
    assert_eq!(membership.verdict(), Verdict::Held);
    world.pass(ms(1)).await;
    assert_eq!(membership.verdict(), Verdict::Uncertain);
    assert!(!lost.is_cancelled());
    world.pass((sent_at + TTL).since(world.clock.mono())).await;
    assert_eq!((membership.verdict(), lost.is_cancelled()), (Verdict::Lost, true));
    let status = membership.status();
    assert_eq!((status.verdict, status.phase), (Verdict::Lost, Phase::Beating));
    assert!(status.last_error.unwrap().contains("did not answer"));

    // The other client kept the store ticking, so the tenure lapsed; this client learns it from the store.
    world.store.cut(false);
    world
        .until("held again", || membership.verdict() == Verdict::Held)
        .await;
    assert_ne!(membership.tenure(), tenure);
    assert!(
        !membership.lost().is_cancelled(),
        "the new tenure has a token of its own"
    );
    assert_eq!(membership.status().rejoins, 1);
}

#[tokio::test]
async fn changed_labels_go_with_a_later_rejoin() {
    let world = world().await;
    let membership = world.join().await;
    let tenure = membership.tenure();
    let zone = |zone: &str| Labels::new([("zone".to_owned(), zone.to_owned())].into()).unwrap();
    membership.set_labels(zone("a")).await.unwrap();
    let seen = world.seen("a").await.unwrap();
    assert_eq!((seen.labels, seen.tenure), (zone("a"), tenure.clone()));
    // It lapses while the store is away; the labels of a call that failed go with the rejoin, too.
    for verb in [Verb::Beat, Verb::End] {
        world.store.always(verb, Some(Fault::Fail(ErrorKind::Unavailable)));
    }
    world.pass(TTL * 2).await;
    assert_eq!(
        membership.set_labels(zone("b")).await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    world.store.heal();
    world
        .until("it has rejoined", || membership.status().rejoins == 1)
        .await;
    let seen = world.seen("a").await.unwrap();
    assert_eq!((seen.labels, seen.tenure), (zone("b"), membership.tenure()));
    assert_ne!(membership.tenure(), tenure);
}

#[tokio::test]
async fn slow_answer_does_not_extend_trust() {
    let world = world().await;
    let membership = world.join().await;
    world.store.next(Verb::Beat, Fault::Delay(ms(400)));
    world
        .until("the first beat", || world.store.calls(Verb::Beat) == 1)
        .await;
    let sent_at = world.clock.mono();
    let before = membership.valid_until();
    world.until("its answer", || membership.valid_until() > before).await;
    assert_eq!(world.clock.mono(), sent_at + ms(400));
    assert_eq!(membership.valid_until(), sent_at + (TTL - membership.timing().margin));
}

#[tokio::test]
async fn store_outage_ends_no_tenure() {
    let world = world().await;
    let membership = world.join().await;
    world
        .until("the first beat", || world.store.calls(Verb::Beat) == 1)
        .await;
    let (tenure, lost) = (membership.tenure(), membership.lost());
    // No client reaches the store, because the other client and its janitor are gone.
    let World {
        clock,
        store,
        memory,
        group,
        other,
    } = world;
    drop(other);
    settle().await;
    store.cut(true);
    pass(&clock, TTL * 3).await;
    assert_eq!(membership.verdict(), Verdict::Lost);
    store.cut(false);
    pass_until(&clock, "held again", TTL, || membership.verdict() == Verdict::Held).await;
    assert_eq!(membership.tenure(), tenure, "the tenure is the same");
    assert!(lost.is_cancelled() && !membership.lost().is_cancelled());
    assert_eq!(membership.status().rejoins, 0);
    drop((memory, group));
}

#[tokio::test]
async fn beats_continue_after_any_error() {
    use tenure_core::error::ErrorKind as Kind;
    let kinds = [
        Kind::Invalid,
        Kind::Ended(EndReason::Superseded),
        Kind::Held,
        Kind::NotOwner,
        Kind::NotFound,
        Kind::Unsettled,
        Kind::TooLate,
        Kind::Unavailable,
        Kind::Denied,
        Kind::Misconfigured,
        Kind::Unsupported,
        Kind::Internal,
    ];
    let faults = kinds.into_iter().map(Fault::Fail).chain([
        Fault::LoseReply,
        Fault::LoseRequest,
        Fault::Hang { applied: true },
        Fault::Hang { applied: false },
        Fault::Delay(ms(400)),
        Fault::Panic,
    ]);
    for fault in faults {
        let world = world().await;
        let membership = world.join().await;
        let tenure = membership.tenure();
        world.store.next(Verb::Beat, fault.clone());
        world
            .until(&format!("the beat after {fault:?}"), || {
                world.store.calls(Verb::Beat) == 2
            })
            .await;
        world.pass(ms(1)).await;
        assert_eq!(
            (membership.verdict(), membership.tenure()),
            (Verdict::Held, tenure),
            "{fault:?}"
        );
        assert_eq!(membership.status().failed_in_a_row, 0, "{fault:?}");
        assert_eq!(membership.status().panics, u64::from(fault == Fault::Panic));
    }
}

#[tokio::test]
async fn failed_beats_are_retried_sooner_at_a_bounded_rate() {
    let world = world().await;
    let membership = world.join().await;
    world
        .store
        .always(Verb::Beat, Some(Fault::Fail(ErrorKind::Unavailable)));
    world
        .until("the first beat", || world.store.calls(Verb::Beat) == 1)
        .await;
    let first = world.clock.mono();
    world
        .until("the second beat", || world.store.calls(Verb::Beat) == 2)
        .await;
    let again = world.clock.mono().since(first);
    assert!(
        again >= ms(700) && again <= membership.timing().interval / 2,
        "{again:?}"
    );
    world.pass(secs(600)).await;
    let beats = world.store.calls(Verb::Beat);
    assert!((200..=420).contains(&beats), "{beats} tries in ten minutes");
}

#[tokio::test]
async fn superseded_or_expelled_member_stops_and_reports_it() {
    for expel in [false, true] {
        let world = world().await;
        let membership = world.join().await;
        let (tenure, lost) = (membership.tenure(), membership.lost());
        let reason = if expel {
            world.other.expel(&tenure).await.unwrap();
            EndReason::Expelled
        } else {
            let next = world.other.join(named("a")).await.unwrap();
            std::mem::forget(next);
            EndReason::Superseded
        };
        world.until("it stops", || stopped(&membership).is_some()).await;
        assert_eq!(stopped(&membership), Some(reason));
        assert_eq!((membership.verdict(), lost.is_cancelled()), (Verdict::Lost, true));
        assert_eq!(membership.ended().await.unwrap(), reason);
        assert_eq!(
            membership.leave().await.unwrap(),
            reason,
            "leaving afterwards ends no other tenure"
        );
        let joins = world.store.calls(Verb::Join);
        world.pass(secs(120)).await;
        assert_eq!(world.store.calls(Verb::Join), joins);
        assert_eq!(world.seen("a").await.is_some(), !expel, "the successor lives");
        let registry = membership.registry("r").unwrap();
        assert_eq!(registry.claim("k").await.unwrap_err().kind(), ErrorKind::Ended(reason));
    }
}

#[tokio::test]
async fn late_wakeup_does_not_compete_with_the_successor() {
    let world = world().await;
    let membership = world.join().await;
    world.store.cut(true);
    world.until("it lapsed", || membership.verdict() == Verdict::Lost).await;
    world.pass(secs(3)).await;
    assert!(world.seen("a").await.is_none());
    let successor = world.other.join(named("a")).await.unwrap();
    world.store.cut(false);
    world.until("it stops", || stopped(&membership).is_some()).await;
    assert_eq!(stopped(&membership), Some(EndReason::Superseded));
    world.pass(TTL * 3).await;
    assert_eq!(successor.verdict(), Verdict::Held);
    assert_eq!(successor.status().rejoins, 0);
}

#[tokio::test]
async fn failed_rejoin_does_not_compete_with_a_successor() {
    let world = world().await;
    let membership = world.join().await;
    world.store.cut(true);
    world.pass(TTL * 2).await;
    world.store.cut(false);
    world
        .store
        .always(Verb::Join, Some(Fault::Fail(ErrorKind::Unavailable)));
    let before = world.store.calls(Verb::Join);
    world
        .until("it tries to join", || world.store.calls(Verb::Join) > before)
        .await;
    let successor = world.other.join(named("a")).await.unwrap();
    world.store.always(Verb::Join, None);
    world.until("it stops", || stopped(&membership).is_some()).await;
    assert_eq!(
        (stopped(&membership), successor.verdict()),
        (Some(EndReason::Superseded), Verdict::Held)
    );
}

#[tokio::test]
async fn data_loss_leads_to_rejoin_and_reclaim() {
    let world = world().await;
    let membership = world.join().await;
    let registry = membership.registry("devices").unwrap();
    registry.claim_many(["d1", "d2", "d3"], ClaimMode::Take).await.unwrap();
    let tenure = membership.tenure();
    let empty = MemoryStore::new(StoreOptions::default(), world.clock.clone());
    world.store.swap(empty.clone());
    world.until("it joined again", || membership.tenure() != tenure).await;
    world.pass(ms(100)).await;
    for key in ["d1", "d2", "d3"] {
        let claim = registry.look_up(key).await.unwrap().unwrap();
        assert!(claim.alive && claim.tenure == membership.tenure(), "{claim:?}");
    }
    assert_eq!(membership.status().rejoins, 1);
}

#[tokio::test]
async fn data_loss_does_not_reclaim_keys_of_others() {
    let world = world().await;
    let membership = world.join().await;
    let registry = membership.registry("devices").unwrap();
    let keys: Vec<String> = (0..1_500).map(|n| format!("d{n}")).collect();
    registry.claim_many(&keys, ClaimMode::Take).await.unwrap();
    let rival = world.other.join(named("b")).await.unwrap();
    rival.registry("devices").unwrap().claim("d7").await.unwrap();
    // The review runs once a minute.
    world.pass(secs(80)).await;
    assert_eq!(registry.remembered(), 1_499);
    let lost = registry.lost_claims().await;
    assert_eq!(
        (lost.len(), lost[0].key.as_str(), &lost[0].to),
        (1, "d7", &rival.tenure())
    );
    let tenure = membership.tenure();
    let empty = MemoryStore::new(StoreOptions::default(), world.clock.clone());
    world.store.swap(empty.clone());
    world.until("it joined again", || membership.tenure() != tenure).await;
    world.pass(ms(100)).await;
    assert_eq!(registry.look_up("d7").await.unwrap(), None);
    assert_eq!(
        registry.look_up("d8").await.unwrap().unwrap().tenure,
        membership.tenure()
    );
}

#[tokio::test]
async fn panicking_claim_review_is_retried() {
    let world = world().await;
    let membership = world.join().await;
    let registry = membership.registry("devices").unwrap();
    registry.claim("d7").await.unwrap();
    let rival = world.other.join(named("b")).await.unwrap();
    rival.registry("devices").unwrap().claim("d7").await.unwrap();
    world.store.next(Verb::Look, Fault::Panic);
    world.pass(secs(80)).await;
    assert_eq!(registry.remembered(), 0);
}

#[tokio::test]
async fn lapse_reclaims_free_keys_and_reports_lost_ones() {
    let world = world().await;
    let membership = world.join().await;
    let registry = membership.registry("devices").unwrap();
    registry
        .claim_many(["kept", "moved", "released"], ClaimMode::Take)
        .await
        .unwrap();
    registry.release("released").await.unwrap();
    world.store.cut(true);
    world.pass(TTL * 2).await;
    let rival = world.other.join(named("b")).await.unwrap();
    rival.registry("devices").unwrap().claim("moved").await.unwrap();
    world.store.cut(false);
    let lost = Arc::new(Mutex::new(Vec::new()));
    let (told, watched) = (Arc::clone(&lost), registry.clone());
    tokio::spawn(async move { *told.lock().unwrap() = watched.lost_claims().await });
    world
        .until("the loss is reported", || !lost.lock().unwrap().is_empty())
        .await;
    let lost = lost.lock().unwrap().clone();
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].key.as_str(), &lost[0].to), ("moved", &rival.tenure()));
    assert_eq!(
        registry.look_up("kept").await.unwrap().unwrap().tenure,
        membership.tenure()
    );
    assert_eq!(registry.look_up("moved").await.unwrap().unwrap().tenure, rival.tenure());
    assert_eq!(registry.look_up("released").await.unwrap(), None);
    assert_eq!(registry.remembered(), 1);
}

#[tokio::test]
async fn reclaim_survives_store_failures() {
    let world = world().await;
    let membership = world.join().await;
    let registry = membership.registry("devices").unwrap();
    let keys: Vec<String> = (0..2_500).map(|n| format!("d{n}")).collect();
    registry.claim_many(&keys, ClaimMode::Take).await.unwrap();
    world.store.cut(true);
    world.pass(TTL * 2).await;
    for fault in [
        Fault::LoseReply,
        Fault::Fail(ErrorKind::Unavailable),
        Fault::Hang { applied: true },
        Fault::Panic,
    ] {
        world.store.next(Verb::Claim, fault);
    }
    world.store.cut(false);
    let before = world.store.calls(Verb::Claim);
    world
        .until("all is claimed again", || {
            world.store.calls(Verb::Claim) >= before + 4 + 3
        })
        .await;
    world.pass(ms(100)).await;
    for key in ["d0", "d999", "d1000", "d2499"] {
        assert_eq!(
            registry.look_up(key).await.unwrap().unwrap().tenure,
            membership.tenure(),
            "{key}"
        );
    }
}

#[tokio::test]
async fn join_with_lost_reply_leaves_no_ghost() {
    let world = world().await;
    world.store.next(Verb::Join, Fault::LoseReply);
    world.store.next(Verb::Join, Fault::Hang { applied: true });
    let (group, done) = (world.group.clone(), Arc::new(Mutex::new(None)));
    let told = Arc::clone(&done);
    tokio::spawn(async move { *told.lock().unwrap() = Some(group.join(named("a")).await) });
    world.until("it joined", || done.lock().unwrap().is_some()).await;
    let membership = done.lock().unwrap().take().unwrap().unwrap();
    assert_eq!(world.store.calls(Verb::Join), 3);
    assert_eq!(world.seen("a").await.unwrap().tenure, membership.tenure());
    // An error that certainly changed nothing is returned immediately.
    world.store.next(Verb::Join, Fault::Fail(ErrorKind::Unavailable));
    assert_eq!(
        world.group.join(named("b")).await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
}

#[tokio::test]
async fn rejoin_continues_through_errors_and_lost_replies() {
    for seed in 0..10 {
        let world = world_with_seed(seed).await;
        let membership = world.join().await;
        world.store.cut(true);
        world.pass(TTL * 2).await;
        use Fault::*;
        for fault in [
            LoseReply,
            Fail(ErrorKind::Internal),
            Hang { applied: true },
            LoseRequest,
            Fail(ErrorKind::TooLate),
        ] {
            world.store.next(Verb::Join, fault);
        }
        world.store.next(Verb::Look, Fail(ErrorKind::Unavailable));
        world.store.cut(false);
        world
            .until("held again", || membership.verdict() == Verdict::Held)
            .await;
        assert_eq!(world.seen("a").await.unwrap().tenure, membership.tenure());
        world.pass(TTL * 2).await;
        assert_eq!((membership.verdict(), membership.status().rejoins), (Verdict::Held, 1));
    }
}

#[tokio::test]
async fn leave_ends_locally_first_and_survives_lost_replies() {
    let world = world().await;
    let membership = Arc::new(world.join().await);
    let lost = membership.lost();
    world.store.next(Verb::End, Fault::LoseReply);
    world.store.next(Verb::End, Fault::Gate);
    let leaving = tokio::spawn({
        let membership = Arc::clone(&membership);
        async move { membership.leave().await }
    });
    world
        .until("the second try", || world.store.calls(Verb::End) == 2)
        .await;
    assert_eq!((membership.verdict(), lost.is_cancelled()), (Verdict::Lost, true));
    world.store.open();
    // The first attempt was applied: its reason is recorded.
    assert_eq!(leaving.await.unwrap().unwrap(), EndReason::Left);
    assert_eq!(stopped(&membership), Some(EndReason::Left));
    assert!(world.seen("a").await.is_none());
}

#[tokio::test]
async fn leave_fails_in_bounded_time_when_unreachable() {
    let world = world().await;
    let membership = Arc::new(world.join().await);
    world.store.cut(true);
    let leaving = tokio::spawn({
        let membership = Arc::clone(&membership);
        async move { membership.leave().await }
    });
    world.until("it gave up", || leaving.is_finished()).await;
    assert_eq!(leaving.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(world.clock.mono().since_origin() < secs(5));
    assert_eq!(membership.verdict(), Verdict::Lost);
}

#[tokio::test]
async fn drop_leaves_without_waiting() {
    let world = world().await;
    drop(world.join().await);
    settle().await;
    assert!(world.seen("a").await.is_none());
}

#[tokio::test]
async fn beats_stop_without_progress() {
    let world = world().await;
    let options = JoinOptions {
        progress_within: Some(secs(5)),
        ..named("a")
    };
    let membership = world.group.join(options).await.unwrap();
    for _ in 0..30 {
        world.pass(secs(2)).await;
        membership.progress();
    }
    assert_eq!(
        (membership.verdict(), membership.status().phase),
        (Verdict::Held, Phase::Beating)
    );
    let tenure = membership.tenure();
    world
        .until("it pauses", || membership.status().phase == Phase::Paused)
        .await;
    settle().await;
    assert_eq!(membership.verdict(), Verdict::Lost);
    assert!(
        world.seen("a").await.is_none(),
        "other clients see that it does not work, without waiting for its ttl"
    );
    let ended = world.memory.beat(world.group.name(), &[Beat::of(tenure.clone())]).await;
    assert_eq!(ended.unwrap().replies, [BeatReply::Ended(EndReason::NoProgress)]);
    world.pass(TTL * 2).await;
    assert_eq!(
        (membership.status().phase, membership.status().rejoins),
        (Phase::Paused, 0)
    );
    assert!(world.seen("a").await.is_none());
    membership.progress();
    world
        .until("held again", || membership.verdict() == Verdict::Held)
        .await;
    assert_ne!(membership.tenure(), tenure);
}

#[tokio::test]
async fn a_stall_is_reported_once_the_store_answers() {
    let world = world().await;
    let options = JoinOptions {
        progress_within: Some(secs(5)),
        ..named("a")
    };
    let membership = world.group.join(options).await.unwrap();
    world.store.always(Verb::End, Some(Fault::Fail(ErrorKind::Unavailable)));
    world
        .until("it pauses", || membership.status().phase == Phase::Paused)
        .await;
    world.pass(secs(2)).await;
    assert!(world.seen("a").await.is_some(), "its tenure stands");
    world.store.heal();
    world
        .until("the tenure is lost", || membership.verdict() == Verdict::Lost)
        .await;
    assert_eq!(membership.leave().await.unwrap(), EndReason::NoProgress);
}

#[tokio::test]
async fn leaving_without_progress_names_the_reason() {
    let world = world().await;
    for stopped in [false, true] {
        let membership = world.join().await;
        assert!(matches!(
            membership.leases().acquire("poll").await.unwrap(),
            crate::lease::Acquire::Granted(_)
        ));
        let reason = membership.leave_without_progress(stopped).await.unwrap();
        assert_eq!(reason, EndReason::NoProgress);
        assert_eq!(membership.leave().await.unwrap(), EndReason::NoProgress, "idempotent");
        let other = world.other.join(named("b")).await.unwrap();
        let granted = other.leases().acquire("poll").await.unwrap().granted();
        assert_eq!(
            granted.is_some(),
            stopped,
            "only a process that has ended frees it at once"
        );
        other.leave().await.unwrap();
        world.pass(TTL).await;
    }
}

#[tokio::test]
async fn process_pause_is_uncertain_until_confirmed() {
    let world = world().await;
    let membership = world.join().await;
    world
        .until("the first beat", || world.store.calls(Verb::Beat) == 1)
        .await;
    world.store.always(Verb::Beat, Some(Fault::Gate));
    // The process was paused for longer than the margin, and shorter than the ttl.
    world
        .clock
        .advance(membership.timing().interval + membership.timing().margin + ms(10));
    settle().await;
    assert_eq!(membership.verdict(), Verdict::Uncertain);
    assert_eq!((membership.status().pauses, world.store.calls(Verb::Beat)), (1, 2));
    world.store.open();
    settle().await;
    assert_eq!(membership.verdict(), Verdict::Held);
}

#[tokio::test]
async fn answer_from_before_a_pause_does_not_confirm() {
    let world = world().await;
    let membership = world.join().await;
    world.store.always(Verb::Beat, Some(Fault::Gate));
    world
        .until("the first beat", || world.store.calls(Verb::Beat) == 1)
        .await;
    // The answer to the first beat arrives at the moment of waking.
    world.store.open();
    world
        .clock
        .advance(membership.timing().margin * 2 + membership.timing().interval);
    settle().await;
    assert_eq!(membership.verdict(), Verdict::Uncertain);
    world.store.open();
    settle().await;
    assert_eq!(membership.verdict(), Verdict::Held);
}

#[tokio::test]
async fn invalid_timing_is_rejected() {
    let world = world().await;
    for (options, must_say) in [
        (
            JoinOptions {
                ttl: ms(500),
                ..named("a")
            },
            "500ms",
        ),
        (
            JoinOptions {
                ttl: secs(500),
                ..named("a")
            },
            "max_ttl",
        ),
        (
            JoinOptions {
                interval: Some(secs(6)),
                ..named("a")
            },
            "2 x 6s",
        ),
        (
            JoinOptions {
                request_timeout: Some(secs(6)),
                ..named("a")
            },
            "request timeout (6s)",
        ),
        (
            JoinOptions {
                progress_within: Some(Duration::ZERO),
                ..named("a")
            },
            "progress_within",
        ),
    ] {
        let error = world.group.join(options).await.unwrap_err();
        assert!(error.to_string().contains(must_say), "{error}");
    }
    assert_eq!(world.store.calls(Verb::Join), 0);
}

#[tokio::test]
async fn claim_with_lost_reply_is_read_back() {
    let world = world().await;
    let membership = world.join().await;
    let registry = membership.registry("r").unwrap();
    world.store.next(Verb::Claim, Fault::LoseReply);
    assert_eq!(registry.claim("k").await.unwrap(), ClaimOutcome::Kept);
    assert_eq!(registry.remembered(), 1);
    let rival = world.other.join(named("b")).await.unwrap().registry("r").unwrap();
    assert!(matches!(
        rival.claim_if_absent("k").await.unwrap(),
        ClaimOutcome::Held { .. }
    ));
    assert!(matches!(rival.claim("k").await.unwrap(), ClaimOutcome::Moved { .. }));
    assert_eq!(registry.release("k").await.unwrap_err().kind(), ErrorKind::NotOwner);
    assert_eq!(registry.remembered(), 0, "a key of another owner is not reclaimed");
}

#[tokio::test]
async fn claim_that_did_not_arrive_is_made_again_if_free() {
    let world = world().await;
    let registry = world.join().await.registry("r").unwrap();
    world.store.next(Verb::Claim, Fault::LoseRequest);
    assert_eq!(registry.claim("k").await.unwrap(), ClaimOutcome::New);
    for _ in 0..2 {
        world.store.next(Verb::Claim, Fault::LoseRequest);
    }
    assert_eq!(registry.claim("other").await.unwrap_err().outcome(), Outcome::Unknown);
    let rival = world.other.join(named("b")).await.unwrap().registry("r").unwrap();
    rival.claim("taken").await.unwrap();
    world.store.next(Verb::Claim, Fault::LoseRequest);
    // It may have been ours for a moment, and have moved on.
    assert_eq!(registry.claim("taken").await.unwrap_err().outcome(), Outcome::Unknown);
    let owner = registry.look_up("taken").await.unwrap().unwrap().owner;
    assert_eq!(owner.as_str(), "b");
    assert_eq!(registry.remembered(), 1);
}

#[tokio::test]
async fn lapse_is_final_without_rejoin() {
    let world = world().await;
    let options = JoinOptions {
        rejoin: false,
        ..named("a")
    };
    let membership = world.group.join(options).await.unwrap();
    world.store.always(Verb::Beat, Some(Fault::LoseRequest));
    world.pass(TTL * 2).await;
    world.store.heal();
    world.until("it stopped", || stopped(&membership).is_some()).await;
    assert_eq!(stopped(&membership), Some(EndReason::Lapsed));
    assert_eq!(membership.status().last_end, Some(EndReason::Lapsed));
    assert_eq!(membership.leave().await.unwrap(), EndReason::Lapsed);
    assert_eq!(world.store.calls(Verb::Join), 1);
}

#[tokio::test]
async fn act_on_an_ended_tenure_wakes_the_beat_loop() {
    let world = world().await;
    let membership = world.join().await;
    world.pass(ms(100)).await;
    world
        .memory
        .end(world.group.name(), &membership.tenure(), EndBy::Expel, Call::default())
        .await
        .unwrap();
    let registry = membership.registry("r").unwrap();
    assert_eq!(
        registry.claim("k").await.unwrap_err().kind(),
        ErrorKind::Ended(EndReason::Expelled)
    );
    world.pass(ms(50)).await;
    assert_eq!(stopped(&membership), Some(EndReason::Expelled));
}
