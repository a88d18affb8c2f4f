//! Fleets over a store in virtual time: target distribution, takeover, and exclusive work.

mod world;

use tenure_core::error::ErrorKind;
use tenure_core::fleet;
use tenure_core::membership::Labels;
use tenure_core::verdict::Verdict;

use super::*;
use crate::testing::{Fault, Verb, ms, secs};
use world::{Behaviour, TTL, World, labels};

#[tokio::test]
async fn three_nodes_share_targets_exclusively() {
    let mut world = World::new(300);
    for name in ["a", "b", "c"] {
        world.join(name).await;
    }
    world.until_all_held(secs(2)).await;
    world.pass(secs(40)).await;
    let counts = world.counts();
    assert_eq!(counts.values().sum::<usize>(), 300);
    assert!(counts.values().all(|count| (70..=130).contains(count)), "{counts:?}");
    world.check_store().await;
    // In steady state no lease is acquired and nothing moves.
    let moves = world.moves();
    world.pass(secs(60)).await;
    assert_eq!(world.moves(), moves);
}

#[tokio::test]
async fn dead_nodes_targets_are_taken_over_at_its_end_time() {
    let mut world = World::new(60);
    for name in ["a", "b", "c"] {
        world.join(name).await;
    }
    world.until_all_held(secs(2)).await;
    world.pass(secs(70)).await;
    let had = world.worked_on("a");
    assert!(had.len() > 5);
    // Cut off from the store, as if the process was killed.
    world.cut("a", true);
    let cut_at = world.now();
    world
        .until("its verdict is uncertain", TTL, |world| {
            world.verdict("a") != Verdict::Held
        })
        .await;
    let (doubt_at, cycles) = (world.now(), world.cycles("a"));
    assert_eq!(world.worked_on_by(&["b", "c"]), 60 - had.len(), "no takeover yet");
    world
        .until("the other nodes hold everything", TTL, |world| {
            world.worked_on_by(&["b", "c"]) == 60
        })
        .await;
    assert!(
        world.now().since(doubt_at) <= TTL / 12 + ms(250),
        "promptly after its end time, one margin after `Uncertain`: {:?}",
        world.now().since(doubt_at)
    );
    assert!(
        world.now().since(cut_at) <= TTL + secs(1),
        "within ttl + 1 s of the kill"
    );
    world.settle().await;
    assert_eq!((world.cycles("a"), world.worked_on("a").len()), (cycles, 0));
    world.check_store().await;

    // When it returns it joins again, and gets its targets back once the membership is stable.
    world.cut("a", false);
    world.pass(secs(60)).await;
    assert_eq!(world.worked_on("a"), had);
    world.check_store().await;
}

#[tokio::test]
async fn draining_node_hands_over_within_a_second() {
    let mut world = World::new(120);
    for name in ["a", "b", "c"] {
        world.join(name).await;
    }
    world.until_all_held(secs(2)).await;
    world.pass(secs(60)).await;
    let fleet = world.fleet("b");
    let draining = tokio::spawn(async move { fleet.drain().await });
    let start = world.now();
    world
        .until("all is handed over", secs(1), |world| {
            world.worked_on("b").is_empty() && world.held_in_all() == 120
        })
        .await;
    assert!(world.now().since(start) <= ms(500), "{:?}", world.now().since(start));
    draining.await.unwrap();
    world.check_store().await;
    // No node hands it a lease while it drains. Afterwards it gets its share back.
    let starts = world.starts_in_all();
    world.pass(secs(60)).await;
    assert_eq!((world.counts()["b"], world.starts_in_all()), (0, starts));
    assert_eq!(world.marked().await, ["b"]);
    world.fleet("b").undrain();
    world.pass(secs(60)).await;
    assert!(world.marked().await.is_empty());
    assert!(world.counts()["b"] >= 25, "{:?}", world.counts());
}

#[tokio::test]
async fn shutdown_ends_work_before_freeing_leases() {
    let mut world = World::new(40);
    for name in ["a", "b"] {
        world.join(name).await;
    }
    world.until_all_held(secs(2)).await;
    let fleet = world.fleet("a");
    let ended = tokio::spawn(async move { fleet.shut_down().await });
    world
        .until("b has everything", secs(1), |world| world.worked_on("b").len() == 40)
        .await;
    assert_eq!(ended.await.unwrap(), ShutDown::default());
    world.check_store().await;
}

