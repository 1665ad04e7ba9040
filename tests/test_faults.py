"""Which test covers which fault of judges, reward models and the scoring API: a table that cannot go stale.

A line names the fault, the right outcome, and the tests; this file only checks that those tests exist.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PARSE, GATES = "unit/test_judge_parse.py", "unit/test_judge_gates.py"
WIRE, CHAIN, GROUPS = "wire/test_judge_wire.py", "wire/test_judge_chain.py", "wire/test_judge_groups.py"
REPORT, FORMS, PREFLIGHT = "wire/test_judge_report.py", "unit/test_reference_forms.py", "unit/test_preflight.py"
DAEMON, ROWS, API = "unit/test_daemon.py", "wire/test_row_scorers.py", "wire/test_reward_api.py"
GATE, RESTART, SCHEMA = "unit/test_reward_gate.py", "wire/test_reward_restart.py", "wire/test_reward_schema.py"
SCORING, MERGE = "unit/test_reward_scoring.py", "unit/test_reward_merge.py"

FAULTS: dict[str, list[tuple[str, str]]] = {
    "judge: not JSON, fenced, two objects, text around it -> read once and safely, or asked again": [
        (PARSE, "test_one_verdict_is_read"),
        (PARSE, "test_anything_but_one_verdict_is_refused"),
        (PARSE, "test_any_text_gives_a_verdict_or_a_typed_fault"),
        (WIRE, "test_an_unusable_verdict_is_asked_again"),
    ],
    "judge: NaN, infinity, 8/10, 1.7, -1, true, null, a number beyond any float -> refused": [
        (PARSE, "test_a_score_that_is_no_number_in_range_is_refused"),
    ],
    "judge: orders to the judge, forged markers, forged verdicts -> never above an honest score": [
        (PARSE, "test_a_forged_marker_is_stripped"),
        (PARSE, "test_deeply_nested_markers_cost_one_pass"),
        (WIRE, "test_hostile_text_stays_between_the_markers"),
        (GROUPS, "test_hostile_answers_cannot_forge_a_number_or_a_marker"),
        (REPORT, "test_the_bundled_set_and_the_offline_judge"),
    ],
    "judge: a copied question or rubric, a colon or a set phrase alone -> 0 without a call": [
        (GATES, "test_an_answer_without_content_is_zero"),
        (GATES, "test_the_question_again_is_zero"),
        (GATES, "test_the_rubric_is_zero_whole_and_in_part"),
    ],
    "offline judge: hidden, hedged, withdrawn, tabulated -> nothing; honest forms -> as much as plain ones": [
        (FORMS, "test_it_earns_nothing"),
        (FORMS, "test_it_costs_nothing"),
        (FORMS, "test_no_form_takes_long"),
    ],
    "judge: an answer of 100 kB -> cut and flagged": [(WIRE, "test_an_answer_of_100_kb_is_cut_and_flagged")],
    "judge: one endpoint down, hanging, slow, lying, a web page, a refusal -> the next one": [
        (CHAIN, "test_the_next_endpoint_answers"),
        (CHAIN, "test_an_endpoint_that_failed_is_left_alone_for_a_while"),
        (CHAIN, "test_it_is_asked_again_after_it_has_cooled_down"),
        (WIRE, "test_a_slow_body_counts_against_the_limit"),
    ],
    "judge: all down -> ungraded; a step without any score stops with one message": [
        (CHAIN, "test_all_down_is_a_fault_after_every_endpoint_had_its_tries"),
        (GROUPS, "test_an_outage_leaves_all_unscored"),
        (DAEMON, "test_an_unscored_rollout_is_counted_and_never_a_zero"),
        (DAEMON, "test_a_step_without_data_stops_with_causes_and_counts"),
    ],
    "judge: wrong key, no such model, a web page -> found before the first step": [
        (WIRE, "test_preflight_names_value_and_remedy"),
        (CHAIN, "test_preflight_asks_every_endpoint_and_names_the_wrong_one"),
        (PREFLIGHT, "test_a_wrong_judge_key_is_found_before_the_first_step"),
    ],
    "judge: 429 -> Retry-After honoured, concurrency falls, no endless wait": [
        (WIRE, "test_429_with_retry_after_is_honoured"),
        (WIRE, "test_an_endless_429_ends_with_the_time_limit"),
        (CHAIN, "test_429_lowers_the_concurrency_and_answers_raise_it_again"),
        (CHAIN, "test_a_retry_after_of_years_is_looked_into_again_after_an_hour"),
    ],
    "judge: counts of tokens that cannot be -> not believed": [
        (CHAIN, "test_counts_that_cannot_be_cost_neither_budget_nor_time"),
        (CHAIN, "test_negative_counts_of_a_lying_server_are_no_verdict"),
    ],
    "judge: the same item twice, also in several processes -> one call": [
        (CHAIN, "test_the_same_item_at_the_same_time_in_four_processes_is_one_call"),
        (CHAIN, "test_verdicts_stay_for_the_next_run_and_depend_on_model_rubric_and_content"),
    ],
    "judge: a shared folder that is damaged -> a typed fault": [
        (CHAIN, "test_a_folder_that_cannot_be_used_is_a_fault"),
        (CHAIN, "test_a_verdict_in_the_folder_that_is_none_is_a_fault"),
        (CHAIN, "test_a_pickle_in_the_folder_is_not_loaded"),
    ],
    "judge: a pair in both orders -> the same winner or a tie": [
        (GROUPS, "test_a_judge_that_prefers_a_place_gives_ties"),
        (GROUPS, "test_the_order_of_the_answers_becomes_values"),
    ],
    "reward model: hangs, lies, a web page, no number -> unscored with its kind": [
        (ROWS, "test_a_broken_address_of_the_reward_model_is_unscored"),
        (ROWS, "test_a_fault_of_the_reward_model_is_unscored"),
        (ROWS, "test_a_raw_logit_without_a_scale_is_refused"),
    ],
    "reward model: busy or starting again -> waited for within the time limit": [
        (ROWS, "test_a_busy_reward_model_is_waited_for_and_not_counted_as_a_try"),
        (ROWS, "test_waiting_for_a_reward_model_ends"),
        (RESTART, "test_the_training_client_sees_typed_faults_and_recovers"),
    ],
    "scoring API: no or a wrong token -> 401 in constant time, before the body": [
        (API, "test_without_the_token_nothing_is_scored"),
        (API, "test_a_weak_set_up_does_not_start"),
    ],
    "scoring API: too many, too long, wrong types, deep nesting, bad Unicode -> 413 or 422, never 500": [
        (API, "test_a_bad_body_is_422_with_a_detail"),
        (API, "test_a_large_body_is_413"),
        (API, "test_strange_texts_have_scores"),
        (SCHEMA, "test_what_the_schema_allows_is_scored"),
        (SCHEMA, "test_what_it_does_not_allow_is_422"),
        (SCORING, "test_deeply_nested_marks_cost_one_pass"),
    ],
    "scoring API: the same score alone and in a batch": [
        (SCORING, "test_the_same_score_alone_and_in_a_batch"),
        (API, "test_score_batch_gives_the_scores_of_its_items"),
    ],
    "scoring API: pickled weights, code, another architecture, an adapter on another base -> refused at the start": [
        (SCORING, "test_pickled_weights_are_refused_and_never_opened"),
        (SCORING, "test_code_in_the_folder_is_refused"),
        (SCORING, "test_other_models_are_refused"),
        (SCORING, "test_an_adapter_must_be_merged_first"),
        (MERGE, "test_another_base_is_refused"),
        (MERGE, "test_code_and_other_adapters_are_refused"),
        (MERGE, "test_a_head_that_nobody_brings_is_not_made_up"),
    ],
    "scoring API: overload -> 503 with Retry-After; alive but not ready": [
        (API, "test_an_overloaded_server_says_so_and_lives"),
    ],
    "scoring API: clients that leave, bodies that do not come, a model that fails": [
        (API, "test_who_went_away_is_not_scored"),
        (GATE, "test_half_a_body_is_never_taken_for_a_whole_one"),
        (GATE, "test_a_body_that_does_not_come_in_time_is_408"),
        (GATE, "test_a_failing_model_is_an_error_with_a_detail"),
    ],
    "scoring API: ended, killed and started again under load -> nothing accepted is lost, errors are clear": [
        (RESTART, "test_64_clients_over_an_end_a_kill_and_two_starts"),
        (RESTART, "test_what_outlasts_the_longest_drain_is_told_so"),
        (GATE, "test_an_end_that_does_not_wait_is_503_and_not_500"),
    ],
}


@cache
def tests_of(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_tests_of_a_fault_exist(fault: str) -> None:
    missing = [f"{file}::{name}" for file, name in FAULTS[fault] if name not in tests_of(file)]
    assert not missing, f"renamed or gone: {missing}"
