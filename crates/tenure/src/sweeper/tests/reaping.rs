//! The reaper and the reconcile.

use tenure_core::id::{ConnectionId, SessionId};
use tenure_core::session::{Attach, Detach, SessionSettings};
use tenure_core::sweep::drift;

use super::*;
use crate::loops::{LoopBody, LoopSettings, Turn};

impl World {
    /// Creates disconnected sessions with a grace.
    pub(super) async fn orphan(&self, in_group: &Group, tenure: &TenureId, sessions: usize, grace: Duration) {
        let attaches: Vec<Attach> = (0..sessions)
            .map(|n| Attach {
                grace: Some(grace),
                ..Attach::new(
                    SessionId::new(format!("s{n}")).unwrap(),
                    ConnectionId::new("c").unwrap(),
                )
            })
            .collect();
        let attached = self.memory.attach(in_group, tenure, &attaches, Call::default());
        attached.await.unwrap();
        let detaches: Vec<Detach> = attaches
            .into_iter()
            .map(|attach| Detach {
                session: attach.session,
                connection: attach.connection,
                epoch: None,
            })
            .collect();
        let detached = self.memory.detach(in_group, tenure, &detaches, Call::default());
        detached.await.unwrap();
    }

    /// The number of deleted sessions, from the events of the store.
    pub(super) async fn reaped(&self, in_group: &Group) -> usize {
        let mut query = EventQuery {
            after: None,
            limit: 1_000,
            kinds: vec![EventKind::SessionReaped],
            ..EventQuery::default()
        };
        let mut reaped = 0;
        loop {
            let page = self.memory.events(in_group, &query).await.unwrap();
            reaped += page.events.len();
            if query.after.replace(page.last) == Some(page.last) {
                return reaped;
            }
        }
    }
}

#[tokio::test]
async fn orphan_is_deleted_when_its_grace_ends() {
    let world = world(1);
    let _listening = world.telemetry.listen();
    let g = group("g");
    let front = world.join(&g, "front").await;
    world.sweepers[0].0.touch(&g);
    world.keep_alive(&g, &front, secs(1)).await;
    world.orphan(&g, &front, 450, secs(7)).await;
    world.keep_alive(&g, &front, secs(7) - ms(1)).await;
    assert_eq!(world.reaped(&g).await, 0);
    assert!((world.telemetry.gauge("tenure_sessions_disconnected{group=\"g\"}") - 450.0).abs() < 0.1);
    world.keep_alive(&g, &front, ms(100)).await;
    assert_eq!(world.reaped(&g).await, 450);
    assert_eq!(
        world
            .telemetry
            .count("tenure_orphan_sessions_deleted_total{group=\"g\"}"),
        450
    );
    assert_eq!(
        (
            world.telemetry.lines("INFO reaped"),
            world.telemetry.count("tenure_orphan_cleanup_duration_seconds")
        ),
        (450, 3)
    );
    world.keep_alive(&g, &front, secs(3)).await;
    assert!(world.telemetry.gauge("tenure_sessions_disconnected{group=\"g\"}") < 0.1);
    let names: Vec<String> = world.sweepers[0]
        .1
        .snapshot()
        .into_iter()
        .map(|status| status.name)
        .collect();
    assert_eq!(names, [JANITOR, REAPER, RECONCILE]);
}

/// The reaper was asleep when the group was found, without a due time for it.
#[tokio::test]
async fn orphan_of_a_late_discovered_group_is_deleted_in_time() {
    let world = world(1);
    let _listening = world.telemetry.listen();
    world.pass(secs(5)).await;
    let g = group("g");
    let front = world.join(&g, "front").await;
    world.sweepers[0].0.touch(&g);
    world.orphan(&g, &front, 3, secs(2)).await;
    world.keep_alive(&g, &front, secs(2) + ms(100)).await;
    assert_eq!(world.reaped(&g).await, 3);
}

