"""benchmarks/training.py: the figures of a run from its folder."""

from __future__ import annotations

from pathlib import Path

from benchmarks.training import figures_of
from foundation import run_folder
from foundation.files import append_lines, write_json


def run_in(folder: Path, *, pace: float, old_log_prob_s: float) -> Path:
    """A run of three steps, the first of them slow, and two rollouts of which one is unscored."""
    steps = [
        {
            "timing_s/step": pace * seconds,
            "timing_s/gen": pace * seconds / 2,
            "timing_s/old_log_prob": old_log_prob_s,
            "timing_s/update_actor": pace,
            "perf/total_num_tokens": 1000 * pace,
        }
        for seconds in (100.0, 8.0, 12.0)
    ]
    rollouts = [
        {"reward": None, "timeline": []},
        {"reward": 0.5, "timeline": [["generation", 130.0, 131.0], ["tool", 131.0, 131.5]]},
    ]
    append_lines(folder / run_folder.METRICS, [*steps, {"kind": "checkpoint", "seconds": 9.0}])
    append_lines(folder / run_folder.ROLLOUTS, rollouts)
    write_json(folder / run_folder.SUMMARY, {"peak_memory_gib": 2.0})
    return folder


def test_the_warm_up_is_left_out_and_the_parts_add_up(tmp_path: Path) -> None:
    found = figures_of(run_in(tmp_path, pace=1.0, old_log_prob_s=0.0), started_s=100.0, warm_up=1)
    assert (found["step_s"], found["step_s_each"], found["tokens"]) == (10.0, [8.0, 12.0], 1000)
    parts = [found[name] for name in ("rollouts_s", "old_log_prob_s", "update_s", "other_s")]
    assert parts == [5.0, 0.0, 1.0, 4.0]
    assert (found["startup_s"], found["rollouts"], found["scored"], found["reward_mean"]) == (30.0, 2, 1, 0.5)