#[tokio::test]
async fn joining_node_gets_its_share_once_membership_is_stable() {
    let mut world = World::new(300);
    for name in ["a", "b", "c"] {
        world.join(name).await;
    }
    world.until_all_held(secs(2)).await;
    world.pass(secs(40)).await;
    world.pass(secs(40)).await;
    let moves = world.moves();
    world.join("d").await;
    world.pass(secs(9)).await;
    assert_eq!(world.counts()["d"], 0, "none before the membership is stable");
    world.pass(secs(6)).await;
    let count = world.counts()["d"];
    assert!((50..=100).contains(&count), "about a quarter: {count}");
    assert_eq!(world.moves() - moves, count, "no other target moved");
    world.check_store().await;
}

#[tokio::test]
async fn paused_or_removed_target_stops_and_is_released() {
    let mut world = World::new(20);
    for name in ["a", "b"] {
        world.join(name).await;
    }
    world.until_all_held(secs(2)).await;
    assert!(world.list.pause("t-00003", true));
    assert!(world.list.remove("t-00007"));
    world
        .until("they are free", secs(1), |world| world.held_in_all() == 18)
        .await;
    for target in ["t-00003", "t-00007"] {
        assert!(world.lease(target).await.is_none());
        assert!(world.workers(target).is_empty());
    }
    assert!(world.list.pause("t-00003", false));
    world.list.put("t-00007", TargetSpec::default()).unwrap();
    world.until_all_held(secs(2)).await;
    world.check_store().await;
}

#[tokio::test]
async fn stored_targets_are_followed_by_events() {
    let mut world = World::new(0);
    world.stored_targets = true;
    for name in ["a", "b"] {
        world.join(name).await;
    }
    world.pass(secs(1)).await;
    for n in 0..10 {
        world.put_target(&format!("t-{n}"), TargetSpec::default()).await;
    }
    world
        .until("all are held", secs(1), |world| world.held_in_all() == 10)
        .await;
    let paused = TargetSpec {
        paused: true,
        ..TargetSpec::default()
    };
    world.put_target("t-4", paused).await;
    world
        .until("it is released", secs(1), |world| world.held_in_all() == 9)
        .await;
    assert!(world.workers("t-4").is_empty());
}

#[tokio::test]
async fn live_sessions_are_followed_by_events() {
    let mut world = World::new(0);
    world.live_sessions = Some("muted");
    for name in ["a", "b"] {
        world.join(name).await;
    }
    world.pass(secs(1)).await;
    let front = world.front().await;
    let sessions = front.sessions();
    let attach = |name: &'static str, socket: &'static str| {
        let attach = sessions.attach(name, socket).into_future();
        world.run(async move { attach.await.unwrap().attached().unwrap() })
    };
    let mut connections = Vec::new();
    for name in ["s-0", "s-1", "s-2"] {
        connections.push(attach(name, "socket").await);
    }
    world
        .until("all are worked on", secs(1), |world| world.held_in_all() == 3)
        .await;
    let away = connections.remove(1);
    world.run(away.detach()).await.unwrap();
    world
        .until("the session without a connection is not worked on", secs(1), |world| {
            world.held_in_all() == 2
        })
        .await;
    assert!(world.workers("s-1").is_empty() && world.lease("s-1").await.is_none());
    connections.push(attach("s-1", "another").await);
    world
        .until("it is worked on again", secs(1), |world| world.held_in_all() == 3)
        .await;

    // No event reports this change.
    let group = sessions.group();
    let muted = tenure_core::session::Data::from([("muted".to_owned(), true.into())]);
    world.run(group.patch("s-2", &muted)).await.unwrap();
    world
        .until("the paused session is not worked on", secs(1), |world| {
            world.held_in_all() == 2
        })
        .await;
    assert!(world.workers("s-2").is_empty());
    world.check_store().await;
}

#[tokio::test]
async fn work_pauses_before_the_deadline_and_resumes_when_confirmed() {
    let mut world = World::new(10);
    world.join("a").await;
    world.until_all_held(secs(2)).await;
    world.pass(secs(1)).await;
    world.cut("a", true);
    // The outage ends before another node can take over. The other client keeps the store ticking.
    world
        .until("the verdict is uncertain", TTL, |world| {
            world.verdict("a") != Verdict::Held
        })
        .await;
    let cycles = world.cycles("a");
    world.pass(TTL / 24).await;
    assert_eq!(world.cycles("a"), cycles, "no cycle starts while uncertain");
    assert_eq!(world.worked_on("a").len(), 10, "no task is dropped yet");
    world.cut("a", false);
    world
        .until("it resumes", secs(3), |world| world.cycles("a") > cycles + 10)
        .await;
    world.check_store().await;
}

