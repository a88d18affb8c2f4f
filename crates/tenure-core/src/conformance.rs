//! The contract of every store: named cases on a virtual store clock, and a random comparison with the reference model.
//!
//! A store's crate implements [`Harness`], passes it to [`conformance_tests!`](crate::conformance_tests), and gets one test
//! per case. Every store runs every case. Another path to the same store (a cluster, a least-privileged user, a wrapper)
//! runs the subset `one_per_call`: one case for each call, and the random histories. The cases `shared_leases` and `waits`
//! are for stores that serve these calls.

pub mod boundary;
mod cases;
pub mod event;
pub mod forget;
pub mod gap;
pub mod lease;
pub mod lease_end;
pub mod ledger;
pub mod membership;
pub mod pulse;
pub mod queue;
pub mod random;
pub mod reaper;
pub mod registry;
pub mod revoke;
pub mod roster;
pub mod roster_end;
pub mod session;
pub mod shared;
pub mod specification;
pub mod sweep;
pub mod target;
mod world;

pub use cases::{Cases, Chance};
pub use world::{Harness, HarnessFuture, Make, World};

/// Generates one test per case. The argument is an `async fn(StoreOptions) -> Box<dyn Harness>` that creates a store.
/// With `, one_per_call` after it: one case for each call of a store, and the random histories. With `, traces: PATH`:
/// replays the traces of the specification that the function [`Traces`](crate::conformance::specification::Traces) at
/// this path returns.
#[macro_export]
macro_rules! conformance_tests {
    ($make:ident, one_per_call) => {
        $crate::conformance_tests! { @cases $make;
            membership: join_gives_a_tenure_that_a_beat_extends, a_member_lapses_exactly_at_its_end,
                joining_again_supersedes, leaving_is_idempotent_and_names_the_first_reason, a_beat_can_change_the_ttl,
                labels_come_back, labels_change_without_a_rejoin, members_are_listed_page_by_page, reasons_are_kept_for_two_max_ttls;
            registry: a_claim_is_new_then_kept_then_moved, a_release_names_the_exact_tenure, claims_are_listed_page_by_page,
                a_member_takes_over_from_its_own_earlier_tenure;
            lease: tokens_rise_for_ever, a_release_names_the_exact_tenure_and_token, leases_are_listed_page_by_page,
                an_unknown_revision_marks_a_gap;
            lease_end: no_progress_frees_leases_as_an_expulsion_does, a_hand_off_reserves_the_lease_for_the_successor, the_janitor_releases_leases_of_the_dead_once,
                a_reservation_ends_with_the_successors_tenure, a_burst_of_refused_acquires_engages_the_brake;
            target: targets_are_added_changed_and_removed, targets_are_listed_page_by_page;
            session: a_session_is_created_left_and_resumed, an_alias_leads_to_one_session,
                data_is_merged_field_by_field, sessions_are_listed_by_state_page_by_page,
                only_a_session_without_connections_is_deleted;
            reaper: an_orphan_is_reaped_with_all_it_had, orphans_are_listed_most_overdue_first,
                a_connection_that_is_too_old_is_dropped_by_reconcile;
            sweep: holdings_of_the_dead_are_evicted_once, a_dry_run_changes_nothing;
            gap: an_outage_ends_no_tenure, a_lost_list_of_groups_changes_nothing,
                an_operator_settles_a_group, refused_beats_extend_tenures;
            forget: a_long_empty_group_is_forgotten, a_group_with_contents_is_kept;
            event: events_are_filtered_and_paged, the_log_is_bounded_in_bytes, waiting_ends_with_a_new_event;
            random: the_store_agrees_with_the_model, sessions_agree_with_the_model;
        }
    };
    ($make:ident, traces: $traces:path) => {
        mod specification {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn traces_of_the_specification_are_replayed() {
                let make = |options| -> $crate::conformance::HarnessFuture { Box::pin(super::$make(options)) };
                $crate::conformance::specification::replay_all(&make, $traces).await;
            }
        }
    };
    ($make:ident, shared_leases) => {
        $crate::conformance_tests! { @cases $make;
            shared: each_holder_has_a_place_and_a_token, the_number_of_holders_is_fixed_while_taken,
                a_second_release_makes_no_room, a_place_is_taken_until_the_last_deadline,
                a_lapsed_holders_place_is_granted, a_hand_off_reserves_a_place, an_ended_successors_place_is_free, a_read_shows_all_holders,
                the_janitor_releases_places_of_the_dead, a_generation_begins_on_a_free_lease, shared_leases_agree_with_the_model;
            revoke: a_revoked_lease_is_free_when_noticed, a_revoked_lease_is_free_at_the_deadline,
                a_revoked_lease_ends_with_the_tenure, a_holder_gives_up_a_revoked_lease, an_operator_names_the_grant,
                an_ended_holders_lease_is_not_revoked, only_the_tenures_revision_is_noticed,
                a_beat_for_others_notices_nothing;
        }
    };
    ($make:ident, waits) => {
        $crate::conformance_tests! { @cases $make;
            queue: a_freed_lease_goes_to_the_first_waiter, a_waiters_grant_follows_its_last_revision,
                a_free_lease_needs_no_wait, a_place_ends_with_its_tenure_and_its_wait, asking_again_keeps_the_place,
                a_kept_grant_belongs_to_the_newest_request, a_gap_clears_request_numbers,
                a_lapsed_holders_lease_goes_to_the_waiter,
                a_waiter_is_served_at_the_last_deadline, a_waiter_is_served_at_a_deadline_that_came_nearer,
                a_hand_off_goes_before_the_queue, a_wait_of_zero_is_the_last,
                an_ended_successors_lease_goes_to_the_waiter, a_hand_off_serves_a_waiting_successor, a_replaced_request_is_announced,
                waiters_fix_the_number_of_holders, a_settled_group_serves_all_waiters,
                a_waiter_is_served_at_the_end_of_a_grace, a_bad_wait_changes_nothing,
                places_of_a_shared_lease_are_waited_for, a_revoked_lease_goes_to_the_waiter,
                the_brake_does_not_hold_waiters;
        }
    };
    ($make:ident) => {
        $crate::conformance_tests! { @cases $make;
            membership: join_gives_a_tenure_that_a_beat_extends, a_member_lapses_exactly_at_its_end,
                dead_is_final, joining_again_supersedes, terms_rise_for_ever, leaving_is_idempotent_and_names_the_first_reason,
                a_late_leave_cannot_touch_a_successor, a_beat_of_an_expelled_member_names_the_reason, a_beat_can_change_the_ttl,
                a_bad_beat_fails_no_other_in_its_batch, labels_come_back, labels_change_without_a_rejoin, labels_of_an_ended_tenure_stay,
                a_bad_ttl_changes_nothing, members_are_listed_page_by_page,
                a_call_past_its_not_after_changes_nothing, reasons_are_kept_for_two_max_ttls;
            registry: a_claim_is_new_then_kept_then_moved, if_absent_yields_only_to_living_owners, reads_never_show_a_ghost,
                nothing_is_claimed_under_an_ended_tenure, a_release_names_the_exact_tenure, many_keys_in_one_call,
                claims_are_listed_page_by_page, a_member_takes_over_from_its_own_earlier_tenure, a_bad_cursor_is_refused;
            lease: a_lease_has_one_holder, tokens_rise_for_ever, a_lapsed_holders_lease_is_granted_without_a_sweep,
                nothing_is_acquired_or_released_under_an_ended_tenure, a_release_names_the_exact_tenure_and_token,
                many_leases_in_one_call, leases_are_listed_page_by_page, an_unsettled_group_grants_no_new_lease,
                an_unknown_revision_marks_a_gap, an_act_with_an_unknown_revision_marks_a_gap,
                an_acquire_past_its_not_after_changes_nothing;
            lease_end: a_superseded_holders_lease_waits_for_its_deadline, leaving_frees_leases_immediately,
                no_progress_frees_leases_as_an_expulsion_does,
                a_hand_off_reserves_the_lease_for_the_successor, the_janitor_releases_leases_of_the_dead_once,
                a_reservation_ends_when_the_successor_acquires, a_reservation_ends_with_the_successors_tenure,
                an_ended_tenure_without_holdings_leaves_the_work_list,
                waiting_leases_do_not_delay_claims, leases_count_toward_a_turn_of_the_janitor,
                a_burst_of_refused_acquires_engages_the_brake;
            target: targets_are_added_changed_and_removed, a_bad_target_changes_nothing, targets_are_listed_page_by_page;
            session: a_session_is_created_left_and_resumed, a_second_connection_keeps_the_session,
                detaching_an_unattached_connection_changes_nothing, a_late_detach_is_ignored_by_its_epoch,
                nothing_is_attached_or_detached_under_an_ended_tenure, a_session_of_a_dead_instance_does_not_read_as_active,
                an_alias_leads_to_one_session, data_is_merged_field_by_field, a_call_over_a_limit_changes_nothing,
                many_sessions_in_one_call, sessions_are_listed_by_state_page_by_page,
                only_a_session_without_connections_is_deleted, an_attach_gives_a_new_revision,
                the_last_detach_fixes_the_grace;
            reaper: an_orphan_is_reaped_with_all_it_had, connections_of_the_dead_are_released_once,
                a_huge_front_end_does_not_block_others, an_orphan_is_not_resumed, an_orphan_does_not_keep_its_alias,
                a_gap_restarts_the_grace_of_every_session, orphans_are_listed_most_overdue_first,
                reapers_share_the_work, the_brake_holds_the_reaper, reconcile_repairs_nothing_without_drift,
                a_connection_that_is_too_old_is_dropped_by_reconcile;
            boundary: no_session_is_both_resumed_and_reaped;
            sweep: holdings_of_the_dead_are_evicted_once, a_step_looks_ahead, a_moved_key_survives_the_janitor,
                two_sweepers_share_the_work, a_huge_tenure_does_not_block_others, a_dry_run_changes_nothing, holdings_are_released_only_after_the_burst,
                a_mass_death_is_braked_and_released_in_time, the_brake_lifts_when_members_are_back, an_operator_lifts_the_brake,
                leaving_is_never_braked, status_reports_the_next_wake_up;
            gap: an_outage_ends_no_tenure, a_gap_restarts_every_ttl, members_read_alive_after_an_outage_without_ticks,
                an_event_reports_that_the_group_settled, force_never_overrides_a_grace, a_lost_list_of_groups_changes_nothing,
                an_operator_settles_a_group, refused_beats_extend_tenures, a_refusal_revives_no_tenure,
                a_refusal_extends_by_at_most_one_max_ttl;
            pulse: a_late_visit_extends_no_life, a_takeover_in_a_quiet_group_needs_no_visit, a_gap_is_dated_by_its_end,
                whatever_comes_first_after_an_outage_ends_nobody, a_sweep_proves_no_service, pauses_are_gaps_by_ttl,
                a_failed_beat_restarts_the_ttls_of_its_group, many_failed_groups_are_a_gap_of_the_store,
                what_is_due_is_listed, the_list_of_due_groups_says_when_the_store_resumed;
            forget: a_long_empty_group_is_forgotten, a_group_with_contents_is_kept;
            event: events_record_changes_in_order, events_are_filtered_and_paged, trimmed_events_are_announced,
                long_keys_are_listed_in_several_events, the_log_is_bounded_in_bytes, waiting_ends_with_a_new_event;
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
