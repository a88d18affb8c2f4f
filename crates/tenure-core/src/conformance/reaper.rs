//! Cases about the end of sessions: the janitor's release of connections, the grace, the reaper, reconcile.

use std::time::Duration;

use serde_json::json;

use super::session::{connection, data, plain, session};
use super::world::{Make, World, ms, refused, s};
use crate::error::ErrorKind;
use crate::event::EventKind;
use crate::id::Alias;
use crate::session::{Attach, AttachOutcome, How, SessionSettings, SessionState};
use crate::store::{Call, StoreOptions};
use crate::sweep::{BATCH, Reaped, ReapedBatch, ReconcileRequest, ReleaseRequest, SweepReport, SweepRequest, drift};

fn part(pass: &str, limit: u32) -> ReleaseRequest {
    ReleaseRequest {
        pass: pass.to_owned(),
        limit,
        force: false,
    }
}

impl World {
    async fn reap(&self, pass: &str, limit: u32) -> ReapedBatch {
        let sweeper = self.sweeper();
        let steps = sweeper.steps().expect("the sweeping store has steps");
        let reaped = steps.reap(&self.group, &part(pass, limit), Call::default()).await;
        reaped.expect("an answer")
    }

    /// Attaches one connection to each session and detaches it, with this grace.
    async fn left(&self, names: &[&str], grace: Duration) {
        let front = self.join("leaver", s(100)).await;
        for name in names {
            let attach = Attach {
                grace: Some(grace),
                ..plain(name, "c")
            };
            self.attach(&front, &attach).await;
            self.detach(&front, name, "c", None).await;
        }
    }
}

/// Reaping removes the session, its alias and its data.
pub async fn an_orphan_is_reaped_with_all_it_had(make: Make<'_>) {
    let world = World::new(make).await;
    let front = world.join("front-1", s(100)).await;
    let attach = Attach {
        alias: Some(Alias::new("ann").expect("a good name")),
        data: data([("room", json!("r1"))]),
        grace: Some(s(5)),
        ..plain("chat", "c1")
    };
    let AttachOutcome::Attached { session: made, .. } = world.attach(&front, &attach).await else {
        panic!("nothing stands in the way");
    };
    world.detach(&front, "chat", "c1", None).await;
    world.pass(ms(4_999)).await;
    assert_eq!(world.reap("early", BATCH).await, ReapedBatch::default());
    assert_eq!(world.state("chat").await, Some(SessionState::Disconnected));
    world.outage(ms(1)).await;
    assert_eq!(world.state("chat").await, Some(SessionState::Orphan));
    assert_eq!(world.stats().await, (0, 0, 1));
    let batch = world.reap("p", BATCH).await;
    let reaped = vec![Reaped {
        session: session("chat"),
        epoch: made.epoch,
    }];
    assert_eq!((batch.reaped, batch.skipped, batch.more), (reaped, 0, false));
    assert_eq!((world.session("chat").await, world.stats().await), (None, (0, 0, 0)));
    let by_alias = world
        .store
        .session_by_alias(&world.group, &Alias::new("ann").expect("a good name"))
        .await;
    assert_eq!(by_alias.expect("a look-up"), None);
    let told = world.events_of(EventKind::SessionReaped).await;
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].session.as_ref(), told[0].epoch),
        (Some(&session("chat")), Some(made.epoch))
    );
    assert_eq!(
        (told[0].pass.as_deref(), told[0].alias.as_ref().map(Alias::as_str)),
        (Some("p"), Some("ann"))
    );
    assert_eq!(world.reap("again", BATCH).await, ReapedBatch::default());
}

