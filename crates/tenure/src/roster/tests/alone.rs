//! One process loses the hot store while another keeps it.

use std::time::Duration;

use tenure_core::error::Result;
use tenure_core::id::RosterName;
use tenure_core::roster::{Task, Turn, TurnRequest};
use tenure_core::store::Call;

use super::super::freshness::SILENCE;
use super::super::sweeps::TURN;
use super::world::{Instance, Mode, World, name};
use super::*;
use crate::testing::{Telemetry, ms, secs};

/// `stale_after` of these tests: shorter than the interval at which heartbeats are recorded without a request.
const STALE: Duration = secs(5);
const EVERYONE: [&str; 3] = ["ada", "bob", "cyd"];

fn stale_after(stale_after: Duration) -> SettingsPatch {
    SettingsPatch {
        stale_after: Some(stale_after),
        ..SettingsPatch::default()
    }
}

/// A process that is about to lose the hot store, and one that is not.
async fn two(world: &World) -> (Instance, Instance) {
    let (alone, other) = (world.start_sweeping(), world.start_sweeping());
    for process in [&alone, &other] {
        world.until_believed(process).await;
    }
    (alone, other)
}

async fn staffed(world: &World) -> (Instance, Instance) {
    let (alone, other) = two(world).await;
    other.desk.set_settings(&stale_after(STALE)).await.unwrap();
    for who in EVERYONE {
        other.arrive(who).await;
    }
    world.pass(secs(1)).await;
    (alone, other)
}

/// The available providers by a roster: `None` where the answer is unknown, with a time to retry.
fn known(answer: Result<Sourced<Vec<tenure_core::ledger::Candidate>>>) -> Option<Vec<String>> {
    match answer {
        Ok(answer) => Some(answer.value.iter().map(|free| free.provider.to_string()).collect()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.retry_after().is_some(), "{error}");
            None
        }
    }
}

async fn hear(process: &Instance, names: &[&str]) {
    for who in names {
        process.hear(who).await;
    }
}

/// Advances the clock while these send a heartbeat to a process each second.
async fn pass_hearing(world: &World, process: &Instance, names: &[&str], seconds: u64) {
    for _ in 0..seconds {
        hear(process, names).await;
        world.pass(secs(1)).await;
    }
}

#[tokio::test]
async fn process_without_hot_store_sees_heartbeats_of_others() {
    let world = World::new().await;
    let (alone, other) = staffed(&world).await;
    alone.store.be(Mode::Fails);
    let mut refused = 0;
    for n in 0..120 {
        if n % 4 == 0 {
            hear(&other, &EVERYONE).await;
        }
        world.pass(ms(250)).await;
        match known(alone.desk.available(100).await) {
            Some(found) => assert_eq!(found, EVERYONE, "after {} ms", (n + 1) * 250),
            None => refused += 1,
        }
        let counted = alone.desk.availability().await;
        assert!(
            counted.is_err() || counted.is_ok_and(|counted| counted.value.count == 3),
            "after {} ms",
            (n + 1) * 250
        );
    }
    assert!(refused <= 8, "{refused} of 120 refused");
    let reserved = alone.desk.reserve(&wanted("e1")).await.unwrap();
    assert!(matches!(reserved, Reservation::Reserved(_)), "{reserved:?}");

    // A lapse shows as well, also before the ledger follows.
    pass_hearing(&world, &other, &["ada", "bob"], 12).await;
    let sorted = |mut found: Vec<String>| {
        found.sort();
        found
    };
    let found = known(alone.desk.available(100).await).expect("passes come every few seconds");
    assert_eq!(sorted(found), ["ada", "bob"]);

    // Then the passes end, because no process reaches the store: the heartbeats noted since count.
    other.store.be(Mode::Fails);
    for n in 0..160 {
        if n % 4 == 0 {
            hear(&other, &["ada", "bob"]).await;
        }
        world.pass(ms(250)).await;
        let found = known(alone.desk.available(100).await);
        assert!(
            found.is_none_or(|found| sorted(found) == ["ada", "bob"]),
            "after {} ms",
            (n + 1) * 250
        );
    }
    let found = known(alone.desk.available(100).await).expect("passes have stopped");
    assert_eq!(sorted(found), ["ada", "bob"]);
}

