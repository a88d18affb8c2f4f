//! Rosters where a step or a transaction fails. They need the writer's own connection.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::ManualClock;
use tenure_core::ledger::{Provider, RosterSettings, RosterStats, Version};
use tenure_core::membership::{EndBy, MembershipStore};
use tenure_core::roster::{Entry, Heartbeat, HeartbeatReply, Over, Put, RosterMirror, Stamp};
use tenure_core::store::{Backend, Call, StoreOptions};
use tenure_core::sweep::SweepSteps;
use tenure_core::{Group, ProviderId, StoreTime, TenureId};

use crate::error::Cause;
use crate::step::Step;
use crate::store::SqliteStore;

struct World {
    store: Arc<SqliteStore>,
    group: Group,
    _dir: tempfile::TempDir,
}

fn provider(name: &str) -> ProviderId {
    ProviderId::new(name).unwrap()
}

fn put(name: &str, version: u64, online: Option<&TenureId>) -> Put {
    Put::newer(Entry::Row(Provider {
        provider: provider(name),
        display_name: None,
        active: true,
        online: online.cloned(),
        capacity: 1,
        occupancy: 0,
        last_online_at: None,
        last_offline_at: None,
        last_heartbeat_at: None,
        revoked_before: None,
        version: Version(version),
    }))
}

fn gone(name: &str, version: u64) -> Put {
    Put::newer(Entry::Gone {
        provider: provider(name),
        version: Version(version),
    })
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_763_676_800_000_000, 1));
        let waits = Arc::clone(&clock);
        let store = SqliteStore::open(dir.path().join("tenure.db"), StoreOptions::default(), clock).unwrap();
        // A new file grants nothing for one max ttl.
        waits.advance(StoreOptions::default().max_ttl);
        Self {
            store,
            group: Group::new("roster.desk").unwrap(),
            _dir: dir,
        }
    }

    async fn online(&self, name: &str, version: u64) -> TenureId {
        let (names, ttl) = ([provider(name)], Duration::from_secs(6));
        let seat = self.store.seat(&self.group, &names, ttl, true, Call::default());
        let tenure = seat.await.unwrap().remove(0).tenure;
        let put = [put(name, version, Some(&tenure))];
        self.store
            .put_providers(&self.group, &put, Call::default())
            .await
            .unwrap();
        tenure
    }

    /// What is known of the roster, without the times.
    async fn known(&self) -> (RosterStats, u64, Stamp, u64, Option<StoreTime>) {
        let stats = self.store.roster_stats(&self.group).await.unwrap();
        let status = self.store.tick(&self.group).await.unwrap();
        let stamp = Stamp {
            as_of: StoreTime::ZERO,
            ..stats.stamp
        };
        (
            stats.stats,
            stats.pending,
            stamp,
            status.pending_offline,
            status.next_offline,
        )
    }

    async fn hear(&self, name: &str) -> HeartbeatReply {
        let heard = [Heartbeat::of(provider(name))];
        self.store.heartbeat(&self.group, &heard).await.unwrap().replies[0]
    }
}

/// Changes everything there is to change.
fn upset(step: &mut Step<'_>, ann: &TenureId, bob: &TenureId) -> Result<(), Cause> {
    let puts = [
        put("bob", 9, None),
        put("new", 8, None),
        gone("ann", 7),
        put("ann", 10, Some(ann)),
        gone("off", 11),
    ];
    step.put_providers(&puts)?
        .map_err(|error| Cause::Strange(error.to_string()))?;
    let _ = step.seat(&[provider("new"), provider("bob")], Duration::from_secs(9), true)?;
    let (entry, reason) = step
        .take(ann, |_| Some(tenure_core::membership::EndReason::Left))
        .unwrap();
    step.end_taken(ann, &entry, reason)?;
    let _ = step.offline_done(std::slice::from_ref(bob))?;
    let settings = RosterSettings {
        version: Version(3),
        ..RosterSettings::default()
    };
    let _ = step.put_roster_settings(&settings, Over::Older)?;
    let _ = step.retime(1)?;
    let _ = step.mark_seeded(step.meta.resumed_at)?;
    Ok(())
}

