//! The same seed gives the same history, step by step.

use tenure_sim::{HistoryMode, Outcome, Parts, Plan, run};

fn plan(seed: u64) -> Plan {
    Plan {
        steps: 4,
        parts: Parts::all(),
        ..Plan::of(seed)
    }
}

fn history(seed: u64) -> Outcome {
    run(&Plan {
        keep: HistoryMode::Tail(usize::MAX),
        ..plan(seed)
    })
    .expect("a world can be made")
}

#[test]
fn the_same_seed_twice_gives_the_same_history() {
    for seed in [1, 2] {
        let (first, second) = (history(seed), history(seed));
        assert_eq!(first.tail, second.tail, "seed {seed}");
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert!(first.events > 200, "seed {seed}: only {} events", first.events);
    }
}

#[test]
fn another_seed_gives_another_history() {
    let digests: std::collections::BTreeSet<u64> = (0..4).map(|seed| run(&plan(seed)).unwrap().digest).collect();
    assert_eq!(digests.len(), 4);
}

#[test]
fn keeping_the_text_changes_nothing() {
    assert_eq!(history(4).digest, run(&plan(4)).unwrap().digest);
}