#[tokio::test]
async fn process_without_hot_store_refuses_while_it_cannot_know() {
    let world = World::new().await;
    let (alone, other) = staffed(&world).await;
    let short = secs(2);
    other.desk.set_settings(&stale_after(short)).await.unwrap();
    // The pass from the start is too old to prove anything.
    pass_hearing(&world, &other, &EVERYONE, 15).await;
    hear(&other, &EVERYONE).await;
    // No process reaches the hot store: no pass can come.
    for process in [&alone, &other] {
        process.store.be(Mode::Fails);
    }
    let mut refused = 0;
    for n in 0..120 {
        if n % 2 == 0 {
            hear(&other, &["ada", "bob"]).await;
        }
        world.pass(ms(250)).await;
        match known(alone.desk.available(100).await) {
            Some(found) if n < 8 => assert_eq!(found, EVERYONE),
            Some(found) => assert_eq!(found, ["ada", "bob"], "what the other noted"),
            None => refused += 1,
        }
    }
    assert!(refused > 0, "between stale_after and silence nothing is known");
    let most = u64::try_from((SILENCE + secs(2)).as_millis() / 250).unwrap();
    assert!(refused <= most, "{refused} of 120 refused");
    assert_eq!(
        known(alone.desk.available(100).await),
        Some(vec!["ada".to_owned(), "bob".to_owned()])
    );
}

/// A process that died in the middle of a pass keeps the turn, so no pass comes although the hot store is reachable.
#[tokio::test]
async fn dead_holder_of_the_turn_does_not_deny_the_living() {
    let world = World::new().await;
    let (alone, other) = staffed(&world).await;
    pass_hearing(&world, &other, &EVERYONE, 15).await;
    alone.store.be(Mode::Fails);
    let dead = TurnRequest {
        task: Task::Heartbeats,
        holder: "dead".to_owned(),
        lasts: TURN,
        every: Duration::ZERO,
    };
    // It takes the turn as soon as the mark stands, when the other process is not in a pass itself.
    let mut is_blocked = false;
    for n in 0..160 {
        if n % 2 == 0 {
            hear(&other, &EVERYONE).await;
        }
        if n >= 4 && !is_blocked {
            let turn = world
                .memory
                .take_turn(&world.group, &dead, Call::default())
                .await
                .unwrap();
            is_blocked = matches!(turn, Turn::Mine(_));
        }
        world.pass(ms(250)).await;
        if let Some(found) = known(alone.desk.available(100).await) {
            assert_eq!(found, EVERYONE, "after {} ms", (n + 1) * 250);
        }
    }
    assert!(is_blocked);
    let passes = known(alone.desk.available(100).await);
    assert!(passes.is_some(), "passes come again after the turn");
}

#[tokio::test]
async fn process_without_hot_store_never_denies_a_new_roster() {
    let world = World::new().await;
    let (alone, other) = two(&world).await;
    alone.store.be(Mode::Fails);
    world.pass(secs(10)).await;
    let fresh = RosterName::new("fresh").unwrap();
    let (seen, kept) = (
        alone.rosters.roster(&fresh).unwrap(),
        other.rosters.roster(&fresh).unwrap(),
    );
    kept.set_settings(&stale_after(secs(2))).await.unwrap();
    for who in EVERYONE {
        kept.put_provider(&name(who), &ProviderSpec::default()).await.unwrap();
        kept.online(&name(who)).await.unwrap();
    }
    let mut known_at_last = false;
    for n in 0..80 {
        if n % 2 == 0 {
            for who in EVERYONE {
                assert!(matches!(
                    kept.heartbeat(&name(who), None).await.unwrap(),
                    HeartbeatOutcome::Recorded(_)
                ));
            }
        }
        world.pass(ms(250)).await;
        let found = known(seen.available(100).await);
        known_at_last = found.is_some();
        assert!(
            found.is_none_or(|found| found == EVERYONE),
            "after {} ms",
            (n + 1) * 250
        );
    }
    assert!(known_at_last);
}

#[tokio::test]
async fn frequent_recording_stops_when_no_process_needs_it() {
    let world = World::new().await;
    let (alone, other) = staffed(&world).await;
    alone.store.be(Mode::Fails);
    pass_hearing(&world, &other, &EVERYONE, 10).await;
    let passes = || other.ledger.calls("note_heartbeat_pass");
    let before = passes();
    pass_hearing(&world, &other, &EVERYONE, 20).await;
    assert!((8..=12).contains(&(passes() - before)), "{} in 20 s", passes() - before);
    alone.store.be(Mode::Up);
    world.until_believed(&alone).await;
    pass_hearing(&world, &other, &EVERYONE, 15).await;
    let before = passes();
    pass_hearing(&world, &other, &EVERYONE, 40).await;
    assert!(passes() - before <= 1, "{} in 40 s", passes() - before);
}

#[tokio::test]
async fn short_stale_after_is_warned_of_once() {
    let ears = Telemetry::default();
    let _listening = ears.listen();
    let world = World::new().await;
    let process = world.start_sweeping();
    world.until_believed(&process).await;
    let warned = || ears.lines("stale_after is shorter than the interval");
    assert_eq!(warned(), 0);
    process.desk.set_settings(&stale_after(STALE)).await.unwrap();
    world.pass(secs(10)).await;
    assert_eq!(warned(), 1);
    process.desk.set_settings(&stale_after(secs(60))).await.unwrap();
    world.pass(secs(10)).await;
    assert_eq!(warned(), 1);
}