#[tokio::test]
async fn dead_front_end_starts_each_grace_and_reap_once() {
    let world = world(3);
    let _listening = world.telemetry.listen();
    let g = group("g");
    let alive = world.join(&g, "alive").await;
    let dead = world.join(&g, "dead").await;
    let attaches: Vec<Attach> = (0..300)
        .map(|n| Attach {
            grace: Some(secs(3)),
            ..Attach::new(
                SessionId::new(format!("s{n}")).unwrap(),
                ConnectionId::new("c").unwrap(),
            )
        })
        .collect();
    world
        .memory
        .attach(&g, &dead, &attaches, Call::default())
        .await
        .unwrap();
    // One third has a second connection at another front-end.
    let elsewhere: Vec<Attach> = attaches[..100]
        .iter()
        .map(|attach| Attach {
            connection: ConnectionId::new("other").unwrap(),
            ..attach.clone()
        })
        .collect();
    world
        .memory
        .attach(&g, &alive, &elsewhere, Call::default())
        .await
        .unwrap();
    world.keep_alive(&g, &alive, TTL + secs(2)).await;
    assert_eq!(world.events(&g, &[EventKind::SessionDisconnected]).await.len(), 200);
    assert_eq!(world.reaped(&g).await, 0);
    world.keep_alive(&g, &alive, secs(2)).await;
    assert_eq!(world.reaped(&g).await, 200);
    assert_eq!(world.telemetry.lines("INFO reaped"), 200);
    assert_eq!(world.telemetry.count("tenure_orphan_sessions_deleted_total"), 200);
    assert_eq!(world.memory.session_stats(&g).await.unwrap().active, 100);
}

#[tokio::test]
async fn reap_is_counted_once_when_its_reply_is_lost() {
    for fault in [
        Fault::LoseReply,
        Fault::LoseRequest,
        Fault::Hang { applied: true },
        Fault::Hang { applied: false },
    ] {
        let world = world(1);
        let _listening = world.telemetry.listen();
        let g = group("g");
        let front = world.join(&g, "front").await;
        world.sweepers[0].0.touch(&g);
        world.keep_alive(&g, &front, secs(1)).await;
        world.orphan(&g, &front, 450, secs(2)).await;
        world.store.next(Verb::Reap, fault.clone());
        world.store.next(Verb::Reap, fault.clone());
        // The first read of the events fails, too.
        world.store.next(Verb::Events, Fault::LoseReply);
        world.keep_alive(&g, &front, secs(15)).await;
        assert_eq!(world.reaped(&g).await, 450, "{fault:?}");
        assert_eq!(
            world.telemetry.count("tenure_orphan_sessions_deleted_total"),
            450,
            "{fault:?}"
        );
        assert_eq!(world.telemetry.lines("INFO reaped"), 450, "{fault:?}");
    }
}

#[tokio::test]
async fn reaper_errors_and_panics_only_delay_it() {
    let world = world(1);
    let g = group("g");
    let front = world.join(&g, "front").await;
    world.orphan(&g, &front, 5, secs(2)).await;
    for kind in [ErrorKind::Unavailable, ErrorKind::TooLate, ErrorKind::Internal] {
        world.store.next(Verb::Reap, Fault::Fail(kind));
    }
    world.store.next(Verb::Reap, Fault::Panic);
    world.keep_alive(&g, &front, secs(10)).await;
    assert_eq!(world.reaped(&g).await, 5);
    let statuses = world.sweepers[0].1.snapshot();
    let reaper = statuses.iter().find(|status| status.name == REAPER).unwrap();
    assert_eq!((reaper.panics, reaper.bad_in_a_row), (1, 0), "{reaper:?}");
    assert!(reaper.last_success_age.is_some());
}

#[tokio::test]
async fn reaper_runs_at_its_interval_without_a_janitor() {
    let world = world(1);
    let g = group("g");
    let front = world.join(&g, "front").await;
    world.sweepers[0].0.touch(&g);
    world.keep_alive(&g, &front, secs(1)).await;
    world.orphan(&g, &front, 5, secs(2)).await;
    world
        .store
        .always(Verb::Tick, Some(Fault::Fail(ErrorKind::Unavailable)));
    world.keep_alive(&g, &front, secs(31)).await;
    assert_eq!(world.reaped(&g).await, 5);
}

