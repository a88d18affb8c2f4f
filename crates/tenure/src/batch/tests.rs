//! Batches of beats: when they are sent, and what each caller is answered.

use tenure_core::clock::ManualClock;
use tenure_core::error::{ErrorKind, Outcome};
use tenure_core::id::{LeaseName, MemberId, TenureId};
use tenure_core::lease::LeaseStore;
use tenure_core::membership::{Join, Labels, MembershipStore, Revision};
use tenure_core::memory::MemoryStore;
use tenure_core::store::{Call, StoreOptions};
use tenure_core::sweep::Sweep;
use tokio::task::JoinHandle;

use super::*;
use crate::testing::{Fault, Faulty, START, Verb, ms, pass, secs, settle};

struct World {
    clock: Arc<ManualClock>,
    store: Arc<Faulty>,
    batcher: BeatBatcher,
    group: Group,
    tenures: Vec<TenureId>,
}

async fn world(members: usize, settings: BatchSettings) -> World {
    let clock = Arc::new(ManualClock::new(START, 1));
    let memory = MemoryStore::new(StoreOptions::default(), clock.clone());
    let store = Faulty::new(memory, clock.clone());
    let batcher = BeatBatcher::new(store.clone(), clock.clone(), Handle::current(), settings);
    let group = Group::new("g").unwrap();
    let mut tenures = Vec::new();
    for n in 0..members {
        let member = MemberId::new(format!("m{n}")).unwrap();
        let join = Join {
            member,
            ttl: secs(30),
            labels: Labels::default(),
        };
        tenures.push(store.join(&group, &join, Call::default()).await.unwrap().tenure);
    }
    World {
        clock,
        store,
        batcher,
        group,
        tenures,
    }
}

impl World {
    fn ask(&self, n: usize, ttl: Option<Duration>) -> JoinHandle<Result<BeatOutcome>> {
        let (batcher, group, tenure) = (self.batcher.clone(), self.group.clone(), self.tenures[n].clone());
        tokio::spawn(async move {
            batcher
                .beat(
                    &group,
                    Beat {
                        tenure,
                        ttl,
                        revision: tenure_core::membership::Revision::NONE,
                        seen: tenure_core::membership::Revision::NONE,
                    },
                )
                .await
        })
    }
}

fn renewed(outcome: Result<BeatOutcome>) -> bool {
    matches!(outcome.unwrap().reply, BeatReply::Renewed { .. })
}

#[tokio::test]
async fn idle_batcher_sends_immediately() {
    let world = world(2, BatchSettings::default()).await;
    assert!(renewed(world.ask(0, None).await.unwrap()));
    assert!(renewed(world.ask(1, None).await.unwrap()));
    assert_eq!(world.store.beat_batches(), [1, 1]);
}

#[tokio::test]
async fn beats_to_a_store_in_this_process_share_no_batch() {
    let world = world(4, BatchSettings::default()).await;
    assert!(renewed(world.ask(0, None).await.unwrap()));
    // Beats that wait for the disk, and are refused in the end, delay and fail no others.
    world.store.next(Verb::Beat, Fault::Gate);
    world.store.next(Verb::Beat, Fault::Gate);
    let waiting = [world.ask(0, None), world.ask(1, None)];
    settle().await;
    for n in [2, 3] {
        let asked = world.ask(n, None);
        settle().await;
        assert!(asked.is_finished() && renewed(asked.await.unwrap()));
    }
    assert_eq!(world.store.beat_batches(), [1; 5]);
    world.store.open();
    world.store.open();
    for waiting in waiting {
        assert!(renewed(waiting.await.unwrap()));
    }
}

#[tokio::test]
async fn beats_queued_behind_a_batch_share_the_next_one() {
    let world = world(
        5,
        BatchSettings {
            linger: secs(3600),
            ..BatchSettings::default()
        },
    )
    .await;
    world.store.next(Verb::Beat, Fault::Gate);
    let first = world.ask(0, None);
    settle().await;
    // The same tenure again: the batch in flight must not answer it.
    let rest: Vec<_> = [0, 1, 2, 3, 4].into_iter().map(|n| world.ask(n, None)).collect();
    settle().await;
    assert!(!rest[0].is_finished());
    assert_eq!(world.store.beat_batches(), [1]);
    world.store.open();
    assert!(renewed(first.await.unwrap()));
    for asked in rest {
        assert!(renewed(asked.await.unwrap()));
    }
    assert_eq!(world.store.beat_batches(), [1, 5]);
}

#[tokio::test]
async fn slow_batch_delays_others_by_the_linger_time_only() {
    let world = world(
        9,
        BatchSettings {
            in_flight: 3,
            max_batch: 2,
            ..BatchSettings::default()
        },
    )
    .await;
    world.store.always(Verb::Beat, Some(Fault::Gate));
    let first = world.ask(0, None);
    settle().await;
    let second = world.ask(1, None);
    pass(&world.clock, ms(1)).await;
    assert_eq!(world.store.beat_batches(), [1, 1], "the linger time is over");
    let rest: Vec<_> = (2..9).map(|n| world.ask(n, None)).collect();
    pass(&world.clock, ms(10)).await;
    assert_eq!(
        world.store.beat_batches(),
        [1, 1, 2],
        "at most three in flight, each of at most two"
    );
    world.store.always(Verb::Beat, None);
    for _ in 0..3 {
        world.store.open();
        settle().await;
    }
    for asked in [first, second].into_iter().chain(rest) {
        assert!(renewed(asked.await.unwrap()));
    }
    assert_eq!(world.store.beat_batches().iter().sum::<usize>(), 9);
}

