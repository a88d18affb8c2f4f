//! Hundreds of seeds for each family of faults and for all together: no rule is broken.
//!
//! For more: `cargo run --release -p tenure-sim -- --seeds 0..10000`.

use tenure_sim::{Parts, Plan, run};

/// Runs short simulations. Panics at the first seed that fails, with the command that reproduces it.
#[track_caller]
fn clean(seeds: std::ops::Range<u64>, mix: &str, steps: u32) {
    for seed in seeds {
        clean_with(seed, Parts::drawn(seed), mix, steps);
    }
}

/// The same for one seed, with these parts.
#[track_caller]
fn clean_with(seed: u64, parts: Parts, mix: &str, steps: u32) {
    let plan = Plan {
        nodes: 4,
        steps,
        mix: mix.parse().expect("a known mix"),
        parts,
        ..Plan::of(seed)
    };
    if let Some(violation) = run(&plan).expect("a world can be made").violation {
        panic!(
            "{violation}\n  cargo run -p tenure-sim -- --seed {seed} --nodes 4 --steps {steps} --faults {mix} --parts {parts} --trace"
        );
    }
}

#[test]
fn a_world_without_faults_breaks_no_rule() {
    clean(0..6, "none", 5);
}

#[test]
fn no_fault_of_the_network_breaks_a_rule() {
    clean(100..108, "network", 10);
}

#[test]
fn no_fault_of_a_machine_breaks_a_rule() {
    clean(200..208, "nodes", 10);
}

#[test]
fn no_outage_of_the_store_breaks_a_rule() {
    clean(300..308, "store", 10);
}

#[test]
fn no_clock_breaks_a_rule() {
    clean(400..408, "clocks,nodes", 10);
}

#[test]
fn no_data_loss_breaks_a_rule() {
    clean(500..510, "loss,network", 10);
}

#[test]
fn no_slow_client_breaks_a_rule() {
    clean(600..608, "slow", 10);
}

#[test]
fn no_fault_of_a_ledger_breaks_a_rule() {
    for seed in 700..706 {
        clean_with(
            seed,
            "rosters".parse().expect("a known part"),
            "ledger,store,network",
            10,
        );
    }
}

#[test]
fn all_faults_together_break_no_rule() {
    clean(1_000..1_016, "all", 12);
}

#[test]
fn more_faults_together_break_no_rule() {
    clean(1_016..1_032, "all", 12);
}
