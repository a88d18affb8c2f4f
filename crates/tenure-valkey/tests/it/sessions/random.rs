//! Random corruptions, several together: one reconcile repairs every detectable corruption, the next finds nothing, and
//! live sessions survive.

use tenure_core::conformance::{Cases, Chance};
use tenure_core::session::SessionState;
use tenure_testkit::valkey::Flavour;

use crate::sessions::set_up::*;
use crate::world::*;

on_both! { random_corruptions_are_repaired }

/// One random corruption of the indexes; `sess:` hashes of live sessions are left alone.
fn corruption(chance: &mut Chance, tenures: &[String]) -> Vec<String> {
    let name = format!("s{}", chance.below(8));
    let tenure = chance.of(tenures);
    let connected = key_of(&format!("connected:{tenure}"));
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let due = chance.below(2_000_000_000_000_000).to_string();
    match chance.below(12) {
        0 => words(&["ZREM", &key_of("disconnected"), &name]),
        1 => words(&["ZADD", &key_of("disconnected"), &due, &name]),
        2 => words(&["DEL", &key_of("disconnected")]),
        3 => words(&["ZADD", &key_of("disconnected"), &due, "nobody"]),
        4 => words(&["DEL", &key_of("aliases")]),
        5 => words(&["HSET", &key_of("aliases"), &format!("a{}", chance.below(8)), &name]),
        6 => words(&["ZADD", &key_of("sessions"), "0", "nobody"]),
        7 => words(&["SREM", &connected, &format!("{name}/c")]),
        8 => words(&["SADD", &connected, &format!("{name}/ghost{}", chance.below(2))]),
        9 => words(&[
            "HSET",
            &key_of(&format!("conns:{name}")),
            "other",
            &format!("{tenure} 77"),
        ]),
        10 => words(&["HSET", &key_of(&format!("conns:{name}")), "ghost", "nobody@7 8"]),
        _ => words(&["SET", &key_of("disconnected"), "foreign"]),
    }
}

async fn random_corruptions_are_repaired(flavour: Flavour) {
    let cases = Cases::times(40);
    let (world, mut chance) = (Sessions::new(flavour).await, cases.chance());
    for case in 0..cases.count {
        world.wipe().await;
        let fronts = [join(&world.store, "a").await, join(&world.store, "b").await];
        for n in 0..8 {
            let name = format!("s{n}");
            let front = &fronts[n % 2];
            world.attach(front, &name, "c", Some(&format!("a{n}"))).await;
            if n >= 4 {
                world.detach(front, &name, "c").await;
            }
        }
        let tenures = fronts.each_ref().map(ToString::to_string);
        let done: Vec<Vec<String>> = (0..1 + chance.below(6))
            .map(|_| corruption(&mut chance, &tenures))
            .collect();
        for words in &done {
            // A command that does not fit a key's new type has nothing left to corrupt.
            drop(world.server.cli(words).unwrap());
        }
        let about = format!("case {case} of {cases}: {done:?}");
        let limit = if chance.below(2) == 0 { 200 } else { 3 };
        world.reconcile(limit).await;
        let again = world.reconcile(limit).await;
        assert!(again.is_empty(), "{about}: a second one finds {again:?}");
        for n in 0..8 {
            let seen = world
                .seen(&format!("s{n}"))
                .await
                .unwrap_or_else(|| panic!("{about}: s{n} is lost"));
            assert_eq!(seen.data, Sessions::data_of(&format!("s{n}")), "{about}");
            if n < 4 {
                assert_eq!(seen.state, SessionState::Active, "{about}: s{n}");
            }
        }
        assert_eq!(world.listed(None).await.len(), 8, "{about}");
        let (mut held, mut connections) = (0, 0);
        for front in &fronts {
            let set = world.run(&["SCARD", &key_of(&format!("connected:{front}"))]);
            held += set.int().unwrap();
        }
        for n in 0..8 {
            connections += world.run(&["HLEN", &key_of(&format!("conns:s{n}"))]).int().unwrap();
        }
        assert_eq!(held, connections, "{about}");
    }
}
