//! The hash contract, its balance, and the number of moves.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn node(name: &str) -> Node {
    Node::new(MemberId::new(name).unwrap())
}

fn nodes(prefix: &str, count: usize) -> Vec<Node> {
    (1..=count).map(|n| node(&format!("{prefix}-{n}"))).collect()
}

fn targets(prefix: &str, count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("{prefix}-{n:05}")).collect()
}

/// The load of the busiest node divided by the mean.
#[allow(clippy::cast_precision_loss, reason = "small counts")]
fn skew<'a>(homes: impl IntoIterator<Item = &'a str>, nodes: usize) -> f64 {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = 0;
    for home in homes {
        *counts.entry(home).or_default() += 1;
        all += 1;
    }
    let most = counts.values().copied().max().unwrap_or(0);
    (most * nodes) as f64 / f64::from(all)
}

fn homes(nodes: &[Node], targets: &[String]) -> BTreeMap<String, MemberId> {
    let placement = Placement::new(nodes.iter().cloned());
    targets
        .iter()
        .map(|target| (target.clone(), placement.preferred(target).unwrap().clone()))
        .collect()
}

/// Formats of `golden.txt`: hash, node, target, weight, score; or rank, target, nodes with weights, names in order.
#[test]
fn golden_vectors_hold() {
    let mut seen = (0, 0);
    for line in include_str!("golden.txt")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            ["score", node, target, weight, expected_hash, expected_score] => {
                let (weight, expected_score): (u32, f64) = (weight.parse().unwrap(), expected_score.parse().unwrap());
                assert_eq!(format!("{:016x}", hash(node, target)), *expected_hash, "{line}");
                let got = score(node, target, weight);
                assert!(
                    (got - expected_score).abs() <= expected_score * 1e-12,
                    "{line}: {got:e}"
                );
                seen.0 += 1;
            }
            ["rank", target, weighted, expected] => {
                let placement = Placement::new(weighted.split(',').map(|pair| {
                    let (name, weight) = pair.split_once('=').unwrap();
                    Node {
                        weight: weight.parse().unwrap(),
                        ..node(name)
                    }
                }));
                let got: Vec<&str> = placement.rank(target).into_iter().map(MemberId::as_str).collect();
                assert_eq!(got.join(","), *expected, "{line}");
                seen.1 += 1;
            }
            _ => panic!("not a vector: {line:?}"),
        }
    }
    assert!(seen.0 >= 12 && seen.1 >= 8, "{seen:?}");
}