#[tokio::test]
async fn daily_reconcile_runs_in_slices_and_reports_repairs() {
    let clock = Arc::new(ManualClock::new(START, 11));
    let options = StoreOptions {
        sessions: SessionSettings {
            max_age: Some(secs(60)),
            ..SessionSettings::default()
        },
        ..StoreOptions::default()
    };
    let memory: Arc<dyn Store> = MemoryStore::new(options, clock.clone());
    let store = Faulty::new(Arc::clone(&memory), clock.clone());
    let mut world = World {
        clock,
        memory,
        store,
        sweepers: Vec::new(),
        telemetry: Telemetry::default(),
    };
    let _listening = world.telemetry.listen();
    let clock: Arc<dyn Clock> = world.clock.clone();
    let loops = Loops::new(Arc::clone(&clock), Handle::current());
    let settings = SweeperSettings {
        reconcile_interval: secs(200),
        ..SweeperSettings::default()
    };
    let sweeper = Sweeper::start(world.store.clone(), clock, settings, &loops).unwrap();
    world.sweepers.push((sweeper, loops));
    let g = group("g");
    let front = world.join(&g, "front").await;
    let attaches: Vec<Attach> = (0..450)
        .map(|n| Attach {
            grace: Some(secs(3_600)),
            ..Attach::new(
                SessionId::new(format!("s{n}")).unwrap(),
                ConnectionId::new("c").unwrap(),
            )
        })
        .collect();
    world
        .memory
        .attach(&g, &front, &attaches, Call::default())
        .await
        .unwrap();
    world.keep_alive(&g, &front, secs(500)).await;
    let repaired = world.events(&g, &[EventKind::SessionsRepaired]).await;
    let aged: u64 = repaired
        .iter()
        .filter_map(|event| event.counts.get(drift::AGED_CONNECTION))
        .sum();
    assert_eq!((repaired.len(), aged), (3, 450), "one event per part with repairs");
    assert_eq!(world.telemetry.lines("WARN reconciled"), 1);
    assert!(world.telemetry.lines("DEBUG reconciled") >= 1);
    assert_eq!(
        world.telemetry.count("tenure_sessions_drift"),
        0,
        "an aged connection is not drift"
    );
}

/// A loop that counts its turns and requests none.
struct Counter(Arc<std::sync::atomic::AtomicU64>);

#[async_trait::async_trait]
impl LoopBody for Counter {
    async fn turn(&mut self) -> Result<Turn> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(Turn::idle())
    }
}

#[tokio::test]
async fn ended_provider_wakes_the_ledger_loop_once() {
    use tenure_core::ledger::{Provider, Version};
    use tenure_core::roster::{MirrorEntry, Put};

    let world = world(1);
    let g = group("roster.care");
    let (sweeper, loops) = &world.sweepers[0];
    let turns = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = Arc::clone(&turns);
    let follower = loops.start(LoopSettings::new("follower", secs(3_600)), move || {
        Counter(Arc::clone(&counted))
    });
    sweeper.wake_when_offline(follower.unwrap());
    sweeper.touch(&g);
    let mirror = world.memory.mirror().unwrap();
    let ann = tenure_core::id::ProviderId::new("ann").unwrap();
    let seated = mirror
        .ensure_tenures(&g, std::slice::from_ref(&ann), secs(4), true, Call::default())
        .await;
    let tenure = seated.unwrap().remove(0).tenure;
    let row = Provider {
        provider: ann,
        display_name: None,
        active: true,
        online: Some(tenure),
        capacity: 1,
        occupancy: 0,
        last_online_at: None,
        last_offline_at: None,
        last_heartbeat_at: None,
        revoked_before: None,
        version: Version(1),
    };
    let put = mirror
        .put_providers(&g, &[Put::newer(MirrorEntry::Row(row))], Call::default())
        .await;
    put.unwrap();
    world.pass(secs(4) - ms(50)).await;
    let before = turns.load(std::sync::atomic::Ordering::SeqCst);
    world.pass(ms(200)).await;
    assert_eq!(turns.load(std::sync::atomic::Ordering::SeqCst), before + 1);
    world.pass(secs(20)).await;
    assert_eq!(turns.load(std::sync::atomic::Ordering::SeqCst), before + 1);
}
