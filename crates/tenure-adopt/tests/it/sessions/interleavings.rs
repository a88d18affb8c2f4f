//! A writer that resumes a session at the moment when it is reaped.

use std::sync::{Arc, Mutex};

use tenure_adopt::{ReapNotice, Unit};
use tenure_core::clock::{Clock, ManualClock};
use tenure_core::conformance::Cases;
use tenure_testkit::valkey::Flavour;

use crate::sessions::world::{FIELD, World, fresh, hour_ago, reaper, sessions, settings};

/// The writer's action between the read of the index and the deletion.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Move {
    /// None: the session is reaped.
    None,
    /// Resumes: first the field, then the count, then the alias.
    Reconnect,
    /// Resumes, but only up to the count.
    Counted,
    /// Resumes by deleting the field.
    FieldRemoved,
    /// Resumes and disconnects again.
    Blinked,
    /// Resumes by the count and not by the field.
    CountedTwice,
    /// Deletes the session.
    Deleted,
    /// Deletes the session and creates it again, active.
    MadeAnew,
    /// Points the alias to another session.
    AliasTaken,
    /// Changes another session.
    Neighbour,
}

const MOVES: [Move; 10] = [
    Move::None,
    Move::Reconnect,
    Move::Counted,
    Move::FieldRemoved,
    Move::Blinked,
    Move::CountedTwice,
    Move::Deleted,
    Move::MadeAnew,
    Move::AliasTaken,
    Move::Neighbour,
];

fn act(world: &World, id: &str, what: Move) {
    let (session, refs, alias) = (
        format!("session:{id}"),
        format!("session:{id}:refs"),
        format!("alias:b-{id}"),
    );
    match what {
        Move::None => {}
        Move::Reconnect => {
            world.run(&["HSET", &session, FIELD, "0"]);
            world.run(&["INCR", &refs]);
            world.run(&["SET", &alias, id]);
        }
        Move::Counted => {
            world.run(&["INCR", &refs]);
        }
        Move::FieldRemoved => {
            world.run(&["HDEL", &session, FIELD]);
        }
        Move::Blinked => {
            world.run(&["HSET", &session, FIELD, "0"]);
            world.run(&["HSET", &session, FIELD, &fresh(Unit::Seconds)]);
        }
        Move::CountedTwice => {
            world.run(&["INCRBY", &refs, "2"]);
            world.run(&["DECR", &refs]);
        }
        Move::Deleted => {
            world.run(&["DEL", &session, &refs, &alias]);
        }
        Move::MadeAnew => {
            world.run(&["DEL", &session]);
            world.session(id, "0");
        }
        Move::AliasTaken => {
            world.run(&["SET", &alias, "another"]);
        }
        Move::Neighbour => world.session(&format!("{id}-neighbour"), "0"),
    }
}

fn survives(what: Move) -> bool {
    !matches!(what, Move::None | Move::Deleted | Move::AliasTaken | Move::Neighbour)
}

#[tokio::test(flavor = "multi_thread")]
async fn random_interleavings_never_reap_an_active_session() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        let seed = 0x5e55;
        let chance = ManualClock::new(0, seed);
        let made: Arc<Mutex<Vec<(String, Move)>>> = Arc::default();
        let (acting, acted) = (Arc::clone(&world), Arc::clone(&made));
        // Between the read of the index and the deletion.
        let listener = move |notice: &ReapNotice<'_>| {
            if let ReapNotice::Reaping(ids) = notice {
                assert!(!ids.is_empty() && ids.len() <= 100);
                acted
                    .lock()
                    .unwrap()
                    .iter()
                    .for_each(|(id, what)| act(&acting, id, *what));
            }
        };
        world.has_run_for_a_while().await;
        let sessions = sessions(&world.server.url(), settings()).await;
        let mut reaper = reaper(&world.server.url(), settings())
            .await
            .with_listener(Box::new(listener));
        let mut seen = [0u64; MOVES.len()];
        let rounds = Cases::times(200).count;
        for round in 0..rounds {
            let round_made: Vec<(String, Move)> = (0..=chance.entropy() % 4)
                .map(|n| {
                    let kind = (chance.entropy() % MOVES.len() as u64) as usize;
                    seen[kind] += 1;
                    (format!("{round}-{n}"), MOVES[kind])
                })
                .collect();
            for (id, _) in &round_made {
                world.session(id, &hour_ago());
                world.run(&["HSET", &format!("session:{id}"), "broadcaster_id", &format!("b-{id}")]);
                world.run(&["SET", &format!("session:{id}:refs"), "0"]);
                world.run(&["SET", &format!("alias:b-{id}"), id]);
            }
            sessions.index(&|_| {}).await.unwrap();
            *made.lock().unwrap() = round_made;
            let report = reaper.pass().await.unwrap();
            let round_made = std::mem::take(&mut *made.lock().unwrap());
            let told = format!("{flavour:?}, seed {seed}, round {round}: {report:?}");
            assert_eq!(report.quarantined, None, "{told}");
            let mut reaped = 0;
            for (id, what) in &round_made {
                let told = format!("{id} {what:?}: {told}");
                assert_eq!(world.has(&format!("session:{id}")), survives(*what), "{told}");
                let (refs, alias) = (format!("session:{id}:refs"), format!("alias:b-{id}"));
                assert_eq!(world.has(&refs), survives(*what), "{told}");
                assert_eq!(
                    world.has(&alias),
                    survives(*what) || *what == Move::AliasTaken,
                    "{told}"
                );
                reaped += u64::from(!survives(*what) && *what != Move::Deleted);
            }
            assert_eq!(report.reaped, reaped, "{told}");
            sessions.undo().await.unwrap();
            for pattern in ["session:*", "alias:*"] {
                let keys = world.run(&["KEYS", pattern]).texts();
                keys.iter().for_each(|key| drop(world.run(&["DEL", key])));
            }
        }
        assert!(
            seen.iter().all(|times| *times > rounds / 10),
            "not every action was tried: {seen:?}"
        );
    }
}
