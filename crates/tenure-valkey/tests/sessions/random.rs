//! Random corruptions, several at once: whatever was done, one reconcile repairs all that can be told, the next finds nothing,
//! and what lives lives on.

use std::time::Duration;

use tenure_core::session::SessionState;
use tenure_testkit::valkey::Flavour;

use crate::set_up::*;
use crate::world::*;

on_both! { random_corruptions_are_repaired }

/// Chance from a seed: splitmix64 (Steele, Lea, Flood 2014).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// One thing that somebody does to the indices by hand; `sess:` hashes of the living are left alone.
fn corruption(chance: &mut Chance, tenures: &[String]) -> Vec<String> {
    let name = format!("s{}", chance.below(8));
    let tenure = &tenures[usize::try_from(chance.below(2)).unwrap()];
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
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (cases, seed) = (number("TENURE_RANDOM_CASES", 40), number("TENURE_RANDOM_SEED", 1));
    let (world, mut chance) = (Sessions::new(flavour).await, Chance(seed));
    for case in 0..cases {
        world.run(&["FLUSHALL"]);
        mature(&world.server);
        world.pass(Duration::from_millis(1)).await;
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
            // What no longer fits the type that another one has given the key has been done already.
            drop(world.server.cli(words).unwrap());
        }
        let about = format!("case {case} of TENURE_RANDOM_SEED={seed}: {done:?}");
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
