//! Each rule broken on purpose must be detected, and by the matching check.

use std::ops::Range;

use tenure_sim::{BrokenRule, Mix, Parts, Plan, run};

/// What a wrong account of the pulse is noticed as first.
const HOLE: &str = "every ttl restarts after a hole of the pulse, and only then";

/// Asserts that one of these worlds fails with one of these rules.
#[track_caller]
fn search(worlds: impl Iterator<Item = Plan>, rules: &[&str]) {
    for plan in worlds {
        if let Some(violation) = run(&plan).expect("a world can be made").violation {
            assert!(rules.contains(&violation.rule), "seed {}: {violation}", plan.seed);
            return;
        }
    }
    panic!("no world noticed it");
}

/// Looks at the first seeds with every fault, and programs that use members, claims and leases.
#[track_caller]
fn noticed(broken: BrokenRule, within: u64, rules: &[&str]) {
    let world = |seed| Plan {
        broken: Some(broken),
        parts: Parts::default(),
        ..Plan::of(seed)
    };
    search((0..within).map(world), rules);
}

/// Looks at smaller worlds with these parts and families of faults.
#[track_caller]
fn noticed_in(broken: BrokenRule, parts: &str, mix: &str, seeds: Range<u64>, rules: &[&str]) {
    let parts: Parts = parts.parse().expect("known parts");
    let mix: Mix = mix.parse().expect("a known mix");
    let world = |seed| Plan {
        nodes: 4,
        steps: 14,
        broken: Some(broken),
        parts,
        mix: mix.clone(),
        ..Plan::of(seed)
    };
    search(seeds.map(world), rules);
}

#[test]
fn a_late_beat_that_revives_the_dead_is_noticed() {
    noticed(BrokenRule::ReviveOnLateBeat, 10, &["an ended tenure never comes back"]);
}

#[test]
fn an_outage_without_a_grace_is_noticed() {
    noticed(BrokenRule::NoGrace, 10, &[HOLE, "reads never show a ghost"]);
}

#[test]
fn a_sweep_that_proves_service_is_noticed() {
    noticed(BrokenRule::JanitorProves, 20, &[HOLE, "reads never show a ghost"]);
}

#[test]
fn evidence_that_a_late_call_carries_is_noticed() {
    noticed(BrokenRule::CarriedEvidence, 20, &[HOLE, "reads never show a ghost"]);
}

#[test]
fn a_pulse_that_is_not_rolled_back_is_noticed() {
    noticed(BrokenRule::PulseElsewhere, 40, &[HOLE, "reads never show a ghost"]);
}

#[test]
fn a_hole_that_is_dated_by_a_visit_is_noticed() {
    noticed(BrokenRule::DatedByVisit, 20, &[HOLE, "reads never show a ghost"]);
}

#[test]
fn a_trust_time_that_stops_in_suspend_is_noticed() {
    noticed(
        BrokenRule::ForgetSuspend,
        20,
        &["a holder stops before its tenure can end"],
    );
}

#[test]
fn a_release_without_a_compare_is_noticed() {
    noticed(BrokenRule::ReleaseAnyones, 10, &["a release names the exact tenure"]);
}

#[test]
fn numbers_assigned_twice_are_noticed() {
    noticed(
        BrokenRule::TurnBackClock,
        20,
        &["terms rise for ever", "tokens rise for ever"],
    );
}

#[test]
fn a_look_up_that_shows_a_ghost_is_noticed() {
    noticed(BrokenRule::GhostReads, 20, &["reads never show a ghost"]);
}

#[test]
fn a_superseded_lease_that_is_free_too_early_is_noticed() {
    noticed(
        BrokenRule::SupersededFreesAtOnce,
        150,
        &["never two holders who trust one lease"],
    );
}

#[test]
fn a_release_that_frees_the_place_of_another_is_noticed() {
    noticed(
        BrokenRule::ReleaseFreesAnother,
        150,
        &[
            "never two holders who trust one lease",
            "an acquire returns the holder of the lease",
        ],
    );
}

#[test]
fn a_withdrawal_that_compares_nothing_is_noticed() {
    noticed(
        BrokenRule::WithdrawComparesNothing,
        150,
        &[
            "never two holders who trust one lease",
            "a lease is granted only when its holder can no longer be at work",
            "every missing lease was released once, with one event",
            "reads never show a ghost",
        ],
    );
}

#[test]
fn an_abandoned_call_that_takes_effect_is_noticed() {
    noticed(
        BrokenRule::ForgetNotAfter,
        30,
        &["an abandoned call does not take effect later"],
    );
}

#[test]
fn a_reaper_that_ignores_connections_is_noticed() {
    noticed_in(
        BrokenRule::ReapConnected,
        "sessions",
        "nodes",
        0..10,
        &["no session is reaped while a living tenure holds a connection"],
    );
}

#[test]
fn a_reaper_that_ignores_the_grace_is_noticed() {
    noticed_in(
        BrokenRule::ReapEarly,
        "sessions",
        "nodes",
        0..10,
        &["no session is reaped before its grace is over"],
    );
}

#[test]
fn a_late_detach_without_its_epoch_is_noticed() {
    noticed_in(
        BrokenRule::DetachWithoutEpoch,
        "sessions",
        "slow",
        0..20,
        &["a late detach changes nothing"],
    );
}

#[test]
fn an_auto_offline_of_a_later_tenure_is_noticed() {
    noticed_in(
        BrokenRule::AutoOfflineAnyTenure,
        "rosters",
        "nodes,ledger",
        36..46,
        &["auto-offline hits exactly the tenure that ended"],
    );
}

#[test]
fn a_reserve_above_the_capacity_is_noticed() {
    noticed_in(
        BrokenRule::ReserveAboveCapacity,
        "rosters",
        "nodes",
        0..10,
        &["no reserve above the capacity"],
    );
}