/// A crashed instance loses exactly its own connections, and each grace starts once.
pub async fn connections_of_the_dead_are_released_once(make: Make<'_>) {
    let world = World::new(make).await;
    let (dying, living) = (world.join("dying", s(3)).await, world.join("living", s(100)).await);
    for n in 0..30 {
        world.attached(&dying, &format!("s{n:02}"), "a").await;
        if n < 10 {
            world.attached(&living, &format!("s{n:02}"), "b").await;
        }
    }
    // One client came back in time, through another instance.
    world.attached(&living, "s29", "a").await;
    world.pass(s(3)).await;
    world.end_lapsed().await;
    world.pass(ms(300)).await;
    let (one, two) = (world.sweep("one").await, world.sweep("two").await);
    assert_eq!((one.connections_total(), two.connections_total()), (29, 0));
    assert_eq!(world.stats().await, (11, 19, 0));
    let told = world.events_of(EventKind::SessionDisconnected).await;
    assert_eq!(told.len(), 19);
    assert!(told.iter().all(|event| event.reason.as_deref() == Some("lapsed")));
    assert!(told.iter().all(|event| event.tenure.as_ref() == Some(&dying)));
    let evicted = world.events_of(EventKind::Evicted).await;
    assert_eq!(evicted.iter().map(|event| event.connections).sum::<u64>(), 29);
    let gone = world
        .store
        .member(&world.group, living.member())
        .await
        .expect("a look-up");
    assert_eq!(gone.expect("a member").holdings.connections, 11);
    let away = world.session("s20").await.expect("a session");
    assert_eq!(away.state, SessionState::Disconnected);
    assert!(
        away.reap_in.is_some_and(|left| left <= s(60) && left > s(58)),
        "{away:?}"
    );
}

/// Claims, connections and leases of a tenure share its turn.
pub async fn a_huge_front_end_does_not_block_others(make: Make<'_>) {
    let world = World::new(make).await;
    let (huge, small) = (world.join("huge", s(3)).await, world.join("small", s(3)).await);
    world.join("other", s(100)).await;
    world.join("another", s(100)).await;
    for n in 0..40 {
        world.attached(&huge, &format!("h{n:02}"), "c").await;
    }
    world.attached(&small, "x", "c").await;
    world.claim(&huge, "device").await;
    world.granted(&huge, "lease").await;
    world.pass(s(3)).await;
    world.end_lapsed().await;
    world.pass(ms(300)).await;
    let sweeper = world.sweeper();
    let steps = sweeper.steps().expect("the sweeping store has steps");
    let batch = steps
        .release(&world.group, &part("p", 20), Call::default())
        .await
        .expect("a batch");
    let took: Vec<_> = batch.evicted.iter().map(|eviction| eviction.connections).collect();
    assert_eq!(took, [9, 1], "half of the limit each, the claim first: {batch:?}");
    assert_eq!(world.holder("lease").await.map(|(holder, ..)| holder), Some(huge));
    let rest = world.sweep("rest").await;
    assert_eq!((rest.connections_total(), rest.leases_total()), (31, 1));
}

/// An orphan cannot be resumed, whether or not the reaper has run.
pub async fn an_orphan_is_not_resumed(make: Make<'_>) {
    let world = World::new(make).await;
    world.left(&["chat"], s(5)).await;
    let front = world.join("front-1", s(100)).await;
    let before = world.session("chat").await.expect("a session");
    world.pass(s(5)).await;
    let resume = Attach {
        resume_only: true,
        ..plain("chat", "c2")
    };
    assert_eq!(world.attach(&front, &resume).await, AttachOutcome::Gone);
    assert_eq!(world.session("chat").await, None, "the attach reaped it");
    let (how, again) = world.attached(&front, "chat", "c2").await;
    assert_eq!((how, again.grace), (How::Created, None));
    assert!(again.epoch > before.epoch);
    let told = world.told_of("chat").await;
    let expected = [EventKind::SessionReaped, EventKind::SessionCreated];
    assert_eq!(told[2..], expected, "{told:?}");
}

/// An orphan's alias is free for a living session.
pub async fn an_orphan_does_not_keep_its_alias(make: Make<'_>) {
    let world = World::new(make).await;
    let front = world.join("front-1", s(100)).await;
    let with = |of: &str| Attach {
        alias: Some(Alias::new("ann").expect("a good name")),
        grace: Some(s(5)),
        ..plain(of, "c")
    };
    world.attach(&front, &with("old")).await;
    world.detach(&front, "old", "c", None).await;
    assert_eq!(
        world.attach(&front, &with("new")).await,
        AttachOutcome::AliasTaken { by: session("old") }
    );
    world.pass(s(5)).await;
    assert!(matches!(
        world.attach(&front, &with("new")).await,
        AttachOutcome::Attached { .. }
    ));
    assert_eq!(world.session("old").await, None);
}

