//! Each rule broken on purpose must be detected, and by the matching check.

use tenure_sim::{BrokenRule, Plan, run};

/// Asserts that one of the first seeds fails with one of these rules.
#[track_caller]
fn noticed(broken: BrokenRule, within: u64, rules: &[&str]) {
    for seed in 0..within {
        let plan = Plan {
            broken: Some(broken),
            ..Plan::of(seed)
        };
        if let Some(violation) = run(&plan).expect("a world can be made").violation {
            assert!(rules.contains(&violation.rule), "seed {seed}: {violation}");
            return;
        }
    }
    panic!("{broken:?} went unnoticed by {within} seeds");
}

#[test]
fn a_late_beat_that_revives_the_dead_is_noticed() {
    noticed(BrokenRule::ReviveOnLateBeat, 10, &["an ended tenure never comes back"]);
}

#[test]
fn an_outage_without_a_grace_is_noticed() {
    noticed(
        BrokenRule::NoGrace,
        10,
        &[
            "every ttl restarts after the store was silent",
            "reads never show a ghost",
        ],
    );
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
        &["never two holders who trust one lease"],
    );
}

#[test]
fn a_withdrawal_that_compares_nothing_is_noticed() {
    noticed(
        BrokenRule::WithdrawComparesNothing,
        150,
        &["never two holders who trust one lease"],
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
