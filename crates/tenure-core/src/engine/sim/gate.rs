//! Commits are held while random calls are made: whatever is let out is what a store would say that has only what is
//! durable.

use super::disk::Luck;
use super::draw::{look, ms, step};
use super::world::World;
use crate::conformance::{Cases, Chance};
use crate::id::Group;
use crate::session::SessionSettings;
use crate::store::{Call, StoreOptions};

pub(super) fn options() -> StoreOptions {
    StoreOptions {
        max_ttl: ms(20_000),
        sessions: SessionSettings {
            grace: ms(3_000),
            max_age: Some(ms(30_000)),
        },
        ..StoreOptions::default()
    }
}

pub(super) fn groups() -> [Group; 2] {
    ["g", "h"].map(|name| Group::new(name).expect("a name"))
}

/// Calls of all kinds, of which some wait.
pub(super) fn calls(world: &mut World, chance: &mut Chance, count: usize) -> Result<(), String> {
    for _ in 0..count {
        let group = chance.of(&groups()).clone();
        let known = world.known.entry(group.clone()).or_default();
        let op = match chance.below(3) {
            0 => step(chance, known),
            _ => look(chance, known),
        };
        world.clock.advance(ms(1));
        world.ask(&group, op, Call::default())?;
    }
    Ok(())
}

fn history(seed: u64) -> Result<usize, String> {
    let mut chance = Chance::new(seed);
    let mut world = World::new(options());
    for _ in 0..20 {
        calls(&mut world, &mut chance, 4)?;
        world.begin_commit();
        // The commit takes its time.
        calls(&mut world, &mut chance, 6)?;
        if chance.below(3) == 0 {
            world.pass(ms(100))?;
            calls(&mut world, &mut chance, 4)?;
        }
        world.end_commit(Luck::Good);
        world.poll_all()?;
        if chance.below(4) == 0 {
            world.settle()?;
            let long = *chance.of(&[300, 900, 2_600, 7_000]);
            world.pass(ms(long))?;
        }
    }
    world.settle()?;
    Ok(world.compared)
}

#[test]
fn nothing_is_let_out_before_it_is_durable() {
    let cases = Cases::times(200);
    let mut compared = 0;
    for seed in cases.seed..cases.seed + cases.count {
        match history(seed) {
            Ok(count) => compared += count,
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(
        compared > 100 * usize::try_from(cases.count).unwrap(),
        "only {compared} answers were compared"
    );
}