#[tokio::test]
async fn unchecked_work_is_suspended_in_doubt_and_dropped_on_stop() {
    let mut world = World::new(2);
    world.behaviour("t-00000", Behaviour::Heedless);
    world.behaviour("t-00001", Behaviour::Heedless);
    world.join("a").await;
    world.until_all_held(secs(2)).await;
    // After a pause of the process the task resumes where it was.
    world.clock.advance(secs(5));
    world.pass(secs(2)).await;
    assert_eq!(world.starts("t-00000"), 1);
    // The outage is longer than a whole cycle.
    world.cut("a", true);
    world
        .until("the verdict is uncertain", TTL, |world| {
            world.verdict("a") != Verdict::Held
        })
        .await;
    let cycles = world.cycles("a");
    world.pass(ms(700)).await;
    assert_eq!(world.cycles("a"), cycles);
    world.cut("a", false);
    world
        .until("it resumes", secs(5), |world| world.cycles("a") > cycles + 3)
        .await;
    world.list.pause("t-00000", true);
    world
        .until("it is dropped and released", secs(1), |world| world.held_in_all() == 1)
        .await;
    world.settle().await;
    assert!(world.lease("t-00000").await.is_none());
}

#[tokio::test]
async fn lease_granted_after_its_target_paused_is_released() {
    let mut world = World::new(1);
    world.list.pause("t-00000", true);
    world.join("a").await;
    world.pass(secs(1)).await;
    world.fault("a", Verb::Acquire, Some(Fault::Gate));
    world.list.pause("t-00000", false);
    world.settle().await;
    world.pass(ms(200)).await;
    world.list.pause("t-00000", true);
    world.pass(ms(200)).await;
    world.fault("a", Verb::Acquire, None);
    world.open("a");
    world.pass(ms(500)).await;
    assert_eq!(world.starts("t-00000"), 0);
    assert!(world.lease("t-00000").await.is_none());
    assert!(world.calls("a", Verb::ReleaseLeases) >= 1, "it was granted");
}

#[tokio::test]
async fn losing_the_tenure_ends_tasks_and_the_node_competes_again() {
    let mut world = World::new(10);
    for name in ["a", "b"] {
        world.join(name).await;
    }
    for round in 0..5 {
        world.until_all_held(secs(5)).await;
        let victim = if round % 2 == 0 { "a" } else { "b" };
        world.cut(victim, true);
        world
            .until("its work stopped", TTL * 2, |world| world.worked_on(victim).is_empty())
            .await;
        world.pass(TTL).await;
        world.cut(victim, false);
        world.pass(secs(20)).await;
    }
    world.pass(secs(60)).await;
    world.until_all_held(secs(1)).await;
    assert!(world.counts().values().all(|count| *count > 0), "{:?}", world.counts());
    world.check_store().await;
}

#[tokio::test]
async fn stubborn_work_keeps_its_lease_until_it_ends() {
    let mut world = World::new(6);
    world.behaviour("t-00002", Behaviour::Stubborn);
    for name in ["a", "b"] {
        world.join(name).await;
    }
    world.until_all_held(secs(2)).await;
    let holder = world.workers("t-00002").remove(0);
    let other = if holder == "a" { "b" } else { "a" };
    let fleet = world.fleet(&holder);
    let ended = tokio::spawn(async move { fleet.shut_down().await });
    world
        .until("the rest is handed over", secs(2), |world| {
            world.worked_on(other).len() == 5
        })
        .await;
    world.pass(secs(1)).await;
    assert_eq!(
        world.fleet(&holder).status().stubborn,
        [LeaseName::new("t-00002").unwrap()]
    );
    world.pass(secs(4)).await;
    assert_eq!(ended.await.unwrap().stubborn, [LeaseName::new("t-00002").unwrap()]);
    assert!(
        world.workers("t-00002") == [holder.clone()],
        "the lease is held while the work runs"
    );
    assert_eq!(world.lease("t-00002").await.unwrap().holder.as_str(), holder);
    let status = || world.fleet(&holder).status();
    assert_eq!((status().held, status().stubborn.len()), (1, 1));
    // The other node gets the lease only when the work has ended.
    world.release_stubborn();
    world
        .until("the other node holds it", secs(20), |world| {
            world.worked_on(other).len() == 6
        })
        .await;
    let status = world.fleet(&holder).status();
    assert_eq!((status.held, status.stubborn.len()), (0, 0), "also after the end");
    world.check_store().await;
}

#[tokio::test]
async fn shutdown_during_store_outage_releases_everything() {
    let mut world = World::new(4);
    world.settings.shut_down_within = secs(3);
    world.join("a").await;
    world.until_all_held(secs(2)).await;
    world.fault("a", Verb::ReleaseLeases, Some(Fault::Hang { applied: false }));
    let fleet = world.fleet("a");
    let ended = tokio::spawn(async move { fleet.shut_down().await });
    world.pass(world.settings.shut_down_within + secs(1)).await;
    assert_eq!(ended.await.unwrap(), ShutDown::default());
    assert_eq!(world.fleet("a").status().held, 0, "no work is running");
}

