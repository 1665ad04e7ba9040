"""Health of made-up runs: what is measured, what is warned of once, and what stops a run."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from agl_plugin.run.health import Health
from agl_plugin.update.rules import StopRules, Watch
from sql_agent.config import HealthConfig, build_config
from sql_agent.training.health_rules import LIMITS, behaviour, health_of, watches_of

WATCHES = [
    Watch("health/entropy", "health.entropy_min", 0.1, above=False, advice="vary"),
    Watch("health/clip_share", "health.clip_share_max", 0.3, above=True, advice="slower"),
]
RULES = StopRules(
    max_bad_steps=3, max_flat_steps=2, collapse_drop=0.2, collapse_entropy=0.05, collapse_zero_share=0.8,
    stop_on_collapse=True,
)  # fmt: skip


def health(**rules: Any) -> Health:
    return Health(
        watches=WATCHES,
        rules=StopRules(**{**RULES.__dict__, **rules}),
        window=2,
        max_response_tokens=100,
        describe=lambda rows: {"health/described": float(len(rows))},
    )


def row(**more: Any) -> dict[str, Any]:
    return {"unscored": "", "response_tokens": [10, 20], "finish_reasons": ["tool_calls", "stop"], **more}


def metrics(reward: float = 0.5, entropy: float = 0.5, **more: Any) -> dict[str, Any]:
    return {
        **{"actor/entropy_loss": entropy, "actor/pg_clipfrac": 0.0, "actor/grad_norm": 0.2, "actor/pg_loss": 0.1},
        **{"actor/updates": 1, "actor/updates_skipped": 0, "rollout/reward_mean": reward},
        **{"rollout/reward_min": 0.0, "rollout/reward_max": 1.1, "rollout/zero_reward_share": 0.1},
        **{"rollout/groups": 8, "rollout/groups_too_small": 2, "rollout/zero_variance_groups": 3},
        **more,
    }


def warnings_of(found: dict[str, Any]) -> list[str]:
    return found.get("warnings", [])


def test_a_step_is_measured() -> None:
    rows = [
        row(),
        row(response_tokens=[10, 100], finish_reasons=["tool_calls", ""]),
        row(response_tokens=[5], finish_reasons=["length"]),
        row(unscored="llm_fault", response_tokens=[], finish_reasons=[]),
    ]
    found = health().after_step(1, metrics(), rows)
    assert found["health/zero_variance_share"] == 0.5 and found["health/unscored_share"] == 0.25
    assert found["health/truncation_share"] == pytest.approx(2 / 5)
    assert found["health/answer_tokens_mean"] == pytest.approx((20 + 100 + 5) / 3)
    assert found["health/entropy"] == 0.5 and found["health/described"] == 4 and "warnings" not in found
    assert "health/kl_to_start" not in found and "health/sampler_gap" not in found


def test_what_verl_reports_under_other_names_is_health_too() -> None:
    more = {"actor/kl_to_start": 0.25, "sampler/log_prob_diff_mean": 0.125}
    found = health().after_step(1, metrics(**more), [row()])
    assert (found["health/kl_to_start"], found["health/sampler_gap"]) == (0.25, 0.125)


def test_a_resumed_run_goes_on_with_its_windows_and_tells_nothing_twice(tmp_path: Path) -> None:
    whole, first, second = health(), health(), health()
    rewards = [0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.1, 0.1]
    low = {"actor/entropy_loss": 0.001}
    told = [whole.after_step(n, metrics(r, **low), [row()]) for n, r in enumerate(rewards, 1)]
    parts = [first.after_step(n, metrics(r, **low), [row()]) for n, r in enumerate(rewards[:4], 1)]
    first.save(tmp_path)
    second.load(tmp_path)
    parts += [second.after_step(n, metrics(r, **low), [row()]) for n, r in enumerate(rewards[4:], 5)]
    assert parts == told and any("warnings" in one for one in told)
    second.load(tmp_path / "of an older version")


def test_the_moving_mean_is_over_the_window() -> None:
    one = health()
    means = [one.after_step(n, metrics(r), [])["health/reward_moving_mean"] for n, r in enumerate([0.2, 0.4, 0.8])]
    assert means == pytest.approx([0.2, 0.3, 0.6])


def test_a_limit_warns_once_and_names_value_limit_and_advice() -> None:
    one = health()
    texts = [warnings_of(one.after_step(step, metrics(entropy=0.02), [])) for step in (1, 2, 3)]
    assert texts == [["step 1: health/entropy is 0.02, below health.entropy_min = 0.1: vary"], [], []]
    assert not one.stop


def test_one_bad_step_after_good_ones_is_within_the_mean() -> None:
    one = health()
    one.after_step(1, metrics(**{"actor/pg_clipfrac": 0.0}), [])
    assert not warnings_of(one.after_step(2, metrics(**{"actor/pg_clipfrac": 0.5}), []))
    assert warnings_of(one.after_step(3, metrics(**{"actor/pg_clipfrac": 0.5}), []))


@pytest.mark.parametrize("bad", [{"actor/updates_skipped": 1}, {"actor/pg_loss": math.nan}])
def test_bad_steps_in_a_row_stop_the_run(bad: dict[str, Any]) -> None:
    one = health()
    texts = [warnings_of(one.after_step(step, metrics(**bad), [])) for step in (1, 2)]
    assert len(texts[0]) == 1 and "not finite" in texts[0][0] and texts[1] == [] and not one.stop
    one.after_step(3, metrics(**bad), [])
    assert one.stop.startswith("3 steps in a row without a finite update (step 3, health.max_bad_steps = 3)")


def test_a_good_step_between_bad_ones_starts_the_count_anew() -> None:
    one = health()
    for step, skipped in enumerate([1, 1, 0, 1, 1], start=1):
        one.after_step(step, metrics(**{"actor/updates_skipped": skipped}), [])
    assert not one.stop


def test_a_model_without_finite_numbers_is_not_fit_for_a_checkpoint() -> None:
    one = health()
    one.after_step(1, metrics(**{"actor/updates_skipped": 1}), [])
    assert one.weights_are_finite
    found = one.after_step(2, metrics(entropy=math.nan), [])
    assert not one.weights_are_finite and "health/entropy" not in found
    one.after_step(3, metrics(), [])
    assert one.weights_are_finite


def test_equal_rewards_warn_and_then_stop() -> None:
    one, same = health(), {"rollout/reward_min": 0.1, "rollout/reward_max": 0.1}
    same["rollout/zero_variance_groups"] = 6.0  # what it implies is not told beside it
    (warning,) = warnings_of(one.after_step(1, metrics(**same), []))
    assert warning.startswith("step 1: all rewards are 0.1, nothing to learn from; ") and "group_size" in warning
    assert not one.stop
    one.after_step(2, metrics(**same), [])
    assert one.stop.startswith("all rewards of 2 steps in a row are 0.1 (step 2, health.max_flat_steps = 2)")


def test_a_step_with_different_rewards_starts_the_count_of_equal_ones_anew() -> None:
    one, same = health(), {"rollout/reward_min": 0.1, "rollout/reward_max": 0.1}
    for step, more in enumerate([same, {}, same, {}, same], start=1):
        one.after_step(step, metrics(**more), [])
        assert not one.stop
    one.after_step(6, metrics(**same), [])
    assert one.stop.startswith("all rewards of 2 steps in a row")


def test_steps_whose_rewards_are_unknown_are_not_equal_ones() -> None:
    one, bounds = health(), ("rollout/reward_min", "rollout/reward_max")
    for step in range(1, 4):
        unknown = {name: value for name, value in metrics().items() if name not in bounds}
        assert not any("all rewards" in text for text in warnings_of(one.after_step(step, unknown, [])))
    assert not one.stop


def test_stop_rules_of_zero_never_stop() -> None:
    one, same = health(max_bad_steps=0, max_flat_steps=0), {"rollout/reward_min": 0.1, "rollout/reward_max": 0.1}
    for step in range(1, 9):
        one.after_step(step, metrics(**same, **{"actor/updates_skipped": 1}), [])
    assert not one.stop


@pytest.mark.parametrize(("entropy", "zero", "collapsed"), [(0.01, 0.0, True), (0.5, 0.9, True), (0.5, 0.1, False)])
@pytest.mark.parametrize("stops", [True, False])
def test_a_fall_with_low_entropy_or_many_zeros_is_a_collapse(
    entropy: float, zero: float, collapsed: bool, stops: bool
) -> None:
    one = health(stop_on_collapse=stops)
    texts: list[str] = []
    for step, reward in enumerate([0.6, 0.6, 0.3, 0.3], start=1):
        low = {"rollout/zero_reward_share": zero if step > 2 else 0.0}
        texts += warnings_of(one.after_step(step, metrics(reward, entropy if step > 2 else 0.5, **low), []))
    assert any("seems to collapse: reward is 0.300 below" in text for text in texts) is collapsed
    assert bool(one.stop) is (collapsed and stops)


def test_a_run_that_starts_low_and_stays_there_has_not_collapsed() -> None:
    one = health()
    for step in range(1, 9):
        one.after_step(step, metrics(0.1, 0.01, **{"rollout/zero_reward_share": 0.95}), [])
    assert not one.stop


def test_every_limit_of_the_configuration_is_watched_and_documented() -> None:
    limits = {key for key in HealthConfig.model_fields if key.endswith(("_max", "_min"))}
    assert limits == LIMITS.keys()
    assert {watch.key for watch in watches_of(HealthConfig())} == {f"health.{key}" for key in limits}
    assert not [w for w in watches_of(HealthConfig(entropy_min=0)) if w.key == "health.entropy_min"]


def called(tool: str, outcome: str) -> dict[str, Any]:
    """A rollout of an agent that has no SQL, with one call of a tool."""
    return row(sql_calls=[], tool_calls=[{"name": tool, "outcome": outcome}], answer="#### 4", reward=1.0)


def test_a_policy_that_stops_calling_its_tool_is_told_of_once_whatever_the_tool() -> None:
    one = health_of(
        (
            config := build_config({"agent": {"tools": ["python"]}, "health": {"window": 2, "answer_chars_max": 0}})
        ).health,
        config,
        max_response_tokens=768,
    )
    lazy, fails = row(sql_calls=[], tool_calls=[], answer="#### 4", reward=1.0), called("python", "error")
    steps = [[called("python", "ok"), lazy], [called("python", "cut"), lazy], [lazy, fails], [lazy, lazy], [lazy, lazy]]
    found = [one.after_step(step, metrics(), rows) for step, rows in enumerate(steps, start=1)]
    assert [step["health/tool_call_share"] for step in found] == [0.5, 0.5, 0.0, 0.0, 0.0]
    told = [text for step in found for text in warnings_of(step) if "tool_call_share" in text]
    assert len(told) == 1 and told[0].startswith(
        "step 4: health/tool_call_share is 0, below health.tool_call_share_min"
    )


def test_an_agent_without_tools_of_ours_is_not_told_to_call_them() -> None:
    def watched(**agent: Any) -> bool:
        watches = health_of(HealthConfig(), build_config({"agent": agent}), max_response_tokens=768).watches
        return "health.tool_call_share_min" in {watch.key for watch in watches}

    assert watched() and watched(tools=["python"]) and watched(tools=[], mcp={"a": {"command": "b"}})
    assert not watched(tools=[]) and not watched(command="./play")


def test_health_travels_to_the_process_that_trains() -> None:
    config = build_config({"health": {"window": 3, "on_collapse": "stop"}})
    one = pickle.loads(pickle.dumps(health_of(config.health, config, max_response_tokens=64)))
    assert (one.window, one.max_response_tokens, one.rules.stop_on_collapse) == (3, 64, True)
    assert "health/unscored_share" in one.after_step(1, metrics(), [record()])


def call(sql: str, *rows: list[str]) -> dict[str, Any]:
    return {"sql": sql, "result": {"rows": list(rows), "error": None}, "turn": 1}


def record(*calls: dict[str, Any], sql: float = 0.1, answer: str = "是", unscored: str = "") -> dict[str, Any]:
    parts = {} if unscored else {"sql": sql, "answer": 0.5}
    return row(sql_calls=list(calls), reward_parts=parts, answer=answer, unscored=unscored)


def test_behaviour_is_told_from_the_records() -> None:
    rows = [
        record(call("SELECT 1", ["x"]), answer="高血压"),
        record(call("SELECT 2"), answer="a" * 9),
        record(call("SELECT  3"), call("SELECT 3", ["x"])),
        record(sql=0.0),
        record(unscored="judge_unreachable"),
        row(unscored="agent_error", response_tokens=[]),
    ]
    found = behaviour(rows)
    assert found["health/bonus_without_rows_share"] == 1 / 4 and found["health/repeat_share"] == 1 / 4
    assert found["health/judge_fault_share"] == pytest.approx(1 / 6)
    assert found["health/answer_chars_mean"] == pytest.approx((3 + 9 + 1 + 1) / 4)


def test_without_a_scored_rollout_behaviour_is_unknown() -> None:
    assert behaviour([record(unscored="judge_unreachable")]) == {"health/judge_fault_share": 1.0}
    assert behaviour([]) == {"health/judge_fault_share": 0.0}
