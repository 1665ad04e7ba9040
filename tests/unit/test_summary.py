"""summary.json from what a run wrote: means over scored rollouts, reasons counted, seconds that add up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from foundation import run_folder
from foundation.errors import RunError
from foundation.files import append_lines, write_text
from sql_agent.config import build_config
from sql_agent.training.plan import Plan, carry_out
from sql_agent.training.summary import best_text, build_summary, summary_table

FACTS = {"status": "finished", "error": "", "total_steps": 2, "judge": "offline", "model": {"path": "/m"}}


def rollout(reward: float | None, *, unscored: str = "", mode: str = "train", tokens: int = 2) -> dict[str, Any]:
    parts = {"sql": 0.1, "answer": reward - 0.1} if reward is not None else {}
    stop = "fault" if reward is None else "answered"
    row = {"mode": mode, "reward": reward, "reward_parts": parts, "unscored": unscored, "stop_reason": stop}
    return {**row, "response_tokens": [5] * tokens}


def step(number: int, reward: float, *, seconds: float = 10.0) -> dict[str, Any]:
    return {
        **{"kind": "train", "step": number, "of_steps": 2, "seconds": seconds, "rollout/reward_mean": reward},
        **{"rollout/groups": 4, "rollout/zero_variance_groups": number, "actor/grad_norm": 0.5, "actor/pg_loss": 0.01},
        **{"actor/weights_changed_share": 1.0, "time/generation": 6.0, "time/update": 2.0},
    }


def validation(number: int, reward: float) -> dict[str, Any]:
    return {"kind": "val", "step": number, "of_steps": 2, "seconds": 3.0, "val/reward_mean": reward, "val/scored": 8}


@pytest.fixture
def summary(tmp_path: Path) -> dict[str, Any]:
    rows = [validation(0, 0.2), step(1, 0.4), step(2, 0.6), validation(2, 0.5)]
    checkpoint = {"kind": "checkpoint", "step": 2, "of_steps": 2, "seconds": 1.0}
    append_lines(tmp_path / run_folder.METRICS, [*rows, checkpoint])
    rollouts = [rollout(0.4), rollout(0.8, tokens=3), rollout(None, unscored="llm_fault")]
    # A rollout can have a reward and yet be useless for training.
    useless = rollout(1.0, unscored="no_token_ids", tokens=0)
    append_lines(tmp_path / run_folder.ROLLOUTS, [*rollouts, useless, rollout(0.0, mode="val")])
    return build_summary(tmp_path, total_s=40.0, peak_memory_gib=5.123, facts=FACTS)


def test_means_are_over_scored_training_rollouts(summary: dict[str, Any]) -> None:
    assert summary["reward_mean"] == pytest.approx(0.6)
    assert summary["reward_parts"] == {"sql": pytest.approx(0.1), "answer": pytest.approx(0.5)}
    assert (summary["rollouts"], summary["scored"], summary["triplets"]) == (4, 2, 5)
    assert summary["unscored"] == {"llm_fault": 1, "no_token_ids": 1}


def test_what_the_judge_cost_is_added_up(tmp_path: Path) -> None:
    usage = {"calls": 2, "cache_hits": 0, "prompt_tokens": 900, "completion_tokens": 100, "cost": 0.25}
    hit = {**dict.fromkeys(usage, 0), "cache_hits": 1}
    rows = [
        {**rollout(0.5, mode=mode), "judge_usage": found} for mode in ("train", "val") for found in (usage, hit, {})
    ]
    append_lines(tmp_path / run_folder.ROLLOUTS, rows)
    summary = build_summary(tmp_path, total_s=5.0, peak_memory_gib=0.1, facts=FACTS)
    doubled = {"calls": 4, "cache_hits": 2, "prompt_tokens": 1800, "completion_tokens": 200, "cost": 0.5}
    assert summary["judge_usage"] == doubled
    assert "offline: 4 calls, 2 from the cache, 2000 tokens, cost 0.5" in rendered(summary)


def test_steps_and_validations_are_told(summary: dict[str, Any]) -> None:
    assert (summary["steps"], summary["reward_last_step"]) == (2, 0.6)
    assert (summary["groups"], summary["zero_variance_groups"], summary["weights_changed"]) == (8, 3, True)
    assert [(v["step"], v["reward_mean"]) for v in summary["validation"]] == [(0, 0.2), (2, 0.5)]


def test_the_best_checkpoint_says_over_which_validations_its_reward_is() -> None:
    best = {"step": 45, "reward_mean": 0.884, "reward_ci95": [0.8, 0.9], "validated_at": [30, 45], "ended": False}
    assert best_text(best) == "step 45: 0.884 [0.8, 0.9], mean over the validations at step 30 and 45"
    assert best_text({**best, "validated_at": [45]}) == "step 45: 0.884 [0.8, 0.9], validated at step 45"


def test_seconds_add_up_to_the_whole(summary: dict[str, Any]) -> None:
    seconds = dict(summary["seconds"])
    assert seconds.pop("total") == 40.0 and sum(seconds.values()) == pytest.approx(40.0)
    assert (seconds["generation"], seconds["update"], seconds["other"]) == (12.0, 4.0, 4.0)
    assert (seconds["validation"], seconds["checkpoint"], seconds["start_and_stop"]) == (6.0, 1.0, 13.0)


def test_a_run_that_did_nothing_has_a_summary(tmp_path: Path) -> None:
    summary = build_summary(tmp_path, total_s=5.0, peak_memory_gib=0.1, facts={**FACTS, "error": "the store is gone"})
    assert (summary["steps"], summary["rollouts"], summary["reward_mean"]) == (0, 0, None)
    assert summary["weights_changed"] is False and json.dumps(summary)
    assert "the store is gone" in rendered(summary)


def test_warnings_are_kept(tmp_path: Path) -> None:
    first = {**step(1, 0.1), "warnings": ["step 1: [health] is bad", "second"]}
    append_lines(tmp_path / run_folder.METRICS, [first, {**step(2, 0.1), "warnings": ["third"]}])
    summary = build_summary(tmp_path, total_s=5.0, peak_memory_gib=0.1, facts=FACTS)
    assert summary["warnings"] == ["step 1: [health] is bad", "second", "third"]
    assert "third" not in rendered(summary)  # the console had it with its step


def test_a_run_without_warnings_says_nothing_of_them(summary: dict[str, Any]) -> None:
    assert summary["warnings"] == [] and "warning" not in rendered(summary)


def test_calls_after_a_steps_end_are_told_where_there_were_any(summary: dict[str, Any], tmp_path: Path) -> None:
    assert "calls after" not in rendered(summary)
    rows = [{**step(1, 0.1), "rollout/late_calls/aborted": 2}, {**validation(1, 0.1), "rollout/late_calls/refused": 5}]
    append_lines(tmp_path / run_folder.METRICS, [*rows, {**step(2, 0.1), "rollout/late_calls/aborted": 1}])
    late = build_summary(tmp_path, total_s=5.0, peak_memory_gib=0.1, facts=FACTS)
    assert late["late_calls"] == {"aborted": 3, "refused": 5}
    assert "calls after a step's end: 3 aborted, 5 refused" in rendered(late)


def test_unmoved_weights_are_shouted(tmp_path: Path) -> None:
    append_lines(tmp_path / run_folder.METRICS, [{**step(1, 0.1), "actor/weights_changed_share": 0.0}])
    summary = build_summary(tmp_path, total_s=5.0, peak_memory_gib=0.1, facts=FACTS)
    assert summary["weights_changed"] is False and "weights NOT changed" in rendered(summary)


def rendered(summary: dict[str, Any], *, width: int = 200) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(summary_table(summary))
    return capture.get()


def test_the_table_says_the_same(summary: dict[str, Any]) -> None:
    text = rendered(summary)
    assert "2 of 2" in text and "0.6 = sql 0.100 + answer 0.500" in text
    assert "1 llm_fault, 1 no_token_ids" in text and "weights changed" in text


def test_a_path_is_whole_on_a_narrow_terminal(summary: dict[str, Any]) -> None:
    path = "/models/" + "x" * 80
    lines = rendered(summary | {"model": {"path": path}}, width=50).splitlines()
    assert path in "".join(line.strip("│ ").split("│")[-1].strip() for line in lines)


@pytest.mark.parametrize(
    ("saved", "resume", "told"),
    [
        (True, "", "--resume {run}"),
        (False, "", "it saved no checkpoint: start it again"),
        (False, "/runs/a/checkpoints/global_step_4", "start it again with --resume /runs/a/checkpoints/global_step_4"),
    ],
)
def test_a_run_that_broke_off_says_how_it_goes_on(tmp_path: Path, saved: bool, resume: str, told: str) -> None:
    def breaks() -> None:
        if saved:
            write_text(tmp_path / run_folder.CHECKPOINTS / run_folder.NOTE, "4")
        raise RunError("the model server is gone")

    plan = Plan(config=build_config({"trainer": {"resume": resume}}), run_dir=tmp_path, model=tmp_path, steps=9)
    summary = carry_out(plan, breaks, begins="starting")
    assert told.format(run=tmp_path) in rendered(summary | {"judge": "offline"})
