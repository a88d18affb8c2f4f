//! Rules broken on purpose: the simulation has to notice each, and by the rule that it breaks.

use tenure_sim::{Broken, Plan, run};

/// The first seed that notices, and what it says.
#[track_caller]
fn noticed(broken: Broken, within: u64, rules: &[&str]) {
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
    noticed(Broken::ReviveOnLateBeat, 10, &["an ended tenure never comes back"]);
}

#[test]
fn an_outage_without_a_grace_is_noticed() {
    noticed(
        Broken::NoGrace,
        10,
        &["everyone gets one full ttl after the store was silent"],
    );
}

#[test]
fn a_trust_that_sleeps_with_its_machine_is_noticed() {
    noticed(Broken::ForgetSuspend, 20, &["a holder stops before its tenure can end"]);
}

#[test]
fn a_release_without_a_compare_is_noticed() {
    noticed(Broken::ReleaseAnyones, 10, &["a release names the exact tenure"]);
}

#[test]
fn numbers_that_are_given_out_again_are_noticed() {
    noticed(
        Broken::TurnBackClock,
        20,
        &["terms rise for ever", "tokens rise for ever"],
    );
}

#[test]
fn a_look_up_that_shows_a_ghost_is_noticed() {
    noticed(Broken::GhostReads, 20, &["reads never show a ghost"]);
}

#[test]
fn a_lease_of_the_superseded_that_is_free_at_once_is_noticed() {
    noticed(
        Broken::SupersededFreesAtOnce,
        150,
        &["never two holders who trust one lease"],
    );
}

#[test]
fn a_call_that_takes_effect_long_after_it_was_given_up_is_noticed() {
    noticed(
        Broken::ForgetNotAfter,
        30,
        &["what was given up does not take effect later"],
    );
}