/// An outage of the store shortens no grace.
pub async fn a_gap_restarts_the_grace_of_every_session(make: Make<'_>) {
    let world = World::new(make).await;
    world.left(&["chat", "other"], s(20)).await;
    world.pass(s(2)).await;
    world.outage(s(300)).await;
    assert_eq!(
        world.state("chat").await,
        Some(SessionState::Disconnected),
        "no step has detected the gap yet"
    );
    assert_eq!(world.stats().await, (0, 2, 0));
    assert!(
        world
            .store
            .orphans(&world.group, Duration::ZERO, 10)
            .await
            .expect("orphans")
            .orphans
            .is_empty()
    );
    world.tick().await;
    assert_eq!(world.reap("p1", BATCH).await.reaped, []);
    let seen = world.session("chat").await.expect("a session");
    assert_eq!((seen.state, seen.reap_in), (SessionState::Disconnected, Some(s(20))));
    assert_eq!(world.stats().await, (0, 2, 0), "the reaper has looked");
    let front = world.join("front-1", s(100)).await;
    let (how, _) = world.attached(&front, "other", "c").await;
    assert_eq!(how, How::Resumed);
    world.pass(ms(19_999)).await;
    assert_eq!(world.reap("p2", BATCH).await.reaped, []);
    world.pass(ms(1)).await;
    assert_eq!(world.reap("p3", BATCH).await.reaped.len(), 1);
    assert_eq!(world.state("other").await, Some(SessionState::Active));
}

/// Listed by index, oldest first.
pub async fn orphans_are_listed_most_overdue_first(make: Make<'_>) {
    let world = World::new(make).await;
    world.left(&["five"], s(5)).await;
    world.left(&["two"], s(2)).await;
    world.left(&["nine"], s(9)).await;
    world.pass(s(6)).await;
    let listed = async |overdue: Duration, limit: u32| -> Vec<(String, u64)> {
        let orphans = world
            .store
            .orphans(&world.group, overdue, limit)
            .await
            .expect("orphans");
        assert_eq!(orphans.skipped, 0);
        let seen = orphans.orphans.into_iter();
        seen.map(|orphan| (orphan.session.to_string(), orphan.overdue.as_millis() as u64))
            .collect()
    };
    let (two, five) = (("two".to_owned(), 4_000), ("five".to_owned(), 1_000));
    assert_eq!(listed(Duration::ZERO, 10).await, [two.clone(), five]);
    assert_eq!(listed(Duration::ZERO, 1).await, std::slice::from_ref(&two));
    assert_eq!(listed(s(2), 10).await, [two]);
    assert_eq!(listed(s(5), 10).await, []);
    for limit in [0, 1_001] {
        refused(
            world.store.orphans(&world.group, Duration::ZERO, limit).await,
            ErrorKind::Invalid,
        );
    }
    let status = world.tick().await;
    assert_eq!((status.sessions, status.disconnected), (3, 3));
    assert_eq!(status.next_reap.map(|at| status.as_of.since(at)), Some(s(4)));
}

/// Any number of reapers, each in bounded steps.
pub async fn reapers_share_the_work(make: Make<'_>) {
    let world = World::new(make).await;
    let names: Vec<_> = (0..25).map(|n| format!("s{n:02}")).collect();
    world
        .left(&names.iter().map(String::as_str).collect::<Vec<_>>(), s(1))
        .await;
    world.pass(s(2)).await;
    let first = world.reap("a", 10).await;
    let (dry, second) = (
        world
            .ask_sweep(
                SweepRequest {
                    dry_run: true,
                    ..SweepRequest::default()
                },
                "dry",
            )
            .await,
        world.reap("b", 10).await,
    );
    assert_eq!(dry.orphans.len(), 15);
    let third = world.sweep("c").await;
    assert_eq!((first.reaped.len(), first.more), (10, true));
    assert_eq!((second.reaped.len(), second.more), (10, true));
    assert_eq!((third.reaped, third.skipped), (5, 0));
    let mut told: Vec<_> = world.events_of(EventKind::SessionReaped).await;
    told.sort_by(|a, b| a.session.cmp(&b.session));
    told.dedup_by(|a, b| a.session == b.session);
    assert_eq!(told.len(), 25);
}

