//! The rows of the [`table`](super::table).

/// Every journey in plain words, with the tests that play it.
pub(super) const JOURNEYS: &[(&str, &[&str])] = &[
    (
        "two runs at once",
        &["turns::one_of_two_concurrent_runs_works_and_the_other_skips", "turns::everybody_who_waits_gets_a_turn"],
    ),
    (
        "zombie",
        &[
            "takeover::holder_that_slept_past_its_lease_is_refused_by_the_remote",
            "takeover::status_file_of_a_lost_run_names_the_new_holder",
        ],
    ),
    (
        "frozen inside its push",
        &[
            "takeover::holder_frozen_inside_its_push_does_not_land_after_its_successor",
            "takeover::push_on_its_way_is_stopped_before_the_successor_works",
            "slot::stalled_push_is_evicted_by_the_takeover_and_by_the_revocation",
            "slot::takeover_that_the_gate_lets_wait_for_too_long_is_busy",
            "slot::successors_whose_leases_run_out_at_the_gate_all_get_a_turn",
        ],
    ),
    (
        "ten plain pushes",
        &[
            "pushes::ten_plain_pushes_land_each_with_its_own_token",
            "pushes::parallel_pushes_of_one_run_all_land",
            "pushes::refused_push_costs_a_token_and_nothing_else",
        ],
    ),
    (
        "lost answers",
        &[
            "lost_answers::answer_that_the_remote_loses_is_settled_and_not_guessed",
            "lost_answers::push_whose_connection_was_cut_does_not_land_after_it_was_settled",
            "lost_answers::every_way_to_lose_an_answer_of_the_remote_is_told_truly",
            "lost_answers::lost_push_is_found_in_the_history_of_marks_after_a_takeover",
            "lost_answers::first_mark_whose_answer_was_lost_is_found",
            "lost_answers::answers_that_the_engine_loses_are_settled",
        ],
    ),
    (
        "killed clients",
        &[
            "ending::next_run_starts_when_the_lease_of_a_killed_run_expires",
            "ending::client_killed_during_a_push_finds_out_what_became_of_it",
            "slot::holder_whose_earlier_push_is_still_in_the_slot_is_told_so",
            "lost_answers::client_killed_at_any_answer_of_the_engine_keeps_nobody_out",
        ],
    ),
    (
        "revoke",
        &[
            "revoking::holder_whose_lease_was_revoked_is_refused_at_once",
            "revoking::revocation_stops_a_push_that_is_on_its_way",
            "revoking::revocation_without_the_remote_says_that_a_push_may_still_land",
            "slot::revocation_that_the_gate_lets_wait_for_too_long_says_that_a_push_may_still_land",
            "revoking::run_whose_lease_was_revoked_ends_its_command",
        ],
    ),
    (
        "halt and resume",
        &[
            "halting::halted_fence_admits_nobody_until_it_is_resumed",
            "halting::halt_stops_a_push_that_is_on_its_way",
            "halting::halt_without_the_remote_says_so_and_is_completed_later",
            "halting::live_run_ends_its_command_within_a_heartbeat",
            "halting::twenty_live_runs_end_and_come_back",
            "halting::halt_whose_answer_the_engine_loses_is_settled",
            "halting::halted_fence_does_not_move",
        ],
    ),
    (
        "release",
        &[
            "ending::release_stops_a_push_that_is_on_its_way",
            "ending::release_without_the_remote_leaves_the_barrier_to_the_next_holder",
        ],
    ),
    ("progress", &["ending::progress_is_sent_with_the_heartbeat"]),
    ("stall", &["ending::stalled_command_is_ended_and_the_lease_released"]),
    (
        "single commands",
        &[
            "commands::commands_work_as_with_a_lease_in_the_remote",
            "commands::every_command_reports_a_lost_lease",
            "managing::store_is_tried_and_prepared",
        ],
    ),
    (
        "one place for each fence",
        &[
            "one_place::store_and_remote_never_keep_leases_of_one_fence_side_by_side",
            "one_place::gate_that_asks_the_store_grants_no_lease_in_the_remote",
            "one_place::two_stores_or_two_names_are_two_places",
            "one_place::of_two_places_that_begin_at_once_one_is_refused",
            "one_place::mark_that_was_deleted_is_refused_and_not_made_anew",
            "one_place::fence_whose_lease_beside_the_mark_was_deleted_goes_on",
        ],
    ),
    (
        "by hand",
        &[
            "by_hand::next_number_tried_by_hand_is_refused",
            "by_hand::hosted_remote_without_hooks_refuses_a_zombie_in_gits_own_words",
        ],
    ),
    (
        "moving",
        &[
            "managing::leases_move_into_the_store_and_back",
            "managing::leases_stay_where_the_gate_grants_them",
            "managing::mark_is_put_back_from_what_the_store_knows",
            "managing::store_is_renamed_where_it_is",
        ],
    ),
    ("schedules", &["schedules::each_tick_is_started_once", "schedules::jobs_move_with_the_leases"]),
    (
        "restart and failover",
        &[
            "restarts::run_goes_on_over_a_restart_of_postgres",
            "restarts::tokens_only_grow_over_a_restart_of_postgres",
            "restarts::tokens_only_grow_when_the_leader_of_etcd_is_killed",
            "restarts::tokens_only_grow_when_the_leader_of_etcd_sleeps_and_wakes_up",
            "restarts::tokens_only_grow_when_the_leader_of_etcd_is_cut_off",
            "failover::old_holder_that_a_failover_made_current_again_writes_nothing",
            "failover::of_two_holders_of_the_same_number_one_writes",
        ],
    ),
    (
        "store that fails",
        &[
            "faults::engine_that_cannot_be_reached_is_never_taken_for_held",
            "faults::records_that_are_not_ours_are_left_alone",
            "faults::clock_of_the_holder_does_not_matter",
            "faults::password_of_the_store_is_shown_nowhere",
            "faults::wrong_password_is_denied_and_not_shown",
            "faults::run_whose_engine_goes_silent_ends_with_its_lease",
            "faults::store_whose_clock_jumps_costs_work_and_never_correctness",
        ],
    ),
];