#[tokio::test]
async fn ended_or_panicked_task_restarts_after_a_pause() {
    let mut world = World::new(3);
    world.behaviour("t-00000", Behaviour::Returns);
    world.behaviour("t-00001", Behaviour::Panics);
    world.join("a").await;
    world.pass(secs(130)).await;
    // 1 s, 2 s, 4 s … one minute.
    for target in ["t-00000", "t-00001"] {
        let starts = world.starts(target);
        assert!((6..=9).contains(&starts), "{target}: {starts}");
        assert_eq!(world.lease(target).await.unwrap().holder.as_str(), "a");
    }
    assert_eq!(world.starts("t-00002"), 1);
    assert!(world.fleet("a").status().restarts >= 12);
}

#[tokio::test]
async fn member_outside_the_fleet_gets_only_one_handoff() {
    let mut world = World::new(60);
    world.join("a").await;
    world.join("b").await;
    world.until_all_held(secs(2)).await;
    world.pass(secs(40)).await;
    world.join_without_fleet("idle").await;
    let moves = world.moves();
    world.pass(secs(120)).await;
    // One from each of the two nodes, which returns after its reservation.
    assert!(world.moves() - moves <= 4, "{}", world.moves() - moves);
    world.until_all_held(secs(6)).await;
}

#[tokio::test]
async fn a_handed_off_target_of_an_ended_member_is_taken_back() {
    let mut world = World::new(60);
    world.join("a").await;
    world.join("b").await;
    world.until_all_held(secs(2)).await;
    world.pass(secs(40)).await;
    let idle = world.join_without_fleet("idle").await;
    let handed = |world: &World| world.held_in_all() < 60;
    world.until("a target is handed to it", secs(120), handed).await;
    world.run(idle.leave()).await.unwrap();
    world.until_all_held(secs(1)).await;
}

#[tokio::test]
async fn changes_are_found_by_polling_without_events() {
    let mut world = World::new(30);
    for name in ["a", "b"] {
        world.join(name).await;
        world.fault(
            name,
            Verb::Events,
            Some(Fault::Fail(tenure_core::error::ErrorKind::Unsupported)),
        );
    }
    world.until_all_held(secs(12)).await;
    world.cut("a", true);
    world
        .until("b has everything", TTL + secs(1), |world| {
            world.worked_on("b").len() == 30
        })
        .await;
    world.check_store().await;
}

#[tokio::test]
async fn failing_or_panicking_source_keeps_the_work_running() {
    let mut world = World::new(10);
    world.join("a").await;
    world.until_all_held(secs(2)).await;
    let cycles = world.cycles("a");
    world.break_source(true);
    world.pass(secs(30)).await;
    assert!(world.cycles("a") > cycles);
    let status = world.fleet("a").status();
    assert_eq!((status.held, status.panics), (10, 0));
    assert!(status.last_error.unwrap().contains("source of targets panicked"));
    world.break_source(false);
    world.list.put("t-more", TargetSpec::default()).unwrap();
    world
        .until("the new one is held", secs(5), |world| world.held_in_all() == 11)
        .await;
}

#[tokio::test]
async fn process_pause_neither_bursts_nor_trusts_leases() {
    let mut world = World::new(10);
    world.join("a").await;
    world.join("b").await;
    world.until_all_held(secs(2)).await;
    let looks = world.calls("a", Verb::Look);
    let cycles = world.cycles("a");
    // One jump, as after a suspend: no task ran in between.
    world.clock.advance(secs(3_600));
    world.settle().await;
    assert_eq!(world.cycles("a"), cycles, "no cycle before a confirmation");
    world.pass(secs(5)).await;
    assert!(
        world.calls("a", Verb::Look) - looks < 40,
        "{}",
        world.calls("a", Verb::Look) - looks
    );
    world.until_all_held(secs(30)).await;
    world.check_store().await;
}

