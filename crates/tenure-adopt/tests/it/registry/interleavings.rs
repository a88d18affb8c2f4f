//! An eviction decided for a dead owner must not hit a successor (J1).

use std::sync::{Arc, Mutex};

use tenure_adopt::Notice;
use tenure_core::clock::{Clock, ManualClock};
use tenure_core::conformance::Cases;
use tenure_testkit::valkey::Flavour;

use crate::registry::world::{World, ready, settings};

/// The action of other programs on one entry between the decision and the eviction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Move {
    /// None: the entry is evicted.
    None,
    /// The device connects to a living instance.
    ToLiving,
    /// The device connects to an instance that has not beaten yet.
    ToUnseen,
    /// The owner itself recovers and beats; its entry is unchanged.
    OwnerBack,
    /// The instance recovers under the same id, beats, and claims the device again with the same value.
    ClaimedAgain,
    /// The device left and connected to another instance.
    GoneAndBack,
    /// The owner itself removed the entry.
    Removed,
    /// Another device of the same owner changes.
    Neighbour,
}

const MOVES: [Move; 8] = [
    Move::None,
    Move::ToLiving,
    Move::ToUnseen,
    Move::OwnerBack,
    Move::ClaimedAgain,
    Move::GoneAndBack,
    Move::Removed,
    Move::Neighbour,
];

struct Device {
    name: String,
    owner: String,
    /// The action, and whether it comes before or during the pass.
    act: Move,
}

fn act(world: &World, device: &Device) {
    let (name, owner) = (device.name.as_str(), device.owner.as_str());
    match device.act {
        Move::None => {}
        Move::ToLiving => world.claim(name, "living"),
        Move::ToUnseen => world.claim(name, "unseen"),
        Move::OwnerBack => world.beat(owner),
        Move::ClaimedAgain => {
            world.beat(owner);
            world.claim(name, owner);
        }
        Move::GoneAndBack => {
            world.run(&["HDEL", crate::registry::world::HASH, name]);
            world.claim(name, "living");
        }
        Move::Removed => {
            world.run(&["HDEL", crate::registry::world::HASH, name]);
        }
        Move::Neighbour => world.claim(&format!("{name}-neighbour"), "living"),
    }
}

/// The expected owner afterwards.
fn expected(device: &Device) -> Option<String> {
    match device.act {
        Move::None | Move::Removed | Move::Neighbour => None,
        Move::ToLiving | Move::GoneAndBack => Some("living".to_owned()),
        Move::ToUnseen => Some("unseen".to_owned()),
        Move::OwnerBack | Move::ClaimedAgain => Some(device.owner.clone()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_interleavings_never_remove_a_fresh_claim() {
    for flavour in Flavour::ALL {
        let Some(world) = World::start(flavour) else { return };
        let seed = 0x7e_0001;
        let chance = ManualClock::new(0, seed);
        let devices: Arc<Mutex<Vec<Device>>> = Arc::default();
        let (acting, acted) = (Arc::clone(&world), Arc::clone(&devices));
        // Between the decision about a page and its eviction.
        let listener = move |notice: &Notice<'_>| {
            if let Notice::Evicting(page) = notice {
                assert!(!page.is_empty() && page.len() <= 200);
                acted.lock().unwrap().iter().for_each(|device| act(&acting, device));
            }
        };
        let mut one_look = settings(0);
        one_look.brake.share = 1.0;
        let mut janitor = ready(&world.server.url(), one_look)
            .await
            .with_listener(Box::new(listener));
        let mut seen = [0u64; MOVES.len()];
        let rounds = Cases::times(200).count;
        for round in 0..rounds {
            world.run(&["FLUSHDB"]);
            // The janitor recognizes a flush; a pass that detects lost data evicts nothing.
            janitor.pass(false).await.unwrap();
            world.beat("living");
            let made: Vec<Device> = (0..=chance.entropy() % 6)
                .map(|n| {
                    let kind = (chance.entropy() % MOVES.len() as u64) as usize;
                    seen[kind] += 1;
                    // Separate owners: one that recovers must not save another one's entry.
                    Device {
                        name: format!("device-{n}"),
                        owner: format!("dead-{n}"),
                        act: MOVES[kind],
                    }
                })
                .collect();
            made.iter().for_each(|device| world.claim(&device.name, &device.owner));
            *devices.lock().unwrap() = made;
            let report = janitor.pass(false).await.unwrap();
            let devices = std::mem::take(&mut *devices.lock().unwrap());
            let told = format!("{flavour:?}, seed {seed}, round {round}: {report:?}");
            for device in &devices {
                assert_eq!(
                    world.owner(&device.name),
                    expected(device),
                    "{} {:?}: {told}",
                    device.name,
                    device.act
                );
            }
            let removed = devices
                .iter()
                .filter(|d| matches!(d.act, Move::None | Move::Neighbour))
                .count() as u64;
            assert_eq!(report.evicted_total(), removed, "{told}");
        }
        assert!(
            seen.iter().all(|times| *times > rounds / 10),
            "not every action was tried: {seen:?}"
        );
    }
}