/// Compared with an independent computation in another language, so the file does not just repeat the code.
#[test]
fn hash_matches_the_published_algorithms() {
    // The test vectors of FNV's authors.
    assert_eq!(fnv(FNV_OFFSET, b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(fnv(FNV_OFFSET, b"a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(fnv(FNV_OFFSET, b"foobar"), 0x8594_4171_f739_67e8);
    // The first outputs of SplitMix64 from the seed 0 are its finaliser over multiples of the golden gamma.
    let gamma = 0x9e37_79b9_7f4a_7c15_u64;
    assert_eq!(finalise(gamma), 0xe220_a839_7b1d_cdaf);
    assert_eq!(finalise(gamma.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
}

#[test]
fn equal_scores_go_to_the_smaller_name() {
    // A hash of zero high bits scores 0, whatever the weight.
    assert!(score_of(0x7ff, 1).total_cmp(&0.0).is_eq());
    assert!(score_of(0x7ff, 1000).total_cmp(&0.0).is_eq());
    assert!(score_of(u64::MAX, 1000).is_finite());
    let twins = Placement {
        nodes: ["a", "b", "c"]
            .map(|name| Ready {
                node: node(name),
                seed: 7,
            })
            .to_vec(),
    };
    assert_eq!(twins.preferred("t").unwrap().as_str(), "a");
    let names: Vec<_> = twins.rank("t").into_iter().map(MemberId::as_str).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(twins.position("t", &node("c").name), Some(2));
}

/// A row of the table in the module documentation.
fn figures(nodes: &[Node], targets: &[String]) -> [f64; 3] {
    let best = |score: &dyn Fn(&str, &str) -> u64, target: &String| {
        nodes
            .iter()
            .map(|node| node.name.as_str())
            .max_by_key(|node| score(node, target))
            .unwrap()
    };
    let plain = |node: &str, target: &str| fnv(seed(node), target.as_bytes());
    // By chance: the same number of targets placed by a random generator.
    let mut state = 1u64;
    let mut draw = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        finalise(state)
    };
    let by_chance = targets.iter().map(|_| {
        let at = draw() % u64::try_from(nodes.len()).unwrap();
        nodes[usize::try_from(at).unwrap()].name.as_str()
    });
    [
        skew(targets.iter().map(|target| best(&plain, target)), nodes.len()),
        skew(targets.iter().map(|target| best(&hash, target)), nodes.len()),
        skew(by_chance, nodes.len()),
    ]
}

#[test]
fn figures_of_plain_fnv_and_finaliser() {
    let mut rows = Vec::new();
    for (node_names, count, target_names, targets_count) in [
        ("node", 3, "endpoint", 300),
        ("node", 3, "endpoint", 10_000),
        ("node", 8, "endpoint", 10_000),
        ("host", 16, "dev", 10_000),
        ("host", 64, "dev", 10_000),
        ("host", 64, "dev", 50_000),
    ] {
        let row = figures(&nodes(node_names, count), &targets(target_names, targets_count));
        println!(
            "//! | `{node_names}-1`…`{count}` × `{target_names}-00001`…`{targets_count:05}` | {:.2} | {:.2} | {:.2} |",
            row[0], row[1], row[2]
        );
        rows.push(row);
    }
    assert!(rows.iter().any(|row| row[0] > 1.5), "plain FNV-1a is skewed: {rows:?}");
    // With 156 targets per node, even a random draw often puts one node at 1.2.
    for (row, limit) in rows.iter().zip([1.2, 1.2, 1.2, 1.2, 1.3, 1.2]) {
        assert!(row[1] <= limit, "{rows:?}");
    }
}

#[test]
fn weight_is_clamped_to_its_bounds() {
    assert_eq!(score("a", "b", 0).to_bits(), score("a", "b", 1).to_bits());
    assert_eq!(score("a", "b", 1_001).to_bits(), score("a", "b", 1_000).to_bits());
}

#[test]
fn weights_divide_targets_proportionally() {
    let mut weighted = nodes("node", 4);
    weighted[0].weight = 3;
    let homes = homes(&weighted, &targets("endpoint", 12_000));
    let heavy = homes.values().filter(|home| home.as_str() == "node-1").count();
    assert!((5_700..=6_300).contains(&heavy), "half of them: {heavy}");
}

#[test]
fn weight_change_moves_only_targets_of_that_node() {
    let (before, targets) = (nodes("node", 5), targets("endpoint", 3_000));
    let mut after = before.clone();
    after[2].weight = 2;
    let (was, is) = (homes(&before, &targets), homes(&after, &targets));
    for (target, home) in &is {
        assert!(*home == was[target] || home.as_str() == "node-3", "{target}");
    }
}

proptest! {
    #[test]
    fn leave_and_join_move_the_minimum(
        count in 2usize..20,
        prefix in "[a-z]{1,6}",
        gone in 0usize..20,
    ) {
        let (all, targets) = (nodes("node", count), targets(&prefix, 2_000));
        let mut rest = all.clone();
        let gone = rest.remove(gone % count);
        let (with, without) = (homes(&all, &targets), homes(&rest, &targets));
        let mut moved = 0;
        for (target, home) in &with {
            if *home == gone.name {
                moved += 1;
            } else {
                prop_assert_eq!(home, &without[target]);
            }
        }
        // Seven standard deviations of a fair draw.
        #[allow(clippy::cast_precision_loss, reason = "small counts")]
        let (mean, n) = (2_000.0 / count as f64, f64::from(moved));
        prop_assert!((n - mean).abs() <= 7.0 * mean.sqrt(), "{} of {}", n, mean);
    }

    #[test]
    fn preferred_rank_and_position_agree(names in proptest::collection::btree_set("[a-z0-9]{1,8}", 1..12), target in "[a-z0-9]{1,8}") {
        let nodes = names.iter().enumerate().map(|(n, name)| Node { weight: u32::try_from(n).unwrap(), ..node(name) });
        let placement = Placement::new(nodes);
        let rank = placement.rank(&target);
        prop_assert_eq!(Some(rank[0]), placement.preferred(&target));
        for (at, name) in rank.iter().enumerate() {
            prop_assert_eq!(placement.position(&target, name), Some(at));
        }
        prop_assert_eq!(placement.position(&target, &MemberId::new("not-there").unwrap()), None);
    }
}

mod bounded {
    //! Shares that differ by one at most.

    use super::*;

    /// The node and weight of each target.
    type Homes = BTreeMap<String, (u32, Option<MemberId>)>;

    fn free(count: usize) -> Homes {
        targets("endpoint", count)
            .into_iter()
            .map(|name| (name, (1, None)))
            .collect()
    }

    fn levelled(nodes: &[Node], homes: &Homes) -> Homes {
        let placement = Placement::new(nodes.iter().cloned());
        let loads: Vec<Load<'_>> = homes
            .iter()
            .map(|(target, (weight, on))| Load {
                target,
                weight: *weight,
                on: on.as_ref(),
            })
            .collect();
        let mut backwards: Vec<_> = level(&placement, &loads.iter().rev().copied().collect::<Vec<_>>());
        backwards.reverse();
        let answer = level(&placement, &loads);
        assert_eq!(answer, backwards, "the order of the input does not matter");
        homes
            .iter()
            .zip(answer)
            .map(|((target, (weight, _)), on)| (target.clone(), (*weight, on.cloned())))
            .collect()
    }

    fn sums(nodes: &[Node], homes: &Homes) -> Vec<u64> {
        let mut sums: BTreeMap<&MemberId, u64> = nodes.iter().map(|node| (&node.name, 0)).collect();
        for (weight, on) in homes.values() {
            *sums.get_mut(on.as_ref().unwrap()).unwrap() += u64::from(*weight);
        }
        nodes.iter().map(|node| sums[&node.name]).collect()
    }

    fn moves(before: &Homes, after: &Homes) -> usize {
        after
            .iter()
            .filter(|(target, (_, on))| before[*target].1 != *on)
            .count()
    }

    #[test]
    fn eight_targets_on_three_nodes_are_placed_as_3_3_2() {
        for prefix in ["node", "host", "a", "worker"] {
            let nodes = nodes(prefix, 3);
            let mut counts = sums(&nodes, &levelled(&nodes, &free(8)));
            counts.sort_unstable();
            assert_eq!(counts, [2, 3, 3]);
        }
    }

    #[test]
    fn most_targets_stay_on_their_preferred_node() {
        let nodes = nodes("node", 8);
        let targets = targets("endpoint", 10_000);
        let (bounded, free_choice) = (levelled(&nodes, &free(10_000)), homes(&nodes, &targets));
        let at_home = bounded
            .iter()
            .filter(|(target, (_, on))| on.as_ref() == Some(&free_choice[*target]))
            .count();
        assert!(at_home > 9_500, "{at_home}");
    }

    #[test]
    fn no_nodes_place_nothing() {
        let loads = [Load {
            target: "t",
            weight: 1,
            on: None,
        }];
        assert_eq!(level(&Placement::default(), &loads), [None]);
    }

    #[test]
    fn overloaded_node_is_levelled() {
        let nodes = nodes("node", 10);
        let mut homes = free(1_000);
        homes.values_mut().for_each(|(_, on)| *on = Some(nodes[4].name.clone()));
        let after = levelled(&nodes, &homes);
        assert!(sums(&nodes, &after).iter().all(|sum| *sum == 100));
        assert_eq!(moves(&homes, &after), 900);
    }

    #[test]
    fn heavy_node_takes_its_share() {
        let mut nodes = nodes("node", 2);
        nodes[0].weight = 3;
        let mut homes = free(40);
        homes.values_mut().for_each(|(_, on)| *on = Some(nodes[1].name.clone()));
        assert_eq!(sums(&nodes, &levelled(&nodes, &homes)), [30, 10]);
    }

    #[test]
    fn weighted_targets_and_nodes_are_levelled() {
        let mut nodes = nodes("node", 3);
        nodes[0].weight = 2;
        let mut homes = free(100);
        for (n, (weight, _)) in homes.values_mut().enumerate() {
            *weight = if n % 10 == 0 { 20 } else { 1 };
        }
        // 290 in all: 145 for the heavy node, 72.5 for each of the others.
        let sums = sums(&nodes, &levelled(&nodes, &homes));
        assert!(
            (135..=155).contains(&sums[0]) && (62..=83).contains(&sums[1]) && (62..=83).contains(&sums[2]),
            "{sums:?}"
        );
    }

    proptest! {
        #[test]
        fn shares_differ_by_one_with_minimal_moves(
            count in 2usize..12,
            targets in 0usize..200,
            gone in 0usize..12,
        ) {
            let all = nodes("node", count);
            let mut rest = all.clone();
            let gone = rest.remove(gone % count);
            let level_by_one = |nodes: &[Node], homes: &Homes| {
                let sums = sums(nodes, homes);
                sums.iter().max().unwrap() - sums.iter().min().unwrap() <= 1
            };
            let first = levelled(&all, &free(targets));
            prop_assert!(level_by_one(&all, &first));
            prop_assert_eq!(&levelled(&all, &first), &first, "level is level");

            let left = levelled(&rest, &first);
            prop_assert!(level_by_one(&rest, &left));
            let its_own = first.values().filter(|(_, on)| *on == Some(gone.name.clone())).count();
            prop_assert_eq!(moves(&first, &left), its_own);

            let back = levelled(&all, &left);
            prop_assert!(level_by_one(&all, &back));
            prop_assert!(moves(&left, &back) <= targets.div_ceil(count));
        }

        #[test]
        fn levelling_terminates_for_all_weights(
            weights in proptest::collection::vec(1u32..50, 1..60),
            node_weights in proptest::collection::vec(1u32..10, 1..8),
            crowd in 0usize..8,
        ) {
            let mut nodes = nodes("node", node_weights.len());
            nodes.iter_mut().zip(&node_weights).for_each(|(node, weight)| node.weight = *weight);
            let on = nodes[crowd % nodes.len()].name.clone();
            let mut homes: Homes = weights
                .iter()
                .enumerate()
                .map(|(n, weight)| (format!("t-{n}"), (*weight, Some(on.clone()))))
                .collect();
            for _ in 0..100 {
                let next = levelled(&nodes, &homes);
                if next == homes {
                    return Ok(());
                }
                homes = next;
            }
            prop_assert!(false, "still moving after 100 rounds");
        }
    }
}