#[tokio::test]
async fn a_step_or_a_transaction_that_fails_takes_its_roster_back() {
    for whole in [false, true] {
        let world = World::new();
        let (ann, bob) = (world.online("ann", 1).await, world.online("bob", 2).await);
        let off = [put("off", 3, None)];
        world
            .store
            .put_providers(&world.group, &off, Call::default())
            .await
            .unwrap();
        world
            .store
            .end(&world.group, &bob, EndBy::Leave, Call::default())
            .await
            .unwrap();
        let before = world.known().await;
        assert_eq!((before.0.available, before.1, before.3), (1, 1, 1));
        let (left, done) = (ann.clone(), bob.clone());
        let failing = world.store.step::<()>(&world.group, Call::default(), move |step| {
            upset(step, &left, &done)?;
            if whole {
                step.sql.execute_batch("ROLLBACK")?;
            }
            Err(Cause::Strange("on purpose".to_owned()))
        });
        failing.await.unwrap_err();
        // The next commit publishes its own changes alone.
        let stranger = [put("stranger", 4, None)];
        world
            .store
            .put_providers(&world.group, &stranger, Call::default())
            .await
            .unwrap();
        let (mut stats, pending, mut stamp, listed, next) = world.known().await;
        stats.offline -= 1;
        assert_eq!(stamp.high, Version(4));
        stamp.high = before.2.high;
        assert_eq!((stats, pending, stamp, listed, next), before, "whole: {whole}");
        assert_eq!(world.hear("ann").await, HeartbeatReply::Recorded);
        assert_eq!(
            (world.hear("off").await, world.hear("new").await),
            (HeartbeatReply::Offline, HeartbeatReply::Absent)
        );
        assert_eq!(world.store.roster_settings(&world.group).await.unwrap(), None);
        world.store.close().await;
    }
}

/// The writer has a row in hand: a heartbeat neither runs ahead of that commit nor is lost.
#[tokio::test]
async fn a_heartbeat_waits_for_the_row_that_is_being_written() {
    let world = World::new();
    let ann = world.online("ann", 1).await;
    let (begun, go_on) = (tokio::sync::oneshot::channel(), std::sync::mpsc::channel::<()>());
    let (store, group) = (Arc::clone(&world.store), world.group.clone());
    let writing = tokio::spawn(async move {
        store
            .step(&group, Call::default(), move |step| {
                let done = step.put_providers(&[put("ann", 2, None)])?;
                let _ = begun.0.send(());
                let _ = go_on.1.recv();
                Ok(done)
            })
            .await
    });
    begun.1.await.unwrap();
    let (store, group) = (Arc::clone(&world.store), world.group.clone());
    let heartbeat = tokio::spawn(async move { store.heartbeat(&group, &[Heartbeat::of(provider("ann"))]).await });
    // Reading meanwhile shows what is committed.
    let stats = world.store.roster_stats(&world.group).await.unwrap();
    assert_eq!((stats.stats.available, stats.stamp.high), (1, Version(1)));
    go_on.0.send(()).unwrap();
    assert!(writing.await.unwrap().unwrap()[0].applied);
    assert_eq!(heartbeat.await.unwrap().unwrap().replies, [HeartbeatReply::Offline]);
    let seen = world.store.member(&world.group, ann.member()).await.unwrap();
    assert!(seen.is_some_and(|member| member.alive));
    world.store.close().await;
}

/// A step that went well, and another one after it that takes the whole transaction with it.
#[tokio::test]
async fn a_row_goes_with_the_transaction_that_fails_after_it() {
    let world = World::new();
    world.online("ann", 1).await;
    let (begun, go_on) = (tokio::sync::oneshot::channel(), std::sync::mpsc::channel::<()>());
    let (store, group) = (Arc::clone(&world.store), world.group.clone());
    // While the writer is busy, the next two queue up for one transaction.
    let busy = tokio::spawn(async move {
        let step = store.step(&group, Call::default(), move |_| {
            let _ = begun.0.send(());
            let _ = go_on.1.recv();
            Ok(Ok(()))
        });
        step.await
    });
    begun.1.await.unwrap();
    let puts = [put("new", 8, None), gone("ann", 9)];
    let putting = world.store.put_providers(&world.group, &puts, Call::default());
    let destroying = world.store.step::<()>(&world.group, Call::default(), |step| {
        step.sql.execute_batch("ROLLBACK")?;
        Err(Cause::Strange("on purpose".to_owned()))
    });
    let (done, destroyed, sent) = tokio::join!(putting, destroying, async { go_on.0.send(()) });
    busy.await.unwrap().unwrap();
    sent.unwrap();
    assert!(done.is_err() && destroyed.is_err(), "{done:?}");
    assert_eq!(
        (world.hear("new").await, world.hear("ann").await),
        (HeartbeatReply::Absent, HeartbeatReply::Recorded)
    );
    let stranger = [put("stranger", 4, None)];
    world
        .store
        .put_providers(&world.group, &stranger, Call::default())
        .await
        .unwrap();
    let (stats, _, stamp, ..) = world.known().await;
    assert_eq!((stats.available, stats.offline, stamp.high), (1, 1, Version(4)));
    world.store.close().await;
}