#[tokio::test]
async fn full_queue_fails_fast() {
    let world = world(
        4,
        BatchSettings {
            queue: 2,
            linger: secs(1),
            ..BatchSettings::default()
        },
    )
    .await;
    world.store.always(Verb::Beat, Some(Fault::Gate));
    let asked: Vec<_> = (0..4).map(|n| world.ask(n, None)).collect();
    settle().await;
    let [_first, _second, _third, last] = asked.try_into().unwrap();
    let error = last.await.unwrap().unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unchanged)
    );
}

#[tokio::test]
async fn invalid_beat_in_a_batch_fails_alone() {
    let world = world(4, BatchSettings::default()).await;
    world.store.next(Verb::Beat, Fault::Gate);
    let asked: Vec<_> = (0..4)
        .map(|n| world.ask(n, (n == 2).then_some(secs(100_000))))
        .collect();
    settle().await;
    world.store.open();
    for (n, asked) in asked.into_iter().enumerate() {
        let answer = asked.await.unwrap();
        if n == 2 {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::Invalid);
        } else {
            assert!(renewed(answer));
        }
    }
}

#[tokio::test]
async fn failed_batch_fails_its_callers_only() {
    let world = world(3, BatchSettings::default()).await;
    world.store.next(Verb::Beat, Fault::Gate);
    world.store.next(Verb::Beat, Fault::LoseReply);
    let asked: Vec<_> = (0..3).map(|n| world.ask(n, None)).collect();
    settle().await;
    world.store.open();
    let [first, second, third] = asked.try_into().unwrap();
    assert!(renewed(first.await.unwrap()));
    for lost in [second, third] {
        assert_eq!(lost.await.unwrap().unwrap_err().outcome(), Outcome::Unknown);
    }
    assert!(renewed(world.ask(1, None).await.unwrap()));
}

#[tokio::test]
async fn abandoned_batches_free_their_places() {
    let world = world(
        3,
        BatchSettings {
            in_flight: 1,
            ..BatchSettings::default()
        },
    )
    .await;
    world.store.next(Verb::Beat, Fault::Hang { applied: false });
    let gone = world.ask(0, None);
    settle().await;
    let waiting = world.ask(1, None);
    settle().await;
    gone.abort();
    assert!(renewed(waiting.await.unwrap()), "the abandoned batch made room");

    // A batch with several callers makes room when the last of them has gone away.
    world.store.next(Verb::Beat, Fault::Hang { applied: false });
    let alone = world.ask(0, None);
    settle().await;
    world.store.next(Verb::Beat, Fault::Hang { applied: false });
    let (first, second) = (world.ask(1, None), world.ask(2, None));
    settle().await;
    alone.abort();
    settle().await;
    assert_eq!(world.store.beat_batches().last(), Some(&2));
    let waiting = world.ask(0, None);
    first.abort();
    settle().await;
    assert!(!waiting.is_finished(), "one caller still waits for the batch");
    second.abort();
    assert!(renewed(waiting.await.unwrap()));
    assert!(world.batcher.batcher.is_idle(), "an idle group keeps no state");
}

#[tokio::test]
async fn beat_queued_too_long_is_not_sent() {
    let settings = BatchSettings {
        in_flight: 1,
        ..BatchSettings::default()
    };
    let world = world(2, settings).await;
    world.store.next(Verb::Beat, Fault::Gate);
    let first = world.ask(0, None);
    settle().await;
    let second = world.ask(1, None);
    pass(&world.clock, settings.give_up).await;
    world.store.open();
    assert!(renewed(first.await.unwrap()));
    let error = second.await.unwrap().unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unavailable, Outcome::Unchanged)
    );
    assert_eq!(world.store.beat_batches(), [1]);
    assert!(renewed(world.ask(1, None).await.unwrap()));
}

#[test]
fn ended_runtime_does_not_deadlock_the_batcher() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let world = runtime.block_on(world(
        2,
        BatchSettings {
            in_flight: 1,
            ..BatchSettings::default()
        },
    ));
    world.store.next(Verb::Beat, Fault::Hang { applied: false });
    let asked = runtime.block_on(async {
        let asked = (world.ask(0, None), world.ask(1, None));
        settle().await;
        asked
    });
    let batcher = world.batcher.batcher.clone();
    drop(runtime);
    drop(asked);
    assert!(batcher.is_idle());
}

#[tokio::test]
async fn beats_carry_revisions_in_both_directions() {
    let world = world(3, BatchSettings::default()).await;
    let lease = [LeaseName::new("t1").unwrap()];
    let acquired = world
        .store
        .acquire(&world.group, &world.tenures[1], &lease, Call::default());
    let known = acquired.await.unwrap().revision;
    let unknown = Revision(world.store.now().await.unwrap().micros() + 5);
    world.clock.advance(ms(1));
    let beat = |n: usize, revision: Revision| {
        let (batcher, group, tenure) = (world.batcher.clone(), world.group.clone(), world.tenures[n].clone());
        let beat = Beat {
            revision,
            ..Beat::of(tenure)
        };
        tokio::spawn(async move { batcher.beat(&group, beat).await.unwrap().reply })
    };
    // The first is in flight while the others are queued.
    world.store.next(Verb::Beat, Fault::Gate);
    let beats = [beat(0, Revision::NONE), beat(1, known), beat(2, unknown)];
    pass(&world.clock, ms(5)).await;
    world.store.open();
    let mut seen = Vec::new();
    for beat in beats {
        match beat.await.unwrap() {
            BeatReply::Renewed { revision, .. } => seen.push(revision),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, [Revision::NONE, known, Revision::NONE]);
    assert_eq!(world.store.beat_batches(), [1, 2]);
    let status = world.store.status(&world.group).await.unwrap();
    assert!(
        status.unsettled.is_some(),
        "the beat carried a revision that the store does not know"
    );
}