/// Invariant 10: the brake holds the reaper as well, and a session that it holds can be resumed.
pub async fn the_brake_holds_the_reaper(make: Make<'_>) {
    let world = World::new(make).await;
    world.left(&["chat", "other"], s(5)).await;
    for n in 0..20 {
        world.join(&format!("m{n:02}"), s(3)).await;
    }
    world.pass(s(3)).await;
    world.end_lapsed().await;
    world.pass(s(3)).await;
    let held = world.reap("p", BATCH).await;
    assert!(
        held.reaped.is_empty() && held.braked.is_some() && !held.more,
        "{held:?}"
    );
    let status = world.tick().await;
    assert_eq!(status.next_reap, status.brake.map(|brake| brake.until));
    let front = world.join("front-1", s(100)).await;
    let (how, _) = world.attached(&front, "other", "c").await;
    assert_eq!(how, How::Resumed, "the brake kept the session");
    let forced = SweepRequest {
        force: true,
        ..SweepRequest::default()
    };
    let report = world.ask_sweep(forced, "forced").await;
    assert_eq!(report.reaped, 1);
    assert_eq!(world.state("other").await, Some(SessionState::Active));
}

/// Reconcile repairs nothing in a consistent group.
pub async fn reconcile_repairs_nothing_without_drift(make: Make<'_>) {
    let world = World::new(make).await;
    world.left(&["away-1", "away-2"], s(50)).await;
    let (dying, living) = (world.join("dying", s(3)).await, world.join("living", s(100)).await);
    for n in 0..12 {
        let attach = Attach {
            alias: (n % 2 == 0).then(|| Alias::new(format!("a{n}")).expect("a good name")),
            ..plain(&format!("s{n:02}"), "c")
        };
        let tenure = if n % 3 == 0 { &dying } else { &living };
        world.attach(tenure, &attach).await;
    }
    world.pass(s(3)).await;
    world.end_lapsed().await;
    // Also while the connections of a dead tenure wait for the janitor.
    let (mut after, mut parts) = (None, 0);
    loop {
        let sweeper = world.sweeper();
        let steps = sweeper.steps().expect("the sweeping store has steps");
        let request = ReconcileRequest { after, limit: 3 };
        let part = steps
            .reconcile(&world.group, &request, Call::default())
            .await
            .expect("a part");
        assert!(part.repaired.is_empty(), "{part:?}");
        (after, parts) = (part.next, parts + 1);
        assert!(parts < 200, "reconcile terminates");
        if after.is_none() {
            break;
        }
    }
    assert!(parts > 3, "in bounded parts");
    let request = SweepRequest {
        reconcile: true,
        ..SweepRequest::default()
    };
    assert_eq!(
        world.ask_sweep(request, "p").await.repaired,
        SweepReport::default().repaired
    );
    assert!(world.events_of(EventKind::SessionsRepaired).await.is_empty());
    let sweeper = world.sweeper();
    let bad = ReconcileRequest {
        after: Some("not a cursor!".to_owned()),
        limit: 3,
    };
    let steps = sweeper.steps().expect("the sweeping store has steps");
    refused(
        steps.reconcile(&world.group, &bad, Call::default()).await,
        ErrorKind::Invalid,
    );
}

/// Reconcile drops a connection above the maximum age.
pub async fn a_connection_that_is_too_old_is_dropped_by_reconcile(make: Make<'_>) {
    let options = StoreOptions {
        sessions: SessionSettings {
            grace: s(7),
            max_age: Some(s(30)),
        },
        ..StoreOptions::default()
    };
    let world = World::with(make, options).await;
    let front = world.join("front-1", s(100)).await;
    world.attached(&front, "forgotten", "c").await;
    world.attached(&front, "renewed", "c").await;
    world.pass(s(29)).await;
    world.attached(&front, "renewed", "c").await;
    let reconcile = async || {
        let request = SweepRequest {
            reconcile: true,
            ..SweepRequest::default()
        };
        world.ask_sweep(request, "p").await.repaired
    };
    assert!(reconcile().await.is_empty());
    world.pass(ms(1_001)).await;
    assert_eq!(reconcile().await, [(drift::AGED_CONNECTION.to_owned(), 1)].into());
    let seen = world.session("forgotten").await.expect("a session");
    assert_eq!((seen.state, seen.reap_in), (SessionState::Disconnected, Some(s(7))));
    assert_eq!(world.state("renewed").await, Some(SessionState::Active));
    let told = world.events_of(EventKind::SessionDisconnected).await;
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].reason.as_deref(), told[0].connection.as_ref()),
        (Some("max_age"), Some(&connection("c")))
    );
    assert_eq!(world.events_of(EventKind::SessionsRepaired).await.len(), 1);
}