#[tokio::test]
async fn settle_wakes_a_fleet_that_was_refused() {
    for is_deaf in [false, true] {
        let mut world = World::new(10);
        world.settings.discovery = secs(3);
        world.join("first").await;
        world.until_all_held(secs(2)).await;
        world.drop_fleet("first");
        world
            .until("all is given back", secs(2), |world| world.held_in_all() == 0)
            .await;
        // A hole in the service: no free lease is granted for a ttl.
        world.clock.advance(secs(3_600));
        world.pass(ms(100)).await;
        world.join("a").await;
        if is_deaf {
            world.fault("a", Verb::Events, Some(Fault::Fail(ErrorKind::Unsupported)));
        }
        world.pass(secs(2)).await;
        assert!(world.calls("a", Verb::Acquire) >= 1 && world.held_in_all() == 0);
        let asked = world.calls("a", Verb::Acquire);
        world.settle_group().await;
        world.until_all_held(if is_deaf { secs(4) } else { secs(1) }).await;
        assert!(
            world.calls("a", Verb::Acquire) - asked <= 4,
            "it asks once, not in a loop"
        );
        world.check_store().await;
    }
}

#[tokio::test]
async fn invalid_settings_are_rejected() {
    let mut world = World::new(1);
    let membership = world.join_without_fleet("a").await;
    for (settings, must_say) in [
        (
            FleetSettings {
                discovery: ms(1),
                ..FleetSettings::default()
            },
            "discovery",
        ),
        (
            FleetSettings {
                restart_after: ms(0),
                ..FleetSettings::default()
            },
            "restart_after",
        ),
        (
            FleetSettings {
                placing: fleet::Settings {
                    max_handoffs: 0,
                    ..fleet::Settings::default()
                },
                ..FleetSettings::default()
            },
            "max_handoffs",
        ),
    ] {
        let refused = Fleet::builder(&membership).settings(settings).start(|_| async {});
        assert!(refused.unwrap_err().to_string().contains(must_say));
    }
}

#[tokio::test]
async fn joining_and_leaving_nodes_are_seen_immediately() {
    let mut world = World::new(1);
    world.join("a").await;
    world.pass(secs(3)).await;
    let sees = |world: &World, nodes| world.fleet("a").status().nodes == nodes;
    let idle = world.join_without_fleet("idle").await;
    world.until("it is seen", ms(200), |world| sees(world, 2)).await;
    idle.leave().await.unwrap();
    world.until("it is gone", ms(200), |world| sees(world, 1)).await;
}

#[tokio::test]
async fn member_weights_and_labels_apply() {
    let mut world = World::new(300);
    world.settings.nodes = Nodes::Labelled {
        name: "role".to_owned(),
        value: "poller".to_owned(),
    };
    world
        .join_labelled("a", &[("role", "poller"), ("fleet.weight", "3")])
        .await;
    world.join_labelled("b", &[("role", "poller")]).await;
    world.join_without_fleet("idle").await;
    world.until_all_held(secs(2)).await;
    world.pass(secs(60)).await;
    let counts = world.counts();
    assert!((200..=250).contains(&counts["a"]), "{counts:?}");
    world.until_all_held(secs(1)).await;
}

#[tokio::test]
async fn changed_labels_move_targets_without_a_rejoin() {
    let mut world = World::new(300);
    world.settings.nodes = Nodes::Labelled {
        name: "role".to_owned(),
        value: "poller".to_owned(),
    };
    world.join_labelled("a", &[("role", "poller")]).await;
    world.join_labelled("b", &[("role", "spare")]).await;
    world.until_all_held(secs(2)).await;
    world.pass(secs(3)).await;
    let (a, b) = (world.member_of("a"), world.member_of("b"));
    let tenures = [a.tenure(), b.tenure()];
    // An event tells the nodes; the next listing is 10 s away.
    b.set_labels(labels(&[("role", "poller")])).await.unwrap();
    let sees = |world: &World, nodes| world.fleet("a").status().nodes == nodes;
    world.until("b is a node", ms(200), |world| sees(world, 2)).await;
    world.pass(secs(60)).await;
    let counts = world.counts();
    assert!((120..=180).contains(&counts["b"]), "{counts:?}");
    a.set_labels(labels(&[("role", "poller"), ("fleet.weight", "3")]))
        .await
        .unwrap();
    world.pass(secs(60)).await;
    let counts = world.counts();
    assert!((200..=250).contains(&counts["a"]), "{counts:?}");
    assert_eq!([a.tenure(), b.tenure()], tenures);
    b.set_labels(Labels::default()).await.unwrap();
    world.until("b is no node", ms(200), |world| sees(world, 1)).await;
    world.check_store().await;
}

#[tokio::test]
async fn dropping_the_handle_shuts_the_fleet_down() {
    let mut world = World::new(10);
    world.join("a").await;
    world.join("b").await;
    world.until_all_held(secs(2)).await;
    world.drop_fleet("a");
    world
        .until("b has everything", secs(2), |world| world.worked_on("b").len() == 10)
        .await;
    world.check_store().await;
}
