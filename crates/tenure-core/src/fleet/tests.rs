//! One decision at a time, and whole fleets of planners over a world that grants leases.

mod world;

use proptest::prelude::*;

use super::*;
use crate::placement::Placement;
use world::{World, at, lease, ms, secs};

fn member(name: &str) -> MemberId {
    MemberId::new(name).unwrap()
}

fn node(name: &str) -> FleetNode {
    FleetNode {
        node: Node::new(member(name)),
        alive: true,
        draining: false,
    }
}

/// What a node may know, owned.
struct Desk {
    me: Node,
    draining: bool,
    nodes: Vec<FleetNode>,
    targets: BTreeMap<LeaseName, TargetSpec>,
    leases: BTreeMap<LeaseName, Seen>,
    held: BTreeMap<LeaseName, Mono>,
}

impl Desk {
    /// `a`, `b` and `c` are there; this is the one in place `rank` of the order of the target `t`.
    fn of_rank(rank: usize) -> Self {
        let nodes = ["a", "b", "c"].map(node).to_vec();
        let placement = Placement::new(nodes.iter().map(|node| node.node.clone()));
        Self {
            me: Node::new(placement.rank("t")[rank].clone()),
            draining: false,
            nodes,
            targets: BTreeMap::from([(lease("t"), TargetSpec::default())]),
            leases: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    fn seeing(mut self, seen: Seen) -> Self {
        self.leases.insert(lease("t"), seen);
        self
    }

    fn holding_since(mut self, since: Mono) -> Self {
        self.held.insert(lease("t"), since);
        self
    }

    /// The node in place `rank`, to be changed.
    fn node(&mut self, rank: usize) -> &mut FleetNode {
        let name = self.name(rank);
        self.nodes.iter_mut().find(|node| node.node.name == name).unwrap()
    }

    fn name(&self, rank: usize) -> MemberId {
        let placement = Placement::new(self.nodes.iter().map(|node| node.node.clone()));
        placement.rank("t")[rank].clone()
    }

    /// The plan at `now`, of a membership that has been the same since 100 s.
    fn plan(&self, now: Mono) -> Plan {
        let view = View {
            now,
            me: &self.me,
            draining: self.draining,
            nodes: &self.nodes,
            stable_since: at(100_000),
            targets: &self.targets,
            leases: &self.leases,
            held: &self.held,
        };
        plan(&view, &Settings::default())
    }
}

fn acquires() -> Plan {
    Plan {
        acquire: vec![lease("t")],
        ..Plan::default()
    }
}

fn looks_again(ms: u64) -> Plan {
    Plan {
        look_again: Some(at(ms)),
        ..Plan::default()
    }
}

#[test]
fn the_preferred_node_asks_at_once_and_the_others_in_their_order() {
    let free = Seen::Free { since: at(500_000) };
    let plan = |rank, now| Desk::of_rank(rank).seeing(free.clone()).plan(at(now));
    assert_eq!(plan(0, 500_000), acquires());
    assert_eq!(plan(1, 500_000), looks_again(500_200));
    assert_eq!(plan(1, 500_200), acquires());
    assert_eq!(plan(2, 500_200), looks_again(500_400));
    assert_eq!(plan(2, 500_400), acquires());
}

#[test]
fn no_delay_is_longer_than_the_longest() {
    let mut desk = Desk::of_rank(2).seeing(Seen::Free { since: at(500_000) });
    desk.nodes.extend((0..200).map(|n| node(&format!("n-{n}"))));
    assert_eq!(desk.plan(at(502_000)), acquires());
}

#[test]
fn a_living_holder_is_left_alone_and_a_dead_one_taken_over_in_order() {
    let held = |open_at| Seen::Held {
        by: member("x"),
        open_at,
    };
    let plan = |rank, open_at, now| Desk::of_rank(rank).seeing(held(open_at)).plan(at(now));
    assert_eq!(plan(0, None, 900_000), Plan::default());
    assert_eq!(plan(0, Some(at(500_000)), 499_999), looks_again(500_000));
    assert_eq!(plan(0, Some(at(500_000)), 500_000), acquires());
    assert_eq!(plan(1, Some(at(500_000)), 500_000), looks_again(500_200));
}

#[test]
fn the_dead_and_the_draining_take_no_place_in_the_order() {
    let mut desk = Desk::of_rank(2).seeing(Seen::Free { since: at(500_000) });
    desk.node(0).alive = false;
    desk.node(1).draining = true;
    assert_eq!(desk.plan(at(500_000)), acquires());
}

#[test]
fn a_reservation_is_for_its_successor_until_it_ends() {
    let mut desk = Desk::of_rank(2);
    let reserved = |to: MemberId| Seen::Reserved { to, until: at(505_000) };
    let mine = reserved(desk.me.name.clone());
    assert_eq!(Desk::of_rank(2).seeing(mine).plan(at(500_000)), acquires());
    desk = desk.seeing(reserved(member("x")));
    assert_eq!(desk.plan(at(500_000)), looks_again(505_000));
    assert_eq!(desk.plan(at(505_000)), looks_again(505_400));
}

#[test]
fn what_was_not_looked_at_is_not_asked_for() {
    assert_eq!(Desk::of_rank(0).plan(at(500_000)), Plan::default());
}

#[test]
fn a_lease_goes_to_the_preferred_node_once_all_is_stable_and_it_was_held_for_a_while() {
    let hands_off = |desk: &Desk| Plan {
        hand_off: vec![(lease("t"), desk.name(0))],
        ..Plan::default()
    };
    // The membership is stable from 110 s on.
    let desk = Desk::of_rank(1).holding_since(at(60_000));
    assert_eq!(desk.plan(at(100_000)), looks_again(110_000));
    assert_eq!(desk.plan(at(110_000)), hands_off(&desk));
    let desk = Desk::of_rank(1).holding_since(at(100_000));
    assert_eq!(desk.plan(at(110_000)), looks_again(130_000));
    assert_eq!(desk.plan(at(130_000)), hands_off(&desk));
    let preferred = Desk::of_rank(0).holding_since(at(60_000));
    assert_eq!(preferred.plan(at(900_000)), Plan::default());
}

#[test]
fn nothing_is_handed_to_the_dead_or_the_draining() {
    let mut desk = Desk::of_rank(2).holding_since(at(60_000));
    desk.node(0).alive = false;
    assert_eq!(desk.plan(at(900_000)).hand_off, [(lease("t"), desk.name(1))]);
    desk.node(1).draining = true;
    assert_eq!(desk.plan(at(900_000)), Plan::default());
}

#[test]
fn a_draining_node_hands_over_at_once_and_asks_for_nothing() {
    let mut desk = Desk::of_rank(0).holding_since(at(100_000));
    desk.draining = true;
    assert_eq!(desk.plan(at(100_001)).hand_off, [(lease("t"), desk.name(1))]);
    desk.node(1).draining = true;
    assert_eq!(desk.plan(at(100_001)).hand_off, [(lease("t"), desk.name(2))]);
    desk.node(2).alive = false;
    assert_eq!(desk.plan(at(100_001)).release, [(lease("t"), GiveUp::Draining)]);
    let mut free = Desk::of_rank(0).seeing(Seen::Free { since: at(0) });
    free.draining = true;
    assert_eq!(free.plan(at(100_001)), Plan::default());
}

#[test]
fn a_paused_or_removed_target_is_given_up_and_not_asked_for() {
    for draining in [false, true] {
        let mut desk = Desk::of_rank(1).holding_since(at(100_000));
        desk.draining = draining;
        desk.targets.get_mut(&lease("t")).unwrap().paused = true;
        assert_eq!(desk.plan(at(100_000)).release, [(lease("t"), GiveUp::Paused)]);
        desk.targets.clear();
        assert_eq!(desk.plan(at(100_000)).release, [(lease("t"), GiveUp::Removed)]);
    }
    let mut desk = Desk::of_rank(0).seeing(Seen::Free { since: at(0) });
    desk.targets.get_mut(&lease("t")).unwrap().paused = true;
    assert_eq!(desk.plan(at(100_000)), Plan::default());
}

#[test]
fn this_node_counts_even_when_the_list_leaves_it_out() {
    let mut desk = Desk::of_rank(0).seeing(Seen::Free { since: at(0) });
    let me = desk.me.name.clone();
    desk.nodes.retain(|node| node.node.name != me);
    assert_eq!(desk.plan(at(100_000)), acquires());
    desk.nodes.clear();
    assert_eq!(desk.plan(at(100_000)), acquires());
}

/// This node holds a thousand, and each of the others something else.
fn full_desk() -> Desk {
    let mut desk = Desk::of_rank(0);
    desk.targets = (0..1_000)
        .map(|n| (lease(&format!("t-{n}")), TargetSpec::default()))
        .collect();
    desk.held = desk.targets.keys().map(|lease| (lease.clone(), at(0))).collect();
    for name in ["a", "b", "c"] {
        let held = Seen::Held {
            by: member(name),
            open_at: None,
        };
        desk.leases.insert(lease(&format!("held-by-{name}")), held);
    }
    desk
}

#[test]
fn only_so_many_are_handed_off_at_a_time() {
    let mut desk = full_desk();
    let plan = desk.plan(at(900_000));
    assert_eq!((plan.hand_off.len(), plan.look_again), (200, Some(at(900_000))));
    desk.draining = true;
    assert_eq!(desk.plan(at(900_000)).hand_off.len(), 1_000);
}

#[test]
fn a_node_that_has_nothing_yet_gets_one_lease_at_first() {
    let mut desk = full_desk();
    let new = desk.name(1);
    desk.leases.remove(&lease(&format!("held-by-{new}")));
    let to_new = |desk: &Desk| {
        let plan = desk.plan(at(900_000));
        plan.hand_off.iter().filter(|(_, to)| *to == new).count()
    };
    assert_eq!(to_new(&desk), 1);
    let reserved = |until| Seen::Reserved {
        to: new.clone(),
        until: at(until),
    };
    desk.leases.insert(lease("on-its-way"), reserved(900_001));
    assert_eq!(to_new(&desk), 0);
    desk.leases.insert(lease("on-its-way"), reserved(900_000));
    assert_eq!(
        to_new(&desk),
        1,
        "it did not come; the caller should not see it as alive for a while"
    );
}

#[test]
fn it_looks_again_at_the_earliest_of_all_reasons() {
    let mut desk = Desk::of_rank(0);
    for (name, open_at) in [("u", 700_000), ("t", 600_000), ("v", 800_000)] {
        desk.targets.insert(lease(name), TargetSpec::default());
        let held = Seen::Held {
            by: member("x"),
            open_at: Some(at(open_at)),
        };
        desk.leases.insert(lease(name), held);
    }
    assert_eq!(desk.plan(at(500_000)), looks_again(600_000));
}

#[test]
fn three_nodes_share_eight_targets_three_three_two_when_load_is_bounded() {
    let settings = Settings {
        bounded_load: true,
        ..Settings::default()
    };
    let mut world = World::new(settings, 8);
    for name in ["node-1", "node-2", "node-3"] {
        world.join(name, 1);
    }
    world.run(secs(1));
    assert_eq!(world.counts(), [2, 3, 3]);
    world.leave("node-2");
    world.run(secs(1));
    assert_eq!(world.counts(), [4, 4]);
    world.moves.clear();
    world.join("node-2", 1);
    world.run(secs(60));
    assert_eq!(world.counts(), [2, 3, 3]);
    assert_eq!(world.moves.values().sum::<usize>(), 2);
}

#[test]
fn what_is_on_its_way_to_a_node_counts_as_its_load() {
    for name in ["r", "s", "t", "u", "v", "w", "x", "y"] {
        let mut desk = Desk::of_rank(0);
        let (b, c) = (desk.name(1), desk.name(2));
        desk.targets = [name, "one", "two"]
            .map(|name| (lease(name), TargetSpec::default()))
            .into();
        desk.held = ["one", "two"].map(|name| (lease(name), at(0))).into();
        desk.leases = [(
            lease(name),
            Seen::Reserved {
                to: c,
                until: at(901_000),
            },
        )]
        .into();
        let view = View {
            now: at(900_000),
            me: &desk.me,
            draining: false,
            nodes: &desk.nodes,
            stable_since: at(0),
            targets: &desk.targets,
            leases: &desk.leases,
            held: &desk.held,
        };
        let settings = Settings {
            bounded_load: true,
            ..Settings::default()
        };
        let to: Vec<_> = plan(&view, &settings).hand_off.into_iter().map(|(_, to)| to).collect();
        assert_eq!(to, [b]);
    }
}

#[test]
fn a_node_that_bounces_twenty_times_in_a_minute_moves_a_target_twice_at_most() {
    for leaves in [true, false] {
        let mut world = World::new(Settings::default(), 100);
        for name in ["node-1", "node-2", "node-3"] {
            world.join(name, 1);
        }
        world.run(secs(60));
        world.moves.clear();
        for _ in 0..20 {
            if leaves {
                world.leave("node-2");
            } else {
                world.kill("node-2");
            }
            world.run(ms(1_500));
            world.join("node-2", 1);
            world.run(ms(1_500));
        }
        // It stays: its targets come back, and then nothing moves any more.
        world.run(secs(60));
        assert!(world.moves.values().all(|moves| *moves <= 2), "{:?}", world.moves);
        let moves: usize = world.moves.values().sum();
        assert!((40..=90).contains(&moves), "its third, there and back: {moves}");
        world.moves.clear();
        world.run(secs(600));
        assert!(world.moves.is_empty());
    }
}

#[test]
fn nodes_that_see_different_members_hold_every_target_and_pass_none_in_a_circle() {
    let mut world = World::new(Settings::default(), 200);
    let names = ["node-1", "node-2", "node-3", "node-4", "node-5"];
    for name in names {
        world.join(name, 1);
    }
    // Each sees only itself and the next, and somebody who is not there.
    for (n, name) in names.iter().enumerate() {
        world.blind(name, &[name, names[(n + 1) % names.len()], "ghost"]);
    }
    world.run(secs(3));
    assert_eq!(world.counts().iter().sum::<usize>(), 200);
    world.run(secs(3_600));
    assert!(
        world.moves.values().all(|moves| *moves <= names.len()),
        "{:?}",
        world.moves
    );
    world.moves.clear();
    world.run(secs(600));
    // What is meant for the ghost stays reserved for it, and comes back.
    let to_ghost = world.handed_to("ghost");
    assert!(world.moves.len() <= to_ghost, "{} {to_ghost}", world.moves.len());
}

fn any_settings() -> impl Strategy<Value = Settings> {
    (any::<bool>(), 1usize..50).prop_map(|(bounded_load, max_handoffs)| Settings {
        bounded_load,
        max_handoffs,
        ..Settings::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn from_any_state_a_stable_fleet_comes_to_rest(
        settings in any_settings(),
        targets in 0usize..60,
        weights in proptest::collection::vec(1u32..4, 1..7),
        start in proptest::collection::vec((0usize..9, any::<bool>()), 60),
        draining in 0usize..8,
    ) {
        let mut world = World::new(settings, targets);
        let names: Vec<String> = (1..=weights.len()).map(|n| format!("node-{n}")).collect();
        for (name, weight) in names.iter().zip(&weights) {
            world.join(name, *weight);
        }
        // Any lease anywhere: with one of the nodes, reserved for one, with somebody dead, or free.
        for (n, (whose, reserved)) in start.iter().take(targets).enumerate() {
            world.put(n, names.get(*whose).map_or("dead", String::as_str), *reserved && *whose < names.len(), *whose == 8);
        }
        if draining < names.len() && names.len() > 1 {
            world.drain(&names[draining]);
        }
        world.run(secs(300));
        prop_assert_eq!(world.counts().iter().sum::<usize>(), targets, "every target is held");
        if draining < names.len() && names.len() > 1 {
            prop_assert_eq!(world.held_by(&names[draining]), 0);
        }
        prop_assert!(world.moves.values().all(|moves| *moves <= 3), "{:?}", world.moves);
        world.moves.clear();
        let asked = world.asked;
        world.run(secs(300));
        prop_assert!(world.moves.is_empty(), "{:?}", world.moves);
        prop_assert_eq!(world.asked, asked, "nobody asks for anything any more");
    }

    #[test]
    fn with_different_members_on_every_node_every_target_is_held_within_the_longest_delay(
        settings in any_settings(),
        sees in proptest::collection::vec(proptest::collection::vec(any::<bool>(), 6), 1..7),
    ) {
        let mut world = World::new(settings, 40);
        let names: Vec<String> = (1..=6).map(|n| format!("node-{n}")).collect();
        for name in names.iter().take(sees.len()) {
            world.join(name, 1);
        }
        for (name, sees) in names.iter().zip(&sees) {
            let seen: Vec<&str> = names.iter().zip(sees).filter(|(_, sees)| **sees).map(|(name, _)| name.as_str()).collect();
            world.blind(name, &seen);
        }
        world.run(settings.max_rank_delay + ms(100));
        prop_assert_eq!(world.counts().iter().sum::<usize>(), 40);
    }
}
