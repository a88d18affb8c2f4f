//! The contract that every store is held to: named cases on a virtual store clock, and a random comparison with the
//! reference model.
//!
//! A store's crate implements [`Harness`] once, names it in [`conformance_tests!`](crate::conformance_tests), and gets
//! one test per case. A case that a store cannot run by its nature is no case of this suite: all stores run all of
//! them. Another way to the same store (a cluster, a least-privileged user, a wrapper) runs `one_per_call` of them: a case
//! for every call, and the random histories.

pub mod boundary;
mod cases;
pub mod event;
pub mod forget;
pub mod gap;
pub mod lease;
pub mod lease_end;
pub mod ledger;
pub mod membership;
pub mod random;
pub mod reaper;
pub mod registry;
pub mod roster;
pub mod roster_end;
pub mod session;
pub mod sweep;
pub mod target;
mod world;

pub use cases::{Cases, Chance};
pub use world::{Harness, Make, Making, World};

/// Makes one test per case. The argument is an `async fn(StoreOptions) -> Box<dyn Harness>` that gives a fresh store.
/// With `, one_per_call` after it: one case for every call of a store, and the random histories.
#[macro_export]
macro_rules! conformance_tests {
    ($make:ident, one_per_call) => {
        $crate::conformance_tests! { @cases $make;
            membership: join_gives_a_tenure_that_a_beat_extends, a_member_lapses_exactly_at_its_end,
                joining_again_supersedes_at_once, leaving_is_idempotent_and_names_the_first_reason, a_beat_can_change_the_ttl,
                labels_come_back, members_are_listed_page_by_page, reasons_are_kept_for_two_max_ttls;
            registry: a_claim_is_new_then_kept_then_moved, a_release_names_the_exact_tenure, claims_are_listed_page_by_page,
                a_member_takes_over_from_its_own_earlier_tenure;
            lease: tokens_rise_for_ever, a_release_names_the_exact_tenure_and_token, leases_are_listed_page_by_page,
                a_revision_that_the_store_does_not_know_marks_a_gap;
            lease_end: a_handed_off_lease_waits_for_its_successor, the_janitor_releases_leases_of_the_dead_once,
                a_burst_of_refused_acquires_engages_the_brake;
            target: targets_are_added_changed_and_removed, targets_are_listed_page_by_page;
            session: a_session_is_made_left_resumed_and_left_again, an_alias_leads_to_one_session,
                data_is_merged_field_by_field, sessions_are_listed_by_state_page_by_page,
                only_a_session_without_connections_is_deleted;
            reaper: an_orphan_is_reaped_with_all_it_had, orphans_are_listed_by_how_long_they_are_overdue,
                a_connection_that_is_too_old_is_dropped_by_reconcile;
            sweep: what_the_dead_held_is_evicted_once, a_dry_run_changes_nothing;
            gap: an_outage_ends_nobody, a_lost_list_of_groups_changes_nothing,
                an_operator_settles_a_group, refused_beats_lengthen_lives;
            forget: a_group_that_was_empty_for_long_is_forgotten, a_group_in_which_anything_is_left_is_kept;
            event: events_are_filtered_and_paged, the_log_is_bounded_in_bytes, waiting_ends_with_news;
            random: the_store_agrees_with_the_model, sessions_agree_with_the_model;
        }
    };
    ($make:ident) => {
        $crate::conformance_tests! { @cases $make;
            membership: join_gives_a_tenure_that_a_beat_extends, a_member_lapses_exactly_at_its_end,
                dead_is_final, joining_again_supersedes_at_once, terms_rise_for_ever, leaving_is_idempotent_and_names_the_first_reason,
                a_late_leave_cannot_touch_a_successor, an_expelled_member_is_told_so, a_beat_can_change_the_ttl,
                a_batch_answers_each_beat_by_itself, labels_come_back, a_bad_ttl_changes_nothing, members_are_listed_page_by_page,
                a_call_past_its_not_after_changes_nothing, reasons_are_kept_for_two_max_ttls;
            registry: a_claim_is_new_then_kept_then_moved, if_absent_yields_to_the_living_only, reads_never_show_a_ghost,
                nothing_is_claimed_under_an_ended_tenure, a_release_names_the_exact_tenure, many_keys_in_one_call,
                claims_are_listed_page_by_page, a_member_takes_over_from_its_own_earlier_tenure, a_bad_cursor_is_refused;
            lease: a_lease_has_one_holder, tokens_rise_for_ever, a_dead_holder_is_taken_over_at_its_end_without_a_sweep,
                nothing_is_acquired_or_released_under_an_ended_tenure, a_release_names_the_exact_tenure_and_token,
                many_leases_in_one_call, leases_are_listed_page_by_page, an_unsettled_group_grants_nothing_new,
                a_revision_that_the_store_does_not_know_marks_a_gap, an_acquire_past_its_not_after_changes_nothing;
            lease_end: the_lease_of_one_that_may_still_run_waits_for_its_last_deadline, leaving_frees_leases_at_once,
                a_handed_off_lease_waits_for_its_successor, the_janitor_releases_leases_of_the_dead_once,
                a_reservation_ends_when_its_successor_has_come, an_ended_one_that_has_nothing_left_needs_no_janitor,
                leases_that_have_to_wait_hold_no_claim_back, the_janitor_takes_turns_with_leases_too,
                a_burst_of_refused_acquires_engages_the_brake;
            target: targets_are_added_changed_and_removed, a_bad_target_changes_nothing, targets_are_listed_page_by_page;
            session: a_session_is_made_left_resumed_and_left_again, a_second_connection_keeps_the_session,
                detaching_what_is_not_attached_changes_nothing, a_late_detach_is_ignored_by_its_epoch,
                nothing_is_attached_or_detached_under_an_ended_tenure, a_session_of_a_dead_instance_does_not_read_as_active,
                an_alias_leads_to_one_session, data_is_merged_field_by_field, what_breaks_a_limit_changes_nothing,
                many_sessions_in_one_call, sessions_are_listed_by_state_page_by_page,
                only_a_session_without_connections_is_deleted, an_attach_gives_a_new_revision,
                a_grace_is_fixed_when_the_last_connection_goes;
            reaper: an_orphan_is_reaped_with_all_it_had, connections_of_the_dead_are_released_once,
                a_huge_front_end_blocks_nobody, an_orphan_is_not_resumed, an_orphan_does_not_keep_its_alias,
                after_a_gap_everyone_has_the_whole_grace_anew, orphans_are_listed_by_how_long_they_are_overdue,
                reapers_share_the_work, the_brake_holds_the_reaper, reconcile_finds_nothing_where_nothing_drifted,
                a_connection_that_is_too_old_is_dropped_by_reconcile;
            boundary: nothing_is_both_resumed_and_reaped;
            sweep: what_the_dead_held_is_evicted_once, a_key_that_moved_survives_the_janitor, two_sweepers_share_the_work,
                a_huge_tenure_blocks_nobody, a_dry_run_changes_nothing, nothing_is_released_before_the_burst_is_seen,
                a_mass_death_is_braked_and_released_in_time, the_brake_lifts_when_members_are_back, an_operator_lifts_the_brake,
                leaving_is_never_braked, a_pass_tells_when_to_come_back;
            gap: an_outage_ends_nobody, everyone_gets_one_full_ttl_after_a_gap, nobody_reads_as_dead_because_nobody_ticked,
                a_settled_group_says_so, force_never_overrides_a_grace, a_lost_list_of_groups_changes_nothing,
                an_operator_settles_a_group, refused_beats_lengthen_lives, a_refusal_revives_no_tenure,
                a_lasting_refusal_counts_for_one_max_ttl;
            forget: a_group_that_was_empty_for_long_is_forgotten, a_group_in_which_anything_is_left_is_kept;
            event: events_tell_what_happened_in_order, events_are_filtered_and_paged, trimmed_events_are_announced,
                long_keys_are_listed_in_several_events, the_log_is_bounded_in_bytes, waiting_ends_with_news;
            random: the_store_agrees_with_the_model, sessions_agree_with_the_model;
        }
    };
    (@cases $make:ident; $($noun:ident: $($case:ident),* $(,)?;)*) => {
        $(mod $noun {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::conformance::$noun::$case(&|options| Box::pin(super::$make(options))).await;
            })*
        })*
    };
}
